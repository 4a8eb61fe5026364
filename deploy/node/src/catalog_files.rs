//! Everything that files, discovery and the demo say, as records of the catalogue.

use std::io;
use std::path::{Path, PathBuf};

use bus::mint::Mint;
use schemas::catalog::limited::{self, RoleLimits};
use schemas::catalog::tenant::{Tenant, tenant_key};
use schemas::catalog::user::{User, user_key};
use schemas::catalog::{self, Origin, ProviderKind};
use schemas::id::{DEFAULT_TENANT, TenantId};
use schemas::limit::limits::Limits;
use schemas::node::NodeRole;
use schemas::secret::Secret;
use schemas::time::Timestamp;

use crate::config::{self, Config};
use crate::environment::Environment;
use crate::files::Files;
use crate::manifest::{self, Kind};
use crate::models::compile::{self, Held, Sources};
use crate::models::{Compiled, file::ModelsFile, routing};
use crate::seed::{self, Records};
use crate::yaml::{Document, Problem};

/// The demo model: answers with the last user message.
const DEMO: &str = "models: [{ id: echo, name: Echo, provider: echo, supports_tools: true, supports_structured_output: true, \
                    context_length: 131072, max_output_length: 131072 }]";

/// The variable that Google's own tools read.
const APPLICATION_CREDENTIALS: &str = "GOOGLE_APPLICATION_CREDENTIALS";
/// Largest file with a credential, in bytes.
const CREDENTIALS_BYTES_MAX: u64 = 64 * 1024;
/// Headers by which OpenRouter knows a site, and the variables that name it.
const ATTRIBUTION: [(&str, &str); 2] = [("http-referer", "SITE_PUBLIC_BASE_URL"), ("x-title", "SITE_NAME")];

/// Its place in the listing: after the models of files, before those that are discovered.
const DEMO_POSITION: u32 = 999_999;

/// Compiles models.yaml, routing.yaml and the demo model. In a cluster only routers hold the credentials of upstreams.
pub fn compile(config: &Config, now: Timestamp) -> Result<Compiled, config::error::Error> {
    let holds = !config.bus.is_shared() || config.roles.has(NodeRole::Router);
    let sources = Sources {
        held: if holds { Held::Here } else { Held::Elsewhere },
        application_credentials: config.environment.get(APPLICATION_CREDENTIALS),
        read: &|path| read_credentials(&config.files, path),
    };
    let files = (config.models_path.as_deref(), config.routing_path.as_deref());
    let mut compiled = of_files(config, files, sources, now)?;
    if config.demo {
        let document = Document::parse("demo", DEMO, &config.environment)?;
        let mut demo = compile::compile(&document.read()?, &document, sources, now)?;
        for model in &mut demo.models {
            model.position = DEMO_POSITION;
        }
        compiled.extend(demo);
    }
    if !compiled.models.is_empty() {
        for place in &config.limits.per_model {
            compiled.problems.extend(place.check(&compiled.models)?);
        }
    }
    attribute(&mut compiled, &config.environment);
    compiled.problems.extend(manifest_problem(config, sources, now));
    Ok(compiled)
}

/// Compiles models.yaml and routing.yaml.
fn of_files(
    config: &Config,
    (models, routing): (Option<&Path>, Option<&Path>),
    sources: Sources<'_>,
    now: Timestamp,
) -> Result<Compiled, config::error::Error> {
    let document = |path: &Path| -> Result<Document, config::error::Error> {
        let text = config::read(&config.files, path)?;
        let name = path.display().to_string();
        Ok(Document::parse(&name, &text, &config.environment)?)
    };
    let mut compiled = Compiled::default();
    if let Some(path) = models {
        let document = document(path)?;
        let file: ModelsFile = document.read()?;
        compiled = compile::compile(&file, &document, sources, now)?;
        let served = |id: &str| compiled.models.iter().any(|model| model.id.as_str() == id);
        let left_out = file
            .models
            .iter()
            .enumerate()
            .filter(|(_, entry)| !served(&entry.id));
        compiled.left_out = left_out
            .map(|(n, entry)| (entry.id.as_str().into(), format!("models[{n}]")))
            .collect();
    }
    if let Some(path) = routing {
        let document = document(path)?;
        routing::apply(&document.read()?, &document, &mut compiled)?;
    }
    Ok(compiled)
}

/// What is wrong with a manifest that is not served from, or with the files that it names.
fn manifest_problem(config: &Config, sources: Sources<'_>, now: Timestamp) -> Option<Problem> {
    let manifest = &config.manifest;
    if manifest.mode != Some(manifest::Mode::Dark) {
        return None;
    }
    if let Some(problem) = &manifest.broken {
        return Some(problem.clone());
    }
    let path = |kind| manifest.dark(kind).map(PathBuf::as_path);
    let files = (path(Kind::Models), path(Kind::Routing));
    match of_files(config, files, sources, now) {
        Ok(_) => None,
        Err(problem) => Some(problem.problem()),
    }
}

/// What a dark manifest would change, and which of several files was chosen.
pub fn notes(config: &Config) -> Vec<String> {
    let kinds = [
        (Kind::Models, config.models_path.as_deref()),
        (Kind::Routing, config.routing_path.as_deref()),
    ];
    let compared = kinds
        .into_iter()
        .filter_map(|(kind, served)| config.manifest.compared(kind, served, &config.files));
    config.notes.iter().cloned().chain(compared).collect()
}

/// Reads a file with a credential.
fn read_credentials(files: &Files, path: &str) -> io::Result<String> {
    files.note(Path::new(path));
    let bytes = std::fs::metadata(path)?.len();
    if bytes > CREDENTIALS_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it is too large"));
    }
    std::fs::read_to_string(path)
}

/// Tells OpenRouter whose calls these are, where the environment names the site and the file says nothing.
pub fn attribute(compiled: &mut Compiled, environment: &Environment) {
    for (header, variable) in ATTRIBUTION {
        let legal = |value: &&str| value.bytes().all(|byte| (0x20..0x7F).contains(&byte));
        let Some(value) = environment.get(variable).map(str::trim).filter(legal) else {
            continue;
        };
        let mine = compiled
            .endpoints
            .iter_mut()
            .filter(|endpoint| endpoint.kind == ProviderKind::Openrouter);
        for endpoint in mine {
            if endpoint.extra_headers.iter().all(|(name, _)| name != header) {
                endpoint.extra_headers.push((header.to_owned(), value.to_owned()));
            }
        }
    }
}

/// What the seeds of callers need.
pub struct Seeds<'a> {
    /// The node's configuration.
    pub config: &'a Config,
    /// Keys the digests of virtual keys.
    pub api_key_secret: &'a Secret<Vec<u8>>,
    /// Makes ids.
    pub mint: &'a Mint,
    /// The time of new records.
    pub now: Timestamp,
}

impl Seeds<'_> {
    /// The records of tenants and of the keys of waybill.yaml.
    pub fn callers(&self) -> Result<Records, seed::Error> {
        let mut records = Records::new();
        let default = TenantId::from(DEFAULT_TENANT);
        let tenants = self.config.limits.tenants.iter();
        let tenants = tenants.map(|tenant| (&tenant.id, &tenant.limits));
        for (id, limits) in std::iter::once((&default, Limits::NONE)).chain(tenants) {
            let tenant = Tenant {
                limits: limits.clone(),
                ..Tenant::new(id.clone(), Origin::File)
            };
            seed::record(&mut records, tenant_key(id), &tenant)?;
        }
        self.members_and_roles(&mut records)?;
        for key in &self.config.keys {
            let digest = gateway::caller::digest(self.api_key_secret.reveal(), key.key.reveal());
            let grant = gateway::key::Grant {
                name: key.name.as_str().into(),
                tenant: key.tenant.clone(),
                user: key.user.clone(),
                role: key.role,
                models: key.models.clone(),
                limits: key.limits.clone(),
                output_default_max: key.output_default_max,
                expires_at: key.expires_at,
            };
            let record = gateway::key::record(self.mint, key.key.reveal(), grant, Origin::File, self.now);
            seed::record(&mut records, catalog::key_key(&digest), &record)?;
        }
        Ok(records)
    }

    fn members_and_roles(&self, records: &mut Records) -> Result<(), seed::Error> {
        for user in &self.config.limits.users {
            let record = User {
                limits: user.limits.clone(),
                ..User::new(user.tenant.clone(), user.id.clone(), Origin::File)
            };
            seed::record(records, user_key(&user.tenant, &user.id), &record)?;
        }
        for (role, limits) in &self.config.limits.roles {
            let record = RoleLimits {
                role: *role,
                limits: limits.clone(),
                origin: Origin::File,
            };
            seed::record(records, limited::role_key(*role), &record)?;
        }
        Ok(())
    }
}

/// The records of models and endpoints.
pub fn served(compiled: &Compiled) -> Result<Records, seed::Error> {
    let mut records = Records::new();
    for model in &compiled.models {
        seed::record(&mut records, catalog::model_key(&model.id), model)?;
    }
    for endpoint in &compiled.endpoints {
        seed::record(&mut records, catalog::endpoint_key(&endpoint.id), endpoint)?;
    }
    Ok(records)
}

/// Variables of HybridInference that change what it serves and that this version does not honour.
const NOT_HONOURED: [&str; 15] = [
    "ALERTS_ENABLED",
    "BACKEND_EXTENSIONS",
    "DB_HOST",
    "DB_NAME",
    "DB_PASSWORD",
    "DB_USER",
    "ENABLE_ROUTEWISE",
    "GEOIP_COUNTRY_DB",
    "IDENTITY_JWT_PRIVATE_KEY",
    "QDRANT_BASE_URL",
    "RAG_API_KEY",
    "SLACK_WEBHOOK_URL",
    "TRUST_CLOUDFLARE_HEADERS",
    "TRUST_PROXY_HEADERS",
    "TURNSTILE_SECRET_KEY",
];

/// Variables that are set and not honoured.
pub fn not_honoured(config: &Config) -> Vec<Problem> {
    let set = NOT_HONOURED
        .iter()
        .filter(|name| config.environment.get(name).is_some());
    set.map(|name| Problem {
        file: "environment".into(),
        line: 0,
        path: (*name).to_owned(),
        message: "it is set and this version does not honour it".into(),
        remedy: "unset it".into(),
    })
    .collect()
}
