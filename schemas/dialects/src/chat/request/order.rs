//! For servers that refuse them: calls that no result follows, and results that follow no call. Where each result stands
//! was settled before. `chat::mend` does the same for requests that pass.

use std::collections::HashSet;

use crate::superset::request::{Part, Role, Turn};

/// The turns without them, and whether calls were dropped; `None` where there are none.
pub(super) fn of(turns: &[Turn]) -> Option<(Vec<Turn>, bool)> {
    let (open, mut orphans) = loose(turns);
    if open.is_empty() && !orphans.contains(&true) {
        return None;
    }
    let mut orphans = orphans.drain(..);
    let mut ordered = Vec::with_capacity(turns.len());
    for turn in turns {
        match turn.role {
            Role::Assistant => ordered.extend(without(turn, &open)),
            Role::Tool => {
                let own = |_: &&Part| orphans.next() == Some(false);
                let (own, others): (Vec<&Part>, Vec<&Part>) = turn.parts.iter().partition(own);
                if !own.is_empty() {
                    ordered.push(with(turn, own));
                }
                ordered.extend(told(&others));
            }
            Role::System | Role::Developer | Role::User => ordered.push(turn.clone()),
        }
    }
    Some((ordered, !open.is_empty()))
}

/// Ids of calls that no result follows, and for each part of a turn of results whether it follows no call: each is
/// answered once.
fn loose(turns: &[Turn]) -> (HashSet<&str>, Vec<bool>) {
    let (mut open, mut orphans) = (HashSet::new(), Vec::new());
    for turn in turns {
        for part in &turn.parts {
            match part {
                Part::ToolCall(call) => {
                    open.insert(call.id.as_str());
                }
                Part::ToolResult { id, .. } if turn.role == Role::Tool => {
                    orphans.push(!open.remove(id.as_str()));
                }
                _ if turn.role == Role::Tool => orphans.push(false),
                _ => {}
            }
        }
    }
    (open, orphans)
}

/// A turn without these calls; `None` where nothing but thoughts is left of it.
fn without(turn: &Turn, calls: &HashSet<&str>) -> Option<Turn> {
    let kept = turn.parts.iter();
    let kept = kept.filter(|part| !matches!(part, Part::ToolCall(call) if calls.contains(call.id.as_str())));
    let kept: Vec<&Part> = kept.collect();
    let silent = kept.iter().all(|part| matches!(part, Part::Thinking { .. }));
    (kept.len() == turn.parts.len() || !silent).then(|| with(turn, kept))
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
    use crate::superset::spoken::{asks, gives, says, words};

    #[test]
    fn what_is_in_order_stays() {
        let turns = [says(Role::User, "hi"), asks(&["a", "b"]), gives(&["b", "a"])];

        assert!(of(&turns).is_none());
    }

    #[test]
    fn calls_without_results_go_and_results_without_calls_are_the_users() {
        let hi = || says(Role::User, "hi");
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
            (
                vec![gives(&["a"]), asks(&["a"]), hi()],
                vec!["User of a", "User hi"],
                true,
            ),
            (
                vec![gives(&["a"]), asks(&["a"]), gives(&["a"]), asks(&["b"])],
                vec!["User of a", "Assistant ?a", "Tool !a"],
                true,
            ),
        ] {
            let (ordered, is_dropped) = of(&turns).expect("out of order");
            assert_eq!(words(&ordered), expected);
            assert_eq!(is_dropped, dropped);
            assert!(of(&ordered).is_none(), "once is enough");
        }
    }
}
