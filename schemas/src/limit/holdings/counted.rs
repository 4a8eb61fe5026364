//! Under which names the limits of requests are counted, and where they were found: remembered for requests that have
//! the same bounds on the same day.

use std::collections::HashMap;
use std::sync::Arc;

use chrono::NaiveDate;

use super::demand::Demand;
use super::shelf::Place;
use crate::limit::layers::{Bound, Name};
use crate::limit::limits::Kind;
use crate::limit::window::Calendar;

/// Sets of bounds whose names are remembered.
const COUNTED_MAX: usize = 4_096;

/// The names of many requests that have the same bounds.
#[derive(Debug, Default)]
pub(super) struct Counted(HashMap<usize, OfDay>);

/// Under which names the bounds of a request are counted on one day.
#[derive(Debug)]
struct OfDay {
    /// Held, so that no others can be where they are.
    bounds: Arc<[Bound]>,
    day: NaiveDate,
    names: Arc<[Name]>,
    /// Where their limits were found the last time.
    places: Vec<Place>,
}

impl Counted {
    /// The names of a request, and where their limits were found the last time: to be [put back](Self::put_back).
    pub(super) fn take(&mut self, demand: &Demand) -> (Arc<[Name]>, Vec<Place>) {
        let (place, day) = (demand.bounds.as_ptr().addr(), demand.calendar.day());
        let known = self.0.get_mut(&place).filter(|known| known.day == day);
        if let Some(known) = known.filter(|known| known.bounds.len() == demand.bounds.len()) {
            return (Arc::clone(&known.names), std::mem::take(&mut known.places));
        }
        let names = demand.bounds.iter().map(|bound| counted(bound, &demand.calendar));
        let names: Arc<[Name]> = names.collect();
        if self.0.len() >= COUNTED_MAX {
            self.0.clear();
        }
        let known = OfDay {
            bounds: Arc::clone(&demand.bounds),
            day,
            names: Arc::clone(&names),
            places: Vec::new(),
        };
        self.0.insert(place, known);
        (names, vec![Place::NOWHERE; demand.bounds.len()])
    }

    /// Where its limits were found now.
    pub(super) fn put_back(&mut self, bounds: &Arc<[Bound]>, places: Vec<Place>) {
        if let Some(known) = self.0.get_mut(&bounds.as_ptr().addr()) {
            known.places = places;
        }
    }
}

/// Under which name a bound is counted in a calendar.
pub(super) fn counted(bound: &Bound, calendar: &Calendar) -> Name {
    match bound.key.kind() {
        Kind::Quota(span, _) => bound.name.of(calendar.period(span)),
        Kind::Rate(..) | Kind::Concurrency => bound.name.clone(),
    }
}
