//! A log of another crate: the engine's framing under a magic number of its own.

use std::path::Path;

use crate::common::{Doing, bytes, seeds};
use esker_lsm::wal::{Follower, LogFormat, LogWriter, Record, Tail, replay, rest_hash};
use esker_lsm::{Error, Result};
use esker_sim::memory::{Memory, PowerCut};

const TOY: LogFormat = LogFormat {
    magic: *b"TOY LOG\n",
    version: 3,
};

fn path() -> &'static Path {
    Path::new("/toy")
}

/// The payloads in a log, and how it ends.
fn read(fs: &Memory, format: LogFormat) -> Result<(Vec<Vec<u8>>, Tail)> {
    let mut found = Vec::new();
    let replayed = replay(fs, path(), format, 5, None, &mut |_, record| {
        if let Record::Data { payload, .. } = record {
            found.push(payload.to_vec());
        }
        Ok(())
    })?;
    Ok((found, replayed.tail))
}

#[test]
fn files_are_told_apart_by_magic_and_version() {
    let fs = Memory::new();
    fs.write(path(), b"");
    let log = LogWriter::create(&fs, path(), TOY, 5, Some((4, 77))).unwrap();
    log.append(&[b"in ", b"parts"]).unwrap();
    assert!(fs.read(path()).unwrap().starts_with(b"TOY LOG\n"));
    assert_eq!(
        read(&fs, TOY).unwrap(),
        (vec![b"in parts".to_vec()], Tail::Clean)
    );
    for other in [LogFormat::WAL, LogFormat::MANIFEST] {
        assert!(matches!(read(&fs, other), Err(Error::Corruption { .. })));
    }
    let newer = LogFormat { version: 4, ..TOY };
    assert_eq!(read(&fs, newer).unwrap().0.len(), 1);
    let older = LogFormat { version: 2, ..TOY };
    let error = read(&fs, older).unwrap_err();
    let found = matches!(
        error,
        Error::NewerFormat {
            found: 3,
            supported: 2,
            ..
        }
    );
    assert!(found, "{error}");
    let follower = Follower::open(&fs, path(), TOY, 5, 0).unwrap();
    let header = follower.header();
    assert_eq!((header.format, header.previous), (TOY, Some((4, 77))));
}

/// Random appends, syncs and power cuts: what was synced is there, and of the rest a prefix; a
/// follower sees the same.
#[test]
fn a_power_cut_leaves_what_was_synced_and_a_prefix_of_the_rest() {
    let modes = [
        PowerCut::Lost,
        PowerCut::Kept,
        PowerCut::Torn,
        PowerCut::Reordered,
    ];
    for seed in seeds(60) {
        let _doing = Doing(&|| format!("ESKER_SEED={seed}"));
        let mut rng = fastrand::Rng::with_seed(seed);
        let fs = Memory::new();
        fs.write(path(), b"");
        let log = LogWriter::create(&fs, path(), TOY, 5, None).unwrap();
        log.sync().unwrap();
        let mut follower = Follower::open(&fs, path(), TOY, 5, 0).unwrap();
        let (mut all, mut synced, mut followed) = (Vec::new(), 0, Vec::new());
        for step in 0..80 {
            match rng.usize(0..10) {
                0..3 => {
                    log.sync().unwrap();
                    synced = all.len();
                }
                3 => log.append_marker().unwrap(),
                4 => {
                    let mode = modes[step % 4];
                    let left = fs.power_cut(rng.u64(..), mode);
                    let (found, _) = read(&left, TOY).unwrap();
                    assert!(found.len() >= synced && all.starts_with(&found), "{mode:?}");
                }
                5 => {
                    let mut next = || {
                        follower.next_written(|record| {
                            if let Record::Data { payload, .. } = record {
                                followed.push(payload.to_vec());
                            }
                            Ok(Some(()))
                        })
                    };
                    while next().unwrap().is_some() {}
                    assert_eq!(followed, all);
                }
                _ => {
                    let len = rng.usize(0..3000);
                    let payload = bytes(&mut rng, len);
                    let (demanded, hash) = (rng.bool(), rest_hash(&payload));
                    log.append_hashed(&payload, hash, demanded, None).unwrap();
                    all.push(payload);
                }
            }
        }
        // Damage of what was synced and marked is no torn tail.
        log.sync().unwrap();
        log.append_marker().unwrap();
        let mut damaged = fs.read(path()).unwrap();
        damaged[60] ^= 1;
        fs.write(path(), &damaged);
        assert!(matches!(read(&fs, TOY), Err(Error::Corruption { .. })));
    }
}
