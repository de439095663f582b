//! Damage on disk: flipped bytes, truncated files and removed files of a small store with an index
//! of every kind, and of one with points in every layout. A query then gives the right answer or an
//! error that names the file, and a check reports the damage. By default one byte of seven is
//! flipped; `ESKER_DAMAGE=1 cargo test -p esker --test all damage::` flips all.

use std::path::{Path as FsPath, PathBuf};
use std::sync::Arc;

use crate::common::{
    DIR, Doing, INDEXED, PATHS, Row, TextQuery, check, converge, number, open, path, row, scan,
    small,
};
use esker::schema::Layout;
use esker::{
    AreaExpr, Database, Dataset, DatasetDef, Error, ErrorKind, Index, IndexKind, KeyType, Type,
    field,
};
use esker_sim::by_tier;
use esker_sim::memory::Memory;
use fastrand::Rng;

const VALUES: usize = 4;

/// The expected results of [`ask`]: the scan, then the rows of each value and of a range.
type Answers = Vec<Vec<Row>>;

/// The content of the records.
#[derive(Debug, Clone, Copy)]
enum About {
    /// A text for each kind of index.
    Texts,
    /// A point for each layout, alone and with a time.
    Points,
}

impl About {
    fn def(self) -> DatasetDef {
        let def = DatasetDef::new(path("id"), KeyType::String);
        match self {
            About::Texts => PATHS.iter().zip(INDEXED).fold(def, |def, (at, kind)| {
                def.index(path(at), Index::new(kind).of_type(Type::String))
            }),
            About::Points => {
                let def = def.index("time", Index::none().of_type(Type::Int));
                let layouts = Layout::ALL.iter().enumerate();
                layouts.fold(def, |def, (at, layout)| {
                    let index = |kind: IndexKind| Index::new(kind).of_type(Type::Point);
                    def.index(point(at).as_str(), index(IndexKind::Spatial(*layout)))
                        .index(
                            format!("{}@time", point(at)).as_str(),
                            index(IndexKind::SpaceTime(*layout)),
                        )
                })
            }
        }
    }

    fn record(self, id: usize, rng: &mut Rng) -> String {
        let fields: String = match self {
            About::Texts => {
                let value = format!("value {}", rng.usize(0..VALUES));
                let field = |at: &&str| format!("\"{at}\":\"{value}\",");
                PATHS.iter().map(field).collect()
            }
            About::Points => {
                let (x, y, time) = (rng.u8(0..8), rng.u8(0..8), rng.u8(0..50));
                let field = |at| format!("\"{}\":[{x}.5,{y}.5],", point(at));
                let points: String = (0..Layout::ALL.len()).map(field).collect();
                format!("{points}\"time\":{time},")
            }
        };
        let pad: String = (0..60).map(|_| rng.alphanumeric()).collect();
        format!("{{\"id\":\"key {id}\",{fields}\"pad\":\"{pad}\"}}")
    }

    /// Queries every index; the first query is a scan.
    fn ask(self, dataset: &Dataset) -> Vec<Result<Vec<Row>, Error>> {
        let snapshot = dataset.snapshot();
        let mut answers = vec![scan(&snapshot)];
        match self {
            About::Texts => {
                for at in PATHS {
                    for value in 0..VALUES {
                        let query = snapshot
                            .query()
                            .equals(&path(at), &format!("value {value}"));
                        answers.push(query.run().and_then(|found| found.map(row).collect()));
                    }
                    let range = snapshot.query().between(&path(at), "value 1", "value 2");
                    let found = range.limit(Some(10)).run();
                    answers.push(found.and_then(|found| found.map(row).collect()));
                }
            }
            About::Points => {
                for at in 0..Layout::ALL.len() {
                    let at = point(at);
                    let inside = field(at.as_str()).within(AreaExpr::rect(1.0, 2.0, 4.0, 7.0));
                    let then = inside.clone() & field("time").range(10..30);
                    for condition in [inside, then] {
                        let found = snapshot.find(condition).run();
                        answers.push(found.and_then(|found| found.map(row).collect()));
                    }
                }
            }
        }
        answers
    }
}

/// The path of a point.
fn point(at: usize) -> String {
    format!("p{at}")
}

/// A store with tables of several levels, a log with records, and deletes and updates in both.
fn undamaged(about: About, closed: bool) -> (Memory, Answers) {
    let fs = Memory::new();
    let db = open(Arc::new(fs.clone())).unwrap();
    let dataset = db.create_dataset::<esker::Key>("d", about.def()).unwrap();
    let mut rng = Rng::with_seed(9);
    let mut put = |id: usize, dataset: &Dataset| {
        let record = about.record(id, &mut rng);
        dataset.put_json(record.as_bytes()).unwrap();
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
    let answers: Answers = about
        .ask(&dataset)
        .into_iter()
        .map(Result::unwrap)
        .collect();
    assert!(answers.iter().all(|rows| !rows.is_empty()));
    check(&db);
    db.sync().unwrap();
    let fs = if closed {
        drop(dataset);
        db.close().unwrap();
        fs
    } else {
        // As a killed process leaves the files.
        fs.power_cut(0, esker_sim::memory::PowerCut::Kept)
    };
    (fs, answers)
}

fn copy(fs: &Memory) -> Memory {
    let copy = Memory::new();
    for path in fs.paths() {
        copy.write(&path, &fs.read(&path).unwrap());
    }
    copy
}

/// Asserts an error of damage that names a file of the store.
fn must_tell(error: &Error) {
    assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
    assert!(error.to_string().contains(DIR), "{error}");
}

/// The outcome for a damaged store.
#[derive(Debug, PartialEq)]
enum Outcome {
    /// The store does not open.
    Refused,
    /// The check reports the damage.
    Told,
    /// No error is found.
    Harmless,
}

/// Opens a damaged store and runs all queries. `lost` says that the last writes may be missing
/// without an error, as after a power cut.
fn face(about: About, fs: Memory, answers: &Answers, lost: bool) -> Outcome {
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
        for (found, right) in about.ask(&dataset).into_iter().zip(answers) {
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
    // `USAGE` has only statistics, and the store works without it.
    let named = |path: &PathBuf| {
        path.file_name()
            .is_some_and(|name| name != "LOCK" && name != "USAGE")
    };
    let paths = fs.paths().into_iter().filter(named);
    paths
        .map(|path| (path.clone(), fs.read(&path).unwrap()))
        .collect()
}

/// Flips every `step`-th byte of each file.
fn flip_bytes(about: About, step: usize) {
    let (fs, answers) = undamaged(about, true);
    assert_eq!(face(about, copy(&fs), &answers, false), Outcome::Harmless);
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
            let outcome = face(about, copy, &answers, false);
            assert_ne!(outcome, Outcome::Harmless, "the damage went unnoticed");
        }
    }
    println!("{flips} of {bytes} bytes flipped");
}

#[test]
fn a_flipped_byte_is_reported_and_never_a_wrong_answer() {
    flip_bytes(About::Texts, number("ESKER_DAMAGE", by_tier(61, 7)));
}

#[test]
fn a_flipped_byte_of_a_store_of_points_is_reported_and_never_a_wrong_answer() {
    flip_bytes(About::Points, number("ESKER_DAMAGE", by_tier(127, 17)));
}

#[test]
fn a_file_cut_short_is_reported_and_never_a_wrong_answer() {
    let (fs, answers) = undamaged(About::Texts, true);
    let step = number("ESKER_DAMAGE", by_tier(61, 7));
    let mut cuts = 0;
    for (path, content) in files(&fs) {
        for len in (cuts % step..content.len()).step_by(step) {
            cuts += 1;
            let _doing = Doing(format!("{} cut to {len} bytes", path.display()));
            let copy = copy(&fs);
            copy.write(&path, &content[..len]);
            let outcome = face(About::Texts, copy, &answers, false);
            assert_ne!(outcome, Outcome::Harmless, "the damage went unnoticed");
        }
    }
    println!("{cuts} cuts");
}

#[test]
fn a_removed_or_emptied_or_exchanged_file_is_reported_and_never_a_wrong_answer() {
    for closed in [true, false] {
        let (fs, answers) = undamaged(About::Texts, closed);
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
            assert_ne!(
                face(About::Texts, removed, &answers, false),
                Outcome::Harmless,
                "removed"
            );
            for (other, instead) in &files {
                if other != path && other.extension() == path.extension() {
                    let exchanged = copy(&fs);
                    exchanged.write(path, instead);
                    exchanged.write(other, content);
                    let outcome = face(About::Texts, exchanged, &answers, false);
                    assert_ne!(outcome, Outcome::Harmless, "for {}", other.display());
                }
            }
        }
    }
}

/// The log of a store that was not closed. Its tail may be torn, so truncation is not damage, but a
/// flipped byte in the synced part is.
#[test]
fn damage_in_an_unsealed_log_gives_an_error_or_a_consistent_store() {
    let (fs, answers) = undamaged(About::Texts, false);
    let step = number("ESKER_DAMAGE", by_tier(17, 5));
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
            face(About::Texts, flipped, &answers, true);
            let cut = copy(&fs);
            cut.write(&path, &content[..at]);
            face(About::Texts, cut, &answers, true);
        }
    }
}
