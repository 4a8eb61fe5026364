//! Requests as the model of a candidate takes them, pure: what it does not take is refused by name, unless the route
//! drops it, or it is no more than a hint of how much to think.

use bytes::Bytes;
use dialects::parameter::told::called;
use dialects::parameter::{effort_words, taken_out, without};
use dialects::skim::{self, Limits};
use dialects::superset::request::Unmappable;
use schemas::command::{Offer, Splice};
use schemas::parameter::{Parameters, Takes};

/// A request without something that its caller asked for.
#[derive(Debug)]
pub(super) struct Fitted {
    /// The body.
    pub(super) body: Bytes,
    /// Where to edit it.
    pub(super) splice: Splice,
    /// What is not in it, as its caller calls it.
    pub(super) dropped: Vec<&'static str>,
}

/// The request as a model takes it; `None` where that is as it is. `drops`: the route drops what cannot be done;
/// `tells_of_tools`: whether anything in the body may be about tools.
pub(super) fn fit(
    takes: &Takes,
    drops: bool,
    (offer, body): (&Offer, &Bytes),
    tells_of_tools: &mut dyn FnMut() -> bool,
) -> Result<Option<Fitted>, Unmappable> {
    let asks = offer.requirements.parameters;
    if let Some(first) = takes.refused(asks, drops).each().next() {
        return Err(refusal(called(offer.surface, body, first)));
    }
    let lacking = takes.lacking(asks) | unused(takes, asks, tells_of_tools);
    let others = other_efforts(takes, asks, offer, body);
    if lacking.is_empty() && others.is_empty() {
        return Ok(None);
    }
    if let Some(first) = others.first().filter(|_| takes.effort_binding && !drops) {
        return Err(refusal(first));
    }
    let (mut left, mut dropped) = without(offer.surface, body, lacking);
    if !others.is_empty() {
        let (rest, words) = taken_out(&left, &others);
        left = rest;
        dropped.extend(words);
    }
    if dropped.is_empty() {
        return Ok(None);
    }
    // Its nesting was bounded when it came in.
    let limits = Limits {
        depth_max: usize::MAX,
        ..Limits::default()
    };
    let skim = skim::skim(offer.surface, &left, &limits);
    let skim = skim.map_err(|_| refusal("model"))?;
    Ok(Some(Fitted {
        splice: skim::splice_facts(&skim),
        body: left,
        dropped,
    }))
}

/// What is said of tools where there are none that the model could take, and none has to be called.
fn unused(takes: &Takes, asks: Parameters, tells_of_tools: &mut dyn FnMut() -> bool) -> Parameters {
    let is_unused = !(takes.parameters | asks).contains(Parameters::TOOLS);
    if is_unused && tells_of_tools() {
        Parameters::TOOLS
    } else {
        Parameters::default()
    }
}

/// Where words for how much to think stand that are none of the model's.
fn other_efforts(takes: &Takes, asks: Parameters, offer: &Offer, body: &[u8]) -> Vec<&'static str> {
    let is_taken = takes.parameters.and(asks).contains(Parameters::EFFORT);
    if !is_taken || takes.efforts.is_empty() {
        return Vec::new();
    }
    let words = effort_words(offer.surface, body).into_iter();
    words
        .filter(|(_, word)| !takes.efforts.contains(word))
        .map(|(place, _)| place)
        .collect()
}

fn refusal(param: &'static str) -> Unmappable {
    Unmappable {
        param: param.into(),
        problem: "the model does not take it".into(),
    }
}

#[cfg(test)]
mod tests {
    use schemas::catalog::Route;
    use schemas::event::request::Surface;

    use super::*;
    use crate::testing::{model, offer};

    fn asked(surface: Surface, body: &str) -> (Offer, Bytes) {
        let skim = skim::skim(surface, body.as_bytes(), &Limits::default()).expect("a body");
        let mut offer = Offer {
            surface,
            splice: skim::splice_facts(&skim),
            ..offer(&model(Vec::<Route>::new()))
        };
        offer.requirements.parameters = skim.parameters;
        (offer, Bytes::copy_from_slice(body.as_bytes()))
    }

    fn fitted(takes: &Takes, drops: bool, (offer, body): &(Offer, Bytes)) -> Result<Option<Fitted>, String> {
        let mut tells_of_tools = || dialects::passage::request::suspicion(body).tools;
        fit(takes, drops, (offer, body), &mut tells_of_tools).map_err(|refusal| refusal.param.into_owned())
    }

    fn takes(parameters: Parameters) -> Takes {
        Takes {
            parameters,
            ..Takes::default()
        }
    }

    const CHAT: &str = r#"{"temperature":0.2,"model":"m","top_k":5,"stop":["x"],"messages":[{"role":"user","content":"hi"}]}"#;

    #[test]
    fn what_a_model_takes_or_what_stands_for_nothing_stays() {
        let defaults = r#"{"model":"m","temperature":1,"top_k":null,"n":1,"seed":null,"stop":[],"logprobs":false,"frequency_penalty":0,"messages":[{"role":"user","content":"hi"}]}"#;

        let taken = fitted(&Takes::default(), false, &asked(Surface::Chat, CHAT));
        let nothing = fitted(
            &takes(Parameters::default()),
            false,
            &asked(Surface::Chat, defaults),
        );

        assert!(matches!(taken, Ok(None)));
        assert!(matches!(nothing, Ok(None)), "{nothing:?}");
    }

    #[test]
    fn what_is_said_of_tools_where_there_are_none_is_dropped_for_a_model_that_takes_none() {
        let chat = |more: &str| {
            let body = format!(r#"{{"model":"m",{more}"messages":[{{"role":"user","content":"a tool"}}]}}"#);
            let asked = asked(Surface::Chat, &body);
            let (none, all) = (
                takes(Parameters::ALL.without(Parameters::TOOLS)),
                Takes::default(),
            );
            assert!(matches!(fitted(&all, false, &asked), Ok(None)), "{more}");
            fitted(&none, false, &asked).map(|fitted| fitted.map_or_else(Vec::new, |fitted| fitted.dropped))
        };

        assert_eq!(chat(""), Ok(vec![]));
        assert_eq!(chat(r#""tool_choice":"auto","#), Ok(vec!["tool_choice"]));
        assert_eq!(
            chat(r#""tools":[],"tool_choice":"none","parallel_tool_calls":true,"#),
            Ok(vec!["tools", "tool_choice", "parallel_tool_calls"])
        );
        assert_eq!(
            chat(r#""tool_choice":"required","#),
            Err("tool_choice".to_owned())
        );
        assert_eq!(
            chat(r#""tools":[{}],"tool_choice":"auto","#),
            Err("tools".to_owned())
        );
    }

    #[test]
    fn what_it_does_not_take_is_refused_by_the_callers_name_for_it() {
        let only = takes(Parameters::TEMPERATURE);
        let messages = r#"{"model":"m","max_tokens":9,"stop_sequences":["x"],"messages":[{"role":"user","content":"hi"}]}"#;

        let chat = fitted(&only, false, &asked(Surface::Chat, CHAT)).map(|_| ());
        let messages = fitted(&only, false, &asked(Surface::Messages, messages)).map(|_| ());

        assert_eq!(chat, Err("top_k".to_owned()));
        assert_eq!(messages, Err("stop_sequences".to_owned()));
    }

    #[test]
    fn a_route_that_drops_sends_the_rest_and_knows_where_to_edit_it() {
        let only = takes(Parameters::TEMPERATURE);

        let fitted = fitted(&only, true, &asked(Surface::Chat, CHAT));

        let fitted = fitted.expect("fits").expect("differs");
        assert_eq!(
            fitted.body,
            r#"{"temperature":0.2,"model":"m","messages":[{"role":"user","content":"hi"}]}"#
        );
        assert_eq!(fitted.dropped, ["top_k", "stop"]);
        let (start, end) = fitted.splice.model;
        assert_eq!(&fitted.body[start..end], b"\"m\"");
    }

    #[test]
    fn effort_is_a_hint_unless_the_file_makes_it_more() {
        let body = r#"{"model":"m","input":"hi","reasoning":{"effort":"high"}}"#;
        let hint = takes(Parameters::TEMPERATURE);
        let binding = Takes {
            effort_binding: true,
            ..hint.clone()
        };

        let dropped = fitted(&hint, false, &asked(Surface::Responses, body));
        let refused = fitted(&binding, false, &asked(Surface::Responses, body)).map(|_| ());

        assert_eq!(
            dropped.expect("fits").expect("differs").dropped,
            ["reasoning.effort"]
        );
        assert_eq!(refused, Err("reasoning.effort".to_owned()));
    }

    #[test]
    fn a_word_of_effort_that_the_model_does_not_know_is_dropped_and_others_stay() {
        let body = |effort: &str| {
            format!(
                r#"{{"model":"m","reasoning_effort":"{effort}","messages":[{{"role":"user","content":"hi"}}]}}"#
            )
        };
        let some = Takes {
            efforts: vec!["low".to_owned(), "high".to_owned()],
            ..Takes::default()
        };

        let known = fitted(&some, false, &asked(Surface::Chat, &body("low")));
        let other = fitted(&some, false, &asked(Surface::Chat, &body("xhigh")));

        assert!(matches!(known, Ok(None)));
        assert_eq!(
            other.expect("fits").expect("differs").dropped,
            ["reasoning_effort"]
        );
    }

    #[test]
    fn a_word_of_effort_counts_wherever_a_caller_of_chat_writes_it() {
        let asks = |effort: &str| {
            let body = format!(
                r#"{{"model":"m","reasoning":{{"effort":"{effort}"}},"messages":[{{"role":"user","content":"hi"}}]}}"#
            );
            asked(Surface::Chat, &body)
        };
        let some = Takes {
            efforts: vec!["low".to_owned(), "high".to_owned()],
            ..Takes::default()
        };
        let binding = Takes {
            effort_binding: true,
            ..some.clone()
        };

        let other = fitted(&some, false, &asks("medium"))
            .expect("fits")
            .expect("differs");

        assert_eq!(other.dropped, ["reasoning.effort"]);
        assert_eq!(
            other.body,
            r#"{"model":"m","messages":[{"role":"user","content":"hi"}]}"#
        );
        let refused = fitted(&binding, false, &asks("medium")).map(|_| ());
        assert_eq!(refused, Err("reasoning.effort".to_owned()));
        for known in ["high", "none"] {
            assert!(
                matches!(fitted(&binding, false, &asks(known)), Ok(None)),
                "{known}"
            );
        }
    }
}
