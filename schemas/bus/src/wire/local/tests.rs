//! The promises of every wire, and the faults that tests may ask for.

use super::*;
use crate::conformance::wire as promise;

/// Declares a test for each promise.
macro_rules! promises {
    ($($name:ident),* $(,)?) => {$(
        #[tokio::test(start_paused = true)]
        async fn $name() {
            let network = Network::new();
            let (here, there) = (network.connect(), network.connect());
            promise::$name(&*here, &*there).await.expect("kept");
            promise::$name(&*here, &*here).await.expect("kept by one end");
        }
    )*};
}

promises!(
    what_is_sent_is_heard_in_order,
    a_star_stands_for_one_word,
    a_group_shares_its_messages,
    who_left_a_group_gets_nothing,
    what_nobody_hears_comes_back,
    nothing_is_kept,
    an_answer_reaches_its_inbox,
    a_slow_listener_loses_and_delays_nobody,
    the_size_of_a_payload_is_limited,
    a_working_wire_is_connected,
);

#[tokio::test(start_paused = true)]
async fn a_connection_that_is_cut_neither_sends_nor_hears() {
    let network = Network::new();
    let (here, there) = (network.connect(), network.connect());
    let mut heard = there.subscribe("wb.test").await.expect("a wire");
    there.cut(true);
    here.send("wb.test", None, Bytes::from("lost"))
        .await
        .expect("sent");
    let sent = there.send("wb.test", None, Bytes::new()).await;
    assert!(matches!(sent, Err(BusError::Unavailable(_))));
    assert!(!*there.connected().borrow());

    there.cut(false);
    here.send("wb.test", None, Bytes::from("heard"))
        .await
        .expect("sent");

    assert_eq!(heard.recv().await.expect("a message").payload, "heard");
}

#[tokio::test(start_paused = true)]
async fn messages_are_lost_doubled_and_late_as_decided() {
    let network = Network::new();
    let wire = network.connect();
    let mut heard = wire.subscribe("wb.test").await.expect("a wire");
    network.decide(|_, payload| match payload {
        b"drop" => Fate::Drop,
        b"double" => Fate::Double,
        b"late" => Fate::Late(Duration::from_millis(5)),
        _ => Fate::Pass,
    });
    for word in ["drop", "late", "double", "pass"] {
        wire.send("wb.test", None, Bytes::from(word)).await.expect("sent");
    }

    let mut words = Vec::new();
    for _ in 0..4 {
        words.push(heard.recv().await.expect("a message").payload);
    }

    assert_eq!(words, ["double", "double", "pass", "late"]);
}
