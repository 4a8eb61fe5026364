//! Tests of parameters and grants.
