//! Ids of the newest messages: one that is published again gets its first place.

use std::collections::{HashMap, VecDeque};

use uuid::Uuid;

/// The newest ids and their places.
#[derive(Debug)]
pub(super) struct Duplicates {
    places: HashMap<Id, u64>,
    /// Oldest first.
    order: VecDeque<(Id, u64)>,
    ids_max: usize,
}

/// Almost every id is a UUID, which needs no allocation.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Id {
    Uuid([u8; 16]),
    Text(Box<str>),
}

impl Id {
    fn of(text: &str) -> Self {
        match Uuid::try_parse(text) {
            // Only the one form that ids are written in: other spellings are other ids.
            Ok(uuid) if text.len() == 36 && !text.bytes().any(|byte| byte.is_ascii_uppercase()) => {
                Self::Uuid(uuid.into_bytes())
            }
            _ => Self::Text(text.into()),
        }
    }
}

impl Duplicates {
    pub(super) fn new(ids_max: usize) -> Self {
        Self {
            places: HashMap::new(),
            order: VecDeque::new(),
            ids_max,
        }
    }

    /// The place of a message that is known.
    pub(super) fn place(&self, id: &str) -> Option<u64> {
        self.places.get(&Id::of(id)).copied()
    }

    /// Notes a new message. [`Duplicates::shrink`] is called once what was noted is stored.
    pub(super) fn note(&mut self, id: &str, place: u64) {
        let id = Id::of(id);
        self.places.insert(id.clone(), place);
        self.order.push_back((id, place));
    }

    /// Forgets what is beyond the window.
    pub(super) fn shrink(&mut self) {
        while self.order.len() > self.ids_max {
            if let Some((id, place)) = self.order.pop_front()
                && self.places.get(&id) == Some(&place)
            {
                self.places.remove(&id);
            }
        }
    }

    /// Forgets messages at and after a place.
    pub(super) fn forget_from(&mut self, first: u64) {
        while let Some((id, _)) = self.order.pop_back_if(|(_, place)| *place >= first) {
            self.places.remove(&id);
        }
    }
}
