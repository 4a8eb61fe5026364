//! Which names a session has, where they lead, and that they lead nowhere else.

use super::super::opening::{Opening, Speaker, Text};
use super::*;

/// A digest that differs where its input does, and shows no order of parts that it does not depend on.
fn sha256(parts: &[&[u8]]) -> Digest {
    let mut text = Text::default();
    text.add(&crate::catalog::hex(&parts.concat()));
    let mut opening = Opening::default();
    opening.message(Speaker::User, text);
    let half = opening.l1().expect("a hash");
    let mut bytes = [0; 32];
    bytes[..16].copy_from_slice(&half);
    bytes[16..].copy_from_slice(&half);
    Digest(bytes)
}

const BOTH: Policy = Policy {
    sessions: true,
    caller: true,
    session_ms: 1_800_000,
    caller_ms: 300_000,
    age_ms_max: 86_400_000,
};

fn facts() -> Facts<'static> {
    let mut said = Text::default();
    said.add("hi");
    let mut opening = Opening::default();
    opening.message(Speaker::User, said);
    opening.message(Speaker::Assistant, said);
    Facts {
        cache_key: Some("cache-1"),
        user: Some("user-1"),
        opening,
        ..Facts::default()
    }
}

fn told<'a>(facts: &'a Facts<'a>) -> Names<'a> {
    Names {
        session: Some("s-1"),
        hint: Some("h-1"),
        facts,
        caller: "key-1",
    }
}

fn of(tenant: &str, group: &str, names_told: &Names<'_>, policy: &Policy) -> Vec<Name> {
    let tenant = TenantId::from(tenant);
    let scope = Scope {
        tenant: &tenant,
        group,
    };
    names(scope, names_told, policy, sha256)
}

#[test]
fn a_session_has_a_name_at_every_level_that_is_told_and_is_its_callers_only_where_it_has_none() {
    let facts = facts();
    let all = of("acme", "g", &told(&facts), &BOTH);

    let levels: Vec<Level> = all.iter().map(|name| name.level).collect();
    assert_eq!(levels, &Level::ALL[..6]);
    let nothing = Facts::default();
    let bare = Names {
        session: None,
        hint: None,
        ..told(&nothing)
    };
    let levels: Vec<Level> = of("acme", "g", &bare, &BOTH)
        .iter()
        .map(|name| name.level)
        .collect();
    assert_eq!(levels, [Level::Caller]);
}

#[test]
fn levels_that_do_not_count_have_no_names() {
    let facts = facts();
    let sessions = Policy {
        caller: false,
        ..BOTH
    };
    let caller = Policy {
        sessions: false,
        ..BOTH
    };

    let levels = |policy: &Policy| -> Vec<Level> {
        let all = of("acme", "g", &told(&facts), policy);
        all.iter().map(|name| name.level).collect()
    };
    assert_eq!(levels(&sessions), &Level::ALL[..6]);
    assert_eq!(levels(&caller), [Level::Caller]);
    assert_eq!(levels(&Policy::default()), []);
}

#[test]
fn no_name_leads_over_tenants_groups_or_levels() {
    let facts = facts();
    let same = Names {
        session: Some("x"),
        hint: Some("x"),
        caller: "x",
        facts: &Facts {
            cache_key: Some("x"),
            user: Some("x"),
            ..facts.clone()
        },
    };
    let mut keys = Vec::new();
    for tenant in ["acme", "acme-2"] {
        for group in ["g", "g-2"] {
            let names = of(tenant, group, &same, &BOTH);
            let caller = Policy {
                sessions: false,
                ..BOTH
            };
            for name in names.into_iter().chain(of(tenant, group, &same, &caller)) {
                assert!(name.record_key.starts_with(&format!("{tenant}.")));
                keys.push(name.record_key);
            }
        }
    }

    let count = keys.len();
    keys.sort();
    keys.dedup();
    assert_eq!((count, keys.len()), (28, 28));
}

#[test]
fn what_a_caller_called_his_session_is_in_no_key() {
    let facts = facts();
    let names = of("acme", "secret-group", &told(&facts), &BOTH);

    for name in names {
        let digest = name.record_key.strip_prefix("acme.").expect("the tenant");
        assert!(Digest::parse(digest).is_some(), "{digest}");
    }
}

#[test]
fn a_token_that_comes_back_leads_to_the_same_record() {
    let facts = facts();
    let guessed = Names {
        session: None,
        hint: None,
        ..told(&facts)
    };
    let first = of("acme", "g", &guessed, &BOTH);
    let token = super::told(&first, None).expect("a token");

    let next = Names {
        session: Some(token),
        ..guessed
    };
    let second = of("acme", "g", &next, &BOTH);

    assert_eq!(second[0].level, Level::Header);
    assert_eq!(second[0].record_key, first[0].record_key);
    assert_eq!(super::told(&second, Some(token)), Some(token));
    let elsewhere = of("acme-2", "g", &next, &BOTH);
    assert_ne!(elsewhere[0].record_key, first[0].record_key);
}

#[test]
fn what_only_looks_like_a_token_is_a_name_like_any_other() {
    let facts = facts();
    let token = format!("wbs_{}", Digest([7; 32]));
    for text in [
        "wbs_",
        "wbs_abc",
        &token[4..],
        &format!("{token}A"),
        &token.to_uppercase(),
    ] {
        let names = of(
            "acme",
            "g",
            &Names {
                session: Some(text),
                ..told(&facts)
            },
            &BOTH,
        );

        let expected = format!("wbs_{}", sha256(&[b"header\n", text.as_bytes()]));
        assert_eq!(names[0].token, expected);
    }
}

#[test]
fn a_caller_is_told_his_own_name_a_token_or_nothing() {
    let facts = facts();
    let named = of("acme", "g", &told(&facts), &BOTH);
    assert_eq!(super::told(&named, Some("s-1")), Some("s-1"));

    let hinted = of(
        "acme",
        "g",
        &Names {
            session: None,
            ..told(&facts)
        },
        &BOTH,
    );
    let expected = format!("wbs_{}", sha256(&[b"hint\nh-1"]));
    assert_eq!(super::told(&hinted, None), Some(expected.as_str()));

    let caller = Policy {
        sessions: false,
        ..BOTH
    };
    let unnamed = of("acme", "g", &told(&facts), &caller);
    assert_eq!(unnamed.len(), 1);
    assert_eq!(super::told(&unnamed, None), None);
    assert_eq!(super::told(&[], None), None);
}
