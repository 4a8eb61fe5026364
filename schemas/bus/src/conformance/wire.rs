//! What every wire must do, one function per promise. Each takes two ends that reach each other: two connections to
//! the same servers, or twice the same end where everything is in one process. Subjects differ from promise to
//! promise, so that they may run side by side.

use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::{MOMENT, PATIENCE};
use crate::BusError;
use crate::wire::{Delivery, Wire};

/// Most messages that a promise about losses sends.
const FLOOD_MESSAGES: usize = 40_000;

fn text(value: &str) -> Bytes {
    Bytes::copy_from_slice(value.as_bytes())
}

/// The next delivery; `None` when none comes in time or the subscription ended.
async fn next(deliveries: &mut mpsc::Receiver<Delivery>) -> Option<Delivery> {
    timeout(PATIENCE, deliveries.recv()).await.unwrap_or_default()
}

fn heard(subject: &str, payload: &str) -> Delivery {
    Delivery {
        subject: subject.to_owned(),
        reply: None,
        payload: text(payload),
        unheard: false,
    }
}

/// Whoever listens hears what is sent from then on, in its order, with its reply; who listens elsewhere does not.
pub async fn what_is_sent_is_heard_in_order(here: &dyn Wire, there: &dyn Wire) -> Result<(), BusError> {
    let mut deliveries = there.subscribe("wb.test.order").await?;
    let mut again = there.subscribe("wb.test.order").await?;
    let mut others = there.subscribe("wb.test.order.other").await?;
    for number in 0..200 {
        here.send("wb.test.order", None, text(&number.to_string()))
            .await?;
    }
    let inbox = format!("{}.back", here.inbox());
    here.send("wb.test.order", Some(&inbox), Bytes::new()).await?;
    for deliveries in [&mut deliveries, &mut again] {
        for number in 0..200 {
            let expected = heard("wb.test.order", &number.to_string());
            assert_eq!(next(deliveries).await, Some(expected));
        }
        let last = next(deliveries).await;
        assert_eq!(last.and_then(|delivery| delivery.reply), Some(inbox.clone()));
    }
    assert!(
        timeout(MOMENT, others.recv()).await.is_err(),
        "it was sent elsewhere"
    );
    Ok(())
}

/// A subscription that ends in `.*` hears every subject with one more word, and tells which it was.
pub async fn a_star_stands_for_one_word(here: &dyn Wire, there: &dyn Wire) -> Result<(), BusError> {
    let mut deliveries = there.subscribe("wb.test.star.*").await?;
    for subject in [
        "wb.test.star",
        "wb.test.star.a.b",
        "wb.test.stars.a",
        "wb.test.star.a",
        "wb.test.star.b",
    ] {
        here.send(subject, None, text("x")).await?;
    }
    for subject in ["wb.test.star.a", "wb.test.star.b"] {
        assert_eq!(next(&mut deliveries).await, Some(heard(subject, "x")));
    }
    assert!(timeout(MOMENT, deliveries.recv()).await.is_err());
    Ok(())
}

/// Each message reaches one member of a group; every group, and whoever listens alone, hears all.
pub async fn a_group_shares_its_messages(here: &dyn Wire, there: &dyn Wire) -> Result<(), BusError> {
    let subject = "wb.test.share";
    let mut one = there.share(subject, "routers").await?;
    let mut two = there.share(subject, "routers").await?;
    let mut other = there.share(subject, "others").await?;
    let mut alone = there.subscribe(subject).await?;
    for number in 0..100 {
        here.send(subject, None, text(&number.to_string())).await?;
    }
    for deliveries in [&mut other, &mut alone] {
        for number in 0..100 {
            assert_eq!(next(deliveries).await, Some(heard(subject, &number.to_string())));
        }
    }
    let mut shared: Vec<u64> = Vec::new();
    let mut counts = [0, 0];
    while shared.len() < 100 {
        let (member, delivery) = tokio::select! {
            delivery = one.recv() => (0, delivery),
            delivery = two.recv() => (1, delivery),
            () = tokio::time::sleep(PATIENCE) => return Err(BusError::Timeout),
        };
        let payload = delivery.ok_or(BusError::Closed)?.payload;
        let number = std::str::from_utf8(&payload)
            .ok()
            .and_then(|text| text.parse().ok());
        shared.push(number.ok_or(BusError::Closed)?);
        counts[member] += 1;
    }
    shared.sort_unstable();
    assert!(shared.into_iter().eq(0..100), "each reached one member");
    assert!(counts[0] > 5 && counts[1] > 5, "{counts:?}");
    Ok(())
}

/// A member that has left its group gets nothing more: the others hear everything.
pub async fn who_left_a_group_gets_nothing(here: &dyn Wire, there: &dyn Wire) -> Result<(), BusError> {
    let subject = "wb.test.leave";
    let left = there.share(subject, "routers").await?;
    let mut stayed = there.share(subject, "routers").await?;
    drop(left);
    tokio::time::sleep(MOMENT * 4).await;
    for number in 0..50 {
        here.send(subject, None, text(&number.to_string())).await?;
    }
    for number in 0..50 {
        assert_eq!(next(&mut stayed).await, Some(heard(subject, &number.to_string())));
    }
    Ok(())
}

/// What is sent with a reply and reaches nobody comes back at once as `unheard`, also when its listener has left;
/// what reaches somebody does not.
pub async fn what_nobody_hears_comes_back(here: &dyn Wire, there: &dyn Wire) -> Result<(), BusError> {
    let mut replies = here.subscribe(&format!("{}.*", here.inbox())).await?;
    let reply = format!("{}.unheard", here.inbox());
    let unheard = Delivery {
        subject: reply.clone(),
        reply: None,
        payload: Bytes::new(),
        unheard: true,
    };
    here.send("wb.test.unheard", Some(&reply), text("x")).await?;
    assert_eq!(next(&mut replies).await, Some(unheard.clone()));

    let listener = there.share("wb.test.unheard", "routers").await?;
    here.send("wb.test.unheard", Some(&reply), text("x")).await?;
    assert!(timeout(MOMENT, replies.recv()).await.is_err(), "it was heard");

    drop(listener);
    tokio::time::sleep(MOMENT * 4).await;
    here.send("wb.test.unheard", Some(&reply), text("x")).await?;
    assert_eq!(next(&mut replies).await, Some(unheard));
    Ok(())
}

/// What is sent without a reply and reaches nobody is gone, and nobody is told.
pub async fn nothing_is_kept(here: &dyn Wire, there: &dyn Wire) -> Result<(), BusError> {
    // What comes back says that what was sent before it has gone its way.
    let mut own = here.subscribe("wb.test.kept.own").await?;
    here.send("wb.test.kept", None, text("before")).await?;
    here.send("wb.test.kept.own", None, text("own")).await?;
    assert_eq!(next(&mut own).await, Some(heard("wb.test.kept.own", "own")));
    let mut deliveries = there.subscribe("wb.test.kept").await?;
    here.send("wb.test.kept", None, text("after")).await?;
    assert_eq!(next(&mut deliveries).await, Some(heard("wb.test.kept", "after")));
    assert!(timeout(MOMENT, deliveries.recv()).await.is_err());
    Ok(())
}

/// An answer reaches the inbox it was asked for, and the inbox is a subject of one's own.
pub async fn an_answer_reaches_its_inbox(here: &dyn Wire, there: &dyn Wire) -> Result<(), BusError> {
    assert!(!here.inbox().is_empty() && !here.inbox().ends_with('.'));
    assert!(!here.inbox().contains(['*', '>', ' ']), "{}", here.inbox());
    let mut asked = there.share("wb.test.ask", "routers").await?;
    let mut replies = here.subscribe(&format!("{}.*", here.inbox())).await?;
    let reply = format!("{}.7", here.inbox());
    here.send("wb.test.ask", Some(&reply), text("question")).await?;
    let question = next(&mut asked).await.ok_or(BusError::Timeout)?;
    assert_eq!(
        (question.payload.as_ref(), question.reply.as_deref()),
        (&b"question"[..], Some(reply.as_str()))
    );
    for answer in ["one", "two", "three"] {
        there.send(&reply, None, text(answer)).await?;
    }
    for answer in ["one", "two", "three"] {
        assert_eq!(next(&mut replies).await, Some(heard(&reply, answer)));
    }
    Ok(())
}

/// A listener that does not read loses messages, and nobody else does: senders go on, other listeners hear all.
pub async fn a_slow_listener_loses_and_delays_nobody(
    here: &dyn Wire,
    there: &dyn Wire,
) -> Result<(), BusError> {
    let mut slow = there.subscribe("wb.test.slow").await?;
    let mut quick = there.subscribe("wb.test.quick").await?;
    let send = async {
        for number in 0..FLOOD_MESSAGES {
            here.send("wb.test.slow", None, text("x")).await?;
            if number % 1_000 == 0 {
                here.send("wb.test.quick", None, text(&number.to_string()))
                    .await?;
            }
        }
        Ok::<(), BusError>(())
    };
    timeout(PATIENCE, send).await.unwrap_or(Err(BusError::Timeout))?;
    for number in (0..FLOOD_MESSAGES).step_by(1_000) {
        assert_eq!(
            next(&mut quick).await,
            Some(heard("wb.test.quick", &number.to_string()))
        );
    }
    let mut kept = 0;
    while let Ok(Some(_)) = timeout(Duration::from_millis(300), slow.recv()).await {
        kept += 1;
    }
    assert!(kept > 0 && kept < FLOOD_MESSAGES, "{kept} were kept");
    here.send("wb.test.slow", None, text("last")).await?;
    assert_eq!(next(&mut slow).await, Some(heard("wb.test.slow", "last")));
    Ok(())
}

/// A payload of the stated size arrives; a larger one is refused.
pub async fn the_size_of_a_payload_is_limited(here: &dyn Wire, there: &dyn Wire) -> Result<(), BusError> {
    let mut deliveries = there.subscribe("wb.test.size").await?;
    let largest = Bytes::from(vec![b'x'; here.payload_bytes_max()]);
    here.send("wb.test.size", None, largest.clone()).await?;
    let arrived = next(&mut deliveries).await.map(|delivery| delivery.payload.len());
    assert_eq!(arrived, Some(largest.len()));
    let larger = Bytes::from(vec![b'x'; here.payload_bytes_max() + 1]);
    let sent = here.send("wb.test.size", None, larger).await;
    assert!(matches!(sent, Err(BusError::Refused { .. })), "{sent:?}");
    Ok(())
}

/// A wire that works says that it is connected.
pub async fn a_working_wire_is_connected(here: &dyn Wire, there: &dyn Wire) -> Result<(), BusError> {
    for wire in [here, there] {
        let mut connected = wire.connected();
        let came = timeout(PATIENCE, connected.wait_for(|connected| *connected)).await;
        assert!(matches!(came, Ok(Ok(_))));
    }
    Ok(())
}
