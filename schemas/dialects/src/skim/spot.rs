//! Where in a list something stands that cannot be read.

use std::fmt;

/// A place in a member's value: the value, or somewhere in the list that it is. What lies deeper is not told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Spot {
    /// The value.
    #[default]
    Whole,
    /// An entry of the list.
    Entry(usize),
    /// A member of an entry.
    Member(usize, &'static str),
    /// An entry of a list that is a member of an entry.
    Part(usize, &'static str, usize),
}

impl Spot {
    /// The place of an entry, in a list that stands here.
    pub(super) const fn entry(self, place: usize) -> Self {
        match self {
            Self::Whole => Self::Entry(place),
            Self::Member(entry, name) => Self::Part(entry, name, place),
            Self::Entry(_) | Self::Part(..) => self,
        }
    }

    /// The place of a member, of an entry that stands here.
    pub(super) const fn member(self, name: &'static str) -> Self {
        match self {
            Self::Entry(entry) => Self::Member(entry, name),
            Self::Whole | Self::Member(..) | Self::Part(..) => self,
        }
    }
}

impl fmt::Display for Spot {
    /// As it follows the name of its member.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole => Ok(()),
            Self::Entry(entry) => write!(f, ".{entry}"),
            Self::Member(entry, name) => write!(f, ".{entry}.{name}"),
            Self::Part(entry, name, part) => write!(f, ".{entry}.{name}.{part}"),
        }
    }
}
