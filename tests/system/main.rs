//! Black-box tests: the real binary between a strict client and scripted upstreams, one module a topic.

mod smoke;
