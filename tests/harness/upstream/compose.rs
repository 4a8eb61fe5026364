//! From a behaviour and a request to the pieces of a body: pure, so that what the upstream says can be
//! tested without a socket. Coding, packets and framing come later (`wire`).

use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};

use super::behaviour::{Answer, Behaviour, Chat, Interrupt, Shape, Then, UsageWhen};
use super::request::Received;
use super::speech::Speech;

mod gemini;
mod messages;
mod older;
mod responses;
mod told;

/// Bytes that leave together, some time after those before them.
#[derive(Debug, Clone)]
pub(crate) struct Piece {
    pub(crate) wait: Duration,
    pub(crate) bytes: Bytes,
}

/// A composed answer: status, type of body, pieces, and what follows them.
#[derive(Debug)]
pub(crate) struct Composed {
    pub(crate) status: u16,
    pub(crate) content_type: &'static str,
    pub(crate) streamed: bool,
    pub(crate) pieces: Vec<Piece>,
    pub(crate) then: Then,
}

/// One line of a stream before it is written down.
#[derive(Debug, Clone)]
enum Line {
    Data(String),
    /// With a name of its own.
    Named(String, String),
    Comment,
}

/// Bytes of one piece of a long line.
const LONG_PIECE_BYTES: usize = 64 << 10;

/// What is answered to `request`; `word` is unique to the call.
pub(crate) fn compose(behaviour: &Behaviour, request: &Received, word: &str) -> Composed {
    let fill = |text: &str| substitute(text, request, word);
    let speech = Speech::of(request);
    match &behaviour.answer {
        Answer::Failure { code, message } => plain(*code, speech.error(*code, &fill(message))),
        Answer::Status { code, body } => plain(*code, fill(body)),
        Answer::Comments { count, then } => {
            let lines = vec![(Duration::ZERO, Line::Comment); *count];
            streamed(&behaviour.shape, &lines, *then)
        }
        Answer::LongLine(length) => long_line(*length),
        Answer::Chat => {
            let mut chat = behaviour.chat.clone();
            if let Some((_, interrupt @ Interrupt::Failure { .. })) = &mut chat.interrupt {
                *interrupt = interrupt.spoken(speech);
            }
            let writer = Writer {
                chat: &chat,
                text: fill(&behaviour.chat.text),
                word,
                model: request.model(),
                target: &request.target,
            };
            writer.answer(speech, request, &behaviour.shape)
        }
        Answer::Raw(_) | Answer::Hang | Answer::Drop { .. } | Answer::Bomb => plain(200, String::new()),
    }
}

impl Interrupt {
    /// The same with a failure in the words of a dialect.
    fn spoken(&self, speech: Speech) -> Self {
        match self {
            Self::Failure { code, message } => Self::Error(speech.error_inside(*code, message)),
            other => other.clone(),
        }
    }
}

fn plain(status: u16, body: String) -> Composed {
    let pieces = vec![Piece {
        wait: Duration::ZERO,
        bytes: Bytes::from(body),
    }];
    Composed {
        status,
        content_type: "application/json",
        streamed: false,
        pieces,
        then: Then::End,
    }
}

fn long_line(length: usize) -> Composed {
    let filler = Bytes::from(vec![b'a'; LONG_PIECE_BYTES]);
    let mut pieces = vec![Piece {
        wait: Duration::ZERO,
        bytes: Bytes::from_static(b"data: \""),
    }];
    let mut left = length.saturating_sub(7);
    while left > 0 {
        let take = left.min(LONG_PIECE_BYTES);
        pieces.push(Piece {
            wait: Duration::ZERO,
            bytes: filler.slice(..take),
        });
        left -= take;
    }
    Composed {
        status: 200,
        content_type: "text/event-stream",
        streamed: true,
        pieces,
        then: Then::End,
    }
}

fn streamed(shape: &Shape, lines: &[(Duration, Line)], then: Then) -> Composed {
    let comments = vec![(Duration::ZERO, Line::Comment); shape.comments_first];
    let mut pieces: Vec<Piece> = Vec::with_capacity(lines.len() + comments.len());
    for (index, (wait, line)) in comments.iter().chain(lines).enumerate() {
        let mut text = write_line(shape, line);
        if index == 0 && shape.bom {
            text.insert(0, '\u{feff}');
        }
        let first = if index == 0 {
            shape.first_event_delay
        } else {
            Duration::ZERO
        };
        pieces.push(Piece {
            wait: *wait + first,
            bytes: Bytes::from(text),
        });
    }
    Composed {
        status: 200,
        content_type: "text/event-stream",
        streamed: true,
        pieces,
        then,
    }
}

fn write_line(shape: &Shape, line: &Line) -> String {
    let end = shape.line_ending;
    let field = if shape.space { "data: " } else { "data:" };
    match line {
        Line::Named(name, data) if shape.two_data_lines && data.starts_with("{\"") => {
            let (front, back) = data.split_at(1);
            format!("event: {name}{end}{field}{front}{end}{field}{back}{end}{end}")
        }
        Line::Named(name, data) => format!("event: {name}{end}{field}{data}{end}{end}"),
        Line::Comment => format!(": still here{end}{end}"),
        Line::Data(data) if shape.two_data_lines && data.starts_with("{\"") => {
            let (front, back) = data.split_at(1);
            format!("{field}{front}{end}{field}{back}{end}{end}")
        }
        Line::Data(data) => format!("{field}{data}{end}{end}"),
    }
}

/// Writes the chunks of one chat answer.
struct Writer<'a> {
    chat: &'a Chat,
    text: String,
    word: &'a str,
    model: String,
    target: &'a str,
}

impl Writer<'_> {
    /// The answer in the dialect of the request.
    fn answer(&self, speech: Speech, request: &Received, shape: &Shape) -> Composed {
        let asked = request.json()["stream_options"]["include_usage"] == Value::Bool(true);
        if speech.streaming(request) {
            let (lines, then) = match speech {
                Speech::Messages => self.messages_told(shape).lines(self.chat, shape),
                Speech::Gemini => self.gemini_told(shape).lines(self.chat, shape),
                Speech::Responses => self.responses_told(shape).lines(self.chat, shape),
                Speech::Completions => self.completions_told(shape, asked).lines(self.chat, shape),
                Speech::Chat | Speech::Embeddings | Speech::CountTokens => self.lines(shape, asked),
            };
            return streamed(shape, &lines, then);
        }
        let body = match speech {
            Speech::Messages => self.messages_whole(),
            Speech::Gemini => self.gemini_whole(),
            Speech::Responses => self.responses_whole(),
            Speech::Completions => self.completions_whole(request),
            Speech::Embeddings => self.embeddings_whole(request),
            Speech::CountTokens => self.count_whole(),
            Speech::Chat => self.chat_whole(),
        };
        self.interrupted(body.to_string())
    }

    /// Output tokens when so many pieces came.
    fn output_tokens(&self, pieces: usize) -> u64 {
        self.chat.output_tokens.unwrap_or(pieces as u64)
    }

    fn id(&self) -> String {
        format!("chatcmpl-{}", self.word)
    }

    /// The deltas that are content: reasoning, then text, then tool calls.
    fn deltas(&self) -> Vec<Value> {
        let words = |text: &str| text.split_inclusive(' ').map(str::to_owned).collect::<Vec<_>>();
        let mut deltas: Vec<Value> = words(&self.chat.reasoning)
            .iter()
            .map(|word| json!({"reasoning_content": word}))
            .collect();
        deltas.extend(words(&self.text).iter().map(|word| json!({"content": word})));
        deltas.extend(tool_deltas(self.chat));
        deltas
    }

    fn usage(&self, output: usize) -> Value {
        if let Some(usage) = &self.chat.usage {
            return usage.clone();
        }
        let prompt = self.chat.prompt_tokens;
        let output = self.chat.output_tokens.unwrap_or(output as u64);
        json!({"prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output})
    }

    fn chunk(&self, choices: &Value) -> Value {
        json!({
            "id": self.id(), "object": "chat.completion.chunk", "created": 1_700_000_000,
            "model": self.model, "choices": choices,
        })
    }

    fn delta(&self, delta: &Value, finish: Option<&str>) -> Value {
        self.chunk(&json!([{"index": 0, "delta": delta, "finish_reason": finish}]))
    }

    fn lines(&self, shape: &Shape, usage_asked: bool) -> (Vec<(Duration, Line)>, Then) {
        let mut lines = Vec::new();
        let data = |value: &Value| Line::Data(value.to_string());
        if self.chat.role {
            lines.push((
                Duration::ZERO,
                data(&self.delta(&json!({"role": "assistant", "content": ""}), None)),
            ));
        }
        let deltas = self.deltas();
        for (index, delta) in deltas.iter().enumerate() {
            if let Some(then) = self.interrupt(index, &mut lines) {
                return (lines, then);
            }
            let mut chunk = self.delta(delta, None);
            if self.chat.usage_when == UsageWhen::EachChunk {
                let prompt = self.chat.prompt_tokens;
                let output = index as u64 + 1;
                chunk["usage"] = json!({"prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output});
            }
            lines.push((if index == 0 { Duration::ZERO } else { shape.pace }, data(&chunk)));
        }
        if let Some(then) = self.interrupt(deltas.len(), &mut lines) {
            return (lines, then);
        }
        if let Some(reason) = &self.chat.finish {
            lines.push((shape.finish_delay, data(&self.delta(&json!({}), Some(reason)))));
        }
        let told = match self.chat.usage_when {
            UsageWhen::Asked => usage_asked,
            UsageWhen::Always | UsageWhen::EachChunk => true,
            UsageWhen::Never => false,
        };
        if told {
            let mut chunk = self.chunk(&json!([]));
            chunk["usage"] = self.usage(deltas.len());
            lines.push((shape.usage_delay, data(&chunk)));
        }
        if self.chat.done {
            lines.push((Duration::ZERO, Line::Data("[DONE]".to_owned())));
        }
        (lines, Then::End)
    }

    /// Applies the interrupt that is due after `count` content chunks; says what follows if it ends the answer.
    fn interrupt(&self, count: usize, lines: &mut Vec<(Duration, Line)>) -> Option<Then> {
        let (after, interrupt) = self.chat.interrupt.as_ref()?;
        if *after != count {
            return None;
        }
        match interrupt {
            Interrupt::Then(then @ Then::Forever(_)) => {
                lines.push((Duration::ZERO, Line::Comment));
                Some(*then)
            }
            Interrupt::Then(then) => Some(*then),
            Interrupt::Error(error) => {
                lines.push((Duration::ZERO, Line::Data(error.clone())));
                Some(Then::End)
            }
            Interrupt::Failure { .. } => None,
            Interrupt::BrokenJson => {
                let broken = format!(
                    "{{\"id\":\"{}\",\"choices\":[{{\"delta\":{{\"content\":\"brok",
                    self.id()
                );
                lines.push((Duration::ZERO, Line::Data(broken)));
                None
            }
        }
    }

    /// The plain form of the same answer.
    fn chat_whole(&self) -> Value {
        let mut message = json!({"role": "assistant", "content": self.text});
        if !self.chat.reasoning.is_empty() {
            message["reasoning_content"] = Value::String(self.chat.reasoning.clone());
        }
        if !self.chat.tool_calls.is_empty() {
            let call = |call: &super::behaviour::ToolCall| {
                json!({"id": call.id, "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments}})
            };
            if self.text.is_empty() {
                message["content"] = Value::Null;
            }
            message["tool_calls"] = self.chat.tool_calls.iter().map(call).collect();
        }
        let choices = json!([{"index": 0, "message": message, "finish_reason": self.chat.finish}]);
        let mut body = json!({
            "id": self.id(), "object": "chat.completion", "created": 1_700_000_000,
            "model": self.model, "choices": choices,
        });
        if self.chat.usage_when != UsageWhen::Never {
            body["usage"] = self.usage(self.deltas().len());
        }
        body
    }

    /// A plain answer, up to what interrupts it.
    fn interrupted(&self, body: String) -> Composed {
        let Some((_, interrupt)) = &self.chat.interrupt else {
            return plain(200, body);
        };
        let half = body.chars().take(body.chars().count() / 2).collect::<String>();
        match interrupt {
            Interrupt::Error(error) => plain(200, error.clone()),
            Interrupt::Failure { .. } => plain(200, body),
            Interrupt::BrokenJson | Interrupt::Then(Then::End) => plain(200, half),
            Interrupt::Then(then) => {
                let mut composed = plain(200, body);
                composed.then = *then;
                composed
            }
        }
    }
}

/// Streamed tool calls: first each call's id and name, then fragments of arguments in turns, forth and back.
fn tool_deltas(chat: &Chat) -> Vec<Value> {
    const FRAGMENT_CHARS: usize = 7;
    let mut deltas = Vec::new();
    let mut fragments: Vec<std::collections::VecDeque<String>> = Vec::new();
    for (index, call) in chat.tool_calls.iter().enumerate() {
        let function = json!({"name": call.name, "arguments": ""});
        deltas.push(json!({"tool_calls": [{"index": index, "id": call.id, "type": "function", "function": function}]}));
        let characters: Vec<char> = call.arguments.chars().collect();
        fragments.push(
            characters
                .chunks(FRAGMENT_CHARS)
                .map(|part| part.iter().collect())
                .collect(),
        );
    }
    let mut turns: Vec<usize> = (0..fragments.len()).collect();
    while fragments.iter().any(|queue| !queue.is_empty()) {
        for index in &turns {
            if let Some(fragment) = fragments
                .get_mut(*index)
                .and_then(std::collections::VecDeque::pop_front)
            {
                deltas.push(json!({"tool_calls": [{"index": index, "function": {"arguments": fragment}}]}));
            }
        }
        turns.reverse();
    }
    deltas
}

fn substitute(text: &str, request: &Received, word: &str) -> String {
    let mut filled = text.replace("{call}", word);
    while let Some(start) = filled.find("{header:") {
        let Some(length) = filled.get(start..).and_then(|rest| rest.find('}')) else {
            break;
        };
        let name = filled
            .get(start + 8..start + length)
            .unwrap_or_default()
            .to_ascii_lowercase();
        let value = request.header(&name).unwrap_or_default().replace("{header:", "");
        filled.replace_range(start..=start + length, &value);
    }
    filled
}

#[cfg(test)]
mod tests;
