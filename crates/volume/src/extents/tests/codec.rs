//! Headers under any bytes.

use super::common::{DISK, dir, formatted, open, segment, settings, sync};
use crate::error::Error;
use crate::extents::{Extents, HEADER_BYTES, Kind, MOST_PAYLOAD, RecordHeader};
use crate::ids::{Ballot, DiskId, GroupId};
use crate::place::Place;
use std::sync::Arc;

const PLACE: Place = Place {
    segment: 3,
    offset: 640,
};

fn header(rng: &mut fastrand::Rng) -> RecordHeader {
    let lsn = rng.u64(..);
    let kinds = [
        Kind::Entry,
        Kind::Vote,
        Kind::Base,
        Kind::End,
        Kind::Moved,
        Kind::Sync,
        Kind::Members,
    ];
    RecordHeader {
        kind: kinds[rng.usize(..kinds.len())],
        group: GroupId(rng.u16(..)),
        slot: rng.u64(..),
        ballot: Ballot(rng.u64(..)),
        lsn,
        synced: rng.u64(..=lsn),
        bytes: rng.u32(..=MOST_PAYLOAD),
        checksum: rng.u64(..),
    }
}

#[test]
fn headers_are_read_as_written_and_nowhere_else() {
    for seed in esker_sim::seeds(300) {
        println!("seed {seed}");
        let mut rng = fastrand::Rng::with_seed(seed);
        let header = header(&mut rng);
        let mut bytes = Vec::new();
        header.encode(DISK, PLACE, &mut bytes);
        assert_eq!(bytes.len(), HEADER_BYTES);
        assert_eq!(RecordHeader::decode(&bytes, DISK, PLACE), Some(header));
        assert_eq!(RecordHeader::decode(&bytes, DiskId(1), PLACE), None);
        let moved = Place {
            offset: 648,
            ..PLACE
        };
        assert_eq!(RecordHeader::decode(&bytes, DISK, moved), None);
        for byte in 0..HEADER_BYTES {
            let mut damaged = bytes.clone();
            damaged[byte] ^= 1 << rng.u32(..8);
            assert_eq!(RecordHeader::decode(&damaged, DISK, PLACE), None, "{byte}");
        }
        let short = &bytes[..rng.usize(..HEADER_BYTES)];
        assert_eq!(RecordHeader::decode(short, DISK, PLACE), None);
    }
}

#[test]
fn any_bytes_are_no_header() {
    for seed in esker_sim::seeds(2000) {
        let mut rng = fastrand::Rng::with_seed(seed);
        let len = rng.usize(..200);
        let mut bytes: Vec<u8> = std::iter::repeat_with(|| rng.u8(..)).take(len).collect();
        if rng.bool() && bytes.len() >= 4 {
            bytes[..4].copy_from_slice(b"EVR1");
        }
        let found = RecordHeader::decode(&bytes, DISK, PLACE);
        assert_eq!(found, None, "seed {seed}");
    }
}

#[test]
fn a_folder_is_formatted_once() {
    let fs = Arc::new(esker_sim::memory::Memory::new());
    assert_eq!(Extents::is_formatted(fs.clone(), dir()).unwrap(), None);
    let opened = open(fs.clone(), settings(1 << 20), None);
    assert!(matches!(opened.err(), Some(Error::NotFormatted { .. })));
    Extents::format(fs.clone(), dir(), DISK).unwrap();
    let found = Extents::is_formatted(fs.clone(), dir()).unwrap();
    assert_eq!(found, Some(DISK));
    let again = Extents::format(fs, dir(), DiskId(9));
    assert!(matches!(again, Err(Error::Formatted { .. })));
}

#[test]
fn files_of_other_disks_and_of_newer_versions_are_refused() {
    let fs = formatted();
    let (mut extents, _) = open(Arc::new(fs.clone()), settings(1 << 20), None).unwrap();
    super::common::append_this(
        &mut extents,
        Kind::Entry,
        GroupId(1),
        1,
        b"entry",
        &mut Vec::new(),
    );
    sync(&mut extents);
    let ours = fs.read(&segment(1)).unwrap();

    let header = |disk: u64, version: u32| {
        let mut bytes = ours[..56].to_vec();
        bytes[8..12].copy_from_slice(&version.to_le_bytes());
        bytes[16..24].copy_from_slice(&disk.to_le_bytes());
        let sum = crate::command::checksum(&bytes);
        bytes.extend_from_slice(&sum.to_le_bytes());
        bytes.extend_from_slice(&ours[64..]);
        bytes
    };
    assert_eq!(header(DISK.0, 3), ours);
    fs.write(&segment(1), &header(77, 3));
    match open(Arc::new(fs.clone()), settings(1 << 20), None).err() {
        Some(Error::OtherDisk {
            path,
            found,
            expected,
        }) => {
            assert_eq!((path, found, expected), (segment(1), DiskId(77), DISK));
        }
        other => panic!("{other:?}"),
    }
    // Version 2 lacks a kind of record, and is read.
    fs.write(&segment(1), &header(DISK.0, 2));
    let (_, seen) = open(Arc::new(fs.clone()), settings(1 << 20), None).unwrap();
    assert_eq!((seen.records.len(), seen.losses.len()), (4, 0));
    fs.write(&segment(1), &header(DISK.0, 4));
    let newer = open(Arc::new(fs.clone()), settings(1 << 20), None).err();
    assert!(matches!(newer, Some(Error::NewerFormat { found: 4, .. })));

    // The identity of the disk is known from the segments too, and is written again.
    fs.write(&segment(1), &ours);
    fs.write(&dir().join("disk"), b"damaged");
    let (_, seen) = open(Arc::new(fs.clone()), settings(1 << 20), None).unwrap();
    assert!(seen.losses.is_empty() && seen.records.len() == 4);
    fs.write(&segment(1), b"damaged");
    let found = Extents::is_formatted(Arc::new(fs), dir()).unwrap();
    assert_eq!(found, Some(DISK));
}
