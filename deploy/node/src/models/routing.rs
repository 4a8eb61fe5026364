//! routing.yaml: the split of models between local and remote deployments, by exact base URL.

use std::sync::Arc;

use schemas::catalog::router::{RouteWise, Router};
use serde::Deserialize;
use serde_json::Value;

use super::Compiled;
use crate::yaml::{Document, Problem, number};

/// The file.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RoutingFile {
    /// `fixed` or `routewise`.
    pub default_router: Option<String>,
    /// Seconds to connect for a probe.
    #[serde(deserialize_with = "number")]
    pub timeout: Option<f64>,
    /// Seconds between probes; 0 is off.
    #[serde(deserialize_with = "number")]
    pub health_check: Option<f64>,
    /// Deployments on this machine.
    pub local_deployment: Vec<Deployment>,
    /// Deployments elsewhere.
    pub remote_deployment: Vec<Deployment>,
    /// Free form.
    pub logging: serde_json::Map<String, Value>,
    /// The older spelling.
    pub routing_strategy: Option<String>,
    /// The older spelling.
    pub routing_parameter: Option<Parameter>,
}

/// A deployment.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Deployment {
    /// Base URL.
    pub endpoint: String,
    /// Models it serves.
    pub models: Vec<String>,
}

/// Parameters of the split.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Parameter {
    /// Share of local deployments.
    #[serde(deserialize_with = "number")]
    pub local_fraction: Option<f64>,
}

/// Applies the split to compiled models: within each model listed in both groups, local legs share
/// `local_fraction` (half by default) of the draw and remote legs the rest.
pub fn apply(file: &RoutingFile, document: &Document, compiled: &mut Compiled) -> Result<(), Problem> {
    check(file, document, &mut compiled.problems)?;
    by_default(file, document, compiled)?;
    let fraction = file
        .routing_parameter
        .as_ref()
        .and_then(|parameter| parameter.local_fraction)
        .unwrap_or(0.5);
    if !(0.0..=1.0).contains(&fraction) {
        return Err(document.problem(
            "routing_parameter.local_fraction",
            "a fraction is between 0 and 1",
            "correct it",
        ));
    }
    let mut split = false;
    let endpoints = std::mem::take(&mut compiled.endpoints);
    let base_url = |id: &schemas::id::EndpointId| {
        let endpoint = endpoints.iter().find(|endpoint| endpoint.id == *id)?;
        endpoint.backends.first().map(|backend| backend.base_url.clone())
    };
    for model in &mut compiled.models {
        let member = |group: &[Deployment], url: &str| {
            let listed = |deployment: &Deployment| {
                deployment.endpoint.trim_end_matches('/') == url
                    && deployment.models.iter().any(|name| name == model.id.as_str())
            };
            group.iter().any(listed)
        };
        let groups: Vec<Option<bool>> = model
            .routes
            .iter()
            .map(|route| {
                let url = base_url(&route.endpoint_id)?;
                let local = member(&file.local_deployment, &url);
                (local || member(&file.remote_deployment, &url)).then_some(local)
            })
            .collect();
        let count = |local: bool| groups.iter().filter(|group| **group == Some(local)).count();
        let (locals, remotes) = (count(true), count(false));
        if locals == 0 || remotes == 0 {
            continue;
        }
        split = true;
        for (route, group) in model.routes.iter_mut().zip(&groups) {
            route.weight_micro = match group {
                Some(true) => share(fraction, locals),
                Some(false) => share(1.0 - fraction, remotes),
                None => route.weight_micro,
            };
        }
    }
    compiled.endpoints = endpoints;
    let asked = !file.local_deployment.is_empty() && !file.remote_deployment.is_empty();
    if asked && !split {
        let message = "no model has legs in both groups, so the split does nothing";
        return Err(document.problem(
            "local_deployment",
            message,
            "list a model whose legs have exactly these addresses, or remove the groups",
        ));
    }
    Ok(())
}

/// The router of models that name none.
fn by_default(file: &RoutingFile, document: &Document, compiled: &mut Compiled) -> Result<(), Problem> {
    let (key, word) = match (&file.default_router, &file.routing_strategy) {
        (Some(word), _) => ("default_router", word.as_str()),
        (None, Some(word)) => ("routing_strategy", word.as_str()),
        (None, None) => return Ok(()),
    };
    match word {
        "fixed" => {}
        "routewise" => {
            let router = Arc::new(Router::Routewise(RouteWise::default()));
            let unsaid = compiled.models.iter_mut();
            for model in unsaid.filter(|model| model.router.is_none() && !model.embeds) {
                model.router = Some(Arc::clone(&router));
            }
        }
        _ => {
            let message = format!("\"{word}\" is not a router");
            return Err(document.problem(key, message, "use fixed or routewise"));
        }
    }
    Ok(())
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a fraction of a million"
)]
fn share(fraction: f64, legs: usize) -> u64 {
    (fraction * 1_000_000.0 / legs as f64).round() as u64
}

fn check(file: &RoutingFile, document: &Document, problems: &mut Vec<Problem>) -> Result<(), Problem> {
    for (group, deployments) in [
        ("local_deployment", &file.local_deployment),
        ("remote_deployment", &file.remote_deployment),
    ] {
        for (n, deployment) in deployments.iter().enumerate() {
            let path = format!("{group}[{n}]");
            if deployment.models.is_empty() {
                return Err(document.problem(
                    &format!("{path}.models"),
                    "a deployment lists at least one model",
                    "list its models",
                ));
            }
            if deployment.endpoint.trim().is_empty() {
                let message = format!(
                    "the address for {} is blank; the deployment is left out",
                    deployment.models.join(", ")
                );
                problems.push(document.problem(
                    &format!("{path}.endpoint"),
                    message,
                    "set the variable it refers to",
                ));
            }
        }
    }
    for (key, set) in [
        ("routing_strategy", file.routing_strategy.is_some()),
        ("routing_parameter", file.routing_parameter.is_some()),
    ] {
        if set {
            problems.push(document.problem(key, "an older spelling that still loads", "use default_router"));
        }
    }
    if file.health_check.is_some_and(|seconds| seconds > 0.0) {
        problems.push(document.problem(
            "health_check",
            "this version does not probe",
            "nothing, or set it to 0",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::Environment;
    use crate::models::{compile, file::ModelsFile};

    const MODELS: &str = "models: [{ id: m, provider: openai_compat, route: [
        { base_url: 'http://localhost:1/v1' }, { base_url: 'https://a.example/v1' }, { base_url: 'https://b.example/v1' }] }]";

    fn applied(routing: &str) -> Result<Vec<u64>, Problem> {
        let environment = Environment::default();
        let document = Document::parse("models.yaml", MODELS, &environment)?;
        let file: ModelsFile = document.read()?;
        let sources = compile::Sources {
            held: compile::Held::Here,
            application_credentials: None,
            read: &|_| Err(std::io::ErrorKind::NotFound.into()),
        };
        let mut compiled = compile::compile(&file, &document, sources, schemas::time::Timestamp::default())?;
        let document = Document::parse("routing.yaml", routing, &environment)?;
        apply(&document.read()?, &document, &mut compiled)?;
        Ok(compiled.models[0]
            .routes
            .iter()
            .map(|route| route.weight_micro)
            .collect())
    }

    #[test]
    fn local_and_remote_share_the_draw() {
        let weights = applied(
            "routing_parameter: { local_fraction: 0.8 }
local_deployment: [{ endpoint: 'http://localhost:1/v1', models: [m] }]
remote_deployment: [{ endpoint: 'https://a.example/v1', models: [m] }, { endpoint: 'https://b.example/v1', models: [m] }]",
        );
        assert_eq!(weights, Ok(vec![800_000, 100_000, 100_000]));
    }

    #[test]
    fn a_split_that_would_do_nothing_is_refused() {
        let problem = applied(
            "local_deployment: [{ endpoint: 'http://localhost:1', models: [m] }]
remote_deployment: [{ endpoint: 'https://a.example/v1', models: [m] }]",
        )
        .expect_err("does nothing");
        assert!(problem.message.contains("does nothing"));
    }

    #[test]
    fn a_deployment_without_models_is_refused() {
        let problem =
            applied("local_deployment: [{ endpoint: 'http://h', models: [] }]").expect_err("no models");
        assert_eq!(problem.path, "local_deployment[0].models");
    }

    #[test]
    fn models_that_name_no_router_have_the_one_that_is_named_for_all() {
        let environment = Environment::default();
        let models = "models: [{ id: a, provider: openai_compat, base_url: 'http://localhost:1/v1' },
            { id: b, provider: openai_compat, router: fixed, base_url: 'http://localhost:2/v1' },
            { id: c, provider: openai_compat, model_type: embedding, base_url: 'http://localhost:3/v1' }]";
        let document = Document::parse("models.yaml", models, &environment).expect("it parses");
        let file: ModelsFile = document.read().expect("it reads");
        let sources = compile::Sources {
            held: compile::Held::Here,
            application_credentials: None,
            read: &|_| Err(std::io::ErrorKind::NotFound.into()),
        };
        let compile = || compile::compile(&file, &document, sources, schemas::time::Timestamp::default());
        let by_cost = |routing: &str| -> Result<Vec<bool>, Problem> {
            let mut compiled = compile()?;
            let document = Document::parse("routing.yaml", routing, &environment)?;
            apply(&document.read()?, &document, &mut compiled)?;
            let routers = compiled.models.iter().map(|model| model.router.as_ref());
            Ok(routers
                .map(|router| router.is_some_and(|router| router.routewise().is_some()))
                .collect())
        };

        assert_eq!(by_cost("default_router: routewise"), Ok(vec![true, false, false]));
        assert_eq!(by_cost("default_router: fixed"), Ok(vec![false, false, false]));
        assert_eq!(
            by_cost("routing_strategy: routewise"),
            Ok(vec![true, false, false])
        );
        let problem = by_cost("default_router: nimbus").expect_err("no such router");
        assert_eq!(problem.path, "default_router");
    }
}
