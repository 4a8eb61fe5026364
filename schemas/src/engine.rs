//! What an engine says of itself: how much waits in its queue and how full its cache is. Whoever looks after health
//! reads it from engines and writes it into bucket [`subject::HEALTH_BUCKET`]; routers watch that and choose by it.

use serde::{Deserialize, Serialize};

use crate::catalog::hex;
use crate::id::{BackendId, EndpointId};
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

/// How the names of figures begin that engines have.
const NAMES: [&str; 6] = ["vllm:", "sglang", "llamacpp:", "tgi_", "nv_trt_llm_", "trtllm_"];
/// How those end that count for ever, or tell of a distribution: none of them says how busy an engine is.
const ENDS: [&str; 5] = ["_bucket", "_sum", "_count", "_total", "_created"];
/// Most bytes of figures that are passed on.
const PASSED_BYTES_MAX: usize = 64 * 1_024;

/// A question to a router: what an engine says of itself that wants to know who asks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FiguresQuery {
    /// The endpoint.
    pub endpoint: EndpointId,
    /// Its backend.
    pub backend: BackendId,
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FiguresAnswer {
    /// The figures, line by line, as far as they say how busy the engine is; `None` where it tells none.
    pub text: Option<String>,
}

/// The lines of an engine's figures that say how busy it is, bounded.
pub fn busy_lines(text: &str) -> String {
    let mut kept = String::new();
    for line in text.lines() {
        let end = line.find(['{', ' ', '\t']).unwrap_or(line.len());
        let name = line.get(..end).unwrap_or_default();
        let counts =
            NAMES.iter().any(|begin| name.starts_with(begin)) && !ENDS.iter().any(|end| name.ends_with(end));
        if counts && kept.len() + line.len() < PASSED_BYTES_MAX {
            kept.push_str(line);
            kept.push('\n');
        }
    }
    kept
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
    fn what_is_passed_on_says_how_busy_an_engine_is_and_has_a_bound() {
        let text = "# HELP llamacpp:requests_processing x\nllamacpp:requests_processing 2\n\
                    llamacpp:prompt_tokens_total 7\nvllm:num_requests_waiting{engine=\"0\"} 3.0\n\
                    vllm:e2e_request_latency_seconds_bucket{le=\"1\"} 4\nprocess_cpu_seconds 5\n";

        assert_eq!(
            busy_lines(text),
            "llamacpp:requests_processing 2\nvllm:num_requests_waiting{engine=\"0\"} 3.0\n"
        );
        assert!(busy_lines(&"vllm:x 1\n".repeat(100_000)).len() <= PASSED_BYTES_MAX);
    }

    #[test]
    fn the_record_of_a_backend_has_a_key_that_every_bus_takes() {
        assert_eq!(record_key(&BackendId::from("m:a#0")), "sample.6d3a612330");
    }
}
