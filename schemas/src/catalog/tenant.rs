//! Tenants: who pays.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Catalog, Origin, Stored};
use crate::id::TenantId;
use crate::limit::limits::Limits;
use crate::subject;
use crate::time::Timestamp;

/// Who pays.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tenant {
    /// Its id.
    pub id: TenantId,
    /// The name people read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Arc<str>>,
    /// What it may use, over all its members and keys.
    #[serde(default)]
    pub limits: Limits,
    /// Its keys are refused.
    #[serde(default)]
    pub disabled: bool,
    /// When it was made at run time; `None` for one of a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_at: Option<Timestamp>,
    /// Where it came from.
    pub origin: Origin,
}

impl Tenant {
    /// One without a name and without limits.
    pub fn new(id: TenantId, origin: Origin) -> Self {
        Self {
            id,
            name: None,
            limits: Limits::default(),
            disabled: false,
            created_at: None,
            origin,
        }
    }
}

impl Catalog {
    /// A tenant.
    pub fn tenant(&self, id: &TenantId) -> Option<&Arc<Tenant>> {
        self.stored_tenant(id).map(|stored| &stored.record)
    }

    /// The same with its revision.
    pub fn stored_tenant(&self, id: &TenantId) -> Option<&Stored<Tenant>> {
        self.tenants.get(id)
    }

    /// Every tenant that comes after `after`, by id.
    pub fn tenants_after(&self, after: Option<&TenantId>) -> Vec<&Stored<Tenant>> {
        let later = |stored: &&Stored<Tenant>| after.is_none_or(|after| stored.record.id > *after);
        let mut tenants: Vec<_> = self.tenants.values().filter(later).collect();
        tenants.sort_by(|a, b| a.record.id.cmp(&b.record.id));
        tenants
    }
}

/// The record key of a tenant.
pub fn tenant_key(id: &TenantId) -> String {
    format!("{}{}", subject::catalog::TENANT, id.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenants_are_told_in_order_from_where_a_page_ended_and_with_their_revisions() {
        let mut catalog = Catalog::default();
        for (revision, id) in [(4, "b"), (5, "c"), (6, "a")] {
            let tenant = Tenant::new(TenantId::from(id), Origin::Runtime);
            let value = serde_json::to_vec(&tenant).expect("serialize");
            catalog
                .apply(revision, &tenant_key(&tenant.id), Some(&value))
                .expect("apply");
        }
        let told = |after: Option<&str>| -> Vec<(u64, String)> {
            let after = after.map(TenantId::from);
            let tenants = catalog.tenants_after(after.as_ref()).into_iter();
            tenants
                .map(|stored| (stored.revision, stored.record.id.to_string()))
                .collect()
        };

        assert_eq!(told(None), [(6, "a".into()), (4, "b".into()), (5, "c".into())]);
        assert_eq!(told(Some("a")), [(4, "b".into()), (5, "c".into())]);
        assert_eq!(told(Some("bb")), [(5, "c".into())]);
        assert_eq!(told(Some("c")), []);
    }

    #[test]
    fn a_record_of_before_names_and_times_is_read() {
        let old: Tenant = serde_json::from_str(r#"{"id":"acme","origin":"file"}"#).expect("read");
        assert_eq!(old, Tenant::new(TenantId::from("acme"), Origin::File));
    }
}
