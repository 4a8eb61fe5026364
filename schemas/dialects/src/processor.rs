//! What some models write as text and mean otherwise: thoughts between tags, and calls of tools as XML. A processor
//! stands between a decoder and an encoder and turns such text into the events it stands for.
//!
//! Guarantees: the events that leave follow the rules of [`crate::superset::event`]; wherever the text is cut the same
//! events leave, up to where a text is divided; text that is neither a thought nor a call leaves as it came, but for
//! the space right behind a thought or a call; a block that cannot be read, or that broke off before all its values were
//! closed, leaves as the text it was. No more is held than one block and [`BLOCK_BYTES_MAX`]. Qwen leaves out the tag in
//! front of a call now and then: a whole function of a tool that was offered is a call without it, too.

mod calls;

use crate::superset::answer::{Answer, Finish};
use crate::superset::event::{Event, Sink};
use crate::superset::request::{Call, Part};
use crate::superset::tool::Tool;

use calls::{Extent, Form, Found, Schemas};

/// Longest block of a call, in bytes; a longer one is text.
pub const BLOCK_BYTES_MAX: usize = 1024 * 1024;
/// Digits of the answer's id that are in the ids of calls.
const ID_DIGITS: usize = 20;

const THINK: &str = "<think>";
const THINK_END: &str = "</think>";
const CALL: &str = "<tool_call>";
const CALL_END: &str = "</tool_call>";
const FUNCTION: &str = "<function=";
const FUNCTION_END: &str = "</function>";
/// Longest name of a function that is waited for, in bytes.
const NAME_BYTES_MAX: usize = 256;

/// What a model writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// GLM: thoughts, and calls as keys and values.
    Glm,
    /// Qwen Coder: calls as functions and parameters.
    Qwen,
    /// Thoughts alone.
    ThinkBlock,
}

impl Kind {
    /// By its name in `models.yaml`.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "glm" => Self::Glm,
            "qwen" => Self::Qwen,
            "think_block" => Self::ThinkBlock,
            _ => return None,
        })
    }

    /// The tags that begin something.
    const fn tags(self) -> &'static [&'static str] {
        match self {
            Self::Glm => &[THINK, CALL],
            Self::Qwen => &[CALL, FUNCTION],
            Self::ThinkBlock => &[THINK],
        }
    }

    const fn form(self) -> Form {
        match self {
            Self::Qwen | Self::ThinkBlock => Form::Functions,
            Self::Glm => Form::Pairs,
        }
    }
}

/// Where in the text it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Text,
    Thought,
    Block,
    /// In a function without a block around it, whose first tag is held.
    Function,
}

/// Reads one answer.
#[derive(Debug)]
pub struct Processor {
    kind: Kind,
    schemas: Schemas,
    /// What the ids of calls begin with.
    id: String,
    place: Place,
    held: String,
    /// Bytes of a block in which its end was looked for and not found.
    searched: usize,
    /// Space is left out until something else comes.
    trims: bool,
    /// A function without a block around it was the last that left: the tag that ends a block may follow.
    bare: bool,
    /// Calls that left.
    calls: u32,
    /// Numbers of the upstream's own calls, and under which they left.
    native: Vec<(u32, u32)>,
}

impl Processor {
    /// For an answer to a request with `tools`; `id` is the answer's id in hexadecimal digits.
    pub fn new(kind: Kind, tools: &[Tool], id: &str) -> Self {
        Self {
            kind,
            schemas: Schemas::new(tools),
            id: id.chars().rev().take(ID_DIGITS).collect(),
            place: Place::Text,
            held: String::new(),
            searched: 0,
            trims: false,
            bare: false,
            calls: 0,
            native: Vec::new(),
        }
    }

    /// Reads the next event.
    pub fn event(&mut self, event: Event<'_>, sink: &mut dyn Sink) {
        match event {
            Event::Text(text) => {
                self.held.push_str(text);
                while self.step(sink) {}
            }
            Event::Call {
                call,
                id,
                name,
                namespace,
                custom,
            } => {
                self.flush(Extent::Unclosed, sink);
                self.native.push((call, self.calls));
                sink.event(Event::Call {
                    call: self.calls,
                    id,
                    name,
                    namespace,
                    custom,
                });
                self.calls += 1;
            }
            Event::Arguments { call, piece } => sink.event(Event::Arguments {
                call: self.renumbered(call),
                piece,
            }),
            Event::CallProof { call, maker, text } => sink.event(Event::CallProof {
                call: self.renumbered(call),
                maker,
                text,
            }),
            Event::Finish {
                finish,
                stop_sequence,
            } => {
                self.flush(extent(finish), sink);
                let finish = match finish {
                    Finish::Stop if self.calls > 0 => Finish::ToolCalls,
                    finish => finish,
                };
                sink.event(Event::Finish {
                    finish,
                    stop_sequence,
                });
            }
            other => sink.event(other),
        }
    }

    /// Reads a whole answer.
    pub fn answer(mut self, answer: Answer) -> Answer {
        let mut parts = Parts::default();
        for part in answer.parts {
            match part {
                Part::Text { text, .. } => self.event(Event::Text(&text), &mut parts),
                Part::ToolCall(call) => {
                    self.flush(Extent::Unclosed, &mut parts);
                    self.calls += 1;
                    parts.0.push(Part::ToolCall(call));
                }
                other => {
                    self.flush(Extent::Unclosed, &mut parts);
                    parts.0.push(other);
                }
            }
        }
        self.flush(extent(answer.finish), &mut parts);
        let finish = match answer.finish {
            Finish::Stop if self.calls > 0 => Finish::ToolCalls,
            finish => finish,
        };
        Answer {
            parts: parts.0,
            finish,
            ..answer
        }
    }

    fn renumbered(&self, call: u32) -> u32 {
        let found = self.native.iter().find(|(native, _)| *native == call);
        found.map_or(call, |(_, ours)| *ours)
    }

    /// Lets go of what is certain; true while there may be more.
    fn step(&mut self, sink: &mut dyn Sink) -> bool {
        match self.place {
            Place::Text => self.begin(sink),
            Place::Thought => {
                let Some(at) = self.held.find(THINK_END) else {
                    let keep = open_tag(&self.held, &[THINK_END]);
                    self.let_go(self.held.len() - keep, sink);
                    return false;
                };
                self.let_go(at, sink);
                self.held.drain(..THINK_END.len());
                self.place = Place::Text;
                self.trims = true;
                true
            }
            Place::Function => self.function(sink),
            Place::Block => match self.end_of(CALL_END) {
                Some(at) => {
                    self.searched = 0;
                    let block: String = self.held.drain(..at + CALL_END.len()).collect();
                    self.place = Place::Text;
                    self.block(block.get(..at).unwrap_or_default(), Extent::Closed, sink);
                    true
                }
                None if self.held.len() > BLOCK_BYTES_MAX => {
                    self.place = Place::Text;
                    self.searched = 0;
                    let block = std::mem::take(&mut self.held);
                    self.text(CALL, sink);
                    self.text(&block, sink);
                    false
                }
                None => false,
            },
        }
    }

    /// Finds what begins in text.
    fn begin(&mut self, sink: &mut dyn Sink) -> bool {
        let end: &[&str] = if self.bare { &[CALL_END] } else { &[] };
        let tags: Vec<&str> = self.kind.tags().iter().chain(end).copied().collect();
        let first = tags
            .iter()
            .filter_map(|tag| Some((self.held.find(tag)?, *tag)))
            .min();
        let Some((at, tag)) = first else {
            let keep = open_tag(&self.held, &tags);
            self.let_go(self.held.len() - keep, sink);
            return false;
        };
        self.let_go(at, sink);
        // Text between a function and such a tag makes it text as well.
        if tag == CALL_END && !self.bare {
            self.let_go(tag.len(), sink);
            return true;
        }
        if tag != FUNCTION {
            self.held.drain(..tag.len());
        }
        self.place = match tag {
            THINK => Place::Thought,
            CALL => Place::Block,
            FUNCTION => Place::Function,
            _ => Place::Text,
        };
        self.bare = false;
        true
    }

    /// Reads a function without a block around it, when it is whole.
    fn function(&mut self, sink: &mut dyn Sink) -> bool {
        let begun = self.held.get(FUNCTION.len()..).unwrap_or_default();
        let is_known = match begun.split_once('>') {
            Some((name, _)) => self.schemas.has(name.trim()),
            None => begun.len() <= NAME_BYTES_MAX,
        };
        if !is_known || self.held.len() > BLOCK_BYTES_MAX {
            self.release(sink);
            return true;
        }
        let Some(at) = self.end_of(FUNCTION_END) else {
            return false;
        };
        let whole = self.held.get(..at + FUNCTION_END.len()).unwrap_or_default();
        match calls::read(whole, Extent::Unclosed, self.kind.form(), &self.schemas) {
            Some(found) => {
                self.searched = 0;
                self.held.drain(..at + FUNCTION_END.len());
                self.place = Place::Text;
                self.found(&found, sink);
                self.bare = true;
            }
            None => self.release(sink),
        }
        true
    }

    /// What looked like a function is text, its first tag for certain.
    fn release(&mut self, sink: &mut dyn Sink) {
        self.place = Place::Text;
        self.searched = 0;
        self.let_go(FUNCTION.len(), sink);
    }

    /// Where the tag that ends what is held begins; what was searched before is not searched again.
    fn end_of(&mut self, tag: &str) -> Option<usize> {
        let from = self
            .held
            .floor_char_boundary(self.searched.saturating_sub(tag.len()));
        let found = self.held.get(from..).and_then(|rest| rest.find(tag));
        self.searched = self.held.len();
        found.map(|at| from + at)
    }

    /// Lets the first `bytes` of what is held go, as text or thought.
    fn let_go(&mut self, bytes: usize, sink: &mut dyn Sink) {
        let gone: String = self.held.drain(..bytes).collect();
        if self.place == Place::Thought {
            if !gone.is_empty() {
                sink.event(Event::Thinking(&gone));
            }
        } else {
            self.text(&gone, sink);
        }
    }

    fn text(&mut self, text: &str, sink: &mut dyn Sink) {
        let text = if self.trims { text.trim_start() } else { text };
        if !text.is_empty() {
            self.trims = false;
            self.bare = false;
            sink.event(Event::Text(text));
        }
    }

    /// Lets the calls of a block go; a block that is none is text again.
    fn block(&mut self, block: &str, extent: Extent, sink: &mut dyn Sink) {
        let Some(found) = calls::read(block, extent, self.kind.form(), &self.schemas) else {
            self.text(CALL, sink);
            self.text(block, sink);
            if extent == Extent::Closed {
                self.text(CALL_END, sink);
            }
            return;
        };
        self.found(&found, sink);
    }

    /// Lets calls go.
    fn found(&mut self, found: &[Found], sink: &mut dyn Sink) {
        for one in found {
            let id = format!("call_{}_{}", self.id, self.calls);
            sink.event(Event::Call {
                call: self.calls,
                id: &id,
                name: &one.name,
                namespace: None,
                custom: false,
            });
            sink.event(Event::Arguments {
                call: self.calls,
                piece: &one.arguments,
            });
            self.calls += 1;
        }
        self.trims = true;
    }

    /// Lets everything go: nothing more comes that could complete it. `extent` tells how much of a block there is.
    fn flush(&mut self, extent: Extent, sink: &mut dyn Sink) {
        while self.place == Place::Function {
            self.release(sink);
            while self.step(sink) {}
        }
        if self.place == Place::Block {
            let block = std::mem::take(&mut self.held);
            self.place = Place::Text;
            self.searched = 0;
            self.block(&block, extent, sink);
            return;
        }
        self.let_go(self.held.len(), sink);
        self.place = Place::Text;
    }
}

/// How much there is of a block that is open when an answer ends for this reason.
const fn extent(finish: Finish) -> Extent {
    match finish {
        Finish::Length | Finish::ContextFull | Finish::Refused => Extent::Broken,
        Finish::Stop | Finish::StopSequence | Finish::ToolCalls | Finish::Paused => Extent::Unclosed,
    }
}

/// Bytes at the end of `text` that may be the beginning of one of `tags`.
fn open_tag(text: &str, tags: &[&str]) -> usize {
    let longest = tags.iter().map(|tag| tag.len() - 1).max().unwrap_or(0);
    let begins = |bytes: &usize| {
        let tail = text.len().checked_sub(*bytes).and_then(|at| text.get(at..));
        tail.is_some_and(|tail| tags.iter().any(|tag| tag.starts_with(tail)))
    };
    (1..=longest).rev().find(begins).unwrap_or(0)
}

/// Puts an answer together of events.
#[derive(Default)]
struct Parts(Vec<Part>);

impl Sink for Parts {
    fn event(&mut self, event: Event<'_>) {
        match (event, self.0.last_mut()) {
            (Event::Text(new), Some(Part::Text { text, .. }))
            | (Event::Thinking(new), Some(Part::Thinking { text, .. })) => text.push_str(new),
            (Event::Text(text), _) => self.0.push(Part::Text {
                text: text.to_owned(),
                cache: None,
            }),
            (Event::Thinking(text), _) => self.0.push(Part::Thinking {
                text: text.to_owned(),
                proof: None,
            }),
            (Event::Call { id, name, .. }, _) => self.0.push(Part::ToolCall(Call {
                id: id.to_owned(),
                name: name.to_owned(),
                namespace: None,
                arguments: String::new(),
                custom: false,
                proof: None,
            })),
            (Event::Arguments { piece, .. }, Some(Part::ToolCall(call))) => call.arguments.push_str(piece),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
