//! Where the calls of a client go: to one node, or to several in turn. Clones share the turn, so that calls made at the
//! same time spread over the nodes too.

use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;

/// The nodes and whose turn it is.
#[derive(Debug, Clone)]
pub(super) struct Targets {
    turn: Arc<Mutex<Turn>>,
}

#[derive(Debug)]
struct Turn {
    addrs: Vec<SocketAddr>,
    next: usize,
}

impl Targets {
    pub(super) fn new(addrs: &[SocketAddr]) -> Self {
        let turn = Turn {
            addrs: addrs.to_vec(),
            next: 0,
        };
        Self {
            turn: Arc::new(Mutex::new(turn)),
        }
    }

    pub(super) fn set(&self, addrs: &[SocketAddr]) {
        addrs.clone_into(&mut self.turn.lock().addrs);
    }

    pub(super) fn next(&self) -> SocketAddr {
        let mut turn = self.turn.lock();
        let place = turn.next % turn.addrs.len();
        turn.next = turn.next.wrapping_add(1);
        turn.addrs[place]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_take_turns_and_are_turned_together() {
        let addr = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let targets = Targets::new(&[addr(1), addr(2)]);
        let clone = targets.clone();

        assert_eq!(
            [targets.next(), clone.next(), targets.next()],
            [addr(1), addr(2), addr(1)]
        );
        clone.set(&[addr(3)]);
        assert_eq!(targets.next(), addr(3));
    }
}
