//! Faults done to a cluster, and undone.

use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::future::join_all;
use harness::{Node, Scene, Way};
use tokio::time::sleep;

use crate::schedule::{Draws, Fault};

/// How late bytes are between what is delayed.
const LATE: Duration = Duration::from_millis(150);
/// How far a stepped clock is ahead.
const AHEAD: Duration = Duration::from_secs(2);
/// Bits that are turned in the files of a server.
const BITS: u64 = 12;
/// What a server keeps messages in ends so.
const BLOCK: &str = "blk";
/// The stream of events.
const EVENTS: &str = "WAYBILL_EVENTS";

/// A cluster that faults are done to.
pub(crate) struct Broken<'a> {
    pub(crate) scene: &'a mut Scene,
    pub(crate) draws: Draws,
    /// How far the wall clocks of all nodes are ahead of the machine's.
    pub(crate) ahead: Duration,
}

impl Broken<'_> {
    /// Does a fault, lets it last, and undoes it.
    pub(crate) async fn suffer(&mut self, fault: Fault, lasts: Duration) {
        match fault {
            Fault::KillGateway(place) => self.kill(gateway(place), lasts, Duration::ZERO).await,
            Fault::KillLedger(place) => self.kill(ledger(place), lasts, Duration::ZERO).await,
            Fault::KillHealth => self.kill("health-1", lasts, Duration::ZERO).await,
            Fault::StepClock(place) => self.kill(gateway(place), lasts, AHEAD).await,
            Fault::KillAll => self.kill_all(lasts).await,
            Fault::FreezeGateway(place) => self.freeze(gateway(place), lasts).await,
            Fault::FreezeLedger(place) => self.freeze(ledger(place), lasts).await,
            Fault::KillServer(place) => self.kill_server(place, lasts).await,
            Fault::KillLeader(stream) => {
                let place = self.scene.cluster().services.nats.leader_of(stream).await;
                self.kill_server(place, lasts).await;
            }
            Fault::FreezeServer(place) => {
                let pid = self.scene.cluster().services.nats.servers[place].pid();
                stand_still(pid, lasts).await;
            }
            Fault::FreezeDatabase => {
                let pid = self.scene.cluster().services.postgres.pid();
                stand_still(pid, lasts).await;
            }
            Fault::KillDatabase => {
                self.scene.cluster().services.postgres.kill().await;
                sleep(lasts).await;
                self.scene.cluster().services.postgres.restart().await;
            }
            Fault::StopBus => self.stop(true, false, lasts).await,
            Fault::StopDatabase => self.stop(false, true, lasts).await,
            Fault::StopBoth => self.stop(true, true, lasts).await,
            Fault::FlipBits(place) => self.flip(place, lasts).await,
            Fault::CutGateway(_)
            | Fault::StallGateway(_)
            | Fault::DeafGateway(_)
            | Fault::DelayGateway(_)
            | Fault::CutDatabase
            | Fault::DelayDatabase => self.disturb(fault, lasts).await,
        }
        self.scene.turn_client();
    }

    fn node(&mut self, name: &str) -> &mut Node {
        if name == "a" {
            &mut self.scene.node
        } else {
            self.scene.cluster().node(name)
        }
    }

    async fn kill(&mut self, name: &str, lasts: Duration, ahead: Duration) {
        let all = self.ahead;
        let node = self.node(name);
        node.kill().await;
        sleep(lasts).await;
        node.set_ahead(all + ahead);
        node.restart().await;
    }

    async fn kill_all(&mut self, lasts: Duration) {
        self.scene.kill_every_node().await;
        let services = &mut self.scene.cluster().services;
        join_all(services.nats.servers.iter_mut().map(harness::Nats::kill)).await;
        services.postgres.kill().await;
        sleep(lasts).await;
        join_all(services.nats.servers.iter_mut().map(harness::Nats::restart)).await;
        services.postgres.restart().await;
        self.scene.node.restart().await;
        join_all(self.scene.cluster().nodes.iter_mut().map(Node::restart)).await;
    }

    async fn freeze(&mut self, name: &str, lasts: Duration) {
        let node = self.node(name);
        node.signal("STOP").await;
        sleep(lasts).await;
        node.signal("CONT").await;
    }

    async fn kill_server(&mut self, place: usize, lasts: Duration) {
        let servers = &mut self.scene.cluster().services.nats.servers;
        servers[place].kill().await;
        sleep(lasts).await;
        servers[place].restart().await;
    }

    async fn stop(&mut self, bus: bool, database: bool, lasts: Duration) {
        let services = &mut self.scene.cluster().services;
        if bus {
            join_all(services.nats.servers.iter_mut().map(harness::Nats::stop)).await;
        }
        if database {
            services.postgres.stop().await;
        }
        sleep(lasts).await;
        if bus {
            join_all(services.nats.servers.iter_mut().map(harness::Nats::restart)).await;
        }
        if database {
            services.postgres.restart().await;
        }
    }

    async fn disturb(&mut self, fault: Fault, lasts: Duration) {
        let services = &self.scene.cluster().services;
        let (links, cut): (&[harness::Proxy], bool) = match fault {
            Fault::CutGateway(place) => (&services.links[place], true),
            Fault::StallGateway(place) | Fault::DeafGateway(place) | Fault::DelayGateway(place) => {
                (&services.links[place], false)
            }
            Fault::CutDatabase => (std::slice::from_ref(&services.postgres_proxy), true),
            _ => (std::slice::from_ref(&services.postgres_proxy), false),
        };
        for link in links {
            if cut {
                link.cut();
                continue;
            }
            match fault {
                Fault::DeafGateway(_) => link.stall(Way::Down),
                Fault::StallGateway(_) => [Way::Up, Way::Down].into_iter().for_each(|way| link.stall(way)),
                _ => [Way::Up, Way::Down]
                    .into_iter()
                    .for_each(|way| link.delay(way, LATE)),
            }
        }
        sleep(lasts).await;
        for link in links {
            link.heal();
        }
    }

    /// Turns bits in the files of one server's copy of the events, while it does not run.
    async fn flip(&mut self, place: usize, lasts: Duration) {
        let server = &mut self.scene.cluster().services.nats.servers[place];
        server.stop().await;
        let store = server.store_dir();
        let blocks = blocks(&store);
        for _ in 0..BITS {
            if let Some(path) =
                blocks.get(usize::try_from(self.draws.below(blocks.len() as u64)).unwrap_or(0))
            {
                turn_bit(path, &mut self.draws);
            }
        }
        sleep(lasts).await;
        self.scene.cluster().services.nats.servers[place].restart().await;
    }
}

const fn gateway(place: usize) -> &'static str {
    if place == 0 { "a" } else { "b" }
}

const fn ledger(place: usize) -> &'static str {
    if place == 0 { "ledger-1" } else { "ledger-2" }
}

/// Stops a process and lets it go on.
async fn stand_still(pid: u32, lasts: Duration) {
    signal(pid, "STOP").await;
    sleep(lasts).await;
    signal(pid, "CONT").await;
}

async fn signal(pid: u32, name: &str) {
    let mut command = tokio::process::Command::new("kill");
    let done = command.args(["-s", name, &pid.to_string()]).status().await;
    assert!(done.is_ok_and(|status| status.success()), "{name} for {pid}");
}

/// The files of a server that hold events.
fn blocks(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut left = vec![directory.to_owned()];
    while let Some(directory) = left.pop() {
        let Ok(entries) = std::fs::read_dir(&directory) else {
            continue;
        };
        for path in entries.flatten().map(|entry| entry.path()) {
            if path.is_dir() {
                left.push(path);
            } else if path.extension().is_some_and(|end| end == BLOCK)
                && path.components().any(|part| part.as_os_str() == EVENTS)
            {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

fn turn_bit(path: &Path, draws: &mut Draws) {
    let Ok(mut bytes) = std::fs::read(path) else {
        return;
    };
    let place = usize::try_from(draws.below(bytes.len() as u64)).unwrap_or(0);
    let bit = draws.below(8);
    if let Some(byte) = bytes.get_mut(place) {
        *byte ^= 1 << bit;
    }
    std::fs::write(path, bytes).expect("the file of a server is written");
}
