//! How a command reaches the node that runs on a data directory: a socket in that directory, which only who may enter
//! the directory can use. It knows one word, `drain`.

use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

/// The socket's name in the data directory.
const NAME: &str = "control.sock";
/// The word that asks the node to drain.
const DRAIN: &[u8] = b"drain\n";
/// How long a command may take to say its word.
const WORD_WITHIN: Duration = Duration::from_secs(2);
/// Most commands at once.
const COMMANDS_MAX: usize = 8;
/// Rest after a failed accept.
const ACCEPT_REST: Duration = Duration::from_millis(100);

/// The node's end of the socket.
pub struct Control {
    listener: UnixListener,
    path: PathBuf,
}

impl Control {
    /// Listens in a data directory that this process holds.
    pub fn listen(data_dir: &Path) -> io::Result<Self> {
        let path = data_dir.join(NAME);
        match std::fs::remove_file(&path) {
            Err(problem) if problem.kind() != io::ErrorKind::NotFound => return Err(problem),
            _ => {}
        }
        let listener = UnixListener::bind(&path)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
        Ok(Self { listener, path })
    }

    /// Cancels `drain` when a command asks for it. Runs until `stop`; who asked sees the connection end with the node.
    pub async fn run(self, drain: CancellationToken, stop: CancellationToken) -> io::Result<()> {
        let mut commands = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                () = stop.cancelled() => break,
            };
            while commands.try_join_next().is_some() {}
            match accepted {
                Ok((stream, _)) if commands.len() < COMMANDS_MAX => {
                    commands.spawn(hear(stream, drain.clone(), stop.clone()));
                }
                Ok(_) => {}
                Err(_) => sleep(ACCEPT_REST).await,
            }
        }
        // A socket that nobody listens to says the same as none.
        let _ = std::fs::remove_file(&self.path);
        commands.shutdown().await;
        Ok(())
    }
}

async fn hear(mut stream: UnixStream, drain: CancellationToken, stop: CancellationToken) {
    let mut word = [0; DRAIN.len()];
    let heard = timeout(WORD_WITHIN, stream.read_exact(&mut word)).await;
    if !matches!(heard, Ok(Ok(_))) || word != DRAIN {
        return;
    }
    drain.cancel();
    let _ = stream.write_all(b"draining\n").await;
    stop.cancelled().await;
}

/// Asks the node of a data directory to drain, and waits until it has ended or `wait` is over: true when it ended.
pub async fn drain(data_dir: &Path, wait: Duration) -> io::Result<bool> {
    let mut stream = UnixStream::connect(data_dir.join(NAME)).await?;
    stream.write_all(DRAIN).await?;
    let ended = async {
        let mut buffer = [0; 64];
        while stream.read(&mut buffer).await.is_ok_and(|bytes| bytes > 0) {}
    };
    Ok(timeout(wait, ended).await.is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_command_asks_the_node_to_drain_and_sees_it_end() {
        let directory = tempfile::tempdir().expect("directory");
        let control = Control::listen(directory.path()).expect("listen");
        let mode = std::fs::metadata(directory.path().join(NAME))
            .expect("a socket")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
        let (asked, stop) = (CancellationToken::new(), CancellationToken::new());
        let mut node = JoinSet::new();
        node.spawn(control.run(asked.clone(), stop.clone()));
        node.spawn(async move {
            asked.cancelled().await;
            stop.cancel();
            Ok(())
        });

        let ended = drain(directory.path(), Duration::from_secs(5))
            .await
            .expect("ask");

        assert!(ended);
        while let Some(joined) = node.join_next().await {
            joined.expect("join").expect("run");
        }
        assert!(drain(directory.path(), Duration::from_secs(1)).await.is_err());
    }

    #[tokio::test]
    async fn another_word_does_nothing() {
        let directory = tempfile::tempdir().expect("directory");
        let control = Control::listen(directory.path()).expect("listen");
        let (asked, stop) = (CancellationToken::new(), CancellationToken::new());
        let mut node = JoinSet::new();
        node.spawn(control.run(asked.clone(), stop.clone()));

        let mut stream = UnixStream::connect(directory.path().join(NAME))
            .await
            .expect("connect");
        stream.write_all(b"dance\n").await.expect("write");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.expect("read");

        assert!(answer.is_empty() && !asked.is_cancelled());
        stop.cancel();
        node.join_next()
            .await
            .expect("a task")
            .expect("join")
            .expect("run");
    }
}
