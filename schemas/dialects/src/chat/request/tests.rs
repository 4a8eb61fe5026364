//! Requests, read and written.

mod reading;
mod turning;
mod writing;

use serde_json::Value;

use super::{decode, encode};
use crate::profile::{self, Profile};
use crate::superset::request::{Conversation, Encoded, Part, Refusal, Target, Unmappable};

fn read(request: &Value) -> Conversation {
    decode(request.to_string().as_bytes()).expect("a request")
}

fn refused(request: &Value) -> String {
    let refusal: Refusal = decode(request.to_string().as_bytes()).expect_err("refused");
    refusal.to_string()
}

fn target(profile: &Profile) -> Target<'_> {
    Target {
        model: "theirs",
        profile,
        efforts: &[],
        max_tokens_default: 4096,
        max_tokens_limit: None,
        drop_params: false,
    }
}

fn profile(name: &str) -> &'static Profile {
    profile::named(name).expect("a profile")
}

fn written(conversation: &Conversation, name: &str) -> Result<(Value, Encoded), Unmappable> {
    let encoded = encode(conversation, &target(profile(name)))?;
    Ok((serde_json::from_slice(&encoded.body).expect("JSON"), encoded))
}

/// A request of the dialect as a server of a kind gets it, and what was dropped.
fn through(request: &Value, name: &str) -> (Value, Vec<String>) {
    let (body, encoded) = written(&read(request), name).expect("mappable");
    let dropped = encoded.dropped.iter().map(|name| name.clone().into_owned());
    (body, dropped.collect())
}

fn text(part: &Part) -> &str {
    match part {
        Part::Text { text, .. } => text,
        _ => "",
    }
}
