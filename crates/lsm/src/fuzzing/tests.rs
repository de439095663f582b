//! A short run of each entry point, longer with `ESKER_FUZZ=1000`.

use std::path::Path;
use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64;

use super::*;
use crate::batch::Batch;
use crate::entry::{Kind, Position};
use crate::fs::Fs;
use crate::obsolete::{self, SeqSet};
use crate::synopsis::MapBuilder;
use crate::table::TableMeta;
use crate::version::{ComponentId, ConsumerPlace, Current, Edit, NewTable, Place, Seal, TableAt};
use crate::wal::{LogFormat, LogWriter};
use esker_sim::memory::Memory;

fn batches() -> Vec<Vec<u8>> {
    let mut batch = Batch::new();
    batch.put(1, b"key", b"value").unwrap();
    let one = batch.seal(1).to_vec();
    batch.also(Kind::Operand, 2, b"value", b"key").unwrap();
    batch.also(Kind::Delete, 2, b"old", b"").unwrap();
    batch.delete(1, b"other").unwrap();
    vec![one, batch.seal(7).to_vec()]
}

fn edits() -> Vec<Vec<u8>> {
    let table = |number, level, smallest: &[u8], largest: &[u8]| NewTable {
        tree: 1,
        level,
        run: if level == 0 { number } else { 0 },
        component: ComponentId { min: 1, max: 9 },
        meta: Arc::new(TableMeta {
            number,
            size: 500,
            entries: 9,
            smallest: smallest.to_vec(),
            largest: largest.to_vec(),
            min_seq: 1,
            max_seq: 9,
            zones: vec![(3, Some((vec![1], None))), (4, None)],
            ..TableMeta::default()
        }),
        place: (number > 1).then_some(Place {
            file: 1,
            offset: 500 * number,
            len: 9000,
        }),
    };
    let mut edit = Edit {
        created: vec![
            (1, "d/data".into(), b"{}".to_vec()),
            (2, "x".into(), vec![]),
        ],
        log: Some(2),
        next_file: Some(9),
        next_tree: Some(3),
        last_seq: Some(6),
        ..Edit::default()
    };
    let plain = edit.encode();
    edit.dropped = vec![2];
    edit.renamed = vec![(1, "e/data".into())];
    edit.configured = vec![(1, b"[]".to_vec())];
    edit.cursors = vec![(1, 1, b"m".to_vec())];
    edit.added = vec![
        table(5, 0, b"a", b"z"),
        table(6, 1, b"a", b"f"),
        table(7, 1, b"g", b"z"),
    ];
    let full = edit.encode();
    edit.removed = vec![TableAt { tree: 1, number: 5 }];
    vec![plain, full, edit.encode()]
}

#[test]
fn batches_and_edits() {
    campaign(1, 30_000, &batches(), &mut batch);
    campaign(2, 30_000, &edits(), &mut edit);
}

#[test]
fn places_of_consumers() {
    let place = ConsumerPlace {
        name: "\u{0}7\u{0}mailer".to_string(),
        position: Position {
            history: 9,
            seq: 300,
        },
        bytes: 1 << 30,
        replaced: Some("mailer".to_string()),
    };
    let whole = place.encode();
    let unsealed = whole[..whole.len() - 8].to_vec();
    campaign(8, 10_000, &[whole, unsealed], &mut super::place);
}

#[test]
fn current_files() {
    let corpus: Vec<Vec<u8>> = [
        None,
        Some(Seal {
            manifest_len: 77,
            logs: vec![(3, 48), (9, 99)],
        }),
    ]
    .into_iter()
    .map(|seal| {
        let (fs, dir) = (Memory::new(), Path::new("/fuzz"));
        fs.create_dir(dir).unwrap();
        Current { manifest: 12, seal }.write(&fs, dir).unwrap();
        let mut bytes = fs.read(&dir.join("CURRENT")).unwrap();
        bytes.truncate(bytes.len() - 8);
        bytes
    })
    .collect();
    campaign(3, 10_000, &corpus, &mut current);
}

#[test]
fn logs() {
    let mut corpus = Vec::new();
    for (kind, previous) in [(LogFormat::WAL, Some((0, 48))), (LogFormat::MANIFEST, None)] {
        let (fs, path) = (Memory::new(), Path::new("/fuzz/000001.log"));
        fs.write(path, &[]);
        let writer = LogWriter::create(&fs, path, kind, 1, previous).unwrap();
        for payload in batches() {
            writer.append(&[&payload]).unwrap();
            writer.sync().unwrap();
        }
        corpus.push(fs.read(path).unwrap());
    }
    campaign(4, 10_000, &corpus, &mut log);
}

#[test]
fn tables() {
    let corpus = (0..3).map(|pick| vec![pick, 0, 3, 0, 9, 1, 4, 0, 200, 5, 1, 0, 7]);
    campaign(5, 1_500, &corpus.collect::<Vec<_>>(), &mut table);
}

#[test]
fn fingerprint_maps() {
    let mut corpus = Vec::new();
    for (values, blocks) in [(40, 300), (2, 4)] {
        let mut builder = MapBuilder::default();
        for i in 0..200 {
            builder.add(xxh3_64(&[i % values]), usize::from(i) % blocks);
        }
        let _ = builder.finish(|_, page| {
            corpus.push(page.to_vec());
            Ok::<(), ()>(())
        });
    }
    // Found by a fuzzer: a page that begins with the greatest hash.
    let mut greatest = vec![0; 48];
    greatest.splice(..8, [255; 8]);
    for (at, byte) in [
        (10, 62),
        (11, 62),
        (20, 3),
        (32, 3),
        (39, 170),
        (43, 128),
        (47, 2),
    ] {
        greatest.splice(at..=at, [byte]);
    }
    corpus.push(greatest);
    campaign(8, 10_000, &corpus, &mut fingerprints);
}

#[test]
fn stores() {
    let mut corpus = Vec::new();
    for edit in edits() {
        for batch in batches() {
            corpus.push([edit.as_slice(), b"|", &batch].concat());
        }
    }
    campaign(6, 3_000, &corpus, &mut store);
}

#[test]
fn memtables() {
    let corpus: Vec<Vec<u8>> = vec![
        (0..200).collect(),
        b"\x00\x03abc\x01\x03abc\x03\x03abc".to_vec(),
    ];
    campaign(7, 2_000, &corpus, &mut memtable);
}

#[test]
fn chunks_of_the_obsolete_set() {
    let mut corpus = Vec::new();
    let sets: [SeqSet; 3] = [
        [1, 2, 900].into_iter().collect(),
        (3..60_000).collect(),
        (0..20_000).map(|seq| seq * 3).collect(),
    ];
    for set in sets {
        let sink = &mut |key: &[u8], value: &[u8]| {
            corpus.push([key, value].concat());
            Ok::<(), ()>(())
        };
        obsolete::encode(&set, sink).unwrap();
    }
    campaign(9, esker_sim::by_tier(4000, 10_000), &corpus, &mut obsolete);
}
