//! The limits of which a node holds something, each at a place of its own, so that a request that found them once finds
//! them again without looking for their names.

use super::super::layers::{Name, NameMap};
use crate::limit::quota::Quota;
use crate::limit::rate::Rate;
use crate::limit::slots::Slots;

/// Where a limit is. A place is not given again: what was here once and is not any more is found nowhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    index: u32,
    /// How many left the seat before.
    turn: u32,
}

impl Place {
    /// Where nothing is.
    pub(super) const NOWHERE: Self = Self {
        index: u32::MAX,
        turn: u32::MAX,
    };
}

/// One node's side of a limit, by its kind.
#[derive(Debug)]
pub(super) enum Limit {
    Rate(Rate),
    Slots(Slots),
    Quota(Quota),
}

/// A limit and its name.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) name: Name,
    pub(super) limit: Limit,
    is_touched: bool,
    is_stirred: bool,
}

#[derive(Debug)]
struct Seat {
    turn: u32,
    entry: Option<Entry>,
}

/// All of them. Their order is the same for the same history.
#[derive(Debug, Default)]
pub(super) struct Shelf {
    seats: Vec<Seat>,
    free: Vec<u32>,
    by_name: NameMap<Place>,
    /// Those about which there may be something to ask.
    touched: Vec<Place>,
    /// Those of which there may be more now than those that wait know.
    stirred: Vec<Place>,
}

impl Shelf {
    /// Where the limit of a name is.
    pub(super) fn place(&self, name: &Name) -> Option<Place> {
        self.by_name.get(name).copied()
    }

    /// The same, where `known` may be it.
    pub(super) fn place_near(&self, known: Place, name: &Name) -> Option<Place> {
        match self.entry(known) {
            Some(_) => Some(known),
            None => self.place(name),
        }
    }

    /// Takes in a limit that is not here yet.
    pub(super) fn put(&mut self, name: Name, limit: Limit) -> Place {
        let entry = Some(Entry {
            name: name.clone(),
            limit,
            is_touched: false,
            is_stirred: false,
        });
        let index = self
            .free
            .pop()
            .and_then(|index| Some((index, self.seat(index)?.turn)));
        let place = if let Some((index, turn)) = index {
            Place { index, turn }
        } else {
            let index = u32::try_from(self.seats.len()).unwrap_or(u32::MAX);
            self.seats.push(Seat { turn: 0, entry: None });
            Place { index, turn: 0 }
        };
        if let Some(seat) = self.seat(place.index) {
            seat.entry = entry;
        }
        self.by_name.insert(name, place);
        place
    }

    fn seat(&mut self, index: u32) -> Option<&mut Seat> {
        self.seats.get_mut(index as usize)
    }

    /// What is at a place.
    pub(super) fn entry(&self, place: Place) -> Option<&Entry> {
        let seat = self.seats.get(place.index as usize)?;
        seat.entry.as_ref().filter(|_| seat.turn == place.turn)
    }

    pub(super) fn entry_mut(&mut self, place: Place) -> Option<&mut Entry> {
        entry_of(&mut self.seats, place)
    }

    pub(super) fn rate(&mut self, place: Place) -> Option<&mut Rate> {
        match &mut self.entry_mut(place)?.limit {
            Limit::Rate(rate) => Some(rate),
            Limit::Slots(_) | Limit::Quota(_) => None,
        }
    }

    pub(super) fn quota(&mut self, place: Place) -> Option<&mut Quota> {
        match &mut self.entry_mut(place)?.limit {
            Limit::Quota(quota) => Some(quota),
            Limit::Rate(_) | Limit::Slots(_) => None,
        }
    }

    /// What is here under a name.
    pub(super) fn named(&self, name: &Name) -> Option<&Limit> {
        Some(&self.entry(self.place(name)?)?.limit)
    }

    /// There may be something to ask about this one.
    pub(super) fn touch(&mut self, place: Place) -> Option<&mut Limit> {
        let entry = entry_of(&mut self.seats, place)?;
        mark(&mut entry.is_touched, &mut self.touched, place);
        Some(&mut entry.limit)
    }

    /// Something changed about this one: there may be something to ask, and those that wait may go on.
    pub(super) fn stir(&mut self, place: Place) -> Option<&mut Limit> {
        let entry = entry_of(&mut self.seats, place)?;
        mark(&mut entry.is_touched, &mut self.touched, place);
        mark(&mut entry.is_stirred, &mut self.stirred, place);
        Some(&mut entry.limit)
    }

    /// Those that were touched since this was asked last.
    pub(super) fn take_touched(&mut self) -> Vec<Place> {
        let touched = std::mem::take(&mut self.touched);
        self.unmark(&touched, |entry| &mut entry.is_touched);
        touched
    }

    /// Those that were stirred since this was asked last.
    pub(super) fn take_stirred(&mut self) -> Vec<Place> {
        let stirred = std::mem::take(&mut self.stirred);
        self.unmark(&stirred, |entry| &mut entry.is_stirred);
        stirred
    }

    fn unmark(&mut self, places: &[Place], mark: impl Fn(&mut Entry) -> &mut bool) {
        for place in places {
            if let Some(entry) = self.entry_mut(*place) {
                *mark(entry) = false;
            }
        }
    }

    /// Lets go what `is_idle`, and touches all the others.
    pub(super) fn sweep(&mut self, is_idle: impl Fn(&Limit) -> bool) {
        self.touched.clear();
        for (index, seat) in (0_u32..).zip(&mut self.seats) {
            if let Some(gone) = seat.entry.take_if(|entry| is_idle(&entry.limit)) {
                self.by_name.remove(&gone.name);
                // A seat whose turns are used up stays empty.
                if let Some(turn) = seat.turn.checked_add(1).filter(|turn| *turn < u32::MAX) {
                    seat.turn = turn;
                    self.free.push(index);
                }
            } else if let Some(entry) = &mut seat.entry {
                entry.is_touched = true;
                let turn = seat.turn;
                self.touched.push(Place { index, turn });
            }
        }
    }

    /// Every one.
    pub(super) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.seats.iter().filter_map(|seat| seat.entry.as_ref())
    }

    /// Every one, to be changed.
    pub(super) fn limits_mut(&mut self) -> impl Iterator<Item = &mut Limit> {
        self.seats
            .iter_mut()
            .filter_map(|seat| Some(&mut seat.entry.as_mut()?.limit))
    }

    /// Where every one is.
    pub(super) fn places(&self) -> Vec<Place> {
        let place = |(index, seat): (u32, &Seat)| {
            let turn = seat.turn;
            seat.entry.is_some().then_some(Place { index, turn })
        };
        (0_u32..).zip(&self.seats).filter_map(place).collect()
    }
}

/// What is at a place of these seats.
fn entry_of(seats: &mut [Seat], place: Place) -> Option<&mut Entry> {
    let seat = seats.get_mut(place.index as usize)?;
    seat.entry.as_mut().filter(|_| seat.turn == place.turn)
}

/// Notes a place once.
fn mark(is_marked: &mut bool, places: &mut Vec<Place>, place: Place) {
    if !std::mem::replace(is_marked, true) {
        places.push(place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::limits::Slice;

    fn rate() -> Limit {
        Limit::Rate(Rate::new(Slice::Second, 7))
    }

    #[test]
    fn a_place_that_was_left_is_nobodys_even_when_another_took_the_seat() {
        let mut shelf = Shelf::default();
        let (a, b) = (Name::from("a"), Name::from("b"));
        let was = shelf.put(a.clone(), rate());
        shelf.sweep(|_| true);

        let is = shelf.put(b.clone(), rate());

        assert_eq!((was.index, is.index), (0, 0), "one seat");
        assert!(shelf.entry(was).is_none() && shelf.touch(was).is_none() && shelf.stir(was).is_none());
        assert_eq!((shelf.place(&a), shelf.place_near(was, &b)), (None, Some(is)));
        assert!(shelf.entry(Place::NOWHERE).is_none());
    }

    #[test]
    fn what_is_touched_or_stirred_often_is_told_of_once() {
        let mut shelf = Shelf::default();
        let places = ["a", "b"].map(|name| shelf.put(Name::from(name), rate()));
        for place in [places[1], places[0], places[1]] {
            shelf.touch(place);
        }
        shelf.stir(places[1]);

        assert_eq!(shelf.take_touched(), [places[1], places[0]]);
        assert_eq!(shelf.take_stirred(), [places[1]]);
        assert_eq!((shelf.take_touched(), shelf.take_stirred()), (vec![], vec![]));

        shelf.sweep(|_| false);
        shelf.touch(places[0]);
        assert_eq!(shelf.take_touched(), places);
    }
}
