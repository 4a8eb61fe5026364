//! What a scripted upstream says, without a socket.

use super::*;

fn request(body: &Value) -> Received {
    Received {
        body: Bytes::from(body.to_string()),
        headers: vec![("authorization".to_owned(), "Bearer k".to_owned())],
        ..Received::default()
    }
}

fn text(composed: &Composed) -> String {
    let bytes: Vec<u8> = composed
        .pieces
        .iter()
        .flat_map(|piece| piece.bytes.iter().copied())
        .collect();
    String::from_utf8(bytes).expect("text")
}

#[test]
fn a_stream_has_a_chunk_a_word_and_usage_only_when_asked() {
    let asked = json!({"model": "u", "stream": true, "stream_options": {"include_usage": true}});
    let behaviour = Behaviour::chat("one two").usage(9, 20);

    let with = text(&compose(&behaviour, &request(&asked), "w"));
    let without = text(&compose(
        &behaviour,
        &request(&json!({"model": "u", "stream": true})),
        "w",
    ));

    assert_eq!(
        with.matches("data: ").count(),
        6,
        "role, two words, finish, usage, done: {with}"
    );
    assert!(with.contains("\"total_tokens\":29"), "{with}");
    assert!(with.ends_with("data: [DONE]\n\n"), "{with}");
    assert!(with.contains("\"model\":\"u\""), "{with}");
    assert!(!without.contains("usage"), "{without}");
}

#[test]
fn an_interrupted_stream_ends_after_the_chunks_it_promises() {
    let asked = request(&json!({"stream": true}));

    let composed = compose(&Behaviour::chat("a b c").stall_after(2), &asked, "w");

    assert_eq!(composed.then, Then::Hang);
    assert_eq!(composed.pieces.len(), 3, "role and two chunks");
    assert!(!text(&composed).contains("[DONE]"));
}

#[test]
fn placeholders_are_filled_from_the_call() {
    let composed = compose(
        &Behaviour::status(401, "bad key {header:authorization} in {call}"),
        &request(&json!({})),
        "w1",
    );

    assert_eq!(text(&composed), "bad key Bearer k in w1");
}

#[test]
fn two_data_lines_join_to_the_same_object() {
    let asked = request(&json!({"stream": true}));
    let written = text(&compose(&Behaviour::chat("a").two_data_lines(), &asked, "w"));

    let first = written.split("\n\n").next().expect("an event");
    let joined: Vec<&str> = first
        .lines()
        .map(|line| line.strip_prefix("data: ").expect("data"))
        .collect();

    assert_eq!(joined.len(), 2);
    let value: Value = serde_json::from_str(&joined.join("\n")).expect("JSON");
    assert_eq!(value["object"], "chat.completion.chunk");
}
