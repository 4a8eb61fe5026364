//! What an engine says of itself: how much waits in its queue and how full its cache is. Whoever looks after health
//! reads it from engines and writes it into bucket [`subject::HEALTH_BUCKET`]; routers watch that and choose by it.

use serde::{Deserialize, Serialize};

use crate::catalog::hex;
use crate::id::BackendId;
use crate::subject;

/// How long a sample counts, in milliseconds: three rounds of reading. An older one is no data.
pub const SAMPLE_AGE_MS_MAX: u64 = 15_000;

/// An engine whose figures are known by their names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// vLLM.
    Vllm,
    /// SGLang.
    Sglang,
    /// llama.cpp's server.
    LlamaCpp,
    /// Text Generation Inference.
    Tgi,
    /// TensorRT-LLM behind Triton.
    Triton,
    /// TensorRT-LLM's own server.
    TensorrtLlm,
}

/// What an engine said at one moment; `None` where it does not tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Sample {
    /// What it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<Kind>,
    /// Requests that it works on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running: Option<u64>,
    /// Requests in its queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<u64>,
    /// How full its cache of keys and values is, in thousandths of a percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kv_percent_milli: Option<u64>,
    /// When it was read, in milliseconds of unix time by the clock of whoever read it. Nobody compares that with a clock
    /// of his own: whoever watches puts in its place when he saw it first, in milliseconds of his monotonic clock, and
    /// all that is said of its age is on that clock.
    pub at_ms: u64,
}

impl Sample {
    /// Reads a sample; `None` for anything else.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }

    /// The sample as bytes.
    pub fn encode(&self) -> Result<Vec<u8>, serde_json::Error> {
        serde_json::to_vec(self)
    }

    /// How old it is, in milliseconds; 0 for one of a clock that is ahead.
    pub const fn age_ms(&self, now_ms: u64) -> u64 {
        now_ms.saturating_sub(self.at_ms)
    }

    /// True while it counts.
    pub const fn is_fresh(&self, now_ms: u64) -> bool {
        self.age_ms(now_ms) <= SAMPLE_AGE_MS_MAX
    }
}

/// Where the sample of a backend is, in bucket [`subject::HEALTH_BUCKET`].
pub fn record_key(backend: &BackendId) -> String {
    format!("{}{}", subject::health::SAMPLE, hex(backend.as_str().as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_comes_back_as_it_was_written_and_says_nothing_of_what_it_does_not_know() {
        let sample = Sample {
            waiting: Some(3),
            kv_percent_milli: Some(41_250),
            at_ms: 7,
            ..Sample::default()
        };

        let bytes = sample.encode().expect("plain data");

        assert_eq!(
            String::from_utf8_lossy(&bytes),
            r#"{"waiting":3,"kv_percent_milli":41250,"at_ms":7}"#
        );
        assert_eq!(Sample::decode(&bytes), Some(sample));
        assert_eq!(Sample::decode(b"{"), None);
    }

    #[test]
    fn a_sample_counts_for_three_rounds_of_reading() {
        let sample = Sample {
            at_ms: 1_000,
            ..Sample::default()
        };

        assert!(sample.is_fresh(0) && sample.is_fresh(16_000));
        assert!(!sample.is_fresh(16_001));
    }

    #[test]
    fn the_record_of_a_backend_has_a_key_that_every_bus_takes() {
        assert_eq!(record_key(&BackendId::from("m:a#0")), "sample.6d3a612330");
    }
}
