//! The corpus of ID tokens that say nothing, and those that say who somebody is.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use schemas::account::Identity;
use schemas::account::email::Email;
use schemas::time::Timestamp;
use serde_json::{Value, json};

use super::identity::{Expected, Keys, Person, Wrong, read};

const NOON: i64 = 1_796_000_000;
const ISSUER: &str = "https://login.example.com";

/// The modulus of an RSA key, and a token that it signed at noon.
const RSA_MODULUS: &str = "oU0f1JAcixj6vH-dCvxqjFbxwG_ODoM7fGGbZm7qIEUU_mPzLM_VpBv_KYiVEGLOyKK2-YjQ9YVYRuhNc-pbjEVp6FUVvgIZ6VXe\
     82PS2PeMioFmp8EhR6VUTm9NTz9JuqUlkW6tQuRQHLJ7GKLDyshgjnE79rGqhwH_Om0VqxFz2CyvqDpzjknMSV6qje-01mX_L48J\
     LhOwvit_436rbwsjWVkD_eUUPw1iW4tpJ7PqQy7BFBoZNzTwPSkDbfqJNqTyuMTpOANtpEfU9qouvmslAh3syqLDHzENXsZlr_o9\
     DFJC2Cg7NFIh0EhXFyrL78MOL3RMSJEBY5owHRVzmw";
const RSA_HEADER: &str = "eyJhbGciOiJSUzI1NiIsInR5cCI6IkpXVCIsImtpZCI6InJzYS0xIn0";
const RSA_CLAIMS: &str = "eyJpc3MiOiJodHRwczovL2xvZ2luLmV4YW1wbGUuY29tIiwiYXVkIjoid2F5YmlsbCIsInN1YiI6InBlcnNvbi0xIiwiZXhwIjox\
     Nzk2MDAwMzAwLCJpYXQiOjE3OTYwMDAwMDAsIm5vbmNlIjoibi0xIiwiZW1haWwiOiJhbm5AZXhhbXBsZS5jb20iLCJlbWFpbF92\
     ZXJpZmllZCI6dHJ1ZX0";
const RSA_SIGNATURE: &str = "GjY9wc9JtCbcOVrMraBrfoScjn-3CV4IVvqs2AVgsmJDtC_6qBPHVYrnTvxiLw5T0oEnHmI9L2OqXTm7yuhbBYkvs7Dc4R_m0Uu9\
     Trm2chtwcoC2FcunHOvq2BO_1kMRA1r1GXg_N9HWLn6IsLYsYKoiik75HZkK9k_SLtYjmAsyBg3VIEamlLDzrEl9ehDrk2Y0i_8W\
     DASWyTlDaTmEvQnB-ttotvxLVySC1Jqg35c3LIQt0LG-PJzsY2_s3zhinLuUrm19pR8fPW7jP05Gd8PyRoXpmzT6nn_9gbuX7tBA\
     Pt_jjzJv3pnBpTXtOMNKaaLJGE6Wc7SskVDvQWVM_g";

/// A provider with one key for ES256.
struct Signing(EcdsaKeyPair);

impl Signing {
    fn new() -> Self {
        let random = SystemRandom::new();
        let made = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).expect("a key");
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, made.as_ref(), &random);
        Self(pair.expect("a key"))
    }

    fn jwk(&self) -> Value {
        let point = self.0.public_key().as_ref();
        json!({"kty": "EC", "crv": "P-256", "kid": "ec-1", "use": "sig", "alg": "ES256",
            "x": URL_SAFE_NO_PAD.encode(&point[1..33]), "y": URL_SAFE_NO_PAD.encode(&point[33..])})
    }

    fn keys(&self) -> Keys {
        parsed(&[self.jwk()])
    }

    fn token(&self, header: &Value, claims: &Value) -> String {
        let text = format!("{}.{}", encoded(header), encoded(claims));
        let signature = self
            .0
            .sign(&SystemRandom::new(), text.as_bytes())
            .expect("a signature");
        format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature))
    }

    fn read(&self, header: &Value, claims: &Value) -> Result<Person, Wrong> {
        read(&self.token(header, claims), &self.keys(), expected())
    }
}

fn parsed(keys: &[Value]) -> Keys {
    Keys::parse(json!({"keys": keys}).to_string().as_bytes()).expect("a set of keys")
}

fn rsa_jwk() -> Value {
    json!({"kty": "RSA", "kid": "rsa-1", "use": "sig", "alg": "RS256", "n": RSA_MODULUS, "e": "AQAB"})
}

fn rsa_token() -> String {
    format!("{RSA_HEADER}.{RSA_CLAIMS}.{RSA_SIGNATURE}")
}

fn encoded(value: &Value) -> String {
    URL_SAFE_NO_PAD.encode(value.to_string())
}

fn expected() -> Expected<'static> {
    at(0)
}

fn at(seconds: i64) -> Expected<'static> {
    Expected {
        issuer: ISSUER,
        client: "waybill",
        nonce: "n-1",
        now: Timestamp::from_micros((NOON + seconds) * 1_000_000),
    }
}

fn header() -> Value {
    json!({"alg": "ES256", "typ": "JWT", "kid": "ec-1"})
}

/// The claims of a token that is good at noon.
fn claims() -> Value {
    json!({"iss": ISSUER, "aud": "waybill", "sub": "person-1", "iat": NOON, "exp": NOON + 300,
        "nonce": "n-1", "email": "Ann@Example.com", "email_verified": true})
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

fn ann() -> Person {
    Person {
        identity: Identity {
            issuer: ISSUER.to_owned(),
            subject: "person-1".to_owned(),
        },
        email: Email::parse("ann@example.com").expect("an address"),
    }
}

#[test]
fn a_token_of_either_algorithm_says_who_somebody_is() {
    let signing = Signing::new();
    let both = parsed(&[rsa_jwk(), signing.jwk()]);
    let unnamed = json!({"alg": "ES256"});

    assert_eq!(signing.read(&header(), &claims()), Ok(ann()));
    assert_eq!(read(&rsa_token(), &both, expected()), Ok(ann()));
    assert_eq!(
        read(&signing.token(&unnamed, &claims()), &both, expected()),
        Ok(ann())
    );
    for claims in [
        with("aud", json!(["waybill"])),
        with("azp", json!("waybill")),
        with("email_verified", json!("true")),
        with("nbf", json!(NOON)),
        with("role", json!("operator")),
    ] {
        assert_eq!(signing.read(&header(), &claims), Ok(ann()), "{claims}");
    }
    let mut several = with("aud", json!(["another", "waybill"]));
    several["azp"] = json!("waybill");
    assert_eq!(signing.read(&header(), &several), Ok(ann()));
}

#[test]
fn a_token_of_another_algorithm_is_none_whatever_it_is_signed_with() {
    let signing = Signing::new();
    let keys = parsed(&[rsa_jwk(), signing.jwk()]);
    for alg in [
        "none", "None", "", "HS256", "HS512", "RS384", "PS256", "ES384", "EdDSA", "rs256",
    ] {
        let mut header = header();
        header["alg"] = json!(alg);
        assert_eq!(signing.read(&header, &claims()), Err(Wrong::Form), "{alg}");
        let text = format!("{}.{}", encoded(&header), encoded(&claims()));
        assert_eq!(
            read(&format!("{text}."), &keys, expected()),
            Err(Wrong::Form),
            "{alg}"
        );
    }
    // The public key is no secret: nothing counts that is signed with it as if it were one.
    let text = format!(
        "{}.{}",
        encoded(&json!({"alg": "HS256", "kid": "rsa-1"})),
        encoded(&claims())
    );
    let mac = crate::idempotency::sha256(&[RSA_MODULUS.as_bytes(), text.as_bytes()]);
    let token = format!("{text}.{}", URL_SAFE_NO_PAD.encode(mac.0));
    assert_eq!(read(&token, &keys, expected()), Err(Wrong::Form));
    // A key of one kind is none of the other.
    let mut swapped = header();
    swapped["alg"] = json!("RS256");
    assert_eq!(signing.read(&swapped, &claims()), Err(Wrong::Signature));
    let mut critical = header();
    critical["crit"] = json!(["exp"]);
    assert_eq!(signing.read(&critical, &claims()), Err(Wrong::Form));
    // What a token brings along chooses no key.
    let other = Signing::new();
    let mut bringing = header();
    bringing["jwk"] = other.jwk();
    bringing["jku"] = json!("http://127.0.0.1/keys");
    assert_eq!(
        read(&other.token(&bringing, &claims()), &signing.keys(), expected()),
        Err(Wrong::Signature)
    );
}

#[test]
fn a_token_that_none_of_the_keys_signed_or_that_is_changed_is_none() {
    let signing = Signing::new();
    let token = signing.token(&header(), &claims());
    let keys = signing.keys();
    assert_eq!(
        read(&token, &Signing::new().keys(), expected()),
        Err(Wrong::Signature)
    );
    assert_eq!(read(&token, &Keys::default(), expected()), Err(Wrong::UnknownKey));
    let mut named = header();
    named["kid"] = json!("../../dev/null");
    assert_eq!(signing.read(&named, &claims()), Err(Wrong::UnknownKey));
    for place in 0..token.len() {
        let mut bytes = token.clone().into_bytes();
        bytes[place] = if bytes[place] == b'A' { b'B' } else { b'A' };
        let changed = String::from_utf8(bytes).expect("text");
        assert!(read(&changed, &keys, expected()).is_err(), "{place}");
    }
    let (text, _) = token.rsplit_once('.').expect("parts");
    for wrong in [
        String::new(),
        "..".to_owned(),
        format!("{text}."),
        text.to_owned(),
        format!("{token}=="),
        format!("{token}.x"),
        "x".repeat(1 << 20),
        format!("{}.{}.x", encoded(&header()), "A".repeat(1 << 20)),
    ] {
        assert!(read(&wrong, &keys, expected()).is_err());
    }
}

#[test]
fn a_token_of_somebody_else_or_for_somebody_else_is_none() {
    let signing = Signing::new();
    for claims in [
        with("iss", json!("https://login.example.com/")),
        with("iss", json!("https://evil.example.org")),
        with("aud", json!("another")),
        with("aud", json!([])),
        with("aud", json!(["another", "waybill"])),
        with("azp", json!("another")),
    ] {
        assert_eq!(signing.read(&header(), &claims), Err(Wrong::Party), "{claims}");
    }
    for claims in [
        with("nonce", json!("n-2")),
        with("nonce", json!("")),
        without("nonce"),
    ] {
        assert_eq!(signing.read(&header(), &claims), Err(Wrong::Nonce), "{claims}");
    }
    for claims in [
        with("email_verified", json!(false)),
        with("email_verified", json!("false")),
        with("email_verified", Value::Null),
        without("email_verified"),
        without("email"),
        with("email", json!("ann")),
        with("email", json!("ann@example.com\r\nBcc: eve@example.org")),
    ] {
        assert_eq!(signing.read(&header(), &claims), Err(Wrong::Email), "{claims}");
    }
    for claims in [
        with("sub", json!("")),
        with("sub", json!("x".repeat(256))),
        with("sub", json!(7)),
        without("sub"),
        without("iss"),
        without("aud"),
        without("exp"),
        without("iat"),
        with("exp", json!("later")),
        json!([]),
    ] {
        assert_eq!(signing.read(&header(), &claims), Err(Wrong::Form), "{claims}");
    }
}

#[test]
fn a_token_is_good_for_its_time_by_clocks_that_differ_by_a_minute() {
    let signing = Signing::new();
    let token = signing.token(&header(), &claims());
    for (seconds, is_good) in [(-61, false), (-60, true), (0, true), (359, true), (360, false)] {
        let told = read(&token, &signing.keys(), at(seconds));
        assert_eq!(told.is_ok(), is_good, "{seconds}");
        assert!(is_good || told == Err(Wrong::Time), "{seconds}");
    }
    for claims in [
        with("nbf", json!(NOON + 61)),
        with("exp", json!(i64::MIN)),
        with("iat", json!(i64::MAX)),
    ] {
        assert_eq!(signing.read(&header(), &claims), Err(Wrong::Time), "{claims}");
    }
}

#[test]
fn keys_of_other_kinds_are_passed_over() {
    let signing = Signing::new();
    let mut for_encryption = signing.jwk();
    for_encryption["use"] = json!("enc");
    let mut short = signing.jwk();
    short["x"] = json!("AAAA");
    let mut curve = signing.jwk();
    curve["crv"] = json!("P-384");
    let symmetric = json!({"kty": "oct", "kid": "ec-1", "k": "c2VjcmV0"});
    let mut other_use = rsa_jwk();
    other_use["alg"] = json!("PS256");

    let passed_over = parsed(&[for_encryption, short, curve, symmetric, other_use, json!(7)]);
    assert_eq!(passed_over, Keys::default());
    assert_eq!(Keys::parse(b"[]"), None);
    assert_eq!(Keys::parse(b"{\"keys\": 7}"), None);
    let small = json!({"kty": "RSA", "kid": "rsa-1", "n": "AQAB", "e": "AQAB"});
    assert_eq!(
        read(&rsa_token(), &parsed(&[small]), expected()),
        Err(Wrong::Signature)
    );
}
