//! Whole answers from every upstream's dialect to every caller's: all of it arrives, in a body that the dialect's
//! reader accepts; and where both speak the same, what is read in passing is what was said.

use dialects::dialect::Dialect;
use dialects::passage;
use dialects::translate::{Way, whole};

use crate::dice::Dice;
use crate::grammar::reading::{Checked, Reading, compare};
use crate::grammar::whole as reader;
use crate::plan::{Plan, Segment};
use crate::speakers::{CALLERS, UPSTREAMS};
use crate::streams::{expected, limits, usage_holds, way};
use crate::upstream::whole as written;

fn read(caller: Dialect, body: &[u8]) -> Checked<Reading> {
    match caller {
        Dialect::Messages => reader::messages(body),
        Dialect::Responses => reader::responses(body),
        Dialect::Completions => reader::completions(body),
        _ => reader::chat(body),
    }
}

/// One throw: an answer and a pair.
pub(crate) fn one(dice: &mut Dice) {
    let (from, to) = (*dice.pick(UPSTREAMS), *dice.pick(CALLERS));
    let plan = Plan::throw(dice, limits(from, to));
    let body = written::write(from, &plan, dice);
    let way: Way = way(from, to);
    let translated = whole(&way, &body);
    let judge = |body: &[u8]| {
        let reading = read(to, body)?;
        compare(&reading, &expected(from, to, &plan))?;
        usage_holds(to, reading.usage, plan.usage)
    };
    let shown = match &translated {
        Ok(answer) => String::from_utf8_lossy(&answer.body).into_owned(),
        Err(broken) => format!("{broken:?}"),
    };
    let judged = translated.map(|answer| judge(&answer.body));
    assert!(
        matches!(judged, Ok(Ok(()))),
        "{from:?} -> {to:?}: {judged:?}\n{plan:?}\n--- upstream\n{}\n--- caller\n{shown}",
        String::from_utf8_lossy(&body),
    );
}

/// Bytes that a model generated: texts, thoughts, arguments and the names of tools.
pub(crate) fn generated(plan: &Plan) -> usize {
    let bytes = |pieces: &[String]| pieces.iter().map(String::len).sum::<usize>();
    let segments = plan.segments.iter().map(|segment| match segment {
        Segment::Thinking(pieces) | Segment::Text(pieces) | Segment::Refusal(pieces) => bytes(pieces),
        Segment::Call { name, arguments, .. } => name.len() + bytes(arguments),
    });
    segments.sum()
}

/// One throw of an answer that passes.
fn one_passing(dice: &mut Dice) {
    let dialect = *dice.pick(&[Dialect::Chat, Dialect::Responses, Dialect::Messages]);
    let plan = Plan::throw(dice, limits(dialect, dialect));
    let body = written::write(dialect, &plan, dice);
    let shown = String::from_utf8_lossy(&body);
    let seen =
        passage::answer(dialect, &body).unwrap_or_else(|error| panic!("{dialect:?}: {error}: {shown}"));
    assert_eq!(seen.choices, 1, "{dialect:?}: {shown}");
    assert!(seen.content && seen.error.is_none(), "{dialect:?}: {shown}");
    assert_eq!(seen.output_bytes, generated(&plan), "{dialect:?}: {shown}");
    let model = seen.model_span.map(|span| shown[span].to_owned());
    assert_eq!(model.as_deref(), Some("\"u\""), "{dialect:?}: {shown}");
    let told = seen
        .usage
        .map(|usage| (usage.prompt_tokens, usage.completion_tokens));
    let meant = plan.usage.map(|used| (Some(used.input), Some(used.output)));
    assert_eq!(told, meant, "{dialect:?}: {shown}");
}

#[test]
fn a_whole_answer_comes_whole_to_every_caller() {
    crate::streams::throw_all(2000, 10, one);
}

#[test]
fn what_is_read_of_a_passing_answer_is_what_was_said() {
    crate::streams::throw_all(600, 20, one_passing);
}
