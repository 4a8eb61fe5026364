//! Takes the thoughts out of answers that pass, for callers who do not want to see them: what holds them is left out,
//! and what comes after is numbered as if they had never been there.

use std::ops::Range;

use bytes::Bytes;
use serde_json::value::RawValue;

use crate::splice::Edit;

/// What was left out of a stream so far.
#[derive(Debug, Default)]
pub(crate) struct Hidden {
    /// The numbers of the blocks or items.
    places: Vec<u64>,
    /// How many events.
    events: u64,
}

impl Hidden {
    /// A block or item is left out.
    pub(crate) fn hide(&mut self, place: u64) {
        if !self.hides(place) {
            self.places.push(place);
        }
    }

    /// True for one that is left out.
    pub(crate) fn hides(&self, place: u64) -> bool {
        self.places.contains(&place)
    }

    /// The number of one that stays, without those before it that were left out.
    pub(crate) fn renumbered(&self, place: u64) -> u64 {
        let before = self.places.iter().filter(|hidden| **hidden < place).count();
        place.saturating_sub(u64::try_from(before).unwrap_or(u64::MAX))
    }

    /// An event is left out.
    pub(crate) const fn drop_event(&mut self) {
        self.events = self.events.saturating_add(1);
    }

    /// The number of an event that stays.
    pub(crate) const fn event_number(&self, number: u64) -> u64 {
        number.saturating_sub(self.events)
    }
}

/// Where a value stands in the text that it was read from.
pub(crate) fn place(data: &[u8], value: &RawValue) -> Option<Range<usize>> {
    let start = value.get().as_ptr().addr().checked_sub(data.as_ptr().addr())?;
    let span = start..start.checked_add(value.get().len())?;
    (span.end <= data.len()).then_some(span)
}

/// What makes a number read otherwise; `None` where nothing has to be done.
pub(crate) fn number_edit(
    data: &[u8],
    value: Option<&RawValue>,
    other: impl FnOnce(u64) -> u64,
) -> Option<Edit> {
    let value = value?;
    let number: u64 = value.get().parse().ok()?;
    let other = other(number);
    let range = place(data, value).filter(|_| other != number)?;
    Some(Edit {
        range,
        with: Bytes::from(other.to_string()),
    })
}

/// What leaves some elements out of a list; `None` where nothing has to be done.
pub(crate) fn list_edit(
    data: &[u8],
    list: Option<&RawValue>,
    hides: impl Fn(&RawValue) -> bool,
) -> Option<Edit> {
    let list = list?;
    let elements: Vec<&RawValue> = serde_json::from_str(list.get()).ok()?;
    let shown: Vec<&str> = elements
        .iter()
        .filter(|element| !hides(element))
        .map(|element| element.get())
        .collect();
    let range = place(data, list).filter(|_| shown.len() < elements.len())?;
    Some(Edit {
        range,
        with: Bytes::from(format!("[{}]", shown.join(","))),
    })
}
