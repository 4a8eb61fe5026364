//! How an endpoint's service is woken, as it is said through the management API: no command, which only files may name,
//! and no secret, since it is shown.

use std::sync::Arc;

use schemas::catalog::Backend;
use schemas::failure::Failure;
use schemas::wake::Wake;
use serde_json::{Map, Value};

use crate::manage::invalid;

/// Longest description, in bytes.
const BYTES_MAX: usize = 8 * 1_024;

/// What is said of waking `backends`.
pub(super) fn read(told: Map<String, Value>, backends: &[Backend]) -> Result<Arc<Wake>, Failure> {
    let bytes = serde_json::to_vec(&told).map_or(usize::MAX, |text| text.len());
    if bytes > BYTES_MAX {
        return Err(invalid("wake", "it is too long"));
    }
    if told.get("kind").and_then(Value::as_str) == Some("exec") {
        let text = "commands are named in files of models alone";
        return Err(invalid("wake.kind", text));
    }
    let wake: Wake = serde_json::from_value(Value::Object(told)).map_err(|_| {
        invalid(
            "wake",
            "expected kind http with url and, optionally, method, headers, body, credential, queued_when, \
             offline_when, timeout_seconds, or kind vllm_sleep with, optionally, url, credential",
        )
    })?;
    check(&wake, backends)?;
    Ok(Arc::new(wake))
}

/// Refuses what does not fit (any more) with the backends.
pub(super) fn check(wake: &Wake, backends: &[Backend]) -> Result<(), Failure> {
    wake.check(backends)
        .map_err(|problem| invalid(format!("wake.{}", problem.at), problem.text))
}
