//! Tests of what can be opened, by whom and in which context, and of how keys are read and shown.

use std::sync::LazyLock;

use proptest::prelude::*;

use super::*;

const URL: &str = "https://api.example.com";

fn private(byte: u8) -> PrivateKey {
    PrivateKey::of_master(&Secret::new([byte; KEY_BYTES]))
}

fn context(tenant: &str, endpoint: &str, urls: &[&str]) -> Context {
    Context::new(
        &TenantId::from(tenant),
        &EndpointId::from(endpoint),
        urls.iter().copied(),
    )
}

fn sealed(key: &PrivateKey, context: &Context, secret: &[u8]) -> Sealed {
    let secret = Secret::new(secret.to_vec());
    seal(key.public(), context, &secret, [9; SEED_BYTES]).expect("seal")
}

#[test]
fn what_is_sealed_for_an_endpoint_opens_there_and_nowhere_else() {
    let (key, own) = (private(1), context("acme", "e", &[URL]));
    let sealed = sealed(&key, &own, b"a secret");

    let opened = key.open(&own, &sealed).expect("open");

    assert_eq!(opened.reveal(), b"a secret");
    for other in [
        context("other", "e", &[URL]),
        context("acme", "e2", &[URL]),
        context("acme", "e", &["https://evil.example.com"]),
        context("acme", "e", &[URL, "https://evil.example.com"]),
        context("acme", "e", &[]),
        context("acm", "ee", &[URL]),
        context("acme", &format!("e{URL}"), &[]),
    ] {
        assert_eq!(key.open(&other, &sealed).err(), Some(OpenError::OtherContext));
    }
    assert_eq!(private(2).open(&own, &sealed).err(), Some(OpenError::OtherKey));
    assert!(sealed.is_for(key.public()) && !sealed.is_for(private(2).public()));
}

#[test]
fn the_order_of_addresses_is_of_no_matter() {
    let one = context("acme", "e", &["http://a", "http://b"]);

    assert_eq!(one, context("acme", "e", &["http://b", "http://a", "http://a"]));
}

#[test]
fn a_sealed_secret_shows_neither_itself_nor_its_key() {
    let (key, own) = (private(1), context("acme", "e", &[URL]));
    let sealed = sealed(&key, &own, b"canary-in-the-mine");

    let shown = format!("{sealed:?}{}", serde_json::to_string(&sealed).expect("json"));
    let bytes = sealed.bytes().expect("bytes");

    assert!(!shown.contains("canary"), "{shown}");
    assert!(!bytes.windows(6).any(|window| window == b"canary"));
    assert!(sealed.name().starts_with("sealed:") && sealed.name().len() == 19);
}

#[test]
fn two_seeds_give_two_texts_of_one_secret() {
    let (key, own) = (private(1), context("acme", "e", &[URL]));
    let secret = Secret::new(b"a secret".to_vec());

    let one = seal(key.public(), &own, &secret, [1; SEED_BYTES]).expect("seal");
    let two = seal(key.public(), &own, &secret, [2; SEED_BYTES]).expect("seal");

    assert_ne!(one, two);
    assert_eq!(
        key.open(&own, &one).expect("open"),
        key.open(&own, &two).expect("open")
    );
}

#[test]
fn a_master_key_is_read_in_every_spelling_of_base64_and_nothing_else_is_one() {
    let bytes = [0xfb; KEY_BYTES];
    let spellings = [
        STANDARD.encode(bytes),
        STANDARD_NO_PAD.encode(bytes),
        URL_SAFE.encode(bytes),
        format!(" {}\n", URL_SAFE_NO_PAD.encode(bytes)),
    ];

    for text in spellings {
        let read = master_key(&Secret::new(text)).expect("a key");
        assert_eq!(read.reveal(), &bytes);
    }
    for text in [
        "",
        "c2hvcnQ",
        &"A".repeat(44),
        "not base64 at all, not at all, not at all!!",
    ] {
        assert_eq!(
            master_key(&Secret::new(text.to_owned())).err(),
            Some(NoKey),
            "{text}"
        );
    }
}

#[test]
fn a_public_key_comes_back_from_its_text_and_only_a_real_one_is_sealed_to() {
    let key = private(3);
    let read: PublicKey = key.public().to_string().parse().expect("a key");
    let own = context("acme", "e", &[URL]);

    let sealed = seal(&read, &own, &Secret::new(vec![7]), [0; SEED_BYTES]).expect("seal");

    assert_eq!(key.open(&own, &sealed).expect("open").reveal(), &[7]);
    let nobody = PublicKey::from_bytes([0; KEY_BYTES]);
    let refused = seal(&nobody, &own, &Secret::new(vec![7]), [0; SEED_BYTES]);
    assert_eq!(refused.err(), Some(SealError::Key));
}

#[test]
fn secrets_of_no_size_or_too_much_are_not_sealed() {
    let (key, own) = (private(1), context("acme", "e", &[URL]));
    let size = |bytes: usize| {
        let secret = Secret::new(vec![b'x'; bytes]);
        seal(key.public(), &own, &secret, [0; SEED_BYTES])
    };

    assert_eq!(size(0).err(), Some(SealError::Size));
    assert_eq!(size(SECRET_BYTES_MAX + 1).err(), Some(SealError::Size));
    let largest = size(SECRET_BYTES_MAX).expect("seal");
    assert_eq!(
        key.open(&own, &largest).expect("open").reveal().len(),
        SECRET_BYTES_MAX
    );
}

/// Frozen: what was sealed by an earlier version opens by this one.
#[test]
fn what_was_sealed_before_still_opens() {
    let (key, own) = (private(1), context("acme", "e", &[URL]));
    let text = include_str!("golden.txt").trim();
    let kept: Sealed = serde_json::from_value(text.into()).expect("a sealed secret");

    assert_eq!(key.open(&own, &kept).expect("open").reveal(), b"a secret");
    assert_eq!(sealed(&key, &own, b"a secret"), kept);
}

/// One key and what it sealed: making them is slow without optimization.
static MADE: LazyLock<(PrivateKey, Context, Sealed)> = LazyLock::new(|| {
    let (key, own) = (private(1), context("acme", "e", &[URL]));
    let sealed = sealed(&key, &own, b"a secret of some length");
    (key, own, sealed)
});

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn nothing_that_was_changed_opens_and_nothing_panics(at in 0_usize..400, by in 1_u8.., cut in any::<bool>()) {
        let (key, own, sealed) = &*MADE;
        let mut bytes = sealed.bytes().expect("bytes");
        let at = at % bytes.len();
        if cut {
            bytes.truncate(at);
        } else {
            bytes[at] ^= by;
        }

        let opened = key.open(own, &Sealed(URL_SAFE_NO_PAD.encode(bytes)));

        prop_assert!(opened.is_err());
    }

    #[test]
    fn any_text_is_refused_without_a_panic(text in ".{0,200}") {
        let (key, own, _) = &*MADE;

        prop_assert!(key.open(own, &Sealed(text)).is_err());
    }
}
