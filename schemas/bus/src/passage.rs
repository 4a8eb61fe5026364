//! Changes of several records of the catalogue that count together, such as those of a file. They are written one after
//! another between two marks, and whoever follows the catalogue shows none of them before the second mark is there: no
//! call meets half of a change. A second mark that never comes, because its writer is gone, is waited for no longer than
//! [`LIFE`].

use std::time::Duration;

use bytes::Bytes;
use schemas::subject::{CATALOG_BUCKET, catalog};
use tokio::time::{Instant, sleep, sleep_until};

use crate::{BusError, Entry, Expected, Kv, Revision};

/// How long a passage may keep others from beginning one, and changes from being shown.
pub const LIFE: Duration = Duration::from_secs(1);
/// Time between two looks at the passage of somebody else.
const LOOK: Duration = Duration::from_millis(10);

/// A record to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// Its place in the bucket.
    pub key: String,
    /// What it is to say; `None` where it is to be deleted.
    pub value: Option<Bytes>,
    /// What is there before.
    pub expected: Expected,
}

/// Changes under way. One that is dropped without its end is over after [`LIFE`].
#[must_use]
pub struct Passage<'a> {
    kv: &'a dyn Kv,
    number: u64,
}

impl<'a> Passage<'a> {
    /// Begins one, after that of anybody else is over. What is to be written is decided after this.
    pub async fn begin(kv: &'a dyn Kv) -> Result<Self, BusError> {
        let until = Instant::now() + LIFE;
        loop {
            let begun = kv.get(CATALOG_BUCKET, catalog::BEGUN).await?;
            let over = kv.get(CATALOG_BUCKET, catalog::OVER).await?;
            let newest = begun.as_ref().map_or(0, number);
            let is_under_way = newest > over.as_ref().map_or(0, number);
            if is_under_way && Instant::now() < until {
                sleep(LOOK).await;
                continue;
            }
            let expected = begun.map_or(Expected::Absent, |entry| Expected::Revision(entry.revision));
            let number = newest + 1;
            let put = kv.put(CATALOG_BUCKET, catalog::BEGUN, text(number), expected);
            match put.await {
                Ok(_) => return Ok(Self { kv, number }),
                // Somebody else was faster.
                Err(BusError::Conflict) if Instant::now() < until => {}
                Err(problem) => return Err(problem),
            }
        }
    }

    /// Writes records: who is named comes before who names him, and goes after. After an error some of them are written.
    pub async fn write(&self, mut writes: Vec<Write>) -> Result<(), BusError> {
        writes.sort_by_key(rank);
        for Write { key, value, expected } in writes {
            match value {
                Some(value) => self.kv.put(CATALOG_BUCKET, &key, value, expected).await?,
                None => self.kv.delete(CATALOG_BUCKET, &key, expected).await?,
            };
        }
        Ok(())
    }

    /// Ends it: all that was written counts from now on, with this revision.
    pub async fn end(self) -> Result<Revision, BusError> {
        let number = text(self.number);
        self.kv
            .put(CATALOG_BUCKET, catalog::OVER, number, Expected::Any)
            .await
    }
}

/// The place of a write among the others of its passage. It only matters to passages that their writer leaves amidst.
fn rank(write: &Write) -> u8 {
    let is_of = |prefix: &str| write.key.starts_with(prefix);
    match (is_of(catalog::ENDPOINT), is_of(catalog::MODEL), &write.value) {
        (true, _, Some(_)) => 0,
        (_, true, Some(_)) => 1,
        (false, false, _) => 2,
        (_, true, None) => 3,
        (true, _, None) => 4,
    }
}

fn text(number: u64) -> Bytes {
    Bytes::from(number.to_string())
}

fn number(entry: &Entry) -> u64 {
    let text = entry
        .value
        .as_deref()
        .and_then(|value| std::str::from_utf8(value).ok());
    text.and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// What the marks say to one who follows the catalogue.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    begun: u64,
    over: u64,
    /// Until when the passage under way is waited for.
    until: Option<Instant>,
}

impl Marks {
    /// Takes in an entry. True for the mark that ends what was under way: all of it has been told.
    pub(crate) fn hear(&mut self, entry: &Entry, now: Instant) -> bool {
        match entry.key.as_str() {
            catalog::BEGUN => self.begun = self.begun.max(number(entry)),
            catalog::OVER => self.over = self.over.max(number(entry)),
            _ => return false,
        }
        if self.begun > self.over {
            self.until.get_or_insert(now + LIFE);
            return false;
        }
        self.until.take().is_some()
    }

    /// True while nothing may be shown.
    pub(crate) const fn holds(&self) -> bool {
        self.until.is_some()
    }

    /// Returns when the passage under way is not waited for any more; never where none is.
    pub(crate) async fn given_up(&mut self) {
        match self.until {
            Some(until) => sleep_until(until).await,
            None => std::future::pending().await,
        }
        self.until = None;
    }
}

#[cfg(test)]
mod tests;
