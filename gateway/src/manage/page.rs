//! Pages of records: so many, from where the page before ended.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use schemas::failure::Failure;
use schemas::id::TenantId;
use serde::Serialize;

use super::{Parameters, invalid, number, parameters, rights};
use crate::caller::Caller;

/// Records of a page that says no number.
const RECORDS_DEFAULT: u32 = 50;
/// Most records of a page.
const RECORDS_MAX: u32 = 1_000;

/// What may be asked for as the size of a page.
pub(super) fn page_size(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "integer", "minimum": 1, "maximum": RECORDS_MAX, "default": RECORDS_DEFAULT})
}

/// A page as it is shown.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "PageOf{T}")]
pub(super) struct Page<T> {
    /// The records.
    data: Vec<T>,
    /// To be given as `after` for the page that follows; null on the last one.
    next: Option<String>,
}

/// What of a list is asked for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    limit: usize,
    /// Where the page before ended.
    pub(super) after: Option<String>,
    /// The tenant whose records are asked for.
    tenant: Option<String>,
}

impl Asked {
    /// Reads the parameters of a URL. Only lists of what tenants have may be asked for one `of_tenant`.
    pub(super) fn of(given: Parameters, of_tenant: bool) -> Result<Self, Failure> {
        let mut asked = Self {
            limit: RECORDS_DEFAULT as usize,
            after: None,
            tenant: None,
        };
        for (name, value) in parameters(given)? {
            match name.as_str() {
                "limit" => asked.limit = number(&name, &value, 1, RECORDS_MAX)? as usize,
                "after" => asked.after = Some(value),
                "tenant" if of_tenant => asked.tenant = Some(value),
                _ => return Err(invalid(name, "there is no such parameter")),
            }
        }
        Ok(asked)
    }

    /// Which tenants' records are asked for: the one that is named, or all, of those that the caller administers.
    pub(super) fn reaching<'c>(
        &self,
        caller: &'c Caller,
    ) -> Result<impl Fn(&TenantId) -> bool + 'c, Failure> {
        let named = self.tenant.as_deref();
        let only = named.map(|named| rights::tenant(caller, Some(named)));
        let only = only.transpose()?;
        Ok(move |tenant: &TenantId| {
            rights::reaches(caller, tenant) && only.as_ref().is_none_or(|only| only == tenant)
        })
    }

    /// The place where the page before ended, as `read` reads it.
    pub(super) fn after_place<T>(&self, read: impl Fn(&str) -> Option<T>) -> Result<Option<T>, Failure> {
        let place =
            |cursor| read(cursor).ok_or_else(|| invalid("after", "expected what a page said as next"));
        self.after.as_deref().map(place).transpose()
    }

    /// Records of the page.
    pub(super) const fn limit(&self) -> usize {
        self.limit
    }

    /// The first of `records`, which are all that follow; `cursor` says where the page ends.
    pub(super) fn page<R, T>(
        &self,
        records: Vec<R>,
        cursor: impl Fn(&R) -> String,
        shown: impl Fn(R) -> T,
    ) -> Page<T> {
        let more = records.len() > self.limit;
        let last = records.get(self.limit - 1).filter(|_| more);
        let next = last.map(cursor);
        let data = records.into_iter().take(self.limit).map(shown).collect();
        Page { data, next }
    }
}
