//! What a request names as its model, and where that is not to be told.

use super::*;

fn read(path: &str, query: &str, content_type: &str, body: &str) -> Result<Named, Error> {
    models(Parts {
        path,
        query,
        content_type,
        body: body.as_bytes(),
    })
}

fn json(body: &str) -> Result<Named, Error> {
    read("/v1/chat/completions", "", "application/json", body)
}

fn one(name: &str) -> Named {
    Named {
        models: vec![vec![name.to_owned()]],
        unread: false,
    }
}

#[test]
fn a_body_names_its_model_once_in_whatever_case_and_place() {
    assert_eq!(json(r#"{"messages":[],"model":"m"}"#), Ok(one("m")));
    assert_eq!(json(r#" {"mod\u0065l":"\u006d"}"#), Ok(one("m")));
    assert_eq!(json(r#"{"Model":"m"}"#), Ok(one("m")));
    assert_eq!(json(r#"{"model":"models/m"}"#), Ok(one("m")));
    assert_eq!(json(r#"{"model":null}"#), Ok(Named::default()));
    assert_eq!(json("{}"), Ok(Named::default()));
    assert_eq!(json(r#"{"a":{"model":"x"}}"#), Ok(Named::default()));
    for twice in [
        r#"{"model":"a","model":"b"}"#,
        r#"{"model":"a","model":"a"}"#,
        r#"{"model":"a","MODEL":"b"}"#,
        r#"{"model":"a","mod\u0065l":"b"}"#,
    ] {
        assert_eq!(json(twice), Err(Error::Duplicate), "{twice}");
    }
    assert_eq!(json(r#"{"model":7}"#), Err(Error::NoText));
    assert_eq!(
        json(r#"{"model":"a","models":["b","c"]}"#).map(|named| named.models.concat()),
        Ok(["a", "b", "c"].map(str::to_owned).to_vec())
    );
}

#[test]
fn json_is_json_in_utf_8() {
    for broken in ["{", r#"{"model":"a""#, "nonsense", "{'model':'a'}"] {
        assert_eq!(json(broken), Err(Error::InvalidJson), "{broken}");
    }
    let wide: Vec<u8> = "{\"model\":\"x\"}".bytes().flat_map(|byte| [byte, 0]).collect();
    for body in [
        &b"\xEF\xBB\xBF{\"model\":\"x\"}"[..],
        &wide,
        b"\xFF\xFE{\0",
        b"{\"model\":\"\xff\"}",
    ] {
        let read = models(Parts {
            path: "/x",
            query: "",
            content_type: "application/json",
            body,
        });
        assert_eq!(read, Err(Error::Coding), "{body:?}");
    }
    assert!(json("[1]").is_ok_and(|named| named.unread));
    let lines = "{\"model\":\"a\"}\n{\"model\":\"b\"}";
    assert_eq!(read("/x", "", "application/jsonl", lines), Ok(one("a")));
}

#[test]
fn json_is_read_whatever_the_head_says_and_what_is_unknown_is_unread() {
    assert_eq!(read("/x", "", "text/plain", r#"{"model":"m"}"#), Ok(one("m")));
    assert_eq!(read("/x", "", "", r#"{"model":"m"}"#), Ok(one("m")));
    assert!(read("/x", "", "audio/wav", "RIFF").is_ok_and(|named| named.unread));
    assert_eq!(read("/x", "", "", ""), Ok(Named::default()));
}

#[test]
fn paths_and_queries_name_models() {
    let of = |path| read(path, "", "", "").map(|named| named.models.concat());
    for (path, name) in [
        ("/v1/models/gpt-4o", "gpt-4o"),
        ("/v1/models/org/name", "org/name"),
        ("/v1beta/models/g-2:generateContent", "g-2"),
        ("/v1/models/llama3:8b", "llama3:8b"),
        ("/v1/projects/p/publishers/anthropic/models/c@1:rawPredict", "c@1"),
        ("/openai/deployments/d/chat/completions", "d"),
        ("/v1/models/%61", "a"),
        ("/v1/%6dodels/a", "a"),
        ("/v1/Models;x=1/a", "a"),
    ] {
        assert_eq!(of(path), Ok(vec![name.to_owned()]), "{path}");
    }
    assert_eq!(of("/v1/models"), Ok(Vec::new()));
    assert_eq!(of("/v1/models/"), Ok(Vec::new()));
    assert_eq!(read("/x", "a=1&model=m", "", ""), Ok(one("m")));
}

#[test]
fn different_models_in_different_places_are_refused() {
    let path = "/v1beta/models/g:countTokens";
    let body = |name: &str| format!(r#"{{"model":"models/{name}"}}"#);
    assert_eq!(read(path, "", "", &body("g")), Ok(one("g")));
    assert_eq!(read(path, "", "", &body("h")), Err(Error::Differs));
    assert_eq!(read("/x", "model=a&model=b", "", ""), Err(Error::Differs));
    assert_eq!(read("/x", "model=a", "", r#"{"model":"b"}"#), Err(Error::Differs));
}

#[test]
fn forms_name_models() {
    let form = "application/x-www-form-urlencoded";
    assert_eq!(read("/x", "", form, "a=1&model=org%2Fm"), Ok(one("org/m")));
    assert_eq!(read("/x", "", form, "model=a&model=b"), Err(Error::Duplicate));

    let part = |head: &str, content: &str| format!("--b\r\n{head}\r\n\r\n{content}\r\n");
    let named = |name: &str| format!("Content-Disposition: form-data; {name}");
    let whole = |parts: &[String]| format!("{}--b--\r\n", parts.concat());
    let file = part(&named("name=\"file\"; filename=\"a\""), "RIFF\n\n--x");
    let multipart = |body: &str| {
        read(
            "/v1/audio/transcriptions",
            "",
            "multipart/form-data; boundary=b",
            body,
        )
    };

    for name in ["name=\"model\"", "name=model", "NAME=\"Model\""] {
        let body = whole(&[file.clone(), part(&named(name), "whisper")]);
        assert_eq!(multipart(&body), Ok(one("whisper")), "{name}");
    }
    let twice = [part(&named("name=model"), "a"), part(&named("name=model"), "b")];
    assert_eq!(multipart(&whole(&twice)), Err(Error::Duplicate));
    let coded = [part(&named("name*=utf-8''model"), "a")];
    assert_eq!(multipart(&whole(&coded)), Err(Error::Form));
    assert_eq!(multipart("nothing"), Err(Error::Form));
    assert_eq!(multipart(&whole(&[file])), Ok(Named::default()));
}
