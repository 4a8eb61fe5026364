//! Watches the arguments of streamed calls as they pass: an answer whose calls cannot be made must not end as a whole
//! one does. What was sent of it cannot be taken back, so its end is not told.
//!
//! Guarantee: nothing is kept but one state for each call and one byte for each bracket that is open.

use crate::superset::answer::Finish;
use crate::superset::event::Event;

/// The calls of one answer.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// By their numbers; `None` where the arguments are free text.
    calls: Vec<Option<Object>>,
    failed: bool,
}

impl Watch {
    /// Reads the next event; false for one that must not be told: the end of an answer whose calls cannot be made.
    pub(super) fn passes(&mut self, event: &Event<'_>) -> bool {
        match event {
            Event::Call { custom, .. } => self.calls.push((!custom).then(Object::default)),
            Event::Arguments { call, piece } => {
                let place = usize::try_from(*call).unwrap_or(usize::MAX);
                if let Some(Some(object)) = self.calls.get_mut(place) {
                    object.read(piece);
                }
            }
            Event::Finish { finish, .. } => self.failed |= is_to_call(*finish) && !self.may_be_made(),
            _ => {}
        }
        !self.failed
    }

    /// The answer ended, and its calls cannot be made.
    pub(super) const fn failed(&self) -> bool {
        self.failed
    }

    fn may_be_made(&self) -> bool {
        self.calls.iter().flatten().all(Object::is_whole)
    }
}

/// True where nobody was to expect that a call is cut short.
const fn is_to_call(finish: Finish) -> bool {
    !matches!(finish, Finish::Length | Finish::ContextFull | Finish::Refused)
}

/// The text of a JSON object as far as it has come.
#[derive(Debug)]
struct Object {
    state: State,
    /// The brackets that are open.
    open: Vec<u8>,
}

impl Default for Object {
    fn default() -> Self {
        Self {
            state: State::Before,
            open: Vec::new(),
        }
    }
}

/// What was read last, and with it what may follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nothing.
    Before,
    /// A name is due; `first`: or the end of the object.
    Name { first: bool },
    /// A colon is due.
    Colon,
    /// A value is due; `first`: or the end of the list.
    Value { first: bool },
    /// Within a string.
    Text { is_name: bool, escape: Escape },
    /// Within a number.
    Number(Number),
    /// Within a word, of which this is left.
    Word(&'static [u8]),
    /// A value has ended.
    Next,
    /// The object has ended.
    Whole,
    /// It is no object.
    Foreign,
}

/// How far an escape in a string has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Escape {
    None,
    /// A backslash.
    Begun,
    /// So many digits are due.
    Digits(u8),
}

/// How far a number has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Number {
    Minus,
    Zero,
    Digits,
    Point,
    Fraction,
    Exponent,
    Sign,
    Power,
}

impl Object {
    fn read(&mut self, piece: &str) {
        for byte in piece.bytes() {
            self.byte(byte);
            if self.state == State::Foreign {
                return;
            }
        }
    }

    /// An object, or nothing at all, which stands for one without members.
    const fn is_whole(&self) -> bool {
        matches!(self.state, State::Whole | State::Before)
    }

    fn byte(&mut self, byte: u8) {
        self.state = match (self.state, byte) {
            (State::Text { is_name, escape }, _) => text(is_name, escape, byte),
            (State::Word(left), _) => word(left, byte),
            (State::Number(number), _) => match number.after(byte) {
                Some(number) => State::Number(number),
                None if number.may_end() => {
                    self.state = State::Next;
                    return self.byte(byte);
                }
                None => State::Foreign,
            },
            (state, b' ' | b'\t' | b'\n' | b'\r') => state,
            (State::Before, b'{') | (State::Value { .. }, b'{' | b'[') => self.opened(byte),
            (State::Name { first: true } | State::Next, b'}')
            | (State::Value { first: true } | State::Next, b']') => self.closed(byte),
            (State::Name { .. }, b'"') => text_begun(true),
            (State::Value { .. }, b'"') => text_begun(false),
            (State::Value { .. }, _) => value_begun(byte),
            (State::Next, b',') if self.open.last() == Some(&b'{') => State::Name { first: false },
            (State::Colon, b':') | (State::Next, b',') => State::Value { first: false },
            _ => State::Foreign,
        };
    }

    fn opened(&mut self, bracket: u8) -> State {
        self.open.push(bracket);
        if bracket == b'{' {
            State::Name { first: true }
        } else {
            State::Value { first: true }
        }
    }

    fn closed(&mut self, bracket: u8) -> State {
        let opening = if bracket == b'}' { b'{' } else { b'[' };
        if self.open.pop() != Some(opening) {
            return State::Foreign;
        }
        if self.open.is_empty() {
            State::Whole
        } else {
            State::Next
        }
    }
}

const fn text_begun(is_name: bool) -> State {
    State::Text {
        is_name,
        escape: Escape::None,
    }
}

const fn text(is_name: bool, escape: Escape, byte: u8) -> State {
    let escape = match (escape, byte) {
        (Escape::None, b'"') if is_name => return State::Colon,
        (Escape::None, b'"') => return State::Next,
        (Escape::None, b'\\') => Escape::Begun,
        (Escape::None, 0..=0x1F) => return State::Foreign,
        (Escape::None, _) | (Escape::Begun, b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => {
            Escape::None
        }
        (Escape::Begun, b'u') => Escape::Digits(4),
        (Escape::Digits(due), _) if byte.is_ascii_hexdigit() => match due {
            0 | 1 => Escape::None,
            due => Escape::Digits(due - 1),
        },
        (Escape::Begun | Escape::Digits(_), _) => return State::Foreign,
    };
    State::Text { is_name, escape }
}

const fn value_begun(byte: u8) -> State {
    match byte {
        b'-' => State::Number(Number::Minus),
        b'0' => State::Number(Number::Zero),
        b'1'..=b'9' => State::Number(Number::Digits),
        b't' => State::Word(b"rue"),
        b'f' => State::Word(b"alse"),
        b'n' => State::Word(b"ull"),
        _ => State::Foreign,
    }
}

const fn word(left: &'static [u8], byte: u8) -> State {
    match left.split_first() {
        Some((due, [])) if *due == byte => State::Next,
        Some((due, left)) if *due == byte => State::Word(left),
        _ => State::Foreign,
    }
}

impl Number {
    const fn after(self, byte: u8) -> Option<Self> {
        Some(match (self, byte) {
            (Self::Minus, b'0') => Self::Zero,
            (Self::Minus | Self::Digits, b'0'..=b'9') => Self::Digits,
            (Self::Zero | Self::Digits, b'.') => Self::Point,
            (Self::Point | Self::Fraction, b'0'..=b'9') => Self::Fraction,
            (Self::Zero | Self::Digits | Self::Fraction, b'e' | b'E') => Self::Exponent,
            (Self::Exponent, b'+' | b'-') => Self::Sign,
            (Self::Exponent | Self::Sign | Self::Power, b'0'..=b'9') => Self::Power,
            _ => return None,
        })
    }

    const fn may_end(self) -> bool {
        matches!(self, Self::Zero | Self::Digits | Self::Fraction | Self::Power)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde::de::IgnoredAny;

    use super::*;

    fn is_whole(pieces: &[&str]) -> bool {
        let mut object = Object::default();
        for piece in pieces {
            object.read(piece);
        }
        object.is_whole()
    }

    fn end(custom: bool, pieces: &[&str], finish: Finish) -> bool {
        let mut watch = Watch::default();
        let call = Event::Call {
            call: 0,
            id: "c",
            name: "f",
            namespace: None,
            custom,
        };
        assert!(watch.passes(&call));
        for piece in pieces {
            assert!(watch.passes(&Event::Arguments { call: 0, piece }));
        }
        let passes = watch.passes(&Event::Finish {
            finish,
            stop_sequence: None,
        });
        assert_eq!(watch.failed(), !passes);
        passes
    }

    #[test]
    fn an_answer_with_calls_ends_where_they_can_be_made_or_were_cut_short() {
        for finish in [
            Finish::ToolCalls,
            Finish::Stop,
            Finish::StopSequence,
            Finish::Paused,
        ] {
            assert!(end(false, &["{\"a\":[1,", "{\"b\":\"\\u00e9\"}]}"], finish));
            assert!(end(false, &[], finish), "no arguments are an empty object");
            assert!(end(true, &["*** begin"], finish), "free text");
            for cut in ["{\"x\":\"pa", "{\"x\":}", "{}{}", "[1]", "\"x\"", "{\"x\":1,}"] {
                assert!(!end(false, &[cut], finish), "{cut}");
            }
        }
        for finish in [Finish::Length, Finish::ContextFull, Finish::Refused] {
            assert!(end(false, &["{\"x\":\"pa"], finish));
        }
    }

    #[test]
    fn every_call_counts() {
        let mut watch = Watch::default();
        for call in 0..2 {
            watch.passes(&Event::Call {
                call,
                id: "c",
                name: "f",
                namespace: None,
                custom: false,
            });
        }
        watch.passes(&Event::Arguments { call: 1, piece: "{}" });
        watch.passes(&Event::Arguments { call: 0, piece: "{" });

        let passes = watch.passes(&Event::Finish {
            finish: Finish::ToolCalls,
            stop_sequence: None,
        });

        assert!(!passes && watch.failed());
    }

    proptest! {
        #[test]
        fn what_is_whole_is_what_a_parser_takes_for_an_object(
            tokens in prop::collection::vec(prop::sample::select(vec![
                "{", "}", "[", "]", ":", ",", "\"a\"", "\"", "\\", "\\u00", "e9", "\\n", "\n", " ", "0", "1", "-", ".", "e",
                "E+", "true", "false", "null", "nul", "\u{1}", "é", "\"a\":", "\"b\":{", "\"c\":[", "1,", "}", "]", "}}",
            ]), 0..9),
            at in 0_usize..40,
        ) {
            let text = format!("{{{}", tokens.concat());
            let mut at = at.min(text.len());
            while !text.is_char_boundary(at) {
                at += 1;
            }
            let (before, after) = text.split_at(at);
            let expected = serde_json::from_str::<IgnoredAny>(&text).is_ok();

            prop_assert_eq!(is_whole(&[before, after]), expected, "{}", text);
            let closed = format!("{text}}}");
            let expected = serde_json::from_str::<IgnoredAny>(&closed).is_ok();
            prop_assert_eq!(is_whole(&[&closed]), expected, "{}", closed);
        }
    }
}
