//! One process of a node and its log lines.

use std::fs::OpenOptions;
use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::{Child, Command};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::LOOK_EVERY;

/// A running or ended process; killed when dropped.
pub(crate) struct Process {
    child: Child,
    pid: u32,
    readers: JoinSet<()>,
    lines: Arc<Mutex<Vec<String>>>,
    /// Lines of earlier starts.
    earlier: usize,
}

impl Process {
    pub(crate) fn start(command: &mut Command, log: &Path) -> Self {
        Self::with_lines(command, log, Arc::default())
    }

    /// Starts the next process; the lines go on.
    pub(crate) fn again(&mut self, command: &mut Command, log: &Path) {
        let lines = Arc::clone(&self.lines);
        *self = Self::with_lines(command, log, lines);
    }

    fn with_lines(command: &mut Command, log: &Path, lines: Arc<Mutex<Vec<String>>>) -> Self {
        let earlier = lines.lock().len();
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let pid = child.id().expect("a process just started");
        let mut readers = JoinSet::new();
        readers.spawn(keep(
            child.stdout.take().expect("a pipe"),
            Arc::clone(&lines),
            log.to_owned(),
        ));
        readers.spawn(keep(
            child.stderr.take().expect("a pipe"),
            Arc::clone(&lines),
            log.to_owned(),
        ));
        Self {
            child,
            pid,
            readers,
            lines,
            earlier,
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.lines.lock().clone()
    }

    pub(crate) fn running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// The address of the line that tells it; panics with the log when it does not come.
    pub(crate) async fn listening(&mut self, role: Option<&str>, wait: Duration) -> SocketAddr {
        let deadline = Instant::now() + wait;
        loop {
            let found = self
                .lines
                .lock()
                .iter()
                .skip(self.earlier)
                .find_map(|line| listening_addr(line, role));
            if let Some(addr) = found {
                return addr;
            }
            let running = self.running();
            assert!(
                running && Instant::now() < deadline,
                "the node does not listen (running: {running}); its log:\n{}",
                self.lines().join("\n")
            );
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    pub(crate) async fn signal(&self, name: &str) {
        let script = format!("kill -{name} {}", self.pid);
        let status = Command::new("/bin/sh")
            .args(["-c", &script])
            .status()
            .await
            .expect("a shell");
        assert!(
            status.success(),
            "the process {} takes no signal {name}",
            self.pid
        );
    }

    /// Waits for the end and for the last lines.
    pub(crate) async fn ended(&mut self, wait: Duration) -> Option<i32> {
        let Ok(status) = timeout(wait, self.child.wait()).await else {
            panic!(
                "the node did not end in {wait:?}; its log:\n{}",
                self.lines().join("\n")
            );
        };
        while self.readers.join_next().await.is_some() {}
        status.expect("the status of the process").code()
    }
}

async fn keep<R: AsyncRead + Unpin>(from: R, lines: Arc<Mutex<Vec<String>>>, log: std::path::PathBuf) {
    let mut file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(log)
        .expect("the log file");
    let mut reader = BufReader::new(from).split(b'\n');
    while let Ok(Some(bytes)) = reader.next_segment().await {
        let line = String::from_utf8_lossy(&bytes).into_owned();
        writeln!(file, "{line}").expect("a line of the log file");
        lines.lock().push(line);
    }
}

/// The address in `listening addr=HOST:PORT role=ROLE`, of this role or of any.
fn listening_addr(line: &str, role: Option<&str>) -> Option<SocketAddr> {
    let (_, rest) = line.split_once("listening addr=")?;
    let mut words = rest.split_whitespace();
    let addr = words.next()?.parse().ok()?;
    let of_role = |word: &str| {
        word.strip_prefix("role=")
            .is_some_and(|named| role.is_none_or(|role| role == named))
    };
    words.any(of_role).then_some(addr)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_read_from_the_line_that_tells_it() {
        let addr = Some(SocketAddr::from(([127, 0, 0, 1], 4001)));
        assert_eq!(
            listening_addr(
                "2026  INFO listening addr=127.0.0.1:4001 role=gateway",
                Some("gateway")
            ),
            addr
        );
        assert_eq!(
            listening_addr("listening addr=127.0.0.1:4001 role=admin", Some("gateway")),
            None
        );
        assert_eq!(listening_addr("listening", Some("gateway")), None);
    }

    #[tokio::test]
    async fn a_process_is_read_signalled_and_waited_for() {
        let dir = tempfile::tempdir().expect("a directory");
        let script = "echo listening addr=127.0.0.1:9 role=gateway >&2; exec sleep 60";
        let mut process = Process::start(
            Command::new("/bin/sh").args(["-c", script]),
            &dir.path().join("log"),
        );

        assert_eq!(
            process
                .listening(Some("gateway"), Duration::from_secs(5))
                .await
                .port(),
            9
        );
        assert!(process.running());
        process.signal("KILL").await;
        assert_eq!(process.ended(Duration::from_secs(5)).await, None);

        let mut again = Command::new("/bin/sh");
        process.again(again.args(["-c", "echo second; exit 3"]), &dir.path().join("log"));
        assert_eq!(process.ended(Duration::from_secs(5)).await, Some(3));
        assert_eq!(process.lines().last().map(String::as_str), Some("second"));
        assert_eq!(process.lines().len(), 2);
    }
}
