//! Who may depend on whom: `schemas` at the bottom, roles that never meet, one package per engine.

use super::{Finding, Package};

/// A package that only the named packages may depend on, and why.
struct Restricted {
    name: &'static str,
    users: &'static [&'static str],
    remedy: &'static str,
}

/// The roles meet on the bus; these packages may see a role's library.
const ROLES_MEET: &str = "roles meet on the bus: move what is shared to schemas, or ask over the bus";

const RESTRICTED: &[Restricted] = &[
    Restricted {
        name: "sqlx",
        users: &["ledger", "system-tests"],
        remedy: "only the ledger has tables: ask it over the bus",
    },
    Restricted {
        name: "axum",
        users: &["gateway", "system-tests"],
        remedy: "only the gateway answers HTTP",
    },
    Restricted {
        name: "async-nats",
        users: &["bus", "system-tests"],
        remedy: "NATS is an adapter: use the ports of bus",
    },
    Restricted {
        name: "reqwest",
        users: &["node", "health-worker"],
        remedy: "upstream calls go through router-worker's client; reqwest is for discovery and probes",
    },
    Restricted {
        name: "hyper-rustls",
        users: &["gateway", "router-worker", "system-tests"],
        remedy: "only the router-worker opens connections to upstreams, and sign-in those to a provider of identities",
    },
    Restricted {
        name: "hyper-util",
        users: &["gateway", "router-worker", "health-worker", "system-tests"],
        remedy: "servers are the gateway's, clients the router-worker's and the health-worker's",
    },
    Restricted {
        name: "hyper",
        users: &["gateway", "router-worker", "health-worker", "system-tests"],
        remedy: "servers are the gateway's, clients the router-worker's and the health-worker's",
    },
    Restricted {
        name: "clap",
        users: &["node", "system-tests"],
        remedy: "only programs have a command line",
    },
    Restricted {
        name: "anyhow",
        users: &["node", "xtask", "system-tests"],
        remedy: "libraries have small error enums (thiserror)",
    },
    Restricted {
        name: "dialects",
        users: &["gateway", "router-worker", "node", "system-tests", "xtask"],
        remedy: "bus and ledger carry facts, not wire formats",
    },
    Restricted {
        name: "gateway",
        users: &["node", "system-tests", "xtask"],
        remedy: ROLES_MEET,
    },
    Restricted {
        name: "router-worker",
        users: &["node", "system-tests"],
        remedy: ROLES_MEET,
    },
    Restricted {
        name: "health-worker",
        users: &["node", "system-tests"],
        remedy: ROLES_MEET,
    },
    Restricted {
        name: "ledger",
        users: &["node", "system-tests", "xtask"],
        remedy: ROLES_MEET,
    },
    Restricted {
        name: "node",
        users: &["system-tests", "xtask"],
        remedy: "the composition root sees everything and is seen by nothing",
    },
    Restricted {
        name: "system-tests",
        users: &[],
        remedy: "tests are seen by nothing",
    },
    Restricted {
        name: "xtask",
        users: &[],
        remedy: "the tool is seen by nothing",
    },
];

/// A pure package and all that it may ship with.
struct Pure {
    name: &'static str,
    may_use: &'static [&'static str],
}

const PURE: &[Pure] = &[
    Pure {
        name: "schemas",
        may_use: &[
            "schemars",
            "serde",
            "serde_json",
            "chrono",
            "uuid",
            "thiserror",
            "base64",
            "sha2",
            // Sealing is defined here, and its randomness is an argument.
            "hpke",
            // Secrets overwrite themselves when they are dropped.
            "zeroize",
            // Digits, written behind each other for the headers of every answer.
            "itoa",
        ],
    },
    Pure {
        name: "dialects",
        may_use: &[
            "schemas",
            "base64",
            "bytes",
            // Several words in one pass over a request.
            "aho-corasick",
            "memchr",
            "serde",
            "serde_json",
            "thiserror",
        ],
    },
];

/// Packages that may be nowhere in the graph.
const BANNED: &[(&str, &str)] = &[
    (
        "aws-lc-rs",
        "one TLS provider (ring): two in one binary panic at the first handshake",
    ),
    ("openssl-sys", "TLS is rustls with ring"),
    ("native-tls", "TLS is rustls with ring"),
    (
        "serde_yaml",
        "YAML is read by serde-saphyr, which has budgets and spans",
    ),
];

/// Findings over the direct dependencies of `packages` and the resolved `graph`.
pub(crate) fn check(packages: &[Package], graph: &[String]) -> Vec<Finding> {
    let mut findings: Vec<Finding> = packages.iter().flat_map(restricted).collect();
    findings.extend(packages.iter().flat_map(pure));
    findings.extend(
        BANNED
            .iter()
            .filter(|(name, _)| graph.iter().any(|it| it == name))
            .map(|(name, remedy)| Finding {
                place: "Cargo.lock".to_owned(),
                rule: format!("{name} is in the dependency graph"),
                remedy,
            }),
    );
    findings
}

fn restricted(package: &Package) -> Vec<Finding> {
    let mut findings = Vec::new();
    for rule in RESTRICTED {
        let used = package.dependencies.iter().any(|it| it.name == rule.name);
        if used && !rule.users.contains(&package.name.as_str()) {
            findings.push(Finding {
                place: format!("package {}", package.name),
                rule: format!("depends on {}", rule.name),
                remedy: rule.remedy,
            });
        }
    }
    findings
}

fn pure(package: &Package) -> Vec<Finding> {
    let Some(rule) = PURE.iter().find(|rule| rule.name == package.name) else {
        return Vec::new();
    };
    package
        .dependencies
        .iter()
        .filter(|it| it.shipped && !rule.may_use.contains(&it.name.as_str()))
        .map(|it| Finding {
            place: format!("package {}", package.name),
            rule: format!("depends on {}", it.name),
            remedy: "this package is pure: no I/O, no clock, no runtime",
        })
        .collect()
}
