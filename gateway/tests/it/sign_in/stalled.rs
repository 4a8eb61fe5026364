//! Who signs up waits for nothing that is done for new addresses alone: the buckets may take as long as they will.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bus::embedded::Embedded;
use bus::{BusError, Change, Entry, Expected, Kv, Revision};
use bytes::Bytes;
use schemas::subject::{ACCOUNT_BUCKET, CATALOG_BUCKET};
use serde_json::json;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use super::accounts::{member_of, until_member};
use super::{PASSWORD, call, settings};
use crate::scene::Scene;

/// The embedded buckets, in which nothing is written of members and accounts while they are stalled.
struct Stalled {
    inner: Arc<Embedded>,
    is_stalled: watch::Receiver<bool>,
}

#[async_trait]
impl Kv for Stalled {
    async fn get(&self, bucket: &str, key: &str) -> Result<Option<Entry>, BusError> {
        self.inner.get(bucket, key).await
    }

    async fn put(
        &self,
        bucket: &str,
        key: &str,
        value: Bytes,
        expected: Expected,
    ) -> Result<Revision, BusError> {
        if [ACCOUNT_BUCKET, CATALOG_BUCKET].contains(&bucket) {
            let mut is_stalled = self.is_stalled.clone();
            let goes_on = is_stalled.wait_for(|is_stalled| !is_stalled).await;
            goes_on.map_err(|_| BusError::Closed)?;
        }
        self.inner.put(bucket, key, value, expected).await
    }

    async fn put_for(
        &self,
        place: (&str, &str),
        value: Bytes,
        expected: Expected,
        life: Duration,
    ) -> Result<Revision, BusError> {
        self.inner.put_for(place, value, expected, life).await
    }

    async fn delete(&self, bucket: &str, key: &str, expected: Expected) -> Result<Revision, BusError> {
        self.inner.delete(bucket, key, expected).await
    }

    async fn watch(&self, bucket: &str) -> Result<mpsc::Receiver<Change>, BusError> {
        self.inner.watch(bucket).await
    }
}

#[tokio::test]
async fn whoever_waits_for_approval_is_made_behind_the_answer() {
    let (stall, is_stalled) = watch::channel(false);
    let wrap = move |inner| Arc::new(Stalled { inner, is_stalled }) as Arc<dyn Kv>;
    let scene = Scene::on(wrap, |config| {
        settings(config);
        config.sign_in.sign_up.enabled = true;
        config.sign_in.sign_up.tenant = "acme".into();
    })
    .await;
    stall.send(true).expect("a gateway");

    let body = json!({"email": "ann@example.com", "password": PASSWORD});
    let answer = call(&scene, "POST /auth/signup", &[], &body);
    let answer = timeout(Duration::from_secs(3), answer).await.expect("an answer");

    assert_eq!(answer.status, 201, "{answer:?}");
    assert_eq!(member_of(&scene, "ann@example.com").await, None);
    stall.send(false).expect("a gateway");
    until_member(&scene, "ann@example.com").await;
}
