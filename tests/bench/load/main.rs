//! The load generator: keep-alive HTTP/1.1 connections in a closed or open loop, on one thread.
//!
//! It counts an answer only if it is whole (a stream: all events, then `[DONE]`), measures latency and time to first byte, and
//! reads the CPU time and memory of the processes it is told to watch, by name of their threads.

mod arguments;
mod call;
mod idle;
#[path = "../measure.rs"]
mod measure;
mod process;
mod tally;
mod window;

use clap::Parser;

use crate::arguments::Arguments;
use crate::call::Target;
use crate::measure::{IdleStreams, Measurement};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let target = Target::new(&arguments)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    if arguments.idle_streams > 0 {
        let idle = runtime.block_on(idle::run(&arguments, target))?;
        return print_idle(&idle, arguments.json);
    }
    let measurement = runtime.block_on(window::run(&arguments, target))?;
    print_measurement(&measurement, arguments.json)
}

#[expect(clippy::print_stdout, reason = "the result of a command line program")]
fn print_idle(idle: &IdleStreams, as_json: bool) -> anyhow::Result<()> {
    if as_json {
        println!("{}", serde_json::to_string(idle)?);
        return Ok(());
    }
    println!(
        "idle streams {} failed {} rss {:.0} KiB",
        idle.open, idle.failed, idle.rss_kib
    );
    println!("rss before {:.0} KiB", idle.rss_before_kib);
    if let Some(error) = &idle.first_error {
        println!("first error: {error}");
    }
    Ok(())
}

#[expect(clippy::print_stdout, reason = "the result of a command line program")]
fn print_measurement(measured: &Measurement, as_json: bool) -> anyhow::Result<()> {
    if as_json {
        println!("{}", serde_json::to_string(measured)?);
        return Ok(());
    }
    println!(
        "requests/s {:.0} requests {} errors {}",
        measured.requests_per_second, measured.requests, measured.errors
    );
    let latency = measured.latency_us;
    println!(
        "latency us p50 {:.0} p90 {:.0} p99 {:.0}",
        latency.p50, latency.p90, latency.p99
    );
    if let Some(first) = measured.first_byte_us {
        println!(
            "first byte us p50 {:.0} p90 {:.0} p99 {:.0}",
            first.p50, first.p90, first.p99
        );
    }
    for process in &measured.processes {
        println!(
            "pid {} rss {:.0} KiB cpu {:.1} us/request",
            process.pid, process.rss_kib, process.cpu_us
        );
        for (name, cpu_us) in &process.threads {
            println!("  {name:<16} {cpu_us:.1}");
        }
    }
    if let Some(error) = &measured.first_error {
        println!("first error: {error}");
    }
    Ok(())
}
