//! Reads server-sent events as a strict client of chat does. It panics on whatever no client should have
//! to bear: lines that are neither data nor comments, broken JSON or UTF-8, events after the end.

use serde_json::Value;

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

/// A strict reader of events; bytes may be cut anywhere.
#[derive(Debug, Default)]
pub struct Reader {
    buffer: Vec<u8>,
    data: Option<String>,
    ended: Option<&'static str>,
}

impl Reader {
    /// Takes bytes and gives the events they complete.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<Said> {
        self.buffer.extend_from_slice(bytes);
        let mut said = Vec::new();
        let mut start = 0;
        while let Some(length) = self
            .buffer
            .get(start..)
            .and_then(|rest| rest.iter().position(|byte| *byte == b'\n'))
        {
            let line = self.buffer.get(start..start + length).unwrap_or_default();
            let line = line.strip_suffix(b"\r").unwrap_or(line).to_vec();
            start += length + 1;
            said.extend(self.line(&line));
        }
        self.buffer.drain(..start);
        said
    }

    /// What stands in the buffer that is no whole event; `None` when nothing does.
    pub fn rest(&self) -> Option<String> {
        let begun = self.data.clone().unwrap_or_default();
        let rest = format!("{begun}{}", String::from_utf8_lossy(&self.buffer));
        (!rest.is_empty()).then_some(rest)
    }

    fn line(&mut self, line: &[u8]) -> Option<Said> {
        let text = std::str::from_utf8(line).unwrap_or_else(|error| {
            panic!("a line is not UTF-8: {error}: {}", String::from_utf8_lossy(line))
        });
        if text.is_empty() {
            return self.data.take().map(|data| self.event(&data));
        }
        if let Some(comment) = text.strip_prefix(':') {
            return Some(Said::Comment(comment.trim().to_owned()));
        }
        let data = text
            .strip_prefix("data: ")
            .unwrap_or_else(|| panic!("a line is neither `data: ` nor a comment: {text:?}"));
        match &mut self.data {
            Some(begun) => {
                begun.push('\n');
                begun.push_str(data);
            }
            None => self.data = Some(data.to_owned()),
        }
        None
    }

    fn event(&mut self, data: &str) -> Said {
        assert!(
            self.ended.is_none(),
            "an event after {}: {data}",
            self.ended.unwrap_or_default()
        );
        if data == "[DONE]" {
            self.ended = Some("the end mark");
            return Said::Done;
        }
        let value: Value =
            serde_json::from_str(data).unwrap_or_else(|error| panic!("an event is no JSON: {error}: {data}"));
        let erring = value.get("error").is_some_and(|error| !error.is_null());
        if erring {
            assert!(
                value.get("choices").is_none(),
                "an error event has choices: {data}"
            );
            self.ended = Some("an error event");
            return Said::Error(value);
        }
        assert!(
            value.get("choices").is_some_and(Value::is_array),
            "a chunk has no choices: {data}"
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
    #[should_panic(expected = "an event is no JSON")]
    fn broken_json_is_refused() {
        Reader::default().push(b"data: {\"choices\":[\n\n");
    }
}
