//! Which parameters the model of a leg takes.

use std::ops::BitOr as _;

use schemas::parameter::{Parameters, Takes};

use super::super::file::{Entry, Leg};
use super::Context;
use crate::yaml::Problem;

/// Words of lists of parameters that stand for nothing that a model may refuse here: limits of tokens, what has switches
/// of its own, and what lists of others have beside.
const KNOWN: [&str; 19] = [
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "response_format",
    "structured_outputs",
    "stream",
    "stream_options",
    "user",
    "store",
    "metadata",
    "verbosity",
    "web_search_options",
    "service_tier",
    "top_a",
    "prediction",
    "modalities",
];

impl Context<'_> {
    /// Names the words of lists of parameters that nobody knows: what they were meant for is refused.
    pub(super) fn note_unknown_parameters(&self, problems: &mut Vec<Problem>) {
        let of_legs = self.entry.route.iter().flatten().enumerate();
        let of_legs = of_legs.map(|(n, leg)| (format!("route[{n}]."), &leg.supported_params));
        let lists = std::iter::once((String::new(), &self.entry.supported_params)).chain(of_legs);
        for (prefix, list) in lists {
            for (n, word) in list.iter().flatten().enumerate() {
                if Parameters::of_word(word).is_some() || KNOWN.contains(&word.as_str()) {
                    continue;
                }
                problems.push(self.problem(
                    &format!("{prefix}supported_params[{n}]"),
                    format!("\"{word}\" is no parameter that is known, and allows nothing"),
                    "correct it, or remove it",
                ));
            }
        }
    }
}

/// What is said of the leg, else of its entry. A file that does not list parameters refuses none; tools and the form of
/// an answer have switches of their own, and whoever lists words of effort takes one.
pub(super) fn takes(entry: &Entry, leg: &Leg) -> Takes {
    let listed = leg
        .supported_params
        .as_deref()
        .or(entry.supported_params.as_deref());
    let efforts = leg
        .reasoning_efforts
        .as_deref()
        .unwrap_or(&entry.reasoning_efforts);
    let switches = Parameters::TOOLS | Parameters::FORMAT;
    let mut parameters = match listed {
        None => Parameters::ALL.without(switches),
        Some(words) => words
            .iter()
            .filter_map(|word| Parameters::of_word(word))
            .fold(Parameters::default(), Parameters::bitor),
    };
    for (parameter, is_on) in [
        (Parameters::TOOLS, leg.supports_tools.or(entry.supports_tools)),
        (
            Parameters::FORMAT,
            leg.supports_structured_output
                .or(entry.supports_structured_output),
        ),
        (Parameters::EFFORT, Some(!efforts.is_empty())),
    ] {
        if is_on == Some(true) {
            parameters = parameters | parameter;
        }
    }
    let lists_effort = listed.is_some() && parameters.contains(Parameters::EFFORT);
    Takes {
        parameters,
        reasons: lists_effort || !efforts.is_empty(),
        efforts: efforts.to_vec(),
        effort_binding: leg.effort_binding.or(entry.effort_binding).unwrap_or(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn a_file_that_lists_nothing_refuses_nothing_but_what_has_a_switch() {
        let takes = takes(&Entry::default(), &Leg::default());

        let switches = Parameters::TOOLS | Parameters::FORMAT;
        assert_eq!(takes.parameters, Parameters::ALL.without(switches));
        assert_eq!(takes.lacking(switches), switches);
    }

    #[test]
    fn what_a_leg_says_of_its_model_outweighs_the_entry() {
        let entry = Entry {
            supported_params: Some(words(&["temperature", "top_p", "max_tokens"])),
            supports_tools: Some(true),
            ..Entry::default()
        };
        let leg = Leg {
            supported_params: Some(words(&["temperature", "stop"])),
            reasoning_efforts: Some(words(&["low", "high"])),
            effort_binding: Some(true),
            ..Leg::default()
        };

        let own = takes(&entry, &leg);
        let inherited = takes(&entry, &Leg::default());

        let sampling = Parameters::TEMPERATURE | Parameters::STOP;
        assert_eq!(own.parameters, sampling | Parameters::TOOLS | Parameters::EFFORT);
        assert_eq!(own.efforts, ["low", "high"]);
        assert!(own.effort_binding && own.reasons);
        assert!(!inherited.reasons);
        assert_eq!(
            inherited.parameters,
            Parameters::TEMPERATURE | Parameters::TOP_P | Parameters::TOOLS
        );
    }
}
