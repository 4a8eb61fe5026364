//! How upstreams write what they mean to say, one writer per dialect, apart from every codec: with the liberties that
//! real ones take. The same events may come with any line ends, comments, a byte order mark, cut anywhere.

use std::fmt::Write;

use bytes::Bytes;
use dialects::dialect::Dialect;

use crate::dice::Dice;
use crate::plan::Plan;

/// An event: its name, its data.
pub(crate) type Written = (Option<String>, String);

/// The events of an answer.
pub(crate) fn write(dialect: Dialect, plan: &Plan, dice: &mut Dice) -> Vec<Written> {
    match dialect {
        Dialect::Responses => super::responses::write(plan, dice),
        Dialect::Messages => super::messages::write(plan, dice),
        Dialect::Gemini => super::gemini::write(plan, dice),
        _ => super::chat::write(plan, dice),
    }
}

/// The events as a stream of bytes.
pub(crate) fn stream(events: &[Written], dice: &mut Dice) -> Vec<u8> {
    let end = *dice.pick(&["\n", "\n", "\r\n"]);
    let space = if dice.once_in(4) { "" } else { " " };
    let mut text = String::new();
    if dice.once_in(5) {
        text.push('\u{feff}');
    }
    for (at, (name, data)) in events.iter().enumerate() {
        if dice.once_in(6) {
            text.push_str(dice.pick::<&str>(&[": still here", ":", ": data: {}"]));
            text.push_str(end);
            text.push_str(if dice.once_in(2) { end } else { "" });
        }
        if let Some(name) = name {
            write!(text, "event:{space}{name}{end}").expect("text");
        }
        write!(text, "data:{space}{data}{end}").expect("text");
        // The blank line after the last event may be missing.
        if at + 1 < events.len() || !dice.once_in(5) {
            text.push_str(end);
        }
    }
    text.into_bytes()
}

/// The bytes in pieces that are cut anywhere.
pub(crate) fn cut(stream: &[u8], dice: &mut Dice) -> Vec<Bytes> {
    let longest = *dice.pick(&[1, 7, 60, 1000, 100_000]);
    let (mut pieces, mut rest) = (Vec::new(), stream);
    while !rest.is_empty() {
        let at = (dice.below(longest) + 1).min(rest.len());
        let (piece, after) = rest.split_at(at);
        pieces.push(Bytes::copy_from_slice(piece));
        rest = after;
    }
    pieces
}
