//! Tests of waybills.
