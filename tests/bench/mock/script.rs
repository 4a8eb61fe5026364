//! How the mock behaves, changeable while it runs.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A refused change of the behaviour.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The key is none of the known ones.
    #[error("unknown setting, expected delay_us, delay_ms, chunks or stall_after")]
    UnknownSetting,
    /// The value is not a whole number.
    #[error("a setting's value is a whole number")]
    NotANumber,
}

/// The behaviour, shared by all connections.
#[derive(Debug)]
pub(crate) struct Script {
    delay_us: AtomicU64,
    chunks: AtomicU64,
    stall_after: AtomicU64,
}

/// The behaviour of one answer, fixed when it begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pace {
    /// Pause before each event; zero flushes and goes on.
    pub(crate) delay: Duration,
    /// Content events.
    pub(crate) chunks: u64,
    /// Events after which the stream says nothing more until the client leaves; `None` never stalls.
    pub(crate) stall_after: Option<u64>,
}

impl Script {
    /// A script with `delay_us` microseconds between events and `chunks` content events.
    pub(crate) fn new(delay_us: u64, chunks: u64) -> Self {
        Self {
            delay_us: AtomicU64::new(delay_us),
            chunks: AtomicU64::new(chunks),
            stall_after: AtomicU64::new(0),
        }
    }

    /// Applies a query such as `delay_ms=5&chunks=32`, left to right, up to the first bad setting.
    pub(crate) fn change(&self, query: &str) -> Result<(), Error> {
        for setting in query.split('&').filter(|setting| !setting.is_empty()) {
            let (name, value) = setting.split_once('=').ok_or(Error::NotANumber)?;
            let value: u64 = value.parse().map_err(|_| Error::NotANumber)?;
            match name {
                "delay_us" => self.delay_us.store(value, Ordering::Relaxed),
                "delay_ms" => self
                    .delay_us
                    .store(value.saturating_mul(1_000), Ordering::Relaxed),
                "chunks" => self.chunks.store(value, Ordering::Relaxed),
                "stall_after" => self.stall_after.store(value, Ordering::Relaxed),
                _ => return Err(Error::UnknownSetting),
            }
        }
        Ok(())
    }

    /// The behaviour for an answer that begins now.
    pub(crate) fn now(&self) -> Pace {
        let stall_after = self.stall_after.load(Ordering::Relaxed);
        Pace {
            delay: Duration::from_micros(self.delay_us.load(Ordering::Relaxed)),
            chunks: self.chunks.load(Ordering::Relaxed),
            stall_after: (stall_after > 0).then_some(stall_after),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_applies_every_named_setting() {
        let script = Script::new(0, 32);

        script.change("delay_ms=5&chunks=7&stall_after=1").unwrap();

        let expected = Pace {
            delay: Duration::from_millis(5),
            chunks: 7,
            stall_after: Some(1),
        };
        assert_eq!(script.now(), expected);
    }

    #[test]
    fn an_unknown_setting_and_a_bad_number_are_refused() {
        let script = Script::new(0, 32);

        assert!(matches!(script.change("speed=5"), Err(Error::UnknownSetting)));
        assert!(matches!(script.change("chunks=many"), Err(Error::NotANumber)));
        assert!(matches!(script.change("chunks"), Err(Error::NotANumber)));
    }
}
