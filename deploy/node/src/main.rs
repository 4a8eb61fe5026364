//! `waybill`: one binary, every role. Exit codes: 0 fine, 1 compared and not equal, 64 bad usage or configuration, 69 a needed service
//! is not there, 70 internal, 78 refused for safety.

use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser as _;
use node::command_line::{Command, CommandLine, Flags};
use node::config::{self, Config};
use node::environment::Environment;
use node::exit;
use node::{
    check, config_command, counters, data, drain, key_command, migrate, node_command, reconcile, records,
    reload, replay, reprice, serve, simulate, telemetry, verify,
};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let command_line = match CommandLine::try_parse() {
        Ok(command_line) => command_line,
        Err(error) => {
            // Help goes to stdout with 0, mistakes to stderr; a closed pipe changes nothing.
            let _ = error.print();
            return if error.use_stderr() {
                ExitCode::from(exit::USAGE)
            } else {
                ExitCode::SUCCESS
            };
        }
    };
    match run(command_line.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr().lock(), "waybill: {}", exit::told(&error));
            ExitCode::from(exit::code(&error))
        }
    }
}

fn run(command: Command) -> anyhow::Result<()> {
    // One TLS provider for everything; a second one in a process would panic at the first handshake.
    let _ = rustls::crypto::ring::default_provider().install_default();
    // Before there is a thread or a file: prompts, rows and secrets are written in many places.
    data::keep_to_the_owner();
    match command {
        Command::Version => print(&format!("waybill {}\n", env!("CARGO_PKG_VERSION"))),
        Command::CheckConfig(flags) => {
            let config = load(&flags)?;
            config.servable()?;
            print(&check::report(&config)?)
        }
        Command::Serve(flags) => {
            let config = load(&flags)?;
            config.servable()?;
            telemetry::start(&config);
            runtime()?.block_on(serve::run(config))
        }
        Command::Migrate(flags) => print(&runtime()?.block_on(migrate::run(&load(&flags)?))?),
        Command::Drain { wait_seconds, flags } => {
            let config = load(&flags)?;
            telemetry::start(&config);
            print(&runtime()?.block_on(drain::run(&config, Duration::from_secs(wait_seconds)))?)
        }
        Command::Reload(flags) => print(&runtime()?.block_on(reload::run(&load(&flags)?))?),
        Command::Config { action, output } => asked(config_command::run(action, &output, load)),
        Command::Export(output) => asked(config_command::export(output, load)),
        Command::Import { file, output } => asked(config_command::import(&file, output, load)),
        Command::Node { action } => asked(node_command::run(action, load)),
        Command::Replay {
            rebuild,
            spool,
            wait_seconds,
            flags,
        } => {
            let config = load(&flags)?;
            let told = match spool {
                Some(dir) => {
                    telemetry::start(&config);
                    let wait = Duration::from_secs(wait_seconds);
                    runtime()?.block_on(drain::replay(&config, &dir, wait))?
                }
                None => runtime()?.block_on(replay::run(rebuild, &config, &flags))?,
            };
            print(&told)
        }
        Command::Endpoints { action, output } => asked(records::run(&action, &output, load)),
        Command::Routes { action, output } => asked(records::run(&action, &output, load)),
        Command::Prices { action, output } => asked(records::prices::run(&action, &output, load)),
        Command::Tenants { action, output } => asked(records::run(&action, &output, load)),
        Command::Users { action, output } => asked(records::run(&action, &output, load)),
        Command::Grants { action, output } => asked(records::run(&action, &output, load)),
        Command::Keys { action, output } => asked(key_command::run(action, &output, load)),
        Command::Reconcile { asked, output } => {
            let (told, equal) = runtime()?.block_on(reconcile::run(&asked, &output, load))?;
            print(&told)?;
            Ok(equal?)
        }
        Command::Counters(output) => {
            let (told, equal) = runtime()?.block_on(counters::run(&output, load))?;
            print(&told)?;
            Ok(equal?)
        }
        Command::Reprice { asked: what, output } => asked(reprice::run(&what, &output, load)),
        Command::Verify { asked, output } => {
            let (told, sound) = runtime()?.block_on(verify::run(&asked, &output, &load(&output.flags)?))?;
            print(&told)?;
            Ok(sound?)
        }
        Command::Simulate { action } => print(&simulate::run(&action)?),
    }
}

fn load(flags: &Flags) -> anyhow::Result<Config> {
    Ok(config::load(flags, &Environment::of_process())?)
}

/// On one core, threads that hand requests to each other would only be in each other's way.
fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut builder = if cores == 1 {
        tokio::runtime::Builder::new_current_thread()
    } else {
        tokio::runtime::Builder::new_multi_thread()
    };
    builder.enable_all().thread_name("wb-request").build()
}

/// Prints what a command has to tell once it is carried out.
fn asked(command: impl Future<Output = anyhow::Result<String>>) -> anyhow::Result<()> {
    print(&runtime()?.block_on(command)?)
}

fn print(text: &str) -> anyhow::Result<()> {
    Ok(std::io::stdout().lock().write_all(text.as_bytes())?)
}
