//! The adapters for NATS against a real server: every promise of the ports, what happens when the server dies and
//! comes back, what is refused at the start, and what the permissions in `deploy/nats` allow.

#[cfg(test)]
mod accounts;
#[cfg(test)]
mod conformance;
#[cfg(test)]
mod outage;
#[cfg(test)]
mod remote;
#[cfg(test)]
mod room;
#[cfg(test)]
mod server;
#[cfg(test)]
mod setup;
