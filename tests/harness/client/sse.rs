//! Reads server-sent events as a strict client of a dialect does. It panics on whatever no client should have
//! to bear: lines that are neither data nor comments nor, where events have names, a name that is the event's type;
//! broken JSON or UTF-8; events after the end.

use serde_json::Value;

use super::surface::Surface;

/// What one event says.
#[derive(Debug, Clone, PartialEq)]
pub enum Said {
    /// A comment line, without its colon.
    Comment(String),
    /// A chunk of the answer.
    Chunk(Value),
    /// An error object.
    Error(Value),
    /// The end mark.
    Done,
}

/// A strict reader of events, of chat unless it is told otherwise; bytes may be cut anywhere.
#[derive(Debug, Default)]
pub struct Reader {
    surface: Surface,
    lenient: bool,
    begun: bool,
    after_return: bool,
    buffer: Vec<u8>,
    name: Option<String>,
    data: Option<String>,
    ended: Option<&'static str>,
}

impl Reader {
    /// A reader of a dialect.
    pub fn of(surface: Surface) -> Self {
        Self {
            surface,
            ..Self::default()
        }
    }

    /// The same for events in whichever spelling the standard allows: bytes that pass keep that of their upstream.
    #[must_use]
    pub fn lenient(mut self) -> Self {
        self.lenient = true;
        self
    }

    /// Takes bytes and gives the events they complete.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<Said> {
        self.buffer.extend_from_slice(bytes);
        let mut said = Vec::new();
        let mut start = 0;
        let lenient = self.lenient;
        let ends = |byte: &u8| *byte == b'\n' || (lenient && *byte == b'\r');
        while let Some(length) = self
            .buffer
            .get(start..)
            .and_then(|rest| rest.iter().position(ends))
        {
            let line = self
                .buffer
                .get(start..start + length)
                .unwrap_or_default()
                .to_vec();
            let end = self.buffer.get(start + length).copied();
            start += length + 1;
            let second_half = std::mem::replace(&mut self.after_return, end == Some(b'\r'));
            if second_half && line.is_empty() && end == Some(b'\n') {
                continue;
            }
            self.line(&line, &mut said);
        }
        self.buffer.drain(..start);
        said
    }

    /// What stands in the buffer that is no whole event; `None` when nothing does.
    pub fn rest(&self) -> Option<String> {
        let begun = [&self.name, &self.data].map(|part| part.clone().unwrap_or_default());
        let rest = format!("{}{}", begun.concat(), String::from_utf8_lossy(&self.buffer));
        (!rest.is_empty()).then_some(rest)
    }

    fn line(&mut self, line: &[u8], said: &mut Vec<Said>) {
        let line = if self.lenient {
            let mark = "\u{feff}".as_bytes();
            let first = !std::mem::replace(&mut self.begun, true);
            line.strip_prefix(mark).filter(|_| first).unwrap_or(line)
        } else {
            line.strip_suffix(b"\r").unwrap_or(line)
        };
        let text = std::str::from_utf8(line).unwrap_or_else(|error| {
            panic!("a line is not UTF-8: {error}: {}", String::from_utf8_lossy(line))
        });
        if text.is_empty() {
            let name = self.name.take();
            match self.data.take() {
                Some(data) => self.event(name.as_deref(), &data, said),
                None => assert!(name.is_none(), "an event without data: {name:?}"),
            }
            return;
        }
        if let Some(comment) = text.strip_prefix(':') {
            said.push(Said::Comment(comment.trim().to_owned()));
            return;
        }
        let named = matches!(self.surface, Surface::Messages | Surface::Responses);
        let value = |field: &str| {
            let value = text.strip_prefix(field)?;
            let bare = self.lenient.then_some(value);
            value.strip_prefix(' ').or(bare)
        };
        if let Some(name) = value("event:").filter(|_| named && self.data.is_none()) {
            self.name = Some(name.to_owned());
            return;
        }
        let data =
            value("data:").unwrap_or_else(|| panic!("a line is neither `data: ` nor a comment: {text:?}"));
        match &mut self.data {
            Some(begun) => {
                begun.push('\n');
                begun.push_str(data);
            }
            None => self.data = Some(data.to_owned()),
        }
    }

    fn event(&mut self, name: Option<&str>, data: &str, said: &mut Vec<Said>) {
        assert!(
            self.ended.is_none(),
            "an event after {}: {data}",
            self.ended.unwrap_or_default()
        );
        if data == "[DONE]" && name.is_none() {
            self.ended = Some("the end mark");
            said.push(Said::Done);
            return;
        }
        let value: Value =
            serde_json::from_str(data).unwrap_or_else(|error| panic!("an event is no JSON: {error}: {data}"));
        if matches!(self.surface, Surface::Messages | Surface::Responses) {
            let kind = value["type"].as_str();
            assert_eq!(name, kind, "the name of an event is not its type: {data}");
        }
        match (self.surface, name.unwrap_or_default()) {
            (Surface::Responses, "error") => panic!("an error that clients do not take for the end: {data}"),
            (Surface::Messages, "error") | (Surface::Responses, "response.failed") => {
                self.ended = Some("an error event");
                said.push(Said::Error(value));
            }
            (Surface::Messages, "message_stop") => {
                self.ended = Some("the end mark");
                said.push(Said::Done);
            }
            (Surface::Responses, "response.completed" | "response.incomplete") => {
                self.ended = Some("the end mark");
                said.extend([Said::Chunk(value), Said::Done]);
            }
            (Surface::Messages | Surface::Responses, _) => said.push(Said::Chunk(value)),
            (Surface::Chat | Surface::Completions, _) => said.push(self.chunk(value)),
        }
    }

    /// An event of the dialects of chunks.
    fn chunk(&mut self, value: Value) -> Said {
        let erring = value.get("error").is_some_and(|error| !error.is_null());
        if erring {
            assert!(
                value.get("choices").is_none(),
                "an error event has choices: {value}"
            );
            self.ended = Some("an error event");
            return Said::Error(value);
        }
        assert!(
            value.get("choices").is_some_and(Value::is_array),
            "a chunk has no choices: {value}"
        );
        Said::Chunk(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_the_same_wherever_the_bytes_are_cut() {
        let stream = ": hi\n\ndata: {\"choices\":[]}\r\n\r\ndata: [DONE]\n\n".as_bytes();
        let whole = Reader::default().push(stream);
        assert_eq!(whole.len(), 3);

        for at in 0..stream.len() {
            let mut reader = Reader::default();
            let (front, back) = stream.split_at(at);
            let mut said = reader.push(front);
            said.extend(reader.push(back));
            assert_eq!(said, whole, "cut at {at}");
            assert_eq!(reader.rest(), None);
        }
    }

    #[test]
    #[should_panic(expected = "an event after the end mark")]
    fn an_event_after_the_end_mark_is_refused() {
        Reader::default().push(b"data: [DONE]\n\ndata: {\"choices\":[]}\n\n");
    }

    #[test]
    #[should_panic(expected = "an event after an error event")]
    fn an_end_mark_after_an_error_is_refused() {
        Reader::default().push(b"data: {\"error\":{}}\n\ndata: [DONE]\n\n");
    }

    #[test]
    #[should_panic(expected = "neither `data: ` nor a comment")]
    fn other_fields_are_refused() {
        Reader::default().push(b"event: x\n");
    }

    #[test]
    fn a_lenient_reader_takes_every_spelling_of_events() {
        for end in ["\n", "\r\n", "\r"] {
            for space in ["", " "] {
                let event = format!(
                    "data:{space}{{{end}data:{space}\"choices\":[]}}{end}{end}data:{space}[DONE]{end}{end}"
                );
                for mark in ["", "\u{feff}"] {
                    let mut reader = Reader::of(Surface::Chat).lenient();
                    let bytes = format!("{mark}{event}").into_bytes();
                    let said: Vec<Said> = bytes.chunks(1).flat_map(|byte| reader.push(byte)).collect();

                    let chunk = Said::Chunk(serde_json::json!({"choices": []}));
                    assert_eq!(said, [chunk, Said::Done], "{end:?} {space:?} {mark:?}");
                    assert_eq!(reader.rest(), None);
                }
            }
        }
    }

    #[test]
    fn events_of_messages_and_responses_have_the_names_of_their_types() {
        let mut messages = Reader::of(Surface::Messages);
        let said = messages.push(
            b"event: ping\ndata: {\"type\":\"ping\"}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
        );
        let mut responses = Reader::of(Surface::Responses);
        let done = responses.push(b"event: response.completed\ndata: {\"type\":\"response.completed\"}\n\n");

        assert_eq!(said.len(), 2);
        assert_eq!(said.last(), Some(&Said::Done));
        assert_eq!(done.last(), Some(&Said::Done));
    }

    #[test]
    #[should_panic(expected = "the name of an event is not its type")]
    fn an_event_under_another_name_is_refused() {
        Reader::of(Surface::Messages).push(b"event: ping\ndata: {\"type\":\"pong\"}\n\n");
    }

    #[test]
    #[should_panic(expected = "do not take for the end")]
    fn an_error_event_of_responses_is_refused() {
        Reader::of(Surface::Responses).push(b"event: error\ndata: {\"type\":\"error\"}\n\n");
    }

    #[test]
    #[should_panic(expected = "an event is no JSON")]
    fn broken_json_is_refused() {
        Reader::default().push(b"data: {\"choices\":[\n\n");
    }
}
