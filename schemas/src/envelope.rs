//! What wraps any fact on its way: a CloudEvents 1.0 envelope in structured JSON. The bytes that are
//! spooled are the bytes that are published and the bytes that `event_log` keeps.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::id::EventId;
use crate::time::Timestamp;

/// A CloudEvents 1.0 envelope around `T`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Envelope<T> {
    /// Always `1.0`.
    pub specversion: SpecVersion,
    /// Unique per event: a UUIDv7.
    pub id: EventId,
    /// `/waybill/<cluster>/<spool id>`.
    pub source: String,
    /// `waybill.<fact>.v<n>`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The tenant.
    pub subject: String,
    /// When the fact was recorded.
    pub time: Timestamp,
    /// Always `application/json`.
    pub datacontenttype: ContentType,
    /// Dense per source, from 1.
    pub sourcesequence: u64,
    /// The fact.
    pub data: T,
}

/// The CloudEvents version, the only one there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum SpecVersion {
    /// 1.0
    #[default]
    #[serde(rename = "1.0")]
    V1,
}

/// The content type of `data`, the only one there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum ContentType {
    /// JSON.
    #[default]
    #[serde(rename = "application/json")]
    Json,
}
