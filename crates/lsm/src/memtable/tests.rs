//! Memtables compared with a BTreeMap, under concurrent readers, and with extreme keys and sizes.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use super::arena::Arena;
use super::*;
use crate::attributes::Extractor;
use crate::cursor::Cursor;
use crate::entry::{Kind, MAX_SEQ, Seq};

type Position = (Vec<u8>, Reverse<Seq>);
type Model = BTreeMap<Position, (Kind, Vec<u8>)>;

/// `n`, or less where every step is slow: under Miri, and with `ESKER_TEST_DIVISOR=20` for a run
/// under valgrind.
fn steps(n: usize) -> usize {
    let divisor = std::env::var("ESKER_TEST_DIVISOR").ok();
    let usual = if cfg!(miri) { 200 } else { 1 };
    n / divisor.and_then(|d| d.parse().ok()).unwrap_or(usual)
}

/// Keys that often collide: few letters, with zeros, around the length of the prefix.
fn random_key(rng: &mut fastrand::Rng) -> Vec<u8> {
    let mut key = match rng.usize(..4) {
        0 => b"12345678".to_vec(),
        1 => vec![0; 8],
        2 => b"1234567".to_vec(),
        _ => Vec::new(),
    };
    for _ in 0..rng.usize(..4) {
        key.push([0, 0, 1, b'a', 0xff][rng.usize(..5)]);
    }
    key
}

fn random_kind(rng: &mut fastrand::Rng) -> Kind {
    [Kind::Delete, Kind::Put, Kind::Operand][rng.usize(..3)]
}

fn assert_at(cursor: &MemCursor, model: &Model, position: &Option<Position>) {
    assert_eq!(cursor.valid(), position.is_some());
    match position {
        Some(at) => {
            assert_eq!((cursor.key(), cursor.seq()), (&at.0[..], at.1.0));
            let (kind, value) = &model[at];
            assert_eq!((cursor.kind(), cursor.value()), (*kind, &value[..]));
            assert_eq!(&*cursor.value_slice(), &value[..]);
        }
        None => {
            assert_eq!((cursor.key(), cursor.seq()), (&b""[..], 0));
            assert_eq!((cursor.kind(), cursor.value()), (Kind::Delete, &b""[..]));
        }
    }
}

fn assert_same(mut cursor: MemCursor, model: &Model) {
    cursor.seek_first().unwrap();
    for at in model.keys() {
        assert_at(&cursor, model, &Some(at.clone()));
        cursor.next().unwrap();
    }
    assert!(!cursor.valid());
    cursor.seek_last().unwrap();
    for at in model.keys().rev() {
        assert_at(&cursor, model, &Some(at.clone()));
        cursor.prev().unwrap();
    }
    assert!(!cursor.valid());
}

#[test]
fn agrees_with_a_model() {
    for seed in 0..4 {
        println!("seed {seed}");
        let mut rng = fastrand::Rng::with_seed(seed);
        let table = Memtable::new(None);
        let mut model = Model::new();
        let mut cursor = table.cursor();
        let mut position: Option<Position> = None;
        let mut seq = 10;
        for _ in 0..steps(20_000) {
            let key = random_key(&mut rng);
            match rng.u32(..9) {
                0..3 => {
                    seq += rng.u64(..2);
                    let at = (key.clone(), Reverse(seq));
                    if model.contains_key(&at) {
                        continue;
                    }
                    let kind = random_kind(&mut rng);
                    let value = vec![rng.u8(..); rng.usize(..40)];
                    table.insert(&key, seq, kind, &value);
                    model.insert(at, (kind, value));
                }
                3 => {
                    let limit = if rng.bool() {
                        MAX_SEQ
                    } else {
                        rng.u64(..seq + 2)
                    };
                    let found = table.get(&key, limit);
                    let expected = model
                        .range((key.clone(), Reverse(limit))..)
                        .next()
                        .filter(|(at, _)| at.0 == key);
                    assert_eq!(found.is_some(), expected.is_some());
                    if let (Some(found), Some((at, (kind, value)))) = (found, expected) {
                        assert_eq!((found.key, found.seq), (&at.0[..], at.1.0));
                        assert_eq!((found.kind, found.value), (*kind, &value[..]));
                    }
                }
                4 => {
                    let limit = if rng.bool() {
                        MAX_SEQ
                    } else {
                        rng.u64(..seq + 2)
                    };
                    cursor.seek(&key, limit).unwrap();
                    position = model
                        .range((key, Reverse(limit))..)
                        .next()
                        .map(|e| e.0.clone());
                }
                5 | 6 => {
                    cursor.next().unwrap();
                    position = position.and_then(|at| {
                        let behind = (Bound::Excluded(at), Bound::Unbounded);
                        model.range(behind).next().map(|e| e.0.clone())
                    });
                }
                7 => {
                    cursor.prev().unwrap();
                    position =
                        position.and_then(|at| model.range(..at).next_back().map(|e| e.0.clone()));
                }
                _ if rng.bool() => {
                    cursor.seek_first().unwrap();
                    position = model.keys().next().cloned();
                }
                _ => {
                    cursor.seek_last().unwrap();
                    position = model.keys().next_back().cloned();
                }
            }
            assert_at(&cursor, &model, &position);
        }
        assert_same(table.cursor(), &model);
        assert_eq!(table.len(), model.len());
        let operands = model.values().filter(|(kind, _)| *kind == Kind::Operand);
        assert_eq!(table.operands(), operands.count());
        let seqs = || model.keys().map(|at| at.1.0);
        assert_eq!(table.seq_bounds(), seqs().min().zip(seqs().max()));
    }
}

#[test]
fn orders_keys_as_bytes_whatever_their_length() {
    let mut keys: Vec<Vec<u8>> = Vec::new();
    for len in 0..12 {
        for last in [0, 1, 0xff] {
            for fill in [0, b'x'] {
                let mut key = vec![fill; len];
                keys.push(key.clone());
                key.push(last);
                keys.push(key);
            }
        }
    }
    keys.sort();
    keys.dedup();
    let mut shuffled = keys.clone();
    fastrand::Rng::with_seed(7).shuffle(&mut shuffled);
    let table = Memtable::new(None);
    for (i, key) in shuffled.iter().enumerate() {
        table.insert(key, i as u64, Kind::Put, key);
    }
    let mut cursor = table.cursor();
    cursor.seek_first().unwrap();
    for key in &keys {
        assert_eq!(cursor.key(), &key[..]);
        assert_eq!(table.get(key, MAX_SEQ).unwrap().value, &key[..]);
        cursor.next().unwrap();
    }
    assert!(!cursor.valid());
}

#[test]
fn an_empty_memtable_has_nothing_and_costs_nothing() {
    let table = Memtable::new(None);
    assert!(table.is_empty() && table.get(b"", MAX_SEQ).is_none());
    assert_eq!(
        (table.len(), table.memory(), table.seq_bounds()),
        (0, 0, None)
    );
    assert!(!table.has_attribute(0));
    assert_same(table.cursor(), &Model::new());
    assert_same(table.attribute_cursor(0), &Model::new());
    assert_same(table.attribute_cursor(usize::MAX), &Model::new());
    table.insert(b"", 0, Kind::Delete, b"");
    assert_eq!(
        (table.len(), table.memory(), table.seq_bounds()),
        (1, 1024 + 640, Some((0, 0)))
    );
    assert_eq!(table.get(b"", 0).unwrap().kind, Kind::Delete);
}

#[test]
fn a_cursor_outlives_its_memtable() {
    let table = Memtable::new(None);
    table.insert(b"a", 1, Kind::Put, b"1");
    table.insert(b"b", 2, Kind::Put, b"2");
    let mut cursor = table.cursor();
    drop(table);
    cursor.seek(b"b", MAX_SEQ).unwrap();
    assert_eq!(cursor.value(), b"2");
    cursor.prev().unwrap();
    assert_eq!(cursor.key(), b"a");
}

#[test]
fn large_values_and_keys() {
    let table = Memtable::new(None);
    let mut rng = fastrand::Rng::with_seed(3);
    let sizes = [
        0,
        1,
        1 << 10,
        4096,
        5000,
        64 << 10,
        300 << 10,
        3 << 20,
        20 << 20,
    ];
    let (mut used, mut seq) = (0, 0);
    for _ in 0..3 {
        for size in sizes {
            if cfg!(miri) && size > 3 << 20 {
                continue;
            }
            let (key, value) = (vec![b'k'; size.min(256 << 10)], vec![rng.u8(..); size]);
            seq += 1;
            table.insert(&key, seq, Kind::Put, &value);
            assert_eq!(table.get(&key, seq).unwrap().value, &value[..]);
            used += key.len() + value.len();
            assert!(table.memory() >= used && table.memory() <= 2 * used + (8 << 10));
        }
    }
}

#[test]
fn the_arena_reports_its_memory_and_aligns() {
    let mut arena = Arena::new();
    let mut used = 0;
    for i in 0..steps(40_000) {
        let before = arena.memory();
        let size = 1 + i % 2000;
        let taken = if i % 3 == 0 {
            arena.back(size);
            size
        } else {
            assert_eq!(arena.front(size).as_ptr() as usize % 8, 0);
            size.next_multiple_of(8)
        };
        used += taken;
        let grown = arena.memory() - before;
        assert!(grown == 0 || grown == taken || grown.is_power_of_two());
        assert!(arena.memory() >= used && arena.memory() <= 2 * used + (8 << 10));
    }
}

/// The value's bytes are attributes: those up to `9` of slot 0, the others of slot 1; a record that
/// begins with `*` also has its key in a slot that does not exist.
struct Letters;

impl Extractor for Letters {
    fn ids(&self) -> &[u32] {
        &[7, 3]
    }

    fn extract(&self, key: &[u8], value: &[u8], emit: &mut dyn FnMut(usize, &[u8])) {
        if value.starts_with(b"*") {
            emit(2, key);
        }
        for letter in value.chunks(1) {
            emit(usize::from(letter > b"9".as_slice()), letter);
        }
    }
}

#[test]
fn attribute_maps_agree_with_a_model() {
    let mut rng = fastrand::Rng::with_seed(11);
    let table = Memtable::new(Some(Arc::new(Letters)));
    assert!(table.has_attribute(0) && table.has_attribute(1) && !table.has_attribute(2));
    let mut models = [Model::new(), Model::new()];
    for seq in 0..steps(5000) as u64 {
        let key = random_key(&mut rng);
        let kind = random_kind(&mut rng);
        let value: Vec<u8> = (0..rng.usize(..5))
            .map(|_| b"*019abz"[rng.usize(..7)])
            .collect();
        table.insert(&key, seq, kind, &value);
        if kind == Kind::Put {
            for &letter in &value {
                let at = (vec![letter], Reverse(seq));
                models[usize::from(letter > b'9')].insert(at, (Kind::Put, key.clone()));
            }
        }
    }
    assert_eq!(table.len(), steps(5000));
    for (slot, model) in models.iter().enumerate() {
        assert_same(table.attribute_cursor(slot), model);
    }
    assert_same(table.attribute_cursor(2), &Model::new());
}

/// The key of the `i`th insert: scattered, of 0 to 19 bytes behind a few shared prefixes.
fn scattered(i: u64) -> Vec<u8> {
    let mut key = vec![b'p'; (i % 12) as usize];
    key.extend_from_slice(&i.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
    key
}

/// Checks that the cursor is strictly ascending (or descending), and finds everything up to
/// `visible`.
fn walk(table: &Memtable, visible: u64, forward: bool) {
    let mut cursor = table.cursor();
    if forward {
        cursor.seek_first()
    } else {
        cursor.seek_last()
    }
    .unwrap();
    let mut last: Option<Vec<u8>> = None;
    let mut found = 0;
    while cursor.valid() {
        let key = cursor.key().to_vec();
        assert_eq!(key, scattered(cursor.seq()));
        assert_eq!(cursor.value(), cursor.seq().to_le_bytes().repeat(3));
        if let Some(last) = &last {
            assert_eq!(*last < key, forward);
            assert_ne!(*last, key);
        }
        found += u64::from(cursor.seq() < visible);
        last = Some(key);
        if forward {
            cursor.next()
        } else {
            cursor.prev()
        }
        .unwrap();
    }
    assert_eq!(found, visible);
}

#[test]
fn readers_see_everything_published_before_they_began() {
    let total = steps(40_000) as u64;
    let table = Memtable::new(None);
    let published = AtomicU64::new(0);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for seed in 0..3 {
            let (table, published, done) = (&table, &published, &done);
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(seed);
                loop {
                    let last_round = done.load(Ordering::Acquire);
                    let visible = published.load(Ordering::Acquire);
                    walk(table, visible, rng.bool());
                    for _ in 0..if visible == 0 { 0 } else { 100 } {
                        let i = rng.u64(..visible);
                        assert_eq!(table.get(&scattered(i), MAX_SEQ).unwrap().seq, i);
                        let (min, max) = table.seq_bounds().unwrap();
                        assert!(min <= i && i <= max && table.len() as u64 >= visible);
                    }
                    if last_round {
                        break;
                    }
                }
            });
        }
        for i in 0..total {
            table.insert(&scattered(i), i, Kind::Put, &i.to_le_bytes().repeat(3));
            published.store(i + 1, Ordering::Release);
        }
        done.store(true, Ordering::Release);
    });
    walk(&table, total, true);
}

#[test]
fn writers_take_turns() {
    let each = steps(10_000) as u64;
    let table = Memtable::new(None);
    thread::scope(|scope| {
        for writer in 0..3 {
            let table = &table;
            scope.spawn(move || {
                for i in (writer * each)..((writer + 1) * each) {
                    table.insert(&scattered(i), i, Kind::Put, &i.to_le_bytes().repeat(3));
                }
            });
        }
    });
    assert_eq!(table.len() as u64, 3 * each);
    walk(&table, 3 * each, true);
    walk(&table, 3 * each, false);
}

/// Prints nanoseconds per call: `cargo test --release -p esker-lsm bench_insert -- --ignored
/// --nocapture`.
#[test]
#[ignore = "prints timings"]
fn bench_insert() {
    let n = 30_000;
    let value = vec![b'v'; 534];
    let mut rng = fastrand::Rng::with_seed(1);
    let rising: Vec<_> = (0..n).map(|i| format!("{i:016}").into_bytes()).collect();
    let mut decimal = rising.clone();
    rng.shuffle(&mut decimal);
    let random: Vec<_> = (0..n)
        .map(|_| rng.u128(..).to_be_bytes().to_vec())
        .collect();
    for _ in 0..3 {
        for (name, keys) in [
            ("rising", &rising),
            ("decimal", &decimal),
            ("random", &random),
        ] {
            let table = Memtable::new(None);
            let time = |what: &str, f: &mut dyn FnMut(usize)| {
                let start = std::time::Instant::now();
                (0..n).for_each(f);
                let each = start.elapsed().as_nanos() / n as u128;
                println!("{name:8} {what:8} {each:4} ns");
            };
            time("insert", &mut |i| {
                table.insert(&keys[i], i as u64, Kind::Put, &value);
            });
            time("get", &mut |i| {
                let key = &keys[i * 7919 % n];
                assert_eq!(table.get(key, MAX_SEQ).map(|e| e.value.len()), Some(534));
            });
            let mut cursor = table.cursor();
            cursor.seek_first().unwrap();
            time("next", &mut |_| {
                assert!(cursor.valid());
                cursor.next().unwrap();
            });
            cursor.seek_last().unwrap();
            time("prev", &mut |_| {
                assert!(cursor.valid());
                cursor.prev().unwrap();
            });
        }
    }
}

#[test]
fn what_lies_between_two_keys_is_counted_exactly_or_about() {
    let table = Memtable::new(None);
    let mut rng = fastrand::Rng::with_seed(3);
    let mut keys: Vec<u32> = (0..30_000).collect();
    rng.shuffle(&mut keys);
    for (seq, key) in keys.iter().enumerate() {
        table.insert(&key.to_be_bytes(), seq as u64 + 1, Kind::Put, b"");
    }
    let cursor = table.cursor();
    for _ in 0..300 {
        let lo = rng.u32(..30_000);
        let there = rng.u32(0..=30_000 - lo) >> rng.u32(..12);
        let hi = (lo + there).to_be_bytes();
        let counted = cursor.between(&lo.to_be_bytes(), Some(&hi));
        let there = u64::from(there);
        if there < 64 {
            assert_eq!(counted, there)
        } else {
            assert!(
                counted < 2 * there && there < 2 * counted,
                "{counted} of {there}"
            )
        }
    }
    assert_eq!(cursor.between(b"\xff", None), 0);
    assert_eq!(
        cursor.between(&9_u32.to_be_bytes(), Some(&5_u32.to_be_bytes())),
        0
    );
    assert_eq!(Memtable::new(None).cursor().between(b"", None), 0);
}
