#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| esker_volume::nbd::fuzzing::fuzz_handshake(data));
