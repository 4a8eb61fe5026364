//! The blocks of an answer on their way to a caller: the first is open or the next to open, the others wait with
//! everything that came for them. Nothing that came is lost, and what is written is always one block after another.

use std::collections::VecDeque;

use bytes::BytesMut;

use super::arguments::Scan;
use super::write::{self, Delta, Empty, Opening};
use crate::messages::wrapped::free_text;
use crate::messages::{id, proof};
use crate::superset::request::ProofMaker;

/// Blocks that are not closed.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    waiting: VecDeque<Block>,
    /// The first is open.
    open: bool,
    /// The index of the first.
    index: u64,
}

/// A block.
#[derive(Debug)]
struct Block {
    kind: Kind,
    /// What came for it and is not written.
    held: String,
}

#[derive(Debug)]
enum Kind {
    Text,
    Thinking { signature: Option<String> },
    Redacted,
    Call(Call),
}

/// A call of a tool.
#[derive(Debug)]
pub(super) struct Call {
    number: u32,
    id: String,
    name: String,
    custom: bool,
    scan: Scan,
    /// Arguments were written.
    told: bool,
}

impl Kind {
    /// True when nothing more comes for a block once another has begun.
    const fn gives_way(&self) -> bool {
        match self {
            Self::Text | Self::Thinking { .. } | Self::Redacted => true,
            Self::Call(call) => matches!(call.scan, Scan::Whole) && !call.custom,
        }
    }

    const fn delta(&self) -> Delta {
        match self {
            Self::Text => Delta::Text,
            Self::Thinking { .. } | Self::Redacted => Delta::Thinking,
            Self::Call(_) => Delta::Arguments,
        }
    }
}

impl Blocks {
    /// A piece of text.
    pub(super) fn text(&mut self, text: &str, out: &mut BytesMut) {
        if text.is_empty() {
            return;
        }
        if !matches!(self.waiting.back(), Some(Block { kind: Kind::Text, .. })) {
            self.push(Kind::Text, String::new());
        }
        self.add(text, out);
    }

    /// A piece of a thought.
    pub(super) fn thinking(&mut self, text: &str, out: &mut BytesMut) {
        if text.is_empty() {
            return;
        }
        if self.unsigned().is_none() {
            self.push(Kind::Thinking { signature: None }, String::new());
        }
        self.add(text, out);
    }

    /// What proves the thought so far.
    pub(super) fn signature(&mut self, text: String, out: &mut BytesMut) {
        match self.unsigned() {
            Some(signature) => *signature = Some(text),
            None => self.push(
                Kind::Thinking {
                    signature: Some(text),
                },
                String::new(),
            ),
        }
        self.advance(false, out);
    }

    /// A thought that only its maker can read.
    pub(super) fn redacted(&mut self, data: String, out: &mut BytesMut) {
        self.push(Kind::Redacted, data);
        self.advance(false, out);
    }

    /// A call of a tool.
    pub(super) fn call(&mut self, call: Call, out: &mut BytesMut) {
        self.push(Kind::Call(call), String::new());
        self.advance(false, out);
    }

    /// A piece of arguments.
    pub(super) fn arguments(&mut self, number: u32, piece: &str, out: &mut BytesMut) {
        let Some(at) = self.position(number) else { return };
        let Some(block) = self.waiting.get_mut(at) else {
            return;
        };
        if let Kind::Call(call) = &mut block.kind {
            call.scan.read(piece);
        }
        block.held.push_str(piece);
        if at == 0 {
            self.advance(false, out);
        }
    }

    /// What an upstream wants to see again with a call: a redacted thought of its own, before the call if it can be.
    pub(super) fn call_proof(&mut self, number: u32, maker: ProofMaker, text: &str, out: &mut BytesMut) {
        let Some(at) = self.position(number) else { return };
        let Some(Block {
            kind: Kind::Call(call),
            ..
        }) = self.waiting.get(at)
        else {
            return;
        };
        let block = Block {
            kind: Kind::Redacted,
            held: proof::write_call(maker, &call.id, text),
        };
        let begun = at == 0 && self.open;
        self.waiting.insert(at + usize::from(begun), block);
        self.advance(false, out);
    }

    /// The answer has ended: writes all that waits.
    pub(super) fn finish(&mut self, out: &mut BytesMut) {
        self.advance(true, out);
    }

    fn push(&mut self, kind: Kind, held: String) {
        self.waiting.push_back(Block { kind, held });
    }

    /// The last block's signature, if it is a thought that has none.
    fn unsigned(&mut self) -> Option<&mut Option<String>> {
        match self.waiting.back_mut() {
            Some(Block {
                kind: Kind::Thinking { signature },
                ..
            }) if signature.is_none() => Some(signature),
            _ => None,
        }
    }

    fn position(&self, number: u32) -> Option<usize> {
        self.waiting
            .iter()
            .rposition(|block| matches!(&block.kind, Kind::Call(call) if call.number == number))
    }

    /// Adds text to the last block.
    fn add(&mut self, text: &str, out: &mut BytesMut) {
        if let (true, 1, Some(block)) = (self.open, self.waiting.len(), self.waiting.front()) {
            write::block_delta(self.index, block.kind.delta(), text, out);
            return;
        }
        if let Some(block) = self.waiting.back_mut() {
            block.held.push_str(text);
        }
        self.advance(false, out);
    }

    /// Writes what can be written, and closes what can be closed: everything with `all`.
    fn advance(&mut self, all: bool, out: &mut BytesMut) {
        while let Some(block) = self.waiting.front_mut() {
            let closes = all || (block.kind.gives_way() && self.waiting.len() > 1);
            let Some(block) = self.waiting.front_mut() else {
                return;
            };
            if closes || block.has_news() {
                if !self.open {
                    block.start(self.index, out);
                    self.open = true;
                }
                block.write(self.index, out);
            }
            if !closes {
                return;
            }
            block.stop(self.index, out);
            self.waiting.pop_front();
            self.open = false;
            self.index += 1;
        }
    }
}

impl Block {
    /// True when something can be written before the block closes.
    fn has_news(&self) -> bool {
        match &self.kind {
            Kind::Text | Kind::Redacted | Kind::Thinking { signature: None } => !self.held.is_empty(),
            Kind::Thinking { signature: Some(_) } => true,
            Kind::Call(call) => call.passes() && !self.held.is_empty(),
        }
    }

    fn start(&self, index: u64, out: &mut BytesMut) {
        let opening = match &self.kind {
            Kind::Text => Opening::Text { text: "" },
            Kind::Thinking { .. } => Opening::Thinking {
                thinking: "",
                signature: "",
            },
            Kind::Redacted => Opening::RedactedThinking { data: &self.held },
            Kind::Call(call) => Opening::ToolUse {
                id: &call.id,
                name: &call.name,
                input: Empty {},
            },
        };
        write::block_start(index, &opening, out);
    }

    /// Writes what is held of an open block.
    fn write(&mut self, index: u64, out: &mut BytesMut) {
        match &mut self.kind {
            Kind::Redacted => {}
            Kind::Call(call) if !call.passes() => return,
            kind if !self.held.is_empty() => {
                write::block_delta(index, kind.delta(), &self.held, out);
                if let Kind::Call(call) = kind {
                    call.told = true;
                }
            }
            _ => {}
        }
        self.held.clear();
    }

    fn stop(&mut self, index: u64, out: &mut BytesMut) {
        match &self.kind {
            Kind::Thinking { signature } => {
                let signature = signature.as_deref().unwrap_or(proof::UNPROVED);
                write::block_delta(index, Delta::Signature, signature, out);
            }
            Kind::Call(call) if call.custom => {
                let input = free_text(&self.held);
                write::block_delta(index, Delta::Arguments, &input, out);
            }
            Kind::Call(call) if !call.told => write::block_delta(index, Delta::Arguments, "{}", out),
            Kind::Text | Kind::Redacted | Kind::Call(_) => {}
        }
        write::block_stop(index, out);
    }
}

impl Call {
    /// One that begins: its number and id, the tool's name with the group it belongs to, and whether it takes free
    /// text.
    pub(super) fn begin(
        number: u32,
        id: &str,
        (namespace, name): (Option<&str>, &str),
        custom: bool,
    ) -> Self {
        Self {
            number,
            id: id::of_call(id),
            name: match namespace {
                Some(_) => id::of_tool(namespace, name),
                None => name.to_owned(),
            },
            custom,
            scan: Scan::default(),
            told: false,
        }
    }

    /// Its arguments may be written as they come: what is no object never leaves.
    const fn passes(&self) -> bool {
        !self.custom && matches!(self.scan, Scan::Within { .. } | Scan::Whole)
    }
}
