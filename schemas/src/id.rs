//! Identifiers. Ids are opaque to everybody but the module that mints them (`bus::mint`);
//! text ids share their bytes, so that a row that names its tenant copies a pointer.

use std::fmt;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::time::Timestamp;

/// A request of a caller, from admission to settlement: a UUIDv7, so that its day is inside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct RequestId(pub Uuid);

impl RequestId {
    /// When the id was minted (its own 48 bits of milliseconds), `None` for an id that is not a UUIDv7.
    pub fn minted_at(self) -> Option<Timestamp> {
        let (seconds, nanos) = self.0.get_timestamp()?.to_unix();
        let micros = i64::try_from(seconds).ok()?.checked_mul(1_000_000)? + i64::from(nanos / 1_000);
        Some(Timestamp::from_micros(micros))
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_hyphenated().fmt(f)
    }
}

/// One envelope of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct EventId(pub Uuid);

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_hyphenated().fmt(f)
    }
}

/// Declares a text id: shared bytes, cheap to clone, compared as text.
macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
        #[serde(transparent)]
        pub struct $name(pub Arc<str>);

        impl $name {
            /// Wraps text that is already known to be a valid id.
            pub fn new(text: impl Into<Arc<str>>) -> Self {
                Self(text.into())
            }

            /// The id as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.into())
            }
        }
    };
}

text_id!(
    /// Who pays: `[a-z0-9][a-z0-9-]{0,62}` (see [`TenantId::parse`]).
    TenantId
);
text_id!(
    /// A member of a tenant.
    UserId
);
text_id!(
    /// A virtual key, by the id that may be shown (never the key itself).
    KeyId
);
text_id!(
    /// An upstream service: `{model}:{location}` for legs of models.yaml.
    EndpointId
);
text_id!(
    /// One replica of an endpoint: the endpoint's id, or `{endpoint_id}#{digits of its address}` where it has several.
    BackendId
);
text_id!(
    /// The name a client asks for. Opaque: slashes, colons and dates occur.
    ModelName
);
text_id!(
    /// A named group of router-workers.
    PoolName
);
text_id!(
    /// One process running roles.
    NodeId
);
text_id!(
    /// A spool directory: the source of events, minted with the directory.
    SpoolId
);

/// Longest model name that is accepted, in bytes.
pub const MODEL_NAME_BYTES_MAX: usize = 256;

/// The tenant that exists everywhere: the operator's own.
pub const DEFAULT_TENANT: &str = "default";

impl TenantId {
    /// Accepts `[a-z0-9][a-z0-9-]{0,62}`, nothing else.
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = text.as_bytes();
        let first = *bytes.first()?;
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let valid =
            bytes.len() <= 63 && plain(first) && bytes.iter().all(|&byte| plain(byte) || byte == b'-');
        valid.then(|| Self::from(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenant_ids_keep_to_their_alphabet() {
        assert!(TenantId::parse("acme-2").is_some());
        for bad in ["", "-a", "Acme", "a_b", "a.b", &"x".repeat(64)] {
            assert!(TenantId::parse(bad).is_none(), "{bad}");
        }
    }
}
