//! The tables of the documents say what the profiles say.

use super::*;

const DIALECTS: &str = include_str!("../../../../docs/dialects.md");
const PROVIDERS: &str = include_str!("../../../../docs/providers.md");

/// The cells of the table under a heading, without its head.
fn table(document: &str, heading: &str) -> Vec<Vec<String>> {
    let lines = document.lines().skip_while(|line| *line != heading).skip(1);
    let rows = lines.skip_while(|line| !line.starts_with('|')).skip(2);
    let cells = |line: &str| {
        let cells = line.trim_matches('|').split('|');
        cells.map(|cell| cell.trim().to_owned()).collect()
    };
    rows.take_while(|line| line.starts_with('|')).map(cells).collect()
}

/// The names of a cell.
fn named_in(cell: &str) -> impl Iterator<Item = &str> {
    cell.split(", ").map(|name| name.trim_matches('`'))
}

/// What a profile differs in from what is assumed of a server that nobody knows, in the words of the document.
fn differs_in(profile: &Profile) -> String {
    let facts = [
        (profile.max_completion_tokens, "`max_completion_tokens`"),
        (!profile.one_system, "instructions anywhere"),
        (profile.developer, "`developer`"),
        (!profile.top_k, "no `top_k`"),
        (!profile.json_schema, "no schemas of formats"),
        (!profile.tool_choice_required, "no forced calls"),
        (profile.required == "any", "`any` for `required`"),
        (
            profile.thinking == Thinking::Template,
            "`chat_template_kwargs.enable_thinking`",
        ),
        (profile.thinking == Thinking::Switch, "`thinking` on and off"),
        (profile.thinking == Thinking::Object, "`reasoning`"),
        (
            profile.thinking == Thinking::None,
            "cannot be told how much to think",
        ),
        (profile.effort_xhigh, "`xhigh`"),
        (profile.thoughts_back, "thoughts back"),
        (profile.proofs_back, "proofs back"),
        (profile.parameters_required, "tools need `parameters`"),
        (
            profile.types_in_branches,
            "`type` only in the branches of `anyOf`",
        ),
        (profile.results_follow, "results right behind their calls"),
        (profile.short_call_ids, "ids of nine letters"),
        (profile.cache_control, "`cache_control`"),
        (profile.drops.contains(&"store"), "none of OpenAI's hints"),
        (profile.seed == "random_seed", "`random_seed`"),
    ];
    let facts = facts.into_iter().filter(|(holds, _)| *holds);
    let mut words: Vec<String> = facts.map(|(_, words)| words.to_owned()).collect();
    let hints: &[&str] = openai_hints!();
    let dropped = profile.drops.iter().filter(|name| !hints.contains(name));
    words.extend(dropped.map(|name| format!("no `{name}`")));
    match profile.stops_max {
        usize::MAX => {}
        1 => words.push("one stop text".to_owned()),
        count => words.push(format!("{count} stop texts")),
    }
    if words.is_empty() {
        words.push("nothing".to_owned());
    }
    words.join(", ")
}

#[test]
fn the_document_tells_what_every_profile_differs_in() {
    let mut told: Vec<String> = Vec::new();

    for row in table(DIALECTS, "### Profiles") {
        for name in named_in(&row[0]) {
            let profile = named(name).expect("a profile");
            assert_eq!(row[1], differs_in(profile), "{name}");
            told.push(name.to_owned());
        }
    }

    let mut all: Vec<&str> = names().filter(|name| *name != "default").collect();
    all.sort_unstable();
    told.sort_unstable();
    assert_eq!(told, all);
}

#[test]
fn the_document_tells_where_every_profile_is() {
    let mut told: Vec<String> = Vec::new();

    for row in table(PROVIDERS, "## Profiles") {
        for name in named_in(&row[0]) {
            let profile = named(name).expect("a profile");
            let address = match profile.base_url {
                "" => "`base_url` is needed".to_owned(),
                url => format!("`{url}`"),
            };
            let hosts: Vec<String> = profile.hosts.iter().map(|host| format!("`{host}`")).collect();
            assert_eq!((&row[1], &row[2]), (&address, &hosts.join(", ")), "{name}");
            told.push(name.to_owned());
        }
    }

    let mut all: Vec<&str> = names().filter(|name| *name != "default").collect();
    all.sort_unstable();
    told.sort_unstable();
    assert_eq!(told, all);
}

#[test]
fn every_word_and_number_of_a_profile_is_one_that_the_document_has_words_for() {
    for profile in PROFILES {
        assert!(["required", "any"].contains(&profile.required), "{profile:?}");
        assert!(["seed", "random_seed"].contains(&profile.seed), "{profile:?}");
    }
}
