#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let _ = esker_client::fuzzing::frames(data);
});
