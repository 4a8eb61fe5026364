//! What a credential reaches: all that its role may, or only calls of models, for one endpoint or for one job.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Catalog, Key, KeyDigest, Model, Role, Stored, hex};
use crate::id::{EndpointId, ModelName};
use crate::subject;

/// What a credential reaches.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Reach {
    /// All that its role may.
    #[default]
    Member,
    /// Calls of the models that this endpoint serves.
    Endpoint(EndpointId),
    /// Calls of models for this job, which is somebody else's name of it.
    Grant(Arc<str>),
}

impl Reach {
    /// True for what is bounded by its role alone.
    pub const fn is_member(&self) -> bool {
        matches!(self, Self::Member)
    }

    /// The job that it is for; `None` for what is for none.
    pub const fn job(&self) -> Option<&Arc<str>> {
        match self {
            Self::Grant(job) => Some(job),
            Self::Member | Self::Endpoint(_) => None,
        }
    }

    /// Where records of its kind lie.
    const fn prefix(&self) -> &'static str {
        match self {
            Self::Member => subject::catalog::KEY,
            Self::Endpoint(_) => subject::catalog::ENDPOINT_KEY,
            Self::Grant(_) => subject::catalog::GRANT,
        }
    }
}

/// The kinds of what credentials reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Keys of members.
    Member,
    /// Keys of endpoints.
    Endpoint,
    /// Grants.
    Grant,
}

impl Kind {
    /// Whose kind this reach is.
    pub const fn of(reach: &Reach) -> Self {
        match reach {
            Reach::Member => Self::Member,
            Reach::Endpoint(_) => Self::Endpoint,
            Reach::Grant(_) => Self::Grant,
        }
    }

    /// The kind of a record, by its place, and what of the place names the record.
    pub(super) fn of_place(place: &str) -> Option<(Self, &str)> {
        [
            (Self::Member, subject::catalog::KEY),
            (Self::Endpoint, subject::catalog::ENDPOINT_KEY),
            (Self::Grant, subject::catalog::GRANT),
        ]
        .into_iter()
        .find_map(|(kind, prefix)| Some((kind, place.strip_prefix(prefix)?)))
    }
}

/// The record key of a credential. Each kind has a place of its own, so that who does not know a kind refuses its
/// credentials instead of serving more than they are for.
pub fn credential_key(digest: &KeyDigest, reach: &Reach) -> String {
    format!("{}{}", reach.prefix(), hex(digest))
}

impl Key {
    /// The highest role that counts for it: only members' keys administer.
    pub fn role_most(&self) -> Role {
        if self.reach.is_member() {
            Role::Operator
        } else {
            Role::Internal
        }
    }
}

impl Catalog {
    /// The credential of an id. One that was replaced has the records of all its secrets under one id: the one told is
    /// that which is good, else the youngest.
    pub fn key_of_id(&self, kind: Kind, id: &str) -> Option<(&KeyDigest, &Stored<Key>)> {
        self.records_of_id(kind, id)
            .into_iter()
            .max_by_key(|(_, stored)| currency(stored))
    }

    /// Every record of a credential's id.
    pub fn records_of_id(&self, kind: Kind, id: &str) -> Vec<(&KeyDigest, &Stored<Key>)> {
        let mut records: Vec<_> = self
            .stored_keys()
            .filter(|(_, stored)| stored.record.id.as_str() == id && Kind::of(&stored.record.reach) == kind)
            .collect();
        records.sort_by_key(|(_, stored)| currency(stored));
        records
    }

    /// The credentials of a kind that come after `after`, by id, each once.
    pub fn keys_after(&self, kind: Kind, after: Option<&str>) -> Vec<&Stored<Key>> {
        let mut found: Vec<&Stored<Key>> = self
            .stored_keys()
            .map(|(_, stored)| stored)
            .filter(|stored| {
                let key = &stored.record;
                Kind::of(&key.reach) == kind && after.is_none_or(|after| key.id.as_str() > after)
            })
            .collect();
        found.sort_by(|a, b| (&a.record.id, currency(b)).cmp(&(&b.record.id, currency(a))));
        found.dedup_by(|a, b| a.record.id == b.record.id);
        found
    }

    /// May a credential see and call a model, as far as its own narrowness and its member's are concerned? Its role,
    /// its tenant and the list of its models are judged elsewhere.
    pub fn reaches(&self, key: &Key, model: &Model) -> bool {
        let named = |names: &[ModelName]| {
            names
                .iter()
                .any(|name| *name == model.id || model.aliases.contains(name))
        };
        let user = key.user.as_ref().and_then(|id| self.user(&key.tenant, id));
        let user = user.or_else(|| self.maker_of(key));
        let served = match &key.reach {
            Reach::Endpoint(endpoint) => model.routes.iter().any(|route| route.endpoint_id == *endpoint),
            Reach::Member | Reach::Grant(_) => true,
        };
        served && !named(&key.denied) && !user.is_some_and(|user| named(&user.disabled_models))
    }
}

/// Which of several records of one id is the one that counts: the higher.
fn currency(stored: &Stored<Key>) -> (bool, Option<crate::time::Timestamp>, u64) {
    let key = &stored.record;
    (!key.revoked, key.rotated_at, stored.revision)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::tests::key;
    use crate::id::KeyId;
    use crate::time::Timestamp;

    fn put(catalog: &mut Catalog, revision: u64, place: u8, key: &Key) {
        let value = serde_json::to_vec(key).expect("serialize");
        let place = credential_key(&[place; 32], &key.reach);
        catalog.apply(revision, &place, Some(&value)).expect("apply");
    }

    #[test]
    fn a_credential_lies_where_its_kind_does_and_nowhere_else() {
        let mut catalog = Catalog::default();
        let grant = Key {
            reach: Reach::Grant("job".into()),
            ..key("g")
        };
        put(&mut catalog, 1, 1, &grant);
        let value = serde_json::to_vec(&grant).expect("serialize");

        assert_eq!(catalog.key(&[1; 32]).expect("there").reach, grant.reach);
        let as_key = crate::catalog::key_key(&[2; 32]);
        assert!(catalog.apply(2, &as_key, Some(&value)).is_err());
        assert!(catalog.key(&[2; 32]).is_none());
    }

    #[test]
    fn of_a_replaced_credential_the_good_record_is_told_once() {
        let mut catalog = Catalog::default();
        let old = Key {
            revoked: true,
            ..key("k")
        };
        let new = Key {
            rotated_at: Some(Timestamp::from_micros(5)),
            ..key("k")
        };
        put(&mut catalog, 4, 2, &new);
        put(&mut catalog, 9, 1, &old);
        put(&mut catalog, 3, 3, &key("l"));

        let (digest, found) = catalog.key_of_id(Kind::Member, "k").expect("there");
        assert_eq!((digest, found.revision), (&[2; 32], 4));
        let told: Vec<(KeyId, u64)> = catalog
            .keys_after(Kind::Member, None)
            .into_iter()
            .map(|stored| (stored.record.id.clone(), stored.revision))
            .collect();
        assert_eq!(told, [(KeyId::from("k"), 4), (KeyId::from("l"), 3)]);
        assert_eq!(catalog.keys_after(Kind::Member, Some("k")).len(), 1);
        assert!(catalog.key_of_id(Kind::Grant, "k").is_none());
    }
}
