//! The memtable, compared with a map.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::coding::Reader;
use crate::cursor::Cursor;
use crate::entry::{Kind, MAX_SEQ, Seq};
use crate::memtable::{MemCursor, Memtable};

type Model = BTreeMap<(Vec<u8>, Reverse<Seq>), (Kind, Vec<u8>)>;

/// Decodes the bytes as operations on a memtable, each compared with a map. An operation is a byte
/// for its type, and its arguments: a key (behind a length byte), a number.
pub fn memtable(data: &[u8]) {
    let (table, mut model) = (Memtable::new(None), Model::new());
    let mut cursor = table.cursor();
    let mut place = None;
    let mut seq = 1;
    let mut input = Reader::new(data);
    while let Some(operation) = input.u8() {
        let key = key(&mut input);
        match operation % 8 {
            0..3 => {
                let kind = Kind::from_byte(operation / 8 % 3).unwrap();
                let value = vec![operation; usize::from(operation)];
                seq += 1;
                table.insert(&key, seq, kind, &value);
                model.insert((key, Reverse(seq)), (kind, value));
            }
            3 => {
                let limit = limit(&mut input, seq);
                let found = table.get(&key, limit);
                let wanted = model
                    .range((key.clone(), Reverse(limit))..)
                    .next()
                    .filter(|(at, _)| at.0 == key);
                let found = found.map(|e| (e.seq, e.kind, e.value.to_vec()));
                assert_eq!(found, wanted.map(|(at, e)| (at.1.0, e.0, e.1.clone())));
            }
            4 => {
                let limit = limit(&mut input, seq);
                cursor.seek(&key, limit).unwrap();
                let at = (key, Reverse(limit));
                place = model.range(at..).next().map(|(at, _)| at.clone());
            }
            5 => {
                cursor.next().unwrap();
                place = place.and_then(|at| {
                    let mut after = model.range(at..);
                    after.next();
                    after.next().map(|(at, _)| at.clone())
                });
            }
            6 => {
                cursor.prev().unwrap();
                place = place.and_then(|at| model.range(..at).next_back().map(|e| e.0.clone()));
            }
            _ => {
                cursor.seek_last().unwrap();
                place = model.keys().next_back().cloned();
            }
        }
        check(&cursor, &model, place.as_ref());
    }
    assert_eq!(table.len(), model.len());
    cursor.seek_first().unwrap();
    for at in model.keys() {
        check(&cursor, &model, Some(at));
        cursor.next().unwrap();
    }
    assert!(!cursor.valid());
}

fn key(input: &mut Reader<'_>) -> Vec<u8> {
    let len = usize::from(input.u8().unwrap_or(0)) % 20;
    let len = len.min(input.rest().len());
    input.take(len).unwrap_or_default().to_vec()
}

fn limit(input: &mut Reader<'_>, seq: Seq) -> Seq {
    match input.u8() {
        Some(back) => seq.saturating_sub(Seq::from(back)),
        None => MAX_SEQ,
    }
}

fn check(cursor: &MemCursor, model: &Model, place: Option<&(Vec<u8>, Reverse<Seq>)>) {
    assert_eq!(cursor.valid(), place.is_some());
    if let Some(at) = place {
        let (kind, value) = model.get(at).unwrap();
        assert_eq!((cursor.key(), cursor.seq()), (&at.0[..], at.1.0));
        assert_eq!((cursor.kind(), cursor.value()), (*kind, &value[..]));
    }
}
