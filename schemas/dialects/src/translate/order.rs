//! Results of calls right behind the turn that made them, whatever the caller said in between: every server of every
//! dialect wants them there, and what was said in between comes after.

use std::collections::HashMap;

use crate::superset::request::{Part, Role, Turn};

/// Puts results behind their calls. A result whose call is not there stays where it is.
pub(super) fn results_follow(turns: &mut Vec<Turn>) {
    let Some(homes) = homes(turns) else { return };
    let mut homes = homes.into_iter();
    let mut behind: HashMap<usize, Vec<Part>> = HashMap::new();
    let mut others = Vec::with_capacity(turns.len());
    for (place, mut turn) in std::mem::take(turns).into_iter().enumerate() {
        if turn.role == Role::Tool {
            let moves = turn.parts.extract_if(.., |_| true);
            let mut left = Vec::new();
            for part in moves {
                match homes.next().flatten() {
                    Some(home) => behind.entry(home).or_default().push(part),
                    None => left.push(part),
                }
            }
            if left.is_empty() {
                continue;
            }
            turn.parts = left;
        }
        others.push((place, turn));
    }
    for (place, turn) in others {
        turns.push(turn);
        if let Some(parts) = behind.remove(&place) {
            turns.push(Turn {
                role: Role::Tool,
                name: None,
                parts,
            });
        }
    }
}

/// For each part of each turn of results the place of the turn that made its call; `None` where all are in order.
fn homes(turns: &[Turn]) -> Option<Vec<Option<usize>>> {
    let mut calls: HashMap<&str, usize> = HashMap::new();
    let mut homes = Vec::new();
    let mut is_in_order = true;
    for (place, turn) in turns.iter().enumerate() {
        for part in &turn.parts {
            match part {
                Part::ToolCall(call) => {
                    calls.insert(&call.id, place);
                }
                Part::ToolResult { id, .. } if turn.role == Role::Tool => {
                    let home = calls.get(id.as_str()).copied();
                    is_in_order &= home.is_none_or(|home| home + 1 == place);
                    homes.push(home);
                }
                _ if turn.role == Role::Tool => homes.push(None),
                _ => {}
            }
        }
    }
    (!is_in_order).then_some(homes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::superset::spoken::{asks, gives, says, words};

    fn ordered(mut turns: Vec<Turn>) -> Vec<String> {
        results_follow(&mut turns);
        words(&turns)
    }

    #[test]
    fn what_is_in_order_stays() {
        let turns = vec![says(Role::User, "hi"), asks(&["a", "b"]), gives(&["b", "a", "z"])];

        assert_eq!(ordered(turns), ["User hi", "Assistant ?a ?b", "Tool !b !a !z"]);
    }

    #[test]
    fn results_come_before_what_was_said_between_them_and_their_calls() {
        let between = vec![
            asks(&["a", "b"]),
            says(Role::User, "steer"),
            gives(&["b"]),
            says(Role::Developer, "rule"),
            gives(&["a"]),
        ];
        assert_eq!(
            ordered(between),
            ["Assistant ?a ?b", "Tool !b !a", "User steer", "Developer rule"]
        );
    }

    #[test]
    fn each_result_finds_its_own_turn_and_one_without_a_call_stays() {
        let turns = vec![
            asks(&["a"]),
            says(Role::User, "steer"),
            asks(&["b"]),
            gives(&["a", "z", "b"]),
        ];
        assert_eq!(
            ordered(turns),
            [
                "Assistant ?a",
                "Tool !a",
                "User steer",
                "Assistant ?b",
                "Tool !b",
                "Tool !z"
            ]
        );
    }
}
