//! What is said to a service that sleeps and to whoever wakes it, over HTTP or by a command. Where an endpoint of run
//! time may be reached, its waker may be, and nowhere else; a credential goes to hosts of the endpoint's backends alone.

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, USER_AGENT};
use http::{HeaderName, HeaderValue, Method, Request};
use http_body_util::{BodyExt as _, Collected, Full, Limited};
use schemas::catalog::replica::meant_for;
use schemas::catalog::{Endpoint, Origin};
use schemas::wake::record::Outcome;
use schemas::wake::{Exec, Http, Said, VllmSleep, Wake, command_reference, origin, root, wait};
use serde::Deserialize;
use tokio::process::Command;
use tokio::time::{sleep, timeout};
use tracing::warn;

use crate::keypool::Declared;
use crate::plan::Candidate;
use crate::provider::{OUR_USER_AGENT, proof};
use crate::state::Shared;
use crate::upstream::Trust;

/// How often is looked whether a service is up.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How long one look may take.
const LOOK_WAIT: Duration = Duration::from_secs(2);
/// How long vLLM may take to say whether it sleeps while a call waits for that.
const SLEEPING_WAIT: Duration = Duration::from_secs(1);
/// How long it may take to be told to wake: it answers once it is up.
const WAKE_UP_WAIT: Duration = Duration::from_mins(1);
/// Most bytes of an answer that are read.
const ANSWER_BYTES_MAX: usize = 64 * 1_024;
/// The path that is looked at where nobody said which.
const HEALTH_PATH: &str = "/health";
/// Where commands look for others.
const COMMAND_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A question, small and without a credential unless it says so.
struct Question<'q> {
    method: Method,
    url: &'q str,
    headers: Vec<(HeaderName, HeaderValue)>,
    body: Bytes,
    /// The endpoint's credential, where `url` is on a host of its backends.
    credential: bool,
    wait: Duration,
}

impl<'q> Question<'q> {
    const fn get(url: &'q str, credential: bool, wait: Duration) -> Self {
        Self {
            method: Method::GET,
            url,
            headers: Vec::new(),
            body: Bytes::new(),
            credential,
            wait,
        }
    }
}

/// How long a call waits for an endpoint's service.
pub(crate) fn bound(endpoint: &Endpoint) -> Duration {
    wait(endpoint.health_check())
}

/// Tells a service to wake unless it is up, and waits until it is.
pub(super) async fn wake(shared: &Shared, candidate: &Candidate) -> Outcome {
    let Some(way) = candidate.endpoint.wake.as_deref() else {
        return Outcome::Offline;
    };
    if is_up(shared, candidate, way).await {
        return Outcome::Awake;
    }
    let said = match way {
        Wake::Http(http) => by_http(shared, candidate, http).await,
        Wake::VllmSleep(vllm) => by_itself(shared, candidate, vllm).await,
        Wake::Exec(exec) => by_command(shared, candidate, exec).await,
    };
    match said {
        Said::Begun => {}
        Said::Queued => return Outcome::Queued,
        Said::Offline => return Outcome::Offline,
    }
    while !is_up(shared, candidate, way).await {
        sleep(LOOK_EVERY).await;
    }
    Outcome::Awake
}

/// Whether the service of a candidate takes calls.
pub(super) async fn is_awake(shared: &Shared, candidate: &Candidate) -> bool {
    match candidate.endpoint.wake.as_deref() {
        Some(way) => is_up(shared, candidate, way).await,
        None => true,
    }
}

/// Whether a service takes calls: vLLM says so; of others the path of its health answers well, or, where nobody said
/// which that is, anything but a failure.
async fn is_up(shared: &Shared, candidate: &Candidate, way: &Wake) -> bool {
    if let Wake::VllmSleep(vllm) = way {
        return is_sleeping(shared, candidate, vllm).await == Some(false);
    }
    let check = candidate.endpoint.health_check();
    let path = check.map_or(HEALTH_PATH, |check| &check.path);
    let Some(base) = base_url(candidate) else {
        return false;
    };
    let url = format!("{}{path}", root(base));
    let answer = ask(shared, candidate, Question::get(&url, false, LOOK_WAIT)).await;
    answer.is_some_and(|(status, _)| match check {
        Some(_) => (200..300).contains(&status),
        None => status < 500,
    })
}

#[derive(Deserialize)]
struct Sleeping {
    is_sleeping: bool,
}

/// Whether vLLM sleeps; `None` where it does not say.
pub(super) async fn is_sleeping(shared: &Shared, candidate: &Candidate, vllm: &VllmSleep) -> Option<bool> {
    let url = format!("{}/is_sleeping", vllm_root(candidate, vllm)?);
    let question = Question::get(&url, vllm.credential, SLEEPING_WAIT);
    let (status, body) = ask(shared, candidate, question).await?;
    let told: Sleeping = serde_json::from_slice(&body).ok()?;
    (status == 200).then_some(told.is_sleeping)
}

fn base_url(candidate: &Candidate) -> Option<&str> {
    let backend = candidate.endpoint.backends.get(candidate.backend?)?;
    Some(&backend.base_url)
}

fn vllm_root<'c>(candidate: &'c Candidate, vllm: &'c VllmSleep) -> Option<&'c str> {
    match &vllm.url {
        Some(url) => Some(url.trim_end_matches('/')),
        None => base_url(candidate).map(root),
    }
}

async fn by_itself(shared: &Shared, candidate: &Candidate, vllm: &VllmSleep) -> Said {
    let Some(root) = vllm_root(candidate, vllm) else {
        return Said::Offline;
    };
    let url = format!("{root}/wake_up");
    let question = Question {
        method: Method::POST,
        ..Question::get(&url, vllm.credential, WAKE_UP_WAIT)
    };
    match ask(shared, candidate, question).await {
        Some((200..300, _)) => Said::Begun,
        _ => Said::Offline,
    }
}

async fn by_http(shared: &Shared, candidate: &Candidate, http: &Http) -> Said {
    let headers = http.headers.iter().filter_map(|(name, value)| {
        Some((
            HeaderName::try_from(name).ok()?,
            HeaderValue::try_from(value).ok()?,
        ))
    });
    let question = Question {
        method: Method::from_bytes(http.method.as_str().as_bytes()).unwrap_or(Method::POST),
        url: &http.url,
        headers: headers.collect(),
        body: http
            .body
            .as_ref()
            .map_or_else(Bytes::new, |body| Bytes::from(body.to_string())),
        credential: http.credential,
        wait: Duration::from_secs(u64::from(http.timeout_seconds)),
    };
    let answer = ask(shared, candidate, question).await;
    answer.map_or(Said::Offline, |(status, body)| http.said(status, &body))
}

/// Asks, and reads the answer; `None` where there is none.
async fn ask(shared: &Shared, candidate: &Candidate, question: Question<'_>) -> Option<(u16, Bytes)> {
    let within = question.wait;
    let request = request(shared, &candidate.endpoint, question)?;
    let asked = async {
        let trust = Trust::of(&candidate.endpoint);
        let answer = match shared.upstream.ask(request, trust).await {
            Ok(answer) => answer,
            Err(error) if error.is_forbidden() => {
                warn!(endpoint.id = %candidate.endpoint.id, "whoever wakes it has an address that it may not have");
                return None;
            }
            Err(_) => return None,
        };
        let status = answer.status().as_u16();
        let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX);
        let body = body
            .collect()
            .await
            .map_or_else(|_| Bytes::new(), Collected::to_bytes);
        Some((status, body))
    };
    timeout(within, asked).await.ok().flatten()
}

fn request(
    shared: &Shared,
    endpoint: &Arc<Endpoint>,
    question: Question<'_>,
) -> Option<Request<Full<Bytes>>> {
    let place = origin(question.url)?;
    let has_body = !question.body.is_empty();
    let mut request = Request::new(Full::new(question.body));
    *request.method_mut() = question.method;
    *request.uri_mut() = question.url.parse().ok()?;
    let headers = request.headers_mut();
    headers.insert(USER_AGENT, HeaderValue::from_static(OUR_USER_AGENT));
    headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
    if has_body {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    headers.extend(question.headers);
    let at_home = |base: &str| origin(base) == Some(place);
    if question.credential && endpoint.backends.iter().any(|backend| at_home(&backend.base_url)) {
        let Declared::Key(held) = shared.pools.first(endpoint, &shared.credentials) else {
            return None;
        };
        let (name, value) = proof(endpoint, &held.declaration.secret).ok()?;
        headers.insert(name, value);
    }
    Some(request)
}

/// Runs the command of an endpoint, which its operators' file names: no shell, nothing of this process's environment,
/// and what it prints goes nowhere.
async fn by_command(shared: &Shared, candidate: &Candidate, exec: &Exec) -> Said {
    let endpoint = &candidate.endpoint;
    let reference = meant_for(&command_reference(&endpoint.id), &endpoint.backends);
    let held = shared.credentials.get(&reference);
    let words: Option<Vec<String>> = held
        .filter(|_| endpoint.origin == Origin::File)
        .and_then(|text| serde_json::from_str(text.reveal()).ok());
    let Some((program, arguments)) = words.as_deref().and_then(<[String]>::split_first) else {
        warn!(endpoint.id = %endpoint.id, "this router has no command that wakes the endpoint");
        return Said::Offline;
    };
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env_clear()
        .env("PATH", COMMAND_PATH)
        .env("WAKE_ENDPOINT", endpoint.id.as_str())
        .env("WAKE_BACKEND", candidate.backend_id().as_str())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    let within = Duration::from_secs(u64::from(exec.timeout_seconds));
    match timeout(within, command.status()).await {
        Ok(Ok(status)) => Exec::said(status.code()),
        Ok(Err(problem)) => {
            warn!(
                endpoint.id = %endpoint.id,
                error = &problem as &dyn std::error::Error,
                "the command that wakes an endpoint cannot be run"
            );
            Said::Offline
        }
        Err(_) => Said::Offline,
    }
}
