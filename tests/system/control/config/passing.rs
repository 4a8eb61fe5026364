//! Calls go on while files change whom a model is served by: none of them fails for it.

use futures_util::future::join_all;

use super::*;

const CALLERS: usize = 6;

/// Has callers call a model while `push` changes files; gives the statuses of their answers, in no order.
async fn meanwhile(client: &Client, push: impl Future<Output = ()>) -> Vec<(u16, String)> {
    let over = AtomicBool::new(false);
    let load = async || {
        let mut answers = Vec::new();
        while !over.load(Ordering::Relaxed) {
            let answer = client.post_chat(&chat("m")).await;
            answers.push((answer.status, answer.text()));
        }
        answers
    };
    let push = async {
        push.await;
        // Calls are there after the last change as well.
        sleep(Duration::from_millis(300)).await;
        over.store(true, Ordering::Relaxed);
    };
    let ((), answers) = tokio::join!(push, join_all((0..CALLERS).map(|_| load())));
    answers.into_iter().flatten().collect()
}

#[tokio::test]
async fn no_call_fails_while_the_only_leg_of_a_model_gets_another_address_and_is_put_back() {
    let (scene, operator) = scene().await;
    let at = |url: &str| [Model::new("m").leg_at(url, 0)];
    let (one, two) = (scene.o1.url(), scene.o2.url());
    // The third has the name of the second: its endpoint stays and has another address.
    let third = two.replacen("127.0.0.1", "localhost", 1);
    assert_ne!(third, two);
    reload(&scene, &at(&one)).await;
    let history = done(&operator, "GET", "/admin/config/history?limit=1", Value::Null).await;
    let first = history["data"][0]["number"].as_u64().expect("a number");
    let push = async {
        for url in [&two, &third, &one, &two, &one, &two] {
            reload(&scene, &at(url)).await;
        }
        let back = json!({"to": first});
        let back = done(&operator, "POST", "/admin/config/rollback", back).await;
        assert!(
            back["changed"].as_u64().is_some_and(|changed| changed >= 3),
            "{back}"
        );
    };

    let answers = meanwhile(&scene.client, push).await;

    let failed: Vec<_> = answers.iter().filter(|(status, _)| *status != 200).collect();
    assert!(
        failed.is_empty() && answers.len() > CALLERS * 6,
        "{} of {}: {failed:?}",
        failed.len(),
        answers.len()
    );
    let again = done(&operator, "POST", "/admin/config/rollback", json!({"to": first})).await;
    assert_eq!(again["changed"], 0, "nothing is left of the change: {again}");
    scene.finish().await;
}

#[tokio::test]
async fn calls_to_models_that_go_end_well_or_do_not_find_them() {
    let (scene, operator) = scene().await;
    let models = [Model::new("m").leg(&scene.o1, 0)];
    for client in [&scene.client, &operator] {
        reload(&scene, &models).await;
        let answers = meanwhile(client, reload(&scene, &[])).await;

        let of = |wanted: u16| answers.iter().filter(|(status, _)| *status == wanted).count();
        assert!(of(200) > 0 && of(404) > 0, "{answers:?}");
        let other: Vec<_> = answers
            .iter()
            .filter(|(status, _)| ![200, 404].contains(status))
            .collect();
        assert!(other.is_empty(), "{other:?}");
    }
    scene.finish().await;
}

#[tokio::test]
async fn figures_tell_of_problems_that_were_there_at_the_start() {
    let odd = |upstream: &Upstream| Model::new("m").leg(upstream, 0).leg(upstream, 1);
    let (o1, o2) = (Upstream::start(), Upstream::start());
    let models = [odd(&o1)];
    let mut scene = Scene::start_on(o1, o2, |node| node.models(&models)).await;
    scene.pin();
    let told = done(&operator(&scene), "GET", PROBLEMS, Value::Null).await;
    let warnings = of(&told, "warning").len();
    assert!(warnings > 0, "{told}");

    let metrics = scene.client.get("/metrics").await.text();

    let line = format!("waybill_config_problems{{severity=\"warning\"}} {warnings}");
    assert!(metrics.contains(&line), "{metrics}");
    scene.finish().await;
}
