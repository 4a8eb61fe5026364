//! Letters to members: what they say and to whom, that nothing of them shows in answers, and what becomes of them when the
//! server of mail is away, refuses or offers no TLS.

use harness::mail::{Letter, MAIL_PASSWORD, MailServer, Wire, authority};
use harness::{Answer, Client, OPERATOR_KEY, Scene};
use serde_json::{Value, json};

use super::super::{call, done, until_shown};
use super::{PASSWORD, login, member};

/// A node that has its letters sent by a server, and nobody at it.
async fn writing(port: u16, tls: &str) -> (Scene, Client) {
    let smtp = json!({"host": "localhost", "port": port, "tls": tls, "from": "Freight <no-reply@gw.test>"});
    let mut scene = Scene::start_with(|node| {
        let node = node
            .setting("smtp", smtp)
            .env("SSL_CERT_FILE", authority().to_str().expect("a path"))
            .env("SITE_NAME", "Freight")
            .env("SITE_PUBLIC_BASE_URL", "https://gw.test")
            .env("SIGNUP_ENABLED", "true");
        let node = super::NO_LIMITS
            .iter()
            .fold(node, |node, (name, value)| node.env(name, value));
        if tls == "none" {
            return node;
        }
        node.env("SMTP_USER", "waybill")
            .env("SMTP_PASSWORD", MAIL_PASSWORD)
    })
    .await;
    scene.pin();
    let nobody = scene.client.with_key("");
    (scene, nobody)
}

async fn forget(client: &Client, email: &str) -> Answer {
    call(client, "POST", "/auth/forgot-password", json!({"email": email})).await
}

/// The token of a letter.
fn token(letter: &Letter) -> String {
    let body = letter.body();
    let (_, after) = body
        .split_once("https://gw.test/reset-password#token=")
        .unwrap_or_else(|| panic!("no link: {body}"));
    after.lines().next().expect("a line").trim().to_owned()
}

async fn choose(client: &Client, token: &str, password: &str) -> u16 {
    let body = json!({"token": token, "new_password": password});
    call(client, "POST", "/auth/reset-password", body).await.status
}

/// Of all letters those to an address.
fn to<'l>(letters: &'l [Letter], email: &str) -> Vec<&'l Letter> {
    letters.iter().filter(|letter| letter.to == [email]).collect()
}

#[tokio::test]
async fn whoever_is_to_choose_a_password_is_written_to_and_answers_tell_nobody_from_another() {
    let server = MailServer::start(Wire::Starttls).await;
    let (scene, nobody) = writing(server.port(), "starttls").await;
    let operator = scene.client.with_key(OPERATOR_KEY);
    let ann = json!({"tenant": "acme", "id": "ann", "email": "ann@example.com"});
    done(&operator, "POST", "/api/v1/users", ann).await;

    // Invited: the token is hers alone.
    let path = "/api/v1/users/ann/password-reset?tenant=acme";
    let invited = done(&operator, "POST", path, Value::Null).await;
    assert_eq!(
        (&invited["token"], &invited["mailed_to"]),
        (&Value::Null, &json!("ann@example.com"))
    );
    let letters = server.wait_letters(1).await;
    let letter = &letters[0];
    assert_eq!(
        (letter.from.as_str(), &letter.to[..]),
        ("no-reply@gw.test", &["ann@example.com".to_owned()][..])
    );
    assert!(letter.under_tls && letter.signed_in, "{letter:?}");
    assert_eq!(letter.headers("to"), ["ann@example.com"]);
    assert_eq!(letter.headers("subject"), ["Your account at Freight"]);
    assert_eq!(letter.headers("auto-submitted"), ["auto-generated"]);
    let first = token(letter);
    assert_eq!(choose(&nobody, &first, PASSWORD).await, 200);
    assert_eq!(login(&nobody, "ann", PASSWORD).await.status, 200);
    let shown = done(&operator, "POST", &format!("{path}&mail=false"), Value::Null).await;
    assert!(
        shown["token"].is_string() && shown["mailed_to"].is_null(),
        "{shown}"
    );

    // Forgotten: who is nobody gets the same answer, and no letter.
    let of_ann = forget(&nobody, " Ann@Example.com").await;
    let of_nobody = forget(&nobody, "bob@example.com").await;
    assert_eq!((of_ann.status, of_ann.text()), (202, of_nobody.text()));
    assert_eq!(of_nobody.status, 202);
    let letters = server.wait_letters(2).await;
    assert_eq!(letters[1].headers("subject"), ["Another password for Freight"]);
    let second = token(&letters[1]);
    assert_eq!(
        choose(&nobody, &first, "another password 2").await,
        400,
        "it was good once"
    );
    assert_eq!(choose(&nobody, &second, "another password 2").await, 200);
    assert_eq!(login(&nobody, "ann", "another password 2").await.status, 200);

    // No line of a letter is anybody's but ours.
    for odd in [
        "ann@example.com\r\nBcc: eve@example.com",
        "ann@example.com,eve@example.com",
    ] {
        let answer = forget(&nobody, odd).await;
        assert!([202, 400].contains(&answer.status), "{odd:?}: {}", answer.text());
    }
    let told = forget(&nobody, "ann@example.com\r\nBcc: eve@example.com").await;
    assert_eq!(told.status, 400, "{}", told.text());

    assert_eq!(to(&server.letters(), "bob@example.com"), Vec::<&Letter>::new());
    assert_eq!(server.letters().len(), 2);
    assert_eq!(server.faults(), Vec::<String>::new());
    let logs = scene.node.logs().join("\n");
    for secret in ["ann@example.com", "bob@example.com", &first, &second] {
        assert!(!logs.contains(secret), "{secret} in the log");
    }
    assert!(scene.node.metric("waybill_mail_total{outcome=\"sent\"}").await >= 2.0);
    scene.finish().await;
}

#[tokio::test]
async fn whoever_signs_up_chooses_the_password_by_a_letter_and_is_told_when_he_is_let_in() {
    let server = MailServer::start(Wire::Tls).await;
    let (scene, nobody) = writing(server.port(), "tls").await;
    let operator = scene.client.with_key(OPERATOR_KEY);
    member(&operator, "ann", "pro").await;
    let sign_up = |email: &'static str| {
        let body = json!({"email": email, "password": "a password nobody keeps",
            "user_name": "Win a prize at https://evil.example"});
        call(&nobody, "POST", "/auth/signup", body)
    };

    let (known, new) = (sign_up("ann@example.com").await, sign_up("eve@example.com").await);
    assert_eq!((known.status, new.status), (201, 201), "{}", known.text());
    assert_eq!(known.text().replace("ann@", "eve@"), new.text());
    let letters = server.wait_letters(2).await;
    let to_ann = to(&letters, "ann@example.com");
    assert!(
        to_ann[0].body().contains("have an account there already"),
        "{:?}",
        to_ann[0]
    );
    let to_eve = to(&letters, "eve@example.com");
    assert!(
        to_eve[0].body().contains("waits for the approval"),
        "{:?}",
        to_eve[0]
    );
    for letter in &letters {
        assert!(
            !letter.text.contains("prize") && !letter.body().contains("prize"),
            "{letter:?}"
        );
    }

    // The password that was typed opens nothing; the one that is chosen does once she is let in.
    let typed = login(&nobody, "eve", "a password nobody keeps").await;
    assert_eq!(typed.status, 401);
    assert_eq!(choose(&nobody, &token(to_eve[0]), PASSWORD).await, 200);
    let waiting = login(&nobody, "eve", PASSWORD).await;
    assert_eq!(waiting.status, 401, "{}", waiting.text());
    let is_eve = |user: &&Value| user["email"] == "eve@example.com";
    let shown = until_shown(&operator, "/api/v1/users", |shown| {
        shown["data"]
            .as_array()
            .is_some_and(|all| all.iter().any(|user| is_eve(&user)))
    })
    .await;
    let eve = shown["data"]
        .as_array()
        .expect("members")
        .iter()
        .find(is_eve)
        .expect("eve")
        .clone();
    assert_eq!((&eve["role"], &eve["disabled"]), (&json!("free"), &json!(true)));
    let path = format!("/api/v1/users/{}", eve["id"].as_str().expect("an id"));
    done(&operator, "PATCH", &path, json!({"disabled": false})).await;
    let letters = server.wait_letters(3).await;
    assert_eq!(letters[2].to, ["eve@example.com"]);
    assert!(letters[2].body().contains("is approved"), "{:?}", letters[2]);
    assert_eq!(login(&nobody, "eve", PASSWORD).await.status, 200);
    done(&operator, "PATCH", &path, json!({"disabled": true})).await;
    done(&operator, "PATCH", &path, json!({"disabled": false})).await;

    assert_eq!(server.letters().len(), 3, "she is let in once");
    assert_eq!(server.faults(), Vec::<String>::new());
    scene.finish().await;
}

#[tokio::test]
async fn a_letter_waits_for_its_server_and_is_not_sent_to_whom_that_refuses() {
    let before = MailServer::start(Wire::Clear).await;
    let addr = before.addr();
    drop(before);
    let (scene, nobody) = writing(addr.port(), "none").await;
    member(&scene.client.with_key(OPERATOR_KEY), "ann", "pro").await;

    assert_eq!(forget(&nobody, "ann@example.com").await.status, 202);
    let server = MailServer::start_at(Wire::Clear, addr).await;
    let letters = server.wait_letters(1).await;
    assert_eq!(letters[0].to, ["ann@example.com"]);

    server.refuse(1, "451 later");
    assert_eq!(forget(&nobody, "ann@example.com").await.status, 202);
    let letters = server.wait_letters(2).await;
    assert_eq!(
        choose(&nobody, &token(&letters[1]), "another password 2").await,
        200
    );

    server.refuse(1, "550 ann@example.com is nobody");
    assert_eq!(forget(&nobody, "ann@example.com").await.status, 202);
    let line = scene.node.wait_log("does not take a letter").await;
    assert!(line.contains("550") && !line.contains("ann"), "{line}");
    let refused = scene.node.metric("waybill_mail_total{outcome=\"refused\"}").await;
    assert!((refused - 1.0).abs() < f64::EPSILON, "{refused}");
    assert_eq!(server.letters().len(), 2);
    assert_eq!(server.faults(), Vec::<String>::new());
    scene.finish().await;
}

#[tokio::test]
async fn of_letters_that_were_asked_for_at_once_the_last_that_comes_lets_its_member_in() {
    let server = MailServer::start(Wire::Clear).await;
    let (scene, nobody) = writing(server.port(), "none").await;
    member(&scene.client.with_key(OPERATOR_KEY), "ann", "pro").await;

    // The first letter is on its way while the second is asked for, and comes after it.
    server.refuse(1, "451 later");
    assert_eq!(forget(&nobody, "ann@example.com").await.status, 202);
    server.wait_connections(1).await;
    assert_eq!(forget(&nobody, "ann@example.com").await.status, 202);
    let letters = server.wait_letters(2).await;
    let (earlier, last) = (token(&letters[0]), token(&letters[1]));

    assert_eq!(choose(&nobody, &last, "another password 2").await, 200);
    assert_eq!(login(&nobody, "ann", "another password 2").await.status, 200);
    assert_eq!(
        choose(&nobody, &earlier, "a third password 3").await,
        400,
        "one of them is enough"
    );
    assert_eq!(server.faults(), Vec::<String>::new());
    scene.finish().await;
}

#[tokio::test]
async fn no_letter_and_no_password_goes_where_there_is_no_tls_although_it_was_asked_for() {
    for wire in [Wire::Clear, Wire::Broken] {
        let server = MailServer::start(wire).await;
        let (scene, nobody) = writing(server.port(), "starttls").await;
        member(&scene.client.with_key(OPERATOR_KEY), "ann", "pro").await;

        assert_eq!(forget(&nobody, "ann@example.com").await.status, 202);
        server.wait_connections(2).await;

        assert_eq!(server.letters(), Vec::<Letter>::new(), "{wire:?}");
        assert_eq!(server.faults(), Vec::<String>::new(), "{wire:?}");
        scene.finish().await;
    }
}

#[tokio::test]
async fn who_was_made_with_an_address_is_let_in_by_a_letter_when_he_signs_up_and_who_is_disabled_is_not() {
    let server = MailServer::start(Wire::Clear).await;
    let (scene, nobody) = writing(server.port(), "none").await;
    let operator = scene.client.with_key(OPERATOR_KEY);
    for id in ["ann", "bob"] {
        let user = json!({"tenant": "acme", "id": id, "email": format!("{id}@example.com"), "role": "pro"});
        done(&operator, "POST", "/api/v1/users", user).await;
    }
    let path = "/api/v1/users/bob?tenant=acme";
    done(&operator, "PATCH", path, json!({"disabled": true})).await;

    for id in ["ann", "bob"] {
        let body = json!({"email": format!("{id}@example.com"), "password": "a password nobody keeps"});
        assert_eq!(call(&nobody, "POST", "/auth/signup", body).await.status, 201);
    }

    let letters = server.wait_letters(2).await;
    let (to_ann, to_bob) = (to(&letters, "ann@example.com"), to(&letters, "bob@example.com"));
    assert!(!to_bob[0].body().contains("token"), "{:?}", to_bob[0]);
    assert_eq!(choose(&nobody, &token(to_ann[0]), PASSWORD).await, 200);
    let entered = login(&nobody, "ann", PASSWORD).await;
    assert_eq!(entered.status, 200, "{}", entered.text());
    let me = &entered.json()["user"];
    assert_eq!((&me["id"], &me["role"]), (&json!("ann"), &json!("pro")));
    let listed = done(&operator, "GET", "/api/v1/users?tenant=acme", Value::Null).await;
    assert_eq!(listed["data"].as_array().map(Vec::len), Some(2), "{listed}");
    let default = done(&operator, "GET", "/api/v1/users?tenant=default", Value::Null).await;
    assert_eq!(default["data"], json!([]), "nobody came in anew");
    scene.finish().await;
}
