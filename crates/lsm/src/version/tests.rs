//! Edits and the versions they produce.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::*;
use crate::BlockCache;
use crate::table::TableMeta;

#[test]
fn edits_round_trip_and_cut_ones_are_refused() {
    let meta = TableMeta {
        number: 7,
        size: 900,
        smallest: b"a".to_vec(),
        largest: b"m".to_vec(),
        ..TableMeta::default()
    };
    let edit = Edit {
        created: vec![(1, "data".to_string(), b"{}".to_vec())],
        dropped: vec![4],
        configured: vec![(2, b"x".to_vec())],
        renamed: vec![(3, "other".to_string())],
        added: vec![NewTable {
            tree: 1,
            level: 0,
            run: 7,
            component: ComponentId { min: 3, max: 9 },
            meta: meta.into(),
            place: Some(Place {
                file: 6,
                offset: 100,
                len: 1000,
            }),
        }],
        removed: vec![TableAt { tree: 1, number: 5 }],
        cursors: vec![(1, 2, b"key".to_vec())],
        log: Some(12),
        next_file: Some(13),
        next_tree: Some(5),
        last_seq: Some(99),
        repair_watermarks: vec![(3, 17)],
        synced: Some(98),
        order: Some(Order {
            history: 7,
            reserved: 1 << 30,
            lost: vec![(3, 9), (12, 40)],
            kept: vec![
                ClosedSegment {
                    number: 4,
                    after: 3,
                    last: 10,
                    len: 99,
                    ended: 5,
                },
                ClosedSegment {
                    number: 6,
                    after: 10,
                    last: 10,
                    len: 48,
                    ended: 7,
                },
            ],
            holds: [(
                "feed".to_string(),
                order::Hold {
                    position: 8,
                    bytes: 1 << 20,
                },
            )]
            .into(),
        }),
        forgotten: vec![(3, 40)],
        ..Edit::default()
    };
    let picture = Edit {
        created: edit.created.clone(),
        added: edit.added.clone(),
        repair_watermarks: edit.repair_watermarks.clone(),
        forgotten: edit.forgotten.clone(),
        ..Edit::default()
    };
    let kept = |name: &str, picture: Edit| NewKept {
        name: name.to_string(),
        seq: 77,
        time: 1 << 40,
        picture,
        of: Pictured::default(),
    };
    let edit = Edit {
        kept: vec![kept("one", picture.clone()), kept("two", Edit::default())],
        external_log: true,
        released: vec!["old".to_string()],
        ..edit
    };
    let bytes = edit.encode();
    assert_eq!(Edit::decode(&bytes), Some(edit));
    for cut in 0..bytes.len() {
        if let Some(shorter) = Edit::decode(&bytes[..cut]) {
            // Only a cut between items may decode.
            assert_eq!(shorter.encode(), &bytes[..cut]);
        }
    }
}

#[test]
fn impossible_numbers_are_refused() {
    let good = Edit {
        created: vec![(1, "t".into(), vec![])],
        next_file: Some(5),
        ..Edit::default()
    };
    assert_eq!(Edit::decode(&good.encode()), Some(good.clone()));
    let tree = Edit {
        created: vec![(u32::MAX, "t".into(), vec![])],
        ..Edit::default()
    };
    let file = Edit {
        next_file: Some(u64::MAX),
        ..Edit::default()
    };
    let seq = Edit {
        last_seq: Some(u64::MAX),
        ..Edit::default()
    };
    let meta = TableMeta {
        size: u64::MAX / 2,
        ..TableMeta::default()
    };
    let table = Edit {
        added: vec![NewTable {
            tree: 1,
            level: 0,
            run: 1,
            component: ComponentId { min: 1, max: 2 },
            meta: meta.into(),
            place: None,
        }],
        ..Edit::default()
    };
    for edit in [tree, file, seq, table] {
        assert_eq!(Edit::decode(&edit.encode()), None, "{edit:?}");
    }
}

#[test]
fn a_kept_version_has_a_name_and_nothing_but_a_picture() {
    let picture = Edit {
        created: vec![(1, "t".into(), vec![])],
        ..Edit::default()
    };
    let with = |name: &str, picture: Edit| {
        let kept = NewKept {
            name: name.to_string(),
            seq: 7,
            time: 0,
            picture,
            of: Pictured::default(),
        };
        let edit = Edit {
            kept: vec![kept],
            ..Edit::default()
        };
        (Edit::decode(&edit.encode()), edit)
    };
    let (decoded, edit) = with("name", picture.clone());
    assert_eq!(decoded.as_ref(), Some(&edit));
    assert_eq!(with("", picture.clone()).0, None);
    assert_eq!(with(&"x".repeat(256), picture.clone()).0, None);
    // Neither nested kept versions, nor items that are not part of one.
    assert_eq!(with("name", edit.clone()).0, None);
    let log = Edit {
        log: Some(3),
        ..picture
    };
    assert_eq!(with("name", log).0, None);

    let source = TableSource {
        fs: Arc::new(esker_sim::memory::Memory::new()),
        dir: PathBuf::from("/s"),
        cache: Arc::new(BlockCache::new(1 << 20)),
        mapped: false,
    };
    let options = |_: &str, _: &[u8]| Ok(TreeOptions::default());
    let path = Path::new("/s/MANIFEST");
    let apply = |version: Version, edit: &Edit| version.apply(edit, &source, &options, path);
    let (version, _) = apply(Version::default(), &edit).unwrap();
    assert_eq!(version.kept()["name"].seq, 7);
    let again = apply(version.clone(), &edit).err();
    assert!(again.is_some_and(|error| error.is_damage()));
    let release = |name: &str| Edit {
        released: vec![name.to_string()],
        ..Edit::default()
    };
    assert!(apply(version.clone(), &release("name")).is_ok());
    let unknown = apply(version, &release("other")).err();
    assert!(unknown.is_some_and(|error| error.is_damage()));
}

#[test]
fn overlapping_tables_in_a_run_are_refused() {
    let source = TableSource {
        fs: Arc::new(esker_sim::memory::Memory::new()),
        dir: PathBuf::from("/s"),
        cache: Arc::new(BlockCache::new(1 << 20)),
        mapped: false,
    };
    let table = |number, smallest: &[u8], largest: &[u8]| NewTable {
        tree: 1,
        level: 1,
        run: 0,
        component: ComponentId { min: 1, max: 2 },
        meta: Arc::new(TableMeta {
            number,
            smallest: smallest.to_vec(),
            largest: largest.to_vec(),
            ..TableMeta::default()
        }),
        place: None,
    };
    let options = |_: &str, _: &[u8]| Ok(TreeOptions::default());
    let apply = |added| {
        let edit = Edit {
            created: vec![(1, "t".into(), vec![])],
            added,
            ..Edit::default()
        };
        Version::default().apply(&edit, &source, &options, Path::new("/s/MANIFEST"))
    };
    assert!(apply(vec![table(1, b"a", b"c"), table(2, b"d", b"f")]).is_ok());
    assert!(apply(vec![table(1, b"a", b"d"), table(2, b"d", b"f")]).is_err());
}
