#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| esker_volume::fuzzing::command(data));
