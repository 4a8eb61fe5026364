//! What the management API is, in OpenAPI 3.1: made of the types that handlers read and write, so that it cannot say
//! something else than they do. It is served at `/api/v1/openapi.json` and checked in as `docs/openapi.json`; a test
//! compares the two, and `make gen` writes the file anew.
//!
//! To describe a route:
//!
//! 1. The body's type and the answer's type derive `schemars::JsonSchema` beside serde's. Name them for whoever reads
//!    the document, `#[schemars(rename = "Tenant")]`; names are unique. Doc comments become descriptions. A field that
//!    is read by hand says what it takes: `#[schemars(with = "Option<Limits>")]`.
//! 2. Beside the handler stands what it does, as a constant:
//!    `pub(crate) const LIST: Operation = Operation::list::<Shown>("Lists the tenants, by id").of_operators();`
//!    The constructor says the method, the parameters and the statuses of that class of handler; [`Operation`] has what
//!    differs from them.
//! 3. The line in `routes.rs` names it: `.get("/api/v1/tenants", manage::tenants::list).told(manage::tenants::LIST)`.
//!    A route of management without one fails a test.
//! 4. `make gen`, and the file goes into the same commit.

use std::sync::LazyLock;

use axum::response::Response;
use bytes::Bytes;

use super::raw_json;
use crate::routes;

mod document;
mod operation;

pub(crate) use operation::{Audience, Condition, Operation, Parameter};

/// What the document says of itself.
pub(crate) const SHOW: Operation =
    Operation::read::<serde_json::Map<String, serde_json::Value>>("Shows this document").of_everybody();

static DOCUMENT: LazyLock<Bytes> = LazyLock::new(|| text().into());

/// The document, as it is served and checked in.
pub fn text() -> String {
    let document = document::of(&routes::described());
    let mut text = serde_json::to_string_pretty(&document).unwrap_or_default();
    text.push('\n');
    text
}

/// Shows the document. It says nothing that is not public, so everybody may read it.
pub(crate) async fn show() -> Response {
    raw_json(DOCUMENT.to_vec())
}

#[cfg(test)]
mod tests;
