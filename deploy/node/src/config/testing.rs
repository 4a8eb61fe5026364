//! Configurations for tests: a file and an environment, read as a node reads them.

use super::{Config, Error, load};
use crate::command_line::Flags;
use crate::environment::Environment;

/// What a node makes of a file and of variables.
pub(crate) fn loaded(yaml: &str, variables: &[(&str, &str)]) -> Result<Config, Error> {
    loaded_with(yaml, variables, &Flags::default())
}

/// The same, with flags beside the file's.
pub(crate) fn loaded_with(yaml: &str, variables: &[(&str, &str)], flags: &Flags) -> Result<Config, Error> {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("waybill.yaml");
    std::fs::write(&path, yaml).expect("a file");
    let flags = Flags {
        config: Some(path),
        ..flags.clone()
    };
    load(&flags, &Environment::from_pairs(variables.iter().copied()))
}
