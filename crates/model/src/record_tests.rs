use super::*;

const SEED: u64 = 0x5eed_0003;

#[test]
fn a_record_comes_back_as_it_was_put() {
    let long = vec![7; 300];
    let attributes = [(0, &b""[..]), (3, b"abc"), (3, b"abd"), (u32::MAX, &long)];
    for count in 0..=attributes.len() {
        for body in [&b""[..], b"{\"id\": 1 }\n"] {
            let mut stored = vec![1, 2];
            encode(&mut stored, 9, attributes[..count].iter().copied(), body);
            let record = RecordRef::parse(&stored[2..]).unwrap();
            assert_eq!((record.known(), record.body()), (9, body));
            assert_eq!(RecordRef::body_of(&stored[2..]), Some(body));
            assert!(record.attributes().eq(attributes[..count].iter().copied()));
        }
    }
    let mut stored = Vec::new();
    encode(&mut stored, 0, std::iter::empty(), b"{}");
    assert_eq!(stored, b"\0\0{}", "two bytes over the body");
}

#[test]
fn random_bytes_never_panic() {
    let mut rng = fastrand::Rng::with_seed(SEED);
    for _ in 0..50_000 {
        let bytes: Vec<u8> = (0..rng.usize(..20))
            .map(|_| rng.u8(..) >> rng.u32(..8))
            .collect();
        if let Some(record) = RecordRef::parse(&bytes) {
            let mut again = Vec::new();
            encode(
                &mut again,
                record.known(),
                record.attributes(),
                record.body(),
            );
            // Varints may be longer than necessary, so the bytes may differ.
            let again = RecordRef::parse(&again).unwrap();
            assert_eq!(again.body(), record.body(), "seed {SEED}: {bytes:?}");
            assert!(
                again.attributes().eq(record.attributes()),
                "seed {SEED}: {bytes:?}"
            );
        }
    }
}

#[test]
fn lengths_of_varints() {
    for shift in 0..64 {
        for v in [(1u64 << shift) - 1, 1 << shift, u64::MAX] {
            let mut out = Vec::new();
            put_varint(&mut out, v);
            assert_eq!(varint_len(v), out.len(), "{v}");
        }
    }
}
