#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| esker::fuzzing::tree_config(data));
