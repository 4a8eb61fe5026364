//! What is kept of a change: who made it, when, and what is different, in the record and in the log; and no secret.

use harness::{ADMIN_KEY, OPERATOR_KEY};
use serde_json::{Value, json};

use super::{audited, call, done, one_node, operator};

fn changes(history: &Value) -> &Vec<Value> {
    history["data"].as_array().expect("a list")
}

#[tokio::test]
async fn a_change_is_told_in_the_record_and_in_the_books_with_who_made_it_and_what_was_before() {
    let scene = one_node().await;
    let (operator, admin) = (operator(&scene), scene.client.with_key(ADMIN_KEY));

    let body = json!({"id": "nova", "name": "Nova", "limits": {"rpm": 5}});
    let made = done(&operator, "POST", "/api/v1/tenants", body).await;
    let change = json!({"limits": {"rpm": 6}, "disabled": true, "name": "Nova"});
    let changed = done(&operator, "PATCH", "/api/v1/tenants/nova", change.clone()).await;
    let same = done(&operator, "PATCH", "/api/v1/tenants/nova", change).await;
    assert_eq!(same, changed, "what changes nothing is no change");
    done(
        &admin,
        "POST",
        "/api/v1/users",
        json!({"id": "ann", "role": "pro"}),
    )
    .await;
    let key = done(&admin, "POST", "/api/v1/tenant/api-keys", json!({"name": "k"})).await;
    let id = key["id"].as_str().expect("an id");
    done(
        &admin,
        "DELETE",
        &format!("/api/v1/tenant/api-keys/{id}"),
        Value::Null,
    )
    .await;

    let history = done(&operator, "GET", "/api/v1/tenants/nova/history", Value::Null).await;
    let [newest, first] = changes(&history).as_slice() else {
        panic!("two changes: {history}");
    };
    assert_eq!(
        newest["fields"],
        json!({
            "disabled": {"from": false, "to": true},
            "limits": {"from": {"rpm": 5}, "to": {"rpm": 6}},
        })
    );
    assert_eq!(
        (&newest["replaced"], &first["replaced"]),
        (&made["revision"], &Value::Null)
    );
    assert_eq!(newest["actor"]["key_name"], "operator");
    assert_eq!(first["fields"]["name"], json!({"from": null, "to": "Nova"}));
    let of_ann = done(&admin, "GET", "/api/v1/users/ann/history", Value::Null).await;
    assert_eq!(changes(&of_ann)[0]["actor"]["key_name"], "admin");

    // The change that was asked for twice is told of twice, under one id: whoever asks again may have had no answer.
    let events = audited(&scene, 6).await;
    let told: Vec<(&str, &str)> = events
        .iter()
        .map(|event| {
            let text = |field: &str| event[field].as_str().expect("a text");
            (text("kind"), text("id"))
        })
        .collect();
    let expected = [
        ("tenant", "nova"),
        ("tenant", "nova"),
        ("tenant", "nova"),
        ("user", "ann"),
        ("key", id),
        ("key", id),
    ];
    assert_eq!(told, expected);
    assert_eq!((&events[0]["change"], &events[1]["change"]), (first, newest));
    assert_eq!(events[1], events[2]);
    assert_eq!(events[1]["revision"], changed["revision"]);
    let revoked = json!({"revoked": {"from": false, "to": true}});
    assert_eq!(events[5]["change"]["fields"], revoked);
    let secret = key["key"].as_str().expect("a key");
    let all = json!(events).to_string();
    assert!(!all.contains(secret) && !all.contains(OPERATOR_KEY), "{all}");
    scene.finish().await;
}

#[tokio::test]
async fn a_record_keeps_the_newest_changes_and_the_books_keep_all() {
    let scene = one_node().await;
    let operator = operator(&scene);

    for n in 0..20 {
        done(
            &operator,
            "PATCH",
            "/api/v1/tenants/zenith",
            json!({"name": format!("name {n}")}),
        )
        .await;
    }

    let history = done(&operator, "GET", "/api/v1/tenants/zenith/history", Value::Null).await;
    let names: Vec<&Value> = changes(&history)
        .iter()
        .map(|change| &change["fields"]["name"]["to"])
        .collect();
    let newest: Vec<Value> = (4..20).rev().map(|n| json!(format!("name {n}"))).collect();
    assert_eq!(names, newest.iter().collect::<Vec<_>>());
    assert_eq!(audited(&scene, 20).await.len(), 20);
    scene.finish().await;
}

#[tokio::test]
async fn what_was_removed_still_has_its_history_for_those_who_could_see_it() {
    let scene = one_node().await;
    let (operator, admin) = (operator(&scene), scene.client.with_key(ADMIN_KEY));
    let named = |record: &Value| record["id"].as_str().expect("an id").to_owned();
    let body = json!({"name": "gpu", "tenant": "acme", "backends": [{"url": "http://gpu.example"}]});
    let endpoint = named(&done(&operator, "POST", "/api/v1/endpoints", body).await);
    let endpoint = format!("/api/v1/endpoints/{endpoint}");
    done(&operator, "PATCH", &endpoint, json!({"name": "gpu-2"})).await;
    let body = json!({"model": "m", "pricing": {"prompt": "1"}});
    let price = named(&done(&operator, "POST", "/api/v1/prices", body).await);
    let price = format!("/api/v1/prices/{price}");
    let model = "/api/v1/models/m";
    done(&operator, "PATCH", model, json!({"required_role": "pro"})).await;

    for path in [&endpoint, &price, &format!("{model}/overlay")] {
        done(&operator, "DELETE", path, Value::Null).await;
    }

    let gone = |change: &Value| {
        let fields = change["fields"].as_object().expect("fields");
        !fields.is_empty() && fields.values().all(|field| field["to"].is_null())
    };
    for (path, count) in [(&*endpoint, 3), (&*price, 2), (model, 2)] {
        let history = done(&operator, "GET", &format!("{path}/history"), Value::Null).await;
        let told = changes(&history);
        assert_eq!(told.len(), count, "{path}: {history}");
        assert!(gone(&told[0]) && !gone(&told[1]), "{path}: {history}");
    }
    // What is changed again goes on from there.
    done(&operator, "PATCH", model, json!({"required_role": "internal"})).await;
    let history = done(&operator, "GET", &format!("{model}/history"), Value::Null).await;
    assert_eq!(changes(&history).len(), 3, "{history}");
    // An administrator of another tenant is told what he is told of what never was.
    let others = call(&admin, "GET", &format!("{endpoint}/history"), Value::Null).await;
    let nothing = call(&admin, "GET", "/api/v1/endpoints/ep-never/history", Value::Null).await;
    assert_eq!((others.status, nothing.status), (404, 404));
    assert_eq!(
        others.json()["error"]["message"],
        nothing.json()["error"]["message"]
    );
    scene.finish().await;
}
