//! Calls and their results in strict order, for servers that refuse what is not: each call is answered in the turn
//! right behind its own, and each result answers such a call. `chat::mend` does the same for requests that pass.

use crate::superset::request::{Part, Role, Turn};

/// The turns in strict order, and whether calls were dropped; `None` where they are.
pub(super) fn of(turns: &[Turn]) -> Option<(Vec<Turn>, bool)> {
    let mut ordered = Vec::with_capacity(turns.len());
    let (mut is_changed, mut is_dropped) = (false, false);
    // Ids of the calls of the turn before.
    let mut open: Vec<&str> = Vec::new();
    for (place, turn) in turns.iter().enumerate() {
        match turn.role {
            Role::Assistant => {
                let answered = answers(turns.get(place + 1));
                let (kept, gone): (Vec<&Part>, Vec<&Part>) = turn
                    .parts
                    .iter()
                    .partition(|part| call(part).is_none_or(|id| answered.contains(&id)));
                open = kept.iter().filter_map(|part| call(part)).collect();
                is_dropped |= !gone.is_empty();
                let silent = kept.iter().all(|part| matches!(part, Part::Thinking { .. }));
                if gone.is_empty() || !silent {
                    ordered.push(with(turn, kept));
                }
            }
            Role::Tool => {
                let (own, orphans) = results(turn, &mut open);
                is_changed |= !orphans.is_empty();
                if !own.is_empty() {
                    ordered.push(with(turn, own));
                }
                ordered.extend(told(&orphans));
                open.clear();
            }
            Role::System | Role::Developer | Role::User => {
                open.clear();
                ordered.push(turn.clone());
            }
        }
    }
    (is_changed || is_dropped).then_some((ordered, is_dropped))
}

/// The id of a call.
fn call(part: &Part) -> Option<&str> {
    match part {
        Part::ToolCall(call) => Some(&call.id),
        _ => None,
    }
}

/// Ids of the calls that a turn answers.
fn answers(turn: Option<&Turn>) -> Vec<&str> {
    let parts = turn
        .filter(|turn| turn.role == Role::Tool)
        .map(|turn| &turn.parts);
    let ids = parts.into_iter().flatten().filter_map(|part| match part {
        Part::ToolResult { id, .. } => Some(id.as_str()),
        _ => None,
    });
    ids.collect()
}

/// Results of open calls, each of which is answered once, and the others.
fn results<'t>(turn: &'t Turn, open: &mut Vec<&str>) -> (Vec<&'t Part>, Vec<&'t Part>) {
    let mut answers = |part: &&Part| {
        let Part::ToolResult { id, .. } = part else {
            return true;
        };
        let place = open.iter().position(|call| call == id);
        place.map(|place| open.swap_remove(place)).is_some()
    };
    turn.parts.iter().partition(|part| answers(part))
}

/// What the user tells of results that follow no call.
fn told(orphans: &[&Part]) -> Option<Turn> {
    let parts = orphans.iter().filter_map(|part| match part {
        Part::ToolResult { parts, .. } => Some(parts),
        _ => None,
    });
    let parts: Vec<Part> = parts.flatten().cloned().collect();
    (!parts.is_empty()).then_some(Turn {
        role: Role::User,
        name: None,
        parts,
    })
}

fn with(turn: &Turn, parts: Vec<&Part>) -> Turn {
    Turn {
        role: turn.role,
        name: turn.name.clone(),
        parts: parts.into_iter().cloned().collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::superset::request::Call;

    fn turn(role: Role, parts: Vec<Part>) -> Turn {
        Turn {
            role,
            name: None,
            parts,
        }
    }

    fn text(text: &str) -> Part {
        Part::Text {
            text: text.to_owned(),
            cache: None,
        }
    }

    fn asks(ids: &[&str]) -> Turn {
        let call = |id: &&str| {
            Part::ToolCall(Call {
                id: (*id).to_owned(),
                name: "f".into(),
                namespace: None,
                arguments: "{}".into(),
                custom: false,
                proof: None,
            })
        };
        turn(Role::Assistant, ids.iter().map(call).collect())
    }

    fn gives(ids: &[&str]) -> Turn {
        let result = |id: &&str| Part::ToolResult {
            id: (*id).to_owned(),
            parts: vec![text(&format!("of {id}"))],
            failed: false,
        };
        turn(Role::Tool, ids.iter().map(result).collect())
    }

    /// Turns as words.
    fn words(turns: &[Turn]) -> Vec<String> {
        let word = |part: &Part| match part {
            Part::Text { text, .. } => text.clone(),
            Part::ToolCall(call) => format!("?{}", call.id),
            Part::ToolResult { id, .. } => format!("!{id}"),
            other => format!("{other:?}"),
        };
        let of = |turn: &Turn| {
            let parts: Vec<String> = turn.parts.iter().map(word).collect();
            format!("{:?} {}", turn.role, parts.join(" "))
        };
        turns.iter().map(of).collect()
    }

    #[test]
    fn what_is_in_order_stays() {
        let turns = [
            turn(Role::User, vec![text("hi")]),
            asks(&["a", "b"]),
            gives(&["b", "a"]),
        ];

        assert!(of(&turns).is_none());
    }

    #[test]
    fn calls_without_results_go_and_results_without_calls_are_the_users() {
        let hi = || turn(Role::User, vec![text("hi")]);
        for (turns, expected, dropped) in [
            (vec![asks(&["a"]), hi()], vec!["User hi"], true),
            (
                vec![asks(&["a", "b"]), gives(&["z", "b", "b"])],
                vec!["Assistant ?b", "Tool !b", "User of z of b"],
                true,
            ),
            (
                vec![asks(&["a"]), gives(&["a"]), hi(), gives(&["a"])],
                vec!["Assistant ?a", "Tool !a", "User hi", "User of a"],
                false,
            ),
        ] {
            let (ordered, is_dropped) = of(&turns).expect("out of order");
            assert_eq!(words(&ordered), expected);
            assert_eq!(is_dropped, dropped);
            assert!(of(&ordered).is_none(), "once is enough");
        }
    }
}
