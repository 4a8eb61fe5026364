//! What a provider bills beside what the books have of it: pure.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::Serialize;

/// What is compared of a call, or of all calls of a day. `None` is what the file does not tell, and then nothing of ours
/// either.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Figures {
    /// Tokens of prompts, cached ones and those written to a cache included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_tokens: Option<i64>,
    /// Tokens of answers, reasoning included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_tokens: Option<i64>,
    /// Money, in nano-dollars.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_nano_usd: Option<i64>,
}

impl Figures {
    /// Figure by figure; what only one side has counts as 0 on the other.
    fn with(self, other: Self, join: fn(i64, i64) -> Option<i64>) -> Result<Self, TooLarge> {
        let joined = |one: Option<i64>, other: Option<i64>| match (one, other) {
            (None, None) => Ok(None),
            (one, other) => join(one.unwrap_or(0), other.unwrap_or(0))
                .map(Some)
                .ok_or(TooLarge),
        };
        Ok(Self {
            input_tokens: joined(self.input_tokens, other.input_tokens)?,
            output_tokens: joined(self.output_tokens, other.output_tokens)?,
            cost_nano_usd: joined(self.cost_nano_usd, other.cost_nano_usd)?,
        })
    }

    fn plus(self, other: Self) -> Result<Self, TooLarge> {
        self.with(other, i64::checked_add)
    }

    fn minus(self, other: Self) -> Result<Self, TooLarge> {
        self.with(other, i64::checked_sub)
    }

    /// Without what `like` does not tell.
    fn only(self, like: Self) -> Self {
        Self {
            input_tokens: self.input_tokens.filter(|_| like.input_tokens.is_some()),
            output_tokens: self.output_tokens.filter(|_| like.output_tokens.is_some()),
            cost_nano_usd: self.cost_nano_usd.filter(|_| like.cost_nano_usd.is_some()),
        }
    }

    /// Whether nothing is left of a difference: tokens are equal, money up to `tolerance` nano-dollars.
    fn is_within(self, tolerance: u64) -> bool {
        let cost = self.cost_nano_usd.unwrap_or(0).unsigned_abs();
        self.input_tokens.unwrap_or(0) == 0 && self.output_tokens.unwrap_or(0) == 0 && cost <= tolerance
    }
}

/// A sum is beyond 64 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the sums are larger than anything that can be billed")]
pub struct TooLarge;

/// What is compared with what.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(untagged)]
pub enum Key {
    /// One request.
    Request {
        /// Its id: ours, or the caller's own.
        request_id: String,
    },
    /// All calls of a model on a UTC day.
    Day {
        /// As 2026-12-01.
        day: String,
        /// The provider's name of the model.
        model: String,
    },
}

/// One line of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// What it is about.
    pub key: Key,
    /// What it bills.
    pub figures: Figures,
}

/// What the books have of one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Booked {
    /// Its id.
    pub request_id: String,
    /// The caller's own id of it.
    pub client_request_id: Option<String>,
    /// The UTC day on which it was admitted.
    pub day: String,
    /// The model as the provider calls it.
    pub model: String,
    /// What was counted and paid, all of it.
    pub figures: Figures,
}

/// What is not the same on both sides.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Item {
    /// What it is about.
    #[serde(flatten)]
    pub key: Key,
    /// What the books say; `None` when they do not know it.
    pub ours: Option<Figures>,
    /// What the file says; `None` when it does not know it.
    pub theirs: Option<Figures>,
    /// Theirs without ours: more than nothing where they bill more.
    pub difference: Figures,
}

/// What all of it comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Sums {
    /// By the books.
    pub ours: Figures,
    /// By the file.
    pub theirs: Figures,
    /// Theirs without ours.
    pub difference: Figures,
}

/// The outcome of a comparison.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Report {
    /// How many are equal.
    pub matched: u64,
    /// Those that both sides know, and tell differently.
    pub differing: Vec<Item>,
    /// Those that only the file knows.
    pub missing_in_books: Vec<Item>,
    /// Those that only the books know.
    pub missing_in_file: Vec<Item>,
    /// The sums, of what is equal as well.
    pub sums: Sums,
}

impl Report {
    /// Whether both sides say the same.
    pub const fn is_equal(&self) -> bool {
        self.differing.is_empty() && self.missing_in_books.is_empty() && self.missing_in_file.is_empty()
    }
}

/// Compares the lines of a file with what the books have of the same time. Lines of one key are added up. `like` has the
/// figures that are compared, each 0; `tolerance` is in nano-dollars, for each key.
pub fn compare(lines: &[Line], booked: &[Booked], like: Figures, tolerance: u64) -> Result<Report, TooLarge> {
    let names = by_client(booked);
    let is_by_day = lines.iter().any(|line| matches!(line.key, Key::Day { .. }));
    let (mut theirs, mut ours) = (BTreeMap::new(), BTreeMap::new());
    for line in lines {
        add(&mut theirs, resolved(&line.key, &names), line.figures)?;
    }
    for one in booked {
        let key = if is_by_day {
            Key::Day {
                day: one.day.clone(),
                model: one.model.clone(),
            }
        } else {
            Key::Request {
                request_id: one.request_id.clone(),
            }
        };
        add(&mut ours, key, one.figures.only(like))?;
    }
    let mut report = Report::default();
    // Zeros: a sum of nothing is told as well.
    (report.sums.ours, report.sums.theirs) = (like, like);
    for key in theirs.keys().chain(ours.keys()).collect::<BTreeSet<&Key>>() {
        let sides = (ours.get(key).copied(), theirs.get(key).copied());
        report.take(key, sides, tolerance)?;
    }
    report.sums.difference = report.sums.theirs.minus(report.sums.ours)?;
    Ok(report)
}

impl Report {
    fn take(
        &mut self,
        key: &Key,
        (ours, theirs): (Option<Figures>, Option<Figures>),
        tolerance: u64,
    ) -> Result<(), TooLarge> {
        let difference = theirs.unwrap_or_default().minus(ours.unwrap_or_default())?;
        self.sums.ours = self.sums.ours.plus(ours.unwrap_or_default())?;
        self.sums.theirs = self.sums.theirs.plus(theirs.unwrap_or_default())?;
        let of_both = match (ours, theirs) {
            (Some(_), None) => &mut self.missing_in_file,
            (None, _) => &mut self.missing_in_books,
            (Some(_), Some(_)) => &mut self.differing,
        };
        // Who counted nothing and paid nothing was not there: a call that failed is on no bill.
        if theirs.is_none() && difference.is_within(0) {
            return Ok(());
        }
        if ours.is_some() && theirs.is_some() && difference.is_within(tolerance) {
            self.matched += 1;
            return Ok(());
        }
        of_both.push(Item {
            key: key.clone(),
            ours,
            theirs,
            difference,
        });
        Ok(())
    }
}

fn add(sums: &mut BTreeMap<Key, Figures>, key: Key, figures: Figures) -> Result<(), TooLarge> {
    let sum = sums.entry(key).or_default();
    *sum = sum.plus(figures)?;
    Ok(())
}

/// Our ids by the callers' own; `None` where several requests have the same one, which then says nothing.
fn by_client(booked: &[Booked]) -> HashMap<&str, Option<&str>> {
    let mut names: HashMap<&str, Option<&str>> = HashMap::new();
    for one in booked {
        let Some(client) = one.client_request_id.as_deref() else {
            continue;
        };
        names
            .entry(client)
            .and_modify(|id| *id = None)
            .or_insert(Some(&one.request_id));
    }
    names
}

/// A key under our id of the request, where it is the caller's own.
fn resolved(key: &Key, names: &HashMap<&str, Option<&str>>) -> Key {
    let Key::Request { request_id } = key else {
        return key.clone();
    };
    let id = names.get(request_id.as_str()).copied().flatten();
    Key::Request {
        request_id: id.unwrap_or(request_id).to_owned(),
    }
}

#[cfg(test)]
mod tests;
