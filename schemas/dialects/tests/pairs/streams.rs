//! Streams from every upstream's dialect to every caller's: whatever an upstream means to say, in whatever order and
//! cut wherever, a caller is sent a stream that its dialect's checker accepts and that says all of it.

use bytes::BytesMut;
use dialects::dialect::Dialect;
use dialects::sse;
use dialects::superset::answer::Broken;
use dialects::superset::event::Reply;
use dialects::superset::tool::Names;
use dialects::translate::Way;
use dialects::translate::stream::Translation;

use crate::dice::Dice;
use crate::grammar::reading::{Checked, Fault, Reading, Stop, Used, compare, must};
use crate::grammar::{chat, completions, messages, responses};
use crate::plan::{Limits, Plan};
use crate::speakers::{CALLERS, UPSTREAMS};
use crate::upstream::written;

/// Longest event, in bytes.
const EVENT_BYTES_MAX: usize = 1 << 20;

/// The way of an answer from one dialect to another.
pub(crate) fn way(upstream: Dialect, caller: Dialect) -> Way {
    let reply = Reply {
        id: "0123456789abcdef0123456789abcdef".to_owned(),
        created: 1_700_000_000,
        model: "public/name".to_owned(),
        include_usage: true,
        hides_thinking: false,
        prompt_tokens: 5,
        request: bytes::Bytes::from_static(b"{\"model\":\"public/name\",\"input\":\"hi\",\"stream\":true}"),
    };
    Way {
        upstream,
        caller,
        processor: None,
        tools: [].into(),
        names: Names::default(),
        reply,
    }
}

/// What an answer may have that goes from one dialect to another.
pub(crate) fn limits(from: Dialect, to: Dialect) -> Limits {
    Limits {
        calls: to != Dialect::Completions,
        refusals: matches!(from, Dialect::Chat | Dialect::Responses),
        cache_writes: from != Dialect::Gemini,
    }
}

/// How one stream went: what the caller was sent, or why it broke off.
pub(crate) fn translate(
    upstream: Dialect,
    caller: Dialect,
    pieces: impl IntoIterator<Item = bytes::Bytes>,
) -> (Vec<u8>, Result<(), Broken>) {
    let mut translation = Translation::new(way(upstream, caller));
    let mut framer = sse::Framer::new(EVENT_BYTES_MAX);
    let mut out = BytesMut::new();
    let mut read = |event: &sse::Event, out: &mut BytesMut| {
        if event.is_comment() || translation.ended() {
            Ok(())
        } else {
            translation.event(event, out)
        }
    };
    for piece in pieces {
        framer.push(piece);
        while let Some(event) = framer.next().expect("a short event") {
            if let Err(broken) = read(&event, &mut out) {
                return (out.to_vec(), Err(broken));
            }
        }
    }
    while let Some(event) = framer.finish().expect("a short event") {
        if let Err(broken) = read(&event, &mut out) {
            return (out.to_vec(), Err(broken));
        }
    }
    let over = translation.finish(&mut out);
    if over.is_ok() {
        out.extend_from_slice(&translation.end());
    }
    (out.to_vec(), over)
}

pub(crate) fn check(caller: Dialect, bytes: &[u8]) -> Checked<Reading> {
    match caller {
        Dialect::Messages => messages::check(bytes),
        Dialect::Responses => responses::check(bytes),
        Dialect::Completions => completions::check(bytes),
        _ => chat::check(bytes),
    }
}

/// What the caller must read, by what its dialect is documented to lose.
pub(crate) fn expected(upstream: Dialect, caller: Dialect, plan: &Plan) -> Reading {
    let mut meant = plan.meant();
    match caller {
        // A refusal is text there.
        Dialect::Messages | Dialect::Completions => meant.text.push_str(&std::mem::take(&mut meant.refusal)),
        // A refusal is an answer there that is complete.
        Dialect::Responses if !meant.refusal.is_empty() => meant.stop = Some(Stop::End),
        _ => {}
    }
    // Calls that did not end a turn are told by their items.
    if caller == Dialect::Completions {
        meant.thinking.clear();
    }
    if let (Dialect::Gemini, Some(used)) = (upstream, &mut meant.usage) {
        used.written = 0;
    }
    meant
}

pub(crate) fn usage_holds(caller: Dialect, told: Option<Used>, meant: Option<Used>) -> Checked<()> {
    let (Some(told), Some(mut meant)) = (told, meant) else {
        return Ok(());
    };
    // Where the dialect may leave a class out.
    if matches!(caller, Dialect::Messages | Dialect::Completions) && told.reasoning == 0 {
        meant.reasoning = 0;
    }
    if caller == Dialect::Completions && told.written == 0 {
        meant.written = 0;
    }
    must(
        told == meant,
        Fault::Usage,
        format_args!("{told:?}, meant {meant:?}"),
    )
}

/// One throw: an answer, a pair, an order, a way to cut it. Panics with the whole case when it goes wrong.
pub(crate) fn one(dice: &mut Dice) {
    let (from, to) = (*dice.pick(UPSTREAMS), *dice.pick(CALLERS));
    let mut plan = Plan::throw(dice, limits(from, to));
    if from != Dialect::Gemini {
        plan.cut_short(dice);
    }
    let events = written::write(from, &plan, dice);
    let stream = written::stream(&events, dice);
    let (sent, over) = translate(from, to, written::cut(&stream, dice));
    let judged = check(to, &sent).and_then(|reading| {
        compare(&reading, &expected(from, to, &plan))?;
        usage_holds(to, reading.usage, plan.usage)
    });
    assert!(
        over.is_ok() && judged.is_ok(),
        "{from:?} -> {to:?}: {over:?}, {judged:?}\n{plan:?}\n--- upstream\n{}\n--- caller\n{}",
        String::from_utf8_lossy(&stream),
        String::from_utf8_lossy(&sent)
    );
}

/// True for the first event that says that the answer has ended.
pub(crate) fn is_last(dialect: Dialect, (name, data): &written::Written) -> bool {
    let named = name.as_deref().is_some_and(|name| {
        name == "message_delta"
            || name.starts_with("response.completed")
            || name.starts_with("response.incomplete")
    });
    let finishes = dialect == Dialect::Chat
        && !data.contains("\"finish_reason\":null")
        && data.contains("finish_reason");
    named || finishes || (dialect == Dialect::Gemini && data.contains("\"finishReason\":\""))
}

/// One throw of a stream that is cut, or that says it failed: it must never be taken for a whole one.
pub(crate) fn one_cut(dice: &mut Dice) {
    let (from, to) = (*dice.pick(UPSTREAMS), *dice.pick(CALLERS));
    let limits = Limits {
        calls: to != Dialect::Completions,
        refusals: false,
        cache_writes: false,
    };
    let plan = Plan::throw(dice, limits);
    let mut events = written::write(from, &plan, dice);
    let end = events
        .iter()
        .position(|event| is_last(from, event))
        .expect("an end");
    events.truncate(dice.below(end + 1));
    let stream = written::stream(&events, dice);
    let stream = &stream[..stream.len() - if events.is_empty() { 0 } else { dice.below(3) }];
    let (sent, over) = translate(from, to, written::cut(stream, dice));
    assert!(
        over.is_err(),
        "{from:?} -> {to:?}: a cut stream is whole\n{}",
        String::from_utf8_lossy(stream)
    );
    assert!(
        check(to, &sent).is_err(),
        "{from:?} -> {to:?}: a cut stream has an end\n{}",
        String::from_utf8_lossy(&sent)
    );
}

/// The stream of any upstream.
pub(crate) fn any_stream(dice: &mut Dice) -> Vec<u8> {
    let from = *dice.pick(&[
        Dialect::Chat,
        Dialect::Messages,
        Dialect::Responses,
        Dialect::Gemini,
    ]);
    let plan = Plan::throw(
        dice,
        Limits {
            calls: true,
            refusals: true,
            cache_writes: true,
        },
    );
    let events = written::write(from, &plan, dice);
    written::stream(&events, dice)
}

/// Throws on two threads: few, or as many of `WAYBILL_PAIRS` as this test's `share` of it.
#[expect(clippy::disallowed_methods, reason = "a test that can be made longer")]
pub(crate) fn throw_all(few: u64, share: u64, one: fn(&mut Dice)) {
    let told = std::env::var("WAYBILL_PAIRS").ok();
    let all = told
        .and_then(|text| text.parse::<u64>().ok())
        .map_or(few, |all| all / share);
    std::thread::scope(|scope| {
        for half in 0..2 {
            scope.spawn(move || {
                (half..all)
                    .step_by(2)
                    .for_each(|seed| one(&mut Dice::of(seed + 1)));
            });
        }
    });
}

#[test]
fn whatever_an_upstream_says_every_caller_is_sent_all_of_it_in_a_legal_stream() {
    throw_all(3000, 1, one);
}

#[test]
fn a_stream_that_is_cut_before_its_end_is_never_whole_for_any_caller() {
    throw_all(1500, 10, one_cut);
}
