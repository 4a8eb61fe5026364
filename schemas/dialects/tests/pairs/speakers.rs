//! Who speaks what.

use dialects::dialect::Dialect;

/// What upstreams speak that are asked for conversations.
pub(crate) const UPSTREAMS: &[Dialect] = &[Dialect::Chat];
/// What callers speak.
pub(crate) const CALLERS: &[Dialect] = &[Dialect::Chat, Dialect::Completions];
