//! Scenes under limits: keys that have some, and what a call may use at most.

use std::time::Duration;

use chrono::{DateTime, Utc};
use harness::{
    Answer, Behaviour, CALLER_KEY, CallState, NodeBuilder, OPERATOR_KEY, Plan, Scene, Upstream, chat,
    settings,
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

/// What an answer of the upstream costs a caller: 3 tokens of prompt at 2 dollars a million, two of answer at 8.
pub(super) const ANSWER_NANO_USD: i64 = 3 * 2_000 + 2 * 8_000;
/// Tokens of the same.
pub(super) const ANSWER_TOKENS: u64 = 5;
/// The most tokens of an answer that [`ask`] asks for.
pub(super) const ANSWER_TOKENS_MAX: u64 = 40;

/// How soon the books have what was answered, though its nodes or the bus just came back.
const BOOKED_MAX: Duration = Duration::from_secs(30);

/// A cluster whose bus can be taken away.
pub(super) const PROXIED: Plan = Plan {
    routers_apart: false,
    guarded: false,
    proxied: true,
    three_servers: false,
    more_gateways: 0,
    health_workers: 0,
    linked: false,
};

/// The keys of the harness, that of the caller with limits.
pub(super) fn keys(limits: &Value) -> Value {
    let mut keys = settings()["keys"].clone();
    keys[2]["limits"] = limits.clone();
    keys
}

/// A node whose caller's key has limits.
pub(super) fn limited(node: NodeBuilder, limits: &Value) -> NodeBuilder {
    node.setting("keys", keys(limits))
}

/// A scene whose caller's key has limits, and whose upstream says two words. Calls go to one node: it may hold for a
/// moment what others then do not have, so that only there a limit is reached by exactly one call too many.
pub(super) async fn scene(limits: Value) -> Scene {
    scene_of(|node| limited(node, &limits)).await
}

/// The same early in a minute of its nodes' clocks.
pub(super) async fn early_scene(limits: Value) -> Scene {
    let clock = Clock::on_the_minute();
    let scene = scene_of(|node| clock.of(limited(node, &limits))).await;
    clock.early_in_the_minute(20).await;
    scene
}

async fn scene_of(change: impl FnOnce(NodeBuilder) -> NodeBuilder) -> Scene {
    let mut scene = Scene::start_with(change).await;
    scene.pin();
    scene.o1.default(Behaviour::chat("hello there"));
    scene
}

/// A call that names its maximum.
pub(super) fn ask() -> Value {
    let mut body = chat("m");
    body["max_tokens"] = ANSWER_TOKENS_MAX.into();
    body
}

/// The tokens that the gateway takes the prompt of [`ask`] for, learned from an answer without usage.
pub(super) async fn prompt_tokens(scene: &Scene) -> u64 {
    assert_eq!(scene.o1.calls(), 0, "asked first");
    scene.o1.script([Behaviour::chat("x").no_usage()]);
    let answer = scene.client.post_chat(&ask()).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let row = scene.row(answer.request_id()).await;
    assert_eq!(row["usage_source"], "estimated");
    row["input_tokens"].as_u64().expect("a count")
}

/// What a call like [`ask`] reserves, in nano-dollars: its prompt in the dearest class, its whole answer.
pub(super) fn reserved_nano_usd(prompt_tokens: u64) -> i64 {
    let wide = |tokens: u64| i64::try_from(tokens).expect("a small number");
    wide(prompt_tokens) * 2_500 + wide(ANSWER_TOKENS_MAX) * 8_000
}

/// Nano-dollars as text.
pub(super) fn usd(nano: i64) -> String {
    format!("{}.{:09}", nano / 1_000_000_000, nano % 1_000_000_000)
}

/// The time by the clock that nodes on this machine go by.
#[expect(
    clippy::disallowed_methods,
    reason = "a test beside the node, not a part of it"
)]
pub(super) fn now() -> DateTime<Utc> {
    Utc::now()
}

/// A clock of nodes that has just begun a minute: what is limited by the minute need not wait for the next one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clock {
    ahead: Duration,
}

impl Clock {
    /// A clock that begins a minute within this second.
    pub(super) fn on_the_minute() -> Self {
        let second = u64::try_from(now().timestamp().rem_euclid(60)).expect("it is positive");
        Self {
            ahead: Duration::from_secs(60 - second),
        }
    }

    /// A node that goes by it.
    pub(super) fn of(self, node: NodeBuilder) -> NodeBuilder {
        node.ahead(self.ahead)
    }

    /// Its running minute, since 1970.
    pub(super) fn minute(self) -> i64 {
        (now() + self.ahead).timestamp().div_euclid(60)
    }

    /// Waits until so much of its running minute is left.
    pub(super) async fn early_in_the_minute(self, seconds_left: u64) {
        let into = u64::try_from((now() + self.ahead).timestamp_millis() % 60_000).expect("after 1970");
        let left = Duration::from_mins(1).saturating_sub(Duration::from_millis(into));
        if left < Duration::from_secs(seconds_left) {
            sleep(left + Duration::from_millis(50)).await;
        }
    }
}

/// Panics unless the call was refused for this limit; gives the error.
pub(super) fn refused(answer: &Answer, code: &str) -> Value {
    let told = (answer.status, answer.error_code());
    assert_eq!(told, (429, code.to_owned()), "{}", answer.text());
    let retry: u64 = answer.header("retry-after").parse().expect("seconds");
    assert!(retry >= 1, "{retry}");
    let error = answer.json()["error"].clone();
    assert_eq!(error["type"], "rate_limit_error");
    assert_eq!(error["request_id"], answer.request_id());
    error
}

/// What `/anthropic/user/balance` says to the caller.
pub(super) async fn balance(scene: &Scene) -> Value {
    let caller = scene.client.with_key(CALLER_KEY);
    let told = caller.get("/anthropic/user/balance").await;
    assert_eq!(told.status, 200, "{}", told.text());
    told.json()
}

/// How a limit stands, in the members of a 429.
pub(super) fn standing(
    limit: impl Into<Value>,
    current: impl Into<Value>,
    remaining: impl Into<Value>,
) -> Value {
    json!({"limit": limit.into(), "current": current.into(), "remaining": remaining.into()})
}

/// The same of an error.
pub(super) fn standing_of(error: &Value) -> Value {
    standing(
        error["limit"].clone(),
        error["current"].clone(),
        error["remaining"].clone(),
    )
}

/// How many calls an upstream answered at once, at most.
pub(crate) fn busiest(upstream: &Upstream) -> usize {
    let mut edges: Vec<(Instant, i64)> = Vec::new();
    for call in upstream.recorded() {
        assert_ne!(call.state, CallState::Running, "it is over");
        let last = call.sent_at.last().copied().unwrap_or_default();
        edges.extend([(call.at, 1), (call.at + last, -1)]);
    }
    edges.sort();
    let mut now = 0_i64;
    let busiest = edges.into_iter().map(|(_, step)| {
        now += step;
        now
    });
    usize::try_from(busiest.max().unwrap_or(0)).expect("no negative number of calls")
}

/// Mints a key as an operator does; gives what is told of it.
pub(super) async fn mint(scene: &Scene, body: Value) -> Value {
    let client = scene.client.with_key(OPERATOR_KEY);
    let made = client.call("POST", "/api/v1/tenant/api-keys", body.to_string().into());
    let made = made.await.expect("an answer");
    assert_eq!(made.status, 201, "{}", made.text());
    made.json()
}

/// Waits until the books have rows that cost so much.
pub(super) async fn books_cost(scene: &Scene, nano_usd: i64) {
    let begun = Instant::now();
    loop {
        let sums = scene.node.try_usage_api("").await.unwrap_or_default();
        let cost: i64 = sums.iter().filter_map(|sum| sum["cost_nano_usd"].as_i64()).sum();
        if cost == nano_usd {
            return;
        }
        assert!(
            cost < nano_usd && begun.elapsed() < BOOKED_MAX,
            "{cost} in the books, not {nano_usd}"
        );
        sleep(Duration::from_millis(200)).await;
    }
}
