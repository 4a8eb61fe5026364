//! What a scripted upstream does with one call. A behaviour starts from what is answered (a chat, a
//! status, raw bytes, nothing) and is bent step by step: when, how far, in which packets, in which coding.
//!
//! In texts and error bodies `{call}` becomes a word that no other call of any upstream has, and
//! `{header:NAME}` the value of a request header.

use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;

/// One way to answer one call.
#[must_use]
#[derive(Debug, Clone)]
pub struct Behaviour {
    pub(crate) answer: Answer,
    pub(crate) chat: Chat,
    pub(crate) shape: Shape,
    pub(crate) wire: Wire,
}

/// What is answered.
#[derive(Debug, Clone)]
pub(crate) enum Answer {
    /// A chat completion, plain or streamed as asked.
    Chat,
    /// A status with a JSON body.
    Status { code: u16, body: String },
    /// A status with an error in the shape of the dialect that is spoken.
    Failure { code: u16, message: String },
    /// Exactly these bytes, head included, then the connection is closed.
    Raw(Bytes),
    /// Nothing; the connection stays open.
    Hang,
    /// Nothing; the connection is closed or reset.
    Drop { reset: bool },
    /// A streamed answer that is only comment lines.
    Comments { count: usize, then: Then },
    /// One `data:` line of that many bytes, without an end.
    LongLine(usize),
    /// A small coded body that unpacks to a gibibyte of blanks.
    Bomb,
}

/// What follows the part of an answer that was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// The framing ends well, nothing more comes.
    End,
    /// The connection is closed inside the framing.
    Cut,
    /// The connection is reset.
    Reset,
    /// The connection stays open and silent.
    Hang,
    /// The last piece (for streams: a comment line) is repeated at this pace without end.
    Forever(Duration),
}

/// A tool call that a chat answer makes: id, function name, arguments text.
#[derive(Debug, Clone)]
pub struct ToolCall {
    /// The id of the call.
    pub id: String,
    /// The function's name.
    pub name: String,
    /// The arguments, JSON text by convention.
    pub arguments: String,
}

/// When a streamed answer tells its usage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UsageWhen {
    /// In a last chunk, if the request asked for it; plain answers always.
    Asked,
    /// In a last chunk, asked or not.
    Always,
    /// On each chunk and in a last one.
    EachChunk,
    /// Nowhere.
    Never,
}

/// The content of a chat answer.
#[derive(Debug, Clone)]
pub(crate) struct Chat {
    pub(crate) text: String,
    pub(crate) reasoning: String,
    pub(crate) tool_calls: Vec<ToolCall>,
    pub(crate) usage: Option<Value>,
    pub(crate) prompt_tokens: u64,
    pub(crate) output_tokens: Option<u64>,
    pub(crate) usage_when: UsageWhen,
    pub(crate) finish: Option<String>,
    pub(crate) done: bool,
    pub(crate) role: bool,
    pub(crate) interrupt: Option<(usize, Interrupt)>,
}

/// What happens instead of the rest of a chat answer, after some content chunks.
#[derive(Debug, Clone)]
pub(crate) enum Interrupt {
    /// Nothing more of the answer comes.
    Then(Then),
    /// This object is the next event and the last.
    Error(String),
    /// An error in the shape of the dialect that is spoken is the next event and the last.
    Failure { code: u16, message: String },
    /// One event is broken JSON, then the rest follows.
    BrokenJson,
}

/// How the events of a stream are written.
#[derive(Debug, Clone)]
pub(crate) struct Shape {
    pub(crate) line_ending: &'static str,
    pub(crate) space: bool,
    pub(crate) two_data_lines: bool,
    pub(crate) bom: bool,
    pub(crate) comments_first: usize,
    pub(crate) pace: Duration,
    pub(crate) first_event_delay: Duration,
    pub(crate) finish_delay: Duration,
    pub(crate) usage_delay: Duration,
}

/// A content coding of HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Coding {
    Gzip,
    Brotli,
    Zstd,
}

/// How bytes leave.
#[derive(Debug, Clone, Default)]
pub(crate) struct Wire {
    pub(crate) first_byte_delay: Duration,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) coding: Option<Coding>,
    pub(crate) split_at: Option<usize>,
    pub(crate) dribble: Option<(usize, Duration)>,
    pub(crate) drop_last_bytes: usize,
    pub(crate) stop_after_bytes: Option<(usize, Then)>,
    pub(crate) close_after: bool,
    pub(crate) until_close: bool,
    pub(crate) idle_close: Option<Duration>,
    pub(crate) reset_if_reused: bool,
    pub(crate) echo_headers: Vec<String>,
}

impl Behaviour {
    fn of(answer: Answer) -> Self {
        let chat = Chat {
            text: String::new(),
            reasoning: String::new(),
            tool_calls: Vec::new(),
            usage: None,
            prompt_tokens: 3,
            output_tokens: None,
            usage_when: UsageWhen::Asked,
            finish: Some("stop".to_owned()),
            done: true,
            role: true,
            interrupt: None,
        };
        let shape = Shape {
            line_ending: "\n",
            space: true,
            two_data_lines: false,
            bom: false,
            comments_first: 0,
            pace: Duration::ZERO,
            first_event_delay: Duration::ZERO,
            finish_delay: Duration::ZERO,
            usage_delay: Duration::ZERO,
        };
        Self {
            answer,
            chat,
            shape,
            wire: Wire::default(),
        }
    }

    /// A chat answer with this text, one chunk a word; 3 prompt tokens and one output token a chunk
    /// unless [`usage`](Self::usage) says otherwise. The usage chunk comes when the request asks for it.
    pub fn chat(text: &str) -> Self {
        let mut behaviour = Self::of(Answer::Chat);
        text.clone_into(&mut behaviour.chat.text);
        behaviour
    }

    /// A JSON answer with this status; `body` is an object or any text.
    pub fn status(code: u16, body: impl Into<Value>) -> Self {
        let body = match body.into() {
            Value::String(text) => text,
            value => value.to_string(),
        };
        Self::of(Answer::Status { code, body })
    }

    /// An error answer in OpenAI's shape.
    pub fn error(code: u16, message: &str) -> Self {
        let kind = if code == 429 {
            "rate_limit_error"
        } else {
            "server_error"
        };
        Self::status(
            code,
            serde_json::json!({"error": {"message": message, "type": kind, "code": null, "param": null}}),
        )
    }

    /// An error answer in the shape of the dialect that is spoken: 529 is Anthropic's overload.
    pub fn failure(code: u16, message: &str) -> Self {
        Self::of(Answer::Failure {
            code,
            message: message.to_owned(),
        })
    }

    /// Exactly these bytes, head included; then the connection is closed.
    pub fn raw(bytes: impl Into<Bytes>) -> Self {
        Self::of(Answer::Raw(bytes.into()))
    }

    /// The request is read and never answered.
    pub fn hang() -> Self {
        Self::of(Answer::Hang)
    }

    /// The request is read and the connection closed without a byte.
    pub fn closed() -> Self {
        Self::of(Answer::Drop { reset: false })
    }

    /// The request is read and the connection reset without a byte.
    pub fn reset() -> Self {
        Self::of(Answer::Drop { reset: true })
    }

    /// A 307 to `url`.
    pub fn redirect(url: &str) -> Self {
        Self::status(307, "").header("location", url)
    }

    /// A 200 whose first event (streamed) or whole body (plain) is this object.
    pub fn error_in_200(error: impl Into<Value>) -> Self {
        let mut behaviour = Self::chat("").error_after(0, error);
        behaviour.chat.role = false;
        behaviour
    }

    /// A 200 whose first event (streamed) or whole body (plain) is an error in the shape of the dialect that is spoken.
    pub fn failure_in_200(code: u16, message: &str) -> Self {
        let mut behaviour = Self::chat("").failure_after(0, code, message);
        behaviour.chat.role = false;
        behaviour
    }

    /// A 200 stream of a role-only chunk, then this object.
    pub fn role_then_error(error: impl Into<Value>) -> Self {
        Self::chat("").error_after(0, error)
    }

    /// A 200 stream of one comment line, then what `then` says.
    pub fn comments_only(then: Then) -> Self {
        Self::of(Answer::Comments { count: 1, then })
    }

    /// A 200 stream of one `data:` line of `bytes` bytes that never ends in a newline.
    pub fn long_line(bytes: usize) -> Self {
        Self::of(Answer::LongLine(bytes))
    }

    /// A 200 JSON answer that unpacks to one gibibyte of blanks: 1 MiB of gzip, or with
    /// [`zstd`](Self::zstd) 32 KiB.
    pub fn bomb() -> Self {
        Self::of(Answer::Bomb).gzip()
    }

    /// The text becomes `count` one-word chunks `t1 t2 …`, `pace` apart.
    pub fn chunks(mut self, count: usize, pace: Duration) -> Self {
        let words: Vec<String> = (1..=count).map(|index| format!("t{index}")).collect();
        self.chat.text = words.join(" ");
        self.shape.pace = pace;
        self
    }

    /// Time between two content chunks.
    pub fn pace(mut self, pace: Duration) -> Self {
        self.shape.pace = pace;
        self
    }

    /// Prompt and output tokens of the usage.
    pub fn usage(mut self, prompt: u64, output: u64) -> Self {
        self.chat.prompt_tokens = prompt;
        self.chat.output_tokens = Some(output);
        self
    }

    /// The usage object word for word, however odd.
    pub fn usage_object(mut self, usage: Value) -> Self {
        self.chat.usage = Some(usage);
        self
    }

    /// No usage anywhere.
    pub fn no_usage(mut self) -> Self {
        self.chat.usage_when = UsageWhen::Never;
        self
    }

    /// A growing usage on every chunk, and the whole one at the end.
    pub fn usage_every_chunk(mut self) -> Self {
        self.chat.usage_when = UsageWhen::EachChunk;
        self
    }

    /// The usage chunk comes although nobody asked for it.
    pub fn usage_unasked(mut self) -> Self {
        self.chat.usage_when = UsageWhen::Always;
        self
    }

    /// No `[DONE]`.
    pub fn no_done(mut self) -> Self {
        self.chat.done = false;
        self
    }

    /// No chunk with a finish reason.
    pub fn no_finish(mut self) -> Self {
        self.chat.finish = None;
        self
    }

    /// Another finish reason than `stop`.
    pub fn finish(mut self, reason: &str) -> Self {
        self.chat.finish = Some(reason.to_owned());
        self
    }

    /// Thoughts before the text, one chunk a word: `reasoning_content` in chat, signed in Messages.
    pub fn reasoning(mut self, text: &str) -> Self {
        text.clone_into(&mut self.chat.reasoning);
        self
    }

    /// Tool calls after the text; in chat they are streamed in fragments that take turns.
    pub fn tool_calls(mut self, calls: &[(&str, &str, &str)]) -> Self {
        let call = |&(id, name, arguments): &(&str, &str, &str)| ToolCall {
            id: id.to_owned(),
            name: name.to_owned(),
            arguments: arguments.to_owned(),
        };
        self.chat.tool_calls = calls.iter().map(call).collect();
        self.chat.finish = Some("tool_calls".to_owned());
        self
    }

    /// After `count` content chunks `then`; a plain answer ends inside its body.
    pub fn stop_after(mut self, count: usize, then: Then) -> Self {
        self.chat.interrupt = Some((count, Interrupt::Then(then)));
        self
    }

    /// After `count` content chunks silence on an open connection.
    pub fn stall_after(self, count: usize) -> Self {
        self.stop_after(count, Then::Hang)
    }

    /// After `count` content chunks the framing ends well, without finish reason, usage or `[DONE]`.
    pub fn cut_after_chunks(self, count: usize) -> Self {
        self.stop_after(count, Then::End)
    }

    /// After `count` content chunks this object is the last event.
    pub fn error_after(mut self, count: usize, error: impl Into<Value>) -> Self {
        self.chat.interrupt = Some((count, Interrupt::Error(error.into().to_string())));
        self
    }

    /// After `count` content chunks an error in the shape of the dialect that is spoken is the last event; before the
    /// first of them it follows the opening, where the dialect has one.
    pub fn failure_after(mut self, count: usize, code: u16, message: &str) -> Self {
        let message = message.to_owned();
        self.chat.interrupt = Some((count, Interrupt::Failure { code, message }));
        self
    }

    /// After `count` content chunks one event of broken JSON; the rest follows.
    pub fn broken_json_after(mut self, count: usize) -> Self {
        self.chat.interrupt = Some((count, Interrupt::BrokenJson));
        self
    }

    /// Time before the first byte of the answer's head.
    pub fn first_byte_delay(mut self, delay: Duration) -> Self {
        self.wire.first_byte_delay = delay;
        self
    }

    /// Time between the head and the first event.
    pub fn first_event_delay(mut self, delay: Duration) -> Self {
        self.shape.first_event_delay = delay;
        self
    }

    /// Time between the last content chunk and the finish reason.
    pub fn finish_delay(mut self, delay: Duration) -> Self {
        self.shape.finish_delay = delay;
        self
    }

    /// Time between the finish reason and the usage chunk.
    pub fn usage_delay(mut self, delay: Duration) -> Self {
        self.shape.usage_delay = delay;
        self
    }

    /// Comment lines before the first event.
    pub fn comments_first(mut self, count: usize) -> Self {
        self.shape.comments_first = count;
        self
    }

    /// The line ending of events: `"\n"`, `"\r\n"` or `"\r"`.
    pub fn line_ending(mut self, ending: &'static str) -> Self {
        self.shape.line_ending = ending;
        self
    }

    /// `data:{…}` instead of `data: {…}`.
    pub fn no_space_after_data(mut self) -> Self {
        self.shape.space = false;
        self
    }

    /// Each event's JSON stands on two `data:` lines.
    pub fn two_data_lines(mut self) -> Self {
        self.shape.two_data_lines = true;
        self
    }

    /// A byte order mark before the first event.
    pub fn bom(mut self) -> Self {
        self.shape.bom = true;
        self
    }

    /// One more header on the answer.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.wire.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The value of a request header comes back as `x-echo-NAME`.
    pub fn echo_header(mut self, name: &str) -> Self {
        self.wire.echo_headers.push(name.to_ascii_lowercase());
        self
    }

    /// The body is gzip, flushed after each event.
    pub fn gzip(mut self) -> Self {
        self.wire.coding = Some(Coding::Gzip);
        self
    }

    /// The body is brotli, flushed after each event.
    pub fn br(mut self) -> Self {
        self.wire.coding = Some(Coding::Brotli);
        self
    }

    /// The body is zstd, flushed after each event.
    pub fn zstd(mut self) -> Self {
        self.wire.coding = Some(Coding::Zstd);
        self
    }

    /// The body leaves in two packets, parted at this offset (pace and delays inside it are lost).
    pub fn split_at(mut self, offset: usize) -> Self {
        self.wire.split_at = Some(offset);
        self
    }

    /// The body leaves in packets of `bytes` bytes, `pace` apart.
    pub fn dribble(mut self, bytes: usize, pace: Duration) -> Self {
        self.wire.dribble = Some((bytes.max(1), pace));
        self
    }

    /// The last `bytes` bytes of the body are left out, the framing ends well.
    pub fn drop_last_bytes(mut self, bytes: usize) -> Self {
        self.wire.drop_last_bytes = bytes;
        self
    }

    /// After `bytes` bytes of the body the connection is closed inside the framing.
    pub fn cut_after_bytes(mut self, bytes: usize) -> Self {
        self.wire.stop_after_bytes = Some((bytes, Then::Cut));
        self
    }

    /// After `bytes` bytes of the body the connection is reset.
    pub fn reset_after_bytes(mut self, bytes: usize) -> Self {
        self.wire.stop_after_bytes = Some((bytes, Then::Reset));
        self
    }

    /// The answer says `connection: close` and the connection is closed after it.
    pub fn close_after_response(mut self) -> Self {
        self.wire.close_after = true;
        self
    }

    /// The body has no length: it ends when the connection is closed.
    pub fn until_close(mut self) -> Self {
        self.wire.until_close = true;
        self
    }

    /// The connection is closed without notice when it was idle that long after this answer.
    pub fn idle_close(mut self, idle: Duration) -> Self {
        self.wire.idle_close = Some(idle);
        self
    }

    /// If the call comes on a connection that served one before, it is reset as the request arrives;
    /// this behaviour then stays first in the queue for the next call.
    pub fn reset_on_request_if_reused(mut self) -> Self {
        self.wire.reset_if_reused = true;
        self
    }
}
