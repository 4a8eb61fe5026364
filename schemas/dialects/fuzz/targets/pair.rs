//! Fuzzes `dialects_fuzz::pair`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| dialects_fuzz::pair(bytes));
