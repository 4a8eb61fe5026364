//! What a node tells its gateway: addresses, names, and a bound for everything a caller can make large.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use chrono_tz::Tz;
use schemas::id::{NodeId, PoolName};
use schemas::pool::{Home, UNNAMED};
use schemas::seal::PublicKey;
use schemas::secret::Secret;

use crate::small::SmallCalls;

/// The HTTP ingress. [`Config::new`] fills in the defaults.
#[derive(Debug, Clone)]
pub struct Config {
    /// Address to bind; port 0 picks a free one.
    pub listen: SocketAddr,
    /// Address of the management API, the metrics and the health of the node, where they are to be apart.
    pub admin_listen: Option<SocketAddr>,
    /// This node's name, for rows.
    pub node: NodeId,
    /// This run of the node.
    pub boot: Arc<str>,
    /// The cluster's name, shown by `/`.
    pub cluster: String,
    /// The version of the program, shown by `/` and `/health`.
    pub version: String,
    /// Largest request body, in bytes.
    pub body_bytes_max: u64,
    /// How long a request body may be on its way: with the default the largest one comes whole at half a megabit a
    /// second.
    pub body_seconds_max: u64,
    /// Bytes of request bodies in memory at once; beyond, requests are refused unread.
    pub bodies_bytes_max: u64,
    /// Names and values of a request's headers together, in bytes.
    pub header_bytes_max: usize,
    /// Headers of one request.
    pub headers_max: usize,
    /// Nesting of a request body.
    pub depth_max: usize,
    /// Silence after which a stream gets a comment.
    pub keepalive_seconds: u64,
    /// Time without a byte taken after which a caller's connection is ended.
    pub client_stall_seconds: u64,
    /// How long running requests may take after the stop signal.
    pub drain_seconds: u64,
    /// Requests in flight before new ones are refused.
    pub requests_max: usize,
    /// Attempts of one request over all endpoints.
    pub attempts_max: u32,
    /// Key of the digest under which virtual keys are known.
    pub api_key_secret: Secret<Vec<u8>>,
    /// What credentials of upstreams are sealed to; without it none is taken.
    pub public_key: Option<PublicKey>,
    /// The same of endpoints behind pools, by the pool: only its routers can open it.
    pub pool_keys: BTreeMap<PoolName, PublicKey>,
    /// Where the node stands among pools.
    pub home: Home,
    /// How people sign in.
    pub sign_in: crate::sign_in::settings::Settings,
    /// A credential of an operator that is not in the catalogue; blank turns it off.
    pub admin_token: Option<Secret<String>>,
    /// The credential of whoever hands out grants; blank turns grants off.
    pub grant_dispatch_token: Option<Secret<String>>,
    /// Shows `/routing` to everybody.
    pub public_routing: bool,
    /// Age of the view of the catalogue from which nobody is served any more: a key may have been revoked.
    pub stale_seconds_max: u64,
    /// Origins whose pages may call; `*` for all, without credentials of the browser.
    pub cors_origins: Vec<String>,
    /// Time zone of billing days and months.
    pub billing_tz: Tz,
    /// The ledger has a database: health tells whether it answers.
    pub database_configured: bool,
    /// What becomes of calls that leave no room to think; `None` leaves them where they were sent.
    pub small_calls: Option<SmallCalls>,
    /// How long a request waits for what cannot be decided without the bus.
    pub admit_wait_seconds: u64,
    /// For how long idempotency keys are kept, and their locks count.
    pub idempotency: schemas::idempotency::Terms,
    /// Most bytes of the bucket of idempotency keys, over all tenants and nodes.
    pub idempotency_bytes_max: u64,
    /// False credentials from one address in a day before it is refused unread; `None` never. Loopback is exempt.
    pub auth_failures_max: Option<u32>,
}

impl Config {
    /// The defaults, for what has no sensible one.
    pub fn new(listen: SocketAddr, node: NodeId, api_key_secret: Secret<Vec<u8>>) -> Self {
        Self {
            listen,
            admin_listen: None,
            node,
            boot: "".into(),
            cluster: "local".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            body_bytes_max: 32 * 1024 * 1024,
            body_seconds_max: 600,
            bodies_bytes_max: 192 * 1024 * 1024,
            header_bytes_max: 64 * 1024,
            headers_max: 128,
            depth_max: 64,
            keepalive_seconds: 15,
            client_stall_seconds: 60,
            drain_seconds: 30,
            requests_max: 20_000,
            attempts_max: 4,
            api_key_secret,
            public_key: None,
            pool_keys: BTreeMap::new(),
            home: Home {
                pool: PoolName::from(UNNAMED),
                has_router: true,
            },
            sign_in: crate::sign_in::settings::Settings::default(),
            admin_token: None,
            grant_dispatch_token: None,
            public_routing: false,
            stale_seconds_max: 300,
            cors_origins: Vec::new(),
            billing_tz: Tz::UTC,
            database_configured: true,
            small_calls: None,
            admit_wait_seconds: 12,
            idempotency: schemas::idempotency::Terms::default(),
            idempotency_bytes_max: schemas::idempotency::BUCKET_BYTES_MAX,
            auth_failures_max: None,
        }
    }
}
