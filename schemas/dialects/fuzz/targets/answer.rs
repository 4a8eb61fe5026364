//! Fuzzes `dialects_fuzz::answer`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| dialects_fuzz::answer(bytes));
