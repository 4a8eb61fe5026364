//! The corpus of tokens that are none of ours, and those that are.

use serde_json::{Value, json};

use super::*;

const SECRET: &[u8] = b"a secret of the deployment";
const NOON: Timestamp = Timestamp::from_micros(1_796_000_000_000_000);
const QUARTER: u64 = 900;

fn signer() -> Signer {
    Signer::new(SECRET, "local")
}

fn of_ann() -> Refresh {
    Refresh {
        tenant: TenantId::from("acme"),
        user: UserId::from("ann lee/\u{e9}"),
        session: "s1".to_owned(),
        turn: 3,
    }
}

fn at(seconds: i64) -> Timestamp {
    NOON.plus_micros(seconds * 1_000_000)
}

fn encoded(value: &Value) -> String {
    URL_SAFE_NO_PAD.encode(value.to_string())
}

/// The claims of a token that is good at noon.
fn claims() -> Value {
    let now = NOON.micros() / 1_000_000;
    json!({"iss": "waybill/local", "aud": "waybill", "sub": "ann", "tenant": "acme", "sid": "s1",
        "iat": now, "exp": now + 900})
}

/// A token of any header and claims, signed with a secret.
fn signed(header: &str, claims: &Value, secret: &[u8]) -> String {
    let text = format!("{header}.{}", encoded(claims));
    let signature = URL_SAFE_NO_PAD.encode(tag(&keyed(secret), text.as_bytes()));
    format!("{text}.{signature}")
}

fn with(name: &str, value: Value) -> Value {
    let mut claims = claims();
    claims[name] = value;
    claims
}

fn without(name: &str) -> Value {
    let mut claims = claims();
    claims.as_object_mut().expect("claims").remove(name);
    claims
}

#[test]
fn an_access_token_is_good_for_its_time_and_by_clocks_that_differ_by_a_minute() {
    let token = signer().access(&of_ann(), NOON, QUARTER);
    assert!(is_like_one(&token));

    for (seconds, is_good) in [(-61, false), (-60, true), (0, true), (899, true)] {
        let read = signer().read(&token, at(seconds));
        assert_eq!(matches!(read, Read::Good(_)), is_good, "{seconds}: {read:?}");
    }
    assert_eq!(signer().read(&token, at(900)), Read::Over);
    let Read::Good(claims) = signer().read(&token, NOON) else {
        panic!("it is good");
    };
    assert_eq!(
        (claims.sub.as_str(), claims.tenant.as_str(), &*claims.sid),
        ("ann lee/\u{e9}", "acme", "s1")
    );
}

#[test]
fn a_token_of_any_other_header_is_none_though_its_signature_be_right() {
    let read = |header: &Value| signer().read(&signed(&encoded(header), &claims(), SECRET), NOON);
    for header in [
        json!({"alg": "none"}),
        json!({"alg": "None", "typ": "JWT"}),
        json!({"alg": "HS384", "typ": "JWT"}),
        json!({"alg": "RS256", "typ": "JWT"}),
        json!({"alg": "HS256"}),
        json!({"alg": "HS256", "typ": "JWT", "kid": "../../dev/null"}),
        json!({"alg": "HS256", "typ": "JWT", "kid": "' union select 'k"}),
        json!({"alg": "HS256", "typ": "JWT", "jku": "http://127.0.0.1/keys"}),
        json!({"alg": "HS256", "typ": "JWT", "jwk": {"kty": "oct", "k": "AAAA"}}),
        json!({"alg": "HS256", "typ": "JWT", "crit": ["exp"]}),
        json!({"alg": ["HS256"], "typ": "JWT"}),
        json!([]),
    ] {
        assert_eq!(read(&header), Read::Foreign, "{header}");
    }
    assert_eq!(
        signer().read(&signed("e30", &claims(), SECRET), NOON),
        Read::Foreign
    );
    assert!(matches!(
        signer().read(&signed(HEADER, &claims(), SECRET), NOON),
        Read::Good(_)
    ));
}

#[test]
fn a_token_whose_claims_are_not_ours_is_none() {
    let now = NOON.micros() / 1_000_000;
    let read = |claims: &Value| signer().read(&signed(HEADER, claims, SECRET), NOON);
    for claims in [
        with("iss", json!("waybill/other")),
        with("iss", json!(["waybill/local"])),
        with("aud", json!("another")),
        with("aud", json!(["waybill", "another"])),
        with("iat", json!(now + 61)),
        with("iat", json!("now")),
        with("exp", json!(now - 1_000_000)),
        with("exp", json!(1.0e300)),
        with("exp", Value::Null),
        with("sub", json!(7)),
        with("sid", Value::Null),
        without("iss"),
        without("aud"),
        without("exp"),
        without("iat"),
        without("sub"),
        without("tenant"),
        without("sid"),
        json!("claims"),
    ] {
        assert_eq!(read(&claims), Read::Foreign, "{claims}");
    }
    let past = json!({"iss": "waybill/local", "aud": "waybill", "sub": "ann", "tenant": "acme", "sid": "s1",
        "iat": now - 2_000, "exp": now - 1_000});
    assert_eq!(read(&past), Read::Over);
}

#[test]
fn a_token_that_is_changed_anywhere_cut_or_signed_by_somebody_else_is_none() {
    let token = signer().access(&of_ann(), NOON, QUARTER);
    for place in 0..token.len() {
        let mut bytes = token.clone().into_bytes();
        bytes[place] = if bytes[place] == b'A' { b'B' } else { b'A' };
        let changed = String::from_utf8(bytes).expect("text");
        assert_eq!(signer().read(&changed, NOON), Read::Foreign, "{place}");
        assert_eq!(signer().read(&token[..place], NOON), Read::Foreign, "{place}");
    }
    let parts: Vec<&str> = token.split('.').collect();
    for wrong in [
        format!("{}.{}.", parts[0], parts[1]),
        format!("{}.{}", parts[0], parts[1]),
        format!("{token}."),
        format!("{token}=="),
        format!("{token}.{}", parts[2]),
        format!(".{}.{}", parts[1], parts[2]),
        signed(HEADER, &claims(), b""),
        signed(HEADER, &claims(), b"secret"),
        "x".repeat(1 << 20),
        format!("{HEADER}.{}.x", "A".repeat(1 << 20)),
        "..".to_owned(),
        String::new(),
    ] {
        assert_eq!(signer().read(&wrong, NOON), Read::Foreign);
    }
    assert_eq!(Signer::new(SECRET, "other").read(&token, NOON), Read::Foreign);
}

#[test]
fn a_refresh_token_is_read_back_and_none_that_is_changed() {
    let token = signer().refresh(&of_ann());
    assert_eq!(signer().read_refresh(&token), Some(of_ann()));

    for place in 0..token.len() {
        let mut bytes = token.clone().into_bytes();
        bytes[place] = if bytes[place] == b'A' { b'B' } else { b'A' };
        let changed = String::from_utf8(bytes).expect("text");
        assert_eq!(signer().read_refresh(&changed), None, "{place}");
    }
    let access = signer().access(&of_ann(), NOON, QUARTER);
    assert_eq!(signer().read_refresh(&access), None, "one is never the other");
    assert_eq!(signer().read(&token, NOON), Read::Foreign);
    assert_eq!(Signer::new(b"other", "local").read_refresh(&token), None);
}
