//! Chaos: a cluster under load whose parts are killed, frozen, cut off and damaged by a schedule that a seed gives, and
//! then the books. `make chaos MINUTES=10 SEED=1`; the report is JSON on standard output, and the exit code is 1 where a
//! row of it is not as it has to be.
//!
//! The cluster is two gateways with routers, two ledgers, one health worker, three NATS servers, PostgreSQL and two
//! scripted upstreams, all of them processes of this machine but the upstreams. With `--planted` the gateways have one of
//! the faults that exact limits die of, and the run has to find it.
#![expect(clippy::expect_used, reason = "a test program")]

mod faults;
mod schedule;
mod verdict;
mod workload;

use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use harness::{Behaviour, Model, OPERATOR_KEY, PRICE, Plan, Scene, Upstream, settings};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, sleep_until};

use crate::faults::Broken;
use crate::schedule::{Draws, Entry, Kinds};
use crate::verdict::Row;
use crate::workload::{BUDGET_KEY, BUDGET_USD, RATE, RATE_KEY, SLOTS, SLOTS_KEY, SLOW, WIDE_KEY, Workload};

/// Of so many limited calls at a gateway one panics at its end, where the planted fault shows in that.
const PANIC_EVERY: u32 = 101;
/// That fault.
const OF_PANICS: &str = "slot-leaked-on-panic";
/// What a node says of it.
const PANICKED: &str = "a panic that a test asked for";
/// Seconds of a day: bills and quotas go by it.
const DAY_SECONDS: u64 = 24 * 3_600;
/// How long everything may take to be at rest after the last fault: leases end, spools are published.
const REST: Duration = Duration::from_secs(45);
/// How often is looked whether it is.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Nano-dollars in a dollar.
const NANO_USD: f64 = 1e9;

/// What a run is told.
#[derive(Debug, Parser)]
struct Arguments {
    /// For how many minutes calls are made.
    #[arg(long, default_value_t = 10.0)]
    minutes: f64,
    /// What gives the schedule.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Calls a second.
    #[arg(long, default_value_t = 100)]
    rate: u32,
    /// Which parts break.
    #[arg(long, value_enum, default_value_t = Kinds::All)]
    faults: Kinds,
    /// A fault in the limits of the gateways, by its name.
    #[arg(long)]
    planted: Option<String>,
    /// Of so many limited calls at a gateway one panics at its end; 0 for none.
    #[arg(long, default_value_t = 0)]
    panic_every: u32,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let (report, passes) = runtime.expect("a runtime").block_on(run(&arguments));
    writeln!(std::io::stdout().lock(), "{report:#}").expect("standard output takes the report");
    if passes {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// How far the clocks of all nodes are ahead, so that a day ends amid a run.
#[expect(
    clippy::disallowed_methods,
    reason = "a program beside the nodes, not a part of them"
)]
fn ahead(lasts: Duration) -> Duration {
    let now = u64::try_from(chrono::Utc::now().timestamp()).unwrap_or_default();
    let left = DAY_SECONDS - now % DAY_SECONDS;
    Duration::from_secs(left.saturating_sub(lasts.as_secs() / 2))
}

/// The cluster of a run.
async fn scene(arguments: &Arguments, ahead: Duration) -> Scene {
    let upstreams = (Upstream::start(), Upstream::start());
    let models = [
        Model::new("m").leg(&upstreams.0, 0).leg(&upstreams.1, 1),
        Model::new(SLOW).leg(&upstreams.1, 0),
    ];
    let mut keys = settings()["keys"].clone();
    let wide = json!({"daily_usd": "1000", "total_usd": "1000", "daily_calls": 10_000_000, "rpm": 1_000_000, "concurrency": 5_000});
    for (name, key, limits) in [
        ("wide", WIDE_KEY, wide),
        (
            "slots",
            SLOTS_KEY,
            json!({"concurrency": SLOTS, "daily_usd": "1000", "total_usd": "1000"}),
        ),
        ("budget", BUDGET_KEY, json!({"total_usd": BUDGET_USD})),
        ("rate", RATE_KEY, json!({"rpm": RATE})),
    ] {
        // What a call may cost at most is little, so that budgets are spent.
        let key = json!({"output_default_max": 64, "name": name, "tenant": "acme", "key": key, "role": "free", "limits": limits});
        keys.as_array_mut().expect("a list").push(key);
    }
    let plan = Plan {
        three_servers: true,
        linked: true,
        health_workers: 1,
        ..Plan::default()
    };
    let mut scene = Scene::start_cluster_on(plan, upstreams, |node| {
        let panic_every = match arguments.planted.as_deref() {
            Some(OF_PANICS) => PANIC_EVERY,
            _ => arguments.panic_every,
        };
        let node = node
            .models(&models)
            .ahead(ahead)
            .setting("keys", keys)
            .env("WAYBILL_TEST_PANIC_EVERY", &panic_every.to_string());
        match &arguments.planted {
            Some(name) => node.env("WAYBILL_TEST_PLANTED_BUG", name),
            None => node,
        }
    })
    .await;
    scene.price(SLOW, Some(PRICE));
    for upstream in [&scene.o1, &scene.o2] {
        upstream.on(|request| answer(&request.model(), request.streaming()));
    }
    scene.wait_ready().await;
    scene
}

fn answer(model: &str, streaming: bool) -> Behaviour {
    match (model, streaming) {
        (SLOW, _) => Behaviour::chat("")
            .chunks(30, Duration::from_millis(100))
            .usage(9, 30),
        (_, true) => Behaviour::chat("")
            .chunks(8, Duration::from_millis(15))
            .usage(9, 8),
        (_, false) => Behaviour::chat("hello")
            .usage(9, 8)
            .first_byte_delay(Duration::from_millis(30)),
    }
}

async fn run(arguments: &Arguments) -> (Value, bool) {
    let lasts = Duration::from_secs_f64(arguments.minutes * 60.0);
    let entries = schedule::schedule(arguments.seed, lasts, arguments.faults);
    let ahead = ahead(lasts);
    let mut scene = scene(arguments, ahead).await;
    let start = Instant::now();
    let every = Duration::from_secs(1) / arguments.rate.max(1);
    let workload = Workload::start(&scene.client, every);
    let done = suffer(&mut scene, &entries, (start, ahead, arguments.seed)).await;
    sleep_until(start + lasts).await;
    let made = workload.end().await;
    rest(&mut scene).await;

    let found = scene.judge().await;
    let rows = scene.node.books().table("api_logs").await;
    let panics: usize = scene.logs().matches(PANICKED).count();
    let (failures, told) = verdict::failures(&made, &done, panics);
    let slow: Vec<harness::Call> = scene.o2.recorded();
    let slow: Vec<harness::Call> = slow
        .into_iter()
        .filter(|call| call.request.model() == SLOW)
        .collect();
    let mut verdict = verdict::of_books(&found);
    verdict.push(failures);
    verdict.push(verdict::slots(&slow));
    verdict.push(verdict::rate(&rows, "rate"));
    verdict.push(verdict::once(&rows, &made));
    verdict.extend(quotas(&scene, &rows).await);
    let difference = scene.metric("waybill_counter_ledger_difference").await;
    // A request that panicked does not say where in the spool its waybill is: its gateway tells that as a difference.
    verdict.push(Row::holds(
        "counters of quotas against the ledger",
        json!(difference),
        "0",
        difference.abs() < 0.5 || panics > 0,
    ));
    let whole = made.iter().filter(|made| made.whole).count();
    verdict.push(Row::holds(
        "calls that were answered whole",
        json!({"whole": whole, "of": made.len()}),
        "most of them",
        whole * 2 > made.len(),
    ));
    let passes = verdict.iter().all(Row::passes);
    let violations: Vec<String> = found.iter().take(20).map(|one| format!("{one:?}")).collect();
    let report = json!({
        "seed": arguments.seed,
        "minutes": arguments.minutes,
        "calls_a_second": arguments.rate,
        "planted": arguments.planted,
        "faults": done.iter().map(Entry::told).collect::<Vec<_>>(),
        "answers": verdict::answers(&made),
        "panics": panics,
        "rows": verdict.iter().map(Row::told).collect::<Vec<_>>(),
        "failures": told,
        "violations": violations,
        "pass": passes,
    });
    if !passes && arguments.planted.is_none() {
        eprintln!("{}", scene.logs());
    }
    (report, passes)
}

/// Has the cluster suffer one fault after the other; gives them with the time that each really took.
async fn suffer(
    scene: &mut Scene,
    entries: &[Entry],
    (start, ahead, seed): (Instant, Duration, u64),
) -> Vec<Entry> {
    let mut broken = Broken {
        scene,
        draws: Draws::new(seed.wrapping_add(1)),
        ahead,
    };
    let mut done = Vec::new();
    for entry in entries {
        sleep_until(start + entry.at).await;
        let at = start.elapsed();
        eprintln!(
            "{:>7} ms {:?} for {} ms",
            at.as_millis(),
            entry.fault,
            entry.lasts.as_millis()
        );
        broken.suffer(entry.fault, entry.lasts).await;
        done.push(Entry {
            at,
            lasts: start.elapsed().saturating_sub(at),
            fault: entry.fault,
        });
    }
    done
}

/// Waits until every part is there, nothing is reserved and counters agree with the ledger, or that takes too long.
async fn rest(scene: &mut Scene) {
    scene.turn_client();
    scene.wait_ready().await;
    let deadline = Instant::now() + REST;
    while Instant::now() < deadline {
        let open = scene.metric("waybill_reservations_open").await;
        let difference = scene.metric("waybill_counter_ledger_difference").await;
        if open.abs() < 0.5 && difference.abs() < 0.5 {
            return;
        }
        sleep(LOOK_EVERY).await;
    }
}

/// That what quotas say was used is what the rows of their keys cost, and no more than may be.
async fn quotas(scene: &Scene, rows: &[harness::books::Columns]) -> Vec<Row> {
    let client = scene.client.with_key(OPERATOR_KEY);
    let list = client.get("/api/v1/tenant/api-keys?tenant=acme").await.json();
    let today = rows
        .iter()
        .filter_map(|row| row.get("billing_day")?.clone())
        .max();
    let mut told = Vec::new();
    for (key, quota, name) in [
        ("wide", "total_usd", "used of the wide quota against its rows"),
        (
            "slots",
            "total_usd",
            "used of the quota beside slots against its rows",
        ),
        ("budget", "total_usd", "used of the small budget against its rows"),
        (
            "wide",
            "daily_usd",
            "used of the wide quota of the day against its rows",
        ),
        (
            "slots",
            "daily_usd",
            "used of the quota of the day beside slots against its rows",
        ),
    ] {
        let mut all = list["data"].as_array().into_iter().flatten();
        let record = all.find(|record| record["name"] == key);
        let found = record.and_then(|record| {
            let mut quotas = record["quotas"].as_array()?.iter();
            quotas.find(|found| found["quota"] == quota)
        });
        let used = found.and_then(|quota| quota["used"].as_str()?.parse::<f64>().ok());
        let nano_usd = used.map_or(-1.0, |used| (used * NANO_USD).round());
        let day = today.as_deref().filter(|_| quota == "daily_usd");
        let cost = verdict::cost(rows, key, day);
        told.push(Row::holds(
            name,
            json!({"used_nano_usd": nano_usd, "rows_nano_usd": cost, "day": day}),
            "equal",
            format!("{nano_usd:.0}") == cost.to_string(),
        ));
    }
    let spent = verdict::cost(rows, "budget", None);
    let limit = BUDGET_USD.parse::<f64>().map_or(0.0, |usd| usd * NANO_USD);
    told.push(Row::holds(
        "nano-dollars billed to a key that may spend 50,000,000",
        json!(spent),
        "<= 50000000",
        spent.to_string().parse::<f64>().is_ok_and(|spent| spent <= limit),
    ));
    told
}
