//! Values of rows as SQLite holds them: times, days and ids are text, yes and no are 1 and 0.

use std::borrow::Cow;
use std::sync::Arc;

use chrono::NaiveDate;
use schemas::id::RequestId;
use schemas::time::Timestamp;
use sqlx::Row as _;
use sqlx::sqlite::SqliteRow;
use uuid::Uuid;

use super::statement::Values;
use crate::store::StoreError;
use crate::store::row::{Fields, Sink, integer, text, unreadable};

impl Sink for Values {
    fn text(&mut self, value: Option<&str>) {
        self.put(value.map(str::to_owned));
    }

    fn shared(&mut self, value: Option<&Arc<str>>) {
        self.put(value.map(Arc::clone));
    }

    fn json(&mut self, value: Option<String>) {
        self.put(value);
    }

    fn integer(&mut self, value: Option<i64>) {
        self.put(value);
    }

    fn truth(&mut self, value: bool) {
        self.put(i64::from(value));
    }

    fn time(&mut self, value: Timestamp) {
        self.put(value.to_string());
    }

    fn day(&mut self, value: NaiveDate) {
        self.put(value.to_string());
    }

    fn id(&mut self, value: RequestId) {
        self.put(value.to_string());
    }
}

impl Fields for SqliteRow {
    fn optional_text(&self, name: &'static str) -> Result<Option<Cow<'_, str>>, StoreError> {
        let value: Option<&str> = self.try_get(name).map_err(|_| unreadable(name))?;
        Ok(value.map(Cow::Borrowed))
    }

    fn optional_integer(&self, name: &'static str) -> Result<Option<i64>, StoreError> {
        self.try_get(name).map_err(|_| unreadable(name))
    }

    fn truth(&self, name: &'static str) -> Result<bool, StoreError> {
        Ok(integer(self, name)? != 0)
    }

    fn time(&self, name: &'static str) -> Result<Timestamp, StoreError> {
        Timestamp::parse(&text(self, name)?).ok_or_else(|| unreadable(name))
    }

    fn day(&self, name: &'static str) -> Result<NaiveDate, StoreError> {
        text(self, name)?.parse().map_err(|_| unreadable(name))
    }

    fn id(&self, name: &'static str) -> Result<RequestId, StoreError> {
        Uuid::try_parse(&text(self, name)?)
            .map(RequestId)
            .map_err(|_| unreadable(name))
    }
}
