//! Who speaks what.

use dialects::dialect::Dialect;

/// What upstreams speak that are asked for conversations.
pub(crate) const UPSTREAMS: &[Dialect] = &[Dialect::Chat, Dialect::Messages];
/// What callers speak.
pub(crate) const CALLERS: &[Dialect] = &[Dialect::Chat, Dialect::Completions, Dialect::Messages];
/// What requests are written in.
pub(crate) const WRITTEN: &[Dialect] = &[Dialect::Chat];
