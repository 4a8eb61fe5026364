//! What candidates are sent.

use schemas::catalog::Route;

use crate::testing::{PLAIN, STREAM, endpoint, model, offer};

use super::*;

fn candidate(endpoint: Endpoint) -> Candidate {
    Candidate {
        backend: Some(0),
        endpoint: Arc::new(endpoint),
        upstream_model: "org/m-7b".into(),
        context_length: 8_192,
        takes: Arc::default(),
        bypass: false,
    }
}

fn chat(body: &str) -> (Offer, Bytes) {
    let skim =
        dialects::skim::skim_chat(body.as_bytes(), &dialects::skim::Limits::default()).expect("a body");
    let offer = Offer {
        splice: dialects::skim::splice_facts(&skim),
        ..offer(&model(Vec::<Route>::new()))
    };
    (offer, Bytes::copy_from_slice(body.as_bytes()))
}

fn prepared(endpoint: Endpoint, (offer, body): &(Offer, Bytes)) -> Result<Prepared, Fault> {
    Preparation::default().prepare(&candidate(endpoint), offer, body, &|| 0)
}

fn sent(prepared: &Prepared) -> String {
    String::from_utf8(prepared.body.joined().to_vec()).expect("text")
}

#[test]
fn the_same_dialect_passes() {
    let prepared = prepared(endpoint("e", &["http://e"]), &chat(PLAIN)).expect("prepared");

    assert_eq!(prepared.dialect, Dialect::Chat);
    assert!(prepared.way.is_none() && prepared.dropped.is_none() && prepared.headers.is_empty());
    assert_eq!(sent(&prepared), PLAIN.replace("\"m\"", "\"org/m-7b\""));
}

#[test]
fn texts_that_mean_something_else_are_read_on_the_way_and_thoughts_are_taken_out_of_what_passes() {
    let mut hiding = chat(PLAIN);
    hiding.0.told.hides_thinking = true;
    let mut processed = endpoint("e", &["http://e"]);
    processed.processor = "glm".to_owned();

    let passing = prepared(endpoint("e", &["http://e"]), &hiding).expect("prepared");
    assert!(passing.way.is_none());
    let translated = prepared(processed.clone(), &chat(STREAM)).expect("prepared");
    let way = translated.way.as_ref().expect("a way");
    assert_eq!((way.caller, way.upstream), (Dialect::Chat, Dialect::Chat));
    assert!(sent(&translated).contains("\"org/m-7b\""));
    let several = chat(r#"{"model":"m","n":2,"messages":[{"role":"user","content":"x"}]}"#);
    assert!(
        matches!(prepared(processed, &several), Err(Fault::Unmappable(unmappable)) if unmappable.param == "n")
    );
    assert!(prepared(endpoint("e", &["http://e"]), &several).is_ok());
}

#[test]
fn betas_are_told_as_dropped_and_thoughts_as_unwanted_where_a_request_of_messages_is_translated() {
    let asked = |body: &str| {
        let (mut offer, body) = chat(body);
        offer.surface = Surface::Messages;
        offer.told.anthropic_beta = Some("context-1m-2025-08-07".into());
        prepared(endpoint("e", &["http://e"]), &(offer, body)).expect("prepared")
    };
    let plain = r#"{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"x"}]}"#;
    let with = |more: &str| plain.replace(r#","messages""#, &format!(r#",{more},"messages""#));

    let translated = asked(plain);
    assert_eq!(translated.dropped.as_deref(), Some("anthropic-beta"));
    let hides = |prepared: &Prepared| prepared.way.as_ref().expect("a way").reply.hides_thinking;
    assert!(!hides(&translated));
    for (thinking, expected) in [
        (r#""thinking":{"type":"adaptive","display":"omitted"}"#, true),
        (r#""thinking":{"type":"disabled"}"#, true),
        (r#""thinking":{"type":"adaptive","display":"summarized"}"#, false),
        (r#""thinking":{"type":"adaptive"}"#, false),
    ] {
        assert_eq!(hides(&asked(&with(thinking))), expected, "{thinking}");
    }
}

#[test]
fn instructions_and_arguments_are_mended_on_the_way_to_servers_that_want_it() {
    let late = chat(
        r#"{"model":"m","messages":[{"role":"user","content":"a"},{"role":"system","content":"b"},{"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{"}}]}]}"#,
    );

    let mended = sent(&prepared(endpoint("e", &["http://e"]), &late).expect("prepared"));

    assert!(
        mended.contains(r#""messages":[{"role":"system","content":"b"}"#),
        "{mended}"
    );
    assert!(mended.contains(r#""arguments":"{}""#), "{mended}");
}

#[test]
fn embeddings_are_asked_of_nobody_who_makes_none() {
    let mut asking = chat(PLAIN);
    asking.0.surface = Surface::Embeddings;
    let claude = Endpoint {
        kind: ProviderKind::Anthropic,
        ..endpoint("e", &["http://e"])
    };

    let fault = prepared(claude, &asking).expect_err("no embeddings");

    assert!(fault.concerns_translation());
    let failure = fault.failure();
    assert_eq!((failure.status, failure.param.as_deref()), (400, Some("model")));
}

#[test]
fn a_request_that_cannot_be_read_is_refused_by_those_who_had_to_read_it() {
    let (mut offer, _) = chat(PLAIN);
    offer.surface = Surface::Messages;
    let asking = (offer, Bytes::from_static(b"{\"model\":\"m\"}"));
    let claude = Endpoint {
        kind: ProviderKind::Anthropic,
        ..endpoint("e", &["http://e"])
    };

    let refused = prepared(endpoint("e", &["http://e"]), &asking).expect_err("unreadable");

    assert!(matches!(refused, Fault::Rejected(_)));
    assert_eq!(refused.failure().status, 400);
    assert!(prepared(claude, &asking).is_ok(), "it passes as it is");
}

#[test]
fn names_of_dropped_parameters_fit_into_a_header() {
    let names: Vec<Cow<'static, str>> = vec![
        "user".into(),
        "user".into(),
        "a\nb".into(),
        "x,y".into(),
        "store".into(),
    ];

    assert_eq!(header_value(&names).as_deref(), Some("user, store"));
    assert_eq!(header_value(&[]), None);
    let many: Vec<Cow<'static, str>> = (0..1_000).map(|name| format!("name_{name}").into()).collect();
    assert!(header_value(&many).is_some_and(|value| value.len() <= DROPPED_BYTES_MAX));
}

#[test]
fn ids_with_signatures_of_geminis_are_taken_apart_for_everybody_else() {
    let request = chat(
        r#"{"model":"m","messages":[{"role":"user","content":"x"},{"role":"assistant","content":null,"tool_calls":[{"id":"c1__sig_c2ln","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c1__sig_c2ln","content":"r"}]}"#,
    );

    let prepared = prepared(endpoint("e", &["http://e"]), &request).expect("prepared");

    let sent = sent(&prepared);
    assert!(
        sent.contains(r#""id":"c1""#) && sent.contains(r#""tool_call_id":"c1""#),
        "{sent}"
    );
    assert!(!sent.contains("__sig_"), "{sent}");
}
