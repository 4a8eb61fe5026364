//! What a gateway has of an answer from elsewhere: frames in their order, without holes and doubles, at most as many
//! as were granted. Pure.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::time::Instant;

use super::code::{Order, Piece, Wish};
use super::{CREDIT_FRAMES, CREDIT_STEP_FRAMES, KEPT_FRAMES_MAX, TAIL_BYTES_MAX};

/// Time before missing frames are asked for again.
const PATIENCE: Duration = Duration::from_millis(100);

/// The receiving side of one lane.
#[derive(Debug, Default)]
pub(super) struct Window {
    /// The first frame that has not arrived.
    next: u32,
    /// Frames that were read.
    read: u32,
    /// Frames that were read when the credit was last renewed.
    renewed: u32,
    queue: VecDeque<Piece>,
    tail: BytesMut,
    ended: bool,
    /// From where frames were asked for again, and when.
    asked: Option<(u32, Instant)>,
}

/// What an arrival calls for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Arrival {
    /// Nothing: it is a double, or waits behind a hole that was asked for already.
    Nothing,
    /// There is something to read.
    News,
    /// The router must be told how far the lane is.
    Told,
    /// Both: there is something to read, and the router must be told.
    NewsAndTold,
    /// Frames are missing: they must be sent again.
    Missing,
    /// More bytes are held back than are believed.
    Excess,
}

impl Window {
    /// Takes a frame in.
    pub(super) fn arrive(&mut self, sequence: u32, piece: Piece, now: Instant) -> Arrival {
        if self.ended || sequence < self.next {
            // The end again: the router has not heard that it arrived.
            return if self.ended {
                Arrival::Told
            } else {
                Arrival::Nothing
            };
        }
        if sequence > self.next {
            return self.missing(now);
        }
        if self.queue.len() > KEPT_FRAMES_MAX {
            return Arrival::Nothing;
        }
        self.next = self.next.saturating_add(1);
        match piece {
            Piece::Tail(bytes) => {
                if self.tail.len().saturating_add(bytes.len()) > TAIL_BYTES_MAX {
                    return Arrival::Excess;
                }
                self.tail.extend_from_slice(&bytes);
                self.read = self.read.saturating_add(1);
                if self.renew() {
                    Arrival::Told
                } else {
                    Arrival::Nothing
                }
            }
            Piece::End(last, rest) => {
                self.ended = true;
                let tail = self.whole_tail(rest);
                self.queue.push_back(Piece::End(last, tail));
                Arrival::NewsAndTold
            }
            piece => {
                self.queue.push_back(piece);
                Arrival::News
            }
        }
    }

    /// Hears how far the router is; true when frames are missing.
    pub(super) fn hear(&mut self, next: u32, now: Instant) -> bool {
        !self.ended && next > self.next && self.missing(now) == Arrival::Missing
    }

    /// Takes the next piece out. The router must be told when this returns true beside it.
    pub(super) fn take(&mut self) -> Option<(Piece, bool)> {
        let piece = self.queue.pop_front()?;
        self.read = self.read.saturating_add(1);
        Some((piece, !self.ended && self.renew()))
    }

    /// The next piece is a head whose content has not arrived.
    pub(super) fn is_lone_head(&self) -> bool {
        self.queue.len() == 1 && matches!(self.queue.front(), Some(Piece::Head(_)))
    }

    /// Everything has arrived.
    pub(super) fn ended(&self) -> bool {
        self.ended
    }

    /// What the router is told.
    pub(super) fn order(&self, lane: u64, wish: Wish, resume: bool) -> Order {
        Order {
            lane,
            received: self.next,
            granted: self.renewed.saturating_add(CREDIT_FRAMES),
            wish,
            resume,
        }
    }

    fn renew(&mut self) -> bool {
        let due = self.read.saturating_sub(self.renewed) >= CREDIT_STEP_FRAMES;
        if due {
            self.renewed = self.read;
        }
        due
    }

    fn missing(&mut self, now: Instant) -> Arrival {
        match self.asked {
            Some((from, at)) if from == self.next && now < at + PATIENCE => Arrival::Nothing,
            _ => {
                self.asked = Some((self.next, now));
                Arrival::Missing
            }
        }
    }

    fn whole_tail(&mut self, rest: Bytes) -> Bytes {
        if self.tail.is_empty() {
            return rest;
        }
        let mut tail = std::mem::take(&mut self.tail);
        tail.extend_from_slice(&rest);
        tail.freeze()
    }
}

#[cfg(test)]
mod tests {
    use super::Arrival::{Missing, News, Nothing};
    use super::*;

    fn chunk(number: u32) -> Piece {
        Piece::Chunk(Bytes::from(number.to_string()))
    }

    fn text(window: &mut Window) -> String {
        let mut text = String::new();
        while let Some((Piece::Chunk(bytes), _)) = window.take() {
            text.push_str(std::str::from_utf8(&bytes).expect("text"));
        }
        text
    }

    #[tokio::test(start_paused = true)]
    async fn frames_are_read_once_and_in_their_order() {
        let (mut window, now) = (Window::default(), Instant::now());

        let arrivals: Vec<Arrival> = [0, 2, 1, 1, 0, 2]
            .into_iter()
            .map(|number| window.arrive(number, chunk(number), now))
            .collect();

        assert_eq!(arrivals, [News, Missing, News, Nothing, Nothing, News]);
        assert_eq!(text(&mut window), "012");
    }

    #[tokio::test(start_paused = true)]
    async fn missing_frames_are_asked_for_once_and_again_after_a_while() {
        let (mut window, now) = (Window::default(), Instant::now());

        assert_eq!(window.arrive(3, chunk(3), now), Missing);
        assert_eq!(window.arrive(4, chunk(4), now), Nothing);
        assert!(!window.hear(5, now));
        assert!(window.hear(5, now + PATIENCE));
    }

    #[tokio::test(start_paused = true)]
    async fn the_credit_is_renewed_after_each_eight_frames_that_were_read() {
        let (mut window, now) = (Window::default(), Instant::now());
        for number in 0..16 {
            window.arrive(number, chunk(number), now);
        }
        assert_eq!(window.order(1, Wish::Run, false).granted, 16);

        let told: Vec<bool> = (0..16).map(|_| window.take().expect("a piece").1).collect();

        assert_eq!(told.iter().filter(|told| **told).count(), 2);
        assert!(told[7] && told[15]);
        let order = window.order(1, Wish::Run, false);
        assert_eq!((order.received, order.granted), (16, 32));
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_who_does_not_read_is_not_filled_up_by_a_router_that_ignores_its_credit() {
        let (mut window, now) = (Window::default(), Instant::now());
        for number in 0..1_000 {
            window.arrive(number, chunk(number), now);
        }

        assert!(window.queue.len() <= KEPT_FRAMES_MAX + 1);
    }
}
