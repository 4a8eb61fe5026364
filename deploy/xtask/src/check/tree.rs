//! Reads the checkout: `git` lists the files, `cargo metadata` the packages.

use anyhow::{Context, bail};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Dependency, File, Package, Tree};

/// Files larger than this are data, not text to judge.
const TEXT_BYTES_MAX: u64 = 4 << 20;

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<MetadataPackage>,
    workspace_members: BTreeSet<String>,
}

#[derive(Deserialize)]
struct MetadataPackage {
    id: String,
    name: String,
    dependencies: Vec<MetadataDependency>,
}

#[derive(Deserialize)]
struct MetadataDependency {
    name: String,
    kind: Option<String>,
}

/// Where the checkout is that the current directory lies in.
pub(crate) fn root() -> anyhow::Result<PathBuf> {
    let root = text(Command::new("git").args(["rev-parse", "--show-toplevel"]))?;
    Ok(PathBuf::from(root.trim_end()))
}

/// Reads the checkout that the current directory lies in.
pub(crate) fn read() -> anyhow::Result<Tree> {
    let root = root()?;
    let (packages, graph) = packages(&root)?;
    Ok(Tree {
        files: files(&root)?,
        packages,
        graph,
    })
}

/// Text files that git tracks or would add.
fn files(root: &Path) -> anyhow::Result<Vec<File>> {
    let listed =
        text(
            Command::new("git")
                .current_dir(root)
                .args(["ls-files", "-z", "-co", "--exclude-standard"]),
        )?;
    let mut files = Vec::new();
    for path in listed.split_terminator('\0') {
        let full = root.join(path);
        let small = full
            .symlink_metadata()
            .is_ok_and(|meta| meta.is_file() && meta.len() <= TEXT_BYTES_MAX);
        if !small {
            continue;
        }
        let bytes = std::fs::read(&full).with_context(|| format!("read {path}"))?;
        if let Ok(text) = String::from_utf8(bytes) {
            files.push(File {
                path: path.to_owned(),
                text,
            });
        }
    }
    Ok(files)
}

/// Packages of the workspace, and the names of everything in the resolved graph.
fn packages(root: &Path) -> anyhow::Result<(Vec<Package>, Vec<String>)> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command
        .current_dir(root)
        .args(["metadata", "--format-version", "1", "--locked"]);
    let metadata: Metadata = serde_json::from_str(&text(&mut command)?).context("read cargo metadata")?;
    let graph = metadata
        .packages
        .iter()
        .map(|package| package.name.clone())
        .collect();
    let packages = metadata
        .packages
        .into_iter()
        .filter(|package| metadata.workspace_members.contains(&package.id))
        .map(|package| Package {
            name: package.name,
            dependencies: package
                .dependencies
                .into_iter()
                .map(|it| Dependency {
                    shipped: it.kind.as_deref() != Some("dev"),
                    name: it.name,
                })
                .collect(),
        })
        .collect();
    Ok((packages, graph))
}

/// What `command` prints; an error with its own words when it fails.
fn text(command: &mut Command) -> anyhow::Result<String> {
    let output = command.output().with_context(|| format!("run {command:?}"))?;
    if !output.status.success() {
        bail!(
            "{command:?} failed: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    String::from_utf8(output.stdout).with_context(|| format!("{command:?} printed something not UTF-8"))
}
