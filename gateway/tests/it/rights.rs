//! What somebody may do does not grow by what he makes, removes or reads: who is let in by whom, which routes go with
//! their endpoint, and what the table of routes tells to whom.

use serde_json::{Value, json};

use crate::scene::{ADMIN, Answer, CALLER, OPERATOR, Scene};
use crate::sign_in::settings;

const PASSWORD: &str = "correct horse battery 1";

async fn call(scene: &Scene, line: &str, key: &str, body: Value) -> Answer {
    let body = if body.is_null() {
        String::new()
    } else {
        body.to_string()
    };
    scene.call(line, key, &body).await
}

async fn done(scene: &Scene, line: &str, key: &str, body: Value) -> Value {
    let answer = call(scene, line, key, body).await;
    assert!(answer.status < 300, "{line}: {answer:?}");
    answer.json()
}

/// A status, and the field that is named.
async fn refused(scene: &Scene, line: &str, key: &str, body: Value) -> (u16, String) {
    let answer = call(scene, line, key, body).await;
    assert!(answer.status >= 400, "{line}: {answer:?}");
    (answer.status, text(&answer.json()["error"]["param"]))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// A key of an administrator of `acme`, with this beside.
async fn administrator(scene: &Scene, more: Value) -> String {
    let mut body = json!({"name": "administrator", "tenant": "acme", "role": "admin"});
    body.as_object_mut()
        .expect("an object")
        .extend(more.as_object().expect("an object").clone());
    text(&done(scene, "POST /api/v1/tenant/api-keys", OPERATOR, body).await["key"])
}

fn member(id: &str, role: &str) -> Value {
    json!({"id": id, "email": format!("{id}@example.com"), "role": role, "password": PASSWORD})
}

/// Who is made by somebody for whom a model is disabled has it disabled as well, however he comes in.
async fn made_by_less(scene: &Scene, of_less: &str) {
    let made = done(scene, "POST /api/v1/users", of_less, member("eve", "admin")).await;
    assert_eq!(made["disabled_models"], json!(["m"]));
    done(
        scene,
        "POST /api/v1/users/eve/password-reset",
        of_less,
        Value::Null,
    )
    .await;
    let login = json!({"email": "eve@example.com", "password": PASSWORD});
    let session = text(&done(scene, "POST /auth/login", "", login).await["access_token"]);
    let enabled = json!({"disabled_models": []});
    for id in ["eve", "less"] {
        let line = format!("PATCH /api/v1/users/{id}");
        assert_eq!(refused(scene, &line, &session, enabled.clone()).await.0, 403);
    }
}

#[tokio::test]
async fn nobody_lets_others_sign_in_who_may_do_more_than_his_key() {
    let scene = Scene::with(settings).await;
    done(&scene, "POST /api/v1/users", ADMIN, member("boss", "admin")).await;
    done(&scene, "POST /api/v1/users", ADMIN, member("ann", "free")).await;
    done(&scene, "POST /api/v1/users", ADMIN, member("out", "free")).await;
    done(
        &scene,
        "PATCH /api/v1/users/out",
        ADMIN,
        json!({"disabled": true}),
    )
    .await;
    // Somebody for whom a model is disabled, and nothing else.
    let less = json!({"id": "less", "role": "admin"});
    done(&scene, "POST /api/v1/users", ADMIN, less).await;
    let of_less = administrator(&scene, json!({"user": "less"})).await;
    let disabled = json!({"disabled_models": ["m"]});
    done(&scene, "PATCH /api/v1/users/less", ADMIN, disabled).await;
    let of_model = administrator(&scene, json!({"models": ["m"]})).await;
    let of_hour = administrator(&scene, json!({"expires_at": "2100-01-01T00:00:00Z"})).await;

    // What has lost something itself changes nobody of its own role; what is another's is told by its field.
    for (key, of_boss) in [(&of_model, "id"), (&of_hour, "id"), (&of_less, "email")] {
        for (line, body, param) in [
            ("POST /api/v1/users/boss/password-reset", Value::Null, "id"),
            (
                "PATCH /api/v1/users/boss",
                json!({"email": "me@example.com"}),
                of_boss,
            ),
            ("PATCH /api/v1/users/ann", json!({"role": "admin"}), "role"),
            ("PATCH /api/v1/users/out", json!({"disabled": false}), "disabled"),
        ] {
            assert_eq!(
                refused(&scene, line, key, body).await,
                (403, param.into()),
                "{line}"
            );
        }
        // What lets nobody in is theirs to change.
        done(&scene, "PATCH /api/v1/users/ann", key, json!({"name": "Ann"})).await;
    }
    for key in [&of_model, &of_hour] {
        let made = refused(&scene, "POST /api/v1/users", key, member("mallory", "admin")).await;
        assert_eq!(made, (403, "email".into()));
        let login = json!({"email": "mallory@example.com", "password": PASSWORD});
        assert_eq!(call(&scene, "POST /auth/login", "", login).await.status, 401);
    }
    made_by_less(&scene, &of_less).await;
    // Whoever may do everything still lets in whom he will.
    done(
        &scene,
        "POST /api/v1/users/boss/password-reset",
        ADMIN,
        Value::Null,
    )
    .await;
    done(
        &scene,
        "PATCH /api/v1/users/out",
        ADMIN,
        json!({"disabled": false}),
    )
    .await;
}

#[tokio::test]
async fn a_key_that_lost_something_shuts_nobody_out_who_has_its_role() {
    let scene = Scene::new().await;
    let boss = json!({"id": "boss", "role": "admin"});
    done(&scene, "POST /api/v1/users", ADMIN, boss).await;
    done(&scene, "POST /api/v1/users", ADMIN, json!({"id": "ann"})).await;
    let whole = administrator(&scene, json!({"user": "boss"})).await;
    let of_model = administrator(&scene, json!({"user": "boss", "models": ["m"]})).await;
    let of_hour = administrator(
        &scene,
        json!({"user": "boss", "expires_at": "2100-01-01T00:00:00Z"}),
    )
    .await;
    let line = "PATCH /api/v1/users/boss";

    for key in [&of_model, &of_hour] {
        for change in [
            json!({"role": "free"}),
            json!({"disabled": true}),
            json!({"limits": {"rpm": 1}}),
            json!({"disabled_models": ["m"]}),
            json!({"name": "nobody"}),
        ] {
            let told = refused(&scene, line, key, change.clone()).await;
            assert_eq!(told, (403, "id".into()), "{change}");
        }
        done(
            &scene,
            "PATCH /api/v1/users/ann",
            key,
            json!({"limits": {"rpm": 5}}),
        )
        .await;
    }
    done(&scene, line, &whole, json!({"name": "Boss"})).await;
}

#[tokio::test]
async fn nobody_disables_himself_with_a_key_of_nobodys_that_he_made() {
    let scene = Scene::new().await;
    for id in ["boss", "ann"] {
        done(
            &scene,
            "POST /api/v1/users",
            ADMIN,
            json!({"id": id, "role": "admin"}),
        )
        .await;
    }
    let whole = administrator(&scene, json!({"user": "boss"})).await;
    let spare = json!({"name": "spare", "role": "admin"});
    let spare = text(&done(&scene, "POST /api/v1/tenant/api-keys", &whole, spare).await["key"]);

    for key in [&whole, &spare] {
        let disabled = json!({"disabled": true});
        let told = refused(&scene, "PATCH /api/v1/users/boss", key, disabled.clone()).await;
        assert_eq!(told, (400, "disabled".into()));
        done(&scene, "PATCH /api/v1/users/ann", key, disabled).await;
    }
}

#[tokio::test]
async fn an_endpoint_takes_no_route_with_it_that_is_not_the_callers_to_remove() {
    let scene = Scene::new().await;
    let of_default = json!({"name": "administrator", "tenant": "default", "role": "admin"});
    let minted = done(&scene, "POST /api/v1/tenant/api-keys", OPERATOR, of_default).await;
    let of_default = text(&minted["key"]);

    for (key, tenant, priority) in [(&*of_default, "default", 0), (ADMIN, "acme", -1)] {
        let name = format!("of-{tenant}");
        let upstream =
            json!({"name": name, "kind": "vllm", "backends": [{"url": "http://own.example:8000"}]});
        let endpoint = text(&done(&scene, "POST /api/v1/endpoints", key, upstream).await["id"]);
        let route = json!({"model": "theirs", "endpoint": endpoint, "tenant": "acme", "priority": priority});
        let route = text(&done(&scene, "POST /api/v1/model-routes", OPERATOR, route).await["id"]);
        let remove = format!("DELETE /api/v1/endpoints/{endpoint}");
        let show = format!("GET /api/v1/model-routes/{route}");

        let answer = call(&scene, &remove, key, Value::Null).await;
        assert_eq!(
            (answer.status, answer.code()),
            (403, "insufficient_scope".to_owned())
        );
        assert!(
            !answer.body.contains(&route) && !answer.body.contains("theirs"),
            "{answer:?}"
        );
        done(&scene, &show, OPERATOR, Value::Null).await;
        // Not even its own route went.
        let routes = done(&scene, "GET /api/v1/model-routes", key, Value::Null)
            .await
            .to_string();
        assert!(routes.contains(&format!("\"{name}\"")), "{routes}");

        done(
            &scene,
            &format!("DELETE /api/v1/model-routes/{route}"),
            OPERATOR,
            Value::Null,
        )
        .await;
        done(&scene, &remove, key, Value::Null).await;
    }
}

#[tokio::test]
async fn public_routing_tells_everybody_of_what_he_sees_in_the_listing() {
    let scene = Scene::new().await;
    let sharing = json!({"tenants": ["acme"]});
    done(&scene, "PATCH /api/v1/models/vectors", OPERATOR, sharing).await;
    let public = json!({"value": true});
    done(&scene, "PUT /admin/settings/public_routing", OPERATOR, public).await;

    for (key, told) in [
        ("", &["m"][..]),
        (CALLER, &["m", "vectors"]),
        (OPERATOR, &["m", "org/staff", "vectors"]),
    ] {
        let routing = done(&scene, "GET /routing", key, Value::Null).await;
        let routes = routing["routes"].as_object().expect("routes");
        assert_eq!(routes.keys().collect::<Vec<_>>(), told);
    }
}

/// The status of the one model that asks for a role.
async fn staff(scene: &Scene, key: &str) -> u16 {
    call(scene, "GET /v1/models/org/staff", key, Value::Null)
        .await
        .status
}

#[tokio::test]
async fn a_model_asks_for_roles_that_operators_granted() {
    let scene = Scene::new().await;
    let keys = "POST /api/v1/tenant/api-keys";
    let internal = json!({"name": "k", "tenant": "acme", "role": "internal"});
    let of_tenant = text(&done(&scene, keys, ADMIN, internal.clone()).await["key"]);
    let of_operator = text(&done(&scene, keys, OPERATOR, internal).await["key"]);
    assert_eq!(
        (staff(&scene, &of_tenant).await, staff(&scene, &of_operator).await),
        (404, 200)
    );

    done(
        &scene,
        "POST /api/v1/users",
        ADMIN,
        json!({"id": "ann", "role": "internal"}),
    )
    .await;
    let of_ann = json!({"name": "k", "user": "ann", "role": "internal"});
    let of_ann = text(&done(&scene, keys, ADMIN, of_ann).await["key"]);
    assert_eq!(staff(&scene, &of_ann).await, 404);
    let ann = "PATCH /api/v1/users/ann?tenant=acme";
    done(&scene, ann, OPERATOR, json!({"role": "internal"})).await;
    assert_eq!(staff(&scene, &of_ann).await, 200);
    // What an operator granted is the most that counts, however others turn it.
    done(&scene, ann, ADMIN, json!({"role": "free"})).await;
    assert_eq!(staff(&scene, &of_ann).await, 404);
    done(&scene, ann, ADMIN, json!({"role": "internal"})).await;
    assert_eq!(staff(&scene, &of_ann).await, 200);
    done(&scene, ann, OPERATOR, json!({"role": "pro"})).await;
    done(&scene, ann, ADMIN, json!({"role": "internal"})).await;
    assert_eq!(staff(&scene, &of_ann).await, 404);
}

#[tokio::test]
async fn a_key_that_is_nobodys_is_lowered_with_who_made_it_until_another_takes_it_over() {
    let scene = Scene::new().await;
    done(
        &scene,
        "POST /api/v1/users",
        OPERATOR,
        json!({"tenant": "acme", "id": "ann", "role": "admin"}),
    )
    .await;
    let of_ann = administrator(&scene, json!({"user": "ann"})).await;
    let admin = json!({"name": "robot", "role": "admin"});
    let robot = done(&scene, "POST /api/v1/tenant/api-keys", &of_ann, admin.clone()).await;
    let key = text(&robot["key"]);
    // What it makes is bound to her as well.
    let made = text(&done(&scene, "POST /api/v1/tenant/api-keys", &key, admin).await["key"]);
    let administers = |key: String| {
        let scene = &scene;
        async move { call(scene, "GET /api/v1/users", &key, Value::Null).await.status }
    };
    assert_eq!(
        (administers(key.clone()).await, administers(made.clone()).await),
        (200, 200)
    );

    let ann = "PATCH /api/v1/users/ann?tenant=acme";
    done(&scene, ann, OPERATOR, json!({"role": "free"})).await;
    assert_eq!(
        (administers(key.clone()).await, administers(made.clone()).await),
        (403, 403)
    );
    assert_eq!(
        call(&scene, "GET /v1/models/m", &key, Value::Null).await.status,
        200
    );
    done(&scene, ann, OPERATOR, json!({"role": "admin", "disabled": true})).await;
    assert_eq!(
        (administers(key.clone()).await, administers(of_ann).await),
        (403, 401)
    );
    assert_eq!(
        call(&scene, "GET /v1/models/m", &key, Value::Null).await.status,
        200
    );

    let line = format!("POST /api/v1/tenant/api-keys/{}/rotate", text(&robot["id"]));
    let taken = text(&done(&scene, &line, ADMIN, Value::Null).await["key"]);
    assert_eq!((administers(taken).await, administers(key).await), (200, 401));
}

#[tokio::test]
async fn nobody_has_the_letters_of_a_member_sent_elsewhere_who_may_do_more_than_he() {
    let scene = Scene::new().await;
    let vip = json!({"tenant": "acme", "id": "vip", "role": "internal", "email": "vip@example.com"});
    done(&scene, "POST /api/v1/users", OPERATOR, vip).await;
    let new = json!({"tenant": "acme", "id": "new", "email": "new@example.com"});
    done(&scene, "POST /api/v1/users", OPERATOR, new).await;
    // What an administrator of a tenant gives counts for nothing beyond it; what an operator gave the other does.
    let of_tenant = administrator(&scene, json!({})).await;
    let low = json!({"id": "low", "role": "admin"});
    done(&scene, "POST /api/v1/users", &of_tenant, low).await;
    let key = json!({"name": "low", "user": "low", "role": "admin"});
    let low = text(&done(&scene, "POST /api/v1/tenant/api-keys", &of_tenant, key).await["key"]);
    let elsewhere = json!({"email": "somebody@elsewhere.example"});

    let told = refused(&scene, "PATCH /api/v1/users/vip", &low, elsewhere.clone()).await;
    assert_eq!(told, (403, "email".to_owned()));
    let one = done(&scene, "GET /api/v1/users/vip", &low, Value::Null).await;
    assert_eq!(one["email"], "vip@example.com");

    done(&scene, "PATCH /api/v1/users/new", &low, elsewhere.clone()).await;
    let theirs = json!({"email": "vip@elsewhere.example"});
    done(&scene, "PATCH /api/v1/users/vip?tenant=acme", OPERATOR, theirs).await;
}

#[tokio::test]
async fn the_callers_of_a_tenant_have_so_many_trials_within_a_minute() {
    let scene = Scene::new().await;
    let upstream = json!({"name": "e", "kind": "vllm", "backends": [{"url": "http://own.example:8000"}]});
    let endpoint = text(&done(&scene, "POST /api/v1/endpoints", ADMIN, upstream).await["id"]);
    let line = format!("POST /api/v1/endpoints/{endpoint}/test");
    for _ in 0..30 {
        let told = done(&scene, &line, ADMIN, Value::Null).await;
        assert_eq!(told["ok"], false, "there is no router: {told}");
    }

    let more = call(&scene, &line, ADMIN, Value::Null).await;

    assert_eq!((more.status, more.code()), (429, "too_many_attempts".to_owned()));
    assert!(more.header("retry-after").is_some(), "{more:?}");
    // Who asks for another tenant is another.
    assert_eq!(call(&scene, &line, OPERATOR, Value::Null).await.status, 200);
}

#[tokio::test]
async fn a_secret_that_somebody_was_shown_while_its_member_was_low_does_not_rise_with_the_member() {
    let scene = Scene::new().await;
    let keys = "POST /api/v1/tenant/api-keys";
    let ann = json!({"tenant": "acme", "id": "ann", "role": "internal"});
    done(&scene, "POST /api/v1/users", OPERATOR, ann).await;
    let of_ann = json!({"name": "ann's", "tenant": "acme", "user": "ann", "role": "internal"});
    let of_ann = text(&done(&scene, keys, OPERATOR, of_ann).await["id"]);
    // What an administrator of a tenant gives counts for nothing beyond it.
    let of_tenant = administrator(&scene, json!({})).await;
    let low = json!({"name": "low", "role": "admin"});
    let low = text(&done(&scene, keys, &of_tenant, low).await["key"]);

    let rotate = format!("{keys}/{of_ann}/rotate");
    let raise = "PATCH /api/v1/users/ann?tenant=acme";
    assert_eq!(
        refused(&scene, &rotate, &low, Value::Null).await,
        (403, "role".into())
    );
    done(&scene, raise, OPERATOR, json!({"role": "free"})).await;
    let rotated = text(&done(&scene, &rotate, &low, Value::Null).await["key"]);
    // Neither does one that he makes for somebody who counts for nothing yet.
    let bea = json!({"id": "bea", "role": "internal"});
    done(&scene, "POST /api/v1/users", &low, bea).await;
    let made = json!({"name": "made", "user": "bea", "role": "internal"});
    let made = text(&done(&scene, keys, &low, made).await["key"]);
    for id in ["ann", "bea"] {
        let line = format!("PATCH /api/v1/users/{id}?tenant=acme");
        done(&scene, &line, OPERATOR, json!({"role": "internal"})).await;
    }

    assert_eq!(
        (staff(&scene, &rotated).await, staff(&scene, &made).await),
        (404, 404)
    );
    assert_eq!(
        call(&scene, "GET /v1/models/m", &rotated, Value::Null)
            .await
            .status,
        200
    );
    // Nor with what it makes, or by itself.
    done(&scene, raise, OPERATOR, json!({"role": "admin"})).await;
    let admin = json!({"name": "hers", "tenant": "acme", "user": "ann", "role": "admin"});
    let hers = done(&scene, keys, OPERATOR, admin).await;
    let rotate_hers = format!("{keys}/{}/rotate", text(&hers["id"]));
    done(&scene, raise, OPERATOR, json!({"role": "free"})).await;
    let taken = text(&done(&scene, &rotate_hers, &low, Value::Null).await["key"]);
    done(&scene, raise, OPERATOR, json!({"role": "admin"})).await;
    assert_eq!(staff(&scene, &taken).await, 404);
    let of_it = json!({"name": "of it", "role": "internal"});
    let of_it = text(&done(&scene, keys, &taken, of_it).await["key"]);
    assert_eq!(staff(&scene, &of_it).await, 404);
    let of_hers = json!({"name": "of hers", "user": "ann", "role": "internal"});
    let told = refused(&scene, keys, &taken, of_hers).await;
    assert_eq!(told, (403, "role".into()));
    let again = text(&done(&scene, &rotate_hers, &taken, Value::Null).await["key"]);
    assert_eq!(staff(&scene, &again).await, 404);

    // Whoever may do as much gives it a secret that counts whole.
    let whole = text(&done(&scene, &rotate_hers, OPERATOR, Value::Null).await["key"]);
    assert_eq!(staff(&scene, &whole).await, 200);
}
