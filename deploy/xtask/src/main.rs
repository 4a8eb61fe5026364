//! The project's own tool: `check` holds the rules that the compiler and clippy cannot,
//! `gen` writes what is generated from code.
//!
//! Every rule is a pure function from what was read to findings, so that each has a test that
//! plants the fault; reading the tree and printing happen only here and in `check::tree`.

#![expect(clippy::print_stdout, reason = "a command line program")]

mod check;

use std::process::ExitCode;

fn main() -> anyhow::Result<ExitCode> {
    match std::env::args().nth(1).as_deref() {
        Some("check") => check(),
        Some("gen") => generate(),
        _ => anyhow::bail!("usage: cargo run -p xtask -- check|gen"),
    }
}

/// Runs every rule over the checkout; fails when one finds something.
fn check() -> anyhow::Result<ExitCode> {
    let tree = check::tree::read()?;
    let findings = check::run(&tree);
    for finding in &findings {
        println!("{finding}");
    }
    if findings.is_empty() {
        println!(
            "xtask check: {} files, {} packages, no findings",
            tree.files.len(),
            tree.packages.len()
        );
        return Ok(ExitCode::SUCCESS);
    }
    println!("xtask check: {} findings", findings.len());
    Ok(ExitCode::FAILURE)
}

/// Writes what is generated from code: the description of the management API, and the contract of the events.
fn generate() -> anyhow::Result<ExitCode> {
    let root = check::tree::root()?;
    let write = |path: &str, text: &str| -> anyhow::Result<()> {
        std::fs::write(root.join(path), text)?;
        println!("xtask gen: {path}");
        Ok(())
    };
    write("docs/openapi.json", &gateway::openapi())?;
    for document in schemas::contract::documents() {
        write(&format!("schemas/json-schema/{}", document.name), &document.text)?;
    }
    Ok(ExitCode::SUCCESS)
}
