//! What caches could give at best.

use std::collections::HashSet;

use super::trace::Trace;

/// Tokens of prompts that one engine would have found in its cache, if it kept everything and read every prompt at once:
/// the beginnings that an earlier request had. No fleet does better.
pub(super) fn ideal_tokens(trace: &Trace, block_tokens: u64) -> u64 {
    let mut seen: HashSet<u64> = HashSet::new();
    let mut tokens = 0_u64;
    for line in &trace.lines {
        let blocks = line.full_blocks(block_tokens);
        let known = blocks.iter().take_while(|block| seen.contains(block)).count();
        tokens = tokens.saturating_add(cached_tokens(known, block_tokens, line.prompt_tokens));
        seen.extend(blocks);
    }
    tokens
}

/// Tokens of a prompt that need not be read when so many of its blocks are known: the last token always is, since the
/// answer begins behind it.
pub(super) fn cached_tokens(known: usize, block_tokens: u64, prompt_tokens: u64) -> u64 {
    let known = u64::try_from(known).unwrap_or(u64::MAX);
    known
        .saturating_mul(block_tokens)
        .min(prompt_tokens.saturating_sub(1))
}
