//! Who signs up waits for nothing that is done for new addresses alone: the buckets may take as long as they will.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bus::embedded::Embedded;
use bus::{BusError, Expected, Kv as _, Revision};
use bytes::Bytes;
use schemas::subject::{ACCOUNT_BUCKET, CATALOG_BUCKET};
use serde_json::json;
use tokio::sync::watch;
use tokio::time::timeout;

use super::accounts::{member_of, until_member};
use super::{PASSWORD, call, settings};
use crate::bent::{self, Bend};
use crate::scene::Scene;

/// Nothing is written of members and accounts while this is true.
struct Stalled(watch::Receiver<bool>);

#[async_trait]
impl Bend for Stalled {
    async fn put(
        &self,
        inner: &Arc<Embedded>,
        (bucket, key): (&str, &str),
        value: Bytes,
        expected: Expected,
    ) -> Result<Revision, BusError> {
        if [ACCOUNT_BUCKET, CATALOG_BUCKET].contains(&bucket) {
            let mut is_stalled = self.0.clone();
            let goes_on = is_stalled.wait_for(|is_stalled| !is_stalled).await;
            goes_on.map_err(|_| BusError::Closed)?;
        }
        inner.put(bucket, key, value, expected).await
    }
}

#[tokio::test]
async fn whoever_waits_for_approval_is_made_behind_the_answer() {
    let (stall, is_stalled) = watch::channel(false);
    let stalled = Arc::new(Stalled(is_stalled));
    let scene = Scene::on(bent::by(&stalled), |config| {
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
