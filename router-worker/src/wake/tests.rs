//! Tests of waking over a router and fakes.
