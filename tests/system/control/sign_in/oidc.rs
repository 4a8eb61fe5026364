//! Signing in by a provider of identities: from one node to the other, once, in the browser that began, and by nobody
//! else's word than the provider's.

use harness::provider::{Brought, CLIENT_ID, CLIENT_SECRET, Forged, Provider};
use harness::{Answer, Client, NodeBuilder, OPERATOR_KEY, Plan, Scene};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::super::{LOOK_EVERY, PATIENCE, call, done};
use super::{NO_LIMITS, login, member, refresh, tokens};

/// A node that signs people in by a provider, whose addresses are of a listed domain.
fn by(provider: &Provider, node: NodeBuilder) -> NodeBuilder {
    of_domains(provider, &["example.com"], node)
}

/// The same, whose addresses are of these domains; with none, of any.
fn of_domains(provider: &Provider, domains: &[&str], node: NodeBuilder) -> NodeBuilder {
    saying(
        json!({"issuer": provider.issuer(), "client_id": CLIENT_ID, "client_secret": CLIENT_SECRET,
        "allowed_domains": domains, "tenant": "acme", "role": "pro", "create_members": true}),
        node,
    )
}

/// A node of which the file says this of the provider.
fn saying(oidc: Value, node: NodeBuilder) -> NodeBuilder {
    let node = node
        .setting("oidc", oidc)
        .env("SITE_PUBLIC_BASE_URL", "https://gw.test");
    NO_LIMITS
        .iter()
        .fold(node, |node, (name, value)| node.env(name, value))
}

/// A browser that was sent out.
struct Browser {
    cookie: String,
    location: String,
}

async fn sent_out(client: &Client, query: &str) -> Browser {
    let answer = call(client, "GET", &format!("/auth/oidc/login{query}"), Value::Null).await;
    assert_eq!(answer.status, 303, "{}", answer.text());
    let set = answer.header("set-cookie");
    assert!(
        set.contains("; HttpOnly; SameSite=Lax") && set.contains("; Path=/auth/oidc;"),
        "{set}"
    );
    Browser {
        cookie: set.split(';').next().expect("a pair").to_owned(),
        location: answer.header("location").to_owned(),
    }
}

/// What is answered to a browser that comes back with a query.
async fn back(client: &Client, cookie: &str, query: &str) -> Answer {
    let client = if cookie.is_empty() {
        client.clone()
    } else {
        client.with_header("cookie", cookie)
    };
    call(
        &client,
        "GET",
        &format!("/auth/oidc/callback?{query}"),
        Value::Null,
    )
    .await
}

/// The cookie of a session that an answer gives; none where it gives none.
fn session(answer: &Answer) -> Option<String> {
    let set = answer.header("set-cookie");
    let pair = set.split(';').next().unwrap_or_default();
    let is_one = pair.starts_with("refresh_token=") && pair != "refresh_token=";
    is_one.then(|| pair.to_owned())
}

fn person(id: &str) -> Value {
    json!({"sub": format!("person-{id}"), "email": format!("{id}@example.com")})
}

/// Signs somebody in, whole; gives the answer of the callback.
async fn signed_in(client: &Client, provider: &Provider, person: Value) -> Answer {
    let browser = sent_out(client, "").await;
    let brought = provider.sign_in(&browser.location, person);
    back(client, &browser.cookie, &brought.query()).await
}

#[tokio::test]
async fn whoever_is_sent_out_by_one_node_comes_back_to_the_other_and_is_signed_in_on_both() {
    let provider = Provider::start().await;
    let mut scene = Scene::start_cluster(Plan::default(), |node| by(&provider, node)).await;
    let nobody = scene.client.with_key("");
    let (a, b) = (
        nobody.at(scene.node.addr()),
        nobody.at(scene.cluster().node("b").addr()),
    );

    let browser = sent_out(&a, "?return_to=/usage%3Fmonth=11").await;
    let brought = provider.sign_in(&browser.location, person("ann"));
    let answer = back(&b, &browser.cookie, &brought.query()).await;
    assert_eq!(
        (answer.status, answer.header("location")),
        (303, "/usage?month=11"),
        "{}",
        answer.text()
    );
    assert_eq!(answer.header("cache-control"), "no-store");
    let cookie = session(&answer).expect("a session");
    let (token, next) = tokens(&refresh(&a, &cookie).await);
    let me = done(&b.with_key(&token), "GET", "/user/me", Value::Null).await;
    assert_eq!(
        (&me["email"], &me["tenant"], &me["role"]),
        (&json!("ann@example.com"), &json!("acme"), &json!("pro"))
    );

    // Once, whichever node is asked, and by two at a time.
    for client in [&a, &b] {
        let again = back(client, &browser.cookie, &brought.query()).await;
        assert_eq!((again.status, session(&again)), (400, None), "{}", again.text());
    }
    let browser = sent_out(&b, "").await;
    let brought = provider.sign_in(&browser.location, person("ann"));
    let query = brought.query();
    let (one, other) = tokio::join!(
        back(&a, &browser.cookie, &query),
        back(&b, &browser.cookie, &query)
    );
    let mut statuses = [one.status, other.status];
    statuses.sort_unstable();
    assert_eq!(statuses, [303, 400], "{} {}", one.text(), other.text());
    assert_eq!(provider.faults(), Vec::<String>::new());

    // The same member, who rotates as by a password.
    let winner = session(&one).or(session(&other)).expect("a session");
    let (token, _) = tokens(&refresh(&b, &winner).await);
    let same = done(&a.with_key(&token), "GET", "/user/me", Value::Null).await;
    assert_eq!(same["id"], me["id"]);
    let (_, third) = tokens(&refresh(&b, &next).await);
    assert_eq!(refresh(&a, &cookie).await.status, 401, "it is too old");
    assert_eq!(refresh(&a, &third).await.status, 401, "its session is over");
    scene.finish().await;
}

#[tokio::test]
async fn nobody_comes_back_in_the_place_of_somebody_else() {
    let provider = Provider::start().await;
    let mut scene = Scene::start_with(|node| by(&provider, node)).await;
    scene.pin();
    let nobody = scene.client.with_key("");
    let (mine, theirs) = (sent_out(&nobody, "").await, sent_out(&nobody, "").await);
    let brought = provider.sign_in(&mine.location, person("ann"));
    let with = |change: fn(&mut Brought)| {
        let mut changed = brought.clone();
        change(&mut changed);
        changed.query()
    };

    for (what, cookie, query) in [
        ("no cookie", "", brought.query()),
        ("the cookie of another browser", &*theirs.cookie, brought.query()),
        (
            "a cookie that is made up",
            "waybill_oidc=a.1.Lw.b",
            brought.query(),
        ),
        (
            "another state",
            &mine.cookie,
            with(|brought| brought.state = "x".repeat(43)),
        ),
        ("no state", &mine.cookie, format!("code={}", brought.code)),
        ("two states", &mine.cookie, format!("{}&state=x", brought.query())),
    ] {
        let answer = back(&nobody, cookie, &query).await;
        assert_eq!(
            (answer.status, session(&answer)),
            (400, None),
            "{what}: {}",
            answer.text()
        );
    }
    let good = back(&nobody, &mine.cookie, &brought.query()).await;
    assert_eq!(good.status, 303, "nothing of that used it up: {}", good.text());
    let logs = scene.node.logs().join("\n");
    assert!(
        !logs.contains(&brought.code) && !logs.contains(&brought.state),
        "codes are in the log"
    );
    scene.finish().await;
}

#[tokio::test]
async fn what_another_provider_answers_or_another_person_was_given_signs_nobody_in() {
    let provider = Provider::start().await;
    let mut scene = Scene::start_with(|node| by(&provider, node)).await;
    scene.pin();
    let nobody = scene.client.with_key("");

    // Another provider's answer, and one that does not say whose it is.
    for query in [
        |brought: &Brought| {
            brought
                .query()
                .replace("&iss=", "&iss=https%3A%2F%2Fevil.example")
        },
        |brought: &Brought| brought.query().split("&iss=").next().expect("a query").to_owned(),
        |brought: &Brought| format!("{}&error=access_denied", brought.query()),
        |brought: &Brought| format!("state={}&iss={}", brought.state, brought.issuer),
        |brought: &Brought| brought.query().replace("code=", "code=another-"),
    ] {
        let browser = sent_out(&nobody, "").await;
        let brought = provider.sign_in(&browser.location, person("ann"));
        let answer = back(&nobody, &browser.cookie, &query(&brought)).await;
        assert!(
            [400, 403].contains(&answer.status),
            "{}: {}",
            query(&brought),
            answer.text()
        );
        assert_eq!(session(&answer), None);
    }
    // A code that somebody else was given, in a browser of one's own.
    let (mine, theirs) = (sent_out(&nobody, "").await, sent_out(&nobody, "").await);
    let of_theirs = provider.sign_in(&theirs.location, person("ann"));
    let of_mine = provider.sign_in(&mine.location, person("eve"));
    let mixed = Brought {
        code: of_theirs.code,
        ..of_mine
    };
    let answer = back(&nobody, &mine.cookie, &mixed.query()).await;
    assert_eq!(
        (answer.status, session(&answer)),
        (403, None),
        "{}",
        answer.text()
    );
    let faults = provider.faults();
    assert_eq!(
        faults,
        ["a code of nobody", "a code for somebody else"],
        "{faults:?}"
    );

    for place in [
        "https://evil.example",
        "//evil.example",
        "/%5Cevil.example",
        "/%09/evil.example",
        "usage",
    ] {
        let answer = call(
            &nobody,
            "GET",
            &format!("/auth/oidc/login?return_to={place}"),
            Value::Null,
        )
        .await;
        assert_eq!((answer.status, answer.header("location")), (400, ""), "{place}");
    }
    scene.finish().await;
}

#[tokio::test]
async fn only_what_the_provider_signed_for_this_site_and_this_moment_says_who_somebody_is() {
    let provider = Provider::start().await;
    let mut scene = Scene::start_with(|node| by(&provider, node)).await;
    scene.pin();
    let nobody = scene.client.with_key("");
    let long_ago = 1_000_000_000;

    for (forged, status) in [
        (Forged::Unsigned, 403),
        (Forged::ByPublicKey, 403),
        (Forged::ByOther, 403),
        (Forged::Claim("iss", json!("https://evil.example")), 403),
        (Forged::Claim("aud", json!("another")), 403),
        (Forged::Claim("aud", json!([CLIENT_ID, "another"])), 403),
        (Forged::Claim("azp", json!("another")), 403),
        (Forged::Claim("exp", json!(long_ago)), 403),
        (Forged::Claim("nbf", json!(9_000_000_000_i64)), 403),
        (Forged::Claim("nonce", json!("another")), 403),
        (Forged::Claim("nonce", Value::Null), 403),
        (Forged::Claim("email_verified", json!(false)), 403),
        (Forged::Claim("email_verified", Value::Null), 403),
        (Forged::Claim("email", json!("ann@evil.example")), 403),
        (Forged::Claim("email", json!("ann@example.com.evil.example")), 403),
        (Forged::Not, 303),
        (Forged::Elliptic, 303),
    ] {
        provider.forge(forged);
        let answer = signed_in(&nobody, &provider, person("ann")).await;
        assert_eq!(answer.status, status, "{}", answer.text());
        assert_eq!(session(&answer).is_some(), status == 303);
    }
    let read = provider.keys_read();
    assert!(read <= 2, "keys were read {read} times");

    provider.set_down(true);
    let browser = sent_out(&nobody, "").await;
    let away = back(&nobody, &browser.cookie, &{
        provider.set_down(true);
        provider.sign_in(&browser.location, person("ann")).query()
    })
    .await;
    assert_eq!((away.status, session(&away)), (503, None), "{}", away.text());
    provider.set_down(false);
    let back_again = signed_in(&nobody, &provider, person("ann")).await;
    assert_eq!(back_again.status, 303, "{}", back_again.text());
    assert_eq!(provider.faults(), Vec::<String>::new());
    scene.finish().await;
}

#[tokio::test]
async fn an_account_is_its_address_at_the_provider_once_and_for_all_and_no_password_of_before_opens_it() {
    let provider = Provider::start().await;
    let mut scene = Scene::start_with(|node| by(&provider, node)).await;
    scene.pin();
    let nobody = scene.client.with_key("");
    let operator = nobody.with_key(OPERATOR_KEY);
    member(&operator, "ann", "admin").await;
    let (before, cookie) = tokens(&login(&nobody, "ann", super::PASSWORD).await);

    let answer = signed_in(&nobody, &provider, person("ann")).await;
    assert_eq!(answer.status, 303, "{}", answer.text());
    let (token, _) = tokens(&refresh(&nobody, &session(&answer).expect("a session")).await);
    let me = done(&nobody.with_key(&token), "GET", "/user/me", Value::Null).await;
    assert_eq!((&me["id"], &me["role"]), (&json!("ann"), &json!("admin")));
    assert_eq!(login(&nobody, "ann", super::PASSWORD).await.status, 401);
    assert_eq!(refresh(&nobody, &cookie).await.status, 401);
    let old = call(&nobody.with_key(&before), "GET", "/user/me", Value::Null).await;
    assert_eq!(old.status, 401);

    // Whoever was given the address later is somebody else.
    let later = json!({"sub": "person-2", "email": "ann@example.com"});
    let refused = signed_in(&nobody, &provider, later.clone()).await;
    assert_eq!(
        (refused.status, session(&refused)),
        (403, None),
        "{}",
        refused.text()
    );
    let path = "/api/v1/users/ann/password-reset?tenant=acme";
    let reset = done(&operator, "POST", path, Value::Null).await;
    let chosen = json!({"token": reset["token"], "new_password": "another password 2"});
    done(&nobody, "POST", "/auth/reset-password", chosen).await;
    let again = signed_in(&nobody, &provider, later).await;
    assert_eq!(again.status, 303, "{}", again.text());

    // Neither does the provider sign in members of other tenants, nor whoever is disabled.
    let other =
        json!({"tenant": "zenith", "id": "zoe", "email": "zoe@example.com", "password": super::PASSWORD});
    done(&operator, "POST", "/api/v1/users", other).await;
    let refused = signed_in(&nobody, &provider, person("zoe")).await;
    assert_eq!(
        (refused.status, session(&refused)),
        (403, None),
        "{}",
        refused.text()
    );
    assert_eq!(
        login(&nobody, "zoe", super::PASSWORD).await.status,
        200,
        "she is who she was"
    );
    done(
        &operator,
        "PATCH",
        "/api/v1/users/ann?tenant=acme",
        json!({"disabled": true}),
    )
    .await;
    let disabled = signed_in(
        &nobody,
        &provider,
        json!({"sub": "person-2", "email": "ann@example.com"}),
    )
    .await;
    assert_eq!(
        (disabled.status, session(&disabled)),
        (403, None),
        "{}",
        disabled.text()
    );
    assert_eq!(provider.faults(), Vec::<String>::new());
    scene.finish().await;
}

#[tokio::test]
async fn whoever_is_of_no_listed_domain_waits_for_approval_and_keys_that_the_provider_changes_are_read_again()
{
    let provider = Provider::start().await;
    let mut scene = Scene::start_with(|node| of_domains(&provider, &[], node)).await;
    scene.pin();
    let nobody = scene.client.with_key("");
    let operator = nobody.with_key(OPERATOR_KEY);

    for _ in 0..2 {
        let waiting = signed_in(&nobody, &provider, person("ann")).await;
        assert_eq!(
            (waiting.status, session(&waiting)),
            (403, None),
            "{}",
            waiting.text()
        );
        assert!(waiting.text().contains("approval"), "{}", waiting.text());
    }
    let listed = done(&operator, "GET", "/api/v1/users?tenant=acme", Value::Null).await;
    let mut members = listed["data"].as_array().expect("members").iter();
    let ann = members
        .find(|member| member["email"] == "ann@example.com")
        .expect("ann");
    assert_eq!((&ann["role"], &ann["disabled"]), (&json!("pro"), &json!(true)));
    let path = format!("/api/v1/users/{}?tenant=acme", ann["id"].as_str().expect("an id"));
    done(&operator, "PATCH", &path, json!({"disabled": false})).await;
    let admitted = signed_in(&nobody, &provider, person("ann")).await;
    assert_eq!(admitted.status, 303, "{}", admitted.text());

    // Until it is time to ask again, a key that is not known is nobody's.
    provider.rotate();
    let start = Instant::now();
    loop {
        let answer = signed_in(&nobody, &provider, person("ann")).await;
        if answer.status == 303 {
            break;
        }
        assert_eq!(
            (answer.status, session(&answer)),
            (403, None),
            "{}",
            answer.text()
        );
        assert!(start.elapsed() < PATIENCE, "the new keys are not read");
        sleep(LOOK_EVERY).await;
    }
    assert_eq!(provider.keys_read(), 2);
    assert_eq!(provider.faults(), Vec::<String>::new());
    scene.finish().await;
}

/// The members of `acme` who have an address.
async fn of_address(operator: &Client, email: &str) -> Vec<Value> {
    let listed = done(operator, "GET", "/api/v1/users?tenant=acme", Value::Null).await;
    let members = listed["data"].as_array().expect("members").iter();
    members
        .filter(|member| {
            member["email"]
                .as_str()
                .is_some_and(|own| own.eq_ignore_ascii_case(email))
        })
        .cloned()
        .collect()
}

#[tokio::test]
async fn who_is_a_member_already_comes_in_as_that_and_nobody_is_made_where_people_may_not_sign_up() {
    let provider = Provider::start().await;
    let oidc = json!({"issuer": provider.issuer(), "client_id": CLIENT_ID, "client_secret": CLIENT_SECRET,
        "tenant": "acme", "role": "pro"});
    let mut scene = Scene::start_with(|node| saying(oidc, node)).await;
    scene.pin();
    let nobody = scene.client.with_key("");
    let operator = nobody.with_key(OPERATOR_KEY);
    for (id, role) in [("ann", "internal"), ("bob", "pro")] {
        let email = format!("{id}@Example.com");
        let user = json!({"tenant": "acme", "id": id, "email": email, "role": role});
        done(&operator, "POST", "/api/v1/users", user).await;
    }
    let bob = "/api/v1/users/bob?tenant=acme";
    done(&operator, "PATCH", bob, json!({"disabled": true})).await;

    let answer = signed_in(&nobody, &provider, person("ann")).await;
    assert_eq!(answer.status, 303, "{}", answer.text());
    let (token, _) = tokens(&refresh(&nobody, &session(&answer).expect("a session")).await);
    let me = done(&nobody.with_key(&token), "GET", "/user/me", Value::Null).await;
    assert_eq!((&me["id"], &me["role"]), (&json!("ann"), &json!("internal")));
    for (id, members) in [("bob", 1), ("eve", 0)] {
        let refused = signed_in(&nobody, &provider, person(id)).await;
        assert_eq!(
            (refused.status, session(&refused)),
            (403, None),
            "{}",
            refused.text()
        );
        let found = of_address(&operator, &format!("{id}@example.com")).await;
        assert_eq!(found.len(), members, "{found:?}");
    }
    assert_eq!(of_address(&operator, "ann@example.com").await.len(), 1);

    // Where people may sign up they are made by the provider's word as well.
    let path = "/admin/settings/signup_enabled";
    done(&operator, "PUT", path, json!({"value": true})).await;
    let waits = signed_in(&nobody, &provider, person("eve")).await;
    assert!(waits.text().contains("approval"), "{}", waits.text());
    assert_eq!(of_address(&operator, "eve@example.com").await.len(), 1);
    assert_eq!(provider.faults(), Vec::<String>::new());
    scene.finish().await;
}
