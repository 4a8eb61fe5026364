//! An installed program, run once with a home and a directory of its own and nothing of this machine's settings.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tempfile::TempDir;
use tokio::process::Command;
use tokio::time::timeout;

/// How long a program may take; some look for what they cannot reach first.
const PROGRAM_MAX: Duration = Duration::from_mins(3);

/// A program to run.
pub(super) struct Program {
    path: PathBuf,
    home: TempDir,
    env: Vec<(String, String)>,
    args: Vec<String>,
}

/// What became of it.
pub(super) struct Ended {
    /// It ended well.
    pub(super) success: bool,
    /// What it answered.
    pub(super) stdout: String,
    /// What else it said.
    stderr: String,
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = if self.success { "well" } else { "badly" };
        write!(f, "it ended {end}\n{}\n{}", self.stdout, self.stderr)
    }
}

/// The bytes of base64.
pub(super) fn decoded(text: &str) -> Vec<u8> {
    STANDARD.decode(text).expect("base64")
}

fn installed() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/sdk")
}

impl Program {
    /// A program of target/sdk, by its path there; panics when it is not installed.
    pub(super) fn new(path: &str) -> Self {
        let path = installed().join(path);
        assert!(
            path.exists(),
            "{} is not installed; run scripts/setup.sh clients",
            path.display()
        );
        let home = tempfile::Builder::new()
            .prefix("client-")
            .tempdir()
            .expect("a directory");
        std::fs::create_dir(home.path().join("work")).expect("a directory");
        Self {
            path,
            home,
            env: Vec::new(),
            args: Vec::new(),
        }
    }

    /// The directory it works in.
    pub(super) fn work(&self) -> PathBuf {
        self.home.path().join("work")
    }

    /// One environment variable.
    pub(super) fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// More of them.
    pub(super) fn envs(mut self, variables: Vec<(String, String)>) -> Self {
        self.env.extend(variables);
        self
    }

    /// Arguments.
    pub(super) fn args(mut self, args: &[&str]) -> Self {
        self.args.extend(args.iter().map(|&arg| arg.to_owned()));
        self
    }

    /// A file in its home.
    pub(super) fn file(self, path: &str, bytes: &[u8]) -> Self {
        let path = self.home.path().join(path);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).expect("a directory");
        }
        std::fs::write(path, bytes).expect("a file");
        self
    }

    /// Runs it to its end; panics when that takes too long.
    pub(super) async fn run(&self) -> Ended {
        let mut command = Command::new(&self.path);
        command
            .args(&self.args)
            .env_clear()
            .env("HOME", self.home.path())
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("LANG", "C.UTF-8")
            .env("NO_PROXY", "127.0.0.1")
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .current_dir(self.work())
            .stdin(Stdio::null())
            .kill_on_drop(true);
        let output = timeout(PROGRAM_MAX, command.output())
            .await
            .expect("the program ends")
            .expect("the program starts");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ended {
            success: output.status.success(),
            stdout: text(&output.stdout),
            stderr: text(&output.stderr),
        }
    }
}
