//! Entry points for fuzzing: what client and server send each other, under any bytes. None may
//! panic, hang or allocate without bound; their assertions must hold for all bytes.
//!
//! Only with the feature `fuzzing`, and in tests. The targets for `cargo fuzz` are in `fuzz/`.

use esker::KeyType;

use crate::wire::{
    DeleteWhere, End, FeedFrom, Poll, ReadAt, from_hex, hex, put_record, read_near, read_record,
    take_frame,
};

/// Frames of an answer, one behind another. Returns how many records they have.
pub fn frames(data: &[u8]) -> usize {
    let mut records = 0;
    let mut left = data;
    while let Some((_, frame, rest)) = take_frame(left) {
        assert!(frame.len() + rest.len() < left.len());
        left = rest;
        for key_type in [KeyType::Int, KeyType::String, KeyType::Fields] {
            if let Some((_, record)) = read_near(key_type, frame) {
                let _ = record.key().to_string();
            }
            let Some(record) = read_record(key_type, frame) else {
                continue;
            };
            let _ = record.key().to_string();
            let mut again = Vec::new();
            assert_eq!(put_record(&record, &mut again), Ok(()));
            let read = take_frame(&again).and_then(|(_, frame, _)| read_record(key_type, frame));
            assert_eq!(read.as_ref().map(|read| read.json()), Some(record.json()));
            records += 1;
        }
    }
    records
}

/// Documents of requests and the end of an answer. Returns how many of them the bytes are.
pub fn documents(data: &[u8]) -> usize {
    let mut valid = usize::from(serde_json::from_slice::<ReadAt>(data).is_ok());
    valid += usize::from(serde_json::from_slice::<Poll>(data).is_ok());
    valid += usize::from(serde_json::from_slice::<DeleteWhere>(data).is_ok());
    valid += usize::from(serde_json::from_slice::<End>(data).is_ok());
    if let Ok(from) = serde_json::from_slice::<FeedFrom>(data)
        && let Ok(begin) = from.read()
    {
        assert_eq!(FeedFrom::of(begin), from);
        valid += 1;
    }
    if let Ok(text) = std::str::from_utf8(data)
        && let Some(bytes) = from_hex(text)
    {
        assert_eq!(hex(&bytes), text.to_ascii_lowercase());
        valid += 1;
    }
    valid
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls `decode` with the samples, each byte changed to several others, and cut everywhere.
    fn changed(samples: &[&[u8]], mut decode: impl FnMut(&[u8])) {
        for sample in samples {
            decode(sample);
            for at in 0..sample.len() {
                decode(sample.get(..at).unwrap_or_default());
                for value in [0, 1, b'"', b'{', b'9', 0x7f, 0xff] {
                    let mut bytes = sample.to_vec();
                    if let Some(byte) = bytes.get_mut(at) {
                        *byte = value;
                    }
                    decode(&bytes);
                }
            }
        }
    }

    #[test]
    fn frames_and_documents_under_any_bytes() {
        let record = b"r\x1c\0\0\0\x07\0\0\0\0\0\0\0\x08\0\0\0\x80\0\0\0\0\0\0\x05{\"id\":5}";
        let mut valid = 0;
        changed(&[record], |bytes| valid += frames(bytes));
        assert!(valid > 50, "{valid}");
        let samples: [&[u8]; 6] = [
            br#"{"at":"now","read":{"get":{"keys":["5"]}}}"#,
            br#"{"at":{"moment":"ff"},"read":"fields"}"#,
            br#"{"seq":7}"#,
            br#"{"position":"3a820af785d0b9f8-648"}"#,
            br#"{"explain":{},"token":null}"#,
            b"00ff3A",
        ];
        let mut valid = 0;
        changed(&samples, |bytes| valid += documents(bytes));
        assert!(valid > 50, "{valid}");
    }
}
