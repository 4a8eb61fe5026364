//! Items of the input, one kind after the other.

use super::*;
use crate::superset::request::{Call, Media, Proof, ProofMaker, Role};

fn input(items: &Value) -> Conversation {
    read(&json!({"model": "m", "input": items})).expect("a request")
}

fn refused_item(item: &Value) -> (String, bool) {
    let before = json!({"role": "user", "content": "hi"});
    refused(&json!({"model": "m", "input": [before, item]}))
}

fn only(item: &Value) -> Turn {
    let mut turns = input(&json!([item])).turns;
    assert_eq!(turns.len(), 1);
    turns.remove(0)
}

fn function_call(id: &str) -> Value {
    json!({"type": "function_call", "call_id": id, "name": "f", "arguments": "{}"})
}

#[test]
fn items_that_one_provider_alone_knows_are_refused_by_their_type() {
    for kind in [
        "item_reference",
        "compaction",
        "program",
        "mcp_call",
        "mcp_list_tools",
        "mcp_approval_request",
        "mcp_approval_response",
        "computer_call",
        "computer_call_output",
        "shell_call",
        "shell_call_output",
        "local_shell_call",
        "local_shell_call_output",
        "apply_patch_call",
        "apply_patch_call_output",
        "image_generation_call",
        "code_interpreter_call",
        "file_search_call",
        "of_the_future",
    ] {
        let item = json!({"type": kind, "id": "x", "call_id": "c", "status": "completed"});
        assert_eq!(refused_item(&item), unsupported("input.1.type"), "{kind}");
    }
}

#[test]
fn items_that_only_tell_of_a_search_are_dropped_and_told() {
    for kind in ["web_search_call", "tool_search_call", "tool_search_output"] {
        let conversation = input(&json!([{"type": kind, "id": "x"}, {"role": "user", "content": "hi"}]));

        assert_eq!(names(&conversation.hints), [format!("input.{kind}")]);
        assert_eq!(conversation.turns.len(), 1);
    }
}

#[test]
fn messages_may_leave_out_their_type_and_be_text_or_parts() {
    let conversation = input(&json!([
        {"role": "system", "content": "s"},
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "d"}]},
        {"role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "text", "text": "b"}], "id": "msg_own"},
        {"type": "message", "role": "assistant", "status": "completed", "id": "msg_x", "content": [
            {"type": "output_text", "text": "c", "annotations": []}, {"type": "refusal", "refusal": "no"}]},
        {"role": "assistant", "content": "e"}]));

    let turns: Vec<(Role, Vec<&str>)> = conversation
        .turns
        .iter()
        .map(|turn| (turn.role, texts(turn)))
        .collect();
    assert_eq!(
        turns,
        [
            (Role::System, vec!["s"]),
            (Role::Developer, vec!["d"]),
            (Role::User, vec!["a", "b"]),
            (Role::Assistant, vec!["c"]),
            (Role::Assistant, vec!["e"]),
        ]
    );
    assert!(matches!(&conversation.turns[3].parts[1], Part::Refusal(no) if no == "no"));
}

#[test]
fn an_input_of_one_text_is_what_a_user_says_behind_the_instructions() {
    let conversation = read(&with(&json!({"instructions": "be brief"}))).expect("a request");

    let turns: Vec<(Role, Vec<&str>)> = conversation
        .turns
        .iter()
        .map(|turn| (turn.role, texts(turn)))
        .collect();
    assert_eq!(
        turns,
        [(Role::System, vec!["be brief"]), (Role::User, vec!["hi"])]
    );
}

#[test]
fn images_and_documents_are_read_in_every_form() {
    let part = |part: Value| only(&json!({"role": "user", "content": [part]})).parts.remove(0);
    let image = |source: Value| {
        let mut image = json!({"type": "input_image", "detail": "low"});
        for (name, value) in source.as_object().expect("members") {
            image[name] = value.clone();
        }
        match part(image) {
            Part::Image { source, detail } => (source, detail),
            other => panic!("{other:?}"),
        }
    };
    let file = |members: Value| match part(members) {
        Part::File { source, name } => (source, name),
        other => panic!("{other:?}"),
    };
    let inline = |media_type: &str| Media::Inline {
        media_type: media_type.to_owned(),
        data: "YQ==".to_owned(),
    };
    let low = Some("low".to_owned());

    assert_eq!(
        image(json!({"image_url": "data:image/png;base64,YQ=="})),
        (inline("image/png"), low.clone())
    );
    let there = Media::Url("https://pictures.example/a.png".to_owned());
    assert_eq!(
        image(json!({"image_url": "https://pictures.example/a.png"})),
        (there, low.clone())
    );
    assert_eq!(
        image(json!({"file_id": "file-1"})),
        (Media::Id("file-1".to_owned()), low)
    );
    let named = Some("a.pdf".to_owned());
    let data =
        json!({"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,YQ=="});
    assert_eq!(file(data), (inline("application/pdf"), named));
    let bare = json!({"type": "input_file", "file_data": "YQ=="});
    assert_eq!(file(bare), (inline("application/pdf"), None));
    let by_url = json!({"type": "input_file", "file_url": "https://papers.example/a.pdf"});
    let there = Media::Url("https://papers.example/a.pdf".to_owned());
    assert_eq!(file(by_url), (there, None));
    let by_id = json!({"type": "input_file", "file_id": "file-2"});
    assert_eq!(file(by_id), (Media::Id("file-2".to_owned()), None));
    let sound = json!({"type": "input_audio", "input_audio": {"data": "YQ==", "format": "wav"}});
    assert!(
        matches!(part(sound), Part::Audio { format, data } if (format.as_str(), data.as_str()) == ("wav", "YQ=="))
    );
}

#[test]
fn parts_stand_only_where_they_can() {
    let of = |role: &str, part: &Value| refused_item(&json!({"role": role, "content": [part]}));
    let image = json!({"type": "input_image", "image_url": "https://a.example/b.png"});

    assert_eq!(of("assistant", &image), unsupported("input.1.content.0.type"));
    assert_eq!(of("system", &image), unsupported("input.1.content.0.type"));
    let refusal = json!({"type": "refusal", "refusal": "no"});
    assert_eq!(of("user", &refusal), unsupported("input.1.content.0.type"));
    assert_eq!(
        of("user", &json!({"type": "computer_screenshot"})),
        unsupported("input.1.content.0.type")
    );
    assert_eq!(
        of("user", &json!({"text": "a"})),
        invalid("input.1.content.0.type")
    );
    assert_eq!(
        of("user", &json!({"type": "input_text"})),
        invalid("input.1.content.0.text")
    );
    assert_eq!(
        of("user", &json!({"type": "input_image"})),
        invalid("input.1.content.0.image_url")
    );
    assert_eq!(
        of("user", &json!({"type": "input_file"})),
        invalid("input.1.content.0.file_data")
    );
}

#[test]
fn what_the_model_does_up_to_a_result_is_one_turn() {
    let conversation = input(&json!([
        {"role": "user", "content": "hi"},
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}]},
        {"role": "assistant", "content": "let me see"},
        function_call("a"),
        {"type": "custom_tool_call", "call_id": "b", "name": "patch", "input": "*** x"},
        {"type": "function_call_output", "call_id": "a", "output": [
            {"type": "input_text", "text": "r"}, {"type": "input_image", "image_url": "data:image/png;base64,YQ=="}]},
        {"type": "custom_tool_call_output", "call_id": "b", "output": "done"},
        {"role": "assistant", "content": "so"}]));

    let roles: Vec<Role> = conversation.turns.iter().map(|turn| turn.role).collect();
    assert_eq!(roles, [Role::User, Role::Assistant, Role::Tool, Role::Assistant]);
    let did = &conversation.turns[1].parts;
    assert!(matches!(&did[0], Part::Thinking { text, proof: None } if text == "hm"));
    assert!(matches!(&did[1], Part::Text { text, .. } if text == "let me see"));
    assert!(matches!(&did[2], Part::ToolCall(call) if call.id == "a" && !call.custom));
    assert!(
        matches!(&did[3], Part::ToolCall(call) if call.id == "b" && call.custom && call.arguments == "*** x")
    );
    assert_eq!(did.len(), 4);
    let results = &conversation.turns[2].parts;
    assert!(matches!(
        &results[0],
        Part::ToolResult { id, parts, .. } if id == "a" && matches!(&parts[..], [Part::Text { .. }, Part::Image { .. }])
    ));
    assert!(
        matches!(&results[1], Part::ToolResult { id, parts, .. } if id == "b" && matches!(&parts[..], [Part::Text { text, .. }] if text == "done"))
    );
}

#[test]
fn calls_are_read_with_their_group_and_arguments_in_either_form() {
    let call = |members: Value| match only(&members).parts.remove(0) {
        Part::ToolCall(call) => call,
        other => panic!("{other:?}"),
    };
    let expected = |arguments: &str, namespace: Option<&str>| Call {
        id: "c".to_owned(),
        name: "f".to_owned(),
        namespace: namespace.map(str::to_owned),
        arguments: arguments.to_owned(),
        custom: false,
        proof: None,
    };

    let text = json!({"type": "function_call", "call_id": "c", "name": "f", "arguments": "{\"a\": 1}"});
    assert_eq!(call(text), expected("{\"a\": 1}", None));
    let object = json!({"type": "function_call", "call_id": "c", "name": "f", "namespace": "g", "arguments": {"a": 1}});
    assert_eq!(call(object), expected("{\"a\":1}", Some("g")));
    let none = json!({"type": "function_call", "call_id": "c", "name": "f", "namespace": ""});
    assert_eq!(call(none), expected("", None));
}

#[test]
fn arguments_that_are_no_object_are_read_as_an_empty_one_and_reported() {
    for (arguments, told) in [("{", true), ("[\"x\"]", true), ("", false)] {
        let call = json!({"type": "function_call", "call_id": "c", "name": "f", "arguments": arguments});
        let conversation = read(&json!({"model": "m", "input": [call]})).expect("read");

        let part = &conversation.turns[0].parts[0];
        assert!(
            matches!(part, Part::ToolCall(call) if call.arguments == "{}"),
            "{part:?}"
        );
        let hints: Vec<&str> = conversation.hints.iter().map(|hint| hint.name.as_ref()).collect();
        assert_eq!(hints.contains(&"input.arguments"), told, "{hints:?}");
    }
}

#[test]
fn calls_and_results_that_do_not_fit_are_refused_by_their_id() {
    assert_eq!(
        refused(&json!({"model": "m", "input": [function_call("a"), function_call("a")]})),
        invalid("input.1.call_id")
    );
    let result = |id: &str| json!({"type": "function_call_output", "call_id": id, "output": "r"});
    assert_eq!(refused_item(&result("a")), invalid("input.1.call_id"));
    assert_eq!(refused_item(&result("")), invalid("input.1.call_id"));
    assert_eq!(
        refused(
            &json!({"model": "m", "input": [function_call("a"), {"type": "function_call_output", "call_id": "a"}]})
        ),
        invalid("input.1.output")
    );
    assert_eq!(
        refused_item(&json!({"type": "function_call", "call_id": "a"})),
        invalid("input.1.name")
    );
    assert_eq!(
        refused_item(&json!({"type": "function_call", "call_id": "a", "name": "f", "arguments": 3})),
        invalid("input.1.arguments")
    );
}

#[test]
fn an_id_that_a_server_makes_again_in_a_later_turn_is_another_call_with_its_own_result_and_proof() {
    let result = |text: &str| json!({"type": "function_call_output", "call_id": "a", "output": text});
    let proof = |text: &str| {
        let told = format!("waybill.call.gemini.1.a{text}");
        json!({"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": told})
    };
    let conversation = input(&json!([
        function_call("a"),
        proof("p"),
        result("r"),
        function_call("a"),
        proof("q"),
        result("s"),
        proof("t"),
        function_call("a"),
        result("u")
    ]));

    let mut seen = Vec::new();
    for part in conversation.turns.iter().flat_map(|turn| &turn.parts) {
        seen.push(match part {
            Part::ToolCall(call) => format!("{} {}", call.id, call.proof.as_ref().expect("a proof").text),
            Part::ToolResult { id, parts, .. } => match &parts[..] {
                [Part::Text { text, .. }] => format!("{id} {text}"),
                other => panic!("{other:?}"),
            },
            other => format!("{other:?}"),
        });
    }
    seen.retain(|part| !part.contains("hm"));
    assert_eq!(seen, ["a p", "a r", "a_2 q", "a_2 s", "a_3 t", "a_3 u"]);
}

fn thought(members: &Value) -> Vec<Part> {
    let mut item = json!({"type": "reasoning", "id": "rs", "summary": []});
    for (name, value) in members.as_object().expect("members") {
        item[name] = value.clone();
    }
    let mut turns = input(&json!([{"role": "user", "content": "hi"}, item])).turns;
    turns.drain(1..).flat_map(|turn| turn.parts).collect()
}

#[test]
fn a_thought_is_read_in_words_with_what_proves_it_to_its_maker() {
    let proof = |maker, redacted| {
        Some(Proof {
            maker,
            text: "p".to_owned(),
            redacted,
        })
    };
    let told = |members: Value| match thought(&members).as_slice() {
        [Part::Thinking { text, proof }] => (text.clone(), proof.clone()),
        other => panic!("{other:?}"),
    };
    let summary = json!([{"type": "summary_text", "text": "a"}, {"type": "summary_text", "text": "b"}]);

    assert_eq!(told(json!({"summary": summary})), ("a\n\nb".to_owned(), None));
    let open = json!({"summary": summary, "content": [{"type": "reasoning_text", "text": "all"}]});
    assert_eq!(told(open), ("all".to_owned(), None));
    assert_eq!(
        told(json!({"summary": summary, "encrypted_content": "p"})),
        ("a\n\nb".to_owned(), proof(ProofMaker::OpenAi, false))
    );
    assert_eq!(
        told(json!({"encrypted_content": "p"})),
        (String::new(), proof(ProofMaker::OpenAi, true))
    );
    assert_eq!(
        told(json!({"summary": summary, "encrypted_content": "waybill.anthropic.p"})),
        ("a\n\nb".to_owned(), proof(ProofMaker::Anthropic, false))
    );
}

#[test]
fn a_thought_of_which_nothing_can_be_read_is_nothing() {
    for encrypted in ["", "waybill.", "waybill.other.p", "waybill.gemini."] {
        assert!(
            thought(&json!({"encrypted_content": encrypted})).is_empty(),
            "{encrypted}"
        );
    }
    assert!(thought(&json!({"summary": null, "content": null})).is_empty());
}

#[test]
fn what_proves_a_call_finds_it_wherever_it_stands() {
    let proof = json!({"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "waybill.call.gemini.1.ap"});
    for items in [
        json!([function_call("a"), function_call("b"), proof]),
        json!([proof, function_call("a"), function_call("b")]),
    ] {
        let turns = input(&items).turns;
        let proofs: Vec<Option<Proof>> = turns
            .into_iter()
            .flat_map(|turn| turn.parts)
            .filter_map(|part| match part {
                Part::ToolCall(call) => Some(call.proof),
                _ => None,
            })
            .collect();
        let expected = Proof {
            maker: ProofMaker::Gemini,
            text: "p".to_owned(),
            redacted: false,
        };
        assert_eq!(proofs, [Some(expected), None]);
    }
}

#[test]
fn an_input_must_be_there_and_say_something() {
    assert_eq!(refused(&json!({"model": "m"})), invalid("input"));
    assert_eq!(refused(&json!({"model": "m", "input": []})), invalid("input"));
    assert_eq!(refused(&json!({"model": "m", "input": 3})), invalid("input"));
    assert_eq!(refused(&json!({"model": "m", "input": [3]})), invalid("input.0"));
    assert_eq!(refused(&json!({"input": "x"})), invalid("model"));
    assert_eq!(
        refused_item(&json!({"role": "judge", "content": "x"})),
        invalid("input.1.role")
    );
    assert_eq!(refused_item(&json!({"role": "user"})), invalid("input.1.content"));
    assert_eq!(decode(b"[]").expect_err("refused"), Refusal::InvalidJson);
    assert_eq!(decode(b"\xff").expect_err("refused"), Refusal::InvalidJson);
}

#[test]
fn members_of_items_and_parts_that_are_not_known_are_told_and_what_says_nothing_is_not() {
    let conversation = input(&json!([
        {"type": "message", "id": "msg_1", "status": "completed", "role": "user", "blip": 1, "content": [
            {"type": "input_text", "text": "hi", "zork": 1},
            {"type": "input_image", "image_url": "data:image/png;base64,YQ==", "detail": "low", "file_id": null}]},
        {"type": "message", "id": "msg_2", "status": "completed", "role": "assistant", "content": [
            {"type": "output_text", "text": "so", "annotations": [], "logprobs": []}]},
        {"type": "function_call", "id": "fc_1", "status": "completed", "call_id": "a", "name": "f",
            "arguments": "{}", "quux": true},
        {"type": "function_call_output", "id": "fo_1", "status": "completed", "call_id": "a", "plugh": 2,
            "output": [{"type": "input_text", "text": "r", "xyzzy": 3}]},
        {"type": "reasoning", "id": "rs_1", "status": "completed", "summary": [], "content": null, "wibble": 1},
    ]));

    assert_eq!(
        names(&conversation.hints),
        [
            "input.content.zork",
            "input.blip",
            "input.quux",
            "input.output.xyzzy",
            "input.plugh",
            "input.wibble"
        ]
    );
}

#[test]
fn sources_of_an_earlier_answer_are_dropped_and_told() {
    let conversation = input(&json!([
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": [{"type": "output_text", "text": "so",
            "annotations": [{"type": "url_citation", "url": "https://a.example"}], "logprobs": [{"token": "so"}]}]},
        {"role": "user", "content": "more"}]));

    assert_eq!(
        names(&conversation.hints),
        ["input.content.annotations", "input.content.logprobs"]
    );
}
