//! Claude on Vertex: the body of Messages, in which the URL's model is not repeated and the version of the API stands
//! instead of in a header.

use bytes::Bytes;

use dialects::member::{with, without};

/// The version of the API that Vertex speaks.
const VERSION: &str = r#""anthropic_version":"vertex-2023-10-16","#;

/// A body of Messages as Vertex reads it.
pub(super) fn body(messages: &Bytes) -> Bytes {
    with(without(messages, &["model", "anthropic_version"]), VERSION)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_stands_in_the_body_and_the_model_does_not() {
        for (messages, sent) in [
            (
                r#"{"model":"claude","max_tokens":1}"#,
                r#"{"anthropic_version":"vertex-2023-10-16","max_tokens":1}"#,
            ),
            (
                r#"{"max_tokens":1, "model":"c", "anthropic_version":"x", "stream":true}"#,
                r#"{"anthropic_version":"vertex-2023-10-16","max_tokens":1, "stream":true}"#,
            ),
            (r#"{"model":"c"}"#, r#"{"anthropic_version":"vertex-2023-10-16"}"#),
        ] {
            assert_eq!(body(&Bytes::from_static(messages.as_bytes())), sent);
        }
    }
}
