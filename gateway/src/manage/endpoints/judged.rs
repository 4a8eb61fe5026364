//! Endpoints of an imported catalogue: such as their own path would make, and no others.

use schemas::catalog::{Catalog, CredentialRef, Endpoint};
use schemas::failure::Failure;
use serde_json::{Value, json};

use super::body::Wanted;
use crate::caller::Caller;
use crate::manage::records::differing;
use crate::manage::{invalid, rights};

/// Refuses an endpoint that could not be made by its own path, naming what is wrong with it.
pub(in crate::manage) fn judge(
    caller: &Caller,
    catalog: &Catalog,
    endpoint: &Endpoint,
) -> Result<(), Failure> {
    let said = endpoint.registered.as_deref();
    let said = said.ok_or_else(|| invalid("registered", "it does not say what was said of the endpoint"))?;
    let id = endpoint.id.as_str().strip_prefix("ep-");
    let id = id.ok_or_else(|| invalid("id", "expected ep- and something"))?;
    let tenant = rights::living_tenant(caller, catalog, Some(endpoint.tenant.as_str()))?;
    let backends = endpoint.backends.iter().enumerate().map(|(place, backend)| {
        let node = said.hosts.get(place).and_then(Option::as_deref);
        json!({"url": backend.base_url, "node": node})
    });
    let described = json!({
        "name": said.name, "kind": said.kind, "backends": backends.collect::<Vec<Value>>(),
        "credential": credential(&endpoint.credentials)?, "algorithm": said.algorithm,
        "session_affinity": endpoint.session_affinity, "health_check": said.health_check, "wake": endpoint.wake,
        "single_backend_rescue": endpoint.single_backend_rescue,
    });
    let wanted: Wanted = serde_json::from_value(described)
        .map_err(|_| invalid("registered", "it is not what can be said of an endpoint"))?;
    let mut made = wanted.endpoint(caller, (&tenant, &id.into()), said.created_at)?;
    made.disabled = endpoint.disabled;
    differing(endpoint, &made)
}

/// How a reference to a credential was told.
fn credential(references: &[CredentialRef]) -> Result<Value, Failure> {
    match references {
        [] => Ok(Value::Null),
        [CredentialRef(one)] => match one.split_once(':') {
            Some(("env", name)) => Ok(json!({"env": name})),
            Some(("file", path)) => Ok(json!({"file": path})),
            _ => Err(invalid("credentials", "expected env: or file: and a name")),
        },
        [..] => Err(invalid("credentials", "expected one at most")),
    }
}
