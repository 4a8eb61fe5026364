//! What one tenant has is not there for another: each of its things is named in every place of every path that the router
//! has, with every kind of credential of the other tenant's. What is answered tells nothing of it, and is the same, byte
//! by byte but for what any two answers differ in, as what is told to whoever names something that nobody has.
//!
//! `WAYBILL_ISOLATION=100000` makes so many attempts (`make isolation`); without it there are fewer, the same each time.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::scene::{Answer, Scene};
use crate::script::whole;

mod attempts;
mod books;
mod fields;
mod judge;
mod world;

use attempts::{Sent, Way};
use judge::Probe;
use world::Tenants;

/// What is in everything that the one tenant has.
const CANARY: &str = "c4n4ry";
const DISPATCH: &str = "the token of whoever hands out grants";
const PASSWORD: &str = "correct horse battery 1";
/// Attempts where nobody says how many.
const ATTEMPTS: usize = 3_000;
/// Attempts at one pair of tenants: what is made with them makes those after them slower.
const OF_PAIR: usize = 2_000;
/// What answers with figures of the whole node.
const FIGURES: &str = "/metrics";
/// How much is told of what is wrong.
const TOLD_MAX: usize = 12;

/// An attempt: which way, which thing, with which credential.
type Attempt = (usize, usize, usize);

/// Bends answers, to see that it is found.
type Bend = fn(&Sent, Answer) -> Answer;

/// What looks like a thing and is nobody's.
fn absent(thing: &str) -> String {
    let last = thing.chars().last().filter(char::is_ascii);
    let other = match last {
        // A number stays one: else an address is none.
        Some('1') => '2',
        Some(last) if last.is_ascii_digit() => '1',
        Some('a') => 'b',
        _ => 'a',
    };
    let mut text = thing.to_owned();
    text.pop();
    text.push(other);
    text
}

/// An attempt by its number: those with numbers that follow each other are spread evenly over all ways, things and
/// credentials, of which there are so many. `None` when there are no more.
fn attempt(number: usize, [ways, things, credentials]: [usize; 3]) -> Option<Attempt> {
    let all = ways * things * credentials;
    // A prime beyond every one of the three: what is drawn walks through all of them at once.
    let place = (number < all).then(|| number * 1_000_003 % all)?;
    Some((
        place / (things * credentials),
        place / credentials % things,
        place % credentials,
    ))
}

struct Sweep {
    tenants: Tenants,
    ways: Vec<Way>,
    bend: Bend,
}

impl Sweep {
    async fn new(bend: Bend) -> Self {
        let tenants = Tenants::new().await;
        let described = tenants
            .scene
            .within("GET /api/v1/openapi.json", &[], "")
            .await
            .json();
        let routes = gateway::routes::of_main(&gateway::Config::new(
            tenants.scene.addr,
            schemas::id::NodeId::from("n1"),
            schemas::secret::Secret::new(b"secret".to_vec()),
        ));
        Self {
            ways: attempts::all(&routes, &described),
            tenants,
            bend,
        }
    }

    /// The attempts at things where they lie, with every credential: they are made whatever else is drawn.
    fn at_home(&self) -> Vec<Attempt> {
        let things = || self.tenants.things.iter().enumerate();
        let mut at_home = Vec::new();
        for (way, of) in self.ways.iter().enumerate() {
            for (thing, _) in things().filter(|(_, (what, _))| of.leads_to(what)) {
                at_home.extend((0..self.tenants.credentials.len()).map(|by| (way, thing, by)));
            }
        }
        at_home
    }

    /// These attempts of all that there are: first those that read, then those that might change something.
    fn drawn(&self, numbers: impl Iterator<Item = usize>) -> Vec<Attempt> {
        let counts = [
            self.ways.len(),
            self.tenants.things.len(),
            self.tenants.credentials.len(),
        ];
        let at_home = self.at_home();
        let of_number = |number: usize| match number.checked_sub(at_home.len()) {
            None => at_home.get(number).copied(),
            Some(beyond) => attempt(beyond, counts),
        };
        let mut drawn: Vec<Attempt> = numbers.map_while(of_number).collect();
        // What is said in a body stays in things of the caller's own: from then on he may hear it.
        drawn.sort_by_key(|(way, ..)| {
            let way = &self.ways[*way];
            (!way.reads(), way.says(), way.method == "POST")
        });
        drawn
    }

    async fn call(&self, way: &Way, named: &str, credential: &str) -> Answer {
        let sent = way.sent(named, &self.tenants.own);
        let bearer = format!("Bearer {credential}");
        let mut headers: Vec<(&str, &str)> = sent
            .headers
            .iter()
            .map(|(name, value)| (*name, &**value))
            .collect();
        if !credential.is_empty() {
            headers.push(("authorization", &bearer));
        }
        if way.asks() {
            self.tenants.scene.script.clear();
            self.tenants
                .scene
                .script
                .push(whole(r#"{"id":"x","object":"response","output":[]}"#));
        }
        let answer = self.tenants.scene.within(&sent.line, &headers, &sent.body).await;
        (self.bend)(&sent, answer)
    }

    /// What is wrong with the answers to these attempts.
    async fn faults(&self, numbers: impl Iterator<Item = usize>) -> Vec<String> {
        let known: Vec<&str> = self.tenants.things.iter().map(|(_, id)| &**id).collect();
        let known: Vec<&str> = known.into_iter().filter(|id| !id.starts_with("org/")).collect();
        let (mut faults, mut said) = (Vec::new(), Vec::new());
        for (way, thing, credential) in self.drawn(numbers) {
            let way = &self.ways[way];
            let (what, thing) = &self.tenants.things[thing];
            let (whose, secret) = &self.tenants.credentials[credential];
            let nothing = absent(thing);
            let (foreign, none) = (
                self.call(way, thing, secret).await,
                self.call(way, &nothing, secret).await,
            );
            let told = |named| Probe {
                named,
                answer: &foreign,
            };
            // What is counted goes on counting from one answer to the next: only what it names is judged.
            let none = Probe {
                named: &nothing,
                answer: &none,
            };
            let none = if way.path == FIGURES { told(thing) } else { none };
            let foreign = told(thing);
            if let Some(fault) = judge::fault(&foreign, &none, (&known, &said)) {
                faults.push(format!(
                    "{} {} {:?} with {what}, by {whose}: {fault}",
                    way.method, way.path, way.place
                ));
            }
            if way.says() && !said.contains(thing) {
                // What nobody has is like it, and stays as well: its mark is that of the other tenant.
                said.extend([thing.clone(), nothing]);
                // Longer ones first: one may be a part of another.
                said.sort_by_key(|text| std::cmp::Reverse(text.len()));
            }
        }
        faults
    }
}

#[expect(clippy::disallowed_methods, reason = "a test that can be made longer")]
fn wanted() -> usize {
    let told = std::env::var("WAYBILL_ISOLATION").ok();
    told.map_or(ATTEMPTS, |text| text.parse().expect("a number"))
}

fn told(faults: &[String]) -> String {
    format!(
        "{} faults:\n{}",
        faults.len(),
        faults[..faults.len().min(TOLD_MAX)].join("\n\n")
    )
}

/// What the one tenant has, as operators read it.
async fn kept(scene: &Scene) -> Vec<serde_json::Value> {
    let bearer = format!("Bearer {}", crate::scene::OPERATOR);
    let exported = scene
        .within("GET /admin/config/export", &[("authorization", &bearer)], "")
        .await
        .json();
    let records = exported["records"].as_array().cloned().unwrap_or_default();
    let of_them = |one: &serde_json::Value| {
        let record = &one["record"];
        let tenant = format!("{CANARY}-t");
        record["tenant"] == *tenant || record["id"] == *tenant
    };
    records.into_iter().filter(of_them).collect()
}

/// What is wrong with the answers at one pair of tenants, which are as they were afterwards.
async fn faults_at_a_pair(numbers: impl Iterator<Item = usize>) -> Vec<String> {
    let sweep = Sweep::new(|_, answer| answer).await;
    let before = kept(&sweep.tenants.scene).await;
    assert!(before.len() >= 5, "{before:?}");

    let mut faults = sweep.faults(numbers).await;

    let after = kept(&sweep.tenants.scene).await;
    if after != before {
        faults.push(format!("what is theirs was changed: {before:?} is now {after:?}"));
    }
    faults
}

#[test]
fn what_one_tenant_has_is_not_there_for_another() {
    let wanted = wanted();
    let pairs = wanted.div_ceil(OF_PAIR);
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let next = AtomicUsize::new(0);
    let work = || {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().build().expect("a runtime");
        let mut faults = Vec::new();
        loop {
            let pair = next.fetch_add(1, Ordering::Relaxed);
            if pair >= pairs {
                return faults;
            }
            faults.extend(runtime.block_on(faults_at_a_pair((pair..wanted).step_by(pairs))));
        }
    };

    let faults: Vec<String> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..workers.min(pairs)).map(|_| scope.spawn(work)).collect();
        let faults = workers.into_iter().map(|worker| worker.join().expect("a worker"));
        faults.flatten().collect()
    });

    assert!(faults.is_empty(), "{}", told(&faults));
}

#[test]
fn attempts_are_spread_over_everything_and_each_is_made_once() {
    let counts = [307, 11, 6];
    let all: usize = counts.iter().product();
    let every: BTreeSet<Attempt> = (0..).map_while(|number| attempt(number, counts)).collect();
    assert_eq!(every.len(), all);
    let some = (0..all / 20).filter_map(|number| attempt(number, counts));
    let ways: BTreeSet<usize> = some.clone().map(|(way, ..)| way).collect();
    let pairs: BTreeSet<(usize, usize)> = some.map(|(_, thing, by)| (thing, by)).collect();
    assert_eq!((ways.len(), pairs.len()), (307, 66));
}

#[tokio::test]
async fn a_route_that_tells_of_another_tenant_is_found() {
    let leaks: [(&str, Bend, &str); 3] = [
        (
            "/api/v1/endpoints",
            |sent, answer| {
                if sent.line.starts_with("GET /api/v1/endpoints?") {
                    let body = format!("{{\"data\":[{{\"name\":\"{CANARY}-endpoint\"}}]}}");
                    return Answer::told(200, "", &body);
                }
                answer
            },
            "tells of",
        ),
        (
            "/api/v1/users/{id}",
            |sent, answer| {
                if sent.line.starts_with("GET /api/v1/users/c4n4ry-user") {
                    return Answer::told(403, "", "{}");
                }
                answer
            },
            "it is there",
        ),
        (
            "/api/v1/tenant/api-keys/{id}",
            |sent, answer| {
                if sent.body.contains("c4n4ry-model") {
                    return Answer::told(200, "", "{}");
                }
                answer
            },
            "it is there",
        ),
    ];
    let mut sweep = Sweep::new(|_, answer| answer).await;
    let all = sweep.ways.clone();
    for (path, bend, said) in leaks {
        sweep.bend = bend;
        sweep.ways = all.iter().filter(|way| way.path == path).cloned().collect();
        let faults = sweep.faults(0..ATTEMPTS).await;
        let found = |fault: &String| fault.contains(said) && fault.contains(path);
        assert!(faults.iter().any(found), "{said}: {}", told(&faults));
    }
}
