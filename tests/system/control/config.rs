//! Configuration files that change while nodes run: what is right is in force at once, what is wrong changes nothing and
//! is told, and what was in force before can be put back.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use harness::{
    Behaviour, CALLER_KEY, Client, Model, OPERATOR_KEY, PRICE, Scene, Upstream, chat, models_file,
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::{done, operator, refused, until, until_shown};

mod examples;
mod history;
mod manifest;
mod moving;
mod passing;
mod spread;
mod taken_out;

/// How soon a problem is told of.
const TOLD_MAX: Duration = Duration::from_secs(10);
const PROBLEMS: &str = "/admin/config/problems";

fn file(scene: &Scene, name: &str) -> PathBuf {
    scene.node.data_dir().with_file_name(name)
}

fn write(scene: &Scene, name: &str, text: &str) {
    std::fs::write(file(scene, name), text).expect("a file written");
}

fn read(scene: &Scene, name: &str) -> String {
    std::fs::read_to_string(file(scene, name)).expect("a file read")
}

/// A scene of one node whose calls go to it, and the operator.
async fn scene() -> (Scene, Client) {
    let mut scene = Scene::start().await;
    scene.pin();
    let operator = operator(&scene);
    (scene, operator)
}

/// Problems of a severity that a node tells of.
fn of(problems: &Value, severity: &str) -> Vec<Value> {
    let all = problems["data"].as_array().expect("a list");
    let of_severity = all.iter().filter(|problem| problem["severity"] == severity);
    of_severity.cloned().collect()
}

/// A kind of bad configuration: its name, the text of models.yaml, and what is told of it.
type Bad = (&'static str, String, &'static str);

fn bad_models(scene: &Scene) -> Vec<Bad> {
    let url = scene.o1.url();
    let leg = format!("{{ kind: openai_compat, base_url: \"{url}\" }}");
    let m = |rest: &str| format!("models:\n- id: m\n  provider: openai_compat\n  {rest}\n");
    let routed = |rest: &str| m(&format!("{rest}\n  route: [ {leg} ]"));
    vec![
        ("broken YAML", "models:\n- id: [\n".to_owned(), "valid YAML"),
        ("an unknown key", routed("colour: red"), "colour"),
        (
            "one id twice",
            format!(
                "{}- id: m\n  provider: openai_compat\n  route: [ {leg} ]\n",
                routed("name: M")
            ),
            "already taken",
        ),
        (
            "no address",
            m("base_url: \"not an address\""),
            "not an http or https URL",
        ),
        (
            "a variable that is not set",
            m("base_url: \"${NOWHERE_AT_ALL}\""),
            "blank",
        ),
        (
            "a price that is none",
            routed("pricing: { prompt: cheap, completion: \"1\" }"),
            "pric",
        ),
        (
            "weights of zero",
            m(&format!(
                "route: [ {{ kind: openai_compat, weight: 0, base_url: \"{url}\" }} ]"
            )),
            "weight above 0",
        ),
        (
            "an alias of another",
            format!(
                "{}- id: second\n  provider: openai_compat\n  aliases: [m]\n  route: [ {leg} ]\n",
                routed("name: M")
            ),
            "already taken",
        ),
        (
            "an endpoint that nobody describes",
            m("route: [ { kind: openai_compat, endpoint: nowhere } ]"),
            "base_url",
        ),
        (
            "a file that is too large",
            format!("{}{}", routed("name: M"), "# more\n".repeat(1_250_000)),
            "too large",
        ),
        ("an empty file", String::new(), "empty"),
    ]
}

/// A manifest that names the models of its directory, with their digest or another.
fn distribution() -> (tempfile::TempDir, String, String) {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::write(directory.path().join("routing.yaml"), "timeout: 2\n").expect("written");
    let digest = "5b0ff4e7fcb5ff4e9d1d7fdaf4d5e7ddca1e5bb8a1c1f5b7a1a6e4a9e0a1b2c3";
    let manifest =
        |digests: &str| format!("schema_version: 1\npaths: {{ routing: routing.yaml }}\n{digests}");
    let wrong = manifest(&format!("digests: {{ routing: {digest} }}\n"));
    (directory, manifest(""), wrong)
}

/// Has a node take over a file of models at once.
async fn reload(scene: &Scene, models: &[Model]) {
    scene.node.write_models(models);
    let (code, output) = scene.node.command(&["reload"]).await;
    assert_eq!(code, Some(0), "{output}");
}

/// Waits until errors are told of, or none are; gives what is told.
async fn until_errors(operator: &Client, there: bool) -> Vec<Value> {
    let shown = until_shown(operator, PROBLEMS, |told| of(told, "error").is_empty() != there).await;
    of(&shown, "error")
}

#[tokio::test]
async fn twelve_kinds_of_bad_files_under_load_fail_no_call_and_are_told_of_within_ten_seconds() {
    let (directory, right, wrong) = distribution();
    let manifest = directory.path().join("manifest.yaml");
    std::fs::write(&manifest, &right).expect("written");
    let path = manifest.display().to_string();
    let mut scene = Scene::start_with(|node| {
        node.env("DISTRIBUTION_CONFIG_PATH", &path)
            .env("DISTRIBUTION_CONFIG_MODE", "active")
    })
    .await;
    scene.pin();
    scene.price("other", Some(PRICE));
    let (its, operator) = (&scene, operator(&scene));
    // Between one mistake and the next the name goes to another model, and back.
    let other = Model::new("other").set("aliases", json!(["m"])).leg(&its.o2, 0);
    let good = [read(its, "models.yaml"), models_file(&[other])];
    let over = AtomicBool::new(false);
    let calls = AtomicUsize::new(0);
    let load = async || {
        while !over.load(Ordering::Relaxed) {
            let answer = its.client.post_chat(&chat("m")).await;
            assert_eq!(answer.status, 200, "{}", answer.text());
            calls.fetch_add(1, Ordering::Relaxed);
        }
    };
    let tell = async |kind: &str, text: &str| {
        let start = Instant::now();
        let errors = until_errors(&operator, true).await;
        assert!(start.elapsed() < TOLD_MAX, "{kind}: {:?}", start.elapsed());
        assert_eq!(errors.len(), 1, "{kind}: {errors:?}");
        let told = errors[0].to_string();
        assert!(told.contains(text), "{kind}: {told}");
        let before = calls.load(Ordering::Relaxed);
        while calls.load(Ordering::Relaxed) < before + 3 {
            sleep(Duration::from_millis(10)).await;
        }
    };
    let push = async {
        let kinds = bad_models(its);
        assert_eq!(kinds.len(), 11);
        for ((kind, models, text), good) in kinds.into_iter().zip(good.iter().rev().cycle()) {
            write(its, "models.yaml", &models);
            tell(kind, text).await;
            write(its, "models.yaml", good);
            until_errors(&operator, false).await;
        }
        std::fs::write(&manifest, &wrong).expect("written");
        tell("a digest of another file", "digests.routing").await;
        std::fs::write(&manifest, &right).expect("written");
        until_errors(&operator, false).await;
        over.store(true, Ordering::Relaxed);
    };

    tokio::join!(push, load(), load());

    let metrics = scene.client.get("/metrics").await.text();
    assert!(
        metrics.contains("waybill_config_problems{severity=\"error\"} 0"),
        "{metrics}"
    );
    scene.node.wait_log("the configuration stays as it was").await;
    scene.node.wait_log("CRITICAL").await;
    scene.finish().await;
}

#[tokio::test]
async fn a_file_that_is_gone_or_no_file_changes_nothing_and_its_problem_goes_once_it_is_back() {
    let (scene, operator) = scene().await;
    let good = read(&scene, "models.yaml");
    let path = file(&scene, "models.yaml");

    std::fs::remove_file(&path).expect("removed");
    let gone = until_errors(&operator, true).await;
    assert!(
        gone[0]["message"]
            .as_str()
            .is_some_and(|told| told.contains("cannot be read")),
        "{gone:?}"
    );
    std::fs::create_dir(&path).expect("a directory");
    sleep(Duration::from_millis(1_500)).await;
    assert_eq!(until_errors(&operator, true).await.len(), 1);
    until(&scene.client, 200).await;
    std::fs::remove_dir(&path).expect("removed");
    // As editors and orchestrators do: another file under the old name.
    write(&scene, "models.new", &good);
    std::fs::rename(file(&scene, "models.new"), &path).expect("renamed");

    until_errors(&operator, false).await;
    scene.finish().await;
}

#[tokio::test]
async fn tenants_keys_and_limits_follow_the_file_and_what_needs_a_start_is_told() {
    let (scene, operator) = scene().await;
    let mut settings: Value = serde_json::from_str(&read(&scene, "waybill.yaml")).expect("JSON");
    let fresh = "sk-harness-canary-fresh-0b1c2d";
    let keys = settings["keys"].as_array_mut().expect("keys");
    let other = keys.iter().position(|key| key["name"] == "other").expect("a key");
    keys.remove(other);
    keys.push(json!({"name": "fresh", "tenant": "nova", "key": fresh, "role": "free"}));
    settings["tenants"] = json!([{"id": "acme", "limits": {"rpm": 7}}, {"id": "zenith"}, {"id": "nova"}]);
    settings["attempts_max"] = json!(3);

    write(&scene, "waybill.yaml", &format!("{settings:#}"));

    until(&scene.client.with_key(fresh), 200).await;
    until(&scene.client.with_key(harness::OTHER_KEY), 401).await;
    let acme = until_shown(&operator, "/api/v1/tenants/acme", |acme| {
        acme["limits"]["rpm"] == 7
    })
    .await;
    assert_eq!(acme["origin"], "file");
    let told = until_shown(&operator, PROBLEMS, |told| !of(told, "restart").is_empty()).await;
    let restart = of(&told, "restart");
    assert_eq!(restart.len(), 1, "{restart:?}");
    assert_eq!(restart[0]["key"], "attempts_max");
    assert!(restart[0]["line"].as_u64().is_some_and(|line| line > 1));

    write(&scene, "waybill.yaml", "");
    let empty = until_errors(&operator, true).await;
    assert!(
        empty[0]["message"]
            .as_str()
            .is_some_and(|told| told.contains("empty"))
    );
    until(&scene.client.with_key(fresh), 200).await;
    scene.finish().await;
}

#[tokio::test]
async fn the_signal_that_asks_for_it_has_everything_read_again() {
    let (mut scene, operator) = scene().await;
    let before = done(&operator, "GET", "/admin/config", Value::Null).await;

    scene.node.signal("HUP").await;

    let read_at = before["read_at"].clone();
    let after = until_shown(&operator, "/admin/config", |told| told["read_at"] != read_at).await;
    assert_eq!(
        (&after["set"], &after["since"]),
        (&before["set"], &before["since"])
    );
    assert!(scene.node.running());
    scene.finish().await;
}

#[tokio::test]
async fn sessions_of_an_address_that_a_file_takes_away_are_told_so() {
    let (o1, o2) = (Upstream::start(), Upstream::start());
    let both = Model::new("m")
        .leg(&o1, 0)
        .set_leg("base_url", Value::Null)
        .set_leg("backends", json!([o1.url(), o2.url()]))
        .set_leg("session_affinity", true);
    let second = Model::new("m").leg(&o2, 0).set_leg("session_affinity", true);
    let mut scene = Scene::start_on(o1, o2, |node| node.models(&[both])).await;
    scene.pin();
    let mut pinned = None;
    for n in 0..40 {
        let session = format!("session-{n}");
        let client = scene.client.with_header("x-session-id", &session);
        let calls = scene.o1.calls();
        assert_eq!(client.post_chat(&chat("m")).await.status, 200);
        if scene.o1.calls() > calls {
            pinned = Some(client);
            break;
        }
    }
    let pinned = pinned.expect("a session at the first address");
    let verdict = async || {
        pinned
            .post_chat(&chat("m"))
            .await
            .header("x-session-affinity")
            .to_owned()
    };
    assert_eq!(verdict().await, "hit:header");

    scene.node.write_models(&[second]);
    let (code, output) = scene.node.command(&["reload"]).await;
    assert_eq!(code, Some(0), "{output}");

    assert_eq!(verdict().await, "stale:header");
    assert_eq!(verdict().await, "hit:header");
    scene.finish().await;
}
