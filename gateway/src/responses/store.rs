//! Where responses lie: one record per response in a bucket of the bus, in pieces where it is larger than a message may
//! be. The first piece is written last and says how many there are, so that whoever finds it finds all of it; a
//! piece that has gone since makes the response one that is not there.

use bus::{BusError, Expected, Kv};
use bytes::{Bytes, BytesMut};
use futures_util::future::try_join_all;
use schemas::id::TenantId;
use schemas::subject::RESPONSE_BUCKET;
use sha2::{Digest as _, Sha256};

/// Largest piece, in bytes: half of what a message may hold by default.
const PIECE_BYTES_MAX: usize = 512 * 1024;
/// Largest response with everything said before it, in bytes.
const KEPT_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Most pieces of it.
const PIECES_MAX: usize = KEPT_BYTES_MAX / PIECE_BYTES_MAX;
/// Longest id of a response, in bytes.
const ID_BYTES_MAX: usize = 128;
/// Bytes of a tenant's digest that its keys begin with.
const DIGEST_BYTES: usize = 16;

/// What the names of places begin with that tell whose an item is.
const ITEM: &str = "item-";

/// A response cannot be kept.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// It is too large.
    #[error("the response and what was said before it are larger than {KEPT_BYTES_MAX} bytes")]
    TooLarge,
    /// The bus did not take it.
    #[error(transparent)]
    Bus(#[from] BusError),
}

/// The place of one response of one tenant. Nobody else's leads there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place(String);

/// Whether something can be kept under an id.
pub(super) fn is_id(id: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    !id.is_empty() && id.len() <= ID_BYTES_MAX && id.bytes().all(is_plain)
}

impl Place {
    /// The place of `id`; `None` for what is no id of any response.
    pub(super) fn new(tenant: &TenantId, id: &str) -> Option<Self> {
        if !is_id(id) {
            return None;
        }
        let digest = Sha256::digest(tenant.as_str());
        let mut key = String::with_capacity(2 * DIGEST_BYTES + 1 + id.len());
        for byte in digest.iter().take(DIGEST_BYTES) {
            for nibble in [byte >> 4, byte & 15] {
                key.extend(char::from_digit(u32::from(nibble), 16));
            }
        }
        key.push('.');
        key.push_str(id);
        Some(Self(key))
    }

    /// The place that tells which response has an item; `None` for what is no id of any item.
    pub(super) fn of_item(tenant: &TenantId, id: &str) -> Option<Self> {
        // No response has such an id: theirs are ours, and begin otherwise.
        Self::new(tenant, &format!("{ITEM}{id}"))
    }

    /// The key of a piece beyond the first.
    fn piece(&self, number: usize) -> String {
        format!("{}.{number}", self.0)
    }
}

/// Keeps `value`, which is not there for anybody before all of it is.
pub(super) async fn put(kv: &dyn Kv, place: &Place, value: &Bytes) -> Result<(), Error> {
    if value.len() > KEPT_BYTES_MAX {
        return Err(Error::TooLarge);
    }
    let mut pieces = (0..value.len())
        .step_by(PIECE_BYTES_MAX)
        .map(|start| value.slice(start..value.len().min(start + PIECE_BYTES_MAX)));
    let first = pieces.next().unwrap_or_default();
    let mut more = 0;
    for piece in pieces {
        more += 1;
        let key = place.piece(more);
        kv.put(RESPONSE_BUCKET, &key, piece, Expected::Any).await?;
    }
    let mut head = BytesMut::from(format!("{more}\n").as_bytes());
    head.extend_from_slice(&first);
    kv.put(RESPONSE_BUCKET, &place.0, head.freeze(), Expected::Any)
        .await?;
    Ok(())
}

/// Notes which response of a tenant has some items. Those whose id is none of this world are left out.
pub(super) async fn note_items(
    kv: &dyn Kv,
    tenant: &TenantId,
    items: &[String],
    response: &str,
) -> Result<(), Error> {
    let places = items.iter().filter_map(|id| Place::of_item(tenant, id));
    let puts = places.map(|place| async move {
        let response = Bytes::copy_from_slice(response.as_bytes());
        kv.put(RESPONSE_BUCKET, &place.0, response, Expected::Any).await
    });
    try_join_all(puts).await?;
    Ok(())
}

/// The id of the response of a tenant that has an item; `None` when none is known to.
pub(super) async fn whose(kv: &dyn Kv, tenant: &TenantId, item: &str) -> Result<Option<String>, BusError> {
    let Some(place) = Place::of_item(tenant, item) else {
        return Ok(None);
    };
    let entry = kv.get(RESPONSE_BUCKET, &place.0).await?;
    let response = entry.and_then(|entry| entry.value);
    Ok(response.and_then(|response| String::from_utf8(response.to_vec()).ok()))
}

/// What is kept there; `None` when that is nothing, or no longer all of it.
pub(super) async fn get(kv: &dyn Kv, place: &Place) -> Result<Option<Bytes>, BusError> {
    let Some((more, first)) = head(kv, place).await? else {
        return Ok(None);
    };
    if more == 0 {
        return Ok(Some(first));
    }
    let mut value = BytesMut::from(&*first);
    for number in 1..=more {
        let entry = kv.get(RESPONSE_BUCKET, &place.piece(number)).await?;
        let Some(piece) = entry.and_then(|entry| entry.value) else {
            return Ok(None);
        };
        value.extend_from_slice(&piece);
    }
    Ok(Some(value.freeze()))
}

/// Forgets what is kept there: its first piece before the others.
pub(super) async fn delete(kv: &dyn Kv, place: &Place) -> Result<(), BusError> {
    let Some((more, _)) = head(kv, place).await? else {
        return Ok(());
    };
    kv.delete(RESPONSE_BUCKET, &place.0, Expected::Any).await?;
    for number in 1..=more {
        kv.delete(RESPONSE_BUCKET, &place.piece(number), Expected::Any)
            .await?;
    }
    Ok(())
}

/// How many pieces follow the first one, and that.
async fn head(kv: &dyn Kv, place: &Place) -> Result<Option<(usize, Bytes)>, BusError> {
    let entry = kv.get(RESPONSE_BUCKET, &place.0).await?;
    Ok(entry.and_then(|entry| entry.value).and_then(|head| parse(&head)))
}

fn parse(head: &Bytes) -> Option<(usize, Bytes)> {
    let end = head.iter().position(|byte| *byte == b'\n')?;
    let more = std::str::from_utf8(head.get(..end)?).ok()?.parse().ok()?;
    (more < PIECES_MAX).then(|| (more, head.slice(end + 1..)))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bus::clock::SystemClock;
    use bus::embedded::{Embedded, Options};

    use super::*;

    fn bus(dir: &tempfile::TempDir) -> Arc<Embedded> {
        Embedded::open(dir.path(), Options::default(), Arc::new(SystemClock::new())).expect("a bus")
    }

    fn place(tenant: &str, id: &str) -> Place {
        Place::new(&TenantId::from(tenant), id).expect("a place")
    }

    #[tokio::test]
    async fn what_is_kept_comes_back_in_one_whatever_its_size() {
        let dir = tempfile::tempdir().expect("a directory");
        let bus = bus(&dir);
        for size in [0, 1, PIECE_BYTES_MAX, PIECE_BYTES_MAX + 1, 3 * PIECE_BYTES_MAX] {
            let bytes = (0..size).map(|at| u8::try_from(at % 251).expect("small"));
            let value: Bytes = bytes.collect();
            let at = place("acme", "resp_1");

            put(&*bus, &at, &value).await.expect("put");

            assert_eq!(get(&*bus, &at).await.expect("get"), Some(value), "{size}");
        }
    }

    #[tokio::test]
    async fn what_is_forgotten_is_gone_with_all_its_pieces() {
        let dir = tempfile::tempdir().expect("a directory");
        let bus = bus(&dir);
        let at = place("acme", "resp_1");
        let value = Bytes::from(vec![b'x'; 2 * PIECE_BYTES_MAX]);
        put(&*bus, &at, &value).await.expect("put");

        delete(&*bus, &at).await.expect("delete");

        assert_eq!(get(&*bus, &at).await.expect("get"), None);
        let piece = bus.get(RESPONSE_BUCKET, &at.piece(1)).await.expect("get");
        assert_eq!(piece, None);
        delete(&*bus, &at).await.expect("nothing to delete");
    }

    #[tokio::test]
    async fn a_response_that_has_lost_a_piece_is_not_there() {
        let dir = tempfile::tempdir().expect("a directory");
        let bus = bus(&dir);
        let at = place("acme", "resp_1");
        let value = Bytes::from(vec![b'x'; 2 * PIECE_BYTES_MAX]);
        put(&*bus, &at, &value).await.expect("put");
        bus.delete(RESPONSE_BUCKET, &at.piece(1), Expected::Any)
            .await
            .expect("delete");

        assert_eq!(get(&*bus, &at).await.expect("get"), None);
    }

    #[tokio::test]
    async fn items_lead_to_their_response_for_their_own_tenant_alone() {
        let dir = tempfile::tempdir().expect("a directory");
        let bus = bus(&dir);
        let (acme, other) = (TenantId::from("acme"), TenantId::from("other"));
        let items = ["msg_1".to_owned(), "odd id".to_owned(), "fc_1".to_owned()];

        note_items(&*bus, &acme, &items, "resp_1").await.expect("put");

        let whose = async |tenant, item| whose(&*bus, tenant, item).await.expect("get");
        assert_eq!(whose(&acme, "fc_1").await.as_deref(), Some("resp_1"));
        assert_eq!(whose(&acme, "odd id").await, None);
        assert_eq!(whose(&other, "fc_1").await, None);
        let place = Place::new(&acme, "item-fc_1").expect("a place");
        assert_eq!(get(&*bus, &place).await.expect("get"), None, "it is no response");
    }

    #[tokio::test]
    async fn what_is_too_large_is_refused_before_anything_is_written() {
        let dir = tempfile::tempdir().expect("a directory");
        let bus = bus(&dir);
        let value = Bytes::from(vec![b'x'; KEPT_BYTES_MAX + 1]);

        let refused = put(&*bus, &place("acme", "resp_1"), &value).await;

        assert!(matches!(refused, Err(Error::TooLarge)));
    }

    #[test]
    fn tenants_have_places_of_their_own_and_what_is_no_id_has_none() {
        let tenant = TenantId::from("acme");

        assert_ne!(place("acme", "resp_1"), place("acme-2", "resp_1"));
        for id in ["", "a.b", "a b", "*", ">", "resp/1", &"x".repeat(129)] {
            assert_eq!(Place::new(&tenant, id), None, "{id}");
        }
    }
}
