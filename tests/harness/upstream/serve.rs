//! The connections of a scripted upstream: read a request, pick its behaviour, play it while watching
//! whether the peer leaves.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::BytesMut;
use serde_json::json;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::behaviour::{Behaviour, Then};
use super::request::{Ended, Received, read_body, read_head};
use super::wire::{Performance, perform};
use super::{Call, CallState, Shared, strict};

/// Bytes that may arrive while an answer is under way.
const AHEAD_BYTES_MAX: usize = 1 << 20;
/// Times of sent pieces that are kept for one call.
const SENT_AT_MAX: usize = 4096;

/// How a connection goes on after a call.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    KeepAlive,
    Close,
    Reset,
}

/// Accepts connections until it is dropped.
pub(super) async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else { continue };
                let number = shared.accepted.fetch_add(1, Ordering::SeqCst);
                let gauge = Gauge::up(Arc::clone(&shared), |shared| &shared.open);
                shared.open_max.fetch_max(shared.open.load(Ordering::SeqCst), Ordering::SeqCst);
                connections.spawn(serve(stream, Arc::clone(&shared), number, gauge));
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Counts something while it lives.
struct Gauge {
    shared: Arc<Shared>,
    of: fn(&Shared) -> &AtomicUsize,
}

impl Gauge {
    fn up(shared: Arc<Shared>, of: fn(&Shared) -> &AtomicUsize) -> Self {
        of(&shared).fetch_add(1, Ordering::SeqCst);
        Self { shared, of }
    }
}

impl Drop for Gauge {
    fn drop(&mut self) {
        (self.of)(&self.shared).fetch_sub(1, Ordering::SeqCst);
    }
}

async fn serve(mut stream: TcpStream, shared: Arc<Shared>, connection: usize, _open: Gauge) {
    // A peer may have reset the connection already; the first read will tell.
    let _ = stream.set_nodelay(true);
    let mut buffer = BytesMut::new();
    let mut idle_close = None;
    let mut reused = false;
    loop {
        let head = read_head(&mut stream, &mut buffer);
        let head = match idle_close {
            None => head.await,
            Some(idle) => match tokio::time::timeout(idle, head).await {
                Ok(head) => head,
                Err(_) => return,
            },
        };
        let mut request = match head {
            Ok(request) => request,
            Err(Ended::Malformed(why)) => return refuse(&mut stream, &shared, why).await,
            Err(Ended::Idle | Ended::Broken) => return,
        };
        if request.method == "POST" && reused && shared.resets_reused() {
            return reset(&stream);
        }
        match read_body(&mut stream, &mut buffer, &mut request).await {
            Ok(()) => {}
            Err(Ended::Malformed(why)) => return refuse(&mut stream, &shared, why).await,
            Err(Ended::Idle | Ended::Broken) => return,
        }
        if request.method != "POST" {
            if answer_read(&mut stream, &shared, request).await.is_err() {
                return;
            }
            continue;
        }
        let busy = Gauge::up(Arc::clone(&shared), |shared| &shared.busy);
        let (behaviour, number) = shared.admit(request.clone(), connection, reused);
        let performance = perform(&behaviour, &request, &shared.word(number)).await;
        let next = call(
            &mut stream,
            &mut buffer,
            performance,
            &Progress {
                shared: &shared,
                number,
            },
        )
        .await;
        match next {
            Next::KeepAlive => {}
            Next::Close => return,
            Next::Reset => return reset(&stream),
        }
        drop(busy);
        reused = true;
        idle_close = behaviour.wire.idle_close;
    }
}

/// Plays one answer, unless the peer leaves first.
async fn call(
    stream: &mut TcpStream,
    buffer: &mut BytesMut,
    performance: Performance,
    progress: &Progress<'_>,
) -> Next {
    let started = Instant::now();
    let (mut reader, mut writer) = stream.split();
    let close_after = performance.close_after;
    let then = tokio::select! {
        biased;
        then = play(&mut writer, performance, progress, started) => then,
        () = peer_leaves(&mut reader, buffer) => None,
    };
    let Some(then) = then else {
        progress.set(CallState::PeerLeft(started.elapsed()));
        return Next::Close;
    };
    progress.set(CallState::Answered);
    match then {
        Then::End if close_after => {
            // The peer may be gone by now, which ends the connection as well.
            let _ = writer.shutdown().await;
            Next::Close
        }
        Then::End => Next::KeepAlive,
        Then::Reset => Next::Reset,
        Then::Cut | Then::Hang | Then::Forever(_) => Next::Close,
    }
}

/// Writes the pieces and what follows; `None` when the peer no longer takes them.
async fn play<W>(
    writer: &mut W,
    performance: Performance,
    progress: &Progress<'_>,
    started: Instant,
) -> Option<Then>
where
    W: AsyncWrite + Unpin,
{
    pause(performance.delay).await;
    let mut last = None;
    for piece in performance.pieces {
        pause(piece.wait).await;
        progress.sent(started, piece.bytes.len());
        writer.write_all(&piece.bytes).await.ok()?;
        last = Some(piece.bytes);
    }
    match performance.then {
        Then::Hang => std::future::pending().await,
        Then::Forever(pace) => loop {
            tokio::time::sleep(pace).await;
            let bytes = last.as_ref()?;
            progress.sent(started, bytes.len());
            writer.write_all(bytes).await.ok()?;
        },
        // A reset throws away what the peer has not taken yet: let it arrive first.
        Then::Reset => pause(Duration::from_millis(5)).await,
        Then::End | Then::Cut => {}
    }
    Some(performance.then)
}

async fn pause(wait: Duration) {
    if wait.is_zero() {
        tokio::task::yield_now().await;
    } else {
        tokio::time::sleep(wait).await;
    }
}

/// Returns when the peer closes or resets; keeps what it sends ahead.
async fn peer_leaves<R: AsyncRead + Unpin>(reader: &mut R, buffer: &mut BytesMut) {
    loop {
        match reader.read_buf(buffer).await {
            Ok(0) | Err(_) => return,
            Ok(_) if buffer.len() > AHEAD_BYTES_MAX => return,
            Ok(_) => {}
        }
    }
}

/// Makes the coming close a reset.
fn reset(stream: &TcpStream) {
    // Where the peer reset first there is nothing left to reset.
    let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
}

async fn refuse(stream: &mut TcpStream, shared: &Shared, why: &str) {
    shared.state.lock().faults.push(why.to_owned());
    // The fault is on record; whether the peer hears of it does not matter.
    let _ = stream
        .write_all(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
        .await;
}

/// Answers a model list or a probe.
async fn answer_read(stream: &mut TcpStream, shared: &Shared, request: Received) -> std::io::Result<()> {
    let path = request.target.split('?').next().unwrap_or_default();
    let page = shared.state.lock().pages.get(path).cloned();
    let (status, body) = page.unwrap_or_else(|| {
        let body = if path.ends_with("/models") {
            let ids = shared.state.lock().models.clone();
            models(&request, &ids)
        } else {
            json!({"status": "ok"})
        };
        (200, body.to_string())
    });
    shared.state.lock().reads.push(request);
    let head = format!("HTTP/1.1 {status} OK\r\ncontent-type: application/json\r\ncontent-length: ");
    stream
        .write_all(format!("{head}{}\r\n\r\n{body}", body.len()).as_bytes())
        .await
}

/// A model list in the shape of the provider that is asked for it: Gemini's by its path, Anthropic's by its header.
fn models(request: &Received, ids: &[String]) -> serde_json::Value {
    if request.target.contains("/v1beta/") {
        let entry = |id: &String| {
            json!({
                "name": format!("models/{id}"), "displayName": id, "inputTokenLimit": 1_048_576, "outputTokenLimit": 65_536,
                "supportedGenerationMethods": ["generateContent", "countTokens"],
            })
        };
        return json!({"models": ids.iter().map(entry).collect::<Vec<_>>()});
    }
    if request.header("anthropic-version").is_some() {
        let entry = |id: &String| json!({"type": "model", "id": id, "display_name": id, "created_at": "2026-01-01T00:00:00Z"});
        return json!({
            "data": ids.iter().map(entry).collect::<Vec<_>>(), "has_more": false,
            "first_id": ids.first(), "last_id": ids.last(),
        });
    }
    let entry = |id: &String| json!({"id": id, "object": "model", "created": 0, "owned_by": "harness"});
    json!({"object": "list", "data": ids.iter().map(entry).collect::<Vec<_>>()})
}

/// Notes how one call goes.
struct Progress<'a> {
    shared: &'a Shared,
    number: usize,
}

impl Progress<'_> {
    fn sent(&self, started: Instant, bytes: usize) {
        if let Some(call) = self.shared.state.lock().calls.get_mut(self.number) {
            call.sent_bytes += bytes as u64;
            if call.sent_at.len() < SENT_AT_MAX {
                call.sent_at.push(started.elapsed());
            }
        }
    }

    fn set(&self, state: CallState) {
        if let Some(call) = self.shared.state.lock().calls.get_mut(self.number) {
            call.state = state;
        }
    }
}

impl Shared {
    fn word(&self, number: usize) -> String {
        format!("{}c{number}", self.name)
    }

    /// Whether the next behaviour resets calls on reused connections; if so the reset is counted.
    fn resets_reused(&self) -> bool {
        let mut state = self.state.lock();
        let flagged = match state.queue.front_mut() {
            Some(front) => std::mem::take(&mut front.wire.reset_if_reused),
            None => state.choose.is_none() && state.default.wire.reset_if_reused,
        };
        if flagged {
            self.resets.fetch_add(1, Ordering::SeqCst);
        }
        flagged
    }

    /// Records a call and says how to answer it.
    fn admit(&self, request: Received, connection: usize, reused: bool) -> (Behaviour, usize) {
        let mut state = self.state.lock();
        let number = state.calls.len();
        if serde_json::from_slice::<serde_json::Value>(&request.body).is_err() {
            state
                .faults
                .push(format!("the body of call {number} is not JSON"));
        }
        let refusal = state.strict.then(|| strict::refusal(&request)).flatten();
        if let Some(why) = &refusal {
            state.refusals.push(why.clone());
        }
        let choose = state.choose.clone();
        let behaviour = match refusal {
            Some(why) => Behaviour::failure(400, &why),
            None => match (state.queue.pop_front(), choose) {
                (Some(behaviour), _) => behaviour,
                (None, Some(choose)) => choose(&request),
                (None, None) => state.default.clone(),
            },
        };
        state.calls.push(Call {
            number,
            word: self.word(number),
            request,
            connection,
            reused,
            at: Instant::now(),
            sent_at: Vec::new(),
            sent_bytes: 0,
            state: CallState::Running,
        });
        (behaviour, number)
    }
}
