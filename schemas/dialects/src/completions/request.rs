//! Requests of OpenAI completions, to the superset: the prompt becomes what a user says.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::superset::request::{Conversation, Member, Part, Refusal, Role, Sampling, Turn};

/// Most tokens of an answer where the request gives no figure: so the dialect has it.
pub const MAX_TOKENS: u64 = 16;
/// Most texts that end an answer.
const STOPS_MAX: usize = 64;

type Told<'a> = Option<&'a RawValue>;

#[derive(Deserialize)]
struct Body<'a> {
    #[serde(borrow)]
    model: Told<'a>,
    prompt: Told<'a>,
    stream: Told<'a>,
    stream_options: Told<'a>,
    max_tokens: Told<'a>,
    temperature: Told<'a>,
    top_p: Told<'a>,
    top_k: Told<'a>,
    min_p: Told<'a>,
    seed: Told<'a>,
    frequency_penalty: Told<'a>,
    presence_penalty: Told<'a>,
    stop: Told<'a>,
    user: Told<'a>,
    suffix: Told<'a>,
    echo: Told<'a>,
    best_of: Told<'a>,
    n: Told<'a>,
    logprobs: Told<'a>,
    logit_bias: Told<'a>,
}

#[derive(Deserialize)]
struct StreamOptions {
    #[serde(default)]
    include_usage: Option<bool>,
}

/// Reads a request. A prompt that is a list of one text is that text; longer lists and tokens are demands.
pub fn decode(body: &[u8]) -> Result<Conversation, Refusal> {
    let body: Body<'_> = serde_json::from_slice(body).map_err(|_| Refusal::InvalidJson)?;
    let model: String = required(body.model, "model", "must be a string")?;
    let prompt = body.prompt.ok_or_else(|| invalid("prompt", "is required"))?;
    let (text, longer) = match serde_json::from_str::<String>(prompt.get()) {
        Ok(text) => (text, false),
        Err(_) => match serde_json::from_str::<[String; 1]>(prompt.get()) {
            Ok([text]) => (text, false),
            Err(_) => (String::new(), true),
        },
    };
    let options: Option<StreamOptions> = read(body.stream_options, "stream_options", "must be an object")?;
    let mut demands = Vec::new();
    let mut demand = |name: &'static str, value: Told<'_>, defaults: &[&str]| {
        if let Some(value) = value.filter(|value| value.get() != "null" && !defaults.contains(&value.get())) {
            demands.push(Member {
                name: name.into(),
                value: value.to_owned(),
            });
        }
    };
    demand("prompt", longer.then_some(prompt), &[]);
    demand("suffix", body.suffix, &["\"\""]);
    demand("echo", body.echo, &["false"]);
    demand("best_of", body.best_of, &["1"]);
    demand("n", body.n, &["1"]);
    demand("logprobs", body.logprobs, &["false"]);
    demand("logit_bias", body.logit_bias, &["{}"]);
    Ok(Conversation {
        model,
        stream: read(body.stream, "stream", "must be true or false")?.unwrap_or(false),
        include_usage: options.and_then(|options| options.include_usage).unwrap_or(false),
        turns: vec![Turn {
            role: Role::User,
            name: None,
            parts: vec![Part::Text { text, cache: None }],
        }],
        max_tokens: read(body.max_tokens, "max_tokens", "must be an integer, at least 1")?
            .or(Some(MAX_TOKENS)),
        sampling: Sampling {
            temperature: number(body.temperature, "temperature")?,
            top_p: number(body.top_p, "top_p")?,
            top_k: read(body.top_k, "top_k", "must be an integer")?,
            min_p: number(body.min_p, "min_p")?,
            seed: read(body.seed, "seed", "must be an integer")?,
            frequency_penalty: penalty(body.frequency_penalty, "frequency_penalty")?,
            presence_penalty: penalty(body.presence_penalty, "presence_penalty")?,
        },
        stop: stops(body.stop)?,
        user: read(body.user, "user", "must be a string")?,
        demands,
        ..Conversation::default()
    })
}

fn invalid(param: &'static str, problem: &'static str) -> Refusal {
    Refusal::Invalid {
        param: param.into(),
        problem: problem.into(),
    }
}

fn read<'a, T: Deserialize<'a>>(
    value: Told<'a>,
    param: &'static str,
    problem: &'static str,
) -> Result<Option<T>, Refusal> {
    let Some(value) = value.filter(|value| value.get() != "null") else {
        return Ok(None);
    };
    serde_json::from_str(value.get())
        .map(Some)
        .map_err(|_| invalid(param, problem))
}

fn required<'a, T: Deserialize<'a>>(
    value: Told<'a>,
    param: &'static str,
    problem: &'static str,
) -> Result<T, Refusal> {
    read(value, param, problem)?.ok_or_else(|| invalid(param, "is required"))
}

/// A number as it was written.
fn number(value: Told<'_>, param: &'static str) -> Result<Option<Box<RawValue>>, Refusal> {
    let known: Option<f64> = read(value, param, "must be a number")?;
    Ok(value.filter(|_| known.is_some()).map(ToOwned::to_owned))
}

/// The same, but that 0 is nothing.
fn penalty(value: Told<'_>, param: &'static str) -> Result<Option<Box<RawValue>>, Refusal> {
    let known: Option<f64> = read(value, param, "must be a number")?;
    let told = known.is_some_and(|penalty| penalty != 0.0);
    Ok(value.filter(|_| told).map(ToOwned::to_owned))
}

fn stops(value: Told<'_>) -> Result<Vec<String>, Refusal> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Stop {
        One(String),
        Some(Vec<String>),
    }
    let problem = "must be a text or a list of texts";
    let stops = match read::<Stop>(value, "stop", problem)? {
        None => Vec::new(),
        Some(Stop::One(stop)) => vec![stop],
        Some(Stop::Some(stops)) => stops,
    };
    if stops.len() > STOPS_MAX {
        return Err(invalid("stop", problem));
    }
    Ok(stops)
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
        let body =
            br#"{"model":"m","prompt":[[1,2]],"echo":true,"suffix":"x","best_of":2,"n":3,"logprobs":5}"#;

        let conversation = decode(body).expect("a request");
        let names: Vec<&str> = conversation.demands.iter().map(|member| &*member.name).collect();

        assert_eq!(names, ["prompt", "suffix", "echo", "best_of", "n", "logprobs"]);
        assert_eq!(conversation.max_tokens, Some(MAX_TOKENS));
    }

    #[test]
    fn a_request_without_prompt_is_refused_by_name() {
        let refused = decode(br#"{"model":"m"}"#).expect_err("refused");

        assert_eq!(refused.to_string(), "the member 'prompt' is required");
    }
}
