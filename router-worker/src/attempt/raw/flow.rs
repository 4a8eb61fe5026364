//! The body of an answer that passes, and what is read of it on the side. A stream of events leaves line by line; a
//! JSON document leaves when it is whole, so that its usage is known before its last byte has left; everything else
//! leaves as it comes.

use bytes::{Bytes, BytesMut};
use dialects::dialect::Dialect;
use dialects::passage::request::Asked;
use dialects::raw::hearing::{self, Events, Heard};
use dialects::raw::outflow::Outflow;
use http::HeaderMap;
use http::header::CONTENT_TYPE;

use crate::attempt::is_json;

/// A body as far as it came.
pub(super) struct Flow {
    dialect: Option<Dialect>,
    course: Course,
    bytes_max: usize,
}

enum Course {
    /// Events.
    Events(Box<(Outflow, Events)>),
    /// A document, kept until it is whole.
    Document(BytesMut),
    /// A document that leaves as it comes, and a copy to read.
    Copied(BytesMut),
    /// What nobody reads.
    Opaque,
}

impl Flow {
    /// For an answer of such headers to a request of a dialect; `is_stream`: it asked for the answer piece by piece. Of
    /// a document `bytes_max` are kept, of an event `event_bytes_max`.
    pub(super) fn new(
        (dialect, is_stream): (Option<Dialect>, bool),
        headers: &HeaderMap,
        (bytes_max, event_bytes_max): (usize, usize),
    ) -> Self {
        let course = if is_events(headers) {
            Course::Events(Box::new((
                Outflow::default(),
                Events::new(dialect, event_bytes_max),
            )))
        } else if !is_json(headers) {
            Course::Opaque
        } else if is_stream {
            Course::Copied(BytesMut::new())
        } else {
            Course::Document(BytesMut::new())
        };
        Self {
            dialect,
            course,
            bytes_max,
        }
    }

    /// Takes the next piece and gives what leaves now.
    pub(super) fn push(&mut self, piece: Bytes) -> Bytes {
        match &mut self.course {
            Course::Events(events) => {
                events.1.push(piece.clone());
                events.0.push(piece)
            }
            Course::Document(kept) => {
                kept.extend_from_slice(&piece);
                if kept.len() <= self.bytes_max {
                    return Bytes::new();
                }
                let all = std::mem::take(kept).freeze();
                self.course = Course::Opaque;
                all
            }
            Course::Copied(kept) => {
                kept.extend_from_slice(&piece);
                if kept.len() > self.bytes_max {
                    self.course = Course::Opaque;
                }
                piece
            }
            Course::Opaque => piece,
        }
    }

    /// Something generated has left, or something of which nobody can say whether it is that.
    pub(super) fn has_spoken(&self) -> bool {
        match &self.course {
            Course::Events(events) if self.dialect.is_some() => events.1.has_spoken(),
            _ => true,
        }
    }

    /// What has not left, and what was told. `is_whole`: the upstream ended it.
    pub(super) fn end(self, is_whole: bool, asked: impl FnOnce() -> Asked) -> (Bytes, Heard) {
        match self.course {
            Course::Events(events) => {
                let (outflow, events) = *events;
                (outflow.rest(), events.heard(asked))
            }
            Course::Document(kept) if is_whole => {
                let heard = hearing::document(self.dialect, &kept, asked);
                (kept.freeze(), heard)
            }
            Course::Copied(kept) => (Bytes::new(), hearing::document(self.dialect, &kept, asked)),
            Course::Document(_) | Course::Opaque => (Bytes::new(), Heard::default()),
        }
    }
}

fn is_events(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).map_or(&b""[..], |kind| kind.as_bytes());
    let kind = kind.split(|byte| *byte == b';').next().unwrap_or_default();
    kind.trim_ascii().eq_ignore_ascii_case(b"text/event-stream")
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn passed(
        kind: &'static str,
        dialect: Option<Dialect>,
        pieces: &[&'static str],
    ) -> (String, String, Heard) {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        let mut flow = Flow::new((dialect, false), &headers, (200, 4_096));
        let mut left = Vec::new();
        for piece in pieces {
            left.extend_from_slice(&flow.push(Bytes::from_static(piece.as_bytes())));
        }
        let asked = || Asked::read(Dialect::Chat, b"{}", 1);
        let (tail, heard) = flow.end(true, asked);
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
        (text(&left), text(&tail), heard)
    }

    fn tokens(heard: &Heard) -> Option<(Option<u64>, Option<u64>)> {
        heard
            .usage
            .map(|usage| (usage.prompt_tokens, usage.completion_tokens))
    }

    #[test]
    fn a_document_leaves_whole_with_its_usage() {
        let pieces = [
            "{\"object\":\"x\",",
            "\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":20}}",
        ];
        for dialect in [None, Some(Dialect::Chat)] {
            let (left, tail, heard) = passed("application/json; charset=utf-8", dialect, &pieces);
            assert_eq!((left.as_str(), tail), ("", pieces.concat()));
            assert_eq!(tokens(&heard), Some((Some(9), Some(20))));
        }
        let embedded = ["{\"data\":[],\"usage\":{\"prompt_tokens\":7,\"total_tokens\":7}}"];
        let (_, _, heard) = passed("application/json", Some(Dialect::Embeddings), &embedded);
        assert_eq!(tokens(&heard).and_then(|told| told.0), Some(7));
        let gemini = ["{\"usageMetadata\":{\"promptTokenCount\":3,\"candidatesTokenCount\":2}}"];
        let (_, _, heard) = passed("application/json", Some(Dialect::Gemini), &gemini);
        assert_eq!(tokens(&heard), Some((Some(3), Some(2))));
    }

    #[test]
    fn a_document_that_is_too_large_to_keep_leaves_as_it_comes() {
        let half: &'static str = Box::leak("x".repeat(150).into_boxed_str());
        let (left, tail, heard) = passed("application/json", None, &[half, half, "y"]);

        assert_eq!((left.len(), tail.as_str()), (301, ""));
        assert!(heard.usage.is_none());
    }

    #[test]
    fn events_leave_at_once_and_their_end_waits() {
        let pieces = [
            "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hello\"}}]}\n\n",
            "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":20}}\n\ndata: [DO",
            "NE]\n\n",
        ];
        let (left, tail, heard) = passed("text/event-stream", Some(Dialect::Chat), &pieces);

        assert_eq!(tail, "data: [DONE]\n\n");
        assert_eq!(format!("{left}{tail}"), pieces.concat());
        assert_eq!(tokens(&heard), Some((Some(9), Some(20))));
        assert_eq!(heard.output_bytes, 5);
    }

    #[test]
    fn an_error_inside_an_answer_of_a_known_dialect_is_one() {
        let event = ["data: {\"error\":{\"message\":\"no\"}}\n\n"];
        assert!(
            passed("text/event-stream", Some(Dialect::Chat), &event)
                .2
                .error
                .is_some()
        );
        assert!(passed("text/event-stream", None, &event).2.error.is_none());
        let document = ["{\"error\":{\"message\":\"no\"}}"];
        assert!(
            passed("application/json", Some(Dialect::Chat), &document)
                .2
                .error
                .is_some()
        );
        assert!(passed("application/json", None, &document).2.error.is_none());
    }
}
