//! What the trait promises.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use esker_cluster::Error;
use esker_cluster::cells::{Cell, Cells, HBase, Mark, Read, Swapped, TableKind, Write};

use crate::server::Cluster;

pub(crate) fn all(cluster: &Cluster) {
    let cells = cluster.cells("trait");
    for (name, kind) in [
        ("versions", TableKind::Versions),
        ("entries", TableKind::Entries),
        ("esker_state", TableKind::Swapped),
    ] {
        cells.create_table(name, kind).unwrap();
        cells.create_table(name, kind).unwrap();
    }
    for table in ["versions", "entries"] {
        the_greatest_timestamp_counts(&cells, table);
        reads_are_ranges_of_rows(&cells, table);
        many_writes_and_reads_are_answered_in_order(&cells, table);
        scans_return_each_row_once(&cells, table);
    }
    swaps_are_linearizable(&cells);
    the_clock_is_the_servers(&cells);
    deletions_outlive_compactions(cluster, &cells);
    what_is_missing_is_said(&cells);
}

fn write(table: &str, at: u64, partition: &str, row: &str, value: Option<&str>) -> Write {
    Write {
        table: table.into(),
        partition: partition.as_bytes().to_vec(),
        row: row.as_bytes().to_vec(),
        value: value.map(|value| value.as_bytes().to_vec()),
        at,
    }
}

fn put(cells: &HBase, writes: Vec<Write>) {
    for outcome in cells.write(writes) {
        outcome.unwrap();
    }
}

fn all_of(table: &str, partition: &str) -> Read {
    Read {
        table: table.into(),
        partition: partition.as_bytes().to_vec(),
        from: Vec::new(),
        to: None,
        most: 1000,
        reverse: false,
        rows_only: false,
    }
}

fn read(cells: &HBase, read: Read) -> Vec<(String, String)> {
    let found = cells.read(vec![read]).pop().unwrap().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let cell = |cell: Cell| (text(cell.row), text(cell.value));
    found.into_iter().map(cell).collect()
}

fn the_greatest_timestamp_counts(cells: &HBase, table: &str) {
    let now = 7_000_000_000_000_000;
    let orders: [&[(u64, Option<&str>)]; 8] = [
        &[(1, Some("a")), (2, Some("b"))],
        &[(2, Some("b")), (1, Some("a"))],
        &[(2, None), (1, Some("a"))],
        &[(1, Some("a")), (2, None)],
        // A deletion counts before a put of the same timestamp, in any order.
        &[(2, None), (2, Some("a"))],
        &[(2, Some("a")), (2, None)],
        &[(1, None), (2, Some("b"))],
        &[(2, Some("b")), (1, None)],
    ];
    let expected = [
        Some("b"),
        Some("b"),
        None,
        None,
        None,
        None,
        Some("b"),
        Some("b"),
    ];
    for (number, (order, expected)) in orders.into_iter().zip(expected).enumerate() {
        let partition = format!("order {number}");
        for (at, value) in order {
            put(cells, vec![write(table, now + at, &partition, "r", *value)]);
        }
        let found = read(cells, all_of(table, &partition));
        let value = found.first().map(|(_, value)| value.as_str());
        assert_eq!(value, expected, "{table} {order:?}");
    }
}

fn reads_are_ranges_of_rows(cells: &HBase, table: &str) {
    let rows = ["a", "b", "ba", "c", "d"];
    let writes = rows.map(|row| write(table, 5, "range", row, Some(&row.to_uppercase())));
    put(cells, writes.to_vec());
    put(cells, vec![write(table, 5, "rang", "x", Some("X"))]);
    let names = |read_: Read| -> Vec<String> {
        let found = read(cells, read_);
        found.into_iter().map(|(row, _)| row).collect()
    };
    let all = || all_of(table, "range");
    assert_eq!(names(all()), rows);
    assert_eq!(read(cells, all())[2], ("ba".to_string(), "BA".to_string()));
    let (from, to) = (b"b".to_vec(), Some(b"c".to_vec()));
    let part = || Read {
        from: from.clone(),
        to: to.clone(),
        ..all()
    };
    assert_eq!(names(part()), ["b", "ba"]);
    let two = |reverse| Read {
        most: 2,
        reverse,
        ..all()
    };
    assert_eq!(names(two(false)), ["a", "b"]);
    assert_eq!(names(two(true)), ["d", "c"]);
    let backwards = read(cells, two(true));
    assert_eq!(backwards[0].1, "D");
    let bare = read(
        cells,
        Read {
            rows_only: true,
            ..part()
        },
    );
    assert!(bare.iter().all(|(_, value)| value.is_empty()) && bare.len() == 2);
    assert!(names(all_of(table, "none")).is_empty());
    // An empty partition, an empty row, an empty value, and bytes that are no text.
    put(cells, vec![write(table, 5, "", "", Some(""))]);
    assert_eq!(
        read(cells, all_of(table, "")),
        [(String::new(), String::new())]
    );
    let bytes: Vec<u8> = (0..=255).collect();
    let write = Write {
        partition: bytes.clone(),
        row: bytes.clone(),
        value: Some(bytes.clone()),
        ..write(table, 5, "", "", None)
    };
    put(cells, vec![write]);
    let read = Read {
        partition: bytes.clone(),
        from: bytes.clone(),
        ..all()
    };
    let found = cells.read(vec![read]).pop().unwrap().unwrap();
    assert_eq!((&found[0].row, &found[0].value), (&bytes, &bytes));
}

fn many_writes_and_reads_are_answered_in_order(cells: &HBase, table: &str) {
    let writes = (0..2000).map(|n| {
        let (partition, row) = (format!("many {}", n % 300), format!("{n:05}"));
        write(table, 9, &partition, &row, Some(&"x".repeat(n % 2000)))
    });
    put(cells, writes.collect());
    let reads = (0..300).rev().map(|n| all_of(table, &format!("many {n}")));
    let answers = cells.read(reads.collect());
    for (answer, n) in answers.into_iter().zip((0..300_usize).rev()) {
        let found = answer.unwrap();
        let expected = (0..2000).filter(|row| row % 300 == n).count();
        assert_eq!(found.len(), expected);
        for cell in found {
            let row: usize = String::from_utf8(cell.row).unwrap().parse().unwrap();
            assert_eq!((row % 300, row % 2000), (n, cell.value.len()));
        }
    }
    // Of writes of one row in one call the greatest timestamp counts.
    let writes =
        (0..100).map(|n| write(table, 10 + n * 7 % 100, "same", "r", Some(&n.to_string())));
    put(cells, writes.collect());
    let last = (0..100).max_by_key(|n| n * 7 % 100).unwrap();
    assert_eq!(read(cells, all_of(table, "same"))[0].1, last.to_string());
}

fn scans_return_each_row_once(cells: &HBase, table: &str) {
    // Wide partitions: a page ends within them.
    let wide = (0..300).map(|n| write(table, 9, "wide", &format!("{n:05}"), Some("w")));
    put(cells, wide.collect());
    let table: Arc<str> = table.into();
    let mut before: Option<BTreeMap<_, _>> = None;
    for (most, rows_only) in [(1000, false), (1000, true), (17, false), (2, true)] {
        let mut rows = BTreeMap::new();
        let mut parts = BTreeSet::new();
        for part in 0..cells.parts() {
            let mut mark: Option<Mark> = None;
            let mut last: Option<Vec<u8>> = None;
            let mut done: BTreeSet<Vec<u8>> = BTreeSet::new();
            loop {
                let page = cells.scan(&table, part, mark.as_ref(), most, rows_only);
                let page = page.unwrap();
                assert!(page.cells.len() <= most.max(8) * 4);
                for cell in page.cells {
                    if last.as_ref() != Some(&cell.partition) {
                        done.extend(last.replace(cell.partition.clone()));
                        assert!(!done.contains(&cell.partition), "not adjacent");
                    }
                    assert!(!rows_only || cell.value.is_empty());
                    parts.insert((cell.partition.clone(), part));
                    let length = cell.value.len();
                    let known = rows.insert((cell.partition, cell.row), length);
                    assert!(known.is_none(), "a row comes twice");
                }
                mark = page.next;
                if mark.is_none() {
                    break;
                }
            }
        }
        let partitions: BTreeSet<_> = parts.iter().map(|(partition, _)| partition).collect();
        assert_eq!(partitions.len(), parts.len(), "a partition in two parts");
        assert!(rows.len() > 2300, "{}", rows.len());
        if let Some(before) = &before {
            assert!(before.keys().eq(rows.keys()));
        }
        before.get_or_insert(rows);
    }
}

fn swaps_are_linearizable(cells: &HBase) {
    let table: Arc<str> = "esker_state".into();
    let swap = |expected: Option<&str>, to: Option<&str>| {
        let bytes = |text: Option<&str>| text.map(|text| text.as_bytes().to_vec());
        let (expected, to) = (bytes(expected), bytes(to));
        cells.swap(&table, b"p", b"r", expected.as_deref(), to.as_deref())
    };
    let other = |text: Option<&str>| Swapped::Other(text.map(|text| text.as_bytes().to_vec()));
    assert_eq!(swap(Some("a"), Some("b")).unwrap(), other(None));
    assert_eq!(swap(None, Some("a")).unwrap(), Swapped::Done);
    assert_eq!(swap(None, Some("b")).unwrap(), other(Some("a")));
    assert_eq!(swap(Some("a"), Some("")).unwrap(), Swapped::Done);
    assert_eq!(swap(None, Some("b")).unwrap(), other(Some("")));
    // Many times, so that some are in the same millisecond.
    let mut last = Some(String::new());
    for n in 0..100 {
        assert_eq!(swap(last.as_deref(), None).unwrap(), Swapped::Done);
        assert!(cells.swapped(&table, b"p").unwrap().is_empty());
        let next = n.to_string();
        assert_eq!(swap(None, Some(&next)).unwrap(), Swapped::Done);
        let rows = cells.swapped(&table, b"p").unwrap();
        assert_eq!((rows.len(), rows[0].value.as_slice()), (1, next.as_bytes()));
        last = Some(next);
    }
    let done = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..6 {
            let (done, table) = (&done, &table);
            scope.spawn(move || {
                let mut known: Option<Vec<u8>> = None;
                let mut left = 40;
                while left > 0 {
                    // No two calls propose one value.
                    let next = format!("{} {thread}", counted(known.as_deref()) + 1).into_bytes();
                    let to = Some(next.as_slice());
                    match cells
                        .swap(table, b"count", b"", known.as_deref(), to)
                        .unwrap()
                    {
                        Swapped::Done => {
                            done.fetch_add(1, Ordering::Relaxed);
                            left -= 1;
                            known = Some(next);
                        }
                        Swapped::Other(other) => known = other,
                    }
                }
            });
        }
    });
    let rows = cells.swapped(&table, b"count").unwrap();
    assert_eq!(counted(Some(&rows[0].value)), 240);
    assert_eq!(done.into_inner(), 240);
}

/// The count in a value that is a count and the number of a thread.
fn counted(value: Option<&[u8]>) -> u64 {
    let text = std::str::from_utf8(value.unwrap_or(b"0 -")).unwrap();
    let (count, _) = text.split_once(' ').unwrap();
    count.parse().unwrap()
}

fn the_clock_is_the_servers(cells: &HBase) {
    let here = || {
        let since = std::time::UNIX_EPOCH.elapsed().unwrap();
        u64::try_from(since.as_millis()).unwrap()
    };
    // The server is this machine.
    let before = here();
    let now = cells.now().unwrap();
    assert!((before..=here()).contains(&now), "{before} {now}");
    assert!(cells.now().unwrap() >= now);
}

/// A version that was removed for good stays dead, though its put arrives after a compaction.
fn deletions_outlive_compactions(cluster: &Cluster, cells: &HBase) {
    let at = 7_000_000_000_000_000;
    put(cells, vec![write("versions", at, "late", "r", None)]);
    put(cells, vec![write("versions", at, "early", "r", Some("x"))]);
    put(cells, vec![write("versions", at, "early", "r", None)]);
    cluster.admin("compact", "trait:versions");
    put(cells, vec![write("versions", at, "late", "r", Some("x"))]);
    put(cells, vec![write("versions", at, "early", "r", Some("x"))]);
    for partition in ["late", "early"] {
        assert!(read(cells, all_of("versions", partition)).is_empty());
    }
}

fn what_is_missing_is_said(cells: &HBase) {
    let missing = cells.read(vec![all_of("missing", "p")]).pop().unwrap();
    assert!(matches!(missing, Err(Error::Busy(_))), "{missing:?}");
    let failed = cells.write(vec![write("missing", 1, "p", "r", None)]).pop();
    assert!(matches!(failed, Some(Err(Error::Busy(_)))), "{failed:?}");
    let long = write("versions", 1, &"k".repeat(40_000), "r", None);
    let failed = cells.write(vec![long]).pop();
    assert!(
        matches!(failed, Some(Err(Error::BadInput(_)))),
        "{failed:?}"
    );
    cells.create_table("gone", TableKind::Entries).unwrap();
    cells.drop_table("gone").unwrap();
    cells.drop_table("gone").unwrap();
    let missing = cells.read(vec![all_of("gone", "p")]).pop().unwrap();
    assert!(matches!(missing, Err(Error::Busy(_))), "{missing:?}");
    let settings = esker_cluster::hbase_address("//127.0.0.1/nowhere").unwrap();
    let error = HBase::connect(&settings, false).unwrap_err();
    assert!(matches!(error, Error::NoStore(_)), "{error:?}");
}
