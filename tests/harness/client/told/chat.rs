//! Chat completions and the older completions.

use serde_json::Value;

use super::{Counts, Told, ToldCall, count, list, number, text};

pub(super) fn whole(body: &Value) -> Told {
    let kind = text(body, "object");
    assert!(
        matches!(kind, "chat.completion" | "text_completion"),
        "the object is a {kind}"
    );
    let mut told = opened(body);
    let choice = list(body, "choices").first().expect("a choice");
    assert_eq!(number(choice, "index"), 0);
    text(choice, "finish_reason").clone_into(&mut told.finish);
    told.usage = counts(&body["usage"]);
    if kind == "text_completion" {
        text(choice, "text").clone_into(&mut told.text);
        return told;
    }
    let message = &choice["message"];
    assert_eq!(text(message, "role"), "assistant");
    told.text
        .push_str(message["content"].as_str().unwrap_or_default());
    told.reasoning.push_str(thought(message));
    for call in message["tool_calls"].as_array().into_iter().flatten() {
        assert_eq!(text(call, "type"), "function");
        told.calls.push(ToldCall {
            id: text(call, "id").to_owned(),
            name: text(&call["function"], "name").to_owned(),
            arguments: text(&call["function"], "arguments").to_owned(),
        });
    }
    told
}

pub(super) fn streamed(chunks: &[&Value], ended: bool) -> Told {
    let mut told = chunks.first().map(|chunk| opened(chunk)).unwrap_or_default();
    for chunk in chunks {
        assert_eq!(text(chunk, "id"), told.id, "the id changes: {chunk}");
        assert_eq!(text(chunk, "model"), told.model, "the model changes: {chunk}");
        for choice in list(chunk, "choices") {
            assert!(told.finish.is_empty(), "a choice after its finish: {chunk}");
            if number(choice, "index") == 0 {
                take(&mut told, choice);
            }
        }
        if let Some(counts) = counts(&chunk["usage"]) {
            told.usage = Some(counts);
        }
    }
    assert!(
        !ended || !told.finish.is_empty(),
        "an end mark without a finish reason"
    );
    told
}

fn opened(body: &Value) -> Told {
    Told {
        id: text(body, "id").to_owned(),
        model: text(body, "model").to_owned(),
        ..Told::default()
    }
}

fn take(told: &mut Told, choice: &Value) {
    let delta = &choice["delta"];
    let said = delta["content"].as_str().or_else(|| choice["text"].as_str());
    told.text.push_str(said.unwrap_or_default());
    told.reasoning.push_str(thought(delta));
    for part in delta["tool_calls"].as_array().into_iter().flatten() {
        let index = usize::try_from(number(part, "index")).expect("a small index");
        assert!(index <= told.calls.len(), "call {index} leaves a gap: {part}");
        if index == told.calls.len() {
            assert!(
                !text(part, "id").is_empty(),
                "a call begins without an id: {part}"
            );
            told.calls.push(ToldCall::default());
        }
        let call = told.calls.get_mut(index).expect("it is there");
        let function = &part["function"];
        let id = part["id"].as_str().unwrap_or_default();
        assert!(
            call.id.is_empty() || id.is_empty() || call.id == id,
            "the id of a call changes: {part}"
        );
        if call.id.is_empty() {
            id.clone_into(&mut call.id);
        }
        call.name.push_str(function["name"].as_str().unwrap_or_default());
        call.arguments
            .push_str(function["arguments"].as_str().unwrap_or_default());
    }
    told.finish
        .push_str(choice["finish_reason"].as_str().unwrap_or_default());
}

/// The thoughts of a message or a delta, under whichever name.
fn thought(message: &Value) -> &str {
    let names = ["reasoning_content", "reasoning"];
    names
        .iter()
        .find_map(|name| message[*name].as_str())
        .unwrap_or_default()
}

fn counts(usage: &Value) -> Option<Counts> {
    if usage.is_null() {
        return None;
    }
    let (input, output) = (number(usage, "prompt_tokens"), number(usage, "completion_tokens"));
    assert_eq!(number(usage, "total_tokens"), input + output, "{usage}");
    let details = &usage["prompt_tokens_details"];
    let (cached, written) = (
        count(&details["cached_tokens"]),
        count(&details["cache_write_tokens"]),
    );
    Some(Counts {
        fresh: input - cached - written,
        cached,
        written,
        output,
    })
}
