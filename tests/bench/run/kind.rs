//! What is measured, by the names of the command line and the report.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    /// No proxy: the load generator speaks to the mock.
    Direct,
    /// nginx with one worker.
    Nginx,
    /// The bare proxy.
    Bare,
    /// The product: one node on an embedded bus.
    Waybill,
    /// A node of a cluster with gateway and router in one process.
    Together,
    /// A gateway and a router of a cluster, each a process, with the bus between them.
    Bus,
    /// The ledger of a cluster; it takes no calls.
    #[serde(rename = "ledger-postgres")]
    Ledger,
}

impl Kind {
    /// Everything, in the order of the report.
    pub(crate) const ALL: [Self; 7] = [
        Self::Direct,
        Self::Nginx,
        Self::Bare,
        Self::Waybill,
        Self::Together,
        Self::Bus,
        Self::Ledger,
    ];
    /// Systems that stand alone, in the order they take turns.
    pub(crate) const ALONE: [Self; 4] = [Self::Direct, Self::Nginx, Self::Bare, Self::Waybill];

    fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Nginx => "nginx",
            Self::Bare => "bare",
            Self::Waybill => "waybill",
            Self::Together => "together",
            Self::Bus => "bus",
            Self::Ledger => "ledger-postgres",
        }
    }

    /// What its processes do, in the order in which they are measured; empty where that is not told apart.
    pub(crate) const fn parts(self) -> &'static [&'static str] {
        match self {
            Self::Together => &["node", "nats"],
            Self::Bus => &["gateway", "router", "nats"],
            Self::Direct | Self::Nginx | Self::Bare | Self::Waybill | Self::Ledger => &[],
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

/// A name of nothing that is measured.
#[derive(Debug, thiserror::Error)]
#[error("expected direct, nginx, bare, waybill, together, bus or ledger-postgres")]
pub(crate) struct UnknownKind;

impl FromStr for Kind {
    type Err = UnknownKind;

    fn from_str(text: &str) -> Result<Self, UnknownKind> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.name() == text)
            .ok_or(UnknownKind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_named_as_in_the_report() {
        for kind in Kind::ALL {
            let named = serde_json::to_value(kind).expect("a name");
            assert_eq!(named, kind.to_string());
            assert_eq!(kind.to_string().parse::<Kind>().ok(), Some(kind));
        }
        assert!("caddy".parse::<Kind>().is_err());
    }
}
