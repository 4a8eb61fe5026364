//! Usage of an answer of several choices. Most servers tell one figure for all of them, in a chunk without choices.
//! Some tell each choice its own, in its chunks: those are added up, and the prompt counts once for all its choices, as
//! it does where one figure is told. llama.cpp's figures are of one choice wherever they stand: where there are no
//! choices beside them they are of the one that ended last, and those of a whole answer are of the first.

use schemas::usage::TOKENS_MAX;

use super::usage::UsageFacts;
use crate::chat::answer::Answer;
use crate::estimate;
use crate::passage::Seen;
use crate::passage::request::Asked;

/// Most choices that are told apart. What others generate is estimated.
const CHOICES_MAX: u64 = 4_096;

/// What was told and generated so far.
#[derive(Debug, Default)]
pub struct Shares {
    /// What was told, whatever it is of: of each class the last figure.
    last: Option<UsageFacts>,
    /// What was told of all choices.
    total: Option<UsageFacts>,
    /// The choices by their index.
    choices: Vec<Share>,
    /// The choice that ended last.
    ended: Option<u64>,
    /// Bytes of generated text of choices that are not told apart.
    other_bytes: u64,
}

/// One choice.
#[derive(Debug, Clone, Copy, Default)]
struct Share {
    told: Option<UsageFacts>,
    output_bytes: u64,
}

impl Shares {
    /// Of an answer that has one choice, or is told of as if it had.
    pub fn of(usage: UsageFacts) -> Self {
        Self {
            last: Some(usage),
            total: Some(usage),
            ..Self::default()
        }
    }

    /// Takes in what an event of a stream tells.
    pub fn hear(&mut self, seen: &Seen) {
        let said = u64::try_from(seen.output_bytes).unwrap_or(u64::MAX);
        match seen.choice.filter(|index| *index < CHOICES_MAX) {
            Some(index) => {
                let share = self.share(index);
                share.output_bytes = share.output_bytes.saturating_add(said);
                if seen.finished {
                    self.ended = Some(index);
                }
            }
            None => self.other_bytes = self.other_bytes.saturating_add(said),
        }
        let Some(usage) = seen.usage else {
            return;
        };
        self.last = UsageFacts::after(self.last, usage);
        let of = seen.choice.or(self.ended.filter(|_| seen.usage_of_one));
        match of {
            Some(index) if index < CHOICES_MAX => {
                let share = self.share(index);
                share.told = UsageFacts::after(share.told, usage);
            }
            Some(_) => {}
            None => self.total = UsageFacts::after(self.total, usage),
        }
    }

    /// Of an answer that came whole.
    pub fn of_answer(answer: &Answer) -> Self {
        let usage = answer.usage.and_then(UsageFacts::counted);
        let told = Self {
            last: usage,
            ..Self::default()
        };
        if answer.choices < 2 || !answer.usage_of_one {
            return told;
        }
        let wide = |bytes: usize| u64::try_from(bytes).unwrap_or(u64::MAX);
        let first = Share {
            told: usage,
            output_bytes: wide(answer.first_output_bytes),
        };
        let others = Share {
            told: None,
            output_bytes: wide(answer.output_bytes.saturating_sub(answer.first_output_bytes)),
        };
        Self {
            choices: vec![first, others],
            ..told
        }
    }

    /// The usage that was told, with estimates of what was told of some choices and not of others; `None` where nothing
    /// was told. `asked` reads the request, because it is rarely needed.
    pub fn usage(&self, asked: impl FnOnce() -> Asked) -> Option<UsageFacts> {
        let counts = |facts: &UsageFacts| {
            facts.prompt_tokens.is_some_and(|count| count > 0)
                && facts.completion_tokens.is_some_and(|count| count > 0)
        };
        let is_apart = self.is_apart() && self.choices.iter().any(|share| share.told.is_some());
        if !is_apart {
            return self.last;
        }
        self.total.filter(counts).or_else(|| Some(self.sum(&asked())))
    }

    /// Whether more than one choice was heard of.
    pub const fn is_apart(&self) -> bool {
        self.choices.len() > 1
    }

    /// Whether nothing more has to be told: of every choice that was heard of, or of all together.
    pub fn is_whole(&self) -> bool {
        self.total.is_some()
            || (!self.choices.is_empty() && self.choices.iter().all(|share| share.told.is_some()))
    }

    /// All choices together: the prompt of each group of choices by the first of them that tells it.
    fn sum(&self, asked: &Asked) -> UsageFacts {
        let mut sum = UsageFacts::default();
        let (mut prompt, mut output) = (0_u64, estimate::bytes_tokens(self.other_bytes));
        sum.partial = self.other_bytes > 0;
        for share in &self.choices {
            let told = share.told.unwrap_or_default();
            sum.clamped |= told.clamped;
            sum.malformed |= told.malformed;
            let estimate = estimate::bytes_tokens(share.output_bytes);
            let counted = told.completion_tokens.filter(|count| *count > 0 || estimate == 0);
            sum.partial |= counted.is_none() && estimate > 0;
            output = output.saturating_add(counted.unwrap_or(estimate));
            add(&mut sum.reasoning_tokens, told.reasoning_tokens);
            let cost = told
                .cost_nano_usd
                .map(|cost| cost.saturating_add(sum.cost_nano_usd.unwrap_or(0)));
            sum.cost_nano_usd = cost.or(sum.cost_nano_usd);
        }
        let mut groups = self.choices.chunks(asked.choices_each.max(1));
        for &estimate in &asked.prompt_tokens {
            let mut told = groups.next().into_iter().flatten().filter_map(|share| share.told);
            let told = told.find(|told| told.prompt_tokens.is_some_and(|count| count > 0));
            sum.partial |= told.is_none();
            let told = told.unwrap_or_default();
            prompt = prompt.saturating_add(told.prompt_tokens.unwrap_or(estimate));
            add(&mut sum.cached_tokens, told.cached_tokens);
            add(&mut sum.cache_write_tokens, told.cache_write_tokens);
        }
        sum.prompt_tokens = Some(prompt.min(TOKENS_MAX));
        sum.completion_tokens = Some(output.min(TOKENS_MAX));
        sum
    }

    fn share(&mut self, index: u64) -> &mut Share {
        let place = usize::try_from(index).unwrap_or(usize::MAX);
        if place >= self.choices.len() {
            self.choices.resize(place.saturating_add(1), Share::default());
        }
        &mut self.choices[place]
    }
}

/// Adds a count, where it was told.
const fn add(sum: &mut Option<u64>, count: Option<u64>) {
    if let Some(count) = count {
        let before = match *sum {
            Some(before) => before,
            None => 0,
        };
        *sum = Some(before.saturating_add(count));
    }
}

#[cfg(test)]
mod tests;
