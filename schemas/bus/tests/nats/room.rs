//! Room: a log that is short of it lets go of what is in the books, and of the responses that are kept whoever keeps
//! most loses his oldest.

use std::time::Duration;

use bus::layout::{Sizes, cluster};
use bus::nats::{Nats, Options};
use bus::publisher::LedgerCursor;
use bus::{Bus as _, BusError, Expected, Kv as _};
use bytes::Bytes;
use schemas::subject::RESPONSE_BUCKET;

use super::server::{Server, message, sizes};

#[tokio::test]
async fn a_full_log_takes_events_again_once_the_oldest_are_in_the_books() {
    let server = Server::start();
    let small = Sizes {
        events_bytes_max: 32 << 10,
        ..sizes()
    };
    let options = Options {
        layout: cluster(&small),
        ..server.options()
    };
    let nats = Nats::connect(options).await.expect("connect");
    let mut taken = 0;
    while let Ok(places) = nats.publish(&[message(&format!("id-{taken}"))]).await {
        taken = places[0];
    }
    let full = nats.publish(&[message("one more")]).await;
    assert!(matches!(full, Err(BusError::Full)), "{full:?}");
    let log = nats.state().await.expect("state");
    let at = |sequence| LedgerCursor {
        stream_created: log.created_at_micros,
        sequence,
    };

    let of_another_log = LedgerCursor {
        stream_created: log.created_at_micros + 1,
        ..at(taken)
    };
    assert_eq!(nats.make_room(of_another_log).await.expect("looked"), 0);
    assert_eq!(nats.make_room(at(0)).await.expect("looked"), 0);
    assert_eq!(nats.make_room(at(3)).await.expect("three"), 3);
    assert_eq!(
        nats.state().await.expect("state").first,
        4,
        "the books have no more"
    );

    let more = nats.make_room(at(taken)).await.expect("a quarter");
    assert_eq!(more, (taken - 3).div_ceil(4));
    assert_eq!(nats.make_room(at(taken)).await.expect("enough"), 0);
    let next = nats.publish(&[message("one more")]).await.expect("room");
    assert_eq!(next, [taken + 1]);
}

#[tokio::test]
async fn an_owner_who_fills_the_bucket_of_responses_pushes_out_nothing_of_anybody_else() {
    let server = Server::start();
    let small = Sizes {
        responses_bytes_max: 1 << 20,
        ..sizes()
    };
    let options = Options {
        layout: cluster(&small),
        ..server.options()
    };
    let nats = Nats::connect(options).await.expect("connect");
    let put = async |key: String| {
        let value = Bytes::from(vec![b'x'; 4 << 10]);
        nats.put(RESPONSE_BUCKET, &key, value, Expected::Any)
            .await
            .expect("put");
    };
    put("small.first".to_owned()).await;

    for number in 0..600 {
        put(format!("large.{number:03}")).await;
        if number % 8 == 7 {
            // Slower than the node looks.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    for (key, is_there) in [("small.first", true), ("large.000", false), ("large.599", true)] {
        let found = nats.get(RESPONSE_BUCKET, key).await.expect("get");
        assert_eq!(found.is_some(), is_there, "{key}");
    }
}
