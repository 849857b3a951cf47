//! Configurations of Apache httpd for `vanward adapt`: see `adapted` of this crate.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::adapted::check(bytes, adapt::apache));
