//! What black-box tests of Waybill stand on: scripted upstreams that misbehave on command, nodes that are
//! started, stopped and killed as real processes, a client that objects to every impropriety, and a
//! checker that goes through the books after each test. The harness knows the product only from outside:
//! it uses none of its crates, so it computes costs, digests and framing a second time.
#![expect(clippy::expect_used, reason = "a test suite")]

pub mod books;
pub mod checker;
pub mod client;
pub mod cluster;
pub mod http2;
pub mod load;
pub mod mail;
pub mod node;
pub mod provider;
pub mod proxy;
pub mod scene;
pub mod server;
pub mod upstream;

pub use books::Books;
pub use checker::violation::Violation;
pub use checker::{Facts, check};
pub use client::log::{Answered, ClientLog, End};
pub use client::raw::{RawAnswer, RawSocket, raw};
pub use client::raw2::{Frame, Http2Socket};
pub use client::sse::{Reader, Said};
pub use client::stream::{Event, Stream, Transcript};
pub use client::surface::Surface;
pub use client::told::{Counts, Told, ToldCall};
pub use client::{
    ARGUMENT_CANARY, Answer, Client, PROMPT_CANARY, chat, chat_streamed, chat_streamed_with_usage,
};
pub use cluster::{Cluster, Plan, Services, embedded_only, wanted as in_cluster};
pub use http2::Http2Upstream;
pub use load::{Load, Outcome};
pub use node::config::{
    ADMIN_KEY, API_KEY_SECRET, CALLER_KEY, EXPIRED_KEY, FALSE_KEY, JWT_SECRET_KEY, Model, NARROW_KEY,
    OPERATOR_KEY, OTHER_KEY, PRICE, PRO_KEY, PROVIDER_KEY, Price, models_file, settings,
};
pub use node::{Node, NodeBuilder};
pub use proxy::{Proxy, Way};
pub use scene::Scene;
pub use server::nats::{Nats, NatsCluster};
pub use server::postgres::Postgres;
pub use upstream::behaviour::{Behaviour, Then};
pub use upstream::request::Received;
pub use upstream::speech::Speech;
pub use upstream::{Call, CallState, SilentPort, Upstream, refusing_addr};
