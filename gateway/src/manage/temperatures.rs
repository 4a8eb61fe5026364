//! `POST /api/v1/nodes/{node}/gpu`: what a host says of its accelerators, so that one that is too hot is spared. It is told
//! to all routers, counts for a minute, and is no change of the catalogue: whoever reports does so again and again.

use std::collections::BTreeSet;
use std::time::Duration;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use bus::Expected;
use bytes::Bytes;
use schemars::JsonSchema;
use schemas::failure::{Failure, FailureCode};
use schemas::health::{
    ACCELERATORS_MAX, Accelerator, HOST_AGE_MS_MAX, HOST_BYTES_MAX, Host, encode, host_key,
};
use schemas::subject::HEALTH_BUCKET;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use super::openapi::{Audience, Operation};
use super::{description, invalid, json, scope};
use crate::arrival::Arrival;
use crate::caller::Caller;
use crate::state::Shared;

/// How long it may take to tell the routers.
const WRITE_WITHIN: Duration = Duration::from_secs(2);
/// Degrees Celsius that an accelerator may have.
const TEMPERATURES: std::ops::RangeInclusive<f64> = -50.0..=200.0;

/// What a host says of its accelerators.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "HostWanted")]
pub(super) struct Wanted {
    /// Its accelerators, each once.
    #[schemars(length(max = 64))]
    gpus: Vec<Accelerator>,
}

const WANTED: &str =
    "the body is not a report: expected gpus, a list of index, temperature_c and, optionally, utilization";

/// What counts of a host now.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Host")]
struct Shown {
    /// The host, as backends name it.
    node: String,
    /// Its accelerators.
    gpus: Vec<Accelerator>,
    /// Seconds for which that counts.
    counts_seconds: u64,
}

/// What the path does.
pub(crate) const REPORT: Operation =
    Operation::ask::<Wanted, Shown>("Takes how hot the accelerators of a host are; it counts for a minute")
        .of(Audience::Platform);

/// Takes a report.
pub(crate) async fn report(
    State(state): State<Shared>,
    arrival: Arrival,
    caller: Caller,
    node: Result<Path<String>, PathRejection>,
    request: Request,
) -> Response {
    if !caller.operates() {
        return arrival.refuse_unread(&scope("only an operator may report temperatures"));
    }
    let (parts, body) = request.into_parts();
    let taken = async {
        let node = named(node)?;
        let bytes = description::body(&state, &parts.headers, body).await?;
        let wanted: Wanted = description::read(&bytes, WANTED)?;
        check(&wanted.gpus)?;
        let host = Host {
            host: node.into(),
            gpus: wanted.gpus,
        };
        write(&state, &host).await?;
        Ok(Shown {
            node: host.host.to_string(),
            gpus: host.gpus,
            counts_seconds: HOST_AGE_MS_MAX / 1_000,
        })
    };
    match taken.await {
        Ok(shown) => json(&shown),
        Err(failure) => arrival.refuse(&failure),
    }
}

fn named(node: Result<Path<String>, PathRejection>) -> Result<String, Failure> {
    let fits =
        |name: &String| (1..=HOST_BYTES_MAX).contains(&name.len()) && !name.chars().any(char::is_control);
    let name = node.ok().map(|Path(name)| name).filter(fits);
    name.ok_or_else(|| invalid("node", "expected the name of a host"))
}

fn check(gpus: &[Accelerator]) -> Result<(), Failure> {
    if gpus.len() > ACCELERATORS_MAX {
        return Err(invalid("gpus", "a host has at most 64 accelerators"));
    }
    let mut seen = BTreeSet::new();
    for (place, gpu) in gpus.iter().enumerate() {
        let of = |field: &str| format!("gpus[{place}].{field}");
        if !seen.insert(gpu.index) {
            return Err(invalid(of("index"), "each accelerator is told of once"));
        }
        if !TEMPERATURES.contains(&gpu.temperature_c) {
            return Err(invalid(
                of("temperature_c"),
                "expected -50 to 200 degrees Celsius",
            ));
        }
        if gpu
            .utilization
            .is_some_and(|percent| !(0.0..=100.0).contains(&percent))
        {
            return Err(invalid(of("utilization"), "expected 0 to 100 percent"));
        }
    }
    Ok(())
}

async fn write(state: &Shared, host: &Host) -> Result<(), Failure> {
    let away = || {
        let text = "the routers cannot be told at the moment";
        Failure::new(FailureCode::StoreUnavailable, text).retry_after(2)
    };
    let bytes = Bytes::from(encode(host).map_err(|_| away())?);
    let key = host_key(&host.host);
    let place = (HEALTH_BUCKET, key.as_str());
    let life = Duration::from_millis(HOST_AGE_MS_MAX);
    let put = state.ports.kv.put_for(place, bytes, Expected::Any, life);
    match timeout(WRITE_WITHIN, put).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(_)) | Err(_) => Err(away()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu(index: u32, temperature_c: f64, utilization: Option<f64>) -> Accelerator {
        Accelerator {
            index,
            temperature_c,
            utilization,
        }
    }

    fn param(gpus: &[Accelerator]) -> Option<String> {
        check(gpus)
            .err()
            .and_then(|failure| failure.param)
            .map(|param| param.to_string())
    }

    #[test]
    fn a_report_says_of_each_accelerator_once_what_one_can_have() {
        assert_eq!(param(&[]), None);
        assert_eq!(param(&[gpu(0, 45.5, Some(100.0)), gpu(1, 200.0, None)]), None);
        for (gpus, told) in [
            (vec![gpu(0, 1.0, None), gpu(0, 1.0, None)], "gpus[1].index"),
            (vec![gpu(0, 200.1, None)], "gpus[0].temperature_c"),
            (vec![gpu(0, f64::NAN, None)], "gpus[0].temperature_c"),
            (vec![gpu(0, 1.0, Some(100.1))], "gpus[0].utilization"),
            ((0..65).map(|index| gpu(index, 1.0, None)).collect(), "gpus"),
        ] {
            assert_eq!(param(&gpus).as_deref(), Some(told));
        }
    }
}
