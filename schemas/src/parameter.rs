//! Parameters of a request that a model may not take, as a set: which of them a request gives another value than the
//! one that stands for nothing, and which a route's model takes. Limits of tokens are none of them: whoever asks for
//! less is never refused.

use std::ops::BitOr;

use serde::{Deserialize, Serialize};

/// A set of parameters, whatever each is called in a dialect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Parameters(u32);

/// Every parameter with the words for it in configuration, the first of which is chat's own. Tools and the form of an
/// answer have switches there instead of words.
const WORDS: [(Parameters, &[&str]); 16] = [
    (Parameters::TEMPERATURE, &["temperature"]),
    (Parameters::TOP_P, &["top_p"]),
    (Parameters::TOP_K, &["top_k"]),
    (Parameters::MIN_P, &["min_p"]),
    (Parameters::STOP, &["stop", "stop_sequences"]),
    (Parameters::SEED, &["seed"]),
    (Parameters::FREQUENCY_PENALTY, &["frequency_penalty"]),
    (Parameters::PRESENCE_PENALTY, &["presence_penalty"]),
    (Parameters::REPETITION_PENALTY, &["repetition_penalty"]),
    (Parameters::LOGIT_BIAS, &["logit_bias"]),
    (Parameters::LOGPROBS, &["logprobs", "top_logprobs"]),
    (Parameters::CHOICES, &["n"]),
    (Parameters::DIMENSIONS, &["dimensions"]),
    (
        Parameters::EFFORT,
        &["reasoning_effort", "reasoning", "thinking", "include_reasoning"],
    ),
    (Parameters::TOOLS, &[]),
    (Parameters::FORMAT, &[]),
];

impl Parameters {
    /// How boldly tokens are drawn.
    pub const TEMPERATURE: Self = Self(1);
    /// The share of likely tokens that are drawn from.
    pub const TOP_P: Self = Self(1 << 1);
    /// The number of likely tokens that are drawn from.
    pub const TOP_K: Self = Self(1 << 2);
    /// The least likelihood of tokens that are drawn from.
    pub const MIN_P: Self = Self(1 << 3);
    /// Texts that end the answer.
    pub const STOP: Self = Self(1 << 4);
    /// What makes an answer repeatable.
    pub const SEED: Self = Self(1 << 5);
    /// A penalty on what was said often.
    pub const FREQUENCY_PENALTY: Self = Self(1 << 6);
    /// A penalty on what was said at all.
    pub const PRESENCE_PENALTY: Self = Self(1 << 7);
    /// The same as a factor.
    pub const REPETITION_PENALTY: Self = Self(1 << 8);
    /// Likelihoods of single tokens.
    pub const LOGIT_BIAS: Self = Self(1 << 9);
    /// How likely the tokens of the answer were.
    pub const LOGPROBS: Self = Self(1 << 10);
    /// More than one choice.
    pub const CHOICES: Self = Self(1 << 11);
    /// The length of vectors.
    pub const DIMENSIONS: Self = Self(1 << 12);
    /// How much to think.
    pub const EFFORT: Self = Self(1 << 13);
    /// What the model may call.
    pub const TOOLS: Self = Self(1 << 14);
    /// The form of the answer.
    pub const FORMAT: Self = Self(1 << 15);
    /// All of them.
    pub const ALL: Self = Self((1 << 16) - 1);

    /// True when all of `other` is in this set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// What is in this set and not in `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// What is in both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// True for the empty set.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Each of the set by itself, in a fixed order.
    pub fn each(self) -> impl Iterator<Item = Self> {
        let all = WORDS.iter().map(|(parameter, _)| *parameter);
        all.filter(move |parameter| self.contains(*parameter))
    }

    /// The parameter of a word in configuration; `None` for words that stand for nothing that is looked at.
    pub fn of_word(word: &str) -> Option<Self> {
        let found = WORDS.iter().find(|(_, words)| words.contains(&word));
        found.map(|(parameter, _)| *parameter)
    }
}

impl BitOr for Parameters {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// What a route's model takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Takes {
    /// Parameters; all of them where nobody has said anything.
    pub parameters: Parameters,
    /// Words of effort; empty for all of them.
    pub efforts: Vec<String>,
    /// An effort that it does not take is refused like any other parameter, instead of being dropped as the hint that
    /// it is.
    pub effort_binding: bool,
    /// It is known to think before it answers.
    pub reasons: bool,
}

impl Default for Takes {
    fn default() -> Self {
        Self {
            parameters: Parameters::ALL,
            efforts: Vec::new(),
            effort_binding: false,
            reasons: false,
        }
    }
}

impl Takes {
    /// What of `asks` it does not take.
    pub const fn lacking(&self, asks: Parameters) -> Parameters {
        asks.without(self.parameters)
    }

    /// What of `asks` must be refused. `drops`: the route drops what cannot be done instead of refusing it.
    pub const fn refused(&self, asks: Parameters, drops: bool) -> Parameters {
        if drops {
            return Parameters(0);
        }
        let lacking = self.lacking(asks);
        if self.effort_binding {
            lacking
        } else {
            lacking.without(Parameters::EFFORT)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_parameter_is_one_bit_and_stands_once_among_the_words() {
        let all = WORDS
            .iter()
            .fold(Parameters::default(), |set, (parameter, words)| {
                assert_eq!(parameter.0.count_ones(), 1, "{words:?}");
                assert!(!set.contains(*parameter), "{words:?}");
                set | *parameter
            });

        assert_eq!(all, Parameters::ALL);
        assert_eq!(Parameters::ALL.each().count(), WORDS.len());
        assert_eq!(Parameters::of_word("top_logprobs"), Some(Parameters::LOGPROBS));
        assert_eq!(Parameters::of_word("max_tokens"), None);
    }

    #[test]
    fn what_is_not_taken_is_refused_unless_it_is_a_hint_or_the_route_drops_it() {
        let takes = Takes {
            parameters: Parameters::TEMPERATURE,
            ..Takes::default()
        };
        let asks = Parameters::TEMPERATURE | Parameters::TOP_K | Parameters::EFFORT;

        assert_eq!(takes.lacking(asks), Parameters::TOP_K | Parameters::EFFORT);
        assert_eq!(takes.refused(asks, false), Parameters::TOP_K);
        assert!(takes.refused(asks, true).is_empty());
        let binding = Takes {
            effort_binding: true,
            ..takes
        };
        assert_eq!(binding.refused(Parameters::EFFORT, false), Parameters::EFFORT);
        assert!(Takes::default().lacking(Parameters::ALL).is_empty());
    }
}
