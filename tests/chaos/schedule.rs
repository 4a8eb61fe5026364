//! Which faults a run has, in which order and for how long: all of it from a seed.

use std::time::Duration;

use serde_json::{Value, json};

/// Gateways of the cluster, and ledgers, and servers of its bus.
const GATEWAYS: u64 = 2;
const LEDGERS: u64 = 2;
const SERVERS: u64 = 3;
/// Between the end of a fault and the next one, in milliseconds.
const PAUSE_MS: (u64, u64) = (1_000, 4_000);

/// What breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A gateway, with its router, ends at once and is started again.
    KillGateway(usize),
    /// A ledger does.
    KillLedger(usize),
    /// Whoever looks after the health of upstreams does.
    KillHealth,
    /// A server of the bus does.
    KillServer(usize),
    /// The server that leads the stream of events, or a bucket, does.
    KillLeader(&'static str),
    /// The database does.
    KillDatabase,
    /// Everything does, at once.
    KillAll,
    /// A gateway stands still.
    FreezeGateway(usize),
    /// A ledger does.
    FreezeLedger(usize),
    /// A server of the bus does.
    FreezeServer(usize),
    /// The database does.
    FreezeDatabase,
    /// All servers of the bus are stopped.
    StopBus,
    /// The database is stopped.
    StopDatabase,
    /// Both are.
    StopBoth,
    /// A gateway cannot reach the bus: its connections are reset.
    CutGateway(usize),
    /// A gateway hears nothing from the bus and says nothing to it; its connections stay.
    StallGateway(usize),
    /// A gateway is heard by the bus and hears nothing: what it writes is written, and nobody tells it so.
    DeafGateway(usize),
    /// Every byte between a gateway and the bus is late.
    DelayGateway(usize),
    /// Ledgers cannot reach the database.
    CutDatabase,
    /// Every byte between ledgers and the database is late.
    DelayDatabase,
    /// A server of the bus is stopped, bits of its files of events are turned, and it is started again.
    FlipBits(usize),
    /// A gateway is started again with its wall clock set ahead.
    StepClock(usize),
}

/// Streams and buckets whose leader dies.
const LED: [&str; 4] = ["WAYBILL_EVENTS", "KV_wb_quota", "KV_wb_slots", "KV_wb_idem"];

/// A fault with its time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    /// When it begins, from the start of the load.
    pub(crate) at: Duration,
    /// How long it lasts until it is undone.
    pub(crate) lasts: Duration,
    /// What it is.
    pub(crate) fault: Fault,
}

/// A sequence of numbers from a seed.
#[derive(Debug, Clone)]
pub(crate) struct Draws(u64);

impl Draws {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// One of `0..count`.
    pub(crate) fn below(&mut self, count: u64) -> u64 {
        self.next() % count.max(1)
    }

    fn place(&mut self, count: u64) -> usize {
        usize::try_from(self.below(count)).unwrap_or(0)
    }

    fn millis(&mut self, (from, to): (u64, u64)) -> Duration {
        Duration::from_millis(from + self.below(to - from))
    }
}

/// Which parts of a cluster break.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Kinds {
    /// All of them.
    All,
    /// What gateways and what they share of limits notice: gateways, their links, the bus.
    Limits,
}

/// The faults of a run that lasts so long: each kind comes once before any comes again, in an order of the seed's.
pub(crate) fn schedule(seed: u64, lasts: Duration, kinds: Kinds) -> Vec<Entry> {
    let mut draws = Draws::new(seed);
    let mut entries = Vec::new();
    let mut at = draws.millis((2_000, 4_000));
    let mut bag: Vec<u64> = Vec::new();
    loop {
        if bag.is_empty() {
            bag = match kinds {
                Kinds::All => (0..KINDS).collect(),
                Kinds::Limits => LIMITS.to_vec(),
            };
        }
        let kind = bag.swap_remove(draws.place(bag.len() as u64));
        let (fault, range) = fault(&mut draws, kind);
        let entry = Entry {
            at,
            lasts: draws.millis(range),
            fault,
        };
        let end = entry.at + entry.lasts;
        if end + Duration::from_secs(3) > lasts {
            return entries;
        }
        entries.push(entry);
        at = end + draws.millis(PAUSE_MS);
    }
}

/// Kinds of faults.
const KINDS: u64 = 22;
/// Those of [`Kinds::Limits`].
const LIMITS: [u64; 10] = [0, 4, 7, 9, 11, 14, 15, 16, 20, 20];

/// A fault of a kind, and between how many milliseconds it lasts.
fn fault(draws: &mut Draws, kind: u64) -> (Fault, (u64, u64)) {
    match kind {
        0 => (Fault::KillGateway(draws.place(GATEWAYS)), (300, 3_000)),
        1 => (Fault::KillLedger(draws.place(LEDGERS)), (300, 3_000)),
        2 => (Fault::KillHealth, (300, 3_000)),
        3 => (Fault::KillServer(draws.place(SERVERS)), (1_000, 6_000)),
        4 => (
            Fault::KillLeader(LED[draws.place(LED.len() as u64)]),
            (8_000, 10_000),
        ),
        5 => (Fault::KillDatabase, (500, 4_000)),
        6 => (Fault::KillAll, (300, 1_000)),
        7 => (Fault::FreezeGateway(draws.place(GATEWAYS)), (2_000, 26_000)),
        8 => (Fault::FreezeLedger(draws.place(LEDGERS)), (2_000, 15_000)),
        9 => (Fault::FreezeServer(draws.place(SERVERS)), (2_000, 10_000)),
        10 => (Fault::FreezeDatabase, (2_000, 10_000)),
        11 => (Fault::StopBus, (2_000, 12_000)),
        12 => (Fault::StopDatabase, (2_000, 15_000)),
        13 => (Fault::StopBoth, (2_000, 10_000)),
        14 => (Fault::CutGateway(draws.place(GATEWAYS)), (2_000, 28_000)),
        15 => (Fault::StallGateway(draws.place(GATEWAYS)), (2_000, 12_000)),
        16 => (Fault::DelayGateway(draws.place(GATEWAYS)), (3_000, 8_000)),
        17 => (Fault::CutDatabase, (2_000, 10_000)),
        18 => (Fault::DelayDatabase, (3_000, 8_000)),
        19 => (Fault::FlipBits(draws.place(SERVERS)), (1_000, 3_000)),
        20 => (Fault::DeafGateway(draws.place(GATEWAYS)), (1_500, 6_000)),
        _ => (Fault::StepClock(draws.place(GATEWAYS)), (300, 2_000)),
    }
}

impl Fault {
    /// True where a gateway ends, or stands still: calls to it may break.
    pub(crate) const fn hits_gateways(self) -> bool {
        matches!(
            self,
            Self::KillGateway(_) | Self::KillAll | Self::FreezeGateway(_) | Self::StepClock(_)
        )
    }

    /// True where what gateways share may be out of reach: what needs it may be told to come again.
    pub(crate) const fn hits_bus(self) -> bool {
        matches!(
            self,
            Self::KillServer(_)
                | Self::KillLeader(_)
                | Self::KillAll
                | Self::FreezeServer(_)
                | Self::StopBus
                | Self::StopBoth
                | Self::CutGateway(_)
                | Self::StallGateway(_)
                | Self::DeafGateway(_)
                | Self::DelayGateway(_)
                | Self::FlipBits(_)
                | Self::FreezeGateway(_)
                | Self::KillGateway(_)
                | Self::StepClock(_)
        )
    }
}

impl Entry {
    /// As the report has it.
    pub(crate) fn told(&self) -> Value {
        json!({
            "at_ms": self.at.as_millis(),
            "lasts_ms": self.lasts.as_millis(),
            "fault": format!("{:?}", self.fault),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_seed_always_gives_the_same_faults_and_another_gives_others() {
        let of = |seed| schedule(seed, Duration::from_mins(2), Kinds::All);

        assert_eq!(of(7), of(7));
        assert_ne!(of(7), of(8));
    }

    #[test]
    fn no_two_faults_are_at_once_and_all_are_over_in_time() {
        for seed in 0..50 {
            let lasts = Duration::from_mins(5);
            let entries = schedule(seed, lasts, Kinds::All);
            for pair in entries.windows(2) {
                assert!(pair[0].at + pair[0].lasts < pair[1].at);
            }
            assert!(entries.iter().all(|entry| entry.at + entry.lasts < lasts));
        }
    }

    #[test]
    fn ten_minutes_have_every_kind() {
        for seed in 0..20 {
            let entries = schedule(seed, Duration::from_mins(10), Kinds::All);
            let kinds: BTreeSet<String> = entries
                .iter()
                .map(|entry| {
                    let told = format!("{:?}", entry.fault);
                    told.split('(').next().unwrap_or_default().to_owned()
                })
                .collect();
            assert_eq!(kinds.len() as u64, KINDS, "seed {seed}: {kinds:?}");
        }
    }
}
