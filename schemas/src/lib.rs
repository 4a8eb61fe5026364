//! What is said between the parts of Waybill: ids, money, usage, events, commands, frames, the catalogue
//! and queries. Plain data and pure functions; nothing here does I/O, reads a clock or makes an id.
//!
//! The words, one per thing: a **tenant** pays; a **key** is the credential we issue; a **caller** is tenant
//! plus key of the request at hand; a **model** is the name asked for; a **route** is one way to serve it and
//! leads to an **endpoint**, which has one or more **backends**; an **attempt** is one try of a request on one
//! endpoint; an **outcome** is how it ended; to **settle** is to close a request exactly once, and its record
//! is the **waybill**; an **adjustment** corrects what it says to cost; the **spool** is the gateway's own outbox of events; the **ledger** keeps the books; a **limit**
//! bounds a rate, a concurrency or a quota of a tenant, user or key, those that bound a request are its **layers**, and
//! what a node has of them in hand are its **holdings**: **permits** of rates, **slots** of concurrencies, and of
//! quotas what it has **taken**. An **idempotency key** is claimed by one request, which holds it until its answer can
//! be **replayed**; a **session** is calls that are kept on one backend, by **affinity**; a **change** is what somebody
//! made of a record of the catalogue, and the **actor** is who; changes of several records that count together are
//! written in one **passage**; an **account** is by what a member signs in; a **pool** is routers that stand apart, a
//! **way** the candidates of a call that one pool runs, and a **part** what it must know of the catalogue for that.

pub mod account;
pub mod affinity;
pub mod auto;
pub mod balance;
pub mod catalog;
pub mod ceiling;
pub mod circuit;
pub mod command;
pub mod configuration;
pub mod contract;
pub mod digest;
mod digits;
pub mod egress;
pub mod engine;
pub mod envelope;
pub mod event;
pub mod failure;
pub mod frame;
pub mod health;
pub mod id;
pub mod idempotency;
pub mod limit;
pub mod merkle;
pub mod money;
pub mod named;
pub mod node;
pub mod outcome;
pub mod parameter;
pub mod pool;
pub mod query;
pub mod reprice;
pub mod seal;
pub mod secret;
pub mod subject;
pub mod time;
pub mod trial;
pub mod usage;
pub mod wake;
