//! OpenRouter: the OpenAI chat API, which tells usage in full only when asked in its own way.

/// Members of each request body, unless it has its own.
pub(super) const MEMBERS: &str = r#""usage":{"include":true}"#;
