//! `waybill`: one binary, every role. Exit codes: 0 fine, 64 bad usage or configuration, 69 a needed service
//! is not there, 70 internal, 78 refused for safety.

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser as _;
use node::command_line::{Command, CommandLine, Flags};
use node::config::{self, Config};
use node::environment::Environment;
use node::{check, data, key_command, replay, serve, telemetry};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Bad usage or configuration.
const USAGE: u8 = 64;
/// A needed service is not there.
const UNAVAILABLE: u8 = 69;
/// A failure of ours.
const INTERNAL: u8 = 70;
/// Understood and refused.
const REFUSED: u8 = 78;

fn main() -> ExitCode {
    let command_line = match CommandLine::try_parse() {
        Ok(command_line) => command_line,
        Err(error) => {
            // Help goes to stdout with 0, mistakes to stderr; a closed pipe changes nothing.
            let _ = error.print();
            return if error.use_stderr() {
                ExitCode::from(USAGE)
            } else {
                ExitCode::SUCCESS
            };
        }
    };
    match run(command_line.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr().lock(), "waybill: {error:#}");
            ExitCode::from(code(&error))
        }
    }
}

fn run(command: Command) -> anyhow::Result<()> {
    // One TLS provider for everything; a second one in a process would panic at the first handshake.
    let _ = rustls::crypto::ring::default_provider().install_default();
    match command {
        Command::Version => print(&format!("waybill {}\n", env!("CARGO_PKG_VERSION"))),
        Command::CheckConfig(flags) => print(&check::report(&load(&flags)?)?),
        Command::Serve(flags) => {
            let config = load(&flags)?;
            telemetry::start(&config);
            runtime()?.block_on(serve::run(config))
        }
        Command::Replay { rebuild, flags } => {
            print(&runtime()?.block_on(replay::run(rebuild, &load(&flags)?, &flags))?)
        }
        Command::Keys { action } => print(&runtime()?.block_on(key_command::run(action, load))?),
    }
}

fn load(flags: &Flags) -> anyhow::Result<Config> {
    Ok(config::load(flags, &Environment::of_process())?)
}

fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("wb-request")
        .build()
}

fn print(text: &str) -> anyhow::Result<()> {
    Ok(std::io::stdout().lock().write_all(text.as_bytes())?)
}

/// The exit code of a failure.
fn code(error: &anyhow::Error) -> u8 {
    for cause in error.chain() {
        if let Some(error) = cause.downcast_ref::<config::Error>() {
            return if matches!(error, config::Error::Refused(_)) {
                REFUSED
            } else {
                USAGE
            };
        }
        if cause.is::<node::yaml::Problem>() || cause.is::<node::UsageError>() {
            return USAGE;
        }
        if let Some(error) = cause.downcast_ref::<node::management::Error>() {
            return if error.is_usage() { USAGE } else { UNAVAILABLE };
        }
        if let Some(error) = cause.downcast_ref::<gateway::Error>() {
            return if matches!(error, gateway::Error::Listen { .. }) {
                UNAVAILABLE
            } else {
                USAGE
            };
        }
        if cause.is::<data::Error>() {
            return UNAVAILABLE;
        }
    }
    INTERNAL
}
