//! Usage as upstreams tell it, in whatever place and form, and its normal form. An odd number never makes
//! an answer fail: it is brought into range, and the figures are marked.

mod cost;

use schemas::usage::{TOKENS_MAX, Usage, UsageFlag};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::estimate;

/// What an upstream told about one answer. A later figure replaces an earlier one; they are never added.
/// `None` means that it was not told, or was no number: that part has to be estimated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UsageFacts {
    /// All input, cached parts included.
    pub prompt_tokens: Option<u64>,
    /// All output, reasoning included.
    pub completion_tokens: Option<u64>,
    /// The upstream's own total.
    pub total_tokens: Option<u64>,
    /// Input read from a cache.
    pub cached_tokens: Option<u64>,
    /// Input written to a cache.
    pub cache_write_tokens: Option<u64>,
    /// Output that was reasoning.
    pub reasoning_tokens: Option<u64>,
    /// What the upstream charges us, in nano-dollars, where it tells that in dollars.
    pub cost_nano_usd: Option<i64>,
    /// A count was fractional or written as text, and was made a whole number.
    pub clamped: bool,
    /// A count was no number, negative, or beyond belief, and was left out: nobody pays for such a figure.
    pub malformed: bool,
    /// A count was never told, and was estimated.
    pub partial: bool,
}

impl UsageFacts {
    /// Reads the JSON of a `usage` member. `None` when it tells neither input nor output.
    pub fn read(text: &str) -> Option<Self> {
        object::<Members<'_>>(text)?.facts()
    }

    /// Reads the `x_groq` member, which may hold the usage.
    pub(super) fn read_groq(text: &str) -> Option<Self> {
        Self::read(object::<Groq<'_>>(text)?.usage?.get())
    }

    /// Reads the `timings` member of llama.cpp, which is there even when usage is not.
    pub(super) fn read_timings(text: &str) -> Option<Self> {
        object::<Timings<'_>>(text)?.facts()
    }

    /// These facts, or nothing where every figure is 0: no request is without tokens, so that nothing was counted. What
    /// the upstream charges still counts.
    #[must_use]
    pub fn counted(self) -> Option<Self> {
        let none = |count: Option<u64>| count.unwrap_or(0) == 0;
        if !none(self.prompt_tokens) || !none(self.completion_tokens) {
            return Some(self);
        }
        let odd = self.malformed || self.cost_nano_usd.is_some_and(|cost| cost != 0);
        odd.then_some(Self {
            cost_nano_usd: self.cost_nano_usd,
            malformed: self.malformed,
            clamped: self.clamped,
            ..Self::default()
        })
    }

    /// What is known once `later` was told.
    pub fn after(earlier: Option<Self>, later: Self) -> Option<Self> {
        match (earlier, later.counted()) {
            (Some(earlier), Some(later)) => Some(earlier.followed_by(later)),
            (earlier, later) => later.or(earlier),
        }
    }

    /// These facts and what was told after them: of each class the last figure. Output that was told last and cannot be
    /// believed is not what was told of it before, while there was less.
    #[must_use]
    fn followed_by(self, later: Self) -> Self {
        let whole = later.prompt_tokens.is_some() && later.completion_tokens.is_some();
        let earlier_output = self.completion_tokens.filter(|_| !later.malformed);
        Self {
            prompt_tokens: later.prompt_tokens.or(self.prompt_tokens),
            completion_tokens: later.completion_tokens.or(earlier_output),
            // An earlier total is one of less.
            total_tokens: later.total_tokens,
            cached_tokens: later.cached_tokens.or(self.cached_tokens),
            cache_write_tokens: later.cache_write_tokens.or(self.cache_write_tokens),
            reasoning_tokens: later.reasoning_tokens.or(self.reasoning_tokens),
            cost_nano_usd: later.cost_nano_usd.or(self.cost_nano_usd),
            clamped: later.clamped || (self.clamped && !whole),
            malformed: later.malformed || (self.malformed && !whole),
            partial: later.partial || (self.partial && !whole),
        }
    }

    /// These facts with an estimate of what was not told, of a prompt of about `prompt_tokens` and an answer with so many
    /// bytes of generated text. A count of 0 was not told: no prompt is empty, and no text is without tokens.
    #[must_use]
    pub fn completed(self, prompt_tokens: u64, output_bytes: u64) -> Self {
        let counted = |count: Option<u64>, estimate: u64| count.filter(|count| *count > 0 || estimate == 0);
        let output = estimate::bytes_tokens(output_bytes);
        let told = (
            counted(self.prompt_tokens, prompt_tokens),
            counted(self.completion_tokens, output),
        );
        if let (Some(_), Some(_)) = told {
            return self;
        }
        Self {
            prompt_tokens: told.0.or(Some(prompt_tokens.min(TOKENS_MAX))),
            completion_tokens: told.1.or(Some(output.min(TOKENS_MAX))),
            // What the upstream summed up is not what is estimated.
            total_tokens: None,
            partial: self.partial || !self.malformed,
            ..self
        }
    }

    /// The figures in disjoint classes, and what a reader should know about them, in rising order. What was
    /// not told counts 0 here, unless it was estimated before: see [`Self::completed`].
    pub fn normalize(self) -> (Usage, Vec<UsageFlag>) {
        let mut flags = Vec::new();
        let (prompt, output) = (
            self.prompt_tokens.unwrap_or(0),
            self.completion_tokens.unwrap_or(0),
        );
        let (cached, written) = (
            self.cached_tokens.unwrap_or(0),
            self.cache_write_tokens.unwrap_or(0),
        );
        let counts = [prompt, output, cached, written];
        if self.clamped || counts.iter().any(|&count| count > TOKENS_MAX) {
            flags.push(UsageFlag::Clamped);
        }
        if self.malformed {
            flags.push(UsageFlag::Malformed);
        }
        let [prompt, output, cached, written] = counts.map(|count| count.min(TOKENS_MAX));
        if cached + written > prompt {
            flags.push(UsageFlag::CacheExceedsPrompt);
        }
        let reasoning = self.reasoning_tokens.unwrap_or(0);
        if reasoning > output {
            flags.push(UsageFlag::ReasoningExceedsOutput);
        }
        if self.total_tokens.is_some_and(|total| total != prompt + output) {
            flags.push(UsageFlag::TotalMismatch);
        }
        if self.partial {
            flags.push(UsageFlag::Partial);
        }
        let usage = Usage {
            input_tokens: prompt.saturating_sub(cached + written),
            cached_tokens: cached,
            cache_write_tokens: written,
            output_tokens: output,
            reasoning_tokens: reasoning.min(output),
        };
        flags.sort_unstable();
        (usage, flags)
    }

    /// Keeps the facts only when they tell something that can be billed.
    pub(crate) fn if_telling(self) -> Option<Self> {
        (self.prompt_tokens.is_some() || self.completion_tokens.is_some()).then_some(self)
    }

    /// Reads the first of `raws` that is told, noting what is odd about it.
    pub(crate) fn count(&mut self, raws: &[Told<'_>]) -> Option<u64> {
        let readings = raws.iter().flatten().map(|raw| Reading::of(raw.get()));
        match readings.into_iter().find(|reading| *reading != Reading::Absent)? {
            Reading::Count(count) => Some(count),
            Reading::Clamped(count) => {
                self.clamped = true;
                Some(count)
            }
            Reading::Absent => None,
            Reading::Malformed => {
                self.malformed = true;
                None
            }
        }
    }
}

/// Reads an object; anything else tells nothing.
fn object<'a, T: Deserialize<'a>>(text: &'a str) -> Option<T> {
    if text.starts_with('{') {
        serde_json::from_str(text).ok()
    } else {
        None
    }
}

/// A member that may be anything.
pub(crate) type Told<'a> = Option<&'a RawValue>;

/// The members of a usage object that somebody is known to send.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Members<'a> {
    #[serde(borrow)]
    prompt_tokens: Told<'a>,
    completion_tokens: Told<'a>,
    total_tokens: Told<'a>,
    prompt_tokens_details: Told<'a>,
    completion_tokens_details: Told<'a>,
    reasoning_tokens: Told<'a>,
    cached_tokens: Told<'a>,
    cache_read_tokens: Told<'a>,
    cache_read_input_tokens: Told<'a>,
    cache_write_tokens: Told<'a>,
    cache_creation_input_tokens: Told<'a>,
    prompt_cache_hit_tokens: Told<'a>,
    prompt_cache_miss_tokens: Told<'a>,
    cost: Told<'a>,
    cost_details: Told<'a>,
    is_byok: Told<'a>,
}

/// What a usage object says about parts of the prompt or of the output.
#[derive(Default, Deserialize)]
#[serde(default)]
#[expect(clippy::struct_field_names, reason = "names of the wire")]
struct Details<'a> {
    #[serde(borrow)]
    cached_tokens: Told<'a>,
    cache_write_tokens: Told<'a>,
    cache_creation_tokens: Told<'a>,
    reasoning_tokens: Told<'a>,
}

impl<'a> Details<'a> {
    fn read(raw: Told<'a>) -> Self {
        raw.and_then(|raw| object(raw.get())).unwrap_or_default()
    }
}

impl Members<'_> {
    fn facts(&self) -> Option<UsageFacts> {
        let (prompt, output) = (
            Details::read(self.prompt_tokens_details),
            Details::read(self.completion_tokens_details),
        );
        let mut facts = UsageFacts::default();
        facts.prompt_tokens = facts.count(&[self.prompt_tokens]);
        facts.completion_tokens = facts.count(&[self.completion_tokens]);
        facts.total_tokens = facts.count(&[self.total_tokens]);
        facts.cached_tokens = facts.count(&[
            prompt.cached_tokens,
            self.prompt_cache_hit_tokens,
            self.cached_tokens,
            self.cache_read_tokens,
            self.cache_read_input_tokens,
        ]);
        facts.cache_write_tokens = facts.count(&[
            prompt.cache_write_tokens,
            prompt.cache_creation_tokens,
            self.cache_write_tokens,
            self.cache_creation_input_tokens,
        ]);
        facts.reasoning_tokens = facts.count(&[output.reasoning_tokens, self.reasoning_tokens]);
        if facts.prompt_tokens.is_none() {
            let hit = facts.count(&[self.prompt_cache_hit_tokens]);
            let miss = facts.count(&[self.prompt_cache_miss_tokens]);
            facts.prompt_tokens = hit.zip(miss).map(|(hit, miss)| hit + miss);
        }
        facts.cost_nano_usd = self.cost();
        facts.if_telling()
    }

    /// What the call costs us: with a key of our own behind the upstream, what that key pays comes on top.
    fn cost(&self) -> Option<i64> {
        let cost = cost::nano_usd(self.cost?.get())?;
        if self.is_byok.is_none_or(|raw| raw.get() != "true") {
            return Some(cost);
        }
        let details: CostDetails<'_> = self
            .cost_details
            .and_then(|raw| object(raw.get()))
            .unwrap_or_default();
        let behind = details
            .upstream_inference_cost
            .and_then(|raw| cost::nano_usd(raw.get()));
        cost.checked_add(behind.unwrap_or(0))
    }
}

/// What a cost is made of.
#[derive(Default, Deserialize)]
#[serde(default)]
struct CostDetails<'a> {
    #[serde(borrow)]
    upstream_inference_cost: Told<'a>,
}

/// The extension of one provider that holds its usage.
#[derive(Deserialize)]
struct Groq<'a> {
    #[serde(borrow, default)]
    usage: Told<'a>,
}

/// The members of llama.cpp's `timings` that count tokens.
#[derive(Deserialize)]
#[expect(clippy::struct_field_names, reason = "names of the wire")]
struct Timings<'a> {
    #[serde(borrow, default)]
    prompt_n: Told<'a>,
    #[serde(default)]
    cache_n: Told<'a>,
    #[serde(default)]
    predicted_n: Told<'a>,
}

impl Timings<'_> {
    fn facts(&self) -> Option<UsageFacts> {
        let mut facts = UsageFacts::default();
        let fresh = facts.count(&[self.prompt_n]);
        facts.cached_tokens = facts.count(&[self.cache_n]);
        facts.prompt_tokens = fresh.map(|fresh| fresh + facts.cached_tokens.unwrap_or(0));
        facts.completion_tokens = facts.count(&[self.predicted_n]);
        facts.if_telling()
    }
}

/// A count as it was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reading {
    Absent,
    Count(u64),
    Clamped(u64),
    Malformed,
}

impl Reading {
    /// Reads any JSON value; a number in quotes counts as one.
    fn of(text: &str) -> Self {
        if text == "null" {
            return Self::Absent;
        }
        let quoted = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
        match (Self::number(quoted.unwrap_or(text).trim()), quoted) {
            (Self::Count(count), Some(_)) => Self::Clamped(count),
            (reading, _) => reading,
        }
    }

    fn number(text: &str) -> Self {
        if let Ok(count) = text.parse::<u64>() {
            return if count <= TOKENS_MAX {
                Self::Count(count)
            } else {
                Self::Malformed
            };
        }
        let signed = text.strip_prefix('-').unwrap_or(text);
        match text.parse::<f64>() {
            Ok(number) if signed.starts_with(|first: char| first.is_ascii_digit()) => Self::float(number),
            _ => Self::Malformed,
        }
    }

    fn float(number: f64) -> Self {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the cast saturates"
        )]
        let count = number as u64;
        if count > TOKENS_MAX || number < 0.0 {
            Self::Malformed
        } else if number.fract() != 0.0 {
            Self::Clamped(count)
        } else {
            Self::Count(count)
        }
    }
}

#[cfg(test)]
mod tests;
