//! What a cluster keeps, as data: every stream and bucket with its subjects, limits and features. Nothing here talks
//! to a server: an adapter makes what is missing and compares what it finds with what stands here.
//!
//! A bucket is a stream in key-value form. The catalogue's history is unlimited, because audit and price history are
//! read from it; its beats alone replace the one before.

use std::fmt;
use std::time::Duration;

use schemas::subject;

/// Where a stream's messages are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Storage {
    /// On disk.
    File,
    /// In memory: gone when every replica has restarted.
    Memory,
}

/// What a full stream does with a new message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Discard {
    /// Refuse it.
    New,
    /// Drop the oldest for it.
    Old,
}

/// What a stream is to be.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch that servers have")]
pub struct Stream {
    /// Its name.
    pub name: String,
    /// What it takes; `>` stands for the rest of a subject.
    pub subjects: Vec<String>,
    /// Where its messages are.
    pub storage: Storage,
    /// When a message goes; `None` keeps it.
    pub age_max: Option<Duration>,
    /// Most bytes, messages' subjects and headers included.
    pub bytes_max: u64,
    /// Most messages of one subject; `None` for no limit.
    pub subject_messages_max: Option<u32>,
    /// What happens when it is full.
    pub discard: Discard,
    /// How long an id is remembered.
    pub duplicate_window: Duration,
    /// Its messages are additions to counters.
    pub counter: bool,
    /// Any replica may answer reads.
    pub direct: bool,
    /// A message may replace all earlier ones of its subject.
    pub rollup: bool,
    /// A message may say when it goes.
    pub ttl: bool,
    /// Nobody deletes single messages.
    pub deletes_denied: bool,
}

/// How large things may grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// Most bytes of all events.
    pub events_bytes_max: u64,
    /// How long an event stays.
    pub events_age_max: Duration,
    /// Most bytes of the catalogue and its history.
    pub catalog_bytes_max: u64,
    /// Most bytes of the responses that callers let us keep; beyond, the oldest go.
    pub responses_bytes_max: u64,
    /// Most bytes of what lies under idempotency keys; a full bucket keeps no further answers.
    pub idempotency_bytes_max: u64,
    /// Most bytes of all quotas: about 500 for each limit, period and node.
    pub quotas_bytes_max: u64,
    /// Most bytes of each other bucket on disk.
    pub bucket_bytes_max: u64,
    /// Most bytes of each bucket and counter stream in memory, and of the counters on disk.
    pub memory_bytes_max: u64,
}

impl Default for Sizes {
    fn default() -> Self {
        Self {
            events_bytes_max: 4 << 30,
            events_age_max: Duration::from_hours(7 * 24),
            catalog_bytes_max: 1 << 30,
            responses_bytes_max: 1 << 30,
            idempotency_bytes_max: 256 << 20,
            quotas_bytes_max: 256 << 20,
            bucket_bytes_max: 64 << 20,
            memory_bytes_max: 32 << 20,
        }
    }
}

/// How long ids are remembered: a hint that saves work, never a guarantee.
const DUPLICATE_WINDOW: Duration = Duration::from_mins(2);
/// How long counters live without additions.
const RATE_SECOND_AGE: Duration = Duration::from_secs(30);
const RATE_MINUTE_AGE: Duration = Duration::from_secs(150);

/// How long a response is kept that a caller may go on from.
pub const RESPONSE_AGE_MAX: Duration = Duration::from_hours(30 * 24);

/// How long a session stays where it is after its record was written.
pub const SESSION_AGE_MAX: Duration = Duration::from_mins(30);

/// Prefix of the streams that are buckets, and of their subjects.
const BUCKET_STREAM: &str = "KV_";
const BUCKET_SUBJECT: &str = "$KV.";

/// Name of the stream that holds a bucket.
pub fn bucket_stream(bucket: &str) -> String {
    format!("{BUCKET_STREAM}{bucket}")
}

/// Prefix of the subjects of a bucket's keys.
pub fn bucket_subject(bucket: &str) -> String {
    format!("{BUCKET_SUBJECT}{bucket}.")
}

/// True for keys whose value replaces all earlier ones in a bucket that otherwise keeps its history.
pub fn is_rolled_up(bucket: &str, key: &str) -> bool {
    bucket == subject::CATALOG_BUCKET && key.starts_with(subject::catalog::BEAT)
}

/// Every stream and bucket of a cluster, in the order in which they are made.
pub fn cluster(sizes: &Sizes) -> Vec<Stream> {
    let Sizes {
        bucket_bytes_max: disk,
        memory_bytes_max: memory,
        ..
    } = *sizes;
    let catalog = Stream {
        subject_messages_max: None,
        ..bucket(subject::CATALOG_BUCKET, Storage::File, sizes.catalog_bytes_max)
    };
    vec![
        events(sizes),
        catalog,
        bucket(subject::CIRCUIT_BUCKET, Storage::File, disk),
        bucket(subject::MARK_BUCKET, Storage::File, disk),
        bucket(subject::CONFIG_BUCKET, Storage::File, disk),
        responses(sizes.responses_bytes_max),
        idempotency(sizes.idempotency_bytes_max),
        living(bucket(subject::ACCOUNT_BUCKET, Storage::File, disk)),
        living(bucket(subject::ATTEMPT_BUCKET, Storage::File, disk)),
        living(bucket(subject::WAKE_BUCKET, Storage::File, disk)),
        bucket(subject::NODE_BUCKET, Storage::Memory, memory),
        bucket(subject::SLOT_BUCKET, Storage::File, disk),
        quotas(sizes.quotas_bytes_max),
        sessions(memory),
        bucket(subject::ENGINE_BUCKET, Storage::Memory, memory),
        living(bucket(subject::HEALTH_BUCKET, Storage::Memory, memory)),
        counters(
            subject::RATE_SECOND_STREAM,
            subject::RATE_SECOND,
            Storage::Memory,
            RATE_SECOND_AGE,
            memory,
        ),
        counters(
            subject::RATE_MINUTE_STREAM,
            subject::RATE_MINUTE,
            Storage::File,
            RATE_MINUTE_AGE,
            memory,
        ),
    ]
}

/// Leaves what a router uses that stands apart, in a pool of its own: it tells of itself, and publishes its own events.
pub fn keep_those_of_a_pool(layout: &mut Vec<Stream>) {
    let buckets = [subject::MARK_BUCKET, subject::NODE_BUCKET].map(bucket_stream);
    layout.retain(|stream| stream.name == subject::EVENTS_STREAM || buckets.contains(&stream.name));
}

/// The bucket of responses: a full one lets go of the oldest, so that nobody's answer waits for room.
fn responses(bytes_max: u64) -> Stream {
    Stream {
        age_max: Some(RESPONSE_AGE_MAX),
        discard: Discard::Old,
        ..bucket(subject::RESPONSE_BUCKET, Storage::File, bytes_max)
    }
}

/// The bucket of the backends that sessions stay on: what is not written again within the life of a session goes, and
/// when it is full the oldest goes.
fn sessions(bytes_max: u64) -> Stream {
    Stream {
        age_max: Some(SESSION_AGE_MAX),
        discard: Discard::Old,
        ttl: true,
        ..bucket(subject::AFFINITY_BUCKET, Storage::Memory, bytes_max)
    }
}

/// The bucket of idempotency keys, each of whose values has its lifetime.
fn idempotency(bytes_max: u64) -> Stream {
    Stream {
        ttl: true,
        ..bucket(subject::IDEMPOTENCY_BUCKET, Storage::File, bytes_max)
    }
}

/// The bucket of quotas: a record of a day or a month goes some time after its period.
fn quotas(bytes_max: u64) -> Stream {
    Stream {
        ttl: true,
        ..bucket(subject::QUOTA_BUCKET, Storage::File, bytes_max)
    }
}

/// A bucket whose values may have lifetimes.
fn living(bucket: Stream) -> Stream {
    Stream { ttl: true, ..bucket }
}

/// A bucket that keeps the newest value of each key.
pub fn bucket(name: &str, storage: Storage, bytes_max: u64) -> Stream {
    Stream {
        name: bucket_stream(name),
        subjects: vec![format!("{}>", bucket_subject(name))],
        storage,
        age_max: None,
        bytes_max,
        subject_messages_max: Some(1),
        discard: Discard::New,
        duplicate_window: DUPLICATE_WINDOW,
        counter: false,
        direct: true,
        rollup: true,
        ttl: false,
        deletes_denied: true,
    }
}

fn events(sizes: &Sizes) -> Stream {
    Stream {
        name: subject::EVENTS_STREAM.to_owned(),
        subjects: vec![subject::EVENTS.to_owned()],
        storage: Storage::File,
        age_max: Some(sizes.events_age_max),
        bytes_max: sizes.events_bytes_max,
        subject_messages_max: None,
        discard: Discard::New,
        duplicate_window: DUPLICATE_WINDOW,
        counter: false,
        direct: false,
        rollup: false,
        ttl: false,
        deletes_denied: true,
    }
}

/// Counters: the newest total of each; they cannot refuse when full, so the oldest go.
fn counters(name: &str, prefix: &str, storage: Storage, age_max: Duration, bytes_max: u64) -> Stream {
    Stream {
        name: name.to_owned(),
        subjects: vec![format!("{prefix}>")],
        storage,
        age_max: Some(age_max),
        bytes_max,
        subject_messages_max: Some(1),
        discard: Discard::Old,
        duplicate_window: DUPLICATE_WINDOW.min(age_max),
        counter: true,
        direct: true,
        rollup: false,
        ttl: false,
        deletes_denied: false,
    }
}

/// A field in which a stream is not what it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The field's name, as servers call it.
    pub field: &'static str,
    /// What the stream has.
    pub found: String,
    /// What it should have.
    pub expected: String,
    /// An operator's choice: it is told, and accepted.
    pub allowed: bool,
}

impl fmt::Display for Difference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            field,
            found,
            expected,
            ..
        } = self;
        write!(formatter, "{field} is {found} and should be {expected}")
    }
}

impl Stream {
    /// Where `found` is not what `self` says.
    pub fn differences(&self, found: &Stream) -> Vec<Difference> {
        let mut all = Vec::new();
        let mut compare = |field, found: &dyn fmt::Debug, expected: &dyn fmt::Debug, allowed| {
            let (found, expected) = (format!("{found:?}"), format!("{expected:?}"));
            if found != expected {
                all.push(Difference {
                    field,
                    found,
                    expected,
                    allowed,
                });
            }
        };
        let larger = found.bytes_max > self.bytes_max;
        compare("subjects", &found.subjects, &self.subjects, false);
        compare("storage", &found.storage, &self.storage, false);
        compare("max_age", &found.age_max, &self.age_max, true);
        compare("max_bytes", &found.bytes_max, &self.bytes_max, larger);
        compare(
            "max_msgs_per_subject",
            &found.subject_messages_max,
            &self.subject_messages_max,
            false,
        );
        compare("discard", &found.discard, &self.discard, false);
        compare(
            "duplicate_window",
            &found.duplicate_window,
            &self.duplicate_window,
            true,
        );
        compare("allow_msg_counter", &found.counter, &self.counter, false);
        compare("allow_direct", &found.direct, &self.direct, true);
        compare("allow_rollup_hdrs", &found.rollup, &self.rollup, false);
        compare("allow_msg_ttl", &found.ttl, &self.ttl, false);
        compare("deny_delete", &found.deletes_denied, &self.deletes_denied, true);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events() -> Stream {
        cluster(&Sizes::default()).remove(0)
    }

    #[test]
    fn streams_and_buckets_have_limits_and_do_not_overlap() {
        let all = cluster(&Sizes::default());
        for stream in &all {
            assert!(stream.bytes_max > 0, "{}", stream.name);
            assert!(
                stream.age_max.is_none_or(|age| age >= stream.duplicate_window),
                "{}",
                stream.name
            );
            assert!(!(stream.counter && stream.discard == Discard::New));
        }
        let mut prefixes: Vec<_> = all.iter().flat_map(|stream| &stream.subjects).collect();
        prefixes.sort();
        for (one, next) in prefixes.iter().zip(&prefixes[1..]) {
            assert!(!next.starts_with(one.trim_end_matches('>')), "{one} {next}");
        }
    }

    #[test]
    fn only_the_catalogue_keeps_its_history_and_only_its_beats_are_rolled_up() {
        let unlimited: Vec<_> = cluster(&Sizes::default())
            .into_iter()
            .filter(|stream| stream.name.starts_with("KV_") && stream.subject_messages_max.is_none())
            .map(|stream| stream.name)
            .collect();
        assert_eq!(unlimited, ["KV_wb_catalog"]);
        assert!(is_rolled_up("wb_catalog", "beat.0123"));
        assert!(!is_rolled_up("wb_catalog", "key.0123"));
        assert!(!is_rolled_up("wb_node", "beat.0123"));
    }

    #[test]
    fn what_operators_may_choose_is_told_and_allowed() {
        let mut found = events();
        found.age_max = None;
        found.bytes_max *= 2;
        let differences = events().differences(&found);
        assert!(differences.iter().all(|difference| difference.allowed));
        let fields: Vec<_> = differences.iter().map(|difference| difference.field).collect();
        assert_eq!(fields, ["max_age", "max_bytes"]);
    }

    #[test]
    fn what_breaks_a_promise_is_named_with_both_values() {
        let mut found = events();
        found.discard = Discard::Old;
        found.bytes_max -= 1;
        let told: Vec<_> = events()
            .differences(&found)
            .into_iter()
            .filter(|difference| !difference.allowed)
            .map(|difference| difference.to_string())
            .collect();
        assert_eq!(
            told,
            [
                "max_bytes is 4294967295 and should be 4294967296",
                "discard is Old and should be New"
            ]
        );
    }
}
