//! Streamed answers of OpenAI completions, from the superset. An object per piece of text; the last one says how it
//! ended, then the usage where it was asked for, then the mark.

use bytes::{BufMut as _, Bytes, BytesMut};

use super::response::Completion;
use crate::chat::usage::UsageFacts;
use crate::superset::answer::Finish;
use crate::superset::event::{Event, Reply};

/// Writes a stream for a caller.
#[derive(Debug)]
pub struct Encoder {
    reply: Reply,
    usage: Option<UsageFacts>,
    finish: Finish,
}

impl Encoder {
    /// For one answer.
    pub fn new(reply: Reply) -> Self {
        Self {
            reply,
            usage: None,
            finish: Finish::Stop,
        }
    }

    /// Appends whole events of the dialect, none where nothing is to be said yet.
    pub fn event(&mut self, event: Event<'_>, out: &mut BytesMut) {
        match event {
            Event::Text(text) | Event::Refusal(text) => put(out, &Completion::of(&self.reply, text, None)),
            Event::Usage(usage) => self.usage = Some(usage),
            Event::Finish { finish, .. } => self.finish = finish,
            _ => {}
        }
    }

    /// The last events of a whole answer, its end mark included. Called once, after [`Event::Finish`].
    pub fn end(&mut self) -> Bytes {
        let mut out = BytesMut::new();
        put(&mut out, &Completion::of(&self.reply, "", Some(self.finish)));
        if self.reply.include_usage && self.usage.is_some() {
            put(&mut out, &Completion::bare(&self.reply, self.usage));
        }
        out.put_slice(b"data: [DONE]\n\n");
        out.freeze()
    }
}

fn put(out: &mut BytesMut, completion: &Completion<'_>) {
    out.put_slice(b"data: ");
    out.put_slice(&completion.json());
    out.put_slice(b"\n\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::reply;

    #[test]
    fn a_stream_is_pieces_of_text_an_end_the_usage_and_the_mark() {
        let mut encoder = Encoder::new(reply());
        let mut out = BytesMut::new();
        let usage = UsageFacts::read(r#"{"prompt_tokens":3,"completion_tokens":4}"#).expect("usage");
        let finish = Event::Finish {
            finish: Finish::Stop,
            stop_sequence: None,
        };
        for event in [
            Event::Begin,
            Event::Thinking("hm"),
            Event::Text("up\n"),
            Event::Text("on"),
            finish,
            Event::Usage(usage),
        ] {
            encoder.event(event, &mut out);
        }
        out.extend_from_slice(&encoder.end());

        let text = String::from_utf8(out.to_vec()).expect("text");
        let events: Vec<&str> = text.split_terminator("\n\n").collect();
        assert_eq!(events.len(), 5);
        assert!(events[0].starts_with("data: {\"id\":\"cmpl-07\",\"object\":\"text_completion\""));
        assert!(events[0].contains(r#""text":"up\n","logprobs":null,"finish_reason":null"#));
        assert!(events[2].contains(r#""text":"","logprobs":null,"finish_reason":"stop""#));
        assert!(events[3].contains(r#""choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4"#));
        assert_eq!(events[4], "data: [DONE]");
    }
}
