//! How a request ended: the closed list, and what each ending means for the bill.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The answer was whole and its end mark was sent.
    Ok,
    /// The caller left before the end mark.
    ClientGone,
    /// Every attempt failed, or the upstream refused the request.
    UpstreamError,
    /// The answer broke off after content had reached the caller.
    UpstreamCut,
    /// One of our clocks ended it.
    Timeout,
    /// We refused it.
    Rejected,
    /// The node that admitted it died before it settled.
    Lost,
}

/// Who pays for what, given how a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Charge {
    /// The caller pays the usage: the upstream's figure, or our estimate where there is none.
    Usage,
    /// The caller pays nothing; what the upstream reported is noted as our own cost.
    Nothing,
}

impl Outcome {
    /// The word used in rows and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::ClientGone => "client_gone",
            Self::UpstreamError => "upstream_error",
            Self::UpstreamCut => "upstream_cut",
            Self::Timeout => "timeout",
            Self::Rejected => "rejected",
            Self::Lost => "lost",
        }
    }

    /// The charging policy. `delivered`: at least one content byte was handed to the caller.
    pub const fn charge(self, delivered: bool) -> Charge {
        match self {
            Self::Ok => Charge::Usage,
            Self::ClientGone if delivered => Charge::Usage,
            Self::ClientGone
            | Self::UpstreamError
            | Self::UpstreamCut
            | Self::Timeout
            | Self::Rejected
            | Self::Lost => Charge::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_answers_and_delivered_parts_are_paid() {
        assert_eq!(Outcome::Ok.charge(false), Charge::Usage);
        assert_eq!(Outcome::ClientGone.charge(true), Charge::Usage);
        assert_eq!(Outcome::ClientGone.charge(false), Charge::Nothing);
        for outcome in [
            Outcome::UpstreamError,
            Outcome::UpstreamCut,
            Outcome::Timeout,
            Outcome::Rejected,
            Outcome::Lost,
        ] {
            assert_eq!(outcome.charge(true), Charge::Nothing, "{outcome:?}");
        }
    }
}
