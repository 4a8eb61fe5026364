//! An unstreamed answer: read whole, checked, translated where the upstream speaks another dialect, its model named
//! as the caller named it, and handed over in one frame with the report.

use bytes::Bytes;
use dialects::chat::answer::Answer as Skim;
use dialects::chat::chunk::Finish;
use dialects::chat::ends::Called;
use dialects::chat::shares::Shares;
use dialects::chat::usage::UsageFacts;
use dialects::dialect::Dialect;
use dialects::passage::private;
use dialects::passage::request::Asked;
use dialects::splice::{Edit, splice};
use dialects::translate::{Way, whole};
use dialects::{embeddings, passage};
use tokio::time::Instant;

use crate::fault::{Fault, Refusal, Unusable};
use crate::upstream::Answer;

use super::clocks::Timer;
use super::{Call, Ending, Meter};

/// Reads the answer. The timer runs to the first byte of the body, then to the deadline of the whole.
pub(super) async fn read(
    call: &Call<'_>,
    answer: Answer,
    meter: &mut Meter,
    (timer, whole): (&mut Timer, Option<Instant>),
) -> Ending {
    let mut body = answer.body;
    let collected = call
        .collect(&mut body, timer, |timer| {
            timer.set(whole);
            if meter.first_byte_ms.is_none() {
                meter.first_byte_ms = Some(call.elapsed_ms(meter));
            }
        })
        .await;
    let bytes = match collected {
        Ok(bytes) => bytes,
        Err(broken) => return broken.into(),
    };
    let judged = match (&call.prepared.way, call.caller()) {
        (Some(way), _) => translated(call, way, &bytes, meter),
        (None, Dialect::Embeddings) => embedded(call, &bytes, meter),
        (None, dialect) => passed(call, dialect, &bytes, meter),
    };
    match judged {
        Ok(tail) => Ending::Whole {
            head: Some(call.head("application/json")),
            tail,
        },
        Err(fault) => Ending::Failed(fault),
    }
}

/// What the body is worth, and the body as the caller gets it.
fn passed(call: &Call<'_>, dialect: Dialect, body: &Bytes, meter: &mut Meter) -> Result<Bytes, Fault> {
    let skim = passage::answer(dialect, body).map_err(|error| {
        call.note(&error);
        Fault::Unusable(Unusable::Malformed)
    })?;
    let shares = Shares::of_answer(&skim);
    meter.usage = shares.usage(|| asked(call));
    if let Some(fault) = fault(&skim) {
        return Err(fault);
    }
    call.deliver(meter, skim.content, count(skim.output_bytes));
    let mut edits = private::edits(body, call.names_providers());
    if let Some(usage) = meter.usage.filter(|_| shares.is_apart()) {
        edits = passage::usage(body, edits, usage);
    }
    edits.extend(passage::ids(dialect, body, &skim));
    if call.offer.told.hides_thinking {
        edits.extend(passage::thoughts(dialect, body));
    }
    Ok(named(body, &skim, (call.model_json, edits)))
}

/// What the caller asked for, read anew.
fn asked(call: &Call<'_>) -> Asked {
    Asked::read(
        call.caller(),
        call.caller_body,
        call.offer.requirements.prompt_tokens,
    )
}

/// The same of an answer in another dialect.
fn translated(call: &Call<'_>, way: &Way, body: &Bytes, meter: &mut Meter) -> Result<Bytes, Fault> {
    let whole = whole(way, body).inspect_err(|_| meter.usage = charged(call.prepared.dialect, body))?;
    meter.usage = whole.usage;
    call.deliver(meter, whole.content, count(whole.output_bytes));
    Ok(whole.body)
}

/// The same of embeddings.
fn embedded(call: &Call<'_>, body: &Bytes, meter: &mut Meter) -> Result<Bytes, Fault> {
    let answer = embeddings::skim(body).map_err(|error| {
        call.note(&error);
        Fault::Unusable(Unusable::Malformed)
    })?;
    meter.usage = answer.usage;
    if let Some(error) = &answer.error {
        return Err(Refusal::inside(error.clone()).into());
    }
    if answer.vectors.is_empty() {
        return Err(Fault::Unusable(Unusable::Empty));
    }
    if embeddings::filled(body, &answer) < embeddings::asked(call.caller_body) {
        return Err(Fault::Unusable(Unusable::Partial));
    }
    call.deliver(meter, true, 0);
    let base64 = embeddings::asks_base64(call.caller_body);
    Ok(embeddings::answered(body, &answer, call.model_json, base64))
}

/// What a body that is no answer tells of what was counted and charged for it.
pub(super) fn charged(dialect: Dialect, body: &[u8]) -> Option<UsageFacts> {
    let skim = passage::answer(dialect, body).ok()?;
    skim.usage.and_then(UsageFacts::counted)
}

fn count(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// Why a readable body is no answer.
pub(super) fn fault(skim: &Skim) -> Option<Fault> {
    if let Some(error) = &skim.error {
        return Some(Fault::from(Refusal::inside(error.clone())));
    }
    if skim.choices == 0 {
        return Some(Fault::Unusable(Unusable::Empty));
    }
    skim.finish
        .is_some_and(Finish::failed)
        .then_some(Fault::Unusable(Unusable::Aborted))
}

/// The body with the model's public name, with true reasons, and without what is not for the caller.
fn named(body: &Bytes, skim: &Skim, (model_json, private): (&[u8], Vec<Edit>)) -> Bytes {
    let model = skim.model_span.clone();
    let model = model.filter(|span| body.get(span.clone()) != Some(model_json));
    let model = model.map(|range| Edit {
        range,
        with: Bytes::copy_from_slice(model_json),
    });
    let mut edits = skim.ends.edits(&mut Called::default());
    edits.extend(private.into_iter().chain(model));
    edits.sort_by_key(|edit| edit.range.start);
    splice(body, &edits)
}
