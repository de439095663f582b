//! Entry points for fuzzing: each feeds any bytes to decoders. None may panic, hang or allocate
//! without bound; their assertions must hold for all bytes.
//!
//! Only with the feature `fuzzing`, and in tests. The targets for `cargo fuzz` are in `fuzz/`.

pub use crate::mqtt::fuzzing::{filters, packets, stored};

use crate::access::bytes_of_hash;
use crate::config::Config;
use crate::live::EventId;
use crate::pages::{Place, number_of};

/// Settings of a server. Returns true if they are valid.
pub fn settings(data: &[u8]) -> bool {
    std::str::from_utf8(data).is_ok_and(|text| Config::parse(text).is_ok())
}

/// What requests have in their addresses and headers: tokens of pages, numbers of moments, ids of
/// events, hashes. Returns how many of them the bytes are.
pub fn tokens(data: &[u8]) -> usize {
    let Ok(text) = std::str::from_utf8(data) else {
        return 0;
    };
    let mut valid =
        usize::from(number_of(text).is_ok()) + usize::from(bytes_of_hash(text).is_some());
    if let Ok(place) = Place::parse(text) {
        let again = Place::parse(&place.text()).map(|place| place.text());
        assert_eq!(again.ok(), Some(place.text()));
        valid += 1;
    }
    if let Ok(id) = text.parse::<EventId>() {
        assert_eq!(id.to_string().parse(), Ok(id));
        valid += 1;
    }
    valid
}

#[cfg(test)]
mod tests {
    use fastrand::Rng;

    use super::*;

    /// Calls `decode` with the samples, changed at random; longer with `ESKER_FUZZ=1000`.
    fn mutated(samples: &[&[u8]], mut decode: impl FnMut(&[u8])) {
        let times = std::env::var("ESKER_FUZZ").ok();
        let times = times.and_then(|times| times.parse().ok()).unwrap_or(1);
        let mut rng = Rng::with_seed(7);
        for _ in 0..2000 * times {
            let mut bytes = rng
                .choice(samples)
                .map(|sample| sample.to_vec())
                .unwrap_or_default();
            for _ in 0..rng.usize(0..4) {
                let at = rng.usize(0..=bytes.len());
                match rng.u8(0..4) {
                    0 => bytes.truncate(at),
                    1 => bytes.insert(at, rng.u8(..)),
                    _ => {
                        if let Some(byte) = bytes.get_mut(at) {
                            *byte = rng.u8(..);
                        }
                    }
                }
            }
            decode(&bytes);
        }
    }

    #[test]
    fn packets_of_clients_under_any_bytes() {
        let connect =
            b"\x96\x10\x1f\x00\x04MQTT\x05\x02\x00\x3c\x05\x11\x00\x00\x00\x0a\x00\x03abc\x00\x00";
        let publish =
            b"\x98\x32\x10\x00\x03a/b\x00\x07\x02\x01\x01hello\x32\x0a\x00\x03a/b\x00\x08\x00hi";
        let subscribe = b"\x47\x82\x12\x00\x05\x00\x00\x03a/+\x01\x00\x03b/#\x00";
        let (mut all, mut decoded) = (0, 0);
        mutated(&[connect, publish, subscribe], |bytes| {
            all += 1;
            decoded += packets(bytes);
        });
        assert!(decoded > all / 4, "{decoded} packets in {all}");
    }

    #[test]
    fn filters_sessions_settings_and_tokens_under_any_bytes() {
        let mut valid = 0;
        mutated(&[b"$share/g/a/+/#\na/b/c", b"a/b\na/b", b"#\nx"], |bytes| {
            valid += usize::from(filters(bytes));
        });
        let session = br#"{"client":"c","user":"u","expiry":5,"number":1,"id":2,"packets":[],
            "subscriptions":[{"number":1,"filter":"a/#","qos":1,"position":7}]}"#;
        mutated(&[session, b"\x0b12345678\x01\x02"], |bytes| {
            valid += usize::from(stored(bytes));
        });
        mutated(
            &[b"listen = \"127.0.0.1:0\"\n[limits]\nbody = \"1M\"\n"],
            |bytes| {
                valid += usize::from(settings(bytes));
            },
        );
        let samples: [&[u8]; 3] = [b"7-3a820af785d0b9f8-648", b"00000000000000ff", b"ff.00"];
        mutated(&samples, |bytes| valid += tokens(bytes));
        assert!(valid > 500, "{valid}");
    }
}
