//! What commands say of records.

use super::*;

#[test]
fn a_credential_is_called_active_until_its_end_and_no_longer() {
    let end = "2026-12-01T00:00:00.000000Z";
    let at = |text: &str| Timestamp::parse(text).expect("a time");
    let (before, then) = (at("2026-11-30T23:59:59.999999Z"), at(end));
    let (endless, ending) = (
        json!({"revoked": false, "expires_at": null}),
        json!({"expires_at": end}),
    );
    let revoked = json!({"revoked": true, "expires_at": end});

    assert_eq!(standing(&endless, then), "active");
    assert_eq!(
        (standing(&ending, before), standing(&ending, then)),
        ("active", "expired")
    );
    assert_eq!(
        (standing(&revoked, before), standing(&revoked, then)),
        ("revoked", "revoked")
    );
}

#[test]
fn a_key_that_is_for_no_model_is_not_called_one_for_all() {
    assert_eq!(models_cell(&Value::Null), "all");
    assert_eq!(models_cell(&json!(["m", "n"])), "m n");
    assert_eq!(models_cell(&json!([])), "none");
}

fn given(limits: &[&str]) -> Vec<String> {
    limits.iter().map(|limit| (*limit).to_owned()).collect()
}

#[test]
fn limits_that_are_not_named_stay_and_those_without_an_amount_go() {
    let found = json!({"rpm": 5, "tpm": 7, "per_model": {"m": {"rpm": 1}}});
    let changed = changed_limits(&given(&["rpm=", "daily_usd=1.5", "tpm=8"])).expect("limits");

    assert_eq!(
        merged(&found, &changed),
        json!({"tpm": "8", "daily_usd": "1.5", "per_model": {"m": {"rpm": 1}}})
    );
}

#[test]
fn limits_of_one_model_are_named_with_it() {
    let typed = ["rpm@org/m=v=60", "tpm@m=", "daily_usd@n=2", "rpm@m=3"];
    let changed = changed_limits(&given(&typed)).expect("limits");
    let found = json!({"rpm": 5, "per_model": {"m": {"rpm": 1, "tpm": 9}, "k": {"rpm": 2}}});

    assert_eq!(
        merged(&found, &changed),
        json!({"rpm": 5, "per_model": {
            "m": {"rpm": "3"}, "k": {"rpm": 2}, "n": {"daily_usd": "2"}, "org/m=v": {"rpm": "60"},
        }})
    );
    let gone = changed_limits(&given(&["rpm@k="])).expect("limits");
    assert_eq!(merged(&json!({"per_model": {"k": {"rpm": 2}}}), &gone), json!({}));
    let made = limits(&given(&["rpm@m=3"])).expect("limits");
    assert_eq!(
        Map::from(made),
        json!({"per_model": {"m": {"rpm": 3}}})
            .as_object()
            .cloned()
            .expect("one")
    );
    assert_eq!(
        limits_cell(&json!({"limits": {"rpm": 1, "per_model": {"m": {"tpm": 2}}}})),
        "rpm=1 tpm@m=2"
    );
}

#[test]
fn what_is_no_limit_is_told() {
    for (limits, told) in [
        (&["rpm"][..], "KEY=AMOUNT"),
        (&["rpm=1", "rpm=2"], "twice"),
        (&["rpm@m=1", "rpm@m="], "twice"),
        (&["rpm@m=x"], "--limit"),
        (&["rpm=x"], "--limit rpm"),
        (&["qqs=1"], "--limit qqs"),
    ] {
        let problem = changed_limits(&given(limits)).expect_err("no limit").to_string();
        assert!(problem.contains(told), "{limits:?}: {problem}");
    }
    assert!(
        limits(&given(&["rpm="])).is_err(),
        "nothing is taken from what is new"
    );
}

#[test]
fn columns_begin_below_each_other_and_lines_end_without_blanks() {
    const COLUMNS: [Column; 2] = [("ID", |record| text(&record["id"])), ("LIMITS", limits_cell)];
    let records = [
        json!({"id": "a"}),
        json!({"id": "\u{e9}t\u{e9}", "limits": {"rpm": 5, "daily_usd": "1.5"}}),
    ];

    assert_eq!(
        printed(&COLUMNS, &records, false),
        "ID   LIMITS\na    -\n\u{e9}t\u{e9}  daily_usd=1.5 rpm=5\n"
    );
    assert_eq!(printed(&COLUMNS, &[], false), "ID  LIMITS\n");
}

#[test]
fn a_name_is_one_segment_of_a_path() {
    assert_eq!(encoded("a-b.c_1~"), "a-b.c_1~");
    assert_eq!(encoded("o'neil/\u{d6} ?"), "o%27neil%2F%C3%96%20%3F");
}
