//! How hot hosts are, as an exporter of NVIDIA's DCGM tells it: what its figures say is pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use schemas::health::{ACCELERATORS_MAX, Accelerator};

use crate::exposition::{self, Figure};

/// Degrees Celsius.
const TEMPERATURE: &str = "DCGM_FI_DEV_GPU_TEMP";
/// Percent.
const UTILIZATION: &str = "DCGM_FI_DEV_GPU_UTIL";
/// Which accelerator.
const INDEX: &str = "gpu";

/// Who tells how hot a host is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Thermometer {
    /// The host, as the backends of endpoints name it.
    pub host: Arc<str>,
    /// Where its exporter is: `http(s)://host[:port]/metrics`.
    pub url: Arc<str>,
}

/// The accelerators that an exporter tells of, by their places; without a temperature there is none.
pub(crate) fn accelerators(text: &str) -> Vec<Accelerator> {
    let read = exposition::read(text, &|name| name == TEMPERATURE || name == UTILIZATION);
    let of = |name: &str| -> BTreeMap<u32, f64> {
        let told = read.figures.iter().filter(|figure| figure.name == name);
        told.filter_map(place).collect()
    };
    let busy = of(UTILIZATION);
    let hot = of(TEMPERATURE).into_iter().take(ACCELERATORS_MAX);
    hot.map(|(index, temperature_c)| Accelerator {
        index,
        temperature_c,
        utilization: busy.get(&index).copied(),
    })
    .collect()
}

fn place(figure: &Figure<'_>) -> Option<(u32, f64)> {
    let index = figure.label(INDEX)?.parse().ok()?;
    figure.value.is_finite().then_some((index, figure.value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exporter_tells_temperature_and_use_of_each_accelerator() {
        let text = "# TYPE DCGM_FI_DEV_GPU_TEMP gauge\n\
                    DCGM_FI_DEV_GPU_TEMP{gpu=\"1\",UUID=\"GPU-b\",device=\"nvidia1\",Hostname=\"h\"} 91\n\
                    DCGM_FI_DEV_GPU_TEMP{gpu=\"0\",UUID=\"GPU-a\",device=\"nvidia0\",Hostname=\"h\"} 44\n\
                    DCGM_FI_DEV_GPU_UTIL{gpu=\"0\",UUID=\"GPU-a\"} 97\n\
                    DCGM_FI_DEV_GPU_TEMP{gpu=\"x\"} 99\nDCGM_FI_DEV_GPU_TEMP{gpu=\"2\"} NaN\n\
                    DCGM_FI_DEV_GPU_UTIL{gpu=\"7\"} 3\n";

        let told: Vec<_> = accelerators(text)
            .into_iter()
            .map(|gpu| (gpu.index, gpu.temperature_c, gpu.utilization))
            .collect();

        assert_eq!(told, [(0, 44.0, Some(97.0)), (1, 91.0, None)]);
        assert_eq!(accelerators("up 1\n"), []);
    }
}
