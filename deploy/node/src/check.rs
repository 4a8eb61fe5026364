//! `waybill check-config`: what the configuration means, and everything that is odd about it.

use std::fmt::Write as _;

use schemas::catalog::Model;
use schemas::time::Timestamp;

use crate::catalog_files;
use crate::config::Config;
use crate::config::error::Error;
use crate::yaml::Problem;

/// The report as text. A configuration that would stop the start is an error instead.
pub fn report(config: &Config) -> Result<String, Error> {
    if let Some(problem) = config
        .manifest
        .broken
        .as_ref()
        .filter(|_| config.manifest.is_active())
    {
        return Err(Error::Wrong(problem.clone()));
    }
    let compiled = catalog_files::compile(config, Timestamp::default())?;
    let mut text = String::new();
    let mut line = |part: std::fmt::Arguments<'_>| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{part}");
    };
    line(format_args!(
        "listen {} data {} cluster {}",
        config.listen,
        config.data_dir.display(),
        config.cluster
    ));
    line(format_args!(
        "roles {} pool {} bus {} store {}",
        config.roles, config.pool, config.bus, config.store
    ));
    line(format_args!(
        "tenants {} keys {} models {} endpoints {}",
        config.limits.tenants.len() + 1,
        config.keys.len(),
        compiled.models.len(),
        compiled.endpoints.len()
    ));
    for model in &compiled.models {
        line(format_args!("{}", described(model)));
    }
    for note in catalog_files::notes(config) {
        line(format_args!("note {note}"));
    }
    let unhonoured = catalog_files::not_honoured(config);
    let problems: Vec<&Problem> = config
        .warnings
        .iter()
        .chain(&compiled.problems)
        .chain(&unhonoured)
        .collect();
    if problems.is_empty() {
        line(format_args!("no problems"));
    }
    for problem in problems {
        line(format_args!("problem {problem}"));
    }
    Ok(text)
}

fn described(model: &Model) -> String {
    let mut text = format!("model {}", model.id);
    for route in &model.routes {
        let price = route.price.map_or("unpriced", |_| "priced");
        let (whole, millionths) = (route.weight_micro / 1_000_000, route.weight_micro % 1_000_000);
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            "\n  route {} priority {} weight {whole}.{millionths:06} {price}",
            route.endpoint_id, route.priority
        );
    }
    text
}
