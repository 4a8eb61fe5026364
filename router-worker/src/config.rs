//! How a router behaves: clocks, caps and the circuit's parameters. Every duration and size has its unit in
//! its type or name, and the defaults are those operators of the field know.

use std::time::Duration;

use schemas::affinity::Policy;
use schemas::affinity::choice::Margins;
use schemas::affinity::prefill::Terms;
use schemas::balance;
use schemas::ceiling;
use schemas::circuit::Parameters;
use schemas::egress::Egress;
use schemas::id::{NodeId, PoolName};

/// Mebibytes to bytes.
const MIB: usize = 1024 * 1024;

/// Settings of a router.
#[derive(Debug, Clone)]
pub struct Config {
    /// How long upstreams may take.
    pub clocks: Clocks,
    /// Most attempts at one request, key rotations included. The smaller of this and the offer's holds.
    pub attempts_max: u32,
    /// Attempts beyond the first, as a share of the calls of the last seconds.
    pub retry_ratio: f64,
    /// Attempts beyond the first per second that are allowed however few calls there are.
    pub retry_floor_per_second: u32,
    /// What opens and closes circuits.
    pub circuit: Parameters,
    /// How many calls run at once with one credential; `None` for any number.
    pub concurrency: Option<Concurrency>,
    /// What makes sessions stay on a backend.
    pub affinity: Affinity,
    /// What decides among equals, beside sessions and prompts.
    pub balance: Balance,
    /// Where endpoints may lie that were registered at run time.
    pub egress: Egress,
    /// Degrees Celsius from which the backends of a host are spared, unless something else is set at run time.
    pub gpu_temperature_threshold: Option<u32>,
    /// Longest time to a connection, name resolution and TLS included.
    pub connect_timeout: Duration,
    /// Idle connections are closed after this: below the keep-alive of common servers (5 s).
    pub pool_idle_timeout: Duration,
    /// Most idle connections to one host.
    pub pool_idle_max: usize,
    /// Most bytes of an unstreamed answer, decoded.
    pub answer_bytes_max: usize,
    /// Most bytes of one event of a stream.
    pub event_bytes_max: usize,
    /// Most bytes that one compressed answer may unfold to.
    pub decoded_bytes_max: usize,
    /// The node it runs on.
    pub node: NodeId,
    /// The pool it is in.
    pub pool: PoolName,
    /// It may be asked for the health of all endpoints. Who knows only some of them says nothing of it.
    pub tells_health: bool,
}

impl Config {
    /// What holds for all choices among equals.
    pub(crate) fn terms(&self) -> balance::snapshot::Terms {
        balance::snapshot::Terms {
            waiting_weight: self.balance.waiting_weight,
            kv_weight: self.balance.kv_weight,
            intervene_tokens: self.affinity.prefill.map(|prefill| prefill.intervene_tokens),
            margins: self.affinity.margins,
        }
    }

    /// The defaults, on `node`.
    pub fn new(node: NodeId) -> Self {
        Self {
            clocks: Clocks::default(),
            attempts_max: 4,
            retry_ratio: 0.2,
            retry_floor_per_second: 10,
            circuit: Parameters::default(),
            concurrency: Some(Concurrency::default()),
            affinity: Affinity::default(),
            balance: Balance::default(),
            egress: Egress::default(),
            gpu_temperature_threshold: None,
            connect_timeout: Duration::from_secs(5),
            pool_idle_timeout: Duration::from_secs(3),
            pool_idle_max: 1_024,
            answer_bytes_max: 32 * MIB,
            event_bytes_max: 16 * MIB,
            decoded_bytes_max: 256 * MIB,
            node,
            pool: PoolName::from("default"),
            tells_health: true,
        }
    }
}

/// How long upstreams may take; `None` switches a clock off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Clocks {
    /// To the head of an answer.
    pub request: Option<Duration>,
    /// To the end of an unstreamed answer.
    pub completion: Option<Duration>,
    /// To the first event of a stream.
    pub first_byte: Option<Duration>,
    /// Between two events of a stream, as far as the router was waiting for them.
    pub stream_idle: Option<Duration>,
    /// To the end of a stream.
    pub stream_request: Option<Duration>,
}

impl Default for Clocks {
    fn default() -> Self {
        Self {
            request: Some(Duration::from_mins(2)),
            completion: Some(Duration::from_mins(10)),
            first_byte: None,
            stream_idle: Some(Duration::from_mins(3)),
            stream_request: Some(Duration::from_hours(1)),
        }
    }
}

/// What makes sessions stay on a backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Affinity {
    /// Callers of models from files stay where they were, for those of their calls that name no session.
    pub callers: bool,
    /// How long anything stays.
    pub policy: Policy,
    /// When it is moved although its backend works.
    pub margins: Margins,
    /// From which sizes on prompts decide; `None` where they do not.
    pub prefill: Option<Terms>,
    /// How long a call waits to hear where its session is, and for others to hear it.
    pub wait: Duration,
    /// There is no other router: nobody is told how many calls run here.
    pub alone: bool,
}

impl Default for Affinity {
    fn default() -> Self {
        Self {
            callers: true,
            policy: Policy::default(),
            margins: Margins::default(),
            prefill: Some(Terms::default()),
            wait: Duration::from_millis(250),
            alone: true,
        }
    }
}

/// What decides among equals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Balance {
    /// How long a backend is asked last that could not be connected to; zero for not at all.
    pub soft_ban: Duration,
    /// What a request in an engine's queue weighs.
    pub waiting_weight: u64,
    /// What a percent of an engine's cache weighs that is in use.
    pub kv_weight: u64,
}

impl Default for Balance {
    fn default() -> Self {
        let terms = balance::snapshot::Terms::default();
        Self {
            soft_ban: Duration::from_secs(15),
            waiting_weight: terms.waiting_weight,
            kv_weight: terms.kv_weight,
        }
    }
}

/// How many calls run at once with one credential of a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Concurrency {
    /// At first.
    pub initial: u32,
    /// At most, however well it goes. The least is one.
    pub max: u32,
    /// Calls that go well until one more may run; at least one.
    pub raise_after: u32,
    /// How long a request waits for its turn.
    pub wait: Duration,
    /// Whether engines in one's own network have the limit too, which have a queue of their own.
    pub local: bool,
}

impl Concurrency {
    /// Between which bounds the number of calls moves.
    pub(crate) const fn terms(&self) -> ceiling::Terms {
        ceiling::Terms {
            initial: self.initial,
            max: self.max,
            raise_after: self.raise_after,
        }
    }
}

impl Default for Concurrency {
    fn default() -> Self {
        Self {
            initial: 8,
            max: 64,
            raise_after: 100,
            wait: Duration::from_secs(30),
            local: false,
        }
    }
}
