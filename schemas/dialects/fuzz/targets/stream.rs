//! Fuzzes `dialects_fuzz::stream`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| dialects_fuzz::stream(bytes));
