//! The circuit of one backend, as a pure state machine. It opens after failures in a row or when the
//! moving availability falls below a floor, stays open for a cooldown, then lets exactly one probe
//! through: a slot that belongs to the claim that took it, and expires after a cooldown as a backstop.
//!
//! Times are milliseconds on the observer's own monotonic clock.

use serde::{Deserialize, Serialize};

/// What opens and closes a circuit. Defaults are those operators of the field know.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Parameters {
    /// Failures in a row that open it.
    pub failures_max: u32,
    /// How long it stays open, and how long a probe may take, in milliseconds. 0 never gates.
    pub cooldown_ms: u64,
    /// Availability below which a failure opens it.
    pub availability_min: f64,
    /// Weight of the newest outcome in the moving availability.
    pub alpha: f64,
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            failures_max: 3,
            cooldown_ms: 30_000,
            availability_min: 0.7,
            alpha: 0.1,
        }
    }
}

/// What a reader of health sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CircuitState {
    /// Requests pass.
    Closed,
    /// Nothing passes.
    Open,
    /// One probe passes.
    HalfOpen,
}

/// Leave to send one request to the backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pass {
    /// The circuit was closed.
    Plain,
    /// This request is the probe that holds the half-open slot.
    Probe(u64),
}

/// The circuit of one backend.
#[derive(Debug, Clone, PartialEq)]
pub struct Circuit {
    parameters: Parameters,
    consecutive_failures: u32,
    availability: f64,
    opened_at_ms: Option<u64>,
    probe: Option<Claim>,
    claims: u64,
    last_error_status: Option<u16>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Claim {
    id: u64,
    taken_at_ms: u64,
}

impl Circuit {
    /// A closed circuit.
    pub const fn new(parameters: Parameters) -> Self {
        Self {
            parameters,
            consecutive_failures: 0,
            availability: 1.0,
            opened_at_ms: None,
            probe: None,
            claims: 0,
            last_error_status: None,
        }
    }

    /// The state at `now_ms`.
    pub const fn state(&self, now_ms: u64) -> CircuitState {
        match self.opened_at_ms {
            None => CircuitState::Closed,
            Some(opened) if now_ms.saturating_sub(opened) < self.parameters.cooldown_ms => CircuitState::Open,
            Some(_) => CircuitState::HalfOpen,
        }
    }

    /// Failures in a row.
    pub const fn consecutive_failures(&self) -> u32 {
        self.consecutive_failures
    }

    /// The moving availability, 0 to 1.
    pub const fn availability(&self) -> f64 {
        self.availability
    }

    /// The status of the last failure that had one.
    pub const fn last_error_status(&self) -> Option<u16> {
        self.last_error_status
    }

    /// Milliseconds until the circuit may be probed, 0 when it may be now.
    pub const fn retry_in_ms(&self, now_ms: u64) -> u64 {
        match self.opened_at_ms {
            None => 0,
            Some(opened) => (opened + self.parameters.cooldown_ms).saturating_sub(now_ms),
        }
    }

    /// Whether a request could pass now. Asking changes nothing.
    pub fn admits(&self, now_ms: u64) -> bool {
        match self.state(now_ms) {
            CircuitState::Closed => true,
            CircuitState::Open => false,
            CircuitState::HalfOpen => self.probe.is_none_or(|claim| self.expired(claim, now_ms)),
        }
    }

    /// Takes leave to send one request; in a half-open circuit that is the probe slot.
    pub fn begin(&mut self, now_ms: u64) -> Option<Pass> {
        if !self.admits(now_ms) {
            return None;
        }
        if self.opened_at_ms.is_none() {
            return Some(Pass::Plain);
        }
        self.claims += 1;
        self.probe = Some(Claim {
            id: self.claims,
            taken_at_ms: now_ms,
        });
        Some(Pass::Probe(self.claims))
    }

    /// The request succeeded.
    pub fn succeed(&mut self, pass: Pass, now_ms: u64) {
        if self.state(now_ms) == CircuitState::HalfOpen && !self.holds(pass) {
            return;
        }
        self.consecutive_failures = 0;
        if self.opened_at_ms.take().is_some() {
            self.availability = 1.0;
        } else {
            self.availability = self.moved(1.0);
        }
        self.probe = None;
    }

    /// The request failed in a way that speaks against the backend.
    pub fn fail(&mut self, pass: Pass, status: Option<u16>, now_ms: u64) {
        self.last_error_status = status.or(self.last_error_status);
        self.consecutive_failures = self.consecutive_failures.saturating_add(1);
        self.availability = self.moved(0.0);
        match self.state(now_ms) {
            CircuitState::Closed => {
                let worn = self.availability < self.parameters.availability_min;
                if self.consecutive_failures >= self.parameters.failures_max || worn {
                    self.opened_at_ms = Some(now_ms);
                }
            }
            CircuitState::Open => {}
            CircuitState::HalfOpen => {
                if self.holds(pass) {
                    self.probe = None;
                    self.opened_at_ms = Some(now_ms);
                }
            }
        }
    }

    /// The request ended in a way that says nothing about the backend: its claim, if any, is given back.
    pub fn release(&mut self, pass: Pass) {
        if self.holds(pass) {
            self.probe = None;
        }
    }

    fn holds(&self, pass: Pass) -> bool {
        matches!((pass, self.probe), (Pass::Probe(id), Some(claim)) if claim.id == id)
    }

    const fn expired(&self, claim: Claim, now_ms: u64) -> bool {
        now_ms.saturating_sub(claim.taken_at_ms) >= self.parameters.cooldown_ms
    }

    fn moved(&self, outcome: f64) -> f64 {
        (1.0 - self.parameters.alpha)
            .mul_add(self.availability, self.parameters.alpha * outcome)
            .clamp(0.0, 1.0)
    }
}

/// What an attempt's ending says about its backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It works.
    Healthy,
    /// It does not: counts against it.
    Faulty,
    /// Nothing: the caller's own fault, or it was never asked.
    Neutral,
}

/// Classifies a status: 5xx, 408, 429, 401 and 407 speak against the backend, other 4xx against the caller;
/// a failure without a status (connection, cut, idle) speaks against the backend.
pub const fn classify(status: Option<u16>) -> Verdict {
    match status {
        None | Some(401 | 407 | 408 | 429 | 500..) => Verdict::Faulty,
        Some(400..=499) => Verdict::Neutral,
        Some(_) => Verdict::Healthy,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open_circuit() -> Circuit {
        let mut circuit = Circuit::new(Parameters::default());
        for _ in 0..3 {
            let pass = circuit.begin(0).expect("closed");
            circuit.fail(pass, Some(500), 0);
        }
        circuit
    }

    #[test]
    fn three_failures_in_a_row_open_it_for_a_cooldown() {
        let mut circuit = open_circuit();

        assert_eq!(circuit.state(29_999), CircuitState::Open);
        assert_eq!(circuit.begin(29_999), None);
        assert_eq!(circuit.state(30_000), CircuitState::HalfOpen);
        assert_eq!(circuit.retry_in_ms(10_000), 20_000);
    }

    #[test]
    fn exactly_one_of_many_probes_a_half_open_circuit() {
        let mut circuit = open_circuit();

        let passes: Vec<_> = (0..8).filter_map(|_| circuit.begin(30_000)).collect();

        assert_eq!(passes.len(), 1);
        circuit.succeed(passes[0], 30_100);
        assert_eq!(circuit.state(30_100), CircuitState::Closed);
        assert_eq!(circuit.begin(30_100), Some(Pass::Plain));
    }

    #[test]
    fn a_failed_probe_restarts_the_cooldown() {
        let mut circuit = open_circuit();
        let probe = circuit.begin(30_000).expect("probe");

        circuit.fail(probe, None, 30_500);

        assert_eq!(circuit.state(60_499), CircuitState::Open);
        assert!(circuit.admits(60_500));
    }

    #[test]
    fn the_probe_slot_belongs_to_its_claim_and_expires_after_a_cooldown() {
        let mut circuit = open_circuit();
        let first = circuit.begin(30_000).expect("probe");

        circuit.release(Pass::Plain);
        circuit.succeed(Pass::Plain, 30_001);

        assert!(!circuit.admits(59_999), "a straggler neither frees nor closes");
        let second = circuit.begin(60_000).expect("the silent probe expired");
        circuit.release(first);
        assert!(!circuit.admits(60_001), "an expired claim frees nothing");
        circuit.release(second);
        assert!(circuit.admits(60_001));
    }

    #[test]
    fn asking_without_sending_consumes_no_probe() {
        let circuit = open_circuit();

        assert!((0..50).all(|_| circuit.admits(30_000)));
    }

    #[test]
    fn a_cooldown_of_zero_never_gates() {
        let mut circuit = Circuit::new(Parameters {
            cooldown_ms: 0,
            ..Parameters::default()
        });
        for _ in 0..10 {
            let pass = circuit.begin(5).expect("never gated");
            circuit.fail(pass, None, 5);
        }
    }

    #[test]
    fn availability_below_the_floor_opens_it_without_a_run_of_failures() {
        let mut circuit = Circuit::new(Parameters::default());
        let mut failures = 0;
        while circuit.state(0) == CircuitState::Closed {
            let pass = circuit.begin(0).expect("closed");
            if failures % 3 == 2 {
                circuit.succeed(pass, 0);
            } else {
                circuit.fail(pass, Some(503), 0);
            }
            failures += 1;
        }
        assert!(failures > 3);
    }

    #[test]
    fn faults_of_the_caller_say_nothing_about_the_backend() {
        for status in [400, 402, 403, 404, 413, 422] {
            assert_eq!(classify(Some(status)), Verdict::Neutral, "{status}");
        }
        for status in [401, 407, 408, 429, 500, 502, 529] {
            assert_eq!(classify(Some(status)), Verdict::Faulty, "{status}");
        }
        assert_eq!(classify(None), Verdict::Faulty);
        assert_eq!(classify(Some(200)), Verdict::Healthy);
    }
}
