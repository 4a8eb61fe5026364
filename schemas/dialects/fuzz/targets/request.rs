//! Fuzzes `dialects_fuzz::request`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| dialects_fuzz::request(bytes));
