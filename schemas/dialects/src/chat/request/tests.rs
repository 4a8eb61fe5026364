//! Requests, read and written.
