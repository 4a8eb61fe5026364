//! Who changed what, told by the API: to operators all of it, to administrators what concerns their own tenant.

use harness::CALLER_KEY;
use serde_json::{Value, json};

use super::{done, minted, one_node, operator, refused, tenant, until_shown};

/// What the changes of a page are about, that of the administrator's own key left out.
fn about(page: &Value) -> Vec<(String, String, String)> {
    let changes = page["data"].as_array().expect("a list");
    let text = |change: &Value, field: &str| change[field].as_str().expect("a text").to_owned();
    changes
        .iter()
        .map(|change| (text(change, "kind"), text(change, "tenant"), text(change, "id")))
        .filter(|(kind, ..)| kind != "key")
        .collect()
}

fn one(kind: &str, tenant: &str, id: &str) -> (String, String, String) {
    (kind.to_owned(), tenant.to_owned(), id.to_owned())
}

#[tokio::test]
async fn changes_are_told_to_operators_and_to_administrators_of_their_own_tenant() {
    let scene = one_node().await;
    let operator = operator(&scene);
    let key = json!({"name": "administrator", "tenant": "acme", "role": "admin"});
    let administrator = scene.client.with_key(&minted(&operator, key).await);
    tenant(&scene, "beta").await;
    for (id, of) in [("ann", "beta"), ("bob", "acme")] {
        done(
            &operator,
            "POST",
            "/api/v1/users",
            json!({"tenant": of, "id": id}),
        )
        .await;
    }
    let disabled = json!({"disabled": true});
    done(&operator, "PATCH", "/api/v1/users/bob?tenant=acme", disabled).await;
    let expected = [
        one("user", "acme", "bob"),
        one("user", "acme", "bob"),
        one("user", "beta", "ann"),
        one("tenant", "beta", "beta"),
    ];

    let four = |page: &Value| about(page).len() >= 4;
    let all = until_shown(&operator, "/api/v1/audit", four).await;
    assert_eq!(about(&all), expected);
    let newest = &all["data"][0]["change"];
    assert_eq!(newest["fields"]["disabled"], json!({"from": false, "to": true}));
    assert_eq!(newest["actor"]["tenant"], "default");

    let of = async |query: &str| {
        let path = format!("/api/v1/audit?{query}");
        about(&done(&operator, "GET", &path, Value::Null).await)
    };
    assert_eq!(of("kind=tenant").await, [one("tenant", "beta", "beta")]);
    assert_eq!(of("tenant=acme&id=bob").await, expected[..2]);
    assert_eq!(of("actor=nobody").await, []);
    let first = done(&operator, "GET", "/api/v1/audit?limit=3", Value::Null).await;
    let next = first["next"].as_str().expect("a place");
    assert_eq!(of(&format!("limit=3&after={next}")).await, expected[3..]);

    let seen = done(&administrator, "GET", "/admin/audit-log", Value::Null).await;
    assert_eq!(about(&seen), expected[..2]);
    refused(
        &administrator,
        ("GET", "/api/v1/audit?tenant=beta"),
        Value::Null,
        (403, "insufficient_scope", "tenant"),
    )
    .await;
    let member = scene.client.with_key(CALLER_KEY);
    refused(
        &member,
        ("GET", "/api/v1/audit"),
        Value::Null,
        (403, "insufficient_scope", ""),
    )
    .await;
    scene.finish().await;
}
