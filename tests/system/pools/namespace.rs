//! A network of its own for a process: one link to the machine, no route beyond it, and nothing of the machine's
//! loopback.

use std::net::Ipv4Addr;
use std::process::Command;

/// The program that makes networks.
const IP: &str = "/usr/sbin/ip";

/// A network namespace with a link; gone when dropped.
pub(super) struct Namespace {
    name: String,
    link: String,
    /// The machine, as it is seen from in there.
    pub(super) host: Ipv4Addr,
}

impl Namespace {
    /// Makes one; `None`, said loudly, where this process may not.
    pub(super) fn make() -> Option<Self> {
        let pid = std::process::id();
        // Each process has its own link and its own four addresses.
        let [.., third, fourth] = ((pid % 16_384) * 4).to_be_bytes();
        let (host, guest) = (
            Ipv4Addr::new(10, 231, third, fourth + 1),
            Ipv4Addr::new(10, 231, third, fourth + 2),
        );
        let (name, link) = (format!("waybill-{pid}"), format!("wb{pid}"));
        if let Err(said) = ip(&["netns", "add", &name]) {
            eprintln!(
                "\n*** SKIPPED: a network namespace cannot be made here, so nothing was tested: {said} ***\n"
            );
            return None;
        }
        let made = Self { name, link, host };
        let (name, link, peer) = (made.name.as_str(), made.link.as_str(), format!("wp{pid}"));
        for args in [
            &[
                "link", "add", link, "type", "veth", "peer", "name", &peer, "netns", name,
            ][..],
            &["address", "add", &format!("{host}/30"), "dev", link],
            &["link", "set", link, "up"],
            &["-n", name, "address", "add", &format!("{guest}/30"), "dev", &peer],
            &["-n", name, "link", "set", &peer, "up"],
            &["-n", name, "link", "set", "lo", "up"],
        ] {
            ip(args).unwrap_or_else(|said| panic!("ip {args:?}: {said}"));
        }
        Some(made)
    }

    /// What starts a program in there.
    pub(super) fn within(&self) -> [&str; 4] {
        [IP, "netns", "exec", &self.name]
    }

    /// The routes that lead out of it.
    pub(super) fn routes(&self) -> String {
        let output = Command::new(IP)
            .args(["-n", &self.name, "route"])
            .output()
            .expect("the program");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        drop(ip(&["link", "delete", &self.link]));
        drop(ip(&["netns", "delete", &self.name]));
    }
}

fn ip(args: &[&str]) -> Result<(), String> {
    let output = Command::new(IP)
        .args(args)
        .output()
        .map_err(|problem| problem.to_string())?;
    if output.status.success() {
        return Ok(());
    }
    Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
}
