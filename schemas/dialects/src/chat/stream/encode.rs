//! The writer of a stream. What stands in every chunk is made once.

use bytes::{BufMut as _, Bytes, BytesMut};
use serde::Serialize;

use crate::chat::response::details::{Detail, Extra};
use crate::chat::response::usage::{self, Usage};
use crate::chat::signed;
use crate::chat::usage::UsageFacts;
use crate::superset::answer::Finish;
use crate::superset::event::{Event, Reply};

/// How a chunk ends whose choice goes on.
const GOES_ON: &[u8] = b",\"finish_reason\":null}]}\n\n";

/// What is known of the stream so far.
#[derive(Debug)]
pub(super) struct Machine {
    /// A chunk up to its choices.
    head: Bytes,
    include_usage: bool,
    hides_thinking: bool,
    begun: bool,
    /// For each call, whether it takes free text.
    custom: Vec<bool>,
    /// For each call, whether it has no arguments yet and needs some.
    bare: Vec<bool>,
    /// Entries of `reasoning_details` so far.
    details: usize,
    usage: Option<UsageFacts>,
    finish: Finish,
    stop_sequence: Option<String>,
    /// A call that has begun and is not written: what proves it may be next, and goes into its id.
    begun_call: Option<Begun>,
}

/// The beginning of a call.
#[derive(Debug)]
struct Begun {
    index: u32,
    id: String,
    name: String,
    custom: bool,
}

#[derive(Serialize)]
struct Head<'a> {
    id: &'a str,
    object: &'static str,
    created: i64,
    model: &'a str,
}

#[derive(Serialize, Default)]
struct Call<'a> {
    index: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    function: Option<Function<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    custom: Option<Custom<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    extra_content: Option<Extra<'a>>,
}

#[derive(Serialize)]
struct Function<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    arguments: &'a str,
}

#[derive(Serialize)]
struct Custom<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    input: &'a str,
}

impl Machine {
    pub(super) fn new(reply: &Reply) -> Self {
        let id = format!("chatcmpl-{}", reply.id);
        let mut head = BytesMut::with_capacity(160);
        head.put_slice(b"data: ");
        let object = Head {
            id: &id,
            object: "chat.completion.chunk",
            created: reply.created,
            model: &reply.model,
        };
        put_json(&mut head, &object);
        // The object goes on with its choices.
        head.truncate(head.len().saturating_sub(1));
        head.put_slice(b",\"choices\":[");
        Self {
            head: head.freeze(),
            include_usage: reply.include_usage,
            hides_thinking: reply.hides_thinking,
            begun: false,
            custom: Vec::new(),
            bare: Vec::new(),
            details: 0,
            usage: None,
            finish: Finish::Stop,
            stop_sequence: None,
            begun_call: None,
        }
    }

    pub(super) fn event(&mut self, event: Event<'_>, out: &mut BytesMut) {
        if let Some(begun) = self.begun_call.take()
            && self.begin_call(&begun, &event, out)
        {
            return;
        }
        match event {
            Event::Begin => self.begin(out),
            Event::Text(text) => self.delta("content", text, out),
            Event::Refusal(text) => self.delta("refusal", text, out),
            Event::Thinking(_) | Event::Proof { .. } if self.hides_thinking => self.begin(out),
            Event::Thinking(text) => self.delta("reasoning_content", text, out),
            Event::Proof {
                maker,
                text,
                redacted,
            } => {
                self.begin(out);
                let detail = Detail::proof(maker, text, redacted, self.details);
                self.chunk("reasoning_details", &[detail], out);
                self.details += 1;
            }
            Event::Call { call, .. } | Event::Arguments { call, .. } | Event::CallProof { call, .. } => {
                self.call(call, event, out);
            }
            Event::Usage(facts) => self.usage = Some(facts),
            Event::Finish {
                finish,
                stop_sequence,
            } => {
                self.finish = finish;
                self.stop_sequence = stop_sequence.map(ToOwned::to_owned);
                self.fill(out);
            }
        }
    }

    pub(super) fn end(&mut self) -> Bytes {
        let mut out = BytesMut::new();
        self.begin(&mut out);
        out.put_slice(&self.head);
        out.put_slice(b"{\"index\":0,\"delta\":{},\"finish_reason\":");
        put_json(&mut out, usage::word(self.finish, !self.custom.is_empty()));
        if let Some(text) = &self.stop_sequence {
            out.put_slice(b",\"stop_reason\":");
            put_json(&mut out, text);
        }
        out.put_slice(b"}]}\n\n");
        if let Some(facts) = self.usage.filter(|_| self.include_usage) {
            out.put_slice(&self.head);
            out.put_slice(b"],\"usage\":");
            put_json(&mut out, &Usage::of(facts));
            out.put_slice(b"}\n\n");
        }
        out.put_slice(b"data: [DONE]\n\n");
        out.freeze()
    }

    /// The first chunk, once.
    fn begin(&mut self, out: &mut BytesMut) {
        if !std::mem::replace(&mut self.begun, true) {
            self.chunk("role", "assistant", out);
        }
    }

    fn delta(&mut self, member: &str, text: &str, out: &mut BytesMut) {
        self.begin(out);
        self.chunk(member, text, out);
    }

    /// A chunk with one member.
    fn chunk<T: Serialize + ?Sized>(&self, member: &str, value: &T, out: &mut BytesMut) {
        out.reserve(self.head.len() + 256);
        out.put_slice(&self.head);
        out.put_slice(b"{\"index\":0,\"delta\":{\"");
        out.put_slice(member.as_bytes());
        out.put_slice(b"\":");
        put_json(out, value);
        out.put_u8(b'}');
        out.put_slice(GOES_ON);
    }

    fn call(&mut self, index: u32, event: Event<'_>, out: &mut BytesMut) {
        self.begin(out);
        let mut call = Call {
            index,
            ..Call::default()
        };
        let at = usize::try_from(index).unwrap_or(usize::MAX);
        match event {
            Event::Call { id, name, custom, .. } => {
                self.bare.push(!custom);
                self.custom.push(custom);
                self.begun_call = Some(Begun {
                    index,
                    id: id.to_owned(),
                    name: name.to_owned(),
                    custom,
                });
                return;
            }
            Event::Arguments { piece, .. } => {
                if let Some(bare) = self.bare.get_mut(at) {
                    *bare = false;
                }
                call.fill(self.is_custom(at), None, piece);
            }
            Event::CallProof { maker, text, .. } => {
                call.fill(self.is_custom(at), None, "");
                call.extra_content = Some(Extra::signed(maker, text));
            }
            _ => return,
        }
        self.chunk("tool_calls", &[call], out);
    }

    /// Writes the beginning of a call; true when the next event proves it, and so is written with it.
    fn begin_call(&self, begun: &Begun, next: &Event<'_>, out: &mut BytesMut) -> bool {
        let proof = match next {
            Event::CallProof { call, maker, text } if *call == begun.index => Some((*maker, *text)),
            _ => None,
        };
        let with_signature = proof.and_then(|(maker, text)| signed::written(&begun.id, maker, text));
        let mut call = Call {
            index: begun.index,
            id: Some(with_signature.as_deref().unwrap_or(&begun.id)),
            kind: Some(if begun.custom { "custom" } else { "function" }),
            extra_content: proof.map(|(maker, text)| Extra::signed(maker, text)),
            ..Call::default()
        };
        call.fill(begun.custom, Some(&begun.name), "");
        self.chunk("tool_calls", &[call], out);
        proof.is_some()
    }

    fn is_custom(&self, at: usize) -> bool {
        self.custom.get(at).copied().unwrap_or(false)
    }

    /// Gives calls that got no arguments those of an object without members.
    fn fill(&mut self, out: &mut BytesMut) {
        for (index, bare) in (0..).zip(std::mem::take(&mut self.bare)) {
            if bare {
                let mut call = Call {
                    index,
                    ..Call::default()
                };
                call.fill(false, None, "{}");
                self.chunk("tool_calls", &[call], out);
            }
        }
        self.bare = vec![false; self.custom.len()];
    }
}

impl<'a> Call<'a> {
    fn fill(&mut self, custom: bool, name: Option<&'a str>, text: &'a str) {
        if custom {
            self.custom = Some(Custom { name, input: text });
        } else {
            self.function = Some(Function {
                name,
                arguments: text,
            });
        }
    }
}

/// Appends a value. Text and numbers always serialize.
fn put_json<T: Serialize + ?Sized>(out: &mut BytesMut, value: &T) {
    let written = serde_json::to_writer(out.writer(), value);
    debug_assert!(written.is_ok(), "a value of known shape always serializes");
}
