//! Streams whose dialect is the same on both sides: what is seen of them in passing is what was said, a stream that is
//! cut is never seen to end, and with the model's name replaced a stream is as legal as it was.

use bytes::Bytes;
use dialects::dialect::Dialect;
use dialects::passage::{Foreign, Seen, Skimmer, end_mark};
use dialects::sse;

use crate::answers::generated;
use crate::dice::Dice;
use crate::plan::Plan;
use crate::speakers::UPSTREAMS;
use crate::streams::{check, expected, is_last, limits, translate, usage_holds};
use crate::upstream::written;

/// What callers and upstreams both speak.
const BOTH: &[Dialect] = &[Dialect::Chat, Dialect::Responses, Dialect::Messages];
/// The name that a model has for callers.
const PUBLIC: &[u8] = b"\"other \\u00e9\"";

/// What was seen of a stream, all events together, and the stream as it passes.
#[derive(Default)]
struct Passed {
    seen: Seen,
    bytes: Vec<u8>,
}

fn pass(dialect: Dialect, pieces: impl IntoIterator<Item = Bytes>) -> Result<Passed, Foreign> {
    let mut skimmer = Skimmer::new(dialect);
    let mut framer = sse::Framer::new(1 << 20);
    let mut passed = Passed::default();
    for piece in pieces {
        framer.push(piece);
        while let Some(event) = framer.next().expect("a short event") {
            passed.event(&mut skimmer, &event)?;
        }
    }
    while let Some(event) = framer.finish().expect("a short event") {
        passed.event(&mut skimmer, &event)?;
    }
    Ok(passed)
}

impl Passed {
    fn event(&mut self, skimmer: &mut Skimmer, event: &sse::Event) -> Result<(), Foreign> {
        if event.is_comment() {
            return Ok(());
        }
        let seen = skimmer.skim(event)?;
        if let Some(name) = &event.name {
            self.bytes.extend_from_slice(b"event: ");
            self.bytes.extend_from_slice(name);
            self.bytes.push(b'\n');
        }
        self.bytes.extend_from_slice(b"data: ");
        let span = seen.model_span.clone().unwrap_or(0..0);
        self.bytes.extend_from_slice(&event.data[..span.start]);
        if !span.is_empty() {
            self.bytes.extend_from_slice(PUBLIC);
        }
        self.bytes.extend_from_slice(&event.data[span.end..]);
        self.bytes.extend_from_slice(b"\n\n");
        let all = &mut self.seen;
        all.content |= seen.content;
        all.output_bytes += seen.output_bytes;
        all.usage = seen.usage.or(all.usage);
        all.error = seen.error.or(all.error.take());
        all.finished |= seen.finished;
        all.end |= seen.end;
        all.choices_ended += seen.choices_ended;
        all.aborted |= seen.aborted;
        Ok(())
    }
}

/// One throw of a stream as upstreams write it.
fn one(dice: &mut Dice) {
    let dialect = *dice.pick(BOTH);
    let plan = Plan::throw(dice, limits(dialect, dialect));
    let events = written::write(dialect, &plan, dice);
    let stream = written::stream(&events, dice);
    let shown = String::from_utf8_lossy(&stream);
    let Passed { seen, .. } = pass(dialect, written::cut(&stream, dice))
        .unwrap_or_else(|foreign| panic!("{dialect:?}: {foreign}\n{shown}"));

    assert!(seen.content && seen.finished, "{dialect:?}: {seen:?}\n{shown}");
    assert!(
        seen.error.is_none() && !seen.aborted,
        "{dialect:?}: {seen:?}\n{shown}"
    );
    // Where the mark may be missing there is one to be put.
    assert!(
        seen.end || end_mark(dialect).is_some(),
        "{dialect:?}: no end\n{shown}"
    );
    // A call without arguments need not say so.
    let bare = plan
        .meant()
        .calls
        .iter()
        .filter(|call| call.arguments == "{}")
        .count();
    let bare = if dialect == Dialect::Messages { 2 * bare } else { 0 };
    let meant = generated(&plan);
    assert!(
        (meant - bare..=meant).contains(&seen.output_bytes),
        "{dialect:?}: {} of {meant} bytes: {shown}",
        seen.output_bytes
    );
    let told = seen
        .usage
        .map(|usage| (usage.prompt_tokens, usage.completion_tokens));
    let meant = plan.usage.map(|used| (Some(used.input), Some(used.output)));
    assert_eq!(told, meant, "{dialect:?}: {shown}");
}

/// One throw of a stream that ends before its answer does.
fn one_cut(dice: &mut Dice) {
    let dialect = *dice.pick(BOTH);
    let plan = Plan::throw(dice, limits(dialect, dialect));
    let mut events = written::write(dialect, &plan, dice);
    let end = events
        .iter()
        .position(|event| is_last(dialect, event))
        .expect("an end");
    events.truncate(dice.below(end + 1));
    let stream = written::stream(&events, dice);
    let Passed { seen, .. } = pass(dialect, written::cut(&stream, dice)).expect("events of the dialect");

    let shown = String::from_utf8_lossy(&stream);
    assert!(!seen.finished && !seen.end, "{dialect:?}: {seen:?}\n{shown}");
    assert_eq!(seen.choices_ended, 0, "{dialect:?}: {shown}");
}

/// One throw of a legal stream under another name of its model.
fn one_renamed(dice: &mut Dice) {
    let (from, dialect) = (*dice.pick(UPSTREAMS), *dice.pick(BOTH));
    let plan = Plan::throw(dice, limits(from, dialect));
    let events = written::write(from, &plan, dice);
    let stream = written::stream(&events, dice);
    let (legal, over) = translate(from, dialect, written::cut(&stream, dice));
    assert_eq!(over, Ok(()));
    let Passed { bytes, .. } = pass(dialect, written::cut(&legal, dice)).expect("events of the dialect");

    let shown = String::from_utf8_lossy(&bytes);
    let reading = check(dialect, &bytes).unwrap_or_else(|wrong| panic!("{dialect:?}: {wrong}\n{shown}"));
    let judged = crate::grammar::reading::compare(&reading, &expected(from, dialect, &plan))
        .and_then(|()| usage_holds(dialect, reading.usage, plan.usage));
    assert_eq!(judged, Ok(()), "{dialect:?}: {shown}");
    assert!(!shown.contains("public/name"), "{dialect:?}: {shown}");
    assert!(shown.contains("other \\u00e9"), "{dialect:?}: {shown}");
}

#[test]
fn what_is_seen_of_a_passing_stream_is_what_was_said() {
    crate::streams::throw_all(1500, 10, one);
}

#[test]
fn a_passing_stream_that_is_cut_is_not_seen_to_end() {
    crate::streams::throw_all(600, 20, one_cut);
}

#[test]
fn a_legal_stream_passes_as_one_under_another_name_of_its_model() {
    crate::streams::throw_all(600, 20, one_renamed);
}
