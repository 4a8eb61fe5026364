//! Credentials of upstreams, sealed as they come in. Only routers can open them: neither this gateway nor whoever reads
//! the catalogue can read one again.

use http::HeaderValue;
use schemas::catalog::Endpoint;
use schemas::failure::{Failure, FailureCode};
use schemas::id::PoolName;
use schemas::pool::UNNAMED;
use schemas::seal::{self, Context, PublicKey, SECRET_BYTES_MAX, SealError, Sealed};
use schemas::secret::Secret;

use super::invalid;
use crate::state::Shared;

/// Where a credential stands in a body.
const VALUE: &str = "credential.value";

/// Seals a credential for an endpoint at its addresses: with another tenant, another id or other addresses in its
/// record the endpoint has none. It is sealed for the routers of one pool: those of another cannot open it. Fails on
/// what can be no credential, and on a node that has nothing to seal to.
pub(crate) fn seal(
    state: &Shared,
    (endpoint, pool): (&Endpoint, &PoolName),
    value: &Secret<String>,
) -> Result<Sealed, Failure> {
    let key = key(state, pool)?;
    let text = value.reveal().trim();
    // The key file of a service account has lines; it is sent nowhere itself.
    let is_file = text.starts_with('{');
    if !is_file && HeaderValue::from_str(text).is_err() {
        return Err(invalid(VALUE, "it has characters that no header can carry"));
    }
    let bytes = Secret::new(text.as_bytes().to_vec());
    let seed = state.ports.mint.random();
    seal::seal(key, &Context::of(endpoint), &bytes, seed).map_err(|problem| match problem {
        SealError::Size => {
            let text = format!("expected 1 to {SECRET_BYTES_MAX} bytes");
            Failure::new(FailureCode::InvalidRequest, text).param(VALUE)
        }
        SealError::Key => invalid(VALUE, "nothing can be sealed to the public key of this gateway"),
    })
}

/// What is sealed to for the routers of a pool.
fn key<'s>(state: &'s Shared, pool: &PoolName) -> Result<&'s PublicKey, Failure> {
    if pool.as_str() == UNNAMED {
        return state.config.public_key.as_ref().ok_or_else(|| {
            let text = "this gateway has no key to seal a credential to: set WAYBILL_PUBLIC_KEY, or refer to one that \
                        the routers have";
            Failure::new(FailureCode::InvalidRequest, text).param(VALUE)
        });
    }
    state.config.pool_keys.get(pool).ok_or_else(|| {
        let text = format!(
            "this gateway has no key to seal a credential to for the pool {pool}: set pools.{pool}.public_key, or refer \
             to one that its routers have"
        );
        Failure::new(FailureCode::InvalidRequest, text).param(VALUE)
    })
}
