#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| lsm::fuzzing::place(data));
