//! How a command reaches the node that runs on a data directory: a socket in that directory, which only who may enter
//! the directory can use. It knows two words: `drain`, and `reload`, which is answered by `ok` or `no` and a text.

use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufStream};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

/// The socket's name in the data directory.
const NAME: &str = "control.sock";
/// The word that asks the node to drain.
const DRAIN: &[u8] = b"drain";
/// The word that asks it to read its models again.
const RELOAD: &[u8] = b"reload";
/// What an answer begins with where that went well.
const DONE: &str = "ok\n";
/// What it begins with where it did not.
const REFUSED: &str = "no\n";
/// Longest word.
const WORD_BYTES_MAX: usize = 16;
/// How long a command may take to say its word.
const WORD_WITHIN: Duration = Duration::from_secs(2);
/// Most commands at once.
const COMMANDS_MAX: usize = 8;
/// Rest after a failed accept.
const ACCEPT_REST: Duration = Duration::from_millis(100);

/// A command that asks for the models to be read again, and waits for what came of it: a text either way.
pub type Reload = oneshot::Sender<Result<String, String>>;

/// What commands may ask of a node.
#[derive(Debug, Clone)]
pub struct Asks {
    /// Cancelled when it is to drain and end.
    pub drain: CancellationToken,
    /// Where wishes to read the models again go.
    pub reload: mpsc::Sender<Reload>,
}

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

    /// Hands on what commands ask. Runs until `stop`; who asked for a drain sees the connection end with the node.
    pub async fn run(self, asks: Asks, stop: CancellationToken) -> io::Result<()> {
        let mut commands = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                () = stop.cancelled() => break,
            };
            while commands.try_join_next().is_some() {}
            match accepted {
                Ok((stream, _)) if commands.len() < COMMANDS_MAX => {
                    commands.spawn(hear(stream, asks.clone(), stop.clone()));
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

async fn hear(stream: UnixStream, asks: Asks, stop: CancellationToken) {
    let mut stream = BufStream::new(stream);
    let mut word = Vec::new();
    let limit = u64::try_from(WORD_BYTES_MAX).unwrap_or(u64::MAX);
    let read = async { (&mut stream).take(limit).read_until(b'\n', &mut word).await };
    if !matches!(timeout(WORD_WITHIN, read).await, Ok(Ok(_))) {
        return;
    }
    match word.strip_suffix(b"\n") {
        Some(DRAIN) => {
            asks.drain.cancel();
            let _ = say(&mut stream, "draining\n").await;
            stop.cancelled().await;
        }
        Some(RELOAD) => {
            let (told, answer) = oneshot::channel();
            let sent = asks.reload.send(told).await;
            let answer = match sent {
                Ok(()) => answer.await.ok(),
                Err(_) => None,
            };
            let ending = || Err("the node is ending\n".to_owned());
            let (mark, text) = match answer.unwrap_or_else(ending) {
                Ok(text) => (DONE, text),
                Err(text) => (REFUSED, text),
            };
            let _ = say(&mut stream, &format!("{mark}{text}")).await;
        }
        _ => {}
    }
}

async fn say(stream: &mut BufStream<UnixStream>, text: &str) -> io::Result<()> {
    stream.write_all(text.as_bytes()).await?;
    stream.flush().await
}

/// Asks the node of a data directory to drain, and waits until it has ended or `wait` is over: true when it ended.
pub async fn drain(data_dir: &Path, wait: Duration) -> io::Result<bool> {
    let mut stream = ask(data_dir, DRAIN).await?;
    let ended = async {
        let mut buffer = [0; 64];
        while stream.read(&mut buffer).await.is_ok_and(|bytes| bytes > 0) {}
    };
    Ok(timeout(wait, ended).await.is_ok())
}

/// Asks the node of a data directory to read its models again; gives what it says to that, good or bad.
pub async fn reload(data_dir: &Path) -> io::Result<Result<String, String>> {
    let mut stream = ask(data_dir, RELOAD).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    match (answer.strip_prefix(DONE), answer.strip_prefix(REFUSED)) {
        (Some(text), _) => Ok(Ok(text.to_owned())),
        (_, Some(text)) => Ok(Err(text.to_owned())),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

async fn ask(data_dir: &Path, word: &[u8]) -> io::Result<UnixStream> {
    let mut stream = UnixStream::connect(data_dir.join(NAME)).await?;
    stream.write_all(&[word, b"\n"].concat()).await?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asks(drain: &CancellationToken) -> (Asks, mpsc::Receiver<Reload>) {
        let (reload, wishes) = mpsc::channel(1);
        let drain = drain.clone();
        (Asks { drain, reload }, wishes)
    }

    #[tokio::test]
    async fn a_command_hears_what_came_of_reading_the_models_again() {
        let directory = tempfile::tempdir().expect("directory");
        let control = Control::listen(directory.path()).expect("listen");
        let stop = CancellationToken::new();
        let (asks, mut wishes) = asks(&CancellationToken::new());
        let mut node = JoinSet::new();
        node.spawn(control.run(asks, stop.clone()));

        for told in [Ok("2 models\n".to_owned()), Err("models.yaml:3: no\n".to_owned())] {
            let (heard, ()) = tokio::join!(reload(directory.path()), async {
                let wish = wishes.recv().await.expect("a wish");
                wish.send(told.clone()).expect("who asked waits");
            });
            assert_eq!(heard.expect("an answer"), told);
        }
        drop(wishes);
        let ending = reload(directory.path()).await.expect("an answer");
        assert_eq!(ending, Err("the node is ending\n".to_owned()));
    }

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
        node.spawn(control.run(asks(&asked).0, stop.clone()));
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
        node.spawn(control.run(asks(&asked).0, stop.clone()));

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
