//! Gives calls the names their caller knows. Where the upstream was given a tool of free text as one that takes
//! `{"input": text}`, its arguments are held until the answer has ended, and leave as the text alone.
//!
//! Guarantees: without other names events pass untouched; no more than [`HELD_BYTES_MAX`] is held: a call with longer
//! arguments leaves as it came.

use std::borrow::Cow;

use serde::Deserialize;

use crate::superset::answer::Answer;
use crate::superset::event::{Event, Sink};
use crate::superset::request::Part;
use crate::superset::tool::Names;

/// Most bytes of arguments that are held, over all calls of an answer.
pub const HELD_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Renames the calls of one stream.
#[derive(Debug, Default)]
pub struct Renamer {
    names: Names,
    /// Calls whose arguments are text in an object, and those arguments as far as they came.
    held: Vec<(u32, String)>,
}

#[derive(Deserialize)]
struct Wrapped<'a> {
    #[serde(borrow)]
    input: Cow<'a, str>,
}

impl Renamer {
    /// By the names that were sent to the upstream.
    pub const fn new(names: Names) -> Self {
        Self {
            names,
            held: Vec::new(),
        }
    }

    /// Reads the next event.
    pub fn event(&mut self, event: Event<'_>, sink: &mut dyn Sink) {
        if self.names.is_empty() {
            return sink.event(event);
        }
        match event {
            Event::Call {
                call,
                id,
                name,
                custom,
                ..
            } if self.names.known(name).is_some() => {
                self.begin(call, (id, name, custom), sink);
            }
            Event::Arguments { call, piece } => self.arguments(call, piece, sink),
            Event::Finish { .. } => {
                self.release(sink);
                sink.event(event);
            }
            other => sink.event(other),
        }
    }

    fn begin(&mut self, call: u32, (id, name, custom): (&str, &str, bool), sink: &mut dyn Sink) {
        let Some(known) = self.names.known(name) else {
            return;
        };
        if known.custom && !custom {
            self.held.push((call, String::new()));
        }
        sink.event(Event::Call {
            call,
            id,
            name: &known.name,
            namespace: known.namespace.as_deref(),
            custom: known.custom || custom,
        });
    }

    fn arguments(&mut self, call: u32, piece: &str, sink: &mut dyn Sink) {
        let all: usize = self.held.iter().map(|(_, text)| text.len()).sum();
        let Some(place) = self.held.iter().position(|(held, _)| *held == call) else {
            return sink.event(Event::Arguments { call, piece });
        };
        if let Some((_, text)) = self.held.get_mut(place)
            && all + piece.len() <= HELD_BYTES_MAX
        {
            return text.push_str(piece);
        }
        let (_, text) = self.held.remove(place);
        for piece in [text.as_str(), piece]
            .into_iter()
            .filter(|piece| !piece.is_empty())
        {
            sink.event(Event::Arguments { call, piece });
        }
    }

    fn release(&mut self, sink: &mut dyn Sink) {
        for (call, text) in self.held.drain(..) {
            let input = unwrapped(&text);
            if !input.is_empty() {
                sink.event(Event::Arguments { call, piece: &input });
            }
        }
    }
}

/// The calls of a whole answer under their caller's names.
pub fn renamed(answer: &mut Answer, names: &Names) {
    if names.is_empty() {
        return;
    }
    for part in &mut answer.parts {
        let Part::ToolCall(call) = part else {
            continue;
        };
        let Some(known) = names.known(&call.name) else {
            continue;
        };
        if known.custom && !call.custom {
            call.arguments = unwrapped(&call.arguments).into_owned();
            call.custom = true;
        }
        call.name.clone_from(&known.name);
        call.namespace.clone_from(&known.namespace);
    }
}

/// The text in `{"input": text}`; the arguments themselves where they are anything else.
fn unwrapped(arguments: &str) -> Cow<'_, str> {
    serde_json::from_str::<Wrapped<'_>>(arguments).map_or(Cow::Borrowed(arguments), |wrapped| wrapped.input)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::superset::answer::Finish;
    use crate::superset::request::Call;
    use crate::superset::tool::Known;

    fn names() -> Names {
        let mut names = Names::default();
        names.note(
            "files__patch".to_owned(),
            Known {
                name: "patch".to_owned(),
                namespace: Some("files".to_owned()),
                custom: true,
            },
        );
        names.note(
            "long_1".to_owned(),
            Known {
                name: "a.long/name".to_owned(),
                ..Known::default()
            },
        );
        names
    }

    fn call(call: u32, name: &str) -> Event<'_> {
        Event::Call {
            call,
            id: "c",
            name,
            namespace: None,
            custom: false,
        }
    }

    fn told(events: &[Event<'_>], names: Names) -> Vec<String> {
        let (mut renamer, mut told) = (Renamer::new(names), Vec::new());
        let mut sink = |event: Event<'_>| {
            told.push(match event {
                Event::Call {
                    call,
                    name,
                    namespace,
                    custom,
                    ..
                } => format!("{call} {name} {namespace:?} {custom}"),
                Event::Arguments { call, piece } => format!("{call}: {piece}"),
                Event::Finish { .. } => "finish".to_owned(),
                other => format!("{other:?}"),
            });
        };
        for event in events {
            renamer.event(*event, &mut sink);
        }
        told
    }

    const FINISH: Event<'static> = Event::Finish {
        finish: Finish::ToolCalls,
        stop_sequence: None,
    };

    #[test]
    fn calls_come_back_under_their_callers_names_and_text_without_its_object() {
        let piece = |call, piece| Event::Arguments { call, piece };
        let events = [
            call(0, "files__patch"),
            piece(0, r#"{"input":"a\n"#),
            call(1, "long_1"),
            piece(1, "{}"),
            piece(0, r#"b"}"#),
            call(2, "plain"),
            FINISH,
        ];

        assert_eq!(
            told(&events, names()),
            [
                "0 patch Some(\"files\") true",
                "1 a.long/name None false",
                "1: {}",
                "2 plain None false",
                "0: a\nb",
                "finish",
            ]
        );
    }

    #[test]
    fn text_that_is_in_no_object_leaves_as_it_came() {
        for text in ["*** begin", "{\"input\":3}", "[]"] {
            let events = [
                call(0, "files__patch"),
                Event::Arguments { call: 0, piece: text },
                FINISH,
            ];
            assert_eq!(told(&events, names())[1], format!("0: {text}"));
        }
    }

    #[test]
    fn arguments_that_are_too_long_to_hold_leave_whole() {
        let long = "x".repeat(HELD_BYTES_MAX);
        let events = [
            call(0, "files__patch"),
            Event::Arguments {
                call: 0,
                piece: &long,
            },
            Event::Arguments { call: 0, piece: "y" },
            Event::Arguments { call: 0, piece: "z" },
            FINISH,
        ];

        let told = told(&events, names());

        assert_eq!(told[1].len(), long.len() + 3);
        assert_eq!(told[2..], ["0: y", "0: z", "finish"]);
    }

    #[test]
    fn a_whole_answer_is_renamed_alike() {
        let call = |name: &str, arguments: &str| {
            Part::ToolCall(Call {
                id: "c".to_owned(),
                name: name.to_owned(),
                namespace: None,
                arguments: arguments.to_owned(),
                custom: false,
                proof: None,
            })
        };
        let mut answer = Answer {
            parts: vec![call("files__patch", r#"{"input":"x"}"#), call("plain", "{}")],
            ..Answer::default()
        };

        renamed(&mut answer, &names());

        let calls: Vec<&Call> = answer.calls().collect();
        assert_eq!(
            (calls[0].name.as_str(), calls[0].arguments.as_str()),
            ("patch", "x")
        );
        assert!(calls[0].custom && calls[0].namespace.as_deref() == Some("files"));
        assert_eq!(calls[1].name, "plain");
    }
}
