//! What the permissions in `deploy/nats` allow each role, and what they refuse.
