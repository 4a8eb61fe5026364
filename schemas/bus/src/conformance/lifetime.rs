//! What every adapter of buckets promises of values with a lifetime.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::{PATIENCE, text};
use crate::{BusError, Expected, Kv, Revision};

/// The shortest lifetime there is.
const SHORT: Duration = Duration::from_secs(1);
/// Longer than any of these promises takes to be tried.
const LONG: Duration = Duration::from_mins(10);
/// When a short lifetime is over for certain.
const OVER: Duration = Duration::from_millis(2_500);
const LOOK_EVERY: Duration = Duration::from_millis(20);

const BUCKET: &str = "wb_life";

async fn value(kv: &dyn Kv, key: &str) -> Result<Option<String>, BusError> {
    let entry = kv.get(BUCKET, key).await?;
    let value = entry.and_then(|entry| entry.value);
    Ok(value.map(|value| String::from_utf8_lossy(&value).into_owned()))
}

async fn put_for(
    kv: &dyn Kv,
    (key, value): (&str, &str),
    expected: Expected,
    life: Duration,
) -> Result<Revision, BusError> {
    kv.put_for((BUCKET, key), text(value), expected, life).await
}

/// Waits until nothing is under the key any more, and says for how long it was there.
async fn gone(kv: &dyn Kv, key: &str, since: Instant) -> Result<Duration, BusError> {
    while value(kv, key).await?.is_some() {
        assert!(since.elapsed() < PATIENCE, "it outlives its lifetime");
        sleep(LOOK_EVERY).await;
    }
    Ok(since.elapsed())
}

/// A value is there for its lifetime, and then as if it had never been: created anew, but not replaced.
pub async fn a_value_goes_after_its_lifetime(kv: &dyn Kv) -> Result<(), BusError> {
    let before = Instant::now();
    let first = put_for(kv, ("goes", "1"), Expected::Absent, SHORT).await?;
    let other = kv.put(BUCKET, "stays", text("x"), Expected::Any).await?;
    assert_eq!(value(kv, "goes").await?.as_deref(), Some("1"));
    let again = put_for(kv, ("goes", "2"), Expected::Absent, SHORT).await;
    assert!(matches!(again, Err(BusError::Conflict)), "{again:?}");

    let lived = gone(kv, "goes", before).await?;

    // Clocks of servers count from the arrival, in grains of their own.
    assert!(lived + Duration::from_millis(100) >= SHORT, "{lived:?}");
    assert!(lived <= OVER, "{lived:?}");
    let replaced = put_for(kv, ("goes", "2"), Expected::Revision(first), SHORT).await;
    assert!(matches!(replaced, Err(BusError::Conflict)), "{replaced:?}");
    let created = put_for(kv, ("goes", "3"), Expected::Absent, LONG).await?;
    assert!(created > other, "revisions grow over the bucket");
    assert_eq!(value(kv, "goes").await?.as_deref(), Some("3"));
    assert_eq!(value(kv, "stays").await?.as_deref(), Some("x"));
    Ok(())
}

/// What is written over a value has a lifetime of its own, or none.
pub async fn a_lifetime_is_that_of_the_value(kv: &dyn Kv) -> Result<(), BusError> {
    for key in ["longer", "for good"] {
        let place = key.replace(' ', "-");
        let first = put_for(kv, (&place, "1"), Expected::Absent, SHORT).await?;
        if key == "longer" {
            put_for(kv, (&place, "2"), Expected::Revision(first), LONG).await?;
        } else {
            kv.put(BUCKET, &place, text("2"), Expected::Revision(first))
                .await?;
        }
    }
    let long = put_for(kv, ("shorter", "1"), Expected::Absent, LONG).await?;
    let before = Instant::now();
    put_for(kv, ("shorter", "2"), Expected::Revision(long), SHORT).await?;

    assert!(gone(kv, "shorter", before).await? <= OVER);
    sleep((before + OVER).saturating_duration_since(Instant::now())).await;

    assert_eq!(value(kv, "longer").await?.as_deref(), Some("2"));
    assert_eq!(value(kv, "for-good").await?.as_deref(), Some("2"));
    Ok(())
}

/// A value over a deletion, or over one that went, has its lifetime as any other.
pub async fn a_lifetime_counts_also_over_a_deletion(kv: &dyn Kv) -> Result<(), BusError> {
    kv.put(BUCKET, "deleted", text("1"), Expected::Any).await?;
    kv.delete(BUCKET, "deleted", Expected::Any).await?;
    let before = Instant::now();
    put_for(kv, ("deleted", "2"), Expected::Absent, SHORT).await?;
    assert_eq!(value(kv, "deleted").await?.as_deref(), Some("2"));
    assert!(gone(kv, "deleted", before).await? <= OVER);

    let before = Instant::now();
    put_for(kv, ("deleted", "3"), Expected::Absent, SHORT).await?;
    assert_eq!(value(kv, "deleted").await?.as_deref(), Some("3"));
    assert!(gone(kv, "deleted", before).await? <= OVER);
    Ok(())
}

/// Of several writes at once that expect nothing, or the same value, one is done.
pub async fn of_writes_at_once_one_is_done(kv: &dyn Kv) -> Result<(), BusError> {
    let mut expected = Expected::Absent;
    for round in 0..5 {
        let texts: Vec<String> = (0..16).map(|number| format!("{round}.{number}")).collect();
        let writes = texts
            .iter()
            .map(|text| put_for(kv, ("once", text), expected, LONG));
        let done = futures_util::future::join_all(writes).await;
        let mut won = None;
        for (text, written) in texts.iter().zip(done) {
            match written {
                Ok(revision) => assert_eq!(won.replace((text.clone(), revision)), None, "two are done"),
                Err(BusError::Conflict) => {}
                Err(problem) => return Err(problem),
            }
        }
        let (text, revision) = won.ok_or(BusError::Conflict)?;
        assert_eq!(value(kv, "once").await?, Some(text));
        expected = Expected::Revision(revision);
    }
    Ok(())
}

/// Lifetimes go on while nobody is there: what is left of them counts afterwards. `open` is called only after the
/// adapter that it gave before was dropped.
pub async fn lifetimes_survive_reopening(open: &dyn Fn() -> Arc<dyn Kv>) -> Result<(), BusError> {
    let kv = open();
    let before = Instant::now();
    put_for(&*kv, ("away", "1"), Expected::Absent, SHORT).await?;
    put_for(&*kv, ("soon", "1"), Expected::Absent, 3 * SHORT).await?;
    put_for(&*kv, ("late", "1"), Expected::Absent, LONG).await?;
    drop(kv);
    sleep((before + Duration::from_millis(1_500)).saturating_duration_since(Instant::now())).await;

    let kv = open();
    assert_eq!(value(&*kv, "soon").await?.as_deref(), Some("1"));
    assert_eq!(value(&*kv, "late").await?.as_deref(), Some("1"));
    gone(&*kv, "away", before).await?;
    let lived = gone(&*kv, "soon", before).await?;
    assert!(lived <= 2 * SHORT + OVER, "{lived:?}");
    put_for(&*kv, ("away", "2"), Expected::Absent, LONG).await?;
    assert_eq!(value(&*kv, "late").await?.as_deref(), Some("1"));
    Ok(())
}
