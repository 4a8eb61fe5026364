//! Messages of the user that say nothing.

use super::encoding::{hello, plain, refused, result, said, sent};
use super::*;

fn told(turns: Vec<Turn>) -> String {
    sent(&Conversation { turns, ..hello() }).0["messages"].to_string()
}

#[test]
fn what_says_nothing_vanishes_beside_what_the_user_says() {
    let (ask, silence) = (
        || said(Role::User, vec![plain("a")]),
        || said(Role::User, vec![plain("")]),
    );
    let answer = || said(Role::Assistant, vec![plain("b")]);

    let once = told(vec![ask()]);
    assert_eq!(told(vec![silence(), ask()]), once);
    assert_eq!(told(vec![ask(), silence()]), once);
    let twice = told(vec![ask(), answer(), ask()]);
    assert_eq!(told(vec![ask(), answer(), silence(), ask()]), twice);
    assert_eq!(
        told(vec![silence(), ask(), silence(), answer(), ask(), silence()]),
        twice
    );
    let late = said(Role::System, vec![plain("s")]);
    assert_eq!(
        told(vec![ask(), answer(), silence(), late.clone(), ask()]),
        told(vec![ask(), answer(), late, ask()])
    );
    let call = encoding::call("t1", "{}");
    let results = || said(Role::Tool, vec![result("t1", "x")]);
    assert_eq!(
        told(vec![
            ask(),
            said(Role::Assistant, vec![call.clone()]),
            results(),
            silence()
        ]),
        told(vec![ask(), said(Role::Assistant, vec![call]), results()])
    );
}

#[test]
fn a_user_who_says_nothing_at_all_is_refused() {
    let (ask, silence) = (
        || said(Role::User, vec![plain("a")]),
        || said(Role::User, vec![plain("")]),
    );
    let answer = || said(Role::Assistant, vec![plain("b")]);
    for turns in [
        vec![silence()],
        vec![ask(), answer(), silence()],
        vec![ask(), answer(), silence(), answer()],
        vec![ask(), answer(), silence(), said(Role::System, vec![plain("s")])],
    ] {
        let shown = format!("{turns:?}");
        assert_eq!(refused(&Conversation { turns, ..hello() }), "messages", "{shown}");
    }
}
