//! The books as their readers see them: pages, filters, who may see what, sums, and the same tables from the log.

use harness::{
    ADMIN_KEY, Behaviour, CALLER_KEY, Client, OPERATOR_KEY, OTHER_KEY, Scene, chat, chat_streamed,
};
use serde_json::{Value, json};

/// Calls of every kind and tenant: the ids of the answers, oldest first.
async fn calls(scene: &Scene) -> Vec<String> {
    scene.o1.default(Behaviour::chat("hello {call}").usage(9, 20));
    let other = scene.client.with_key(OTHER_KEY);
    let mut ids = Vec::new();
    for client in [&scene.client, &other, &scene.client] {
        ids.push(client.post_chat(&chat("m")).await.request_id().to_owned());
        ids.push(
            client
                .stream_chat(&chat_streamed("m"))
                .await
                .collect()
                .await
                .request_id()
                .to_owned(),
        );
    }
    ids.push(other.post_chat(&chat("nothing")).await.request_id().to_owned());
    scene.o1.script([Behaviour::chat("a b c").cut_after_chunks(2)]);
    ids.push(
        scene
            .client
            .stream_chat(&chat_streamed("m"))
            .await
            .collect()
            .await
            .request_id()
            .to_owned(),
    );
    for id in &ids {
        scene.row(id).await;
    }
    ids
}

fn ids_of(rows: &[Value]) -> Vec<String> {
    rows.iter()
        .map(|row| row["request_id"].as_str().expect("an id").to_owned())
        .collect()
}

async fn page(client: &Client, query: &str) -> (Vec<String>, Option<String>) {
    let answer = client.get(&format!("/api/v1/logs?{query}")).await;
    assert_eq!(answer.status, 200, "{query}: {}", answer.text());
    let body = answer.json();
    (
        ids_of(body["data"].as_array().expect("a list")),
        body["next"].as_str().map(str::to_owned),
    )
}

#[tokio::test]
async fn the_log_is_read_newest_first_in_pages_without_a_gap() {
    let scene = Scene::start().await;
    // Two calls of one millisecond have no order but their ids'.
    let mut newest_first = calls(&scene).await;
    newest_first.sort_unstable_by(|one, other| other.cmp(one));
    let operator = scene.client.with_key(OPERATOR_KEY);

    for size in [1, 3, 8, 50] {
        let (mut read, mut after, mut pages) = (Vec::new(), String::new(), 0);
        loop {
            let (ids, next) = page(&operator, &format!("limit={size}{after}")).await;
            assert!(ids.len() <= size);
            read.extend(ids);
            pages += 1;
            match next {
                Some(cursor) => after = format!("&after={cursor}"),
                None => break,
            }
            assert!(pages <= 10, "no last page");
        }
        assert_eq!(read, newest_first, "pages of {size}");
    }
    scene.finish().await;
}

#[tokio::test]
async fn every_filter_selects_its_rows_and_unknown_ones_are_refused_by_name() {
    let scene = Scene::start().await;
    let ids = calls(&scene).await;
    let operator = scene.client.with_key(OPERATOR_KEY);
    let row = scene.row(&ids[0]).await;
    let text = |field: &str| row[field].as_str().unwrap_or_default().to_owned();
    let second = scene.row(&ids[1]).await["started_at"]
        .as_str()
        .expect("a time")
        .to_owned();
    let of = |places: &[usize]| {
        places
            .iter()
            .rev()
            .map(|place| ids[*place].clone())
            .collect::<Vec<_>>()
    };

    for (query, expected) in [
        ("tenant=acme".to_owned(), of(&[0, 1, 4, 5, 7])),
        ("tenant=zenith".to_owned(), of(&[2, 3, 6])),
        ("user=alice".to_owned(), of(&[0, 1, 4, 5, 7])),
        (format!("key={}", text("key_id")), of(&[0, 1, 4, 5, 7])),
        ("model=m".to_owned(), of(&[0, 1, 2, 3, 4, 5, 7])),
        (
            format!("endpoint={}", text("endpoint_id")),
            of(&[0, 1, 2, 3, 4, 5, 7]),
        ),
        ("outcome=rejected".to_owned(), of(&[6])),
        ("outcome=upstream_cut".to_owned(), of(&[7])),
        ("status=404".to_owned(), of(&[6])),
        (format!("request_id={}", ids[3]), of(&[3])),
        (format!("to={second}"), of(&[0])),
        (format!("from={second}&tenant=acme&outcome=ok"), of(&[1, 4, 5])),
        ("tenant=nobody".to_owned(), Vec::new()),
    ] {
        assert_eq!(page(&operator, &query).await.0, expected, "{query}");
    }
    for (query, param) in [
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("limit=x", "limit"),
        ("colour=red", "colour"),
        ("outcome=fine", "outcome"),
        ("from=yesterday", "from"),
        ("status=abc", "status"),
        ("after=x", "after"),
        ("request_id=x", "request_id"),
    ] {
        let refused = operator.get(&format!("/api/v1/logs?{query}")).await;
        assert_eq!(
            (refused.status, &refused.json()["error"]["param"]),
            (400, &json!(param)),
            "{query}: {}",
            refused.text()
        );
    }
    scene.finish().await;
}

#[tokio::test]
async fn readers_see_their_own_rows_and_no_others() {
    let scene = Scene::start().await;
    let ids = calls(&scene).await;
    let seen = |key: &str| {
        let client = scene.client.with_key(key);
        async move { page(&client, "limit=100").await.0.len() }
    };

    assert_eq!(seen(OPERATOR_KEY).await, 8, "the operator sees all");
    assert_eq!(seen(ADMIN_KEY).await, 0, "an admin sees his tenant");
    assert_eq!(seen(CALLER_KEY).await, 5, "a member sees his key");
    assert_eq!(seen(OTHER_KEY).await, 3);
    let caller = scene.client.with_key(CALLER_KEY);
    let own = caller.get(&format!("/api/v1/logs/{}", ids[0])).await;
    assert_eq!(own.status, 200, "{}", own.text());
    assert_eq!(
        own.json()["event"]["type"],
        "waybill.request.settled.v1",
        "{}",
        own.text()
    );
    let foreign = caller.get(&format!("/api/v1/logs/{}", ids[2])).await;
    let nothing = caller
        .get("/api/v1/logs/01234567-89ab-7cde-8f01-23456789abcd")
        .await;
    assert_eq!((foreign.status, nothing.status), (404, 404));
    let masked = |answer: &harness::Answer| answer.text().replace(answer.request_id(), "ID");
    assert_eq!(
        masked(&foreign),
        masked(&nothing),
        "another's row is told from none"
    );
    let other_key = scene.row(&ids[2]).await["key_id"]
        .as_str()
        .expect("an id")
        .to_owned();
    for query in ["tenant=zenith".to_owned(), format!("key={other_key}")] {
        for path in ["/api/v1/logs", "/api/v1/usage"] {
            let refused = caller.get(&format!("{path}?{query}")).await;
            let told = (refused.status, refused.error_code());
            assert_eq!(told, (403, "insufficient_scope".to_owned()), "{path}?{query}");
        }
    }
    for path in ["/api/v1/logs", "/api/v1/usage", "/api/v1/tenant/api-keys"] {
        assert_eq!(scene.client.with_key("").get(path).await.status, 401, "{path}");
    }
    assert_eq!(caller.get("/api/v1/tenant/api-keys").await.status, 403);
    scene.finish().await;
}

#[tokio::test]
async fn usage_is_the_sum_of_the_rows_in_every_grouping() {
    let scene = Scene::start().await;
    calls(&scene).await;
    let groups = ["tenant", "user", "key", "model", "endpoint", "provider"];

    for group in groups {
        for interval in ["", "&interval=hour", "&interval=day&tz=Asia/Kolkata"] {
            let sums = scene.node.usage_api(&format!("group_by={group}{interval}")).await;
            let total = |field: &str| sums.iter().filter_map(|sum| sum[field].as_i64()).sum::<i64>();
            let figures = (
                total("requests"),
                total("ok"),
                total("errors"),
                total("input_tokens"),
                total("output_tokens"),
            );
            assert_eq!(
                (figures.0, figures.1, figures.2),
                (8, 6, 2),
                "{group}{interval}: {sums:?}"
            );
            assert_eq!(total("cost_nano_usd"), 6 * 178_000, "{group}{interval}: {sums:?}");
            assert!(
                sums.iter()
                    .all(|sum| sum.get("from").is_some() != interval.is_empty()),
                "{sums:?}"
            );
        }
    }
    let by_tenant = scene.node.usage_api("group_by=tenant").await;
    let of = |tenant: &str| {
        by_tenant
            .iter()
            .find(|sum| sum["tenant"] == tenant)
            .expect("its sum")["cost_nano_usd"]
            .clone()
    };
    assert_eq!(
        (of("acme"), of("zenith")),
        (json!(4 * 178_000), json!(2 * 178_000))
    );
    let own = scene
        .client
        .with_key(OTHER_KEY)
        .get("/api/v1/usage?group_by=tenant")
        .await
        .json();
    assert_eq!(own["data"].as_array().map(Vec::len), Some(1), "{own}");
    assert_eq!(own["data"][0]["tenant"], "zenith");
    for (query, param) in [
        ("group_by=colour", "group_by"),
        ("interval=week", "interval"),
        ("tz=Mars", "tz"),
        ("x=1", "x"),
    ] {
        let refused = scene.client.get(&format!("/api/v1/usage?{query}")).await;
        assert_eq!(
            (refused.status, &refused.json()["error"]["param"]),
            (400, &json!(param)),
            "{query}: {}",
            refused.text()
        );
    }
    scene.finish().await;
}

#[tokio::test]
async fn a_rebuild_gives_the_same_tables_with_the_node_running_and_ended() {
    let mut scene = Scene::start().await;
    calls(&scene).await;
    let before = scene.node.books().dump().await;
    assert_eq!(before["api_logs"].len(), 8);

    let (code, output) = scene.node.command(&["replay", "--rebuild"]).await;
    assert_eq!(code, Some(0), "{output}");
    assert_eq!(scene.node.books().dump().await, before, "online");
    let later = scene.client.post_chat(&chat("m")).await;
    scene.row(later.request_id()).await;

    assert_eq!(scene.node.stop().await, Some(0));
    let before = scene.node.books().dump().await;
    scene
        .node
        .books()
        .change("DELETE FROM api_logs WHERE outcome = 'ok'")
        .await;
    scene
        .node
        .books()
        .change("UPDATE usage_rollup SET cost_nano_usd = cost_nano_usd + 1")
        .await;
    scene
        .node
        .books()
        .change("UPDATE api_logs SET status = 299")
        .await;
    assert_ne!(scene.node.books().dump().await, before);
    let (code, output) = scene.node.command(&["replay", "--rebuild"]).await;
    assert_eq!(code, Some(0), "{output}");
    assert!(output.contains("9 rows"), "{output}");
    assert_eq!(scene.node.books().dump().await, before, "offline");

    let (code, output) = scene.node.command(&["replay"]).await;
    assert_eq!(code, Some(64), "{output}");
    scene.restart().await;
    scene.finish().await;
}

#[tokio::test]
async fn a_rebuild_over_the_api_is_for_operators() {
    let scene = Scene::start().await;
    calls(&scene).await;
    let rebuild = |key: &str| {
        let client = scene.client.with_key(key);
        async move {
            client
                .call("POST", "/api/v1/system/rebuild", bytes::Bytes::new())
                .await
                .expect("an answer")
        }
    };

    assert_eq!(rebuild(CALLER_KEY).await.status, 403);
    assert_eq!(rebuild("").await.status, 401);
    let done = rebuild(OPERATOR_KEY).await;
    assert_eq!(
        (done.status, &done.json()["rows"]),
        (200, &json!(8)),
        "{}",
        done.text()
    );
    scene.finish().await;
}

#[tokio::test]
async fn usage_is_of_exactly_the_time_that_is_asked_for() {
    let scene = Scene::start().await;
    let mut began = Vec::new();
    for _ in 0..3 {
        let answer = scene.client.post_chat(&chat("m")).await;
        let row = scene.row(answer.request_id()).await;
        began.push(row["started_at"].as_str().expect("a time").to_owned());
    }
    let requests = async |from: &str, to: &str| {
        let sums = scene.node.usage_api(&format!("from={from}&to={to}")).await;
        sums.iter()
            .filter_map(|sum| sum["requests"].as_u64())
            .sum::<u64>()
    };

    assert_eq!(requests(&began[0], &began[2]).await, 2);
    assert_eq!(requests(&began[1], &began[2]).await, 1);
    assert_eq!(requests(&began[1], "2100-01-01T00:00:00Z").await, 2);
    assert_eq!(requests("2020-01-01T00:00:00Z", &began[1]).await, 1);
    assert_eq!(requests(&began[1], &began[1]).await, 0);
    scene.finish().await;
}

/// The cells of each line of a table without line ends in its cells.
fn table(text: &str) -> Vec<Vec<String>> {
    let cells = |line: &str| {
        let (mut cells, mut cell, mut quoted) = (Vec::new(), String::new(), false);
        for letter in line.chars() {
            match letter {
                '"' => quoted = !quoted,
                ',' if !quoted => cells.push(std::mem::take(&mut cell)),
                other => cell.push(other),
            }
        }
        cells.push(cell);
        cells
    };
    text.split_terminator("\r\n").map(cells).collect()
}

#[tokio::test]
async fn the_rows_that_a_filter_selects_are_one_file() {
    let scene = Scene::start().await;
    let mut newest_first = calls(&scene).await;
    newest_first.sort_unstable_by(|one, other| other.cmp(one));
    let operator = scene.client.with_key(OPERATOR_KEY);

    let listed = operator.get("/api/v1/logs?limit=50").await.json();
    let file = operator.get("/api/v1/logs/export").await;
    assert_eq!(
        (file.status, file.header("content-type")),
        (200, "application/x-ndjson")
    );
    let rows: Vec<Value> = file
        .text()
        .lines()
        .map(|line| serde_json::from_str(line).expect("a row"))
        .collect();
    assert_eq!(json!(rows), listed["data"]);

    let file = operator.get("/api/v1/logs/export?format=csv&outcome=ok").await;
    assert!(file.header("content-type").starts_with("text/csv"));
    assert_eq!(
        file.header("content-disposition"),
        "attachment; filename=\"waybills.csv\""
    );
    let text = file.text();
    let lines = table(&text);
    let column = |name: &str| lines[0].iter().position(|other| other == name).expect("a column");
    let (id, cost) = (column("request_id"), column("cost_nano_usd"));
    let told: Vec<(String, String)> = lines[1..]
        .iter()
        .map(|line| (line[id].clone(), line[cost].clone()))
        .collect();
    let expected: Vec<(String, String)> = rows
        .iter()
        .filter(|row| row["outcome"] == "ok")
        .map(|row| {
            let id = row["request_id"].as_str().expect("an id").to_owned();
            (id, row["cost_nano_usd"].to_string())
        })
        .collect();
    assert_eq!(told, expected);
    assert!(!expected.is_empty() && expected.len() < rows.len());

    // A key has what it did, and what is no filter is refused before a file begins.
    let own = scene.client.get("/api/v1/logs/export").await.text();
    let foreign: Vec<&str> = own
        .lines()
        .filter(|line| line.contains("\"tenant\":\"other\""))
        .collect();
    assert!(foreign.is_empty() && own.lines().count() < rows.len());
    for (query, param) in [
        ("format=xml", "format"),
        ("limit=3", "limit"),
        ("after=x", "after"),
    ] {
        let refused = operator.get(&format!("/api/v1/logs/export?{query}")).await;
        assert_eq!(refused.status, 400, "{query}");
        assert_eq!(refused.json()["error"]["param"], param, "{query}");
    }
    scene.finish().await;
}
