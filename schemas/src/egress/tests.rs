//! Tests of which addresses are open to endpoints of run time, in every form of an address.

use proptest::prelude::*;

use super::*;

fn permits(allow: &[&str], address: &str) -> bool {
    let allow = allow.iter().map(|text| text.parse().expect("a network"));
    Egress::new(allow.collect()).permits(address.parse().expect("an address"))
}

#[test]
fn addresses_that_are_not_public_are_closed_in_every_form() {
    for address in [
        "0.0.0.0",
        "0.1.2.3",
        "10.0.0.1",
        "100.64.0.1",
        "100.100.100.200",
        "127.0.0.1",
        "127.255.255.255",
        "168.63.129.16",
        "169.254.169.254",
        "172.16.0.1",
        "172.31.255.255",
        "192.0.0.192",
        "192.0.2.1",
        "192.168.1.1",
        "198.18.0.1",
        "198.51.100.7",
        "203.0.113.9",
        "224.0.0.1",
        "239.255.255.255",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::2",
        "::127.0.0.1",
        "::ffff:127.0.0.1",
        "::ffff:169.254.169.254",
        "::ffff:10.1.2.3",
        "64:ff9b::127.0.0.1",
        "64:ff9b::a9fe:a9fe",
        "64:ff9b:1::1",
        "100::1",
        "2001::1",
        "2001:0:7f00:1::",
        "2001:db8::1",
        "2002:7f00:1::",
        "2002:a9fe:a9fe::1",
        "3fff::1",
        "5f00::1",
        "fc00::1",
        "fd00:ec2::254",
        "fdff:ffff::1",
        "fe80::1",
        "fec0::1",
        "ff02::1",
    ] {
        assert!(!permits(&[], address), "{address}");
    }
}

#[test]
fn public_addresses_are_open_in_every_form() {
    for address in [
        "1.1.1.1",
        "9.255.255.255",
        "11.0.0.1",
        "100.63.255.255",
        "100.128.0.1",
        "126.255.255.255",
        "128.0.0.1",
        "172.15.255.255",
        "172.32.0.1",
        "192.167.255.255",
        "198.17.255.255",
        "223.255.255.255",
        "2606:4700::1111",
        "2a00:1450::1",
        "::ffff:1.1.1.1",
        "64:ff9b::1.1.1.1",
        "2002:101:101::1",
    ] {
        assert!(permits(&[], address), "{address}");
    }
}

#[test]
fn a_network_that_is_allowed_opens_itself_and_nothing_beside() {
    let allow = ["10.1.0.0/16", "127.0.0.1", "fd12::/16"];

    for open in [
        "10.1.2.3",
        "127.0.0.1",
        "::ffff:10.1.2.3",
        "64:ff9b::10.1.2.3",
        "fd12::9",
    ] {
        assert!(permits(&allow, open), "{open}");
    }
    for closed in [
        "10.2.0.1",
        "127.0.0.2",
        "64:ff9b::10.2.0.1",
        "fd13::9",
        "169.254.169.254",
    ] {
        assert!(!permits(&allow, closed), "{closed}");
    }
    assert!(permits(&["0.0.0.0/0"], "127.0.0.1") && !permits(&["0.0.0.0/0"], "::1"));
    assert!(permits(&["::/0"], "::1") && !permits(&["::/0"], "127.0.0.1"));
}

#[test]
fn an_address_of_version_4_is_judged_alike_in_all_its_forms_also_where_it_is_allowed() {
    let forms = |address: &str| {
        let v4: Ipv4Addr = address.parse().expect("an address");
        let [a, b, c, d] = v4.octets();
        [
            address.to_owned(),
            format!("::ffff:{address}"),
            format!("::{address}"),
            format!("::ffff:0:{address}"),
            format!("64:ff9b::{address}"),
            format!("2002:{a:02x}{b:02x}:{c:02x}{d:02x}::1"),
        ]
    };
    let allowed = [
        "127.0.0.0/8",
        "::ffff:127.0.0.0/104",
        "::127.0.0.0/104",
        "64:ff9b::127.0.0.0/104",
        "2002:7f00::/24",
    ];
    for network in allowed {
        for form in forms("127.0.0.1") {
            assert!(permits(&[network], &form), "{form} by {network}");
        }
        for form in forms("10.0.0.1") {
            assert!(!permits(&[network], &form), "{form} by {network}");
        }
    }
    for network in ["::/0", "::/64", "::/8", "2002::/15"] {
        for form in forms("127.0.0.1") {
            assert!(!permits(&[network], &form), "{form} by {network}");
        }
    }
    // A part of what lies behind one address of version 4 cannot be told from the rest of it.
    assert_eq!("2002:7f00:1:5::/64".parse::<Network>(), Err(NoNetwork));
}

#[test]
fn only_networks_are_read_as_networks() {
    for text in [
        "",
        "/",
        "10.0.0.0/",
        "/8",
        "10.0.0.0/33",
        "10.0.0.1/8",
        "10.0.0/8",
        "10.0.0.0/+8",
        "10.0.0.0/8/8",
        "::/129",
        "fd00::1/8",
        "localhost",
        "0x7f.1",
        "10.0.0.0/-1",
        "10.0.0.0/256",
    ] {
        assert_eq!(text.parse::<Network>(), Err(NoNetwork), "{text}");
    }
    for text in [
        "10.0.0.0/8",
        " 10.0.0.0/8 ",
        "1.2.3.4",
        "1.2.3.4/32",
        "::1",
        "::/0",
        "0.0.0.0/0",
        "fd00::/8",
    ] {
        assert!(text.parse::<Network>().is_ok(), "{text}");
    }
}

proptest! {
    /// Written down by somebody else: what the standard library says of an address.
    #[test]
    fn no_address_is_open_that_the_standard_library_calls_anything_but_global(number in any::<u32>()) {
        let address = Ipv4Addr::from(number);
        let special = address.is_private() || address.is_loopback() || address.is_link_local()
            || address.is_multicast() || address.is_broadcast() || address.is_documentation()
            || address.is_unspecified();
        let egress = Egress::default();

        let forms = [
            IpAddr::V4(address),
            address.to_ipv6_mapped().into(),
            address.to_ipv6_compatible().into(),
        ];

        for form in forms {
            prop_assert!(!(special && egress.permits(form)), "{form}");
            // An address of version 6 that ends in a small number is none of version 4 in disguise.
            prop_assert!(number <= 0xffff || egress.permits(form) == egress.permits(address.into()));
        }
    }

    #[test]
    fn a_network_holds_what_shares_its_leading_bits(number in any::<u32>(), other in any::<u32>(), bits in 0_u8..=32) {
        let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
        let network: Network = format!("{}/{bits}", Ipv4Addr::from(number & mask)).parse().expect("a network");

        prop_assert!(network.holds(Ipv4Addr::from(number).into()));
        let shares = number & mask == other & mask;
        prop_assert_eq!(network.holds(Ipv4Addr::from(other).into()), shares);
    }
}
