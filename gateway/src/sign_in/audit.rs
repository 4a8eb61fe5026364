//! What is done to accounts is told of like every change: who, when, and that it was done. What a password is or was is
//! told to nobody.

use std::collections::BTreeMap;
use std::sync::Arc;

use schemas::account::Account;
use schemas::catalog::change::{Author, Change, Difference};
use schemas::event::audit::{Audited, Kind};
use schemas::id::EventId;
use serde_json::{Value, json};
use tracing::error;

use crate::state::Shared;

/// What was done.
#[derive(Debug, Clone, Copy)]
pub(super) enum What {
    /// The password is another.
    Password,
    /// A token was made with which it may be chosen.
    Reset,
    /// It is from now on the account of somebody whom a provider knows.
    Identity,
}

impl What {
    fn field(self) -> &'static str {
        match self {
            Self::Password => "password",
            Self::Reset => "reset",
            Self::Identity => "identity",
        }
    }
}

/// Puts the event of a change of an account into the spool.
pub(super) fn tell(state: &Shared, (account, revision): &(Account, u64), author: Author, what: What) {
    let difference = Difference {
        from: Value::Null,
        to: json!("***"),
    };
    let change = Change {
        id: author.id,
        at: author.at,
        actor: author.actor,
        replaced: None,
        fields: BTreeMap::from([(what.field().to_owned(), difference)]),
    };
    let id = EventId(change.id.0);
    let at = change.at;
    let audited = Audited {
        kind: Kind::Account,
        tenant: account.tenant.clone(),
        id: Arc::clone(&account.user.0),
        revision: *revision,
        change,
        node: state.config.node.clone(),
    };
    if let Err(problem) = state.ports.spool.append_as(id, &account.tenant, at, &audited) {
        error!(
            request.id = %id,
            error = &problem as &dyn std::error::Error,
            "the event of a changed account cannot be written"
        );
    }
}
