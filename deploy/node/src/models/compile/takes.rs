//! Which parameters the model of a leg takes.

use std::ops::BitOr as _;

use schemas::parameter::{Parameters, Takes};

use super::super::file::{Entry, Leg};

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
