//! The end of a stream that generates more than its request holds of its limits.

use dialects::chat::shares::Shares;
use dialects::chat::usage::UsageFacts;
use dialects::estimate;
use dialects::passage::request::choices_asked;
use dialects::passage::stop::Stop;

use super::{Course, Over, Reading};

/// Bytes that hardly any token has.
const TOKEN_BYTES_MAX: u64 = 16;
/// Bytes beyond that an answer of few tokens may have.
const BYTES_SPARE: u64 = 1_024;
/// Pieces beyond its tokens that an answer may come in.
const PIECES_SPARE: u64 = 4;

impl Reading<'_> {
    /// More was generated than the request holds of its limits, whatever its upstream counts as tokens: pieces are
    /// mostly one token each, and hardly any token has so many bytes.
    pub(super) fn exceeds(&self) -> bool {
        let Some(held) = self.manner.output_tokens_held.filter(|_| !self.done()) else {
            return false;
        };
        let pieces_max = held.saturating_add(held / 8).saturating_add(PIECES_SPARE);
        let bytes_max = held.saturating_mul(TOKEN_BYTES_MAX).saturating_add(BYTES_SPARE);
        self.pieces > pieces_max || self.generated_bytes > bytes_max
    }

    /// Ends the answer where it is, as one that ran into its maximum of tokens. False where that cannot be said.
    pub(super) fn stop(&mut self) -> bool {
        let held = self.manner.output_tokens_held.unwrap_or(u64::MAX);
        let said = estimate::bytes_tokens(self.generated_bytes).min(held);
        let before = self.usage();
        let told = before.unwrap_or_default();
        let usage = UsageFacts {
            prompt_tokens: told.prompt_tokens.or(Some(self.manner.prompt_tokens)),
            completion_tokens: Some(told.completion_tokens.unwrap_or(0).max(said).min(held)),
            total_tokens: None,
            partial: true,
            ..told
        };
        match &mut self.course {
            Course::Translated(translation) => {
                translation.stop(usage, self.output.buffer());
                self.finished_choices = 1;
            }
            Course::Passing {
                skimmer,
                end,
                last,
                follower,
            } => {
                let stop = Stop {
                    dialect: self.manner.caller,
                    model_json: self.manner.model_json,
                    choices: choices_asked(self.manner.caller, self.manner.asked),
                    tokens: (
                        usage.prompt_tokens.unwrap_or(0),
                        usage.completion_tokens.unwrap_or(0),
                    ),
                    include_usage: self.manner.include_usage,
                    last,
                    followed: follower.as_deref(),
                };
                let Some(ending) = skimmer.stop(&stop) else {
                    return false;
                };
                self.output.buffer().extend_from_slice(&ending.events);
                *end = Some(ending.mark);
            }
        }
        // Of an upstream that told nothing all is estimated where the waybill is written.
        if before.is_some() {
            self.told = Shares::of(usage);
        }
        self.over = Over::Stopped;
        true
    }

    /// It was ended here: nothing that its upstream still says is wanted.
    pub(in crate::attempt) const fn stopped(&self) -> bool {
        matches!(self.over, Over::Stopped)
    }
}
