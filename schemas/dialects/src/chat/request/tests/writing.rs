//! Requests for upstreams, by kind of server.

use serde_json::json;

use super::*;
use crate::superset::request::{Call, Effort, Media, Proof, ProofMaker, Role, Turn};
use crate::superset::tool::{Input, Known, Tool, ToolChoice};

fn turn(role: Role, parts: Vec<Part>) -> Turn {
    Turn {
        role,
        name: None,
        parts,
    }
}

fn say(text: &str) -> Part {
    Part::Text {
        text: text.to_owned(),
        cache: None,
    }
}

fn call(id: &str, name: &str, custom: bool) -> Part {
    Part::ToolCall(Call {
        id: id.to_owned(),
        name: name.to_owned(),
        namespace: None,
        arguments: if custom {
            "free \"text\"".to_owned()
        } else {
            "{\"b\":1,\"a\":2}".to_owned()
        },
        custom,
        proof: None,
    })
}

fn result(id: &str, parts: Vec<Part>, failed: bool) -> Part {
    Part::ToolResult {
        id: id.to_owned(),
        parts,
        failed,
    }
}

fn image() -> Part {
    Part::Image {
        source: Media::Inline {
            media_type: "image/png".to_owned(),
            data: "AAAA".to_owned(),
        },
        detail: None,
    }
}

fn tool(name: &str, namespace: Option<&str>, input: Input) -> Tool {
    Tool {
        name: name.to_owned(),
        namespace: namespace.map(ToOwned::to_owned),
        description: None,
        input,
        strict: None,
        cache: None,
    }
}

fn conversation(turns: Vec<Turn>) -> Conversation {
    Conversation {
        model: "m".to_owned(),
        turns,
        ..Conversation::default()
    }
}

fn messages(conversation: &Conversation, name: &str) -> Value {
    written(conversation, name).expect("mappable").0["messages"].clone()
}

#[test]
fn instructions_are_where_the_server_takes_them() {
    let turns = || {
        conversation(vec![
            turn(Role::User, vec![say("hi")]),
            turn(Role::Developer, vec![say("one"), say("two")]),
            turn(Role::System, vec![say("three")]),
        ])
    };

    assert_eq!(
        messages(&turns(), "vllm"),
        json!([{"role": "system", "content": "one\n\ntwo\n\nthree"}, {"role": "user", "content": "hi"}])
    );
    assert_eq!(
        messages(&turns(), "openai"),
        json!([{"role": "user", "content": "hi"}, {"role": "developer", "content": "one\n\ntwo"}, {"role": "system", "content": "three"}])
    );
    assert_eq!(messages(&turns(), "mistral")[1]["role"], "system");
}

#[test]
fn results_come_first_each_in_its_own_message_and_what_they_show_follows() {
    let conversation = conversation(vec![
        turn(
            Role::Assistant,
            vec![
                say("calling"),
                call("a", "f", false),
                call("b", "f", false),
                say("both"),
            ],
        ),
        turn(
            Role::Tool,
            vec![
                result("a", vec![say("1"), say("2")], true),
                result("b", vec![image()], false),
            ],
        ),
        turn(Role::User, vec![say("and now?")]),
    ]);

    let messages = messages(&conversation, "default");

    assert_eq!(messages[0]["content"], "calling\n\nboth");
    assert_eq!(
        messages[0]["tool_calls"][0]["function"],
        json!({"name": "f", "arguments": "{\"b\":1,\"a\":2}"})
    );
    assert_eq!(
        messages[1],
        json!({"role": "tool", "content": "Error: 1\n\n2", "tool_call_id": "a"})
    );
    assert_eq!(messages[2]["tool_call_id"], "b");
    assert_eq!(
        messages[3],
        json!({"role": "user", "content": [
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
            {"type": "text", "text": "and now?"},
        ]})
    );
}

#[test]
fn ids_fit_the_server_and_results_follow_them() {
    let long = "toolu_0123456789012345678901234567890123456789";
    let conversation = conversation(vec![
        turn(
            Role::Assistant,
            vec![call(long, "f", false), call("functions.f:0", "f", false)],
        ),
        turn(
            Role::Tool,
            vec![
                result(long, vec![say("1")], false),
                result("functions.f:0", vec![say("2")], false),
            ],
        ),
    ]);

    for (name, kept) in [("default", true), ("mistral", false)] {
        let messages = messages(&conversation, name);
        let ids: Vec<&str> = [0, 1]
            .map(|at| messages[0]["tool_calls"][at]["id"].as_str().expect("an id"))
            .into();
        assert!(ids[0] != ids[1] && ids[0].len() <= 40);
        assert_eq!(ids[1] == "functions.f:0", kept);
        assert_eq!(
            (
                messages[1]["tool_call_id"].as_str(),
                messages[2]["tool_call_id"].as_str()
            ),
            (Some(ids[0]), Some(ids[1]))
        );
        if !kept {
            assert!(
                ids.iter()
                    .all(|id| id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric()))
            );
        }
    }
}

#[test]
fn tools_get_names_and_forms_that_the_server_takes() {
    let grammar = serde_json::from_str(r#"{"type":"grammar"}"#).expect("raw");
    let mut conversation = conversation(vec![turn(Role::Assistant, vec![call("a", "apply_patch", true)])]);
    conversation.tools = vec![
        tool("apply_patch", None, Input::Text(Some(grammar))),
        tool("find", Some("web"), Input::Schema(None)),
    ];
    conversation.tool_choice = Some(ToolChoice::Named("find".to_owned()));

    let (body, encoded) = written(&conversation, "default").expect("mappable");

    assert_eq!(
        body["tools"][0]["function"]["parameters"],
        json!({
            "type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"], "additionalProperties": false,
        })
    );
    assert_eq!(
        body["tools"][1],
        json!({"type": "function", "function": {"name": "web__find"}})
    );
    assert_eq!(
        body["tool_choice"],
        json!({"type": "function", "function": {"name": "web__find"}})
    );
    assert_eq!(
        body["messages"][0]["tool_calls"][0]["function"]["arguments"],
        r#"{"input":"free \"text\""}"#
    );
    assert_eq!(encoded.dropped, ["tools.0.format"]);
    let known = |name: &str, namespace: Option<&str>, custom: bool| Known {
        name: name.to_owned(),
        namespace: namespace.map(ToOwned::to_owned),
        custom,
    };
    assert_eq!(
        encoded.names.known("apply_patch"),
        Some(&known("apply_patch", None, true))
    );
    assert_eq!(
        encoded.names.known("web__find"),
        Some(&known("find", Some("web"), false))
    );
}

#[test]
fn choices_of_tools_that_a_server_does_not_know_are_refused() {
    let with = |choice: ToolChoice| {
        let mut conversation = conversation(vec![turn(Role::User, vec![say("x")])]);
        conversation.tools = vec![
            tool("f", None, Input::Schema(None)),
            tool("g", None, Input::Schema(None)),
        ];
        conversation.tool_choice = Some(choice);
        conversation
    };
    let choice = |choice: ToolChoice, name: &str| {
        written(&with(choice), name).map(|(body, _)| body["tool_choice"].clone())
    };

    assert_eq!(choice(ToolChoice::Required, "openai"), Ok(json!("required")));
    assert_eq!(choice(ToolChoice::Required, "mistral"), Ok(json!("any")));
    assert_eq!(
        choice(ToolChoice::Required, "kimi").expect_err("refused").param,
        "tool_choice"
    );
    assert_eq!(
        choice(ToolChoice::Named("none".to_owned()), "openai")
            .expect_err("refused")
            .param,
        "tool_choice"
    );
    let never = written(&with(ToolChoice::Never), "ollama").expect("mappable").0;
    assert!(never.get("tools").is_none() && never.get("tool_choice").is_none());
    let allowed = ToolChoice::Allowed {
        names: vec!["g".to_owned()],
        required: true,
    };
    let allowed = written(&with(allowed), "default").expect("mappable").0;
    assert_eq!(
        (allowed["tools"].as_array().map(Vec::len), &allowed["tool_choice"]),
        (Some(1), &json!("required"))
    );
    let parameters = written(&with(ToolChoice::Auto), "minimax").expect("mappable").0;
    assert_eq!(
        parameters["tools"][0]["function"]["parameters"],
        json!({"type": "object", "properties": {}})
    );
}

#[test]
fn each_kind_of_server_is_told_in_its_words_how_much_to_think() {
    let told = |name: &str, effort: Effort| {
        let mut conversation = conversation(vec![turn(Role::User, vec![say("x")])]);
        conversation.reasoning.effort = Some(effort);
        let (mut body, encoded) = written(&conversation, name).expect("mappable");
        let members = body.as_object_mut().expect("an object");
        members.remove("model");
        members.remove("messages");
        (body, encoded.dropped.len())
    };

    assert_eq!(
        told("openai", Effort::Max),
        (json!({"reasoning_effort": "xhigh"}), 0)
    );
    assert_eq!(
        told("default", Effort::Max),
        (json!({"reasoning_effort": "high"}), 0)
    );
    assert_eq!(
        told("default", Effort::Budget(9000)),
        (json!({"reasoning_effort": "medium"}), 0)
    );
    assert_eq!(told("default", Effort::Adaptive), (json!({}), 0));
    assert_eq!(
        told("vllm", Effort::Off),
        (json!({"chat_template_kwargs": {"enable_thinking": false}}), 0)
    );
    assert_eq!(
        told("vllm", Effort::Low),
        (
            json!({"chat_template_kwargs": {"enable_thinking": true}, "reasoning_effort": "low"}),
            0
        )
    );
    assert_eq!(
        told("zai", Effort::Off),
        (json!({"thinking": {"type": "disabled"}}), 0)
    );
    assert_eq!(
        told("zai", Effort::High),
        (json!({"thinking": {"type": "enabled"}}), 1)
    );
    assert_eq!(
        told("openrouter", Effort::Budget(9)),
        (json!({"reasoning": {"max_tokens": 9}}), 0)
    );
    assert_eq!(
        told("openrouter", Effort::Off),
        (json!({"reasoning": {"effort": "none"}}), 0)
    );
    assert_eq!(told("mistral", Effort::High), (json!({}), 1));
}

#[test]
fn thoughts_and_proofs_go_back_to_servers_that_want_them() {
    let proof = |maker| {
        Some(Proof {
            maker,
            text: "sig".to_owned(),
            redacted: false,
        })
    };
    let mut signed = call("a", "f", false);
    if let Part::ToolCall(call) = &mut signed {
        call.proof = proof(ProofMaker::Gemini);
    }
    let thought = Part::Thinking {
        text: "hm".to_owned(),
        proof: proof(ProofMaker::Anthropic),
    };
    let conversation = conversation(vec![turn(Role::Assistant, vec![thought, signed])]);

    let plain = &messages(&conversation, "default")[0];
    let deepseek = &messages(&conversation, "deepseek")[0];
    let openrouter = &messages(&conversation, "openrouter")[0];

    assert!(
        plain.get("reasoning_content").is_none() && plain["tool_calls"][0].get("extra_content").is_none()
    );
    assert_eq!(deepseek["reasoning_content"], "hm");
    assert!(deepseek.get("reasoning_details").is_none());
    assert_eq!(openrouter["reasoning_details"][0]["signature"], "sig");
    assert_eq!(
        openrouter["tool_calls"][0]["extra_content"],
        json!({"google": {"thought_signature": "sig"}})
    );
}

#[test]
fn streams_always_tell_usage_and_mistral_is_not_asked() {
    let mut conversation = conversation(vec![turn(Role::User, vec![say("x")])]);
    conversation.stream = true;
    conversation.max_tokens = Some(5);
    conversation.sampling.seed = Some(-3);

    let (openai, _) = written(&conversation, "openai").expect("mappable");
    let (mistral, encoded) = written(&conversation, "mistral").expect("mappable");

    assert_eq!(openai["stream_options"], json!({"include_usage": true}));
    assert_eq!(
        (&openai["max_completion_tokens"], &openai["seed"]),
        (&json!(5), &json!(-3))
    );
    assert!(mistral.get("stream_options").is_none() && encoded.dropped.is_empty());
    assert_eq!(
        (&mistral["max_tokens"], &mistral["random_seed"]),
        (&json!(5), &json!(-3))
    );
}

#[test]
fn what_a_server_cannot_do_is_refused_by_name_or_dropped_where_the_route_says_so() {
    let request = |extra: Value| {
        let mut request =
            json!({"model": "m", "messages": [{"role": "user", "content": "x", "name": "Ann"}]});
        for (name, value) in extra.as_object().expect("an object") {
            request[name] = value.clone();
        }
        request
    };
    let param = |extra: Value, name: &str| {
        written(&read(&request(extra)), name)
            .expect_err("refused")
            .param
            .into_owned()
    };

    assert_eq!(param(json!({"n": 2}), "openai"), "n");
    assert_eq!(param(json!({"logprobs": true}), "openai"), "logprobs");
    assert_eq!(param(json!({"top_k": 5}), "openai"), "top_k");
    assert_eq!(param(json!({"min_p": 0.1}), "groq"), "min_p");
    assert_eq!(
        param(json!({"stop": ["a", "b", "c", "d", "e"]}), "openai"),
        "stop"
    );
    let schema =
        json!({"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {}}}});
    assert_eq!(param(schema.clone(), "deepseek"), "response_format");

    let dropping = Target {
        drop_params: true,
        ..target(profile("deepseek"))
    };
    let mut all = schema;
    all["n"] = json!(2);
    all["top_k"] = json!(5);
    let encoded = encode(&read(&request(all)), &dropping).expect("mappable");
    assert_eq!(encoded.dropped, ["top_k", "response_format", "n"]);
}

#[test]
fn hints_are_carried_where_they_are_known_and_reported_where_they_are_dropped() {
    let request = json!({
        "model": "m", "messages": [{"role": "user", "content": [{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}], "name": "Ann"}],
        "store": false, "prompt_cache_key": "k", "custom_thing": 1, "user": "u", "top_p": 0.90, "logit_bias": {"1": 2},
    });

    let (openai, openai_dropped) = through(&request, "openai");
    let (mistral, mistral_dropped) = through(&request, "mistral");
    let (openrouter, _) = through(&request, "openrouter");
    let (kimi, kimi_dropped) = through(&request, "kimi");

    assert_eq!(
        (&openai["store"], &openai["logit_bias"]),
        (&json!(false), &json!({"1": 2}))
    );
    assert_eq!(
        openai["messages"][0],
        json!({"role": "user", "content": "x", "name": "Ann"})
    );
    assert_eq!(openai_dropped, ["cache_control", "custom_thing"]);
    assert!(
        ["store", "prompt_cache_key", "user"]
            .iter()
            .all(|name| mistral.get(name).is_none())
    );
    assert_eq!(
        mistral_dropped,
        [
            "cache_control",
            "name",
            "user",
            "store",
            "prompt_cache_key",
            "custom_thing"
        ]
    );
    assert_eq!(
        openrouter["messages"][0]["content"][0]["cache_control"],
        json!({"type": "ephemeral"})
    );
    assert!(kimi.get("top_p").is_none() && kimi_dropped.contains(&"top_p".to_owned()));
}

#[test]
fn numbers_and_schemas_stay_as_they_were_written() {
    let body = br#"{"model":"m","messages":[{"role":"user","content":"x"}],"temperature":0.70,"tools":[{"type":"function",
        "function":{"name":"f","parameters":{"type":"object","z":1.0,"a":[1e2]}}}]}"#;

    let encoded = encode(&decode(body).expect("a request"), &target(profile("default"))).expect("mappable");
    let text = String::from_utf8(encoded.body.to_vec()).expect("UTF-8");

    assert!(text.contains(r#""temperature":0.70"#));
    assert!(text.contains(r#""parameters":{"type":"object","z":1.0,"a":[1e2]}"#));
}

#[test]
fn a_customers_name_that_is_too_long_is_shortened_always_in_the_same_way() {
    let mut conversation = conversation(vec![turn(Role::User, vec![say("x")])]);
    conversation.user = Some("u".repeat(65));

    let first = written(&conversation, "default").expect("mappable").0["user"].clone();
    let second = written(&conversation, "default").expect("mappable").0["user"].clone();

    assert_eq!(first, second);
    assert!(
        first
            .as_str()
            .is_some_and(|user| user.starts_with("user_") && user.len() <= 64)
    );
}
