//! How many events a second the ledger books in PostgreSQL: waybills are put into the stream while no ledger runs, then
//! one is started, and its cursor watched until it stands at the end.
//!
//! The ledger has the core of the system under test; bus and database share the other one. In the end the books must
//! hold every event once, else nothing was measured.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use serde::Serialize;
use sqlx::postgres::PgConnection;
use sqlx::{Connection, Row};
use tokio::time::Instant;

use crate::arguments::Arguments;
use crate::cluster::{self, Nodes, Services};
use crate::events::{Day, Waybills};
use crate::kind::Kind;
use crate::machine::{LOAD_CORE, Machine, SYSTEM_CORE};
use crate::measure::Process;
use crate::process::Watch;
use crate::stream::Publisher;

/// How long one round may take.
const ROUND_MAX: Duration = Duration::from_mins(10);
/// How often the cursor is read.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// The day, by the database's clock, and its begin.
const TODAY: &str = "SELECT to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD') AS text, \
    (extract(epoch FROM (now() AT TIME ZONE 'UTC')::date) * 1000)::bigint AS begin_millis";
/// How far the ledger is.
const CURSOR: &str = "SELECT coalesce(max(sequence), 0) FROM ledger_cursor";
/// What the books hold, each counted in another table.
const BOOKED: &str = "SELECT (SELECT count(*) FROM event_log), (SELECT count(*) FROM api_logs), \
    (SELECT coalesce(sum(requests), 0)::bigint FROM usage_rollup)";

/// One round.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Booked {
    /// Events that were in the stream.
    pub(crate) events: u32,
    /// From the first batch in the books to the last one: events of that time by its seconds.
    pub(crate) events_per_second: f64,
    /// From the start of the process to the last event in the books, in seconds.
    pub(crate) seconds_from_start: f64,
    /// CPU per event of the ledger, in microseconds.
    pub(crate) ledger_cpu_us: f64,
    /// The same of the database, all its processes.
    pub(crate) postgres_cpu_us: f64,
    /// The same of the bus.
    pub(crate) nats_cpu_us: f64,
}

/// Why this is left out; `None` if it is not.
pub(crate) fn left_out(arguments: &Arguments, machine: &Machine) -> Option<&'static str> {
    if !arguments.wants(Kind::Ledger) {
        return Some("--only names others");
    }
    if arguments.wants_calls_only() {
        return Some("--case names calls");
    }
    cluster::missing(arguments, machine)
}

/// Runs every round on one bus and one database.
pub(crate) fn measure(
    arguments: &Arguments,
    machine: &Machine,
    folder: &Path,
) -> anyhow::Result<Vec<Booked>> {
    let services = Services::start()?;
    machine.adopt(&[services.nats.pid()], LOAD_CORE);
    machine.adopt(&services.postgres_pids(), LOAD_CORE);
    let nodes = Nodes {
        machine,
        services: &services,
        program: arguments.waybill(machine),
        folder: folder.join("ledger-postgres"),
    };
    // The first start makes tables and stream.
    drop(nodes.ledger(SYSTEM_CORE, false)?);
    let mut books = Books::open(&services)?;
    let day = books.today()?;
    let mut booked = Vec::new();
    for round in 0..arguments.rounds() {
        let waybills = Waybills {
            day: day.clone(),
            source: round,
        };
        let one = books.round(&nodes, &waybills, arguments.events())?;
        books.check(i64::from(arguments.events()) * i64::from(round + 1))?;
        eprintln!(
            "round {} ledger-postgres {:>9.0} events/s",
            round + 1,
            one.events_per_second
        );
        booked.push(one);
    }
    Ok(booked)
}

/// The books, as anybody may read them.
struct Books<'a> {
    services: &'a Services,
    connection: PgConnection,
}

impl<'a> Books<'a> {
    fn open(services: &'a Services) -> anyhow::Result<Self> {
        let url = services.postgres.url();
        let connection = services
            .runtime
            .block_on(PgConnection::connect(&url))
            .context("cannot read the books")?;
        Ok(Self { services, connection })
    }

    fn today(&mut self) -> anyhow::Result<Day> {
        let asked = sqlx::query(TODAY).fetch_one(&mut self.connection);
        let row = self.services.runtime.block_on(asked)?;
        let begin_millis: i64 = row.try_get("begin_millis")?;
        Ok(Day {
            text: row.try_get("text")?,
            begin_millis: u64::try_from(begin_millis)?,
        })
    }

    fn cursor(&mut self) -> anyhow::Result<u64> {
        let asked = sqlx::query(CURSOR).fetch_one(&mut self.connection);
        let sequence: i64 = self.services.runtime.block_on(asked)?.try_get(0)?;
        Ok(u64::try_from(sequence)?)
    }

    /// Fails unless the log, the rows and the sums all hold so many events.
    fn check(&mut self, events: i64) -> anyhow::Result<()> {
        let asked = sqlx::query(BOOKED).fetch_one(&mut self.connection);
        let row = self.services.runtime.block_on(asked)?;
        let found: [i64; 3] = [row.try_get(0)?, row.try_get(1)?, row.try_get(2)?];
        if found != [events; 3] {
            bail!("the books hold {found:?} (events, rows, requests summed) instead of {events} each");
        }
        Ok(())
    }

    /// Fills the stream, starts a ledger, and waits for it.
    fn round(&mut self, nodes: &Nodes<'_>, waybills: &Waybills, events: u32) -> anyhow::Result<Booked> {
        let before = self.cursor()?;
        let mut publisher = Publisher::connect(self.services.nats.addr())?;
        let last = publisher.publish(waybills.messages(events))?;
        let started = Instant::now();
        let ledger = nodes.ledger(SYSTEM_CORE, false)?;
        let first = self.passed(before + 1, started)?;
        let begun = Instant::now();
        let postgres = self.services.postgres_pids();
        let mut pids = ledger.pids();
        let ledger_pids = pids.len();
        pids.push(self.services.nats.pid());
        pids.extend(&postgres);
        let mut watch = Watch::new(&pids);
        watch.sample();
        self.passed(last, started)?;
        let elapsed = begun.elapsed();
        watch.sample();

        let booked = u32::try_from(last.saturating_sub(first))?;
        let used = watch.report(booked);
        let sum = |processes: &[Process]| processes.iter().fold(0.0, |sum, process| sum + process.cpu_us);
        let (ledger_used, servers_used) = used.split_at(ledger_pids.min(used.len()));
        let (nats_used, postgres_used) = servers_used.split_at(servers_used.len().min(1));
        Ok(Booked {
            events,
            events_per_second: f64::from(booked) / elapsed.as_secs_f64().max(f64::MIN_POSITIVE),
            seconds_from_start: started.elapsed().as_secs_f64(),
            ledger_cpu_us: sum(ledger_used),
            postgres_cpu_us: sum(postgres_used),
            nats_cpu_us: sum(nats_used),
        })
    }

    /// Waits until the cursor stands at `place` or beyond; gives where it stands.
    fn passed(&mut self, place: u64, started: Instant) -> anyhow::Result<u64> {
        while started.elapsed() < ROUND_MAX {
            let cursor = self.cursor()?;
            if cursor >= place {
                return Ok(cursor);
            }
            std::thread::sleep(LOOK_EVERY);
        }
        bail!("the ledger did not get to event {place} in {ROUND_MAX:?}")
    }
}
