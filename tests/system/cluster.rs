//! Clusters: two gateways, two ledgers, NATS and `PostgreSQL`, and what happens when any of them dies. These tests are
//! clusters wherever they run.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use harness::{Behaviour, Load, Scene};

mod circuits;
mod keys;
mod kills;
mod leader;
mod leavers;
mod outages;
mod remote;
mod responses;
mod stores;

/// Time between two calls: 50 a second.
const CALL_EVERY: Duration = Duration::from_millis(20);

/// A number from the environment.
pub(crate) fn told(name: &str, default: u64) -> u64 {
    let told = std::env::var_os(name).and_then(|text| text.to_str()?.parse().ok());
    told.unwrap_or(default)
}

/// Calls at the pace of these tests.
fn load(scene: &Scene) -> Load {
    Load::start(&scene.client, CALL_EVERY)
}

/// Lets both upstreams take their time over good answers.
fn good_upstreams(scene: &Scene) {
    for upstream in [&scene.o1, &scene.o2] {
        upstream.on(|request| good(request.streaming()));
    }
}

/// The same, and the first one fails every fifth time in one of several ways.
fn faulty_upstreams(scene: &Scene) {
    good_upstreams(scene);
    let calls = AtomicU64::new(0);
    scene.o1.on(move |request| {
        let call = calls.fetch_add(1, Ordering::Relaxed);
        // A fixed walk through the faults in no simple rhythm with the calls.
        match call.wrapping_mul(7) % 35 {
            0 => Behaviour::error(500, "boom"),
            5 => Behaviour::reset(),
            10 => Behaviour::error(429, "slow down"),
            15 => good(request.streaming()).cut_after_chunks(3),
            20 => Behaviour::closed(),
            25 => Behaviour::error_in_200(serde_json::json!({"error": {"message": "no", "code": 500}})),
            30 => good(request.streaming()).first_byte_delay(Duration::from_millis(400)),
            _ => good(request.streaming()),
        }
    });
}

fn good(streaming: bool) -> Behaviour {
    if streaming {
        Behaviour::chat("")
            .chunks(8, Duration::from_millis(15))
            .usage(9, 8)
    } else {
        Behaviour::chat("hello")
            .usage(9, 8)
            .first_byte_delay(Duration::from_millis(30))
    }
}
