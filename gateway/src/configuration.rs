//! What this node says of its configuration: written by whoever reads the files, read by the management API, by the
//! node's record among the nodes, and by its metrics.

use std::sync::Arc;

use parking_lot::RwLock;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use schemas::configuration::{Report, Severity};

use crate::sign_in::settings::Site;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SeverityLabel {
    severity: &'static str,
}

/// The report of a node; cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Configuration {
    report: Arc<RwLock<Arc<Report>>>,
    site: Arc<RwLock<Option<Arc<Site>>>>,
    problems: Family<SeverityLabel, Gauge>,
}

impl Configuration {
    /// Adds its figures to those of the node.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "waybill_config_problems",
            "What is wrong with the configuration files, by how bad it is",
            self.problems.clone(),
        );
        // The files were read before there were figures.
        self.count(&self.report());
    }

    /// The report as it is now.
    pub fn report(&self) -> Arc<Report> {
        Arc::clone(&self.report.read())
    }

    /// Replaces the report.
    pub fn tell(&self, report: Report) {
        self.count(&report);
        *self.report.write() = Arc::new(report);
    }

    /// What pages say of the site; `None` until somebody told.
    pub(crate) fn site(&self) -> Option<Arc<Site>> {
        self.site.read().clone()
    }

    /// Replaces what pages say of the site.
    pub fn tell_site(&self, site: Site) {
        *self.site.write() = Some(Arc::new(site));
    }

    fn count(&self, report: &Report) {
        for severity in Severity::ALL {
            let label = SeverityLabel {
                severity: severity.word(),
            };
            let count = i64::try_from(report.count(severity)).unwrap_or(i64::MAX);
            self.problems.get_or_create(&label).set(count);
        }
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;
    use schemas::configuration::Problem;
    use schemas::time::Timestamp;

    use super::*;

    #[test]
    fn what_was_told_before_there_were_figures_is_counted() {
        let problem = Problem {
            severity: Severity::Warning,
            file: "models.yaml".into(),
            line: Some(3),
            key: "models[0]".into(),
            message: "it is odd".into(),
            remedy: "correct it".into(),
            since: Timestamp::default(),
        };
        let configuration = Configuration::default();
        configuration.tell(Report {
            problems: vec![problem.clone(), problem],
            ..Report::default()
        });
        let mut registry = Registry::default();

        configuration.register(&mut registry);

        let mut text = String::new();
        encode(&mut text, &registry).expect("figures");
        assert!(
            text.contains("waybill_config_problems{severity=\"warning\"} 2"),
            "{text}"
        );
        assert!(
            text.contains("waybill_config_problems{severity=\"error\"} 0"),
            "{text}"
        );
    }
}
