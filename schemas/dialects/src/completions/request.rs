//! Requests of OpenAI completions, to the superset: the prompt becomes what a user says.

use serde_json::value::RawValue;

use crate::object::{MISSING, Object, Path, shown};
use crate::superset::request::{Conversation, Member, Part, Refusal, Role, Sampling, Turn};

/// Most tokens of an answer where the request gives no figure: so the dialect has it.
pub const MAX_TOKENS: u64 = 16;
/// Most texts that end an answer.
const STOPS_MAX: usize = 64;
/// Members that change the answer and have no place in other dialects, and what they are when they change nothing.
const DEMANDS: [(&str, &[&str]); 21] = [
    ("suffix", &["\"\""]),
    ("echo", &["false"]),
    ("best_of", &["1"]),
    ("n", &["1"]),
    ("logprobs", &["false"]),
    ("logit_bias", &["{}"]),
    ("repetition_penalty", &["1", "1.0"]),
    ("response_format", &[r#"{"type":"text"}"#]),
    ("guided_json", &[]),
    ("guided_regex", &[]),
    ("guided_choice", &[]),
    ("guided_grammar", &[]),
    ("previous_response_id", &[]),
    ("conversation", &[]),
    ("background", &["false"]),
    ("truncation", &["\"disabled\""]),
    ("max_tool_calls", &[]),
    ("include", &["[]"]),
    ("mcp_servers", &["[]"]),
    ("container", &[]),
    ("speed", &["\"standard\""]),
];

/// The member that says how soon an answer is wanted.
const TIER: &str = "service_tier";

/// Reads a request. A prompt that is a list of one text is that text; longer lists and tokens are refused. Members that
/// nobody knows are hints.
pub fn decode(body: &[u8]) -> Result<Conversation, Refusal> {
    let text = std::str::from_utf8(body).map_err(|_| Refusal::InvalidJson)?;
    let mut request = Object::read(text).ok_or(Refusal::InvalidJson)?;
    let root = Path::Root;
    let mut conversation = Conversation {
        model: request.filled("model", &root)?,
        ..Conversation::default()
    };
    prompt(&mut request, &mut conversation)?;
    let whole = "must be an integer, at least 1";
    conversation.stream = request
        .value("stream", &root, "must be true or false")?
        .unwrap_or(false);
    conversation.include_usage = include_usage(&mut request, &mut conversation)?;
    conversation.max_tokens = request.value("max_tokens", &root, whole)?.or(Some(MAX_TOKENS));
    if conversation.max_tokens == Some(0) {
        return Err(root.member("max_tokens").invalid(whole));
    }
    conversation.sampling = Sampling {
        temperature: number(&mut request, "temperature")?,
        top_p: number(&mut request, "top_p")?,
        top_k: request.value("top_k", &root, "must be an integer")?,
        min_p: number(&mut request, "min_p")?,
        seed: request.value("seed", &root, "must be an integer")?,
        frequency_penalty: penalty(&mut request, "frequency_penalty")?,
        presence_penalty: penalty(&mut request, "presence_penalty")?,
    };
    conversation.stop = request.texts("stop", &root, STOPS_MAX)?;
    conversation.user = request.text("user", &root)?;
    for (name, defaults) in DEMANDS {
        if let Some(value) = request
            .take(name)
            .filter(|value| !defaults.contains(&value.get()))
        {
            conversation.demands.push(member(name.to_owned(), value));
        }
    }
    if let Some(tier) = request.take(TIER) {
        let harmless = matches!(tier.get(), "\"auto\"" | "\"default\"" | "\"standard_only\"");
        let to = if harmless {
            &mut conversation.hints
        } else {
            &mut conversation.demands
        };
        to.push(member(TIER.to_owned(), tier));
    }
    let rest = request
        .rest()
        .map(|(name, value)| member(shown(&name).to_owned(), value));
    conversation.hints.extend(rest);
    Ok(conversation)
}

fn member(name: String, value: &RawValue) -> Member {
    Member {
        name: name.into(),
        value: value.to_owned(),
    }
}

fn prompt(request: &mut Object<'_>, conversation: &mut Conversation) -> Result<(), Refusal> {
    let path = Path::Root.member("prompt");
    let raw = request.take("prompt").ok_or_else(|| path.invalid(MISSING))?;
    let only = || serde_json::from_str::<[String; 1]>(raw.get()).map(|[text]| text);
    let text = serde_json::from_str::<String>(raw.get()).or_else(|_| only());
    // A request without its prompt is none: this is refused whatever else may be dropped.
    let text = text.map_err(|_| path.unsupported("it must be one text there"))?;
    conversation.turns.push(Turn {
        role: Role::User,
        name: None,
        parts: vec![Part::Text { text, cache: None }],
    });
    Ok(())
}

fn include_usage(request: &mut Object<'_>, conversation: &mut Conversation) -> Result<bool, Refusal> {
    let Some(raw) = request.take("stream_options") else {
        return Ok(false);
    };
    let path = Path::Root.member("stream_options");
    let mut options = Object::at(raw, &path)?;
    let asked = options
        .value("include_usage", &path, "must be true or false")?
        .unwrap_or(false);
    for (name, value) in options.rest() {
        let name = format!("stream_options.{}", shown(&name));
        conversation.hints.push(member(name, value));
    }
    Ok(asked)
}

/// A number as it was written.
fn number(request: &mut Object<'_>, name: &str) -> Result<Option<Box<RawValue>>, Refusal> {
    let Some(raw) = request.take(name) else {
        return Ok(None);
    };
    let _: f64 = Path::Root.member(name).value(raw, "must be a number")?;
    Ok(Some(raw.to_owned()))
}

/// The same, but that 0 is nothing.
fn penalty(request: &mut Object<'_>, name: &str) -> Result<Option<Box<RawValue>>, Refusal> {
    let told = number(request, name)?;
    Ok(told.filter(|raw| raw.get().parse().is_ok_and(|number: f64| number != 0.0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_is_what_a_user_says() {
        let body = br#"{"model":"m","prompt":["Once"],"max_tokens":5,"temperature":0.70,"stop":"\n","n":1,"echo":false,
            "stream":true,"stream_options":{"include_usage":true},"frequency_penalty":0}"#;

        let conversation = decode(body).expect("a request");

        assert!(matches!(&conversation.turns[0].parts[..], [Part::Text { text, .. }] if text == "Once"));
        assert_eq!(
            (conversation.max_tokens, conversation.stop),
            (Some(5), vec!["\n".to_owned()])
        );
        assert_eq!(conversation.sampling.temperature.expect("told").get(), "0.70");
        assert!(conversation.stream && conversation.include_usage);
        assert!(conversation.demands.is_empty());
        assert!(conversation.sampling.frequency_penalty.is_none());
    }

    #[test]
    fn what_no_other_dialect_says_is_a_demand() {
        let body = br#"{"model":"m","prompt":"x","echo":true,"suffix":"x","best_of":2,"n":3,"logprobs":5}"#;

        let conversation = decode(body).expect("a request");
        let names: Vec<&str> = conversation.demands.iter().map(|member| &*member.name).collect();

        assert_eq!(names, ["suffix", "echo", "best_of", "n", "logprobs"]);
        assert_eq!(conversation.max_tokens, Some(MAX_TOKENS));
        let body = br#"{"model":"m","prompt":"x","service_tier":"flex","background":true,"truncation":"auto","mcp_servers":[{}],"speed":"fast","include":[]}"#;
        let conversation = decode(body).expect("a request");
        let names: Vec<&str> = conversation.demands.iter().map(|member| &*member.name).collect();
        assert_eq!(
            names,
            ["background", "truncation", "mcp_servers", "speed", "service_tier"]
        );
    }

    #[test]
    fn an_answer_of_no_tokens_is_refused_and_not_made_one_of_some() {
        let refused = decode(br#"{"model":"m","prompt":"x","max_tokens":0}"#).expect_err("refused");

        assert!(
            matches!(&refused, Refusal::Invalid { param, .. } if param == "max_tokens"),
            "{refused:?}"
        );
    }

    #[test]
    fn members_that_nobody_knows_are_hints() {
        let body = br#"{"model":"m","prompt":"x","x_vendor":{"a":1},"stream_options":{"other":true},"nothing":null}"#;

        let conversation = decode(body).expect("a request");
        let names: Vec<&str> = conversation.hints.iter().map(|member| &*member.name).collect();

        assert_eq!(names, ["stream_options.other", "x_vendor"]);
        assert!(conversation.demands.is_empty());
    }

    #[test]
    fn a_request_without_prompt_is_refused_by_name() {
        let refused = decode(br#"{"model":"m"}"#).expect_err("refused");

        assert_eq!(refused.to_string(), "the member 'prompt' is required");
    }

    #[test]
    fn several_prompts_and_tokens_are_refused_by_name_and_never_dropped() {
        for prompt in [r#"["a","b"]"#, "[1,2]", "[[1,2]]"] {
            let body = format!(r#"{{"model":"m","prompt":{prompt}}}"#);
            let refused = decode(body.as_bytes()).expect_err("refused");
            assert!(
                matches!(&refused, Refusal::Unsupported { param, .. } if param == "prompt"),
                "{refused:?}"
            );
        }
    }
}
