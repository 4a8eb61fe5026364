//! Exit codes: what a failure means to whoever started the program.

use bus::nats::setup::SetupError;
use ledger::store::StoreError;

use crate::{
    UsageError, agreement, config, counters, data, drain, management, node_command, reconcile, reload,
    status, verify, yaml,
};

/// Two things were compared and are not equal.
pub const UNEQUAL: u8 = 1;
/// Bad usage or configuration.
pub const USAGE: u8 = 64;
/// A needed service is not there.
pub const UNAVAILABLE: u8 = 69;
/// A failure of ours.
pub const INTERNAL: u8 = 70;
/// Understood and refused.
pub const REFUSED: u8 = 78;

/// The exit code of a failure: that of its first cause which says something about it.
pub fn code(error: &anyhow::Error) -> u8 {
    error.chain().find_map(code_of).unwrap_or(INTERNAL)
}

/// A failure and its causes in one line. A cause that is said already, by a library that prints its causes itself, is
/// not said again.
pub fn told(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.ends_with(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

fn code_of(cause: &(dyn std::error::Error + 'static)) -> Option<u8> {
    if cause.is::<yaml::Problem>() || cause.is::<UsageError>() {
        return Some(USAGE);
    }
    if cause.is::<data::Error>()
        || cause.is::<drain::Error>()
        || cause.is::<reload::Error>()
        || cause.is::<status::Error>()
    {
        return Some(UNAVAILABLE);
    }
    if cause.is::<reconcile::Unequal>() || cause.is::<counters::Different>() || cause.is::<verify::Unsound>()
    {
        return Some(UNEQUAL);
    }
    if cause.is::<node_command::Alive>() {
        return Some(REFUSED);
    }
    if let Some(error) = cause.downcast_ref::<config::error::Error>() {
        let refused = matches!(error, config::error::Error::Refused(_));
        return Some(if refused { REFUSED } else { USAGE });
    }
    if let Some(error) = cause.downcast_ref::<management::Error>() {
        return Some(if error.is_usage() { USAGE } else { UNAVAILABLE });
    }
    if let Some(error) = cause.downcast_ref::<gateway::Error>() {
        let listens = !matches!(error, gateway::Error::Listen { .. });
        return Some(if listens { USAGE } else { UNAVAILABLE });
    }
    if let Some(bus::spool::Error::Locked { .. }) = cause.downcast_ref::<bus::spool::Error>() {
        return Some(UNAVAILABLE);
    }
    if let Some(error) = cause.downcast_ref::<agreement::Error>() {
        return error.refuses().then_some(REFUSED);
    }
    if let Some(error) = cause.downcast_ref::<SetupError>() {
        return Some(of_setup(error));
    }
    if let Some(error) = cause.downcast_ref::<StoreError>() {
        return of_store(error);
    }
    of_bus(cause.downcast_ref::<bus::BusError>()?)
}

fn of_bus(error: &bus::BusError) -> Option<u8> {
    use bus::BusError::{NoResponder, Refused, Timeout, Unavailable};

    match error {
        Unavailable(_) | Timeout | NoResponder { .. } => Some(UNAVAILABLE),
        Refused { .. } => Some(REFUSED),
        _ => None,
    }
}

/// A bus that is away may come back; one that is unfit needs an operator.
fn of_setup(error: &SetupError) -> u8 {
    match error {
        SetupError::Unreachable { .. } | SetupError::Away { .. } => UNAVAILABLE,
        SetupError::Address { .. } | SetupError::Credentials { .. } => USAGE,
        _ => REFUSED,
    }
}

fn of_store(error: &StoreError) -> Option<u8> {
    match error {
        StoreError::Outdated { .. } | StoreError::Newer { .. } | StoreError::Migration(_) => Some(REFUSED),
        StoreError::Address(_) => Some(USAGE),
        error if error.retryable() => Some(UNAVAILABLE),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[test]
    fn a_cause_is_said_once() {
        let error = anyhow!("refused")
            .context("IO error: refused")
            .context("nobody is there");

        assert_eq!(told(&error), "nobody is there: IO error: refused");
    }

    #[test]
    fn a_failure_is_told_by_its_first_cause_that_says_something() {
        let usage = anyhow::Error::from(UsageError("no".to_owned())).context("while asking");
        assert_eq!(code(&usage), USAGE);
        let left = drain::Error::Left { left: 3, seconds: 1 };
        assert_eq!(code(&left.into()), UNAVAILABLE);
        assert_eq!(code(&bus::BusError::Timeout.into()), UNAVAILABLE);
        assert_eq!(code(&agreement::Error::Secret.into()), REFUSED);
        let away = agreement::Error::Bus(bus::BusError::Timeout);
        assert_eq!(code(&away.into()), UNAVAILABLE);
        let old = SetupError::TooOld {
            found: "2.9".to_owned(),
        };
        assert_eq!(code(&old.into()), REFUSED);
        let outdated = StoreError::Outdated {
            database: 1,
            program: 2,
        };
        assert_eq!(
            code(&anyhow::Error::from(outdated).context("ledger failed")),
            REFUSED
        );
        let forbidden = bus::BusError::Refused {
            reason: "permissions violation".to_owned(),
        };
        assert_eq!(
            code(&anyhow::Error::from(forbidden).context("intake failed")),
            REFUSED
        );
        assert_eq!(code(&anyhow!("a surprise")), INTERNAL);
    }
}
