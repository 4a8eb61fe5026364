//! How often somebody may try to sign in, or have an endpoint tried, over all nodes together: counted before anything is
//! looked at.
//!
//! What is counted lies under one of 65,536 places for each kind, told by a digest that nobody outside can compute: so
//! many addresses as there may be, no more is kept, and nobody can look for an address that counts with another's.

use std::net::IpAddr;
use std::time::Duration;

use bus::{BusError, Expected};
use schemas::account::attempts::{Allowance, Attempts};
use schemas::account::email::Email;
use schemas::failure::{Failure, FailureCode};
use schemas::id::TenantId;
use schemas::subject::ATTEMPT_BUCKET;
use tokio::time::timeout;

use crate::caller::flood;
use crate::state::Shared;

/// How long the bus may take over one operation.
const WITHIN: Duration = Duration::from_secs(4);
/// Times an attempt is counted anew after somebody else's. Every failure is another attempt counted, so that more are
/// never needed than are allowed.
const TRIES_MAX: u32 = 64;

/// Whose attempts.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Of<'a> {
    /// Of whoever wants to sign in to an account.
    Email(&'a Email),
    /// Of whoever comes from an address.
    Address(IpAddr),
    /// The same, to sign up.
    SignUp(IpAddr),
    /// Of whoever has a letter sent to an address: to choose another password, or to sign up.
    Forgotten(&'a Email),
    /// Of a tenant, to have an endpoint tried.
    Trial(&'a TenantId),
}

impl Of<'_> {
    fn kind(self) -> &'static str {
        match self {
            Self::Email(_) => "email",
            Self::Address(_) => "address",
            Self::SignUp(_) => "sign-up",
            Self::Forgotten(_) => "forgotten",
            Self::Trial(_) => "trial",
        }
    }

    fn text(self) -> String {
        match self {
            Self::Email(email) | Self::Forgotten(email) => email.as_str().to_owned(),
            Self::Trial(tenant) => tenant.to_string(),
            Self::Address(address) | Self::SignUp(address) => flood::subscriber(address).to_string(),
        }
    }

    fn place(self, state: &Shared) -> String {
        let kind = self.kind();
        // So few there are that each has a place of its own.
        if let Self::Trial(tenant) = self {
            return format!("{kind}.{tenant}");
        }
        let [high, low, ..] = state
            .doorkeeper
            .digest(&format!("attempts {kind} {}", self.text()));
        format!("{kind}.{high:02x}{low:02x}")
    }
}

/// Counts one attempt, or refuses it.
pub(crate) async fn count(state: &Shared, of: Of<'_>, allowance: Allowance) -> Result<(), Failure> {
    if allowance.attempts_max == 0 {
        return Ok(());
    }
    let (key, kv) = (of.place(state), &state.ports.kv);
    let life = Duration::from_secs(u64::from(allowance.seconds));
    for _ in 0..TRIES_MAX {
        let Ok(Ok(found)) = timeout(WITHIN, kv.get(ATTEMPT_BUCKET, &key)).await else {
            return Err(away());
        };
        let (attempts, expected) = match found.and_then(|entry| Some((entry.value?, entry.revision))) {
            Some((value, revision)) => {
                let attempts: Attempts = serde_json::from_slice(&value).unwrap_or_default();
                (attempts, Expected::Revision(revision))
            }
            None => (Attempts::default(), Expected::Absent),
        };
        let counted = attempts
            .another(state.ports.clock.now(), allowance)
            .map_err(|refused| too_many(refused.retry_after_seconds))?;
        let value = serde_json::to_vec(&counted).map_err(|_| away())?;
        let put = kv.put_for((ATTEMPT_BUCKET, &key), value.into(), expected, life);
        match timeout(WITHIN, put).await {
            Ok(Ok(_)) => return Ok(()),
            Ok(Err(BusError::Conflict)) => {}
            // It may be counted: nothing is looked at that might not be.
            Ok(Err(_)) | Err(_) => return Err(away()),
        }
    }
    Err(too_many(1))
}

fn too_many(seconds: u64) -> Failure {
    let text = "too many attempts: wait before you try again";
    Failure::new(FailureCode::TooManyAttempts, text).retry_after(seconds)
}

fn away() -> Failure {
    let text = "attempts cannot be counted at the moment";
    Failure::new(FailureCode::StoreUnavailable, text).retry_after(2)
}
