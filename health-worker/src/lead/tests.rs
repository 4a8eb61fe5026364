//! Tests of leading, on a bucket: one at a time, and another soon after.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::time::Instant;

use super::*;
use crate::testing::Stage;

/// Counts how often it is begun, and never ends.
fn counting(counter: &AtomicUsize) -> impl Fn() -> std::future::Pending<()> + '_ {
    || {
        counter.fetch_add(1, Ordering::SeqCst);
        std::future::pending()
    }
}

async fn begun(counter: &AtomicUsize) {
    while counter.load(Ordering::SeqCst) == 0 {
        sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn one_leads_and_the_other_takes_over_when_it_leaves() {
    let stage = Stage::new();
    let (one, other) = (stage.ports("one"), stage.ports("other"));
    let node = NodeId::from("n");
    let (ones, others) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let mut second = Box::pin(run(&other, &node, counting(&others)));
    {
        let first = run(&one, &node, counting(&ones));
        let standing_by = async {
            begun(&ones).await;
            second.as_mut().await;
        };
        // Longer than a record stands that is not written again.
        let time = sleep(Duration::from_millis(schemas::health::lead::LIFE_MS + 500));
        tokio::select! {
            () = first => panic!("it ended"),
            () = standing_by => panic!("it ended"),
            () = time => {}
        }
    }
    assert_eq!(others.load(Ordering::SeqCst), 0, "it stands by");

    leave(&one).await;
    let left = Instant::now();
    tokio::select! {
        () = second => panic!("it ended"),
        () = begun(&others) => {}
    }

    assert!(left.elapsed() < Duration::from_secs(3), "{:?}", left.elapsed());
    assert_eq!(ones.load(Ordering::SeqCst), 1);
    leave(&one).await;
    let leader = other.kv.get(HEALTH_BUCKET, LEADER).await.expect("a bucket");
    assert!(leader.is_some(), "another's record is not taken away");
}
