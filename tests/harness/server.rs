//! Servers that a cluster stands on, as real processes that belong to one test: their ports stay the same over a kill
//! and a new start, and nothing of them is left when they are dropped, nor when the test itself is killed.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};

use tokio::process::Command;

pub mod nats;
pub mod postgres;

/// Ports of servers: below those that the system gives to connections.
const PORTS_FROM: u32 = 11_000;
/// How many there are.
const PORTS: u32 = 20_000;
/// The program that starts another one with other rights.
const SETPRIV: &str = "/usr/bin/setpriv";

static PORTS_TAKEN: AtomicU32 = AtomicU32::new(0);

/// A loopback address where nothing listens now. Each process begins its search at another place.
pub(crate) fn free_addr() -> SocketAddr {
    for _ in 0..PORTS {
        let taken = PORTS_TAKEN.fetch_add(1, Ordering::Relaxed);
        let place = std::process::id().wrapping_mul(61).wrapping_add(taken) % PORTS;
        let port = u16::try_from(PORTS_FROM + place).expect("a port is below 65,536");
        let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        if TcpListener::bind(addr).is_ok() {
            return addr;
        }
    }
    panic!("no free port");
}

/// The root of the checkout.
pub(crate) fn root() -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().expect("the tests are in the checkout").to_owned()
}

/// Whether this process may do everything.
pub(crate) fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}

/// A command of a server: it ends when the test that started it does, however that ends; `user` only matters to root.
pub(crate) fn command(program: &Path, user: Option<&str>) -> Command {
    let mut command = if Path::new(SETPRIV).exists() {
        let mut command = Command::new(SETPRIV);
        if let Some(user) = user.filter(|_| is_root()) {
            command.args(["--reuid", user, "--regid", user, "--clear-groups"]);
        }
        command.args(["--pdeathsig", "KILL", "--"]).arg(program);
        command
    } else {
        Command::new(program)
    };
    command.stdin(Stdio::null()).kill_on_drop(true);
    command
}

/// Runs a command to its end; panics with what it printed when it fails.
pub(crate) async fn run(mut command: Command) {
    let output = command.output().await.expect("the program starts");
    assert!(
        output.status.success(),
        "{command:?}: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

/// A copy of a directory with all its rights.
pub(crate) async fn copy(from: &Path, to: &Path) {
    let mut command = Command::new("cp");
    command.args(["-a", "--reflink=auto"]).arg(from).arg(to);
    run(command).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_free_address_can_be_bound_and_is_not_given_twice() {
        let (one, other) = (free_addr(), free_addr());

        assert_ne!(one, other);
        assert!(TcpListener::bind(one).is_ok());
    }
}
