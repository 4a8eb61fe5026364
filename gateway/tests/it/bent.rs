//! Buckets that go wrong on purpose: what a test bends of them is written once, and the rest passes to real ones.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bus::embedded::Embedded;
use bus::{BusError, Change, Entry, Expected, Kv, Revision};
use bytes::Bytes;
use tokio::sync::mpsc;

/// What goes wrong; everything else is as `inner` does it.
#[async_trait]
pub(crate) trait Bend: Send + Sync + 'static {
    async fn get(&self, inner: &Arc<Embedded>, bucket: &str, key: &str) -> Result<Option<Entry>, BusError> {
        inner.get(bucket, key).await
    }

    async fn put(
        &self,
        inner: &Arc<Embedded>,
        (bucket, key): (&str, &str),
        value: Bytes,
        expected: Expected,
    ) -> Result<Revision, BusError> {
        inner.put(bucket, key, value, expected).await
    }

    async fn put_for(
        &self,
        inner: &Arc<Embedded>,
        place: (&str, &str),
        (value, life): (Bytes, Duration),
        expected: Expected,
    ) -> Result<Revision, BusError> {
        inner.put_for(place, value, expected, life).await
    }
}

/// Embedded buckets, bent.
pub(crate) struct Bent<B> {
    inner: Arc<Embedded>,
    bend: Arc<B>,
}

/// Bends the buckets of a scene.
pub(crate) fn by<B: Bend>(bend: &Arc<B>) -> impl FnOnce(Arc<Embedded>) -> Arc<dyn Kv> + use<B> {
    let bend = Arc::clone(bend);
    move |inner| Arc::new(Bent { inner, bend })
}

#[async_trait]
impl<B: Bend> Kv for Bent<B> {
    async fn get(&self, bucket: &str, key: &str) -> Result<Option<Entry>, BusError> {
        self.bend.get(&self.inner, bucket, key).await
    }

    async fn put(
        &self,
        bucket: &str,
        key: &str,
        value: Bytes,
        expected: Expected,
    ) -> Result<Revision, BusError> {
        self.bend.put(&self.inner, (bucket, key), value, expected).await
    }

    async fn put_for(
        &self,
        place: (&str, &str),
        value: Bytes,
        expected: Expected,
        life: Duration,
    ) -> Result<Revision, BusError> {
        self.bend
            .put_for(&self.inner, place, (value, life), expected)
            .await
    }

    async fn delete(&self, bucket: &str, key: &str, expected: Expected) -> Result<Revision, BusError> {
        self.inner.delete(bucket, key, expected).await
    }

    async fn watch(&self, bucket: &str) -> Result<mpsc::Receiver<Change>, BusError> {
        self.inner.watch(bucket).await
    }
}
