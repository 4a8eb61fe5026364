//! Dispatch to a router elsewhere. A gateway offers a request to a pool, takes the first router that accepts, and
//! gives it the word to go; frames come back numbered, kept by the router until they are known to have arrived.
//!
//! ```text
//! gateway ──offer──► wb.run.<pool>              one member of the pool's group
//! gateway ◄──accepted | busy── router           to <inbox>.<lane>
//! gateway ──order: run, received n, credit m──► wb.ctl.<pool>.<boot>    the first one is the word to go
//! gateway ◄──need bytes n to m of the body── router    to <inbox>.<lane>, of a body that does not fit an offer
//! gateway ──piece of the body──► wb.body.<pool>.<boot>
//! gateway ◄──frame n, frame n+1, … end── router to <inbox>.<lane>
//! gateway ◄──beat──► router                     each 500 ms: what each side has of every lane
//! ```
//!
//! A *lane* is one offer of one request. Orders repeat the whole state of a lane and beats repeat the orders, so that
//! any message may be lost, doubled or late. Nothing goes upstream before the word to go, and only one router gets
//! it. A router that dies before the first content is replaced by another one; after it the answer is visibly broken.
//!
//! Routers of a named pool know nothing of the catalogue but what comes with offers ([`sight`]). What a pool's router
//! hears and may say is its pool's alone; that it cannot speak for a router of another one stands on lanes that nobody
//! guesses.

mod code;
mod driver;
pub mod gateway;
mod incoming;
pub mod intake;
mod keep;
mod outbox;
mod request;
mod session;
pub mod sight;
mod window;

use std::time::Duration;

/// The group in which the routers of a pool share offers.
const GROUP: &str = "router";
/// The last word of the subject of a router's beats.
const BEAT_WORD: &str = "beat";
/// Largest body that is run elsewhere, in bytes: the largest that a gateway takes, with room for what it writes into it.
pub const BODY_BYTES_MAX: usize = 33 * 1024 * 1024;
/// Largest body that travels with an offer, in bytes.
const INLINE_BYTES_MAX: usize = 256 * 1024;
/// Bytes of a body in one message.
const PIECE_BYTES: usize = 128 * 1024;
/// Bytes of a body that may be under way.
const WINDOW_BYTES: usize = 1024 * 1024;
/// Bytes of larger bodies that a router holds at once; beyond them it answers that it is busy.
const BODIES_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Frames a gateway lets a router send ahead of its reader.
const CREDIT_FRAMES: u32 = 16;
/// Frames read after which the credit is renewed.
const CREDIT_STEP_FRAMES: u32 = 8;
/// Most frames a router keeps until they are known to have arrived.
const KEPT_FRAMES_MAX: usize = 24;
/// Bytes of pieces that are put into one frame while more are ready.
const GATHERED_BYTES: usize = 32 * 1024;
/// Most bytes of an answer in one frame.
const FRAME_BYTES_MAX: usize = 64 * 1024;
/// Most bytes that a gateway holds back for the end of an answer.
const TAIL_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Time between two beats.
const BEAT: Duration = Duration::from_millis(500);
/// Time between two looks at what has become silent.
const LOOK: Duration = Duration::from_millis(250);
/// Time between two looks after which a gateway takes itself to have stood still.
const STANDSTILL: Duration = Duration::from_millis(750);
/// Most messages that are taken in before a look at what has become silent.
const ARRIVALS_MAX: usize = 4_096;
/// Silence after which a router counts as dead.
const ROUTER_SILENCE_MAX: Duration = Duration::from_millis(1_500);
/// Silence of a gateway after which its requests are canceled.
const GATEWAY_SILENCE_MAX: Duration = Duration::from_secs(3);
/// How long another pool is waited for that does not answer, or is full, while there is a further one.
const POOL_WAIT: Duration = Duration::from_millis(150);
/// How long a named pool is waited for in which nobody listens, when there is no further one.
const POOL_ABSENCE: Duration = Duration::from_secs(2);
/// How long an offer may stay without an answer.
const OFFER_WAIT: Duration = Duration::from_millis(500);
/// How long a router holds a place for the word to go.
const ACCEPT_LIFE: Duration = Duration::from_secs(1);
/// How long a canceled or interrupted request may take to report.
const FAREWELL: Duration = Duration::from_millis(900);

#[cfg(test)]
mod tests;
