//! Plain records come out as the parser reads them.

use super::extract_tests::extraction;
use super::plain::plain_len;
use super::*;

const SEED: u64 = 0x5eed_0004;

#[test]
fn strings_end_at_the_first_byte_that_is_not_plain() {
    let mut rng = fastrand::Rng::with_seed(3);
    for _ in 0..20_000 {
        let len = rng.usize(..80);
        let bytes: Vec<u8> = (0..len)
            .map(|_| match rng.u8(..60) {
                0 => b'"',
                1 => b'\\',
                2 => rng.u8(..b' '),
                3 => rng.u8(..),
                _ => rng.u8(b' '..),
            })
            .collect();
        let is_end = |byte: &u8| *byte < b' ' || b"\"\\".contains(byte);
        let expected = bytes.iter().position(is_end).unwrap_or(len);
        assert_eq!(plain_len(&bytes), expected, "{bytes:?}");
    }
}

/// A text near plain JSON: what a value may look like that is told, or skipped, or no JSON.
fn nearly_plain(rng: &mut fastrand::Rng, depth: usize) -> String {
    const SCALARS: [&str; 40] = [
        "0",
        "-0",
        "00",
        "01",
        "-1",
        "7",
        "1.5",
        "-0.5",
        "-0.0",
        "1.",
        ".5",
        "1e3",
        "1E400",
        "-",
        "9223372036854775807",
        "9223372036854775808",
        "18446744073709551615",
        "18446744073709551616",
        "-9223372036854775808",
        "-9223372036854775809",
        "9999999999999999999",
        "0.1234567890123456789012345678901234567890",
        "0.12345678901234567890123456789012345678901",
        "true",
        "false",
        "null",
        "tru",
        "nulll",
        "\"\"",
        "\"a\"",
        "\"seven\"",
        "\"\\u0041\"",
        "\"\\ud800\"",
        "\"tab\there\"",
        "\"\u{e9}\"",
        "\"2024-05-01T00:00:00Z\"",
        "\"unended",
        "\"a longer text, which takes more than one piece\"",
        "[]",
        "{}",
    ];
    let blank = |rng: &mut fastrand::Rng| ["", "", "", " ", "\n", "\t "][rng.usize(..6)];
    match rng.u32(..if depth > 2 { 10 } else { 14 }) {
        ..10 if depth > 0 => SCALARS[rng.usize(..SCALARS.len())].to_owned(),
        10 | 11 if depth > 0 => {
            let all: Vec<String> = (0..rng.usize(..4))
                .map(|_| nearly_plain(rng, depth + 1))
                .collect();
            format!("[{}]", all.join(if rng.u8(..20) == 0 { "," } else { ", " }))
        }
        _ => {
            let all: Vec<String> = (0..rng.usize(..5))
                .map(|_| {
                    let name = ["a", "b", "c\u{e9}", "id", "x", "i\\u0064"][rng.usize(..6)];
                    let value = nearly_plain(rng, depth + 1);
                    let (before, after) = (blank(rng), blank(rng));
                    format!("{before}\"{name}\"{after}:{before}{value}{after}")
                })
                .collect();
            format!("{{{}}}", all.join(","))
        }
    }
}

#[test]
fn plain_records_are_extracted_as_the_parser_does() {
    let mut rng = fastrand::Rng::with_seed(SEED);
    let paths = ["a", "b", "c\u{e9}", "a.b", "a.a", "b.id", "a.b.a", "x"];
    let (mut plain, mut refused) = (0, 0);
    for round in 0..150_000 {
        let attributes: Vec<_> = (0..rng.usize(..4))
            .map(|_| {
                let path = paths[rng.usize(..paths.len())];
                (path, Type::SCALAR[rng.usize(..5)])
            })
            .collect();
        let key_type = [KeyType::Int, KeyType::String][rng.usize(..2)];
        let x = extraction("id", key_type, &attributes);
        let mut text = nearly_plain(&mut rng, 0);
        if rng.u32(..4) > 0 {
            let id = ["{\"id\":7,", "{\"id\":\"seven\","][(key_type == KeyType::String) as usize];
            text = text.replacen('{', id, 1).replacen(",}", "}", 1);
        }
        if rng.u32(..8) == 0 {
            let at = text.floor_char_boundary(rng.usize(..=text.len()));
            text.insert_str(
                at,
                ["{", "}", "[", "]", "\"", ",", ":", " ", "1"][rng.usize(..9)],
            );
        }
        let (mut fast, mut slow) = (Extracted::default(), Extracted::default());
        let read = x.extract_any(&text, Rest::Read, &mut slow);
        let skipped = x.extract_any(&text, Rest::Skipped, &mut Extracted::default());
        let context = format!("round {round}, seed {SEED}: {text:?} with {attributes:?}");
        if x.extract_plain(&text, &mut fast) {
            plain += 1;
            assert!(read.is_ok() && skipped.is_ok(), "{context}: {read:?}");
            assert_eq!(fast.key(), slow.key(), "{context}");
            assert!(fast.iter().eq(slow.iter()), "{context}");
        } else if read.is_err() {
            refused += 1;
        }
        // What is not plain is left to the parser, with nothing left of the first walk.
        let result = x.extract_new(text.as_bytes(), &mut fast);
        assert_eq!(result.is_ok(), read.is_ok(), "{context}");
        if let (Err(new), Err(old)) = (&result, &read) {
            assert_eq!(new.kind, old.kind, "{context}");
        } else {
            assert!(
                fast.key() == slow.key() && fast.iter().eq(slow.iter()),
                "{context}"
            );
        }
    }
    assert!(
        plain > 10_000 && refused > 10_000,
        "{plain} plain, {refused} refused"
    );
}

#[test]
fn records_as_programs_write_them_are_plain() {
    let x = extraction(
        "id",
        KeyType::Int,
        &[("user.at", Type::Time), ("score", Type::Float)],
    );
    let mut out = Extracted::default();
    for text in [
        r#"{"id":1,"user":{"name":"Ann Öberg","at":1700000000.25},"score":-0.125,"tags":["a","b"],"on":true}"#,
        "{\n  \"id\": 9999999999999999999,\n  \"user\": null,\n  \"x\": [0.5, [-3, false]]\n}\n",
    ] {
        assert!(x.extract_plain(text, &mut out), "{text}");
    }
    let deep = format!("{{\"id\":1,\"x\":{}{}}}", "[".repeat(60), "]".repeat(60));
    assert!(!x.extract_plain(&deep, &mut out) && x.extract(deep.as_bytes(), &mut out).is_ok());
}
