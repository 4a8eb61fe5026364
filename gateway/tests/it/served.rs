//! Endpoints, routes, models and prices that are made while a gateway runs: whose calls reach them, who may touch them,
//! and what calls are billed by.

use std::collections::BTreeMap;

use schemas::money::NanoUsd;
use serde_json::{Value, json};

use crate::scene::{ADMIN, Answer, CALLER, OPERATOR, Scene};
use crate::script::{Step, begin, chunk, end, head, report, whole};
use schemas::outcome::Outcome;

mod made_once;
mod pools;

const BODY: &str = r#"{"id":"x"}"#;

async fn done(scene: &Scene, line: &str, key: &str, body: Value) -> Value {
    let text = if body.is_null() {
        String::new()
    } else {
        body.to_string()
    };
    let answer = scene.call(line, key, &text).await;
    assert!(answer.status < 300, "{line} {body}: {answer:?}");
    answer.json()
}

/// A status, and the field that is named.
async fn refused(scene: &Scene, line: &str, key: &str, body: Value) -> (u16, String) {
    let answer = scene.call(line, key, &body.to_string()).await;
    assert!(answer.status >= 400, "{line} {body}: {answer:?}");
    let param = answer.json()["error"]["param"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    (answer.status, param)
}

/// A tenant beside `acme`, and the key of an administrator of it.
async fn beta(scene: &Scene) -> String {
    done(scene, "POST /api/v1/tenants", OPERATOR, json!({"id": "beta"})).await;
    let body = json!({"name": "admin", "tenant": "beta", "role": "admin"});
    let made = done(scene, "POST /api/v1/tenant/api-keys", OPERATOR, body).await;
    made["key"].as_str().expect("a key").to_owned()
}

fn upstream(name: &str) -> Value {
    json!({"name": name, "kind": "vllm", "backends": [{"url": format!("http://{name}.example:8000")}]})
}

fn text(value: &Value, field: &str) -> String {
    value[field].as_str().expect("a text").to_owned()
}

/// Calls a model; gives the status and the endpoints that the router was offered.
async fn reached(scene: &Scene, key: &str, model: &str) -> (u16, Vec<String>) {
    let before = scene.script.told().dispatched.len();
    scene.script.push(whole(BODY));
    let body = json!({"model": model, "messages": [{"role": "user", "content": "hi"}]});
    let answer = scene
        .call("POST /v1/chat/completions", key, &body.to_string())
        .await;
    let told = scene.script.told();
    let offered = told.dispatched.get(before).map(|dispatch| {
        let candidates = dispatch.offer.candidates.iter();
        candidates.map(ToString::to_string).collect()
    });
    if offered.is_none() {
        // What was scripted is for the next one.
        drop(told);
        scene.script.clear();
    }
    (answer.status, offered.unwrap_or_default())
}

fn shown_alike(one: &Answer, other: &Answer) -> bool {
    let plain = |answer: &Answer| {
        let mut error = answer.json();
        error["error"]["request_id"] = Value::Null;
        (answer.status, error)
    };
    plain(one) == plain(other)
}

#[tokio::test]
async fn an_endpoint_of_a_tenant_serves_its_callers_and_nobody_else() {
    let scene = Scene::new().await;
    let beta = beta(&scene).await;
    let made = done(&scene, "POST /api/v1/endpoints", ADMIN, upstream("own")).await;
    let id = text(&made, "id");

    assert_eq!(made["tenant"], "acme");
    assert_eq!(made["credential"], Value::Null);
    assert_eq!(reached(&scene, CALLER, "own").await, (200, vec![id.clone()]));
    assert_eq!(reached(&scene, &beta, "own").await.0, 404);
    let listed = done(&scene, "GET /v1/models", CALLER, Value::Null)
        .await
        .to_string();
    assert!(listed.contains("\"own\""));
    let listed = done(&scene, "GET /v1/models", &beta, Value::Null)
        .await
        .to_string();
    assert!(!listed.contains("\"own\""));
    let routes = done(&scene, "GET /api/v1/model-routes", ADMIN, Value::Null).await;
    let route = &routes["data"][0];
    assert_eq!(
        (
            &route["model"],
            &route["endpoint"],
            &route["priority"],
            &route["weight"]
        ),
        (&json!("own"), &json!(id), &json!(0), &json!(100))
    );

    let gone = format!("DELETE /api/v1/endpoints/{id}");
    done(&scene, &gone, ADMIN, Value::Null).await;
    assert_eq!(reached(&scene, CALLER, "own").await.0, 404);
    let routes = done(&scene, "GET /api/v1/model-routes", ADMIN, Value::Null).await;
    assert_eq!(routes["data"], json!([]));
    assert_eq!(scene.call(&gone, ADMIN, "").await.status, 404);
}

#[tokio::test]
async fn what_belongs_to_another_tenant_answers_as_if_it_were_not_there() {
    let scene = Scene::new().await;
    let beta = beta(&scene).await;
    let endpoint = text(
        &done(&scene, "POST /api/v1/endpoints", &beta, upstream("theirs")).await,
        "id",
    );
    let routes = done(&scene, "GET /api/v1/model-routes", &beta, Value::Null).await;
    let route = text(&routes["data"][0], "id");
    let price = json!({"model": "theirs", "tenant": "beta", "pricing": {"prompt": "1"}});
    let price = text(&done(&scene, "POST /api/v1/prices", OPERATOR, price).await, "id");

    for (methods, base, id) in [
        (&["GET", "PATCH", "DELETE"][..], "endpoints", &endpoint),
        (&["GET", "PATCH", "DELETE"], "model-routes", &route),
        (&["GET"], "prices", &price),
    ] {
        for method in methods {
            let line = |id: &str| format!("{method} /api/v1/{base}/{id}");
            let of_other = scene.call(&line(id), ADMIN, "{}").await;
            let of_none = scene.call(&line("nothing"), ADMIN, "{}").await;
            assert_eq!(of_other.status, 404, "{method} {base}");
            assert!(shown_alike(&of_other, &of_none), "{of_other:?} {of_none:?}");
        }
        let listed = done(&scene, &format!("GET /api/v1/{base}"), ADMIN, Value::Null).await;
        assert_eq!(listed["data"], json!([]), "{base}");
    }
    // Neither does a route lead there, by id or by name, and both refusals are the same.
    let mut told = Vec::new();
    for named in [&*endpoint, "theirs", "nothing"] {
        let body = json!({"model": "x", "endpoint": named}).to_string();
        told.push(scene.call("POST /api/v1/model-routes", ADMIN, &body).await);
    }
    assert_eq!(told[0].status, 400);
    assert!(shown_alike(&told[0], &told[2]) && shown_alike(&told[1], &told[2]));
}

#[tokio::test]
async fn a_tenant_takes_no_name_of_the_operators_and_no_place_before_them() {
    let scene = Scene::new().await;
    let own = text(
        &done(&scene, "POST /api/v1/endpoints", ADMIN, upstream("own")).await,
        "id",
    );
    let route = |more: Value| {
        let mut body = json!({"model": "another", "endpoint": own});
        body.as_object_mut()
            .expect("an object")
            .extend(more.as_object().expect("an object").clone());
        body
    };
    let line = "POST /api/v1/model-routes";

    assert_eq!(
        refused(&scene, line, ADMIN, route(json!({"model": "m"}))).await,
        (400, "model".into())
    );
    assert_eq!(
        refused(&scene, line, ADMIN, route(json!({"model": "m-latest"}))).await,
        (400, "model".into())
    );
    assert_eq!(
        refused(&scene, line, ADMIN, route(json!({"priority": -1}))).await,
        (403, "priority".into())
    );
    assert_eq!(
        refused(&scene, line, ADMIN, route(json!({"pool": "gpu"}))).await,
        (403, "pool".into())
    );
    assert_eq!(
        refused(&scene, line, ADMIN, route(json!({"tenant": "default"}))).await,
        (403, "tenant".into())
    );
    assert_eq!(
        refused(&scene, line, ADMIN, route(json!({"colour": 1}))).await,
        (400, "colour".into())
    );
    assert_eq!(
        refused(&scene, "POST /api/v1/endpoints", ADMIN, upstream("m")).await,
        (400, "model".into())
    );
    let mut apart = upstream("apart");
    apart["pool"] = json!("gpu");
    let told = refused(&scene, "POST /api/v1/endpoints", ADMIN, apart).await;
    assert_eq!(told, (403, "pool".into()));
    for reference in [json!({"env": "SOME_KEY"}), json!({"file": "/etc/key"})] {
        let mut body = upstream("with");
        body["credential"] = reference;
        let told = refused(&scene, "POST /api/v1/endpoints", ADMIN, body).await;
        assert_eq!(told, (403, "credential".into()));
    }
    let made = done(&scene, line, ADMIN, route(json!({"weight": 20}))).await;
    assert_eq!(made["weight"], 20);
    let listed = done(&scene, "GET /api/v1/endpoints", ADMIN, Value::Null).await;
    assert_eq!(
        listed["data"].as_array().map(Vec::len),
        Some(1),
        "nothing of what was refused"
    );
}

#[tokio::test]
async fn an_operator_serves_a_tenant_from_his_own_and_the_tenant_cannot_turn_it() {
    let scene = Scene::new().await;
    let shared = text(
        &done(&scene, "POST /api/v1/endpoints", OPERATOR, upstream("big")).await,
        "id",
    );
    assert_eq!(
        reached(&scene, CALLER, "big").await.0,
        404,
        "it is of `default` alone"
    );
    let body = json!({"model": "big", "endpoint": shared, "tenant": "acme"});
    let route = text(
        &done(&scene, "POST /api/v1/model-routes", OPERATOR, body).await,
        "id",
    );

    assert_eq!(reached(&scene, CALLER, "big").await, (200, vec![shared.clone()]));
    let line = format!("PATCH /api/v1/model-routes/{route}");
    assert_eq!(
        refused(&scene, &line, ADMIN, json!({"weight": 1})).await,
        (403, "id".into())
    );
    let own = text(
        &done(&scene, "POST /api/v1/endpoints", ADMIN, upstream("own")).await,
        "id",
    );
    let routes = done(&scene, "GET /api/v1/model-routes", ADMIN, Value::Null).await;
    let mine = routes["data"].as_array().expect("a list").iter();
    let mine = mine
        .clone()
        .find(|route| route["endpoint"] == json!(own))
        .expect("there");
    let line = format!("PATCH /api/v1/model-routes/{}", text(mine, "id"));
    assert_eq!(
        refused(&scene, &line, ADMIN, json!({"endpoint": shared})).await,
        (400, "endpoint".into())
    );
    // Shared with everybody, the operators' own counts.
    done(
        &scene,
        "PATCH /api/v1/models/big",
        OPERATOR,
        json!({"tenants": null}),
    )
    .await;
    let beta = beta(&scene).await;
    assert_eq!(reached(&scene, &beta, "big").await, (200, vec![shared]));
}

#[tokio::test]
async fn what_is_said_of_a_model_of_a_file_is_dropped_again() {
    let scene = Scene::new().await;
    let line = "PATCH /api/v1/models/m";
    let shown = done(
        &scene,
        line,
        OPERATOR,
        json!({"enabled": false, "required_role": "pro"}),
    )
    .await;
    assert_eq!(
        (&shown["enabled"], &shown["required_role"]),
        (&json!(false), &json!("pro"))
    );
    assert_eq!(reached(&scene, CALLER, "m").await.0, 404);
    assert_eq!(reached(&scene, CALLER, "m-latest").await.0, 404);
    done(&scene, line, OPERATOR, json!({"enabled": true})).await;
    assert_eq!(reached(&scene, CALLER, "m").await.0, 404, "his role is lower");
    assert_eq!(reached(&scene, ADMIN, "m").await.0, 200);
    assert_eq!(
        refused(&scene, line, OPERATOR, json!({"tenants": ["nobody"]})).await,
        (400, "tenants".into())
    );
    let history = done(&scene, "GET /api/v1/models/m/history", OPERATOR, Value::Null).await;
    assert_eq!(history["data"].as_array().map(Vec::len), Some(2));

    let dropped = done(&scene, "DELETE /api/v1/models/m/overlay", OPERATOR, Value::Null).await;
    assert_eq!(
        (&dropped["overlay"], &dropped["required_role"]),
        (&Value::Null, &json!("free"))
    );
    assert_eq!(reached(&scene, CALLER, "m").await.0, 200);
    assert_eq!(
        scene
            .call("DELETE /api/v1/models/m/overlay", OPERATOR, "")
            .await
            .status,
        404
    );
}

#[tokio::test]
async fn a_call_is_billed_by_the_price_at_its_admission_whatever_becomes_of_prices() {
    let scene = Scene::new().await;
    let price = |prompt: &str, from: Option<&str>| {
        let pricing = json!({"prompt": prompt, "completion": "0"});
        json!({"model": "m", "pricing": pricing, "effective_from": from})
    };
    // One that is to come counts for nothing yet.
    done(
        &scene,
        "POST /api/v1/prices",
        OPERATOR,
        price("7", Some("2999-01-01T00:00:00Z")),
    )
    .await;
    scene.script.push(vec![
        begin(),
        chunk("data: {\"a\":1}\n\n"),
        Step::Wait(std::time::Duration::from_millis(1_500)),
        end(report(Outcome::Ok, None), "data: [DONE]\n\n", None),
    ]);
    let streaming = scene.chat(crate::scene::STREAM);
    let changing = async {
        while scene.script.told().dispatched.is_empty() {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        done(&scene, "POST /api/v1/prices", OPERATOR, price("1000", None)).await
    };
    let (answer, made) = tokio::join!(streaming, changing);
    assert_eq!(answer.status, 200);
    // Nine tokens in, twenty out: by the file's price two and eight dollars a million.
    let before = scene.rows(1).await.remove(0);
    assert_eq!(before.cost_nano_usd, NanoUsd(178_000));

    assert_eq!(reached(&scene, CALLER, "m").await.0, 200);
    let after = scene.rows(2).await.remove(1);
    assert_eq!(after.cost_nano_usd, NanoUsd(9_000_000));
    assert!(after.price_version.0.contains('@'));
    assert_ne!(after.price_version, before.price_version);
    let listed = done(&scene, "GET /v1/models/m", CALLER, Value::Null).await;
    assert_eq!(listed["pricing"]["prompt"], "1000");

    let line = format!("DELETE /api/v1/prices/{}", text(&made, "id"));
    done(&scene, &line, OPERATOR, Value::Null).await;
    assert_eq!(reached(&scene, CALLER, "m").await.0, 200);
    assert_eq!(scene.rows(3).await[2].cost_nano_usd, NanoUsd(178_000));
}

#[tokio::test]
async fn a_leg_added_to_a_priced_model_is_billed_as_its_file_and_what_has_no_price_says_so() {
    let scene = Scene::new().await;
    let mut beside = upstream("beside");
    beside["tenant"] = json!("default");
    beside["model"] = json!("m");
    let made = done(&scene, "POST /api/v1/endpoints", OPERATOR, beside).await;
    assert_eq!(made["priced"], true, "{made}");
    let leg = json!({"model": "m", "endpoint": made["id"], "tenant": "default", "priority": -1});
    let leg = done(&scene, "POST /api/v1/model-routes", OPERATOR, leg).await;
    assert_eq!(leg["priced"], true, "{leg}");
    // The new leg serves: nine tokens in, twenty out, by the file's price.
    let mut told = report(Outcome::Ok, None);
    let served = told.served.as_mut().expect("served");
    served.endpoint_id = text(&made, "id").as_str().into();
    scene
        .script
        .push(vec![end(told, BODY, Some(head("application/json")))]);
    let body = r#"{"model":"m","messages":[{"role":"user","content":"hi"}]}"#;
    let answer = scene.call("POST /v1/chat/completions", CALLER, body).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let row = scene.rows(1).await.remove(0);
    assert_eq!((row.cost_nano_usd, row.usage_flags), (NanoUsd(178_000), vec![]));

    let own = done(&scene, "POST /api/v1/endpoints", ADMIN, upstream("own")).await;
    assert_eq!(own["priced"], false, "{own}");
    let route = json!({"model": "late", "endpoint": own["id"]});
    let made = done(&scene, "POST /api/v1/model-routes", ADMIN, route).await;
    assert_eq!(made["priced"], false, "{made}");
    let line = format!("GET /api/v1/model-routes/{}", text(&made, "id"));
    for (model, known) in [("late", true), ("lat", false)] {
        let price = json!({"model": model, "tenant": "acme", "pricing": {"prompt": "1"}});
        let price = done(&scene, "POST /api/v1/prices", OPERATOR, price).await;
        assert_eq!(price["known"], known, "{price}");
    }
    let shown = done(&scene, &line, ADMIN, Value::Null).await;
    assert_eq!(shown["priced"], true, "{shown}");
}

#[tokio::test]
async fn prices_are_exact_and_what_is_wrong_in_one_is_named() {
    let scene = Scene::new().await;
    let body = json!({
        "model": "m", "pricing": {"prompt": "0.000000001"},
        "pricing_schedule": {"windows": [{"start": "16:30", "end": "00:30", "pricing": {"prompt": "0.5"}}]}
    });
    let made = done(&scene, "POST /api/v1/prices", OPERATOR, body).await;
    assert_eq!(made["pricing"]["prompt"], "0.000000001");
    assert_eq!(made["pricing_schedule"]["windows"][0]["start"], "16:30");
    for (body, field) in [
        (json!({"model": "m", "pricing": {}}), "pricing"),
        (json!({"model": "m", "pricing": {"promt": "1"}}), "pricing"),
        (json!({"model": "m", "pricing": {"prompt": "-1"}}), "pricing"),
        (
            json!({"model": "m", "pricing": {"prompt": "0.0000000001"}}),
            "pricing",
        ),
        (json!({"model": "m-latest", "pricing": {"prompt": "1"}}), "model"),
        (
            json!({"model": "m", "endpoint": "e", "pricing": {"prompt": "1"}}),
            "endpoint",
        ),
        (
            json!({"model": "m", "pricing": {"prompt": "1"}, "pricing_schedule": {"windows": []}}),
            "pricing_schedule.windows",
        ),
    ] {
        let told = refused(&scene, "POST /api/v1/prices", OPERATOR, body.clone()).await;
        assert_eq!(told, (400, field.into()), "{body}");
    }
    let told = refused(&scene, "POST /api/v1/prices", ADMIN, json!({})).await;
    assert_eq!(told.0, 403);
}

/// A sequence of numbers from a seed.
struct Draws(u64);

impl Draws {
    fn below(&mut self, count: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from((self.0 >> 33) % u64::try_from(count).unwrap_or(1)).unwrap_or(0)
    }
}

/// What a random caller of three does next: something to an endpoint or route, his own or another's.
fn step(draws: &mut Draws, ids: &[String]) -> (String, Value) {
    const NAMES: [&str; 3] = ["one", "two", "m"];
    const TENANTS: [&str; 3] = ["acme", "beta", "default"];
    let id = ids
        .get(draws.below(ids.len().max(1)))
        .map_or("nothing", String::as_str);
    let name = NAMES[draws.below(3)];
    let tenant = TENANTS[draws.below(3)];
    match draws.below(7) {
        0 => {
            let mut body = upstream(name);
            body["tenant"] = json!(tenant);
            ("POST /api/v1/endpoints".into(), body)
        }
        1 => ("POST /api/v1/endpoints".into(), upstream(name)),
        2 => {
            let body = json!({"model": name, "endpoint": id, "tenant": tenant});
            ("POST /api/v1/model-routes".into(), body)
        }
        3 => (
            "POST /api/v1/model-routes".into(),
            json!({"model": name, "endpoint": id}),
        ),
        4 => (
            format!("PATCH /api/v1/model-routes/{id}"),
            json!({"endpoint": ids[draws.below(ids.len())]}),
        ),
        5 => (format!("DELETE /api/v1/model-routes/{id}"), Value::Null),
        _ => (format!("DELETE /api/v1/endpoints/{id}"), Value::Null),
    }
}

#[tokio::test]
async fn no_sequence_of_calls_lets_a_tenant_reach_what_another_made() {
    let scene = Scene::new().await;
    let beta = beta(&scene).await;
    let mut draws = Draws(7);
    // Whose each endpoint is, as its maker was told.
    let mut owners: BTreeMap<String, String> = BTreeMap::new();
    let mut ids = vec!["m:o1".to_owned()];
    let mut made = 0;
    let mut served = 0;
    for _ in 0..150 {
        let key = [ADMIN, &beta, ADMIN, &beta, CALLER, OPERATOR][draws.below(6)];
        let (line, body) = step(&mut draws, &ids);
        let text = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        let answer = scene.call(&line, key, &text).await;
        assert!(answer.status < 500, "{line} {body}: {answer:?}");
        if answer.status == 201 {
            made += 1;
            let told = answer.json();
            let id = told["id"].as_str().expect("an id").to_owned();
            if line.ends_with("endpoints") {
                owners.insert(id.clone(), told["tenant"].as_str().expect("a tenant").to_owned());
            }
            ids.push(id);
        }
        for (key, tenant) in [(CALLER, "acme"), (&*beta, "beta")] {
            for model in ["one", "two"] {
                let (status, offered) = reached(&scene, key, model).await;
                assert!([200, 404].contains(&status), "{status}");
                served += offered.len();
                for endpoint in offered {
                    let owner = owners.get(&endpoint).map_or("default", String::as_str);
                    assert!(
                        owner == tenant || owner == "default",
                        "{tenant} reached {endpoint} of {owner} by {model} after {line}"
                    );
                }
            }
        }
    }
    assert!(made > 10 && served > 10, "nothing was tried: {made} {served}");
}

#[tokio::test]
async fn a_tenant_of_a_file_that_was_changed_is_again_as_the_file_has_it_once_that_is_dropped() {
    let scene = Scene::new().await;
    let line = |method: &str, part: &str| format!("{method} /api/v1/tenants/acme{part}");
    assert_eq!(
        scene.call(&line("DELETE", "/overlay"), OPERATOR, "").await.status,
        404
    );
    done(
        &scene,
        &line("PATCH", ""),
        OPERATOR,
        json!({"name": "Other", "disabled": true}),
    )
    .await;
    assert_eq!(scene.chat(crate::scene::PLAIN).await.status, 401);

    let back = done(&scene, &line("DELETE", "/overlay"), OPERATOR, Value::Null).await;
    assert_eq!(
        (&back["name"], &back["disabled"], &back["origin"]),
        (&Value::Null, &json!(false), &json!("file"))
    );
    scene.script.push(whole(BODY));
    assert_eq!(scene.chat(crate::scene::PLAIN).await.status, 200);
    let history = done(&scene, &line("GET", "/history"), OPERATOR, Value::Null).await;
    assert_eq!(history["data"].as_array().map(Vec::len), Some(2));
    assert_eq!(
        scene.call(&line("DELETE", "/overlay"), ADMIN, "").await.status,
        403
    );
}
