//! Whole programs that call models, against a node before strict servers that follow a script: OpenAI's chat, Anthropic's
//! and Gemini's API. They complete whole tasks, and turns whose first calls go wrong.
//! `make test-clients` installs them (`scripts/setup.sh clients`) and runs these; one that is missing is an error.

mod claude;
mod codex;
mod model;
mod others;
mod program;

/// The place of a program that comes in a package for this machine, such as `codex-linux-x64`.
fn platform(package: &str) -> String {
    let arch = if std::env::consts::ARCH == "aarch64" {
        "arm64"
    } else {
        "x64"
    };
    format!("clients/node_modules/{package}-linux-{arch}")
}
