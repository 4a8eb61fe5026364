//! False credentials by address: an address that sends too many is refused for the rest of the day, before
//! its credential is looked at. Loopback is exempt; IPv6 counts by its /64, the size of one subscriber's network.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};

use parking_lot::Mutex;
use schemas::time::Timestamp;

/// Addresses remembered at once; the table starts anew beyond.
const ADDRESSES_MAX: usize = 65_536;
/// How long failures count and a block lasts.
const WINDOW_MICROS: i64 = 86_400 * 1_000_000;

/// The failures of one address.
#[derive(Debug, Clone, Copy)]
struct Failures {
    count: u32,
    since: Timestamp,
}

/// Counts false credentials.
pub(crate) struct Floods {
    failures_max: Option<u32>,
    addresses: Mutex<HashMap<IpAddr, Failures>>,
}

impl Floods {
    /// Blocks an address after `failures_max` failures in a day; `None` never.
    pub(crate) fn new(failures_max: Option<u32>) -> Self {
        Self {
            failures_max,
            addresses: Mutex::new(HashMap::new()),
        }
    }

    /// Seconds for which the address is refused, `None` when it is not.
    pub(crate) fn blocked(&self, address: IpAddr, now: Timestamp) -> Option<u64> {
        let failures_max = self.failures_max?;
        let failures = *self.addresses.lock().get(&network(address)?)?;
        let left_micros = failures.since.micros() + WINDOW_MICROS - now.micros();
        let blocked = failures.count >= failures_max && left_micros > 0;
        blocked.then(|| u64::try_from(left_micros / 1_000_000 + 1).unwrap_or(1))
    }

    /// Counts one failure.
    pub(crate) fn count(&self, address: IpAddr, now: Timestamp) {
        let Some(network) = self.failures_max.and_then(|_| network(address)) else {
            return;
        };
        let mut addresses = self.addresses.lock();
        if addresses.len() >= ADDRESSES_MAX && !addresses.contains_key(&network) {
            addresses.clear();
        }
        let fresh = Failures { count: 0, since: now };
        let failures = addresses.entry(network).or_insert(fresh);
        if now.micros() - failures.since.micros() > WINDOW_MICROS {
            *failures = fresh;
        }
        failures.count = failures.count.saturating_add(1);
    }
}

/// What is counted as one address; `None` for those that never are.
fn network(address: IpAddr) -> Option<IpAddr> {
    let network = subscriber(address);
    let is_loopback = network.is_loopback() || address.is_loopback();
    (!is_loopback).then_some(network)
}

/// The network of one subscriber, by an address of it.
pub(crate) fn subscriber(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(six) => six.to_ipv4_mapped().map_or_else(
            || IpAddr::V6(Ipv6Addr::from_bits(six.to_bits() & (u128::MAX << 64))),
            IpAddr::V4,
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: Timestamp = Timestamp::from_micros(1_796_000_000_000_000);

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn an_address_is_refused_after_its_last_allowed_failure_and_free_the_next_day() {
        let floods = Floods::new(Some(2));
        let one = address("203.0.113.9");

        floods.count(one, NOON);
        assert_eq!(floods.blocked(one, NOON), None);
        floods.count(one, NOON);

        assert_eq!(floods.blocked(one, NOON), Some(86_401));
        assert_eq!(floods.blocked(address("203.0.113.10"), NOON), None);
        assert_eq!(floods.blocked(one, NOON.plus_micros(WINDOW_MICROS)), None);
    }

    #[test]
    fn loopback_is_never_blocked_and_ipv6_counts_by_network() {
        let floods = Floods::new(Some(1));

        floods.count(address("127.0.0.1"), NOON);
        floods.count(address("2001:db8::1"), NOON);

        assert_eq!(floods.blocked(address("127.0.0.1"), NOON), None);
        assert!(floods.blocked(address("2001:db8::2"), NOON).is_some());
        assert_eq!(floods.blocked(address("2001:db8:0:1::1"), NOON), None);
    }
}
