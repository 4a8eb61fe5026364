//! Where endpoints may lie that were registered at run time: at public addresses, and in networks that the node's
//! configuration allows. Pure; whoever connects asks about the very address that is connected.
//!
//! Files are trusted: their endpoints lie where an operator of the machine wrote.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// Most networks that can be allowed.
pub const NETWORKS_MAX: usize = 256;

/// Networks of version 4 in which nobody is called: of one machine, of a site, of a carrier, for documentation and
/// tests, for many, and reserved.
const CLOSED_4: [(Ipv4Addr, u8); 17] = [
    (Ipv4Addr::UNSPECIFIED, 8),
    (Ipv4Addr::new(10, 0, 0, 0), 8),
    (Ipv4Addr::new(100, 64, 0, 0), 10),
    (Ipv4Addr::new(127, 0, 0, 0), 8),
    // Link-local; the metadata of most clouds among them.
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    (Ipv4Addr::new(172, 16, 0, 0), 12),
    (Ipv4Addr::new(192, 0, 0, 0), 24),
    (Ipv4Addr::new(192, 0, 2, 0), 24),
    (Ipv4Addr::new(192, 31, 196, 0), 24),
    (Ipv4Addr::new(192, 88, 99, 0), 24),
    (Ipv4Addr::new(192, 168, 0, 0), 16),
    (Ipv4Addr::new(198, 18, 0, 0), 15),
    (Ipv4Addr::new(198, 51, 100, 0), 24),
    (Ipv4Addr::new(203, 0, 113, 0), 24),
    // What a cloud tells its machines, at an address that is public elsewhere.
    (Ipv4Addr::new(168, 63, 129, 16), 32),
    (Ipv4Addr::new(224, 0, 0, 0), 4),
    (Ipv4Addr::new(240, 0, 0, 0), 4),
];

/// The only network of version 6 that is public.
const PUBLIC_6: (Ipv6Addr, u8) = (Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);
/// What of it is not.
const CLOSED_6: [(Ipv6Addr, u8); 3] = [
    // Protocols: Teredo, benchmarks, identifiers.
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20),
];
/// Addresses of version 4 that a translator speaks to.
const NAT64: (Ipv6Addr, u8) = (Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0), 96);
/// Addresses of version 4 that a relay speaks to.
const SIX_TO_FOUR: (Ipv6Addr, u8) = (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16);
/// An older way to write an address of version 4.
const COMPATIBLE: (Ipv6Addr, u8) = (Ipv6Addr::UNSPECIFIED, 96);
/// How a system writes an address of version 4 where it takes those of version 6.
const MAPPED: (Ipv6Addr, u8) = (Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0, 0), 96);
/// Addresses of version 4 that a translator without memory speaks to.
const TRANSLATED: (Ipv6Addr, u8) = (Ipv6Addr::new(0, 0, 0, 0, 0xffff, 0, 0, 0), 96);

/// An address that must not be connected. It says nothing of where that is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the address is none that an endpoint registered at run time may have")]
pub struct Forbidden;

/// A network: an address, and how many of its leading bits count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

/// Text is no network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a network is written as ADDRESS/BITS, the bits beyond being zero")]
pub struct NoNetwork;

impl FromStr for Network {
    type Err = NoNetwork;

    /// Reads `10.0.0.0/8`, or an address alone, which is a network of one.
    fn from_str(text: &str) -> Result<Self, NoNetwork> {
        let (address, bits) = match text.trim().split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text.trim(), None),
        };
        let address: IpAddr = address.parse().map_err(|_| NoNetwork)?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            Some(bits) if bits.bytes().all(|byte| byte.is_ascii_digit()) => {
                bits.parse().map_err(|_| NoNetwork)?
            }
            Some(_) => return Err(NoNetwork),
            None => most,
        };
        let network = Self { address, bits };
        let is_exact = bits <= most && masked(number(address), most - bits) == number(address);
        if is_exact { network.plain() } else { Err(NoNetwork) }
    }
}

impl Network {
    /// A network of addresses of version 4 within version 6 as the network of those that it is: by them is judged. None
    /// where its bits end before theirs begin, or after theirs end.
    fn plain(self) -> Result<Self, NoNetwork> {
        let IpAddr::V6(address) = self.address else {
            return Ok(self);
        };
        let Some((inner, lead)) = embedded(address).filter(|(_, lead)| self.bits >= *lead) else {
            return Ok(self);
        };
        let bits = self.bits.saturating_sub(lead);
        if bits > 32 {
            return Err(NoNetwork);
        }
        Ok(Self {
            address: inner.into(),
            bits,
        })
    }

    /// True when the address lies in it.
    fn holds(&self, address: IpAddr) -> bool {
        let most: u8 = if self.address.is_ipv4() { 32 } else { 128 };
        let rest = most.saturating_sub(self.bits);
        self.address.is_ipv4() == address.is_ipv4()
            && masked(number(self.address), rest) == masked(number(address), rest)
    }
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(u32::from(address)),
        IpAddr::V6(address) => u128::from(address),
    }
}

/// A number without its last bits.
fn masked(number: u128, rest: u8) -> u128 {
    let rest = u32::from(rest);
    number
        .checked_shr(rest)
        .and_then(|high| high.checked_shl(rest))
        .unwrap_or(0)
}

/// Where endpoints may lie that were registered at run time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Egress {
    allow: Vec<Network>,
}

impl Egress {
    /// Public addresses, and these networks.
    pub const fn new(allow: Vec<Network>) -> Self {
        Self { allow }
    }

    /// True when an endpoint that was registered at run time may be called at the address.
    pub fn permits(&self, address: IpAddr) -> bool {
        // What is behind a translator counts, by whatever name it is reached: what is allowed and what is closed alike.
        let address = match address {
            IpAddr::V6(outer) => embedded(outer).map_or(address, |(inner, _)| inner.into()),
            IpAddr::V4(_) => address,
        };
        let is_public = match address {
            IpAddr::V4(address) => is_public_4(address),
            IpAddr::V6(address) => is_public_6(address),
        };
        is_public || self.allow.iter().any(|network| network.holds(address))
    }
}

fn is_public_4(address: Ipv4Addr) -> bool {
    let lies_in = |(network, bits): &(Ipv4Addr, u8)| {
        let network = Network {
            address: (*network).into(),
            bits: *bits,
        };
        network.holds(address.into())
    };
    !CLOSED_4.iter().any(lies_in)
}

fn is_public_6(address: Ipv6Addr) -> bool {
    lies_in_6(&PUBLIC_6, address) && !CLOSED_6.iter().any(|network| lies_in_6(network, address))
}

fn lies_in_6((network, bits): &(Ipv6Addr, u8), address: Ipv6Addr) -> bool {
    let network = Network {
        address: (*network).into(),
        bits: *bits,
    };
    network.holds(address.into())
}

/// The address of version 4 that one of version 6 leads to, and how many bits come before it.
fn embedded(address: Ipv6Addr) -> Option<(Ipv4Addr, u8)> {
    let of = |a: u16, b: u16| Ipv4Addr::from((u32::from(a) << 16) | u32::from(b));
    let [_, first, second, .., a, b] = address.segments();
    // `::` and `::1` are nobody's address of version 4.
    let is_compatible = lies_in_6(&COMPATIBLE, address) && a > 0;
    let ends_in_it = [&NAT64, &MAPPED, &TRANSLATED]
        .into_iter()
        .any(|network| lies_in_6(network, address));
    if ends_in_it || is_compatible {
        return Some((of(a, b), 96));
    }
    lies_in_6(&SIX_TO_FOUR, address).then(|| (of(first, second), SIX_TO_FOUR.1))
}

#[cfg(test)]
mod tests;
