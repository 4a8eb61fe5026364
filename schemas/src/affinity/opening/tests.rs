//! What of a conversation's beginning counts, and what does not.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

fn text(pieces: &[&str]) -> Text {
    let mut text = Text::default();
    for piece in pieces {
        text.add(piece);
    }
    text
}

/// A conversation: roles with what they say.
fn opening(messages: &[(&str, &str)]) -> Opening {
    let mut opening = Opening::default();
    for (role, said) in messages {
        opening.message(Speaker::of_role(role), text(&[said]));
    }
    opening
}

const FIRST: [(&str, &str); 2] = [("system", "Be brief."), ("user", "What is a waybill?")];

#[test]
fn the_first_turn_has_no_second_level() {
    let first = opening(&FIRST);

    assert!(first.l1().is_some());
    assert_eq!(first.l2(), None);
    assert_eq!(Opening::default().l1(), None);
}

#[test]
fn later_turns_begin_as_the_earlier_ones_did() {
    let first = opening(&FIRST);
    let mut messages = FIRST.to_vec();
    messages.push(("assistant", "A record of what is carried."));
    messages.push(("user", "And a ledger?"));
    let second = opening(&messages);
    messages.push(("tool", "42"));
    messages.push(("assistant", "The books."));
    messages.push(("system", "A word in between."));
    messages.push(("user", "Thanks."));
    let third = opening(&messages);

    assert_eq!(first.l1(), second.l1());
    assert_eq!(second.l1(), third.l1());
    assert_eq!(second.l2(), third.l2());
    assert_ne!(second.l2(), second.l1());
}

#[test]
fn instructions_user_and_answer_each_tell_conversations_apart() {
    let conversation =
        |system, user, assistant| opening(&[("system", system), ("user", user), ("assistant", assistant)]);
    let one = conversation("s", "u", "a");

    let answered = conversation("s", "u", "b");
    assert_eq!(
        (one.l1() == answered.l1(), one.l2() == answered.l2()),
        (true, false)
    );
    for other in [conversation("t", "u", "a"), conversation("s", "v", "a")] {
        assert_ne!(one.l1(), other.l1());
        assert_ne!(one.l2(), other.l2());
    }
}

#[test]
fn instructions_beside_the_messages_count_before_and_behind_them() {
    let mut before = Opening::default();
    before.instruct(text(&["Be brief."]));
    before.message(Speaker::User, text(&["Hi"]));
    let mut behind = Opening::default();
    behind.message(Speaker::User, text(&["Hi"]));
    let without = behind;
    behind.instruct(text(&["Be brief."]));

    assert_eq!(before.l1(), behind.l1());
    assert_ne!(without.l1(), behind.l1());
}

#[test]
fn the_block_of_claude_code_that_differs_with_every_prompt_does_not_count() {
    let of = |billing: &str| {
        let mut opening = Opening::default();
        opening.instruct(text(&[billing, "You are a Claude agent."]));
        opening.message(Speaker::User, text(&["hi"]));
        opening.l1()
    };

    let one = of("x-anthropic-billing-header: cc_version=2.1.197.0df; cc_entrypoint=sdk-cli;");
    let other = of("x-anthropic-billing-header: cc_version=2.1.197.9aa; cc_entrypoint=sdk-cli;");
    assert_eq!(one, other);
    assert_ne!(one, of("x-other: 0df"));
}

#[test]
fn a_turn_in_which_nothing_is_said_does_not_begin_anything() {
    let spoken = opening(&[("user", "u"), ("assistant", "a")]);
    let silent = opening(&[
        ("assistant", "welcome"),
        ("user", ""),
        ("user", "u"),
        ("assistant", ""),
        ("assistant", "a"),
    ]);

    assert_eq!(spoken, silent);
    assert_eq!(opening(&[("user", ""), ("assistant", "a")]).l1(), None);
    assert!(text(&["", "x-anthropic-billing-header: 1"]).is_empty());
}

#[test]
fn roles_are_those_of_all_dialects() {
    for (role, speaker) in [
        ("system", Speaker::System),
        ("developer", Speaker::System),
        ("user", Speaker::User),
        ("assistant", Speaker::Assistant),
        ("model", Speaker::Assistant),
        ("tool", Speaker::Other),
        ("", Speaker::Other),
    ] {
        assert_eq!(Speaker::of_role(role), speaker, "{role}");
    }
}

/// Nodes of all kinds and versions must agree.
#[test]
fn the_hash_is_this_one() {
    let opening = opening(&[("system", "Be brief."), ("user", "Hi"), ("assistant", "Hello.")]);

    let hex = |bytes: Option<[u8; 16]>| crate::catalog::hex(&bytes.expect("a hash"));
    assert_eq!(hex(opening.l1()), "ec05678a75837ad281a79413c4b6cd37");
    assert_eq!(hex(opening.l2()), "637dbde45f470e28f48f902bcd2e9ef9");
}

#[test]
fn a_long_text_is_told_by_its_beginning_and_its_length() {
    let long = "x".repeat(PIECE_BYTES_MAX);

    assert_eq!(text(&[&format!("{long}a")]), text(&[&format!("{long}b")]));
    assert_ne!(text(&[&format!("{long}a")]), text(&[&format!("{long}ab")]));
    assert_ne!(text(&[&long]), text(&[&format!("y{}", &long[1..])]));
}

proptest! {
    #[test]
    fn texts_that_differ_have_hashes_that_differ(texts in prop::collection::btree_set("[ab]{1,40}", 2..40)) {
        let hashes: BTreeSet<_> = texts.iter().map(|said| opening(&[("user", said)]).l1()).collect();
        let swapped: BTreeSet<_> = texts.iter().map(|said| opening(&[("system", said), ("user", "u")]).l1()).collect();

        prop_assert_eq!(hashes.len(), texts.len());
        prop_assert_eq!(swapped.len(), texts.len());
        prop_assert!(hashes.is_disjoint(&swapped));
    }

    #[test]
    fn pieces_are_not_their_sum(one in "[ab]{1,20}", other in "[ab]{1,20}") {
        let (apart, joined) = (text(&[&one, &other]), text(&[&format!("{one}{other}")]));

        prop_assert_ne!(apart, joined);
    }

    #[test]
    fn bytes_at_every_place_count(said in "[ -~]{1,64}", place in any::<prop::sample::Index>()) {
        let at = place.index(said.len());
        let mut bytes = said.clone().into_bytes();
        bytes[at] ^= 1;
        let other = String::from_utf8(bytes).expect("ASCII");

        prop_assert_ne!(text(&[&said]), text(&[&other]));
    }
}
