//! Traces that are made up: conversations that begin by chance, have instructions in common, and go on turn by turn.
//! Everything is drawn in integers, so that a seed gives the same trace on every machine.

use schemas::balance::draws::Draws;
use serde::Deserialize;

use super::scenario::{Wrong, wrong};
use super::trace::{Line, Trace};

/// Parts of a mean that are drawn.
const PARTS: u64 = 64;
/// Sessions of one trace.
const SESSIONS_MAX: u64 = 100_000;
/// Milliseconds that a token of an answer is taken to last: the next turn begins after the answer.
const TOKEN_MS: u64 = 20;

/// What a made-up trace is like. Means are those of geometric draws, so that there is a long tail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Shape {
    /// What luck is drawn from.
    pub seed: u64,
    /// Conversations.
    pub sessions: u64,
    /// Milliseconds from the start of one to that of the next, in the mean.
    pub gap_ms: u64,
    /// Turns of one, in the mean.
    pub turns: u64,
    /// Different instructions; the first are the most common.
    pub instructions: u64,
    /// Blocks of instructions.
    pub instruction_blocks: u64,
    /// Tokens that a user says in a turn, in the mean.
    pub user_tokens: u64,
    /// Tokens of an answer, in the mean.
    pub output_tokens: u64,
    /// Milliseconds from an answer to the next turn, in the mean.
    pub think_ms: u64,
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            seed: 1,
            sessions: 150,
            gap_ms: 250,
            turns: 5,
            instructions: 8,
            instruction_blocks: 12,
            user_tokens: 160,
            output_tokens: 120,
            think_ms: 4_000,
        }
    }
}

impl Shape {
    /// The first thing that is wrong.
    pub fn wrong(&self) -> Option<Wrong> {
        let sizes = [
            ("sessions", self.sessions, SESSIONS_MAX),
            ("gap_ms", self.gap_ms, 3_600_000),
            ("turns", self.turns, 1_000),
            ("instructions", self.instructions, 1_000_000),
            ("instruction_blocks", self.instruction_blocks, 10_000),
            ("user_tokens", self.user_tokens, 100_000),
            ("output_tokens", self.output_tokens, 100_000),
            ("think_ms", self.think_ms, 3_600_000),
        ];
        let mut sizes = sizes.into_iter();
        let (key, _, most) = sizes.find(|(_, size, most)| !(1..=*most).contains(size))?;
        let message = format!("has to be between 1 and {most}");
        Some(wrong(
            &format!("trace.generate.{key}"),
            &message,
            "correct the value",
        ))
    }
}

/// Makes up a trace whose blocks have so many tokens.
pub fn trace(shape: &Shape, block_tokens: u64) -> Trace {
    let block_tokens = block_tokens.max(1);
    let mut draws = Draws::new(shape.seed);
    // The blocks of the instructions come first.
    let mut blocks = shape.instructions.saturating_mul(shape.instruction_blocks);
    let mut begins_ms = 0;
    let mut lines = Vec::new();
    for session in 0..shape.sessions {
        let mut talk = Talk::begin(shape, session, &mut draws);
        let turns = around(shape.turns, &mut draws).max(1);
        let mut at_ms = begins_ms;
        for _ in 0..turns {
            let output_tokens = around(shape.output_tokens, &mut draws).max(1);
            let user_tokens = around(shape.user_tokens, &mut draws).max(1);
            lines.push(talk.turn((at_ms, user_tokens, output_tokens), block_tokens, &mut blocks));
            at_ms = at_ms
                .saturating_add(output_tokens.saturating_mul(TOKEN_MS))
                .saturating_add(around(shape.think_ms, &mut draws));
        }
        begins_ms = begins_ms.saturating_add(around(shape.gap_ms, &mut draws));
    }
    lines.sort_by_key(|line: &Line| line.at_ms);
    Trace { lines }
}

/// A conversation as far as it went.
struct Talk {
    session: u64,
    instruction_blocks: usize,
    blocks: Vec<u64>,
    tokens: Option<u64>,
}

impl Talk {
    fn begin(shape: &Shape, session: u64, draws: &mut Draws) -> Self {
        let few = below(shape.instructions, draws).saturating_add(1);
        let first = below(few, draws).saturating_mul(shape.instruction_blocks);
        let blocks: Vec<u64> = (first..first.saturating_add(shape.instruction_blocks)).collect();
        Self {
            session,
            instruction_blocks: blocks.len(),
            blocks,
            tokens: None,
        }
    }

    /// The next request: all that was said, and something new.
    fn turn(
        &mut self,
        (at_ms, user_tokens, output_tokens): (u64, u64, u64),
        block_tokens: u64,
        fresh: &mut u64,
    ) -> Line {
        let instructed = u64::try_from(self.instruction_blocks).unwrap_or(0);
        let said = self.tokens.unwrap_or(instructed.saturating_mul(block_tokens));
        let prompt_tokens = said.saturating_add(user_tokens);
        let full = usize::try_from(prompt_tokens / block_tokens).unwrap_or(usize::MAX);
        while self.blocks.len() < full {
            self.blocks.push(*fresh);
            *fresh = fresh.saturating_add(1);
        }
        self.tokens = Some(prompt_tokens.saturating_add(output_tokens));
        Line {
            at_ms,
            session: Some(format!("s{}", self.session)),
            model: None,
            prompt_tokens,
            output_tokens,
            blocks: self.blocks.clone(),
            instruction_blocks: self.instruction_blocks,
        }
    }
}

/// A number around a mean: geometric, at least one part of it.
fn around(mean: u64, draws: &mut Draws) -> u64 {
    let mut parts = 1_u64;
    while below(PARTS, draws) != 0 {
        parts += 1;
    }
    mean.saturating_mul(parts) / PARTS
}

fn below(count: u64, draws: &mut Draws) -> u64 {
    let place = draws.below(usize::try_from(count).unwrap_or(usize::MAX));
    u64::try_from(place).unwrap_or(0)
}
