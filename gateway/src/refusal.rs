//! Refused requests in the books: the first ten of a key, code and minute are rows, the rest is one counted event.
//! Refusals before the caller is known, and for a full spool, are only counted.

use std::collections::HashMap;

use parking_lot::Mutex;
use schemas::auto::record::Routed;
use schemas::event::limit::LimitRefused;
use schemas::event::request::{RequestAccepted, RequestSettled, Surface};
use schemas::failure::{Failure, FailureCode};
use schemas::id::{KeyId, ModelName, NodeId, TenantId};
use schemas::limit::Reservation;
use schemas::money::PriceVersion;
use schemas::time::Timestamp;
use tracing::error;

use crate::arrival::Arrival;
use crate::caller::Caller;
use crate::gate::{self, Wishes};
use crate::inference::call::Call;
use crate::settle;
use crate::state::State;

/// Rows of one key, code and minute.
const ROWS_MAX: u32 = 10;
/// Pairs of key and code that are counted at once; beyond, a refusal leaves only its metric.
const TALLIES_MAX: usize = 10_000;
/// Microseconds in a minute.
const MINUTE_MICROS: i64 = 60_000_000;

/// A refused request, as far as it was read.
pub(crate) struct Refused {
    /// What the caller is told.
    pub(crate) failure: Failure,
    /// The surface, where the body told it.
    pub(crate) surface: Option<Surface>,
    /// The model he asked for, empty when it was not read.
    pub(crate) model: String,
    /// What he said beside the body.
    pub(crate) wishes: Wishes,
    /// The rest of his body is not read: the connection closes.
    pub(crate) closing: bool,
    /// How no model was chosen, where that was left to the gateway.
    pub(crate) auto: Option<Box<Routed>>,
}

impl From<Failure> for Box<Refused> {
    fn from(failure: Failure) -> Self {
        Self::new(Refused {
            failure,
            surface: None,
            model: String::new(),
            wishes: Wishes::default(),
            closing: false,
            auto: None,
        })
    }
}

/// Refusals of one key with one code in one minute.
#[derive(Debug)]
struct Tally {
    tenant: TenantId,
    minute: i64,
    rows: u32,
    beyond: u64,
}

/// Counts refusals by key and code.
#[derive(Default)]
pub(crate) struct Refusals {
    tallies: Mutex<HashMap<(KeyId, FailureCode), Tally>>,
}

impl Refusals {
    /// Notes a refusal. True when it is to be a row of its own. A minute that ends with it comes back as its event.
    fn note(
        &self,
        caller: &Caller,
        code: FailureCode,
        now: Timestamp,
        node: &NodeId,
    ) -> (bool, Option<LimitRefused>) {
        let minute = now.micros().div_euclid(MINUTE_MICROS);
        let place = (caller.key.id.clone(), code);
        let mut tallies = self.tallies.lock();
        if tallies.len() >= TALLIES_MAX && !tallies.contains_key(&place) {
            return (false, None);
        }
        let fresh = || Tally {
            tenant: caller.tenant().clone(),
            minute,
            rows: 0,
            beyond: 0,
        };
        let tally = tallies.entry(place.clone()).or_insert_with(fresh);
        let ended = (tally.minute != minute).then(|| std::mem::replace(tally, fresh()));
        let row = tally.rows < ROWS_MAX;
        if row {
            tally.rows += 1;
        } else {
            tally.beyond += 1;
        }
        (row, ended.and_then(|ended| event(place, ended, node)))
    }

    /// The events of all minutes before that of `now`.
    fn ended(&self, now: Timestamp, node: &NodeId) -> Vec<LimitRefused> {
        let minute = now.micros().div_euclid(MINUTE_MICROS);
        let mut tallies = self.tallies.lock();
        if tallies.is_empty() {
            return Vec::new();
        }
        let over = tallies.extract_if(|_, tally| tally.minute < minute);
        over.filter_map(|(place, tally)| event(place, tally, node))
            .collect()
    }

    /// Writes what can be said of minutes that are over.
    pub(crate) fn flush(&self, state: &State) {
        let now = state.ports.clock.now();
        for refused in self.ended(now, &state.config.node) {
            append(state, &refused, now);
        }
    }

    /// Writes everything, at the end.
    pub(crate) fn close(&self, state: &State) {
        let now = state.ports.clock.now();
        for refused in self.ended(now.plus_micros(MINUTE_MICROS), &state.config.node) {
            append(state, &refused, now);
        }
    }
}

fn event(place: (KeyId, FailureCode), tally: Tally, node: &NodeId) -> Option<LimitRefused> {
    (tally.beyond > 0).then(|| LimitRefused {
        tenant: tally.tenant,
        key_id: place.0,
        code: place.1,
        minute: Timestamp::from_micros(tally.minute.saturating_mul(MINUTE_MICROS)),
        count: tally.beyond,
        node: node.clone(),
    })
}

fn append(state: &State, refused: &LimitRefused, now: Timestamp) {
    if let Err(problem) = state.ports.spool.append(&refused.tenant, now, refused) {
        error!(
            error = &problem as &dyn std::error::Error,
            "counted refusals cannot be written"
        );
    }
}

/// Counts a refusal and puts it into the books, where it belongs there.
pub(crate) fn record(state: &State, arrival: &Arrival, caller: &Caller, refused: &Refused) {
    let code = refused.failure.code;
    let catalog = state.ports.catalog.load();
    // What he was told is not there is not there in the figures and in his rows either, not even by its other name.
    let model = gate::visible(&catalog, Some(&caller.key), &refused.model)
        .filter(|_| code != FailureCode::ModelNotFound);
    let surface = refused.surface.or_else(|| arrival.call.map(Call::surface));
    let word = surface.map_or("", Surface::as_str);
    state.metrics.refused(code, word, model.map(|model| &**model));
    if matches!(code, FailureCode::SpoolFull | FailureCode::BodyTooLarge) {
        return;
    }
    let (row, ended) = state.refusals.note(caller, code, arrival.at, &state.config.node);
    if let Some(ended) = ended {
        append(state, &ended, arrival.at);
    }
    let Some(reservation) = row.then(|| state.ports.spool.reserve().ok()).flatten() else {
        return;
    };
    let accepted = RequestAccepted {
        request_id: arrival.request_id,
        payer: caller.payer(),
        surface: surface.unwrap_or(Surface::Chat),
        model: model.map_or_else(
            || ModelName::new(refused.model.as_str()),
            |model| model.id.clone(),
        ),
        reservation: Reservation::default(),
        price_version: PriceVersion(catalog.revision_text.clone()),
        started_at: arrival.at,
        node: state.config.node.clone(),
    };
    let told = (code, refused.failure.status);
    let now = state.ports.clock.now();
    let settled = RequestSettled {
        auto: refused.auto.clone(),
        ..settle::rejected(
            &accepted,
            refused.wishes.clone(),
            told,
            state.config.billing_tz,
            now,
        )
    };
    if let Err(problem) = state.ports.spool.append(&settled.tenant, now, &settled) {
        error!(request.id = %arrival.request_id, error = &problem as &dyn std::error::Error, "a refusal cannot be written");
    }
    state.ports.spool.give_back(reservation);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use schemas::catalog::{Key, Origin, Role};

    use super::*;

    const NOON: Timestamp = Timestamp::from_micros(1_796_040_000_000_000);

    fn caller() -> Caller {
        let key = Key {
            id: KeyId::from("k1"),
            name: "k1".into(),
            tenant: TenantId::from("acme"),
            user: None,
            role: Role::Free,
            models: None,
            limits: schemas::limit::limits::Limits::default(),
            output_default_max: None,
            expires_at: None,
            revoked: false,
            created_at: NOON,
            origin: Origin::File,
            prefix: "".into(),
            reach: schemas::catalog::grant::Reach::Member,
            denied: Vec::new(),
            rotated_at: None,
            routing: None,
            granted: None,
            maker: None,
            seen_by: None,
        };
        Caller { key: Arc::new(key) }
    }

    fn node() -> NodeId {
        NodeId::from("n1")
    }

    #[test]
    fn ten_refusals_a_minute_are_rows_and_the_rest_is_one_event() {
        let refusals = Refusals::default();
        let note = |now| refusals.note(&caller(), FailureCode::ModelNotFound, now, &node());

        let rows = (0..13).filter(|_| note(NOON).0).count();
        let events = refusals.ended(NOON.plus_micros(MINUTE_MICROS), &node());

        assert_eq!(rows, 10);
        assert_eq!(events.len(), 1);
        assert_eq!((events[0].count, events[0].minute), (3, NOON));
        assert!(
            refusals
                .ended(NOON.plus_micros(MINUTE_MICROS), &node())
                .is_empty()
        );
    }

    #[test]
    fn a_new_minute_has_rows_again_and_ends_the_one_before() {
        let refusals = Refusals::default();
        let note = |now| refusals.note(&caller(), FailureCode::ModelNotFound, now, &node());
        for _ in 0..11 {
            note(NOON);
        }

        let (row, ended) = note(NOON.plus_micros(MINUTE_MICROS));

        assert!(row);
        assert_eq!(ended.map(|ended| ended.count), Some(1));
    }

    #[test]
    fn codes_are_counted_apart() {
        let refusals = Refusals::default();
        for _ in 0..10 {
            refusals.note(&caller(), FailureCode::ModelNotFound, NOON, &node());
        }

        assert!(
            refusals
                .note(&caller(), FailureCode::InvalidJson, NOON, &node())
                .0
        );
        assert!(
            !refusals
                .note(&caller(), FailureCode::ModelNotFound, NOON, &node())
                .0
        );
    }
}
