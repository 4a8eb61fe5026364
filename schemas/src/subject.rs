//! Every subject, stream, bucket and event type name: the only file with such literals.

/// Type of the event that opens a request which runs longer than a second.
pub const REQUEST_ACCEPTED: &str = "waybill.request.accepted.v1";
/// Type of the event that closes a request.
pub const REQUEST_SETTLED: &str = "waybill.request.settled.v1";
/// Type of the event that corrects what a request costs.
pub const REQUEST_ADJUSTED: &str = "waybill.request.adjusted.v1";
/// Type of the event by which somebody else declares a request lost.
pub const REQUEST_LOST: &str = "waybill.request.lost.v1";
/// Type of the event that counts refusals beyond the recorded ones.
pub const LIMIT_REFUSED: &str = "waybill.limit.refused.v1";
/// Type of the event that tells a change of a circuit.
pub const HEALTH_CIRCUIT: &str = "waybill.health.circuit.v1";
/// Type of the event that tells whether an upstream accepts a credential.
pub const HEALTH_CREDENTIAL: &str = "waybill.health.credential.v1";
/// Type of the event that tells that probes took a backend out, or that it is back.
pub const HEALTH_ENDPOINT: &str = "waybill.health.endpoint.v1";
/// Type of the event that tells how waking a service went.
pub const HEALTH_WAKE: &str = "waybill.health.wake.v1";
/// Type of the event that tells whether a spool is nearly full.
pub const SPOOL_FILLED: &str = "waybill.spool.filled.v1";
/// Type of the event that declares a hole in a spool.
pub const SPOOL_LOST: &str = "waybill.spool.lost.v1";
/// Type of the event that seals a tenant's rows of a day.
pub const LEDGER_SEALED: &str = "waybill.ledger.sealed.v1";
/// Type of the event that records a change made by an administrator.
pub const AUDIT: &str = "waybill.audit.v1";

/// The stream of all events.
pub const EVENTS_STREAM: &str = "WAYBILL_EVENTS";

/// Bucket of tenants, keys, models, endpoints.
pub const CATALOG_BUCKET: &str = "wb_catalog";
/// Bucket of the ledger's marks, one per source.
pub const MARK_BUCKET: &str = "wb_mark";
/// Bucket of the backends' circuits, one record per backend, under its id in hexadecimal.
pub const CIRCUIT_BUCKET: &str = "wb_circuit";
/// Bucket of the nodes: `node.<boot id>` for what a node says of itself, `gone.<spool id>` for a source that an
/// operator declared gone.
pub const NODE_BUCKET: &str = "wb_node";

/// Bucket of what callers of the Responses API let us keep: `<tenant digest>.<response id>`, and its pieces.
pub const RESPONSE_BUCKET: &str = "wb_response";

/// Bucket of the idempotency keys of callers: `<tenant>.<digest>`, each record with a lifetime of its own.
pub const IDEMPOTENCY_BUCKET: &str = "wb_idem";
/// Bucket of the accounts by which members sign in. Only gateways may read it.
pub const ACCOUNT_BUCKET: &str = "wb_account";
/// Bucket of attempts to sign in, each record with a lifetime of its own: `<kind>.<number>`.
pub const ATTEMPT_BUCKET: &str = "wb_attempt";
/// Bucket of who holds how many slots of a concurrency: `<tenant>.<subject>.<limit>`.
pub const SLOT_BUCKET: &str = "wb_slots";
/// Bucket of what of a quota is taken, and by whom: `<tenant>.<subject>.<limit>.<period>`.
pub const QUOTA_BUCKET: &str = "wb_quota";
/// Bucket of the backends that sessions stay on: `<tenant>.<digest>`.
pub const AFFINITY_BUCKET: &str = "wb_affinity";
/// Bucket of what files changed of the catalogue: `revision.<slot>`, and its pieces, `piece.<slot>.<n>`.
pub const CONFIG_BUCKET: &str = "wb_config";
/// Bucket of what routers have to do at the moment.
pub const ENGINE_BUCKET: &str = "wb_engine";
/// Bucket of what is found out about backends: who looks after it, what engines say, who is out, how hot hosts are.
pub const HEALTH_BUCKET: &str = "wb_health";

/// Bucket of who wakes which service, and how that went: one record per backend, under its id in hexadecimal, each with
/// a lifetime of its own.
pub const WAKE_BUCKET: &str = "wb_wake";

/// Stream of the counters of seconds.
pub const RATE_SECOND_STREAM: &str = "WAYBILL_RATE_SECOND";
/// Stream of the counters of minutes.
pub const RATE_MINUTE_STREAM: &str = "WAYBILL_RATE_MINUTE";

/// Every subject of [`EVENTS_STREAM`].
pub const EVENTS: &str = "wb.ev.>";
/// Prefix of the counters of seconds, followed by `<scope>.<slice>`.
pub const RATE_SECOND: &str = "wb.rate.second.";
/// Prefix of the counters of minutes, followed by `<scope>.<slice>`.
pub const RATE_MINUTE: &str = "wb.rate.minute.";

/// Query: pages of the request log.
pub const QUERY_LOGS: &str = "wb.q.logs";
/// Query: one request.
pub const QUERY_LOG: &str = "wb.q.log";
/// Query: sums of usage.
pub const QUERY_USAGE: &str = "wb.q.usage";
/// Query: what a source charged to quotas.
pub const QUERY_QUOTAS: &str = "wb.q.quotas";
/// Query: events of requests in the order of the books.
pub const QUERY_FEED: &str = "wb.q.feed";
/// Query: who changed what.
pub const QUERY_AUDIT: &str = "wb.q.audit";
/// Query: the health of endpoints, answered by routers.
pub const QUERY_HEALTH: &str = "wb.q.health";
/// Query: rebuild the projections from the log.
pub const QUERY_REBUILD: &str = "wb.q.rebuild";
/// Query: what an engine says of itself that wants to know who asks. Routers hold what proves that.
pub const QUERY_FIGURES: &str = "wb.q.figures";
/// Query: how far the ledger is.
pub const QUERY_LEDGER: &str = "wb.q.ledger";

/// Prefix of the subjects of events that tell of requests, followed by the tenant.
pub const REQUESTS: &str = "wb.ev.request.";
/// Prefix of the subjects of events that tell of changes, followed by the tenant.
pub const CHANGES: &str = "wb.ev.audit.";

/// Subject of an event: `wb.ev.<family>.<tenant>`, the family being the second word of its type.
pub fn event(kind: &str, tenant: &str) -> String {
    let family = kind.split('.').nth(1).unwrap_or("unknown");
    format!("wb.ev.{family}.{tenant}")
}

/// The source of a node's events: `/waybill/<cluster>/<spool id>`.
pub fn source(cluster: &str, spool_id: &str) -> String {
    format!("/waybill/{cluster}/{spool_id}")
}

/// Where gateways offer requests to the routers of a pool.
pub fn run(pool: &str) -> String {
    format!("wb.run.{pool}")
}

/// Where a router of a pool listens for what gateways say about requests it has taken; `boot` names its process.
pub fn control(pool: &str, boot: &str) -> String {
    format!("wb.ctl.{pool}.{boot}")
}

/// Where a router of a pool gets the bodies that are too large for offers, piece by piece; `boot` names its process.
pub fn body(pool: &str, boot: &str) -> String {
    format!("wb.body.{pool}.{boot}")
}

/// Where the routers of a pool are asked to call an endpoint once, to see whether it works.
pub fn trial(pool: &str) -> String {
    format!("wb.q.trial.{pool}")
}

/// Where a gateway is asked by others for what it has not told yet; `boot` names the gateway's process.
pub fn peer(boot: &str) -> String {
    format!("wb.peer.{boot}")
}

/// Keys of [`CATALOG_BUCKET`].
pub mod catalog {
    /// Prefix of tenants.
    pub const TENANT: &str = "tenant.";
    /// Prefix of members, followed by the tenant, a dot and the member's id in hexadecimal.
    pub const USER: &str = "user.";
    /// Prefix of what roles allow, followed by the role.
    pub const ROLE: &str = "role.";
    /// Prefix of virtual keys, followed by the key's digest in hex.
    pub const KEY: &str = "key.";
    /// Prefix of keys of endpoints, followed by the key's digest in hex.
    pub const ENDPOINT_KEY: &str = "endpoint_key.";
    /// Prefix of grants, followed by the digest of the grant's token in hex.
    pub const GRANT: &str = "grant.";
    /// Prefix of settings, followed by the setting's name.
    pub const SETTING: &str = "setting.";
    /// Prefix of what is said of providers, followed by the label in hexadecimal.
    pub const PROVIDER: &str = "provider.";
    /// Prefix of what is said of models that may be chosen, followed by the name in hexadecimal.
    pub const POLICY: &str = "policy.";
    /// What holds for all calls that leave the choice of a model to us.
    pub const INFERENCE: &str = "inference";
    /// Prefix of models, followed by the name in hexadecimal.
    pub const MODEL: &str = "model.";
    /// Prefix of ways to models that were added at run time, followed by the tenant, a dot and the id.
    pub const ROUTE: &str = "route.";
    /// Prefix of what was changed of models, followed by the name in hexadecimal.
    pub const OVERLAY: &str = "overlay.";
    /// Prefix of prices, followed by the tenant, a dot and the id.
    pub const PRICE: &str = "price.";
    /// Prefix of the beats by which nodes measure how old their view is, followed by their spools' ids. A beat
    /// replaces the one before and leaves no history.
    pub const BEAT: &str = "beat.";
    /// Prefix of endpoints, followed by the id in hexadecimal.
    pub const ENDPOINT: &str = "endpoint.";
    /// Prefix of the marks of changes that count together, no part of the snapshot.
    pub const PASSAGE: &str = "passage.";
    /// The number of the newest of them that was begun, in decimal.
    pub const BEGUN: &str = "passage.begun";
    /// The number of the newest of them that is over, in decimal.
    pub const OVER: &str = "passage.over";
    /// What the nodes of a cluster must have in common: one record, no part of the snapshot.
    pub const CLUSTER: &str = "cluster";
    /// Prefix of the kinds of records of which the files of a node spoke when it last read them, followed by the node's
    /// name in hexadecimal; no part of the snapshot.
    pub const SAID: &str = "said.";
}

/// Keys of [`ACCOUNT_BUCKET`].
pub mod account {
    /// Prefix of accounts, followed by the tenant, a dot and the member's id in hexadecimal.
    pub const ACCOUNT: &str = "account.";
    /// Prefix of whose account an address of mail is, followed by the address's digest.
    pub const EMAIL: &str = "email.";
    /// The code with which the first account is made.
    pub const SETUP: &str = "setup";
}

/// Keys of [`NODE_BUCKET`].
pub mod node {
    /// Prefix of what a node says of itself, followed by its boot id.
    pub const NODE: &str = "node.";
    /// Prefix of sources that an operator declared gone, followed by the spool's id.
    pub const GONE: &str = "gone.";
}

/// Keys of [`ENGINE_BUCKET`].
pub mod engine {
    /// Prefix of the calls that a router runs, followed by its boot id.
    pub const CALLS: &str = "calls.";
    /// Prefix of how many calls may run at once with a credential, followed by the credential's fingerprint.
    pub const CEILING: &str = "ceiling.";
}

/// Keys of [`HEALTH_BUCKET`].
pub mod health {
    /// Who looks after the health of all backends.
    pub const LEADER: &str = "leader";
    /// Prefix of what an engine said last, followed by the backend's id in hexadecimal.
    pub const SAMPLE: &str = "sample.";
    /// Prefix of what probes say of a backend, followed by its id in hexadecimal.
    pub const PROBED: &str = "probed.";
    /// Prefix of openings of circuits whose backends answer probes again, followed by the backend's id in hexadecimal.
    pub const RECOVERED: &str = "recovered.";
    /// Prefix of what a host says of its accelerators, followed by its name in hexadecimal.
    pub const HOST: &str = "host.";
    /// Prefix of what is learned of the legs of a model, followed by its name in hexadecimal.
    pub const PROFILE: &str = "profile.";
}

/// Keys of [`MARK_BUCKET`].
pub mod mark {
    /// How far the ledger has read the stream: `{"stream_created":<microseconds>,"sequence":<n>}`. Every other key is
    /// a spool's id, its value the sequence in decimal.
    pub const CURSOR: &str = "ledger.cursor";
    /// Prefix of sources of which the ledger has two events under one place, followed by the spool's id; the value
    /// names the place. Deleted by an operator once the cause is gone.
    pub const CONTESTED: &str = "contested.";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_family_of_an_event_is_in_its_subject() {
        assert_eq!(event(REQUEST_SETTLED, "acme"), "wb.ev.request.acme");
        assert_eq!(event(SPOOL_LOST, "default"), "wb.ev.spool.default");
        assert_eq!(event(REQUEST_SETTLED, "acme"), format!("{REQUESTS}acme"));
        assert_eq!(event(AUDIT, "acme"), format!("{CHANGES}acme"));
    }
}
