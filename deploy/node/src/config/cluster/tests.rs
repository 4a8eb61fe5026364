//! Roles, bus and store as they are read.

use super::*;
use crate::command_line::Flags;
use crate::config::testing::{loaded, loaded_with};
use crate::config::{self, Config};
use crate::environment::Environment;

const SECRET: &str = "0123456789abcdef0123456789abcdef";

fn good(text: &str, variables: &[(&str, &str)]) -> Config {
    loaded(text, variables).expect("a good configuration")
}

/// The problem that keeps a configuration from running.
fn refused(text: &str, variables: &[(&str, &str)]) -> String {
    let error = good(text, variables).servable().expect_err("unservable");
    assert!(matches!(error, Error::Refused(_)));
    error.to_string()
}

#[test]
fn without_anything_one_process_runs_all_on_its_own_disk() {
    let config = good("", &[]);

    assert_eq!(config.roles, Roles::all());
    assert_eq!(
        config.bus,
        Bus::Embedded {
            log_bytes_max: LOG_BYTES_MAX
        }
    );
    assert_eq!(config.store, Store::Sqlite);
    assert_eq!(config.pool.as_str(), "default");
    assert!(config.servable().is_ok());
}

#[test]
fn an_address_implies_its_kind_and_wins_over_the_file() {
    let variables = [
        ("NATS_URL", "nats://a:4222, nats://b:4222,nats://c"),
        ("DATABASE_URL", "postgres://u:p@h/d"),
        ("API_KEY_SECRET", SECRET),
        ("JWT_SECRET_KEY", SECRET),
    ];
    let config = good("bus: { kind: embedded }\nstore: { kind: sqlite }\n", &variables);

    let Bus::Nats(nats) = &config.bus else {
        panic!("{:?}", config.bus);
    };
    let urls: Vec<&str> = nats.urls.iter().map(|url| url.reveal().as_str()).collect();
    assert_eq!(urls, ["nats://a:4222", "nats://b:4222", "nats://c"]);
    assert_eq!(nats.replicas, 3);
    assert_eq!(config.store.to_string(), "postgres postgres://h/d");
    assert!(config.servable().is_ok());
    let file = good("bus: { url: 'nats://u:p@h:4222', replicas: 3 }\n", &[]);
    assert_eq!(file.bus.to_string(), "nats nats://h:4222 replicas 3");
}

#[test]
fn roles_are_read_from_flag_variable_and_file_in_this_order() {
    let variables = [("WAYBILL_ROLES", "ledger , gateway")];
    let text = "roles: [health]\n";
    let flags = Flags {
        roles: Some("router".to_owned()),
        ..Flags::default()
    };

    assert_eq!(good(text, &variables).roles.to_string(), "gateway,ledger");
    assert_eq!(good(text, &[]).roles.to_string(), "health");
    let config = loaded_with(text, &variables, &flags).expect("load");
    assert_eq!(config.roles.to_string(), "router");
}

#[test]
fn what_cannot_run_as_a_node_is_refused_with_its_place() {
    let nats = ("NATS_URL", "nats://h");
    let secret = ("API_KEY_SECRET", SECRET);
    let jwt = ("JWT_SECRET_KEY", SECRET);

    assert!(refused("cluster: a\nroles: [gateway]\n", &[]).contains(":2: roles: "));
    assert!(refused("", &[("WAYBILL_ROLES", "gateway")]).starts_with("environment: WAYBILL_ROLES"));
    assert!(refused("", &[nats, secret]).contains("DATABASE_URL"));
    let apart = "roles: [gateway, router]\n";
    assert!(refused(apart, &[nats]).starts_with("environment: API_KEY_SECRET"));
    assert!(refused(apart, &[nats, ("API_KEY_SECRET", "short")]).contains("too short"));
    assert!(refused(apart, &[nats, secret]).starts_with("environment: JWT_SECRET_KEY"));
    let short = ("JWT_SECRET_KEY", "short");
    assert!(refused(apart, &[nats, secret, short]).contains("too short"));
    let nobody_is_asked = ("USER_AUTH_ENABLED", "false");
    assert!(good(apart, &[nats, secret, nobody_is_asked]).servable().is_ok());
    assert!(refused(apart, &[nats, secret, nobody_is_asked, short]).contains("too short"));
    let discover = "roles: [gateway, router]\ndiscover: true\n";
    assert!(refused(discover, &[nats, secret]).contains(":2: discover"));
    assert!(good(apart, &[nats, secret, jwt]).servable().is_ok());
    assert!(good("roles: [router]\n", &[nats]).servable().is_ok());
}

#[test]
fn a_cluster_looks_for_no_engines_on_its_own() {
    let environment = Environment::from_pairs([("NATS_URL", "nats://h")]);
    let config = config::load(&Flags::default(), &environment).expect("load");

    assert!(config.demo && !config.discover);
}

#[test]
fn mistakes_are_told_where_they_were_made() {
    for (text, place) in [
        ("bus: { kind: pigeon }\n", ":1: bus.kind"),
        ("bus: { kind: nats }\n", ":1: bus"),
        ("bus: { url: 'http://h' }\n", ":1: bus.url"),
        ("bus: { url: 'nats://h', replicas: 9 }\n", ":1: bus.replicas"),
        ("bus: { url: 'nats://h', tls: { cert: a } }\n", ":1: bus.tls"),
        ("bus: { url: 'nats://h', tls: { sert: a } }\n", ":1: bus.tls.sert"),
        ("store: { kind: stone }\n", ":1: store.kind"),
        ("store: { kind: postgres }\n", ":1: store"),
        ("store: { url: 'mysql://h' }\n", ":1: store.url"),
        ("pool: a.b\n", ":1: pool"),
    ] {
        let error = loaded_with(text, &[], &Flags::default())
            .expect_err(text)
            .to_string();
        assert!(error.contains(place), "{text}: {error}");
    }
    let error = loaded_with("", &[("NATS_URL", "ftp://h")], &Flags::default()).expect_err("a scheme");
    assert!(error.to_string().starts_with("environment: NATS_URL"), "{error}");
    let missing = loaded_with(
        "",
        &[("NATS_URL", "nats://h"), ("NATS_CREDS", "nowhere.creds")],
        &Flags::default(),
    );
    assert!(matches!(missing, Err(Error::Unreadable { .. })));
}

#[test]
fn no_password_is_shown() {
    for (url, shown) in [
        ("postgres://u:p@h:5432/d?sslpassword=x", "postgres://h:5432/d"),
        ("nats://token@h", "nats://h"),
        ("u:p@h:4222", "h:4222"),
    ] {
        assert_eq!(redacted(url), shown);
    }
    let config = good(
        "",
        &[
            ("NATS_URL", "nats://u:secret@h"),
            ("DATABASE_URL", "postgres://u:secret@h/d"),
        ],
    );
    assert!(!format!("{:?} {:?}", config.bus, config.store).contains("secret"));
}

#[test]
fn a_file_of_credentials_that_others_may_read_is_named() {
    use std::os::unix::fs::PermissionsExt as _;

    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("node.creds");
    std::fs::write(&path, "secret").expect("write");
    let variables = |path: &str| good("", &[("NATS_URL", "nats://h"), ("NATS_CREDS", path)]).warnings;
    let text = path.display().to_string();

    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).expect("chmod");
    let loose = variables(&text);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("chmod");

    assert_eq!(loose.len(), 1, "{loose:?}");
    assert!(loose[0].remedy.contains("600"));
    assert_eq!(variables(&text), []);
}
