//! Before anything is used: is the server new enough, does it keep streams, and is everything there that a cluster
//! keeps, as it should be? What is missing is made; what differs is named with both values and refused.

use std::error::Error as _;
use std::path::PathBuf;
use std::time::Duration;

use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::stream::{Config, DiscardPolicy, Info, RetentionPolicy, StorageType};
use async_nats::{ConnectError, ConnectErrorKind, ServerAddr};
use bytes::Bytes;
use schemas::subject::CATALOG_BUCKET;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::Options;
use super::api::Api;
use super::failure;
use super::link::{self, Link};
use crate::BusError;
use crate::layout::{Difference, Discard, Storage, Stream, bucket_stream};

/// The oldest server that has all that is used: counters, per-message limits, reliable failovers.
const VERSION_MIN: (u64, u64) = (2, 14);
/// What servers say that have not found each other yet.
const STILL_FORMING: [ErrorCode; 3] = [
    ErrorCode::CLUSTER_NO_PEERS,
    ErrorCode::CLUSTER_NOT_AVAILABLE,
    ErrorCode::CLUSTER_NOT_LEADER,
];
/// How often it is looked again for what somebody else has to make.
const LOOK_AGAIN: Duration = Duration::from_millis(250);
const LOOK_AGAIN_MAX: Duration = Duration::from_secs(5);

/// The bus cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// No address, or one that cannot be read.
    #[error("{url:?} is no address of a NATS server; write nats://host:4222")]
    Address {
        /// What was given, without a password.
        url: String,
    },
    /// The file with the credentials cannot be read.
    #[error("the NATS credentials in {} cannot be read", path.display())]
    Credentials {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Nobody answers there.
    #[error("no NATS server answers at {urls}; start one, or correct the address")]
    Unreachable {
        /// Where it was tried, without passwords.
        urls: String,
        /// The last failure.
        source: ConnectError,
    },
    /// The server does not know this user.
    #[error("the NATS server at {urls} refuses this node's credentials")]
    Unauthorized {
        /// Where it was tried, without passwords.
        urls: String,
        /// What it says.
        source: ConnectError,
    },
    /// Certificates do not fit.
    #[error("no secure connection to the NATS server at {urls}; check the certificates")]
    Tls {
        /// Where it was tried, without passwords.
        urls: String,
        /// What failed.
        source: ConnectError,
    },
    /// The server is too old.
    #[error("the NATS server is version {found}, but 2.14 or newer is needed; upgrade the server")]
    TooOld {
        /// Its version, as it says.
        found: String,
    },
    /// The server keeps no streams, for nobody or not for this account.
    #[error(
        "the NATS server has no JetStream for this node's account; enable it in the server's configuration"
    )]
    NoJetStream,
    /// A stream is there, but not as it should be.
    #[error(
        "stream {stream} differs from what is needed: {}; change it, or remove it and start again",
        told(differences)
    )]
    Differs {
        /// Its name.
        stream: String,
        /// Every field that differs.
        differences: Vec<Difference>,
    },
    /// A stream is missing, and this node's user may not make it.
    #[error(
        "stream {stream} is missing and this node may not create it; start a node whose user may, or use such a user once"
    )]
    MayNotCreate {
        /// Its name.
        stream: String,
        /// What the server said.
        source: BusError,
    },
    /// This node's user may not even look at a stream.
    #[error(
        "this node may not look at stream {stream}; allow its user to publish $JS.API.STREAM.INFO.{stream}"
    )]
    MayNotRead {
        /// The stream's name.
        stream: String,
        /// What the server said.
        source: BusError,
    },
    /// This node's user may not listen for answers.
    #[error(
        "this node may not listen for answers below {prefix}; allow its user to subscribe to {prefix}.>, or write another \
         bus.inbox_prefix"
    )]
    MayNotListen {
        /// Where answers would come.
        prefix: String,
        /// What the server said.
        source: BusError,
    },
    /// The server does not make a stream.
    #[error("the NATS server does not create stream {stream}: {said}")]
    NotCreated {
        /// Its name.
        stream: String,
        /// What the server says.
        said: String,
    },
    /// The server does not answer (any more), or has no leader.
    #[error("the NATS server does not answer about stream {stream}")]
    Away {
        /// What was asked about.
        stream: String,
        /// What happened.
        source: BusError,
    },
}

impl SetupError {
    pub(super) fn from_connect(options: &Options, source: ConnectError) -> Self {
        let urls = options.urls.iter().map(|url| redacted(url)).collect::<Vec<_>>();
        let urls = urls.join(", ");
        match source.kind() {
            ConnectErrorKind::Authentication | ConnectErrorKind::AuthorizationViolation => {
                Self::Unauthorized { urls, source }
            }
            ConnectErrorKind::Tls => Self::Tls { urls, source },
            _ if is_handshake(&source) => Self::Tls { urls, source },
            _ => Self::Unreachable { urls, source },
        }
    }

    /// True when time alone may mend it: the servers are not there (yet). Everything else needs an operator.
    pub fn may_pass(&self) -> bool {
        matches!(
            self,
            Self::Unreachable { .. } | Self::Away { .. } | Self::MayNotCreate { .. }
        )
    }
}

/// True when both sides were there and did not agree on a secure connection. What is read is not what it should be then;
/// a connection that only breaks is another kind of failure.
fn is_handshake(source: &ConnectError) -> bool {
    let cause = source
        .source()
        .and_then(|cause| cause.downcast_ref::<std::io::Error>());
    cause.is_some_and(|cause| cause.kind() == std::io::ErrorKind::InvalidData)
}

fn told(differences: &[Difference]) -> String {
    let all: Vec<_> = differences.iter().map(ToString::to_string).collect();
    all.join(", ")
}

/// An address without its password.
fn redacted(url: &str) -> String {
    match (url.find("://"), url.rfind('@')) {
        (Some(scheme), Some(at)) if at > scheme => format!("{}://{}", &url[..scheme], &url[at + 1..]),
        (None, Some(at)) => url[at + 1..].to_owned(),
        _ => url.to_owned(),
    }
}

pub(super) fn addresses(urls: &[String]) -> Result<Vec<ServerAddr>, SetupError> {
    if urls.is_empty() {
        return Err(SetupError::Address { url: String::new() });
    }
    let parsed = urls.iter().map(|url| {
        url.parse()
            .map_err(|_| SetupError::Address { url: redacted(url) })
    });
    parsed.collect()
}

/// The user and the password in the first address that has them.
pub(super) fn user(addresses: &[ServerAddr]) -> Option<(String, String)> {
    let named = addresses.iter().find(|address| address.has_user_pass())?;
    let password = named.password().unwrap_or_default();
    Some((unescaped(named.username()?), unescaped(password)))
}

/// Text in which `%` and two hexadecimal digits stand for a byte.
fn unescaped(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let escaped = after.split_at_checked(2).and_then(|(digits, after)| {
            let digits = std::str::from_utf8(digits).ok()?;
            Some((u8::from_str_radix(digits, 16).ok()?, after))
        });
        match escaped {
            Some((byte, after)) if first == b'%' => {
                bytes.push(byte);
                rest = after;
            }
            _ => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Refuses a server that is too old, or that keeps no streams.
pub(super) fn check_server(link: &Link) -> Result<(), SetupError> {
    let server = link.client.server_info();
    if !is_new_enough(&server.version) {
        return Err(SetupError::TooOld {
            found: server.version,
        });
    }
    if server.jetstream {
        Ok(())
    } else {
        Err(SetupError::NoJetStream)
    }
}

fn is_new_enough(version: &str) -> bool {
    let mut numbers = version
        .trim_start_matches('v')
        .split(['.', '-'])
        .map(str::parse::<u64>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) >= VERSION_MIN,
        _ => false,
    }
}

/// Makes what is missing and compares what is there. Waits until `until` for what somebody else must make.
pub(super) async fn ensure(api: &Api, options: &Options, until: Instant) -> Result<(), SetupError> {
    for stream in &options.layout {
        loop {
            match ensure_stream(api, stream, options.replicas).await {
                Ok(()) => break,
                Err(problem) if problem.may_pass() && Instant::now() + LOOK_AGAIN < until => {
                    info!(
                        stream = stream.name,
                        error = &problem as &dyn std::error::Error,
                        "looking for the stream again"
                    );
                    sleep(LOOK_AGAIN).await;
                }
                Err(problem) => return Err(problem),
            }
        }
    }
    Ok(())
}

/// Makes streams again that are missing after a loss of the connection, until `shutdown`: a server that stands alone
/// forgets those in memory when it restarts, and all of them when its disk is another one. Spools and books make good
/// what was in them. The catalogue is left to starts: what was in it has to be written again, and an empty one knows
/// nobody, while the last known one goes on to serve.
pub(super) async fn keep(
    api: Api,
    options: Options,
    mut losses: watch::Receiver<u64>,
    shutdown: CancellationToken,
) {
    let kept = shutdown.run_until_cancelled(async {
        let mut connected = api.link.connected();
        let mut pause = LOOK_AGAIN;
        loop {
            if losses.changed().await.is_err() {
                return;
            }
            loop {
                losses.mark_unchanged();
                if connected.wait_for(|connected| *connected).await.is_err() {
                    return;
                }
                match ensure_again(&api, &options).await {
                    Ok(()) => break,
                    Err(_) if api.link.check().is_err() => {}
                    Err(problem) => warn!(
                        error = &problem as &dyn std::error::Error,
                        "what the servers have lost cannot be made again yet"
                    ),
                }
                sleep(pause).await;
                pause = (pause * 2).min(LOOK_AGAIN_MAX);
            }
            pause = LOOK_AGAIN;
        }
    });
    kept.await.unwrap_or_default();
}

async fn ensure_again(api: &Api, options: &Options) -> Result<(), SetupError> {
    let catalog = bucket_stream(CATALOG_BUCKET);
    for stream in options.layout.iter().filter(|stream| stream.name != catalog) {
        match ensure_stream(api, stream, options.replicas).await {
            // What is on disk others make, whose users may.
            Err(SetupError::MayNotCreate { .. }) if stream.storage == Storage::File => {}
            made => made?,
        }
    }
    Ok(())
}

async fn ensure_stream(api: &Api, stream: &Stream, replicas: usize) -> Result<(), SetupError> {
    if let Some(found) = find(api, &stream.name).await? {
        return compare(stream, &found, replicas);
    }
    if create(api, stream, replicas).await? {
        return Ok(());
    }
    // Somebody else was quicker.
    match find(api, &stream.name).await? {
        Some(found) => compare(stream, &found, replicas),
        None => Err(SetupError::NotCreated {
            stream: stream.name.clone(),
            said: "its name is taken".to_owned(),
        }),
    }
}

async fn find(api: &Api, name: &str) -> Result<Option<Config>, SetupError> {
    let stream = name.to_owned();
    match api.request(&format!("STREAM.INFO.{name}"), Bytes::new()).await {
        Ok(Ok::<Info, _>(info)) => Ok(Some(info.config)),
        Ok(Err(said)) => match said.error_code() {
            ErrorCode::STREAM_NOT_FOUND => Ok(None),
            ErrorCode::JETSTREAM_NOT_ENABLED | ErrorCode::JETSTREAM_NOT_ENABLED_FOR_ACCOUNT => {
                Err(SetupError::NoJetStream)
            }
            _ => Err(SetupError::Away {
                stream,
                source: failure::away(said),
            }),
        },
        Err(BusError::NoResponder { .. }) => Err(SetupError::NoJetStream),
        Err(BusError::Refused { reason }) if link::is_deaf(&reason, &api.link.inbox) => {
            Err(SetupError::MayNotListen {
                prefix: api.link.inbox.to_string(),
                source: BusError::Refused { reason },
            })
        }
        Err(source @ BusError::Refused { .. }) => Err(SetupError::MayNotRead { stream, source }),
        Err(source) => Err(SetupError::Away { stream, source }),
    }
}

/// Makes a stream; `false` when its name is taken by now.
async fn create(api: &Api, expected: &Stream, replicas: usize) -> Result<bool, SetupError> {
    let stream = expected.name.clone();
    let operation = format!("STREAM.CREATE.{stream}");
    let wanted = serde_json::to_vec(&config(expected, replicas)).map_err(|problem| SetupError::Away {
        stream: stream.clone(),
        source: failure::away(problem),
    })?;
    match api.request(&operation, wanted.into()).await {
        Ok(Ok::<Info, _>(_)) => {
            info!(stream, replicas, "made a stream");
            Ok(true)
        }
        Ok(Err(said)) if said.error_code() == ErrorCode::STREAM_NAME_EXIST => Ok(false),
        Ok(Err(said)) if STILL_FORMING.contains(&said.error_code()) => Err(SetupError::Away {
            stream,
            source: failure::away(said),
        }),
        Ok(Err(said)) => Err(SetupError::NotCreated {
            stream,
            said: said.to_string(),
        }),
        Err(source @ BusError::Refused { .. }) => Err(SetupError::MayNotCreate { stream, source }),
        Err(source) => Err(SetupError::Away { stream, source }),
    }
}

fn compare(expected: &Stream, found: &Config, replicas: usize) -> Result<(), SetupError> {
    let (allowed, refused): (Vec<_>, Vec<_>) = expected
        .differences(&read(found))
        .into_iter()
        .partition(|difference| difference.allowed);
    for difference in allowed {
        warn!(stream = expected.name, %difference, "a stream was changed by its operator");
    }
    if found.num_replicas != replicas {
        warn!(
            stream = expected.name,
            found = found.num_replicas,
            expected = replicas,
            "a stream has another number of replicas"
        );
    }
    if refused.is_empty() {
        return Ok(());
    }
    Err(SetupError::Differs {
        stream: expected.name.clone(),
        differences: refused,
    })
}

fn config(stream: &Stream, replicas: usize) -> Config {
    Config {
        name: stream.name.clone(),
        subjects: stream.subjects.clone(),
        storage: match stream.storage {
            Storage::File => StorageType::File,
            Storage::Memory => StorageType::Memory,
        },
        max_age: stream.age_max.unwrap_or_default(),
        max_bytes: i64::try_from(stream.bytes_max).unwrap_or(i64::MAX),
        max_messages: -1,
        max_messages_per_subject: stream.subject_messages_max.map_or(-1, i64::from),
        max_consumers: -1,
        max_message_size: -1,
        retention: RetentionPolicy::Limits,
        discard: match stream.discard {
            Discard::New => DiscardPolicy::New,
            Discard::Old => DiscardPolicy::Old,
        },
        duplicate_window: stream.duplicate_window,
        num_replicas: replicas,
        allow_message_counter: stream.counter,
        allow_direct: stream.direct,
        allow_rollup: stream.rollup,
        allow_message_ttl: stream.ttl,
        deny_delete: stream.deletes_denied,
        ..Config::default()
    }
}

/// A server's configuration in our terms.
fn read(found: &Config) -> Stream {
    Stream {
        name: found.name.clone(),
        subjects: found.subjects.clone(),
        storage: match found.storage {
            StorageType::File => Storage::File,
            StorageType::Memory => Storage::Memory,
        },
        age_max: Some(found.max_age).filter(|age| !age.is_zero()),
        // No limit reads as the largest one.
        bytes_max: u64::try_from(found.max_bytes).unwrap_or(u64::MAX),
        subject_messages_max: u32::try_from(found.max_messages_per_subject)
            .ok()
            .filter(|messages| *messages > 0),
        discard: match found.discard {
            DiscardPolicy::New => Discard::New,
            DiscardPolicy::Old => Discard::Old,
        },
        duplicate_window: found.duplicate_window,
        counter: found.allow_message_counter,
        direct: found.allow_direct,
        rollup: found.allow_rollup,
        ttl: found.allow_message_ttl,
        deletes_denied: found.deny_delete,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{Sizes, cluster};

    #[test]
    fn a_version_is_compared_by_its_numbers() {
        for new in ["2.14.0", "v2.15.1", "2.14.0-RC.1", "2.100.3", "3.0.0"] {
            assert!(is_new_enough(new), "{new}");
        }
        for old in ["2.9.10", "2.13.9", "1.99.0", "", "2", "latest"] {
            assert!(!is_new_enough(old), "{old}");
        }
    }

    #[test]
    fn a_password_never_gets_into_a_message() {
        assert_eq!(redacted("nats://user:secret@host:4222"), "nats://host:4222");
        assert_eq!(redacted("user:secret@host"), "host");
        assert_eq!(redacted("nats://host:4222"), "nats://host:4222");
    }

    #[test]
    fn the_user_of_an_address_is_unescaped() {
        let addresses = addresses(&["nats://host".to_owned(), "nats://a:p%40ss%2F%@host:1".to_owned()]);
        let user = user(&addresses.expect("addresses"));
        assert_eq!(user, Some(("a".to_owned(), "p@ss/%".to_owned())));
    }

    #[test]
    fn what_is_made_is_what_was_asked_for() {
        for stream in cluster(&Sizes::default()) {
            assert_eq!(stream.differences(&read(&config(&stream, 3))), []);
        }
    }
}
