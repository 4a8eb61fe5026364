//! Every path and method against every kind of credential: who is let in, who is told that he may not, and who is told
//! nothing. The list of paths is the router's own; one that stands in no line here fails the test.

use std::collections::{BTreeMap, BTreeSet};

use schemas::secret::Secret;
use serde_json::{Value, json};

use crate::scene::{ADMIN, Answer, CALLER, OPERATOR, Scene};
use crate::sign_in;

const ADMIN_TOKEN: &str = "an administrator's token 1";
const DISPATCH: &str = "the token of whoever hands out grants";

/// Who may call a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Open {
    /// Everybody, with a credential or without.
    Everybody,
    /// Whoever has a good credential.
    Callers,
    /// Administrators of a tenant, and operators.
    Administrators,
    /// Operators, and administrators of the operators' own tenant.
    Platform,
    /// Operators.
    Operators,
    /// Whoever hands out grants; no key is good for it.
    Dispatch,
    /// Whoever has the cookie of a session; no other credential counts.
    Cookie,
}

/// What a credential is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Worth {
    Nothing,
    Member,
    Administrator,
    AdministratorOfDefault,
    Operator,
}

impl Open {
    fn lets_in(self, worth: Worth) -> bool {
        match self {
            Self::Everybody => true,
            Self::Callers => worth >= Worth::Member,
            Self::Administrators => worth >= Worth::Administrator,
            Self::Platform => worth >= Worth::AdministratorOfDefault,
            Self::Operators => worth >= Worth::Operator,
            Self::Dispatch | Self::Cookie => false,
        }
    }
}

const MATRIX: &[(&str, &str, Open)] = &[
    ("GET", "/", Open::Everybody),
    ("GET", "/v1", Open::Everybody),
    ("GET", "/v1/", Open::Everybody),
    ("GET", "/anthropic", Open::Everybody),
    ("GET", "/anthropic/", Open::Everybody),
    ("GET", "/anthropic/v1", Open::Everybody),
    ("GET", "/v1/models", Open::Everybody),
    ("GET", "/models", Open::Everybody),
    ("GET", "/openrouter/models", Open::Everybody),
    ("GET", "/anthropic/v1/models", Open::Everybody),
    ("GET", "/v1/models/{*id}", Open::Everybody),
    ("GET", "/anthropic/v1/models/{*id}", Open::Everybody),
    ("GET", "/health", Open::Everybody),
    ("GET", "/health/ready", Open::Everybody),
    ("GET", "/metrics", Open::Everybody),
    ("POST", "/v1/chat/completions", Open::Callers),
    ("POST", "/v1/messages", Open::Callers),
    ("POST", "/v1/responses", Open::Callers),
    ("POST", "/v1/embeddings", Open::Callers),
    ("POST", "/v1/completions", Open::Callers),
    ("POST", "/anthropic/v1/messages", Open::Callers),
    ("POST", "/completion", Open::Callers),
    ("POST", "/v1/messages/count_tokens", Open::Callers),
    ("POST", "/anthropic/v1/messages/count_tokens", Open::Callers),
    ("GET", "/v1/responses/{id}", Open::Callers),
    ("DELETE", "/v1/responses/{id}", Open::Callers),
    ("GET", "/v1/responses/{id}/input_items", Open::Callers),
    ("GET", "/anthropic/user/balance", Open::Callers),
    ("GET", "/api/v1/proxy/{endpoint}/{*path}", Open::Callers),
    ("POST", "/api/v1/proxy/{endpoint}/{*path}", Open::Callers),
    ("PUT", "/api/v1/proxy/{endpoint}/{*path}", Open::Callers),
    ("PATCH", "/api/v1/proxy/{endpoint}/{*path}", Open::Callers),
    ("DELETE", "/api/v1/proxy/{endpoint}/{*path}", Open::Callers),
    ("OPTIONS", "/api/v1/proxy/{endpoint}/{*path}", Open::Callers),
    ("GET", "/api/v1/logs", Open::Callers),
    ("GET", "/api/v1/logs/{id}", Open::Callers),
    ("GET", "/api/v1/logs/export", Open::Callers),
    ("GET", "/api/v1/usage", Open::Callers),
    ("GET", "/api/v1/usage/events", Open::Callers),
    ("GET", "/site-config", Open::Everybody),
    ("POST", "/auth/setup", Open::Everybody),
    ("POST", "/auth/signup", Open::Everybody),
    ("POST", "/auth/login", Open::Everybody),
    ("POST", "/auth/forgot-password", Open::Everybody),
    ("POST", "/auth/reset-password", Open::Everybody),
    ("GET", "/auth/oidc/login", Open::Everybody),
    ("GET", "/auth/oidc/callback", Open::Everybody),
    ("POST", "/auth/refresh", Open::Cookie),
    ("GET", "/user/me", Open::Callers),
    ("POST", "/user/change-password", Open::Callers),
    ("POST", "/api/v1/users/{id}/password-reset", Open::Administrators),
    ("GET", "/routing", Open::Platform),
    ("GET", "/health/deep", Open::Platform),
    ("GET", "/api/v1/tenant/api-keys", Open::Administrators),
    ("POST", "/api/v1/tenant/api-keys", Open::Administrators),
    ("DELETE", "/api/v1/tenant/api-keys/{id}", Open::Administrators),
    ("GET", "/api/v1/tenant/api-keys/{id}", Open::Administrators),
    ("PATCH", "/api/v1/tenant/api-keys/{id}", Open::Administrators),
    (
        "GET",
        "/api/v1/tenant/api-keys/{id}/history",
        Open::Administrators,
    ),
    (
        "POST",
        "/api/v1/tenant/api-keys/{id}/rotate",
        Open::Administrators,
    ),
    (
        "GET",
        "/api/v1/tenant/api-keys/{id}/routing-policy",
        Open::Administrators,
    ),
    (
        "PUT",
        "/api/v1/tenant/api-keys/{id}/routing-policy",
        Open::Administrators,
    ),
    ("GET", "/api/v1/endpoint-keys", Open::Administrators),
    ("POST", "/api/v1/endpoint-keys", Open::Administrators),
    ("GET", "/api/v1/endpoint-keys/{id}", Open::Administrators),
    ("DELETE", "/api/v1/endpoint-keys/{id}", Open::Administrators),
    ("GET", "/api/v1/endpoint-keys/{id}/history", Open::Administrators),
    ("POST", "/api/v1/endpoint-keys/{id}/rotate", Open::Administrators),
    ("GET", "/internal/agent-grants", Open::Dispatch),
    ("POST", "/internal/agent-grants", Open::Dispatch),
    ("DELETE", "/internal/agent-grants/{id}", Open::Dispatch),
    ("GET", "/admin/settings", Open::Operators),
    ("GET", "/admin/settings/{name}", Open::Operators),
    ("PUT", "/admin/settings/{name}", Open::Operators),
    ("PATCH", "/admin/settings/{name}", Open::Operators),
    ("DELETE", "/admin/settings/{name}", Open::Operators),
    ("GET", "/admin/settings/{name}/history", Open::Operators),
    ("GET", "/admin/providers", Open::Operators),
    ("GET", "/admin/providers/{provider}", Open::Operators),
    ("PATCH", "/admin/providers/{provider}", Open::Operators),
    ("PATCH", "/admin/providers/{provider}/disabled", Open::Operators),
    ("GET", "/admin/providers/{provider}/history", Open::Operators),
    ("GET", "/admin/routing", Open::Platform),
    ("GET", "/api/v1/system/inference-config", Open::Operators),
    ("PUT", "/api/v1/system/inference-config", Open::Operators),
    ("GET", "/api/v1/models/routing-policies", Open::Operators),
    ("PUT", "/api/v1/models/routing-policies", Open::Operators),
    ("GET", "/api/v1/users", Open::Administrators),
    ("POST", "/api/v1/users", Open::Administrators),
    ("GET", "/api/v1/users/{id}", Open::Administrators),
    ("PATCH", "/api/v1/users/{id}", Open::Administrators),
    ("GET", "/api/v1/users/{id}/history", Open::Administrators),
    ("GET", "/api/v1/endpoints", Open::Administrators),
    ("POST", "/api/v1/endpoints", Open::Administrators),
    ("GET", "/api/v1/endpoints/{id}", Open::Administrators),
    ("PATCH", "/api/v1/endpoints/{id}", Open::Administrators),
    ("DELETE", "/api/v1/endpoints/{id}", Open::Administrators),
    ("GET", "/api/v1/endpoints/{id}/history", Open::Administrators),
    ("POST", "/api/v1/endpoints/{id}/test", Open::Administrators),
    ("GET", "/api/v1/model-routes", Open::Administrators),
    ("POST", "/api/v1/model-routes", Open::Administrators),
    ("GET", "/api/v1/model-routes/{id}", Open::Administrators),
    ("PATCH", "/api/v1/model-routes/{id}", Open::Administrators),
    ("DELETE", "/api/v1/model-routes/{id}", Open::Administrators),
    ("GET", "/api/v1/model-routes/{id}/history", Open::Administrators),
    ("DELETE", "/api/v1/tenants/{id}/overlay", Open::Operators),
    ("DELETE", "/api/v1/users/{id}/overlay", Open::Operators),
    ("GET", "/api/v1/models", Open::Administrators),
    ("GET", "/api/v1/models/{id}", Open::Operators),
    ("PATCH", "/api/v1/models/{id}", Open::Operators),
    ("DELETE", "/api/v1/models/{id}/overlay", Open::Operators),
    ("GET", "/api/v1/models/{id}/history", Open::Operators),
    ("GET", "/api/v1/prices", Open::Administrators),
    ("POST", "/api/v1/prices", Open::Operators),
    ("GET", "/api/v1/prices/{id}", Open::Administrators),
    ("DELETE", "/api/v1/prices/{id}", Open::Operators),
    ("GET", "/api/v1/prices/{id}/history", Open::Operators),
    ("GET", "/api/v1/tenants", Open::Operators),
    ("POST", "/api/v1/tenants", Open::Operators),
    ("GET", "/api/v1/tenants/{id}", Open::Operators),
    ("PATCH", "/api/v1/tenants/{id}", Open::Operators),
    ("GET", "/api/v1/tenants/{id}/history", Open::Operators),
    ("GET", "/admin/config", Open::Operators),
    ("GET", "/admin/config/problems", Open::Operators),
    ("GET", "/admin/config/history", Open::Operators),
    ("GET", "/admin/config/history/{id}", Open::Operators),
    ("GET", "/admin/config/diff", Open::Operators),
    ("POST", "/admin/config/rollback", Open::Operators),
    ("GET", "/admin/config/export", Open::Operators),
    ("POST", "/admin/config/import", Open::Operators),
    ("GET", "/api/v1/openapi.json", Open::Everybody),
    ("GET", "/capabilities", Open::Everybody),
    ("GET", "/user/models", Open::Callers),
    ("GET", "/user/usage", Open::Callers),
    ("GET", "/user/recent-requests", Open::Callers),
    ("GET", "/user/api-keys", Open::Callers),
    ("GET", "/api/v1/audit", Open::Administrators),
    ("GET", "/api/v1/tenant/usage", Open::Administrators),
    ("GET", "/admin/users", Open::Administrators),
    ("POST", "/admin/users", Open::Administrators),
    ("GET", "/admin/users/{id}", Open::Administrators),
    ("PATCH", "/admin/users/{id}", Open::Administrators),
    ("GET", "/admin/users/{id}/history", Open::Administrators),
    ("GET", "/admin/models", Open::Administrators),
    ("GET", "/admin/models/{id}", Open::Operators),
    ("PATCH", "/admin/models/{id}", Open::Operators),
    ("GET", "/admin/api-keys/{id}/history", Open::Administrators),
    ("GET", "/admin/api-keys", Open::Administrators),
    ("POST", "/admin/api-keys", Open::Administrators),
    ("GET", "/admin/api-keys/{id}", Open::Administrators),
    ("PATCH", "/admin/api-keys/{id}", Open::Administrators),
    ("DELETE", "/admin/api-keys/{id}", Open::Administrators),
    ("GET", "/admin/recent-requests", Open::Administrators),
    ("GET", "/admin/audit-log", Open::Administrators),
    ("GET", "/admin/stats", Open::Administrators),
    ("GET", "/api/v1/nodes", Open::Operators),
    ("POST", "/api/v1/nodes/{node}/gpu", Open::Platform),
    ("GET", "/admin/nodes", Open::Operators),
    ("POST", "/api/v1/system/rebuild", Open::Operators),
    ("GET", "/api/v1/system/counters", Open::Operators),
    ("POST", "/api/v1/system/reprice", Open::Operators),
    // The last: whoever signed in is signed out by it.
    ("POST", "/auth/logout", Open::Everybody),
];

/// A credential: what it is, itself, and what it is worth.
type Credential = (&'static str, String, Worth);

/// A call of the operator's that succeeds.
async fn done(scene: &Scene, line: &str, body: Value) -> Value {
    let answer = scene.call(line, OPERATOR, &body.to_string()).await;
    assert!(answer.status < 300, "{line}: {answer:?}");
    answer.json()
}

/// Mints a key; gives its id and itself.
async fn minted(scene: &Scene, body: Value) -> (String, String) {
    let made = done(scene, "POST /api/v1/tenant/api-keys", body).await;
    let text = |field: &str| made[field].as_str().expect("a text").to_owned();
    (text("id"), text("key"))
}

/// Credentials that are good.
async fn good(scene: &Scene) -> Vec<Credential> {
    let mut found = vec![
        ("a member's", CALLER.to_owned(), Worth::Member),
        ("an administrator's", ADMIN.to_owned(), Worth::Administrator),
        ("an operator's", OPERATOR.to_owned(), Worth::Operator),
        (
            "the administrator's token",
            ADMIN_TOKEN.to_owned(),
            Worth::Operator,
        ),
    ];
    for (what, role, tenant, worth) in [
        ("one of role pro", "pro", "acme", Worth::Member),
        ("one of role internal", "internal", "default", Worth::Member),
        (
            "one of role admin in default",
            "admin",
            "default",
            Worth::AdministratorOfDefault,
        ),
        ("an operator's of a tenant", "operator", "acme", Worth::Operator),
    ] {
        let body = json!({"name": what, "role": role, "tenant": tenant});
        found.push((what, minted(scene, body).await.1, worth));
    }
    for (what, id, role, worth) in [
        ("a session of a member's", "signed-in", "pro", Worth::Member),
        (
            "an administrator's session",
            "signed-in-admin",
            "admin",
            Worth::Administrator,
        ),
        (
            "an operator's session",
            "signed-in-operator",
            "operator",
            Worth::Operator,
        ),
    ] {
        found.push((what, sign_in::signed_in(scene, id, role).await.0, worth));
    }
    let lowered = json!({"tenant": "acme", "id": "lowered", "role": "admin"});
    done(scene, "POST /api/v1/users", lowered).await;
    let body = json!({"name": "k", "role": "admin", "tenant": "acme", "user": "lowered"});
    found.push((
        "one of a lowered member",
        minted(scene, body).await.1,
        Worth::Member,
    ));
    let lower = json!({"role": "pro"});
    done(scene, "PATCH /api/v1/users/lowered?tenant=acme", lower).await;
    found
}

/// Credentials that are good for nothing.
async fn bad(scene: &Scene) -> Vec<Credential> {
    let unknown = "sk-nobody-at-all-0001".to_owned();
    let mut found = vec![("none", String::new()), ("one that nobody knows", unknown)];
    let expired = json!({"name": "old", "role": "operator", "expires_at": "2020-01-01T00:00:00Z"});
    found.push(("an expired one", minted(scene, expired).await.1));

    let (id, key) = minted(scene, json!({"name": "gone", "role": "operator"})).await;
    let line = format!("DELETE /api/v1/tenant/api-keys/{id}");
    assert_eq!(scene.call(&line, OPERATOR, "").await.status, 200);
    found.push(("a revoked one", key));

    done(scene, "POST /api/v1/tenants", json!({"id": "closed"})).await;
    let of_closed = json!({"name": "k", "role": "operator", "tenant": "closed"});
    found.push(("one of a disabled tenant", minted(scene, of_closed).await.1));
    let disable = json!({"disabled": true});
    done(scene, "PATCH /api/v1/tenants/closed", disable.clone()).await;

    let left = json!({"tenant": "acme", "id": "left", "role": "admin"});
    done(scene, "POST /api/v1/users", left).await;
    let of_left = json!({"name": "k", "role": "admin", "tenant": "acme", "user": "left"});
    found.push(("one of a disabled member", minted(scene, of_left).await.1));
    done(scene, "PATCH /api/v1/users/left?tenant=acme", disable.clone()).await;

    found.push(("a session that is over", sign_in::signed_out(scene, "gone").await));
    let (token, _) = sign_in::signed_in(scene, "locked", "operator").await;
    done(scene, "PATCH /api/v1/users/locked?tenant=acme", disable).await;
    found.push(("a session of a disabled member", token));
    found
        .into_iter()
        .map(|(what, key)| (what, key, Worth::Nothing))
        .collect()
}

/// A path with something for its variables that is not there.
fn filled(path: &str) -> String {
    ["{*id}", "{id}", "{endpoint}", "{*path}"]
        .iter()
        .fold(path.to_owned(), |path, variable| {
            path.replace(variable, "nothing")
        })
}

fn judge(answer: &Answer, open: Open, worth: Worth) -> Result<(), String> {
    let told = answer.status;
    // Callers of Messages are told no code.
    let says = |code: &str| {
        answer.json()["error"]["code"]
            .as_str()
            .is_none_or(|told| told == code)
    };
    let expected = match (open.lets_in(worth), worth) {
        (true, _) => ![401, 403].contains(&told),
        (false, _) if open == Open::Cookie => told == 401 && says("invalid_api_key"),
        (false, Worth::Nothing) => told == 401 && says("invalid_api_key"),
        (false, _) => told == 403 && says("insufficient_scope"),
    };
    if expected {
        Ok(())
    } else {
        Err(format!("{open:?} answered {told}: {}", answer.body))
    }
}

#[tokio::test]
async fn every_path_lets_in_whom_it_is_open_to_and_nobody_else() {
    let scene = Scene::with(|config| {
        sign_in::settings(config);
        config.admin_token = Some(Secret::new(ADMIN_TOKEN.to_owned()));
        config.grant_dispatch_token = Some(Secret::new(DISPATCH.to_owned()));
    })
    .await;
    let mut credentials = good(&scene).await;
    credentials.extend(bad(&scene).await);

    let mut wrong = Vec::new();
    for (method, path, open) in MATRIX {
        for (what, key, worth) in &credentials {
            let body = if *method == "GET" { "" } else { "{}" };
            let answer = scene.call(&format!("{method} {}", filled(path)), key, body).await;
            if let Err(problem) = judge(&answer, *open, *worth) {
                wrong.push(format!("{method} {path} with {what}: {problem}"));
            }
        }
    }

    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_path_of_the_router_stands_in_the_matrix_and_no_other() {
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    let mut config = gateway::Config::new(
        address,
        schemas::id::NodeId::from("n1"),
        Secret::new(b"secret".to_vec()),
    );
    let expected: BTreeMap<(&str, &str), Open> = MATRIX
        .iter()
        .map(|(method, path, open)| ((*path, *method), *open))
        .collect();
    let listed = |routes: Vec<gateway::routes::Listed>| -> BTreeSet<(&str, &str)> {
        routes.iter().map(|route| (route.path, route.method)).collect()
    };

    let together = listed(gateway::routes::of_main(&config));
    config.admin_listen = Some(address);
    let (main, admin) = (
        listed(gateway::routes::of_main(&config)),
        listed(gateway::routes::of_admin()),
    );

    assert_eq!(together, expected.keys().copied().collect());
    assert_eq!(&main | &admin, together);
    // Where management has a listener of its own, none of it is on the other.
    let roots = ["/api/", "/admin/", "/user/", "/auth/", "/internal/"];
    let managed = |(path, _): &(&str, &str)| {
        let is_call = path.starts_with("/api/v1/proxy/");
        *path == "/metrics" || !is_call && roots.iter().any(|root| path.starts_with(root))
    };
    assert_eq!(main.iter().find(|route| managed(route)), None);
}
