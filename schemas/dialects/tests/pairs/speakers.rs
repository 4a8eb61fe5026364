//! Who speaks what.

use dialects::dialect::Dialect;

/// What upstreams speak that are asked for conversations.
pub(crate) const UPSTREAMS: &[Dialect] = &[
    Dialect::Chat,
    Dialect::Responses,
    Dialect::Messages,
    Dialect::Gemini,
];
/// What callers speak.
pub(crate) const CALLERS: &[Dialect] = &[
    Dialect::Chat,
    Dialect::Completions,
    Dialect::Responses,
    Dialect::Messages,
];
