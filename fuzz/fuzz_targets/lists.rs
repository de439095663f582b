#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    pubsub::fuzzing::stored(data);
});
