//! What whoever looks after the health of upstreams asks, and from which temperature on hosts are spared.

use health_worker::Thermometer;
use schemas::health::HOST_BYTES_MAX;

use super::{Error, Resolver};

/// Most exporters of temperatures.
const THERMOMETERS_MAX: usize = 1_024;
/// Degrees Celsius that may be set.
const TEMPERATURE_MAX: f64 = 150.0;

/// What is asked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Health {
    /// Servers that may be engines are asked for their figures, and whether they live while their circuits are open.
    pub engines: bool,
    /// Who tells how hot hosts are.
    pub thermometers: Vec<Thermometer>,
}

impl Resolver<'_> {
    pub(super) fn health(&self) -> Result<Health, Error> {
        let told = &self.settings.health;
        if told.thermometers.len() > THERMOMETERS_MAX {
            let message = "there are too many exporters of temperatures";
            return Err(self
                .document
                .problem("health.thermometers", message, "keep to 1024")
                .into());
        }
        let mut thermometers = Vec::with_capacity(told.thermometers.len());
        for (n, one) in told.thermometers.iter().enumerate() {
            let wrong = |key: &str, message: &str, remedy: &str| {
                let path = format!("health.thermometers[{n}].{key}");
                Error::from(self.document.problem(&path, message, remedy))
            };
            if one.host.is_empty() || one.host.len() > HOST_BYTES_MAX {
                return Err(wrong(
                    "host",
                    "a host has a name of 1 to 128 bytes",
                    "write it as `node` of its backends",
                ));
            }
            let is_web = one.url.starts_with("http://") || one.url.starts_with("https://");
            if !is_web || reqwest::Url::parse(&one.url).is_err() {
                return Err(wrong(
                    "url",
                    "this is not an address",
                    "write it like http://gpu-1:9400/metrics",
                ));
            }
            thermometers.push(Thermometer {
                host: one.host.as_str().into(),
                url: one.url.as_str().into(),
            });
        }
        Ok(Health {
            engines: told.engines.unwrap_or(true),
            thermometers,
        })
    }

    /// Degrees Celsius from which a host is spared, unless something else is set at run time.
    pub(super) fn gpu_temperature_threshold(&self) -> Result<Option<u32>, Error> {
        let Some(told) = self.settings.gpu_temperature_threshold else {
            return Ok(None);
        };
        let whole = (0..=150_u32).find(|whole| f64::from(*whole) >= told.floor());
        let whole = whole.filter(|_| (0.0..=TEMPERATURE_MAX).contains(&told));
        if whole.is_some() {
            return Ok(whole);
        }
        let message = "this is no temperature of an accelerator";
        let remedy = "write 0 to 150 degrees Celsius, or null for never";
        let problem = self
            .document
            .problem("gpu_temperature_threshold", message, remedy);
        Err(problem.into())
    }
}

#[cfg(test)]
mod tests {
    use crate::config::testing::loaded;

    #[test]
    fn engines_are_asked_unless_that_is_switched_off() {
        assert!(loaded("", &[]).expect("fine").health.engines);
        assert!(
            !loaded("health: { engines: false }", &[])
                .expect("fine")
                .health
                .engines
        );
    }

    #[test]
    fn exporters_of_temperatures_have_a_host_and_an_address() {
        let yaml = "health:\n  thermometers:\n    - { host: gpu-1, url: \"http://gpu-1:9400/metrics\" }\n";
        let health = loaded(yaml, &[]).expect("fine").health;
        assert_eq!(&*health.thermometers[0].host, "gpu-1");
        for (wrong, told) in [
            ("{ host: \"\", url: \"http://u\" }", "health.thermometers[0].host"),
            ("{ host: a, url: \"ftp://u\" }", "health.thermometers[0].url"),
            ("{ host: a, url: \"http://\" }", "health.thermometers[0].url"),
        ] {
            let yaml = format!("health:\n  thermometers:\n    - {wrong}\n");
            let problem = loaded(&yaml, &[]).expect_err("wrong").to_string();
            assert!(problem.contains(told), "{problem}");
        }
    }

    #[test]
    fn a_temperature_is_whole_degrees() {
        let of = |yaml: &str| loaded(yaml, &[]).map(|config| config.gpu_temperature_threshold);
        assert_eq!(of("").expect("fine"), None);
        assert_eq!(of("gpu_temperature_threshold: null").expect("fine"), None);
        assert_eq!(of("gpu_temperature_threshold: 84.9").expect("fine"), Some(84));
        for wrong in ["-1", "151", "1e9"] {
            let problem = of(&format!("gpu_temperature_threshold: {wrong}")).expect_err("wrong");
            assert!(
                problem.to_string().contains("gpu_temperature_threshold"),
                "{problem}"
            );
        }
    }
}
