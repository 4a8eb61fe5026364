//! What nodes that are gone held of quotas.

use std::collections::BTreeMap;
use std::time::Duration;

use bus::{Expected, Kv as _};
use schemas::event::request::{QuotaCharge, RequestSettled};
use schemas::limit::layers::Name;
use schemas::limit::quota::record::{Holder, Record};
use schemas::subject::{NODE_BUCKET, QUOTA_BUCKET, node};

use crate::scene::{Scene, until};

fn settled(scene: &Scene) -> RequestSettled {
    scene.lost(scene.accepted()).into_row()
}

#[tokio::test]
async fn what_a_node_that_is_gone_held_of_a_quota_is_given_back_and_what_it_spent_stays() {
    let scene = Scene::new().await;
    let (own, gone) = (scene.gateway(), scene.gateway());
    let name = Name::from("acme.k.x.total_usd.total");
    let holder = |taken, spent, seq| Holder {
        taken,
        spent,
        seq,
        by: "boot.1".into(),
    };
    let record = Record {
        holders: BTreeMap::from([
            (own.spool.id().clone(), holder(50, 5, 0)),
            (gone.spool.id().clone(), holder(1_000, 10, 1)),
        ]),
        ..Record::with_base(3)
    };
    let put = async |bucket: &str, key: &str, value: Vec<u8>| {
        let put = scene.bus.put(bucket, key, value.into(), Expected::Any);
        put.await.expect("put");
    };
    put(QUOTA_BUCKET, name.as_str(), record.encode().expect("json")).await;
    let ledger = scene.reaping_ledger(&own);
    // The first is what the record counts already.
    for amount in [10, 20, 30] {
        let mut settled = settled(&scene);
        settled.quotas = vec![QuotaCharge {
            name: name.clone(),
            amount,
        }];
        scene.append(&gone, &settled);
    }
    scene.settled(&[&gone]).await;
    let read = || {
        Record::decode(
            scene
                .bus
                .text(QUOTA_BUCKET, name.as_str())
                .expect("a record")
                .as_bytes(),
        )
    };
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(read(), Some(record.clone()), "it is silent for a moment only");

    let key = format!("{}{}", node::GONE, gone.spool.id());
    put(NODE_BUCKET, &key, Vec::new()).await;
    until("it is given back", || {
        read().is_some_and(|record| !record.holders.contains_key(gone.spool.id()))
    })
    .await;
    let left = read().expect("a record");
    assert_eq!((left.total(), left.spent()), (3 + 50 + 60, 3 + 5 + 60));

    // Its spool is rescued, and holds one more.
    let mut settled = settled(&scene);
    settled.quotas = vec![QuotaCharge {
        name: name.clone(),
        amount: 7,
    }];
    scene.append(&gone, &settled);
    scene.settled(&[&gone]).await;
    put(NODE_BUCKET, &format!("{}another", node::GONE), Vec::new()).await;
    until("the rest is counted", || {
        read().is_some_and(|record| record.spent() == 3 + 5 + 67)
    })
    .await;
    ledger.stop().await;
}
