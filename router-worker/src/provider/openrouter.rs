//! OpenRouter: the OpenAI chat API, which tells usage in full only when asked in its own way, and which leaves out
//! parameters that a provider does not know unless it is told that they matter.

use bytes::Bytes;
use dialects::splice::{Edit, splice};

use super::member::{members, with};

/// Members of each request body, unless it has its own.
pub(super) const MEMBERS: &str = r#""usage":{"include":true}"#;
/// The option by which only providers that know all parameters are asked.
const REQUIRE: &str = r#""require_parameters":true,"#;

/// Parameters that change the answer: a provider that does not know them would answer something else.
const MEANINGFUL: [&str; 15] = [
    "frequency_penalty",
    "logit_bias",
    "logprobs",
    "min_p",
    "presence_penalty",
    "reasoning",
    "reasoning_effort",
    "response_format",
    "seed",
    "stop",
    "structured_outputs",
    "tool_choice",
    "tools",
    "top_k",
    "top_logprobs",
];

/// The body with the wish that none of its meaningful parameters is left out, unless it says itself how that is.
pub(super) fn requiring(body: Bytes) -> Bytes {
    let Some(all) = members(&body) else {
        return body;
    };
    if !all
        .iter()
        .any(|member| MEANINGFUL.contains(&member.name.as_ref()))
    {
        return body;
    }
    let Some(provider) = all.into_iter().find(|member| member.name == "provider") else {
        let member = format!(r#""provider":{{{}}},"#, REQUIRE.trim_end_matches(','));
        return with(body, &member);
    };
    let own = body.slice(provider.value.clone());
    let Some(options) = members(&own) else {
        return body;
    };
    if options.iter().any(|option| option.name == "require_parameters") {
        return body;
    }
    let edit = Edit {
        range: provider.value,
        with: with(own.clone(), REQUIRE),
    };
    splice(&body, &[edit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_provider_must_know_parameters_that_change_the_answer() {
        for (body, sent) in [
            (
                r#"{"tools":[]}"#,
                r#"{"provider":{"require_parameters":true},"tools":[]}"#,
            ),
            (
                r#"{"seed":1,"provider":{"order":["a"]}}"#,
                r#"{"seed":1,"provider":{"require_parameters":true,"order":["a"]}}"#,
            ),
            (
                r#"{"seed":1,"provider":{}}"#,
                r#"{"seed":1,"provider":{"require_parameters":true}}"#,
            ),
            (
                r#"{"seed":1,"provider":{"require_parameters":false}}"#,
                r#"{"seed":1,"provider":{"require_parameters":false}}"#,
            ),
            (r#"{"seed":1,"provider":"a"}"#, r#"{"seed":1,"provider":"a"}"#),
            (r#"{"temperature":1}"#, r#"{"temperature":1}"#),
        ] {
            assert_eq!(requiring(Bytes::from_static(body.as_bytes())), sent);
        }
    }
}
