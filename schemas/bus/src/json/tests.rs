//! The writer against `serde_json`.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

#[derive(Serialize)]
struct Unit;

#[derive(Serialize)]
struct Pair(u8, &'static str);

#[derive(Serialize)]
struct Wrapped(i64);

#[derive(Serialize)]
struct Inner {
    depth: i16,
    #[serde(skip_serializing_if = "Option::is_none")]
    absent: Option<u8>,
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Plain,
    Holding(u32),
    Both(u8, bool),
    Named { left: Option<char>, right: f64 },
}

#[derive(Serialize)]
struct Everything {
    unit: Unit,
    pair: Pair,
    wrapped: Wrapped,
    #[serde(flatten)]
    inner: Inner,
    kinds: Vec<Kind>,
    empty: Vec<Kind>,
    map: BTreeMap<String, Option<u64>>,
    tuple: (f32, i128, u128),
    nothing: (),
}

fn ours<T: Serialize>(value: &T) -> String {
    let mut out = Vec::new();
    write(&mut out, value).expect("written");
    String::from_utf8(out).expect("text")
}

#[test]
fn every_shape_is_written_as_serde_json_writes_it() {
    let everything = Everything {
        unit: Unit,
        pair: Pair(255, "a\"b\\c\u{7}\n\r\t\u{8}\u{c}\u{7f}é🙂"),
        wrapped: Wrapped(i64::MIN),
        inner: Inner {
            depth: -7,
            absent: None,
        },
        kinds: vec![
            Kind::Plain,
            Kind::Holding(u32::MAX),
            Kind::Both(0, false),
            Kind::Named {
                left: Some('"'),
                right: 0.1,
            },
            Kind::Named {
                left: None,
                right: f64::NAN,
            },
        ],
        empty: Vec::new(),
        map: BTreeMap::from([("\u{1f}".to_owned(), Some(u64::MAX)), (String::new(), None)]),
        tuple: (1.5, i128::MIN, u128::MAX),
        nothing: (),
    };

    assert_eq!(
        ours(&everything),
        serde_json::to_string(&everything).expect("written")
    );
}

#[test]
fn what_is_no_name_cannot_name_a_member() {
    let mut out = Vec::new();

    assert!(write(&mut out, &BTreeMap::from([(vec![1], 2)])).is_err());
}

proptest! {
    #[test]
    fn text_is_escaped_as_serde_json_escapes_it(text in prop_oneof![".{0,40}", "[ -~\\x00-\\x1f]{0,40}"]) {
        prop_assert_eq!(ours(&text), serde_json::to_string(&text).expect("written"));
    }

    #[test]
    fn numbers_are_written_as_serde_json_writes_them(unsigned: u64, signed: i64, small: u8) {
        let value = (unsigned, signed, small, unsigned >> 40, signed >> 40);
        prop_assert_eq!(ours(&value), serde_json::to_string(&value).expect("written"));
    }
}
