//! This machine: its cores, ports and processes, and how a child is started on a chosen core.
//!
//! Pinning needs two cores and `taskset`; without them everything runs anywhere and the report says so.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use serde::de::DeserializeOwned;
use tokio::time::Instant;

/// The core of mock and load generator.
pub(crate) const LOAD_CORE: u32 = 0;
/// The core of the system under test.
pub(crate) const SYSTEM_CORE: u32 = 1;

/// How long a program may take until it says where it listens.
const START_SECONDS_MAX: u64 = 20;
/// The key that requests carry; Waybill knows it.
pub(crate) const KEY: &str = "sk-bench-0123456789abcdef";
/// One whose calls are bounded.
pub(crate) const LIMITED_KEY: &str = "sk-bench-limited-0123456789abcdef";

/// Where programs are and whether they are pinned.
#[derive(Debug)]
pub(crate) struct Machine {
    programs: PathBuf,
    pinned: bool,
    realtime: bool,
}

impl Machine {
    /// Looks at the machine; programs are expected beside the running one. `realtime` asks for a real-time priority.
    pub(crate) fn new(realtime: bool) -> anyhow::Result<Self> {
        let own = std::env::current_exe().context("cannot find the own program")?;
        let programs = own.parent().context("the own program has no folder")?.to_owned();
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let pinned = cores >= 2 && is_quietly_successful(Command::new("taskset").args(["-c", "0,1", "true"]));
        if realtime && !is_quietly_successful(Command::new("chrt").args(["-r", "1", "true"])) {
            bail!("--realtime needs the program chrt and the right to use real-time priorities");
        }
        Ok(Self {
            programs,
            pinned,
            realtime,
        })
    }

    /// Whether processes have fixed cores.
    pub(crate) fn is_pinned(&self) -> bool {
        self.pinned
    }

    /// The path of a program of this project.
    pub(crate) fn program(&self, name: &str) -> PathBuf {
        self.programs.join(name)
    }

    /// A command that runs `program` on `core`, with standard streams closed.
    pub(crate) fn command(&self, program: &Path, core: u32) -> Command {
        let priority: &[&str] = if self.realtime { &["chrt", "-r", "1"] } else { &[] };
        self.prioritized(priority, program, core)
    }

    /// The same for what only works when nobody else wants the core.
    pub(crate) fn background(&self, program: &Path, core: u32) -> Command {
        self.prioritized(&["nice", "-n", "19"], program, core)
    }

    fn prioritized(&self, priority: &[&str], program: &Path, core: u32) -> Command {
        let core = core.to_string();
        let mut words: Vec<&OsStr> = priority.iter().map(OsStr::new).collect();
        if self.pinned {
            words.extend(["taskset", "-c", &core].map(OsStr::new));
        }
        words.push(program.as_os_str());
        let mut command = Command::new(words.remove(0));
        command.args(words);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command
    }

    /// Moves running processes, all their threads, to `core`; nothing happens where nothing is pinned.
    pub(crate) fn pin_running(&self, pids: &[u32], core: u32) {
        for pid in pids.iter().filter(|_| self.pinned) {
            let mut command = Command::new("taskset");
            command.args(["-a", "-c", "-p", &core.to_string(), &pid.to_string()]);
            if !is_quietly_successful(&mut command) && is_running(*pid) {
                eprintln!("cannot move process {pid} to core {core}");
            }
        }
    }

    /// Gives processes that somebody else started, all their threads, the place and the priority of [`Self::command`].
    pub(crate) fn adopt(&self, pids: &[u32], core: u32) {
        self.pin_running(pids, core);
        for pid in pids.iter().filter(|_| self.realtime) {
            let mut command = Command::new("chrt");
            command.args(["-a", "-r", "-p", "1", &pid.to_string()]);
            if !is_quietly_successful(&mut command) && is_running(*pid) {
                eprintln!("cannot raise the priority of process {pid}");
            }
        }
    }

    /// Moves processes that somebody else started to `core`, where they only work when nobody else wants it.
    pub(crate) fn demote(&self, pids: &[u32], core: u32) {
        self.pin_running(pids, core);
        for pid in pids {
            let mut command = Command::new("renice");
            command.args(["-n", "19", "-p", &pid.to_string()]);
            if !is_quietly_successful(&mut command) && is_running(*pid) {
                eprintln!("cannot lower the priority of process {pid}");
            }
        }
    }

    /// Runs the load generator against `url` and reads its JSON.
    pub(crate) fn load<T: DeserializeOwned>(
        &self,
        url: &str,
        pids: &[u32],
        flags: &[String],
    ) -> anyhow::Result<T> {
        let mut command = self.command(&self.program("bench-load"), LOAD_CORE);
        command.args(["--json", "--url", url]).args(flags);
        for pid in pids {
            command.arg("--pid").arg(pid.to_string());
        }
        let output = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .output()
            .context("cannot run the load generator")?;
        if !output.status.success() {
            bail!(
                "the load generator failed: {}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
        serde_json::from_slice(&output.stdout).context("the load generator printed no result")
    }
}

/// Starts a program whose log says `listening addr=HOST:PORT`, and waits for that line.
pub(crate) fn listening(mut command: Command, log: &Path, role: &str) -> anyhow::Result<(Child, SocketAddr)> {
    let file = File::create(log).with_context(|| format!("cannot make {}", log.display()))?;
    let mut child = command
        .stderr(file)
        .spawn()
        .with_context(|| format!("cannot start {role}"))?;
    let deadline = Instant::now() + Duration::from_secs(START_SECONDS_MAX);
    while Instant::now() < deadline {
        let text = fs::read_to_string(log).unwrap_or_default();
        if let Some(address) = listening_address(&text, role) {
            return Ok((child, address));
        }
        if child.try_wait()?.is_some() {
            bail!("it ended at once: {text}");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let text = fs::read_to_string(log).unwrap_or_default();
    child.kill()?;
    child.wait()?;
    bail!("it does not say where it listens: {text}")
}

fn is_quietly_successful(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

fn is_running(pid: u32) -> bool {
    fs::exists(format!("/proc/{pid}")).unwrap_or_default()
}

/// The address in the last whole line `listening addr=… role=ROLE`, colors ignored.
fn listening_address(log: &str, role: &str) -> Option<SocketAddr> {
    let (whole, _) = log.rsplit_once('\n')?;
    whole.lines().rev().find_map(|line| {
        let plain = without_colors(line);
        let mut words = plain.split_whitespace().skip_while(|word| *word != "listening");
        words.next()?;
        let fields: Vec<&str> = words.collect();
        let is_role = fields
            .iter()
            .any(|field| field.strip_prefix("role=") == Some(role));
        let address = fields.iter().find_map(|field| field.strip_prefix("addr="))?;
        is_role.then(|| address.parse().ok()).flatten()
    })
}

/// The line without terminal escape sequences.
fn without_colors(line: &str) -> String {
    let mut plain = String::with_capacity(line.len());
    let mut inside = false;
    for character in line.chars() {
        match (inside, character) {
            (false, '\u{1b}') => inside = true,
            (false, _) => plain.push(character),
            (true, 'a'..='z' | 'A'..='Z') => inside = false,
            (true, _) => {}
        }
    }
    plain
}

/// A port that was free a moment ago, for programs that cannot pick one themselves.
pub(crate) fn free_port() -> anyhow::Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no free port")?;
    Ok(listener.local_addr()?.port())
}

/// Whether something accepts connections there.
pub(crate) fn accepts(address: SocketAddr) -> bool {
    TcpStream::connect_timeout(&address, Duration::from_millis(200)).is_ok()
}

/// Sends a request without a body and wants a 200.
pub(crate) fn request(address: SocketAddr, method: &str, path: &str) -> anyhow::Result<()> {
    let mut stream = TcpStream::connect(address).with_context(|| format!("cannot connect to {address}"))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
    )?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    if !answer.starts_with(b"HTTP/1.1 200 ") {
        bail!(
            "{method} {path} was answered with {}",
            String::from_utf8_lossy(&answer)
        );
    }
    Ok(())
}

/// The children of a process.
pub(crate) fn children(parent: u32) -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
            (parent_of(&stat)? == parent).then_some(pid)
        })
        .collect()
}

/// The parent's id in a `stat` line; the name before it may contain anything.
fn parent_of(stat: &str) -> Option<u32> {
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_whitespace().nth(1)?.parse().ok()
}

/// Resident memory of these processes together, in KiB.
pub(crate) fn rss_kib(pids: &[u32]) -> f64 {
    pids.iter()
        .filter_map(|pid| fs::read_to_string(format!("/proc/{pid}/status")).ok())
        .filter_map(|status| {
            let rest = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
            rest.split_whitespace().next()?.parse::<f64>().ok()
        })
        .fold(0.0, |sum, kib| sum + kib)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_address_is_read_from_the_log_with_and_without_colors() {
        let plain = "2026-01-01T00:00:00Z INFO node: listening addr=127.0.0.1:4001 role=gateway\n";
        let colored = "\u{1b}[2mINFO\u{1b}[0m listening \u{1b}[3maddr\u{1b}[0m\u{1b}[2m=\u{1b}[0m127.0.0.1:4002 \u{1b}[3mrole\u{1b}[0m=gateway\n";

        assert_eq!(listening_address(plain, "gateway"), "127.0.0.1:4001".parse().ok());
        assert_eq!(
            listening_address(colored, "gateway"),
            "127.0.0.1:4002".parse().ok()
        );
        assert_eq!(listening_address(plain, "mock"), None);
    }

    #[test]
    fn a_half_written_line_is_not_read() {
        assert_eq!(listening_address("listening addr=127.0.0.1:40", "mock"), None);
    }

    #[test]
    fn the_parent_is_found_behind_any_process_name() {
        assert_eq!(parent_of("17 (a) S) b) S 4 17 17 0"), Some(4));
        assert_eq!(parent_of("garbage"), None);
    }
}
