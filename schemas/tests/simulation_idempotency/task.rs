//! One request at one node, as its gateway would run it.

use schemas::digest::Digest;
use schemas::id::{RequestId, SpoolId};
use schemas::idempotency::answer::{Answer, Body};
use schemas::idempotency::claim::Claim;
use schemas::idempotency::hold::Hold;
use schemas::idempotency::record::{Done, Running};
use schemas::idempotency::release::Release;
use schemas::idempotency::{Read, Write, Written};
use uuid::Uuid;

/// A request that runs.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) number: u128,
    pub(crate) key: usize,
    pub(crate) body: u8,
    /// What its caller sent, by number.
    pub(crate) send: usize,
    pub(crate) stage: Stage,
    /// The operation under way; answers to others are late.
    pub(crate) operation: u64,
    /// The alarm that counts; earlier ones do not.
    pub(crate) alarm: u64,
}

#[derive(Debug)]
pub(crate) enum Stage {
    Claiming(Box<Claim>),
    Holding(Box<Hold>, Work),
    Releasing(Box<Release>),
    Over,
}

/// What a request that has its key is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Work {
    /// It is to be sent upstream.
    Ready { since_ms: u64 },
    /// It was sent.
    Sent,
    /// Its answer is there and not settled.
    Back { result: Result, since_ms: u64 },
    /// It has settled; the answer is held back.
    Settled(Settled),
    /// The answer has left.
    Left,
}

/// What an upstream does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Result {
    /// It answers.
    Whole,
    /// It refuses the work.
    Refused,
    /// It takes the work and breaks off.
    Broken,
}

/// What a request was answered, and whether it is charged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Settled {
    pub(crate) charged: bool,
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
}

/// What is to be done for a request.
#[derive(Debug)]
pub(crate) enum Job {
    Nothing,
    Read,
    Write(Box<Write>),
    Ask(Running),
    Alarm(u64),
}

/// What a job came to.
#[derive(Debug, Clone)]
pub(crate) enum Outcome {
    Written(Written),
    Read(Read),
    Told(Running),
}

pub(crate) fn digest(body: u8) -> Digest {
    Digest([body; 32])
}

/// The lock of a request at a node.
pub(crate) fn lock(number: u128, body: u8, node: usize, boot: u32, lease_ms: u64) -> Running {
    Running {
        request_id: RequestId(Uuid::from_u128(number)),
        boot: format!("{node}-{boot}").into(),
        spool: SpoolId::new(format!("spool-{node}")),
        digest: digest(body),
        lease_ms,
    }
}

/// The node and the boot that a lock names.
pub(crate) fn place(lock: &Running) -> (usize, u32) {
    let (node, boot) = lock.boot.split_once('-').expect("two numbers");
    (node.parse().expect("a node"), boot.parse().expect("a boot"))
}

/// What stays under the key of a request that settled.
pub(crate) fn end(task: &Task, settled: &Settled) -> Done {
    Done {
        request_id: RequestId(Uuid::from_u128(task.number)),
        digest: digest(task.body),
        answer: Answer {
            status: settled.status,
            stream: false,
            headers: Vec::new(),
            body: Body::Kept(settled.body.clone()),
        },
        envelope: task.number.to_be_bytes().to_vec(),
    }
}
