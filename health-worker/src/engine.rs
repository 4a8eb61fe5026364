//! What engines call their figures, and the sample that follows from what one says: pure. A figure that an engine does not
//! tell is not known, which is never the same as zero.

use schemas::engine::{Kind, Sample};

use crate::exposition::{self, Figure};

/// A figure by its name, and by a label where one name stands for several.
#[derive(Debug, Clone, Copy)]
struct Named {
    name: &'static str,
    label: Option<(&'static str, &'static str)>,
}

/// The figures of one kind of engine: of each the first that is told counts.
struct Names {
    kind: Kind,
    running: &'static [Named],
    waiting: &'static [Named],
    /// The used share of the cache, 0 to 1.
    cache: &'static [Named],
}

const fn plain(name: &'static str) -> Named {
    Named { name, label: None }
}

const fn labelled(name: &'static str, label: (&'static str, &'static str)) -> Named {
    Named {
        name,
        label: Some(label),
    }
}

const TRITON: &str = "nv_trt_llm_request_metrics";

/// Every kind, by the names that tell it.
const ENGINES: [Names; 6] = [
    Names {
        kind: Kind::Vllm,
        running: &[plain("vllm:num_requests_running")],
        waiting: &[plain("vllm:num_requests_waiting")],
        cache: &[
            plain("vllm:kv_cache_usage_perc"),
            plain("vllm:gpu_cache_usage_perc"),
        ],
    },
    Names {
        kind: Kind::Sglang,
        running: &[plain("sglang:num_running_reqs"), plain("sglang_num_running_reqs")],
        waiting: &[plain("sglang:num_queue_reqs"), plain("sglang_num_queue_reqs")],
        cache: &[plain("sglang:token_usage"), plain("sglang_token_usage")],
    },
    Names {
        kind: Kind::LlamaCpp,
        running: &[plain("llamacpp:requests_processing")],
        waiting: &[plain("llamacpp:requests_deferred")],
        // Older builds alone.
        cache: &[plain("llamacpp:kv_cache_usage_ratio")],
    },
    Names {
        kind: Kind::Tgi,
        running: &[plain("tgi_batch_current_size")],
        waiting: &[plain("tgi_queue_size")],
        cache: &[],
    },
    Names {
        kind: Kind::Triton,
        running: &[
            labelled(TRITON, ("request_type", "scheduled")),
            labelled(TRITON, ("request_type", "active")),
        ],
        waiting: &[labelled(TRITON, ("request_type", "waiting"))],
        cache: &[labelled(
            "nv_trt_llm_kv_cache_block_metrics",
            ("kv_cache_block_type", "fraction"),
        )],
    },
    Names {
        kind: Kind::TensorrtLlm,
        running: &[plain("trtllm_num_requests_running")],
        waiting: &[plain("trtllm_num_requests_waiting")],
        cache: &[plain("trtllm_kv_cache_utilization")],
    },
];

impl Named {
    fn is_of(&self, figure: &Figure<'_>) -> bool {
        let says = |(label, value): (&str, &str)| figure.label(label) == Some(value);
        self.name == figure.name && self.label.is_none_or(says)
    }
}

/// What an engine says in its figures; `None` of a server that is none of those known. A server that tells the figures of
/// several engines or models is as busy as all of them, and its caches as full as they are on average.
pub(crate) fn sample(text: &str, at_ms: u64) -> Option<Sample> {
    let read = exposition::read(text, &is_known);
    let names = ENGINES.iter().find(|names| {
        let mut told = names.running.iter().chain(names.waiting);
        told.any(|named| read.figures.iter().any(|figure| named.is_of(figure)))
    })?;
    let all = |named: &[Named]| values(&read.figures, named);
    let sum = |named: &[Named]| all(named).map(|values| values.iter().sum::<f64>());
    let mean = |values: Vec<f64>| {
        let count = u32::try_from(values.len()).map_or(f64::from(u32::MAX), f64::from);
        values.iter().sum::<f64>() / count
    };
    Some(Sample {
        kind: Some(names.kind),
        running: sum(names.running).map(whole),
        waiting: sum(names.waiting).map(whole),
        kv_percent_milli: all(names.cache).map(|values| whole(mean(values).min(1.0) * 100_000.0)),
        at_ms,
    })
}

/// True for a name that some engine has.
fn is_known(name: &str) -> bool {
    ENGINES.iter().any(|names| {
        let mut all = names.running.iter().chain(names.waiting).chain(names.cache);
        all.any(|named| named.name == name)
    })
}

/// The values of the first of several figures that is told as a number of at least 0.
fn values(figures: &[Figure<'_>], named: &[Named]) -> Option<Vec<f64>> {
    named.iter().find_map(|named| {
        let told = figures.iter().filter(|figure| named.is_of(figure));
        let numbers = told.map(|figure| figure.value);
        let values: Vec<f64> = numbers
            .filter(|value| value.is_finite() && *value >= 0.0)
            .collect();
        (!values.is_empty()).then_some(values)
    })
}

/// A number without its fraction, 0 and more.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a conversion from float saturates, and what is below 0 was left out"
)]
fn whole(value: f64) -> u64 {
    value.round() as u64
}

#[cfg(test)]
mod tests;
