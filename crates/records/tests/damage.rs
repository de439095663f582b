//! Damage on disk: bytes flipped, files cut short, files removed, of a small store with an index of
//! every kind. A query then gives the right answer or an error that names the file; a check tells.
//! By default one byte of seven is flipped; `ESKER_DAMAGE=1 cargo test --test damage` flips all.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::path::{Path as FsPath, PathBuf};
use std::sync::Arc;

use common::{
    DIR, Doing, INDEXED, PATHS, Row, TextQuery, check, converge, number, open, path, row, scan,
    small,
};
use esker::fs::memory::Memory;
use esker::{Database, Dataset, DatasetDef, Error, ErrorKind, KeyType, Type};

const VALUES: usize = 4;

/// What the questions of [`ask`] must give: the scan, then for each value its rows and a range's.
type Answers = Vec<Vec<Row>>;

/// A store with tables of several levels, a log with records, and deletes and updates in both.
fn undamaged(closed: bool) -> (Memory, Answers) {
    let fs = Memory::new();
    let db = open(Arc::new(fs.clone())).unwrap();
    let def = DatasetDef::new(path("id"), KeyType::String);
    let def = PATHS.iter().zip(INDEXED).fold(def, |def, (at, kind)| {
        def.index(path(at), esker::Index::new(kind).of_type(Type::String))
    });
    let dataset = db.create_dataset::<esker::Key>("d", def).unwrap();
    let mut rng = fastrand::Rng::with_seed(9);
    let mut put = |id: usize, dataset: &Dataset| {
        let value = format!("value {}", rng.usize(0..VALUES));
        let fields: String = PATHS
            .iter()
            .map(|at| format!("\"{at}\":\"{value}\","))
            .collect();
        let pad: String = (0..60).map(|_| rng.alphanumeric()).collect();
        let body = format!("{{\"id\":\"key {id}\",{fields}\"pad\":\"{pad}\"}}");
        dataset.put_json(body.as_bytes()).unwrap();
    };
    for id in 0..120 {
        put(id, &dataset);
    }
    converge(&db);
    db.compact(None).unwrap();
    for id in (0..60).step_by(3) {
        put(id, &dataset);
        let key = dataset.parse_key(&format!("key {}", id + 1)).unwrap();
        dataset.delete(&key).unwrap();
    }
    db.flush().unwrap();
    for id in (50..140).step_by(10) {
        put(id, &dataset);
    }
    let answers: Answers = ask(&dataset).into_iter().map(Result::unwrap).collect();
    check(&db);
    db.sync().unwrap();
    let fs = if closed {
        drop(dataset);
        db.close().unwrap();
        fs
    } else {
        // As a killed process leaves it.
        fs.power_cut(0, esker::fs::memory::PowerCut::Kept)
    };
    (fs, answers)
}

/// Asks every kind about every value; a scan comes first.
fn ask(dataset: &Dataset) -> Vec<Result<Vec<Row>, Error>> {
    let snapshot = dataset.snapshot();
    let mut answers = vec![scan(&snapshot)];
    for at in PATHS {
        for value in 0..VALUES {
            let query = snapshot
                .query()
                .equals(&path(at), &format!("value {value}"));
            answers.push(query.run().and_then(|found| found.map(row).collect()));
        }
        let range = snapshot.query().between(&path(at), "value 1", "value 2");
        answers.push(
            range
                .limit(Some(10))
                .run()
                .and_then(|found| found.map(row).collect()),
        );
    }
    answers
}

fn copy(fs: &Memory) -> Memory {
    let copy = Memory::new();
    for path in fs.paths() {
        copy.write(&path, &fs.read(&path).unwrap());
    }
    copy
}

/// An error of damage that names a file of the store.
fn must_tell(error: &Error) {
    assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
    assert!(error.to_string().contains(DIR), "{error}");
}

/// What became of a damaged store.
#[derive(Debug, PartialEq)]
enum Outcome {
    /// The store does not open.
    Refused,
    /// The check tells.
    Told,
    /// Nothing is wrong with it.
    Harmless,
}

/// Opens a damaged store and asks it everything. `lost` says that the end of what was written may be
/// missing without a word, as after a power cut.
fn face(fs: Memory, answers: &Answers, lost: bool) -> Outcome {
    let db = match Database::open(FsPath::new(DIR), small(Arc::new(fs))) {
        Ok(db) => db,
        Err(error) => {
            if error.kind() != ErrorKind::NoStore {
                must_tell(&error);
            }
            return Outcome::Refused;
        }
    };
    let report = db.check().unwrap();
    let dataset = match db.dataset::<esker::Key>("d") {
        Ok(dataset) => dataset,
        Err(error) => panic!("{error}"),
    };
    if !lost {
        for (found, right) in ask(&dataset).into_iter().zip(answers) {
            match found {
                Ok(found) => assert_eq!(found, *right, "a wrong answer"),
                Err(error) => {
                    must_tell(&error);
                    assert!(!report.errors.is_empty(), "the check is content: {error}");
                }
            }
        }
    }
    for error in &report.errors {
        assert!(
            error.contains(DIR) || error.contains("dataset d"),
            "{error}"
        );
    }
    if report.errors.is_empty() {
        Outcome::Harmless
    } else {
        Outcome::Told
    }
}

fn files(fs: &Memory) -> Vec<(PathBuf, Vec<u8>)> {
    // `USAGE` is statistics, which a store does without.
    let named = |path: &PathBuf| {
        path.file_name()
            .is_some_and(|name| name != "LOCK" && name != "USAGE")
    };
    let paths = fs.paths().into_iter().filter(named);
    paths
        .map(|path| (path.clone(), fs.read(&path).unwrap()))
        .collect()
}

#[test]
fn a_flipped_byte_is_told_and_never_a_wrong_answer() {
    let (fs, answers) = undamaged(true);
    assert_eq!(face(copy(&fs), &answers, false), Outcome::Harmless);
    let step = number("ESKER_DAMAGE", 7);
    let (mut flips, mut bytes) = (0, 0);
    for (path, content) in files(&fs) {
        bytes += content.len();
        for at in (flips % step..content.len()).step_by(step) {
            flips += 1;
            let _doing = Doing(format!("byte {at} of {}", path.display()));
            let mut damaged = content.clone();
            damaged[at] ^= [0x01, 0x80, 0xff][flips % 3];
            let copy = copy(&fs);
            copy.write(&path, &damaged);
            let outcome = face(copy, &answers, false);
            assert_ne!(outcome, Outcome::Harmless, "nobody noticed");
        }
    }
    println!("{flips} of {bytes} bytes flipped");
}

#[test]
fn a_file_cut_short_is_told_and_never_a_wrong_answer() {
    let (fs, answers) = undamaged(true);
    let step = number("ESKER_DAMAGE", 7);
    let mut cuts = 0;
    for (path, content) in files(&fs) {
        for len in (0..content.len()).step_by(step) {
            cuts += 1;
            let _doing = Doing(format!("{} cut to {len} bytes", path.display()));
            let copy = copy(&fs);
            copy.write(&path, &content[..len]);
            let outcome = face(copy, &answers, false);
            assert_ne!(outcome, Outcome::Harmless, "nobody noticed");
        }
    }
    println!("{cuts} cuts");
}

#[test]
fn a_removed_or_emptied_or_exchanged_file_is_told_and_never_a_wrong_answer() {
    for closed in [true, false] {
        let (fs, answers) = undamaged(closed);
        let files = files(&fs);
        assert!(files.len() > 8, "{files:?}");
        for (path, content) in &files {
            let _doing = Doing(format!("{} (closed: {closed})", path.display()));
            let removed = Memory::new();
            for (other, content) in &files {
                if other != path {
                    removed.write(other, content);
                }
            }
            assert_ne!(face(removed, &answers, false), Outcome::Harmless, "removed");
            for (other, instead) in &files {
                if other != path && other.extension() == path.extension() {
                    let exchanged = copy(&fs);
                    exchanged.write(path, instead);
                    exchanged.write(other, content);
                    let outcome = face(exchanged, &answers, false);
                    assert_ne!(outcome, Outcome::Harmless, "for {}", other.display());
                }
            }
        }
    }
}

/// The log of a store that was not closed: its tail may be torn, so that a cut is no damage; a flip
/// in what was synced is.
#[test]
fn damage_in_an_unsealed_log_gives_an_error_or_a_consistent_store() {
    let (fs, answers) = undamaged(false);
    let step = number("ESKER_DAMAGE", 5);
    for (path, content) in files(&fs) {
        if path.extension().is_none_or(|extension| extension != "log") {
            continue;
        }
        for at in (0..content.len()).step_by(step) {
            let _doing = Doing(format!("byte {at} of {}", path.display()));
            let mut damaged = content.clone();
            damaged[at] ^= 0x41;
            let flipped = copy(&fs);
            flipped.write(&path, &damaged);
            face(flipped, &answers, true);
            let cut = copy(&fs);
            cut.write(&path, &content[..at]);
            face(cut, &answers, true);
        }
    }
}
