//! What every dispatcher must do, one function per promise. A [`Scene`] brings the dispatcher, requests with known
//! answers, and a count of the upstreams that are open.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use schemas::frame::Head;
use schemas::outcome::Outcome;
use tokio::time::{Instant, sleep, timeout};

use super::PATIENCE;
use crate::BusError;
use crate::dispatch::{Dispatch, Dispatcher, End, Frame, Session};

/// How long a stopped session may take to end.
const FAREWELL: Duration = Duration::from_secs(1);

/// What a request is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// A stream of some pieces, with an end mark.
    Stream,
    /// A stream that begins with content and then never goes on.
    Endless,
    /// One piece.
    Whole,
    /// A failure before any content.
    Failure,
}

/// A dispatcher with upstreams behind it.
pub trait Scene: Send + Sync {
    /// What is proven.
    fn dispatcher(&self) -> Arc<dyn Dispatcher>;

    /// A new request that is answered so.
    fn dispatch(&self, answer: Answer) -> Dispatch;

    /// What a caller reads in all of an answer that ends well.
    fn text(&self, answer: Answer) -> Bytes;

    /// Upstreams that are open now.
    fn upstreams(&self) -> usize;
}

/// What a session gave, in order.
#[derive(Debug, Default)]
pub struct Played {
    /// The head that went before the chunks.
    pub head: Option<Head>,
    /// The chunks, in one piece.
    pub chunks: BytesMut,
    /// The end.
    pub end: Option<Box<End>>,
}

impl Played {
    /// Takes a frame in; fails where it breaks the order of frames.
    pub fn take(&mut self, frame: Frame) {
        assert!(self.end.is_none(), "a frame came after the end");
        match frame {
            Frame::Head(head) => {
                assert!(self.head.is_none(), "a second head");
                assert!(self.chunks.is_empty(), "a head after a chunk");
                self.head = Some(head);
            }
            Frame::Chunk(bytes) => self.chunks.extend_from_slice(&bytes),
            Frame::End(end) => {
                assert!(
                    self.head.is_none() || end.head.is_none(),
                    "a second head, in the end"
                );
                self.end = Some(end);
            }
        }
    }

    /// The end.
    pub fn end(&self) -> Option<&End> {
        self.end.as_deref()
    }

    /// What a caller reads in all.
    pub fn text(&self) -> Bytes {
        let tail = self.end.as_ref().map_or(&[][..], |end| &end.tail[..]);
        [&self.chunks[..], tail].concat().into()
    }

    /// How it ended.
    pub fn outcome(&self) -> Option<Outcome> {
        self.end().map(|end| end.report.outcome)
    }
}

/// The next frame of a session.
pub async fn frame(session: &mut dyn Session) -> Frame {
    poll_fn(|context| session.poll_frame(context)).await
}

/// Hears a session to its end.
pub async fn rest(session: &mut dyn Session, played: &mut Played) -> Result<(), BusError> {
    while played.end.is_none() {
        let next = timeout(PATIENCE, frame(session)).await;
        played.take(next.map_err(|_| BusError::Timeout)?);
    }
    Ok(())
}

/// Runs a request to its end.
pub async fn play(dispatcher: &dyn Dispatcher, dispatch: Dispatch) -> Result<Played, BusError> {
    let mut session = dispatcher.dispatch(dispatch);
    let mut played = Played::default();
    rest(session.as_mut(), &mut played).await?;
    Ok(played)
}

/// A session that has handed over its first content.
async fn begun(scene: &dyn Scene) -> Result<(Box<dyn Session>, Played), BusError> {
    let mut session = scene.dispatcher().dispatch(scene.dispatch(Answer::Endless));
    let mut played = Played::default();
    while played.chunks.is_empty() {
        let next = timeout(PATIENCE, frame(session.as_mut())).await;
        played.take(next.map_err(|_| BusError::Timeout)?);
        assert!(played.end.is_none(), "an endless answer has ended");
    }
    Ok((session, played))
}

/// Waits until as many upstreams are open as before.
async fn closed(scene: &dyn Scene, before: usize) -> Result<(), BusError> {
    let until = Instant::now() + FAREWELL;
    while scene.upstreams() > before {
        if Instant::now() >= until {
            return Err(BusError::Timeout);
        }
        sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

/// A stream is one head, chunks, and one end that holds its tail back.
pub async fn a_stream_is_a_head_chunks_and_an_end(scene: &dyn Scene) -> Result<(), BusError> {
    let played = play(&*scene.dispatcher(), scene.dispatch(Answer::Stream)).await?;

    assert!(played.head.is_some(), "a stream has a head");
    assert!(!played.chunks.is_empty(), "a stream has chunks");
    assert_eq!(played.outcome(), Some(Outcome::Ok));
    let end = played.end().ok_or(BusError::Closed)?;
    assert!(!end.tail.is_empty(), "the end mark is held back");
    assert!(end.report.delivered.content);
    assert!(end.report.served.is_some());
    assert_eq!(played.text(), scene.text(Answer::Stream));
    Ok(())
}

/// An answer in one piece is one frame.
pub async fn a_whole_answer_is_one_frame(scene: &dyn Scene) -> Result<(), BusError> {
    let played = play(&*scene.dispatcher(), scene.dispatch(Answer::Whole)).await?;

    assert!(played.head.is_none() && played.chunks.is_empty());
    assert_eq!(played.outcome(), Some(Outcome::Ok));
    let end = played.end().ok_or(BusError::Closed)?;
    assert_eq!(end.head.as_ref().map(|head| head.status), Some(200));
    assert_eq!(end.tail, scene.text(Answer::Whole));
    Ok(())
}

/// A request that fails before its content ends without a head, and says why.
pub async fn a_failure_before_content_is_an_end_alone(scene: &dyn Scene) -> Result<(), BusError> {
    let played = play(&*scene.dispatcher(), scene.dispatch(Answer::Failure)).await?;

    assert!(played.head.is_none() && played.chunks.is_empty());
    let end = played.end().ok_or(BusError::Closed)?;
    assert_ne!(end.report.outcome, Outcome::Ok);
    assert!(end.report.failure.is_some());
    assert!(!end.report.attempts.is_empty());
    assert!(!end.report.delivered.content);
    Ok(())
}

/// Nothing goes upstream before a session is polled.
pub async fn nothing_goes_upstream_before_the_first_poll(scene: &dyn Scene) -> Result<(), BusError> {
    let before = scene.upstreams();
    let session = scene.dispatcher().dispatch(scene.dispatch(Answer::Endless));
    sleep(super::MOMENT).await;
    assert_eq!(scene.upstreams(), before);
    drop(session);
    Ok(())
}

/// A canceled session closes its upstream at once, and reports within a second.
pub async fn a_cancel_closes_the_upstream_and_reports(scene: &dyn Scene) -> Result<(), BusError> {
    let before = scene.upstreams();
    let (mut session, mut played) = begun(scene).await?;
    let at = Instant::now();

    session.cancel();
    rest(session.as_mut(), &mut played).await?;

    assert!(at.elapsed() <= FAREWELL, "it took {:?}", at.elapsed());
    assert_eq!(played.outcome(), Some(Outcome::ClientGone));
    let end = played.end().ok_or(BusError::Closed)?;
    assert!(end.report.delivered.content);
    assert_eq!(end.report.attempts.len(), 1);
    closed(scene, before).await
}

/// An interrupted session closes its upstream and reports `timeout` within a second.
pub async fn an_interrupt_closes_the_upstream_and_reports(scene: &dyn Scene) -> Result<(), BusError> {
    let before = scene.upstreams();
    let (mut session, mut played) = begun(scene).await?;
    let at = Instant::now();

    session.interrupt();
    rest(session.as_mut(), &mut played).await?;

    assert!(at.elapsed() <= FAREWELL, "it took {:?}", at.elapsed());
    assert_eq!(played.outcome(), Some(Outcome::Timeout));
    let failure = played.end().and_then(|end| end.report.failure.as_ref());
    assert_eq!(
        failure.map(|failure| failure.code.as_str()),
        Some("stream_interrupted")
    );
    closed(scene, before).await
}

/// The first reason to stop stays.
pub async fn the_first_reason_to_stop_stays(scene: &dyn Scene) -> Result<(), BusError> {
    let (mut session, mut played) = begun(scene).await?;

    session.cancel();
    session.interrupt();
    rest(session.as_mut(), &mut played).await?;

    assert_eq!(played.outcome(), Some(Outcome::ClientGone));
    Ok(())
}

/// A session that is canceled before it was polled sends nothing upstream.
pub async fn a_session_canceled_before_its_first_poll_reports(scene: &dyn Scene) -> Result<(), BusError> {
    let mut session = scene.dispatcher().dispatch(scene.dispatch(Answer::Endless));
    let mut played = Played::default();

    session.cancel();
    timeout(FAREWELL, rest(session.as_mut(), &mut played))
        .await
        .unwrap_or(Err(BusError::Timeout))?;

    assert!(played.chunks.is_empty());
    assert_eq!(played.outcome(), Some(Outcome::ClientGone));
    Ok(())
}

/// A session that is dropped closes its upstream.
pub async fn a_dropped_session_closes_its_upstream(scene: &dyn Scene) -> Result<(), BusError> {
    let before = scene.upstreams();
    let (session, _) = begun(scene).await?;
    assert_eq!(scene.upstreams(), before + 1);

    drop(session);

    closed(scene, before).await
}
