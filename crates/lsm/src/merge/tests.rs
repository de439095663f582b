//! Surviving entries of a compaction, and the cursor obsolete several sources, compared with
//! models.

use std::sync::Arc;

use super::*;
use crate::cursor::Cursor;
use crate::entry::{Kind, MAX_SEQ, Seq, compare};
use crate::memtable::{MemCursor, Memtable};
use crate::obsolete::SeqSet;

type Entry = (Vec<u8>, Seq, Kind, Vec<u8>);

fn memtable(entries: &[Entry]) -> MemCursor {
    let memtable = Memtable::new(None);
    for (key, seq, kind, value) in entries {
        memtable.insert(key, *seq, *kind, value);
    }
    memtable.cursor()
}

fn entry(key: &str, seq: Seq, kind: Kind, value: &str) -> Entry {
    (
        key.as_bytes().to_vec(),
        seq,
        kind,
        value.as_bytes().to_vec(),
    )
}

/// Joins operands with commas, in pieces of at most eight bytes.
struct Joined;

impl MergeOperator for Joined {
    fn combine(&self, _: &[u8], newer: &mut Vec<u8>, _: Seq, older: &[u8], _: Seq) -> bool {
        if newer.len() + older.len() > 8 {
            return false;
        }
        newer.push(b',');
        newer.extend_from_slice(older);
        true
    }
}

fn merge(sources: Vec<Vec<Entry>>, rules: Rules<'_>) -> Vec<Entry> {
    let mut input = MergeCursor::new(sources.iter().map(|source| memtable(source)).collect());
    input.seek_first().unwrap();
    let mut out = Vec::new();
    let mut stream = MergeStream::new(input, rules);
    stream
        .run(&mut |key, seq, kind, value| {
            out.push((key.to_vec(), seq, kind, value.to_vec()));
            Ok(())
        })
        .unwrap();
    out
}

fn rules(is_oldest: &dyn Fn(&[u8]) -> bool) -> Rules<'_> {
    Rules {
        operator: None,
        filter: None,
        versions: 1,
        is_oldest,
        obsolete: ObsoleteWrites::default(),
        reported: None,
        repaired: MAX_SEQ,
        now: 0,
    }
}

#[test]
fn the_newest_version_survives_and_the_numbers_of_the_others_are_reported() {
    let mut reported = SeqSet::new();
    let out = merge(
        vec![
            vec![
                entry("a", 9, Kind::Put, "new"),
                entry("b", 8, Kind::Delete, ""),
                entry("z", 7, Kind::Put, "z"),
            ],
            vec![
                entry("a", 3, Kind::Put, "old"),
                entry("b", 2, Kind::Put, "gone"),
                entry("c", 1, Kind::Put, "c"),
            ],
        ],
        Rules {
            reported: Some(&mut reported),
            ..rules(&|_| true)
        },
    );
    let expected = vec![
        entry("a", 9, Kind::Put, "new"),
        entry("c", 1, Kind::Put, "c"),
        entry("z", 7, Kind::Put, "z"),
    ];
    assert_eq!(out, expected);
    assert_eq!(reported.iter().collect::<Vec<_>>(), [2, 3]);
}

#[test]
fn tombstones_stay_while_older_components_may_hold_their_key() {
    let sources = || {
        vec![vec![
            entry("b", 8, Kind::Delete, ""),
            entry("c", 9, Kind::Delete, ""),
        ]]
    };
    assert_eq!(
        merge(sources(), rules(&|key| key == b"c")),
        vec![entry("b", 8, Kind::Delete, "")]
    );
}

#[test]
fn several_versions_are_kept_when_asked_for() {
    let source = (1..=5).map(|seq| entry("k", seq, Kind::Put, "v")).collect();
    let out = merge(
        vec![source],
        Rules {
            versions: 3,
            ..rules(&|_| true)
        },
    );
    assert_eq!(out.iter().map(|e| e.1).collect::<Vec<_>>(), vec![5, 4, 3]);
}

#[test]
fn puts_of_a_key_that_was_written_since_the_repair_are_kept() {
    let source = || {
        vec![
            entry("a", 12, Kind::Put, "new"),
            entry("a", 5, Kind::Put, "old"),
            entry("b", 13, Kind::Delete, ""),
            entry("b", 6, Kind::Put, "old"),
        ]
    };
    let left = |repaired| {
        let rules = Rules {
            repaired,
            ..rules(&|_| true)
        };
        let out = merge(vec![source()], rules);
        out.iter().map(|entry| entry.1).collect::<Vec<_>>()
    };
    // A number replaced before the watermark is reported through its replacement, not by itself.
    assert_eq!(left(8), [12, 5, 13, 6]);
    assert_eq!(left(12), [12, 13, 6]);
    assert_eq!(left(13), [12]);
}

#[test]
fn operands_combine_in_pieces_down_to_a_base() {
    let newer = vec![
        entry("k", 9, Kind::Operand, "i"),
        entry("k", 8, Kind::Operand, "h"),
    ];
    let older = vec![
        entry("k", 7, Kind::Operand, "ggg"),
        entry("k", 6, Kind::Operand, "ffff"),
        entry("k", 5, Kind::Put, "base"),
        entry("k", 4, Kind::Operand, "hidden"),
    ];
    let out = merge(
        vec![newer, older],
        Rules {
            operator: Some(Arc::new(Joined)),
            ..rules(&|_| true)
        },
    );
    let expected = vec![
        entry("k", 9, Kind::Operand, "i,h,ggg"),
        entry("k", 6, Kind::Operand, "ffff"),
        entry("k", 5, Kind::Put, "base"),
    ];
    assert_eq!(out, expected);
}

#[test]
fn a_filter_may_rewrite_and_drop_but_never_bares_an_older_version() {
    struct Expire;
    impl CompactionFilter for Expire {
        fn decide(&mut self, entry: FilteredEntry<'_>, _: &mut dyn FnMut() -> bool) -> Decision {
            match entry.key {
                b"drop" => Decision::Drop,
                b"change" => Decision::Rewrite([entry.value, b"!"].concat()),
                _ => Decision::Keep,
            }
        }
    }
    let source = vec![
        entry("change", 1, Kind::Put, "x"),
        entry("drop", 2, Kind::Put, "y"),
        entry("keep", 3, Kind::Put, "z"),
    ];
    let with = |oldest: &'static (dyn Fn(&[u8]) -> bool + 'static)| {
        merge(
            vec![source.clone()],
            Rules {
                filter: Some(Box::new(Expire)),
                ..rules(oldest)
            },
        )
    };
    assert_eq!(
        with(&|_| true),
        vec![
            entry("change", 1, Kind::Put, "x!"),
            entry("keep", 3, Kind::Put, "z")
        ]
    );
    assert_eq!(with(&|_| false)[1], entry("drop", 2, Kind::Delete, ""));
}

#[test]
fn the_merge_cursor_moves_as_one_sorted_list_would() {
    for seed in 0..60 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let sources: Vec<Vec<Entry>> = (0..rng.usize(1..5)).map(|_| Vec::new()).collect();
        let mut sources = sources;
        let mut all = Vec::new();
        for seq in 1..rng.u64(2..80) {
            let key = vec![b'a' + rng.u8(0..6); rng.usize(0..3)];
            let kind = if rng.u8(0..4) == 0 {
                Kind::Delete
            } else {
                Kind::Put
            };
            let entry = (key, seq, kind, seq.to_le_bytes().to_vec());
            let pick = rng.usize(0..sources.len());
            sources[pick].push(entry.clone());
            all.push(entry);
        }
        all.sort_by(|a, b| compare(&a.0, a.1, &b.0, b.1));
        let mut cursor = MergeCursor::new(sources.iter().map(|source| memtable(source)).collect());
        let mut at: Option<usize> = None;
        for step in 0..200 {
            match rng.u8(0..10) {
                0 => {
                    cursor.seek_first().unwrap();
                    at = (!all.is_empty()).then_some(0);
                }
                1 => {
                    cursor.seek_last().unwrap();
                    at = all.len().checked_sub(1);
                }
                2 | 3 => {
                    let key = vec![b'a' + rng.u8(0..7); rng.usize(0..3)];
                    let seq = if rng.bool() { MAX_SEQ } else { rng.u64(0..90) };
                    cursor.seek(&key, seq).unwrap();
                    let to = all.partition_point(|e| compare(&e.0, e.1, &key, seq).is_lt());
                    at = (to < all.len()).then_some(to);
                }
                4..=6 => {
                    let Some(here) = at else { continue };
                    cursor.next().unwrap();
                    at = (here + 1 < all.len()).then_some(here + 1);
                }
                _ => {
                    let Some(here) = at else { continue };
                    cursor.prev().unwrap();
                    at = here.checked_sub(1);
                }
            }
            let shown = cursor.valid().then(|| {
                (
                    cursor.key().to_vec(),
                    cursor.seq(),
                    cursor.kind(),
                    cursor.value().to_vec(),
                )
            });
            assert_eq!(
                shown.as_ref(),
                at.map(|at| &all[at]),
                "seed {seed}, step {step}"
            );
        }
    }
}
