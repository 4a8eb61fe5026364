//! OpenRouter: the OpenAI chat API, which tells usage in full only when asked in its own way, and which leaves out
//! parameters that a provider does not know unless it is told that they matter. Which model and which provider behind it
//! serve is for whoever pays it to say: what a caller would choose of that is not passed on.

use bytes::Bytes;
use dialects::member::{Member, members, removals, with, without};
use dialects::splice::{Edit, splice};

/// Members of each request body, unless it has its own.
pub(super) const MEMBERS: &str = r#""usage":{"include":true}"#;
/// The option by which only providers that know all parameters are asked.
const REQUIRE: &str = r#""require_parameters":true,"#;

/// Parameters that change the answer: a provider that does not know them would answer something else.
const MEANINGFUL: [&str; 15] = [
    "frequency_penalty",
    "logit_bias",
    "logprobs",
    "min_p",
    "presence_penalty",
    "reasoning",
    "reasoning_effort",
    "response_format",
    "seed",
    "stop",
    "structured_outputs",
    "tool_choice",
    "tools",
    "top_k",
    "top_logprobs",
];

/// Members that choose another model, or a set of settings that is kept elsewhere.
const CHOICES: [&str; 3] = ["models", "route", "preset"];
/// The member that asks for usage in full.
const USAGE: &str = "usage";
/// The member with preferences among providers.
const PROVIDER: &str = "provider";
/// Preferences that choose a provider, and their names as paths.
const PREFERENCES: [(&str, &str); 5] = [
    ("order", "provider.order"),
    ("only", "provider.only"),
    ("ignore", "provider.ignore"),
    ("sort", "provider.sort"),
    ("allow_fallbacks", "provider.allow_fallbacks"),
];

/// The body without a caller's own wish about usage, unless that is ours: whoever pays wants it told.
pub(super) fn counting(body: Bytes) -> Bytes {
    let all = members(&body).unwrap_or_default();
    let mut usage = all.iter().filter(|member| member.name == USAGE);
    let is_asked = |member: &Member<'_>| {
        let value = body.get(member.value.clone()).unwrap_or_default();
        let options = members(value).unwrap_or_default();
        let include = options.iter().rfind(|option| option.name == "include");
        include.is_some_and(|include| value.get(include.value.clone()) == Some(b"true".as_slice()))
    };
    if usage.all(is_asked) {
        return body;
    }
    without(&body, &[USAGE])
}

/// The members of an object that say something: not those that are null.
fn spoken(object: &[u8]) -> Option<Vec<Member<'_>>> {
    let mut all = members(object)?;
    all.retain(|member| object.get(member.value.clone()) != Some(b"null".as_slice()));
    Some(all)
}

/// The body without the members about where it goes that are null: they are as if they were not there.
pub(super) fn without_nulls(body: Bytes) -> Bytes {
    let all = members(&body).unwrap_or_default();
    let is_null = |name: &&str| {
        let mut named = all.iter().filter(|member| member.name == **name).peekable();
        named.peek().is_some()
            && named.all(|member| body.get(member.value.clone()) == Some(b"null".as_slice()))
    };
    let nulls: Vec<&str> = CHOICES.into_iter().chain([PROVIDER]).filter(is_null).collect();
    if nulls.is_empty() {
        return body;
    }
    without(&body, &nulls)
}

/// What of a body would choose where it goes, by name.
pub(super) fn choices(body: &[u8]) -> Vec<&'static str> {
    let all = spoken(body).unwrap_or_default();
    let has = |all: &[Member<'_>], name: &str| all.iter().any(|member| member.name == name);
    let mut found: Vec<&'static str> = CHOICES.into_iter().filter(|name| has(&all, name)).collect();
    for member in all.iter().filter(|member| member.name == PROVIDER) {
        let value = body.get(member.value.clone()).unwrap_or_default();
        match spoken(value) {
            Some(options) => {
                let told = PREFERENCES.iter().filter(|(name, _)| has(&options, name));
                found.extend(told.map(|(_, path)| *path));
            }
            None => found.push(PROVIDER),
        }
    }
    found
}

/// The body without it.
pub(super) fn without_choices(body: &Bytes) -> Bytes {
    if choices(body).is_empty() {
        return body.clone();
    }
    let mut gone = CHOICES.to_vec();
    let is_object = |member: &Member<'_>| {
        let value = body.get(member.value.clone()).unwrap_or_default();
        member.name != PROVIDER || members(value).is_some()
    };
    if !members(body).unwrap_or_default().iter().all(is_object) {
        gone.push(PROVIDER);
    }
    let mut edits = removals(body, &gone);
    if !gone.contains(&PROVIDER) {
        let names = PREFERENCES.map(|(name, _)| name);
        for member in members(body).unwrap_or_default() {
            if member.name == PROVIDER {
                let inner = body.get(member.value.clone()).unwrap_or_default();
                edits.extend(removals(inner, &names).into_iter().map(|edit| Edit {
                    range: member.value.start + edit.range.start..member.value.start + edit.range.end,
                    with: edit.with,
                }));
            }
        }
        edits.sort_by_key(|edit| edit.range.start);
    }
    splice(body, &edits)
}

/// The body with the operator's preferences, members of `own`, among those that it has itself: the operator's hold.
pub(super) fn preferring(body: &Bytes, own: &str) -> Bytes {
    let own = format!("{{{own}}}");
    let of_operator = members(own.as_bytes()).unwrap_or_default();
    let of_operator = of_operator.iter().find(|member| member.name == PROVIDER);
    let preferences = of_operator.and_then(|member| own.get(member.value.clone()));
    let all = members(body).unwrap_or_default();
    let of_caller = all.iter().find(|member| member.name == PROVIDER);
    let (Some(preferences), Some(of_caller)) = (preferences, of_caller) else {
        return body.clone();
    };
    let names: Vec<String> = members(preferences.as_bytes())
        .unwrap_or_default()
        .into_iter()
        .map(|member| member.name.into_owned())
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let left = without(&body.slice(of_caller.value.clone()), &names);
    let inner = preferences
        .strip_prefix('{')
        .and_then(|rest| rest.strip_suffix('}'));
    let Some(inner) = inner.filter(|inner| !inner.trim().is_empty()) else {
        return body.clone();
    };
    let edit = Edit {
        range: of_caller.value.clone(),
        with: with(left, &format!("{inner},")),
    };
    splice(body, &[edit])
}

/// The body with the wish that none of its meaningful parameters is left out, unless it says itself how that is.
pub(super) fn requiring(body: Bytes) -> Bytes {
    let Some(all) = members(&body) else {
        return body;
    };
    if !all
        .iter()
        .any(|member| MEANINGFUL.contains(&member.name.as_ref()))
    {
        return body;
    }
    let Some(provider) = all.into_iter().find(|member| member.name == "provider") else {
        let member = format!(r#""provider":{{{}}},"#, REQUIRE.trim_end_matches(','));
        return with(body, &member);
    };
    let own = body.slice(provider.value.clone());
    let Some(options) = members(&own) else {
        return body;
    };
    if options.iter().any(|option| option.name == "require_parameters") {
        return body;
    }
    let edit = Edit {
        range: provider.value,
        with: with(own.clone(), REQUIRE),
    };
    splice(&body, &[edit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_null_chooses_nothing_and_stands_in_nobodys_way() {
        let body =
            Bytes::from_static(br#"{"model":"m","models":null,"provider":null,"route":null,"seed":1}"#);

        assert_eq!(choices(&body), [""; 0]);
        assert_eq!(without_nulls(body), r#"{"model":"m","seed":1}"#);
        let hidden = Bytes::from_static(br#"{"provider":null,"provider":{"order":["a"]}}"#);
        assert_eq!(choices(&hidden), ["provider.order"]);
        assert_eq!(without_nulls(hidden.clone()), hidden);
        assert_eq!(choices(br#"{"provider":{"order":null,"zdr":true}}"#), [""; 0]);
    }

    #[test]
    fn a_caller_chooses_neither_the_model_nor_the_provider_that_serves() {
        for (body, chosen, left) in [
            (
                r#"{"model":"m","models":["x/dear"],"route":"fallback","messages":[]}"#,
                &["models", "route"][..],
                r#"{"model":"m","messages":[]}"#,
            ),
            (
                r#"{"provider":{"order":["a"],"zdr":true,"sort":"price"},"seed":1}"#,
                &["provider.order", "provider.sort"],
                r#"{"provider":{"zdr":true},"seed":1}"#,
            ),
            (
                r#"{"provider":{"only":["a"]},"preset":"@x"}"#,
                &["preset", "provider.only"],
                r#"{"provider":{}}"#,
            ),
            (r#"{"provider":"a","seed":1}"#, &["provider"], r#"{"seed":1}"#),
            (
                r#"{"provider":{"data_collection":"deny"}}"#,
                &[],
                r#"{"provider":{"data_collection":"deny"}}"#,
            ),
        ] {
            assert_eq!(choices(body.as_bytes()), chosen, "{body}");
            let sent = without_choices(&Bytes::from_static(body.as_bytes()));
            assert_eq!(sent, left);
            assert!(choices(&sent).is_empty());
        }
    }

    #[test]
    fn usage_is_asked_for_whatever_a_caller_says_of_it() {
        for (body, left) in [
            (r#"{"usage":{"include":false},"seed":1}"#, r#"{"seed":1}"#),
            (r#"{"seed":1,"usage":null}"#, r#"{"seed":1}"#),
            (r#"{"usage":{"include":true}}"#, r#"{"usage":{"include":true}}"#),
            (r#"{"seed":1}"#, r#"{"seed":1}"#),
        ] {
            assert_eq!(counting(Bytes::from_static(body.as_bytes())), left);
        }
    }

    #[test]
    fn preferences_of_the_operator_hold_beside_those_of_the_caller() {
        let own = r#""provider":{"allow_fallbacks":false,"order":["a"],"data_collection":"deny"},"x":1"#;
        for (body, sent) in [
            (
                r#"{"provider":{"zdr":true,"data_collection":"allow"},"seed":1}"#,
                r#"{"provider":{"allow_fallbacks":false,"order":["a"],"data_collection":"deny","zdr":true},"seed":1}"#,
            ),
            (
                r#"{"provider":{}}"#,
                r#"{"provider":{"allow_fallbacks":false,"order":["a"],"data_collection":"deny"}}"#,
            ),
            (r#"{"seed":1}"#, r#"{"seed":1}"#),
        ] {
            assert_eq!(preferring(&Bytes::from_static(body.as_bytes()), own), sent);
        }
        let body = Bytes::from_static(br#"{"provider":{"zdr":true}}"#);
        assert_eq!(preferring(&body, ""), body);
    }

    #[test]
    fn a_provider_must_know_parameters_that_change_the_answer() {
        for (body, sent) in [
            (
                r#"{"tools":[]}"#,
                r#"{"provider":{"require_parameters":true},"tools":[]}"#,
            ),
            (
                r#"{"seed":1,"provider":{"order":["a"]}}"#,
                r#"{"seed":1,"provider":{"require_parameters":true,"order":["a"]}}"#,
            ),
            (
                r#"{"seed":1,"provider":{}}"#,
                r#"{"seed":1,"provider":{"require_parameters":true}}"#,
            ),
            (
                r#"{"seed":1,"provider":{"require_parameters":false}}"#,
                r#"{"seed":1,"provider":{"require_parameters":false}}"#,
            ),
            (r#"{"seed":1,"provider":"a"}"#, r#"{"seed":1,"provider":"a"}"#),
            (r#"{"temperature":1}"#, r#"{"temperature":1}"#),
        ] {
            assert_eq!(requiring(Bytes::from_static(body.as_bytes())), sent);
        }
    }
}
