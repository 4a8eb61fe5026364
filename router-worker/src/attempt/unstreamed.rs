//! An unstreamed answer: read whole, checked, its model named as the caller named it, and handed over in one
//! frame with the report.

use bytes::Bytes;
use dialects::chat::answer::{self, Answer as Skim};
use dialects::chat::chunk::Finish;
use dialects::splice::{Edit, splice};
use tokio::time::Instant;

use crate::fault::{Fault, Refusal, Unusable};
use crate::upstream::Answer;

use super::clocks::Timer;
use super::{Call, Ending, Meter, head};

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
    match collected {
        Ok(bytes) => judge(call, &bytes, meter),
        Err(broken) => broken.into(),
    }
}

/// What the body is worth.
fn judge(call: &Call<'_>, body: &Bytes, meter: &mut Meter) -> Ending {
    let skim = match answer::skim(body) {
        Ok(skim) => skim,
        Err(error) => {
            call.note(&error);
            return Ending::Failed(Fault::Unusable(Unusable::Malformed));
        }
    };
    meter.usage = skim.usage;
    if let Some(fault) = fault(&skim) {
        return Ending::Failed(fault);
    }
    call.deliver(
        meter,
        skim.content,
        u64::try_from(skim.output_bytes).unwrap_or(u64::MAX),
    );
    Ending::Whole {
        head: Some(head("application/json")),
        tail: named(body, &skim, call.model_json),
    }
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

/// The body with the model's public name.
fn named(body: &Bytes, skim: &Skim, model_json: &[u8]) -> Bytes {
    let Some(span) = skim.model_span.clone() else {
        return body.clone();
    };
    if body.get(span.clone()) == Some(model_json) {
        return body.clone();
    }
    splice(
        body,
        &[Edit {
            range: span,
            with: Bytes::copy_from_slice(model_json),
        }],
    )
}
