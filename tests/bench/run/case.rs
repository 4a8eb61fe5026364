//! The cases: what load each one is.

use crate::kind::Kind;
use crate::machine::{KEY, LIMITED_KEY};
use crate::system::SESSION_MODEL;

/// Where the system under test runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Placement {
    /// On a core of its own.
    OwnCore,
    /// On the core of mock and load generator: latency is then the sum of all work, without idle wake-ups.
    OneCore,
}

/// What calls are beside plain ones of chat; only Waybill is asked anything else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asks {
    /// Nothing.
    Plain,
    /// Their caller speaks Messages, which is translated.
    Translated,
    /// Their tenant, its member and his key have limits: rates, calls at once, quotas of tokens and money.
    Limited,
    /// Each has an idempotency key of its own.
    Keyed,
    /// Each is of one of many sessions, which stay on one of two backends.
    Session,
}

impl Asks {
    /// The load generator's flags.
    fn flags(self) -> &'static [&'static str] {
        match self {
            Self::Plain => &["--key", KEY],
            Self::Translated => &["--key", KEY, "--dialect", "messages"],
            Self::Limited => &["--key", LIMITED_KEY],
            Self::Keyed => &["--key", KEY, "--named", "key"],
            Self::Session => &["--key", KEY, "--named", "session", "--model", SESSION_MODEL],
        }
    }
}

/// One kind of load.
#[derive(Debug)]
pub(crate) struct Case {
    /// Short name, in tables and JSON.
    pub(crate) name: &'static str,
    /// Connections, one request at a time each.
    pub(crate) connections: u32,
    /// Whether streams of 32 chunks with usage are asked for.
    pub(crate) streaming: bool,
    /// Pause of the mock before each event, in milliseconds.
    pub(crate) delay_ms: u32,
    /// Length of the user message, in bytes.
    pub(crate) prompt_bytes: u32,
    /// Where the system runs.
    pub(crate) placement: Placement,
    /// Whether the nodes of a cluster take part.
    pub(crate) clustered: bool,
    /// What its calls are.
    pub(crate) asks: Asks,
}

const PROMPT_BYTES: u32 = 150;

const PLAIN: Case = Case {
    name: "",
    connections: 1,
    streaming: false,
    delay_ms: 0,
    prompt_bytes: PROMPT_BYTES,
    placement: Placement::OwnCore,
    clustered: false,
    asks: Asks::Plain,
};

/// All cases, in the order they are run.
pub(crate) const CASES: [Case; 13] = [
    Case {
        name: "c1",
        clustered: true,
        ..PLAIN
    },
    Case {
        name: "c1one",
        placement: Placement::OneCore,
        ..PLAIN
    },
    Case {
        name: "c16",
        connections: 16,
        clustered: true,
        ..PLAIN
    },
    Case {
        name: "l1one",
        placement: Placement::OneCore,
        asks: Asks::Limited,
        ..PLAIN
    },
    Case {
        name: "l16",
        connections: 16,
        asks: Asks::Limited,
        ..PLAIN
    },
    Case {
        name: "k16",
        connections: 16,
        asks: Asks::Keyed,
        ..PLAIN
    },
    Case {
        name: "a16",
        connections: 16,
        asks: Asks::Session,
        ..PLAIN
    },
    Case {
        name: "c64",
        connections: 64,
        ..PLAIN
    },
    Case {
        name: "s1",
        streaming: true,
        clustered: true,
        ..PLAIN
    },
    Case {
        name: "s16",
        connections: 16,
        streaming: true,
        clustered: true,
        ..PLAIN
    },
    Case {
        name: "t16",
        connections: 16,
        streaming: true,
        asks: Asks::Translated,
        ..PLAIN
    },
    Case {
        name: "sp64",
        connections: 64,
        streaming: true,
        delay_ms: 5,
        ..PLAIN
    },
    Case {
        name: "p32k",
        connections: 16,
        prompt_bytes: 32 << 10,
        ..PLAIN
    },
];

impl Case {
    /// Whether a system takes part.
    pub(crate) fn is_for(&self, kind: Kind) -> bool {
        if self.asks != Asks::Plain {
            return kind == Kind::Waybill;
        }
        self.clustered || Kind::ALONE.contains(&kind)
    }

    /// The load generator's flags for a window of `secs` seconds.
    pub(crate) fn flags(&self, secs: f64) -> Vec<String> {
        let mut flags = vec![
            "--secs".to_owned(),
            secs.to_string(),
            "--concurrency".to_owned(),
            self.connections.to_string(),
            "--prompt-bytes".to_owned(),
            self.prompt_bytes.to_string(),
        ];
        if self.streaming {
            flags.extend(["--stream", "--include-usage", "--expect-chunks", "32"].map(str::to_owned));
        }
        flags.extend(self.asks.flags().iter().map(|flag| (*flag).to_owned()));
        flags
    }
}
