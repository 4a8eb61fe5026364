//! A tenant that has one of everything, each with a mark of its own in it, and another one whose credentials of every
//! kind are used to look for it.

use std::collections::BTreeMap;
use std::time::Duration;

use schemas::event::audit::Audited;
use schemas::secret::Secret;
use schemas::subject;
use serde_json::{Value, json};

use super::books::Books;
use super::{CANARY, DISPATCH, PASSWORD};
use crate::scene::{OPERATOR, Scene};
use crate::script::whole;
use crate::sign_in::settings;

const RESPONSE: &str = r#"{"id":"resp_1","object":"response","status":"completed","output":[{"type":"message","id":"msg_1","role":"assistant","content":[{"type":"output_text","text":"c4n4ry answer"}]}]}"#;

const OWN_RESPONSE: &str = r#"{"id":"resp_2","object":"response","status":"completed","output":[]}"#;

/// The two tenants, and all that is known of the one.
pub(super) struct Tenants {
    pub(super) scene: Scene,
    /// What the one has, by what it is.
    pub(super) things: Vec<(&'static str, String)>,
    /// The credentials of the other.
    pub(super) credentials: Vec<(&'static str, String)>,
    /// What the other has itself, by the paths that it is found under.
    pub(super) own: BTreeMap<&'static str, String>,
}

async fn done(scene: &Scene, line: &str, key: &str, body: Value) -> Value {
    let bearer = format!("Bearer {key}");
    let body = if body.is_null() {
        String::new()
    } else {
        body.to_string()
    };
    let answer = scene.within(line, &[("authorization", &bearer)], &body).await;
    assert!(answer.status < 300, "{line}: {answer:?}");
    answer.json()
}

fn text(value: &Value) -> String {
    value.as_str().expect("a text").to_owned()
}

/// The credentials that a tenant has, and what they are credentials of.
struct Held {
    user: String,
    admin: Value,
    member: Value,
    endpoint: Value,
    endpoint_key: Value,
    grant: Value,
    session: String,
}

/// A tenant with a member, keys, an endpoint and a grant. `mark` is in the name of everything.
async fn furnished(scene: &Scene, mark: &str) -> Held {
    let tenant = format!("{mark}-t");
    let user = format!("{mark}-user");
    done(
        scene,
        "POST /api/v1/tenants",
        OPERATOR,
        json!({"id": tenant, "name": format!("{mark} name")}),
    )
    .await;
    let email = format!("{mark}@{mark}.example");
    let member = json!({"tenant": tenant, "id": user, "email": email, "name": format!("{mark} person"), "role": "admin", "password": PASSWORD});
    done(scene, "POST /api/v1/users", OPERATOR, member).await;
    let keys = "POST /api/v1/tenant/api-keys";
    let admin = json!({"name": format!("{mark} admin"), "tenant": tenant, "role": "admin"});
    let admin = done(scene, keys, OPERATOR, admin).await;
    let own = text(&admin["key"]);
    let member = done(
        scene,
        keys,
        &own,
        json!({"name": format!("{mark} key"), "user": user}),
    )
    .await;
    let endpoint = json!({"name": format!("{mark}-endpoint"), "kind": "vllm", "model": format!("{mark}-model"),
        "backends": [{"url": format!("http://{mark}.example:8000"), "node": format!("{mark}-node")}]});
    let endpoint = done(scene, "POST /api/v1/endpoints", &own, endpoint).await;
    let of_endpoint = json!({"name": format!("{mark} ekey"), "endpoint": endpoint["id"]});
    let endpoint_key = done(scene, "POST /api/v1/endpoint-keys", &own, of_endpoint).await;
    let grant =
        json!({"tenant": tenant, "user": user, "external_job_id": format!("{mark}-job"), "minutes": 600});
    let grant = done(scene, "POST /internal/agent-grants", DISPATCH, grant).await;
    let login = json!({"email": email, "password": PASSWORD});
    let session = text(&done(scene, "POST /auth/login", "", login).await["access_token"]);
    Held {
        user,
        admin,
        member,
        endpoint,
        endpoint_key,
        grant,
        session,
    }
}

/// Calls of models by a member: rows, a session, an idempotency key, and a response that is kept. Gives its id.
async fn called(scene: &Scene, key: &str, mark: &str) -> String {
    scene.script.push(whole(r#"{"id":"x"}"#));
    let bearer = format!("Bearer {key}");
    let headers = [
        ("authorization", &*bearer),
        ("x-session-id", &format!("{mark}-session")),
        ("idempotency-key", &format!("{mark}-idem")),
        ("x-end-user", &format!("{mark}-end")),
        ("x-request-id", &format!("{mark}-client")),
    ];
    let chat = json!({"model": "m", "messages": [{"role": "user", "content": format!("{mark} prompt")}]});
    let answer = scene
        .within("POST /v1/chat/completions", &headers, &chat.to_string())
        .await;
    assert_eq!(answer.status, 200, "{answer:?}");
    scene
        .script
        .push(whole(if mark == CANARY { RESPONSE } else { OWN_RESPONSE }));
    let ask = json!({"model": "m", "input": format!("{mark} input"), "metadata": {"mark": mark}});
    text(&done(scene, "POST /v1/responses", key, ask).await["id"])
}

impl Tenants {
    pub(super) async fn new() -> Self {
        let mut scene = Scene::with(|config| {
            settings(config);
            config.grant_dispatch_token = Some(Secret::new(DISPATCH.to_owned()));
        })
        .await;
        let (one, other) = (furnished(&scene, CANARY).await, furnished(&scene, "nova").await);
        let response = called(&scene, &text(&one.member["key"]), CANARY).await;
        let own_response = called(&scene, &text(&other.member["key"]), "nova").await;
        let hidden = json!({"required_role": "free", "tenants": [format!("{CANARY}-t")]});
        done(&scene, "PATCH /api/v1/models/org%2Fstaff", OPERATOR, hidden).await;
        let price = json!({"model": format!("{CANARY}-model"), "tenant": format!("{CANARY}-t"), "pricing": {"prompt": "1"}});
        let price = done(&scene, "POST /api/v1/prices", OPERATOR, price).await;
        let route = first_route(&scene, &text(&one.admin["key"])).await;
        let own_route = first_route(&scene, &text(&other.admin["key"])).await;
        let rows = scene.rows(4).await;
        let changes: Vec<Audited> = scene.events(subject::AUDIT);
        let mut things = things(&one, &response, &text(&price["id"]), &route);
        let theirs = rows.iter().filter(|row| row.tenant.as_str().starts_with(CANARY));
        things.extend(theirs.map(|row| ("a request", row.request_id.to_string())));
        let told_of = changes
            .iter()
            .find(|change| change.tenant.as_str().starts_with(CANARY));
        things.extend(told_of.map(|change| ("a change", change.change.id.to_string())));
        Books { rows, changes }.open(&mut scene).await;
        booked(&mut scene);
        let spare = json!({"name": "spare"});
        let spare = done(
            &scene,
            "POST /api/v1/tenant/api-keys",
            &text(&other.admin["key"]),
            spare,
        )
        .await;
        let mia = json!({"id": "mia"});
        done(&scene, "POST /api/v1/users", &text(&other.admin["key"]), mia).await;
        Self {
            credentials: vec![
                ("an administrator's key", text(&other.admin["key"])),
                ("a member's key", text(&other.member["key"])),
                ("a session", other.session),
                ("a key of an endpoint", text(&other.endpoint_key["key"])),
                ("a grant", text(&other.grant["token"])),
                ("nothing", String::new()),
            ],
            own: BTreeMap::from([
                ("/admin/api-keys/", text(&spare["id"])),
                ("/admin/users/", "mia".to_owned()),
                ("/api/v1/endpoint-keys/", text(&other.endpoint_key["id"])),
                ("/api/v1/endpoints/", text(&other.endpoint["id"])),
                ("/api/v1/model-routes/", own_route),
                ("/api/v1/tenant/api-keys/", text(&spare["id"])),
                ("/api/v1/users/", "mia".to_owned()),
                ("/v1/responses/", own_response),
            ]),
            scene,
            things,
        }
    }
}

async fn first_route(scene: &Scene, key: &str) -> String {
    let routes = done(scene, "GET /api/v1/model-routes", key, Value::Null).await;
    text(&routes["data"][0]["id"])
}

/// What somebody might name of a tenant.
fn things(one: &Held, response: &str, price: &str, route: &str) -> Vec<(&'static str, String)> {
    let tenant = format!("{CANARY}-t");
    let hex: Vec<String> = one.user.bytes().map(|byte| format!("{byte:02x}")).collect();
    let hex = hex.concat();
    let (endpoint, key) = (text(&one.endpoint["id"]), text(&one.member["id"]));
    vec![
        ("a tenant", tenant.clone()),
        ("a member", one.user.clone()),
        ("an address of mail", format!("{CANARY}@{CANARY}.example")),
        ("a key", key.clone()),
        ("a key's name", format!("{CANARY} key")),
        ("an administrator's key", text(&one.admin["id"])),
        ("an endpoint", endpoint.clone()),
        ("an endpoint's name", format!("{CANARY}-endpoint")),
        ("an endpoint's address", format!("http://{CANARY}.example:8000")),
        ("a model", format!("{CANARY}-model")),
        ("a hidden model", "org/staff".to_owned()),
        ("its other name", "org/staff-latest".to_owned()),
        ("a route", route.to_owned()),
        ("a price", price.to_owned()),
        ("a key of an endpoint", text(&one.endpoint_key["id"])),
        ("a grant", text(&one.grant["id"])),
        ("a job", format!("{CANARY}-job")),
        ("a response", response.to_owned()),
        ("a session", format!("{CANARY}-session")),
        ("an idempotency key", format!("{CANARY}-idem")),
        ("a customer", format!("{CANARY}-end")),
        ("a host", format!("{CANARY}-node")),
        ("a cursor of members", format!("{tenant}.{hex}")),
        ("a cursor of routes", format!("{tenant}.{route}")),
        ("a cursor of prices", format!("{tenant}.{price}")),
        ("a cursor of models", format!("{tenant}.{CANARY}-model")),
        ("a session's key", format!("session:{tenant}/{}", one.user)),
    ]
}

/// Has the books hold at once what the gateway says: reads of them wait for no ledger.
fn booked(scene: &mut Scene) {
    let spool = scene.spool.clone();
    scene.tasks.spawn(async move {
        loop {
            if spool.marked() < spool.appended() {
                spool.trim(spool.appended());
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    });
}
