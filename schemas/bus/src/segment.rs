//! One record format for the spool, the log and the KV journal.
