//! Requests of the surfaces other than chat: what is read of each, and what each must have.

use super::*;

fn skim(surface: Surface, body: &str) -> Result<Skim, Error> {
    super::super::skim(surface, body.as_bytes(), &Limits::default())
}

fn read(surface: Surface, body: &str) -> Skim {
    skim(surface, body).unwrap_or_else(|error| panic!("{error}: {body}"))
}

#[test]
fn a_messages_request_is_read_with_its_system_tools_and_nested_images() {
    let body = r#"{"model":"m","max_tokens":64,"stream":true,"system":[{"type":"text","text":"Be brief."}],
        "metadata":{"user_id":"ann"},"tools":[{"name":"look","input_schema":{"type":"object"}}],
        "output_config":{"effort":"low","format":{"type":"json_schema","schema":{}}},
        "messages":[{"role":"user","content":"hi"},
        {"role":"assistant","content":[{"type":"tool_use","id":"t1","name":"look","input":{"at":"sky"}}]},
        {"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":[
            {"type":"image","source":{"type":"base64","media_type":"image/png","data":"AAAA"}}]}]}]}"#;

    let skim = read(Surface::Messages, body);

    assert_eq!(
        (skim.model.as_str(), skim.max_tokens, skim.stream),
        ("m", Some(64), true)
    );
    assert_eq!(&body[skim.model_span.clone()], r#""m""#);
    assert_eq!((skim.tools, skim.response_format, skim.images), (true, true, 1));
    assert_eq!(skim.user.as_deref(), Some("ann"));
    assert!(skim.include_usage);
    assert!(skim.prompt_tokens_estimate > 1_500);
}

#[test]
fn a_messages_request_says_which_field_it_lacks_in_the_words_of_the_dialect() {
    let told = |body| {
        skim(Surface::Messages, body)
            .map(drop)
            .map_err(|error| error.to_string())
    };
    let lacks = |field: &str| Err(format!("Missing required field: {field}"));

    assert_eq!(told(r#"{"max_tokens":1,"messages":[{}]}"#), lacks("model"));
    assert_eq!(told(r#"{"model":"m","max_tokens":1}"#), lacks("messages"));
    assert_eq!(told(r#"{"model":"m","messages":[{}]}"#), lacks("max_tokens"));
}

#[test]
fn a_request_to_be_counted_needs_no_limit() {
    let body = br#"{"model":"m","messages":[{"role":"user","content":"hi"}]}"#;

    let counted = skim_counted(body, &Limits::default()).map(|skim| skim.prompt_tokens_estimate);

    assert_eq!(counted, Ok(5));
}

#[test]
fn a_responses_request_is_text_or_items() {
    let items = r#"{"model":"m","max_output_tokens":9,"instructions":"Be brief.","store":false,
        "text":{"format":{"type":"json_object"}},"user":"ann","input":[
        {"role":"user","content":[{"type":"input_text","text":"hi"},{"type":"input_image","image_url":"data:image/png;base64,AA"}]},
        {"type":"function_call","call_id":"c1","name":"look","arguments":"{\"at\":\"sky\"}"},
        {"type":"function_call_output","call_id":"c1","output":"blue"}]}"#;

    let text = read(Surface::Responses, r#"{"model":"m","input":"hi"}"#);
    let skim = read(Surface::Responses, items);

    assert_eq!(
        (text.prompt_tokens_estimate, text.stream, text.tools),
        (5, false, false)
    );
    assert_eq!(
        (skim.max_tokens, skim.response_format, skim.images),
        (Some(9), true, 1)
    );
    assert!(skim.modalities.contains(Modalities::IMAGE));
    assert_eq!(skim.user.as_deref(), Some("ann"));
}

#[test]
fn a_responses_request_without_input_follows_another() {
    let missing = Err(Error::Missing { param: "input" });

    assert_eq!(skim(Surface::Responses, r#"{"model":"m"}"#).map(drop), missing);
    assert_eq!(
        skim(Surface::Responses, r#"{"model":"m","input":[]}"#).map(drop),
        Err(invalid("input"))
    );
    assert!(
        skim(
            Surface::Responses,
            r#"{"model":"m","previous_response_id":"resp_1"}"#
        )
        .is_ok()
    );
}

#[test]
fn prompts_and_inputs_are_texts_tokens_or_lists_of_either() {
    for (surface, member) in [(Surface::Completions, "prompt"), (Surface::Embeddings, "input")] {
        let tokens = |value: &str| {
            let body = format!(r#"{{"model":"m","{member}":{value}}}"#);
            skim(surface, &body).map(|skim| skim.prompt_tokens_estimate)
        };

        assert_eq!(tokens(r#""abcd""#), Ok(2));
        assert_eq!(tokens(r#"["abcd","abcd"]"#), Ok(4));
        assert_eq!(tokens("[1,2,3]"), Ok(3));
        assert_eq!(tokens("[[1,2],[3]]"), Ok(3));
        assert_eq!(tokens("[]"), Err(invalid(member)));
        assert!(tokens("[1.5]").is_err());
        assert_eq!(tokens("null"), Err(Error::Missing { param: member }));
    }
}

#[test]
fn a_completion_may_ask_for_nothing_but_a_weight() {
    let body = r#"{"model":"m","prompt":"p","max_tokens":0,"echo":true,"n":2,"stream":true,"stream_options":{"include_usage":true}}"#;

    let skim = read(Surface::Completions, body);

    assert_eq!((skim.max_tokens, skim.n, skim.include_usage), (Some(0), 2, true));
    assert_eq!(
        &body[skim.stream_options_span.expect("a span")],
        r#"{"include_usage":true}"#
    );
}

#[test]
fn embeddings_come_as_numbers_or_in_base64() {
    let with = |form: &str| {
        let body = format!(r#"{{"model":"m","input":"x","encoding_format":{form},"dimensions":256}}"#);
        skim(Surface::Embeddings, &body).map(drop)
    };

    assert_eq!(with(r#""base64""#), Ok(()));
    assert_eq!(with("null"), Ok(()));
    assert_eq!(with(r#""hex""#), Err(invalid("encoding_format")));
}

#[test]
fn members_that_decide_are_refused_twice_on_every_surface() {
    for (surface, body, param) in [
        (
            Surface::Messages,
            r#"{"model":"m","max_tokens":1,"max_tokens":2,"messages":[{}]}"#,
            "max_tokens",
        ),
        (
            Surface::Responses,
            r#"{"model":"m","input":"a","input":"b"}"#,
            "input",
        ),
        (
            Surface::Completions,
            r#"{"model":"m","prompt":"a","prompt":"b"}"#,
            "prompt",
        ),
        (
            Surface::Embeddings,
            r#"{"model":"m","model":"n","input":"b"}"#,
            "model",
        ),
    ] {
        assert_eq!(
            skim(surface, body).map(drop),
            Err(Error::DuplicateField { param })
        );
    }
}

#[test]
fn messages_are_told_from_prompts() {
    let told = |body: &str| has_messages(body.as_bytes(), &Limits::default());

    assert!(told(r#"{"model":"m","messages":[]}"#));
    assert!(!told(r#"{"model":"m","prompt":"messages"}"#));
    assert!(!told("["));
}

proptest! {
    #[test]
    fn no_bytes_make_the_skim_of_any_surface_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        for surface in [Surface::Completions, Surface::Embeddings, Surface::Responses, Surface::Messages] {
            let _ = super::super::skim(surface, &bytes, &Limits::default());
        }
    }
}

/// What a request with some members asks of its model.
fn asks(surface: Surface, members: &str) -> Parameters {
    let rest = match surface {
        Surface::Messages => r#""max_tokens":9,"messages":[{"role":"user","content":"hi"}]"#,
        Surface::Chat | Surface::Proxy => r#""messages":[{"role":"user","content":"hi"}]"#,
        Surface::Completions => r#""prompt":"hi""#,
        Surface::Responses | Surface::Embeddings => r#""input":"hi""#,
    };
    read(surface, &format!(r#"{{"model":"m",{rest}{members}}}"#)).parameters
}

#[test]
fn what_is_carried_to_other_dialects_is_asked_of_the_model_as_well() {
    for (surface, members, parameter) in [
        (
            Surface::Responses,
            r#","logit_bias":{"1":1}"#,
            Parameters::LOGIT_BIAS,
        ),
        (
            Surface::Messages,
            r#","logit_bias":{"1":1}"#,
            Parameters::LOGIT_BIAS,
        ),
        (
            Surface::Messages,
            r#","repetition_penalty":1.2"#,
            Parameters::REPETITION_PENALTY,
        ),
        (Surface::Chat, r#","enable_thinking":true"#, Parameters::EFFORT),
        (Surface::Chat, r#","thinking_budget":4096"#, Parameters::EFFORT),
    ] {
        assert_eq!(asks(surface, members), parameter, "{members}");
    }
    let nothing = r#","enable_thinking":false,"thinking_budget":0"#;
    assert_eq!(asks(Surface::Chat, nothing), Parameters::default());
}

#[test]
fn what_a_request_asks_of_its_model_is_told_and_what_stands_for_nothing_is_not() {
    let is = Parameters::contains;
    let nothing = Parameters::default();

    let chat = r#","temperature":0,"top_p":0.5,"top_k":1,"stop":"x","seed":0,"n":2,"logprobs":true,"min_p":0.1,
        "presence_penalty":-1,"logit_bias":{"1":1},"reasoning_effort":"low","tools":[{}],"response_format":{"type":"json_object"}"#;
    let all = asks(Surface::Chat, chat);
    for parameter in Parameters::ALL.each() {
        let absent = [
            Parameters::DIMENSIONS,
            Parameters::FREQUENCY_PENALTY,
            Parameters::REPETITION_PENALTY,
        ];
        assert_eq!(is(all, parameter), !absent.contains(&parameter), "{parameter:?}");
    }
    let defaults = r#","temperature":1.0,"top_p":1,"top_k":null,"stop":[],"seed":null,"n":1,"logprobs":false,"top_logprobs":0,
        "presence_penalty":0,"frequency_penalty":0.0,"logit_bias":{},"reasoning_effort":"none","tool_choice":"none""#;
    assert_eq!(asks(Surface::Chat, defaults), nothing);
    for (surface, members, parameter) in [
        (Surface::Messages, r#","stop_sequences":["x"]"#, Parameters::STOP),
        (Surface::Messages, r#","top_k":5"#, Parameters::TOP_K),
        (
            Surface::Messages,
            r#","thinking":{"type":"enabled","budget_tokens":1024}"#,
            Parameters::EFFORT,
        ),
        (
            Surface::Messages,
            r#","output_config":{"effort":"low"}"#,
            Parameters::EFFORT,
        ),
        (
            Surface::Responses,
            r#","reasoning":{"effort":"low"}"#,
            Parameters::EFFORT,
        ),
        (Surface::Responses, r#","top_logprobs":3"#, Parameters::LOGPROBS),
        (Surface::Completions, r#","logprobs":0"#, Parameters::LOGPROBS),
        (Surface::Embeddings, r#","dimensions":4"#, Parameters::DIMENSIONS),
    ] {
        assert_eq!(asks(surface, members), parameter, "{members}");
    }
    for (surface, members) in [
        (
            Surface::Messages,
            r#","thinking":{"type":"disabled"},"temperature":1,"stop_sequences":[]"#,
        ),
        (Surface::Responses, r#","reasoning":{"summary":"auto"},"top_p":1"#),
    ] {
        assert_eq!(asks(surface, members), nothing, "{members}");
    }
}

#[test]
fn what_cannot_be_embedded_is_refused_with_what_is_wrong() {
    let told = |input: &str| {
        let body = format!(r#"{{"model":"m","input":{input}}}"#);
        let refused = skim(Surface::Embeddings, &body).map(|skim| skim.prompt_tokens_estimate);
        refused.map_err(|error| (error.param().unwrap_or_default(), error.to_string()))
    };
    let wrong = |what: &str| Err(("input".into(), format!("the member 'input' {what}")));

    for input in [r#""""#, r#"[""]"#, r#"["a",""]"#] {
        assert_eq!(told(input), wrong("must not hold an empty text"), "{input}");
    }
    for input in ["[[]]", "[[1],[]]"] {
        assert_eq!(
            told(input),
            wrong("must not hold an empty list of tokens"),
            "{input}"
        );
    }
    for input in [r#"["a",1]"#, r#"[1,"a"]"#, r#"["a",[1]]"#, "[1,[2]]", "[[1],2]"] {
        let mixed = wrong("must be all texts, all tokens, or all lists of tokens, not a mixture");
        assert_eq!(told(input), mixed, "{input}");
    }
    for input in ["[-1]", "[1.5]", "[1,-0.5]", "[[1,-1]]", "[[0.5]]", r#"[["a"]]"#] {
        assert_eq!(
            told(input),
            wrong("must have whole numbers of at least 0 as tokens"),
            "{input}"
        );
    }
    for input in ["[]", "{}", "7", "true", "[null]", "[true]", "[{}]"] {
        assert_eq!(told(input), wrong("must be text or a list, not empty"), "{input}");
    }
    let many = |count: usize, input: &str| format!("[{}]", vec![input; count].join(","));
    let too_many = wrong("must hold at most 2048 texts or lists of tokens");
    assert_eq!(told(&many(2049, r#""a""#)), too_many);
    assert_eq!(told(&many(2049, "[1]")), too_many);
    assert_eq!(told(&many(2048, "[1]")), Ok(2048));
    assert_eq!(told(&many(5000, "1")), Ok(5000), "tokens of one input");
}

#[test]
fn embeddings_are_not_streamed() {
    let told = |stream: &str| {
        let body = format!(r#"{{"model":"m","input":"a","stream":{stream}}}"#);
        skim(Surface::Embeddings, &body).map(|skim| skim.stream)
    };

    assert_eq!(told("true"), Err(Error::NotStreamed));
    assert_eq!(told("1"), Err(invalid("stream")));
    assert_eq!((told("false"), told("null")), (Ok(false), Ok(false)));
    assert_eq!(
        Error::NotStreamed.to_string(),
        "the member 'stream' must not be true: embeddings come in one piece"
    );
}
