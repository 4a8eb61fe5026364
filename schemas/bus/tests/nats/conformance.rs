//! Every promise of the ports, kept by NATS.

use std::sync::Arc;

use bus::conformance::{self, counter, lifetime, wire};
use bus::{Bus, Kv};

use super::server::Server;

macro_rules! promises {
    ($($name:ident),* $(,)?) => {
        $(
            #[tokio::test]
            async fn $name() {
                let server = Server::start();
                let nats = server.connect().await;
                conformance::$name(&*nats).await.expect("the adapter works");
            }
        )*
    };
}

promises!(
    order_is_kept,
    publishing_is_idempotent,
    reading_resumes_anywhere,
    reading_waits_for_the_first_message,
    the_state_tells_the_ends_of_the_log,
    a_question_that_nobody_serves_has_no_responder,
    a_question_is_answered,
    a_question_without_an_answer_times_out,
    what_was_put_is_got,
    a_write_that_expects_something_else_conflicts,
    revisions_grow_over_the_bucket,
    a_watch_tells_what_is_there_and_then_every_change,
    a_watch_of_nothing_is_current_at_once,
);

macro_rules! lifetime_promises {
    ($($name:ident),* $(,)?) => {
        $(
            #[tokio::test]
            async fn $name() {
                let server = Server::start();
                let nats = server.connect().await;
                lifetime::$name(&*nats).await.expect("the adapter works");
            }
        )*
    };
}

lifetime_promises!(
    a_value_goes_after_its_lifetime,
    a_lifetime_is_that_of_the_value,
    a_lifetime_counts_also_over_a_deletion,
    of_writes_at_once_one_is_done,
);

macro_rules! wire_promises {
    ($($name:ident),* $(,)?) => {
        $(
            #[tokio::test]
            async fn $name() {
                let server = Server::start();
                let (here, there) = (server.connect().await, server.connect().await);
                wire::$name(&*here.wire(), &*there.wire()).await.expect("the wire works");
            }
        )*
    };
}

wire_promises!(
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

#[tokio::test]
async fn counters_keep_their_promises() {
    let server = Server::start();
    let nats = server.connect().await;
    counter::additions_add_up(&*nats, "k").await.expect("add");
    counter::counters_are_apart(&*nats, "k").await.expect("add");
    counter::additions_at_once_all_count(&*nats, "k")
        .await
        .expect("add");
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_survives_another_connection() {
    let server = Server::start();
    let open =
        || tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(server.connect()));
    conformance::the_log_survives_reopening(&|| open() as Arc<dyn Bus>)
        .await
        .expect("log");
    conformance::buckets_survive_reopening(&|| open() as Arc<dyn Kv>)
        .await
        .expect("buckets");
    lifetime::lifetimes_survive_reopening(&|| open() as Arc<dyn Kv>)
        .await
        .expect("lifetimes");
}
