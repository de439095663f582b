//! Imports into a dataset whose writes fail at times, as if the process was killed there or the
//! cluster did not answer.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, ControlFlow, Range};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use esker::{
    DatasetDef, Durability, Error, Explain, Expr, Index, Key, KeyType, Record, Request, Result,
    Seq, Update,
};
use esker_store::{Answer, Batch, Dataset, Mode, Records, Store, open};
use serde_json::Value;

use crate::load::{End, Import, Report};
use crate::observer::{Note, Observer};
use crate::resume::{InterruptedImport, interrupted_imports};
use crate::source::{Format, Source, sources};

/// The calls that fail.
struct Faults {
    puts: AtomicU64,
    failing_puts: Range<u64>,
    commits: AtomicU64,
    /// All commits from this one on.
    failing_commits: u64,
}

impl Faults {
    fn of(failing_puts: Range<u64>, failing_commits: u64) -> Arc<Faults> {
        Arc::new(Faults {
            puts: AtomicU64::new(0),
            failing_puts,
            commits: AtomicU64::new(0),
            failing_commits,
        })
    }
}

fn outage() -> Error {
    Error::Unavailable("too few nodes are alive".to_string())
}

struct Faulty<'d>(&'d dyn Dataset, Arc<Faults>);

struct FaultyBatch(Box<dyn Batch>, Arc<Faults>);

impl Batch for FaultyBatch {
    fn put_json(&mut self, json: &[u8]) -> Result<()> {
        let call = self.1.puts.fetch_add(1, Ordering::Relaxed);
        if self.1.failing_puts.contains(&call) {
            return Err(outage());
        }
        self.0.put_json(json)
    }

    fn insert_json(&mut self, json: &[u8]) -> Result<()> {
        self.0.insert_json(json)
    }

    fn delete(&mut self, key: &Key) -> Result<()> {
        self.0.delete(key)
    }

    fn expect(&mut self, key: &Key, seq: Option<Seq>) -> Result<()> {
        self.0.expect(key, seq)
    }

    fn note(&mut self, name: &str, value: Option<&[u8]>) -> Result<()> {
        self.0.note(name, value)
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn bytes(&self) -> usize {
        self.0.bytes()
    }

    fn last_key(&self) -> &[u8] {
        self.0.last_key()
    }

    fn durability(&mut self, durability: Durability) {
        self.0.durability(durability);
    }

    fn commit(&mut self) -> Result<()> {
        let call = self.1.commits.fetch_add(1, Ordering::Relaxed);
        if call >= self.1.failing_commits {
            return Err(outage());
        }
        self.0.commit()
    }
}

impl Records for Faulty<'_> {
    fn name(&self) -> String {
        self.0.name()
    }

    fn def(&self) -> DatasetDef {
        self.0.def()
    }

    fn get(&self, key: &Key) -> Result<Option<Record>> {
        self.0.get(key)
    }

    fn find(&self, request: &Request) -> Result<Box<dyn Answer<Record>>> {
        self.0.find(request)
    }

    fn keys(&self, request: &Request) -> Result<Box<dyn Answer<Key>>> {
        self.0.keys(request)
    }

    fn visit(
        &self,
        request: &Request,
        visit: &mut dyn FnMut(Record) -> ControlFlow<()>,
    ) -> Result<Explain> {
        self.0.visit(request, visit)
    }

    fn count(&self, request: &Request) -> Result<(u64, Explain)> {
        self.0.count(request)
    }

    fn explain(&self, request: &Request) -> Result<Explain> {
        self.0.explain(request)
    }

    fn scan(
        &self,
        range: (Bound<Key>, Bound<Key>),
        reverse: bool,
    ) -> Result<Box<dyn Answer<Record>>> {
        self.0.scan(range, reverse)
    }
}

impl Dataset for Faulty<'_> {
    fn snapshot(&self) -> Result<Box<dyn Records>> {
        self.0.snapshot()
    }

    fn records(&self) -> &dyn Records {
        self
    }

    fn batch(&self) -> Box<dyn Batch> {
        Box::new(FaultyBatch(self.0.batch(), Arc::clone(&self.1)))
    }

    fn update(
        &self,
        key: &Key,
        change: &mut dyn FnMut(Option<&Record>) -> Result<Update>,
    ) -> Result<Option<Record>> {
        self.0.update(key, change)
    }

    fn delete_where(
        &self,
        condition: Expr,
        progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<u64> {
        self.0.delete_where(condition, progress)
    }

    fn sync(&self) -> Result<()> {
        self.0.sync()
    }

    fn notes(&self) -> Result<BTreeMap<String, Vec<u8>>> {
        self.0.notes()
    }
}

/// A store with a dataset, and a file to load.
struct Room {
    _store: Box<dyn Store>,
    dataset: Box<dyn Dataset>,
    input: PathBuf,
    _dir: tempfile::TempDir,
}

impl Room {
    fn new(def: DatasetDef) -> Room {
        let dir = tempfile::tempdir().unwrap();
        let store = open(
            dir.path().join("store"),
            Mode::Create,
            esker::Options::default(),
        );
        let store = store.unwrap();
        Room {
            dataset: store.create_dataset("d", def).unwrap(),
            _store: store,
            input: dir.path().join("in.ndjson"),
            _dir: dir,
        }
    }

    fn sources(&self) -> Vec<Source> {
        sources(std::slice::from_ref(&self.input), None).unwrap()
    }

    fn load(&self) -> Report {
        Import::new(self.sources()).run(&*self.dataset, &mut ())
    }

    /// Loads until these calls fail.
    fn fail(&self, puts: Range<u64>, commits: u64) -> Report {
        let faulty = Faulty(&*self.dataset, Faults::of(puts, commits));
        Import::new(self.sources()).run(&faulty, &mut ())
    }

    fn records(&self) -> u64 {
        self.dataset.count(&Request::default()).unwrap().0
    }

    /// The lines that the file of rejected lines names.
    fn rejected(&self) -> Vec<u64> {
        let text = std::fs::read_to_string(rejects(&self.input)).unwrap_or_default();
        let line = |entry: &str| serde_json::from_str::<Value>(entry).unwrap()["line"].as_u64();
        let mut lines: Vec<u64> = text.lines().map(|entry| line(entry).unwrap()).collect();
        lines.sort_unstable();
        lines
    }
}

fn rejects(input: &Path) -> PathBuf {
    let mut name = input.as_os_str().to_os_string();
    name.push(".rejected");
    name.into()
}

const NONE: Range<u64> = 0..0;
const NEVER: u64 = u64::MAX;

/// An outage counted as a fault of the lines: they were rejected, and the load went on.
#[test]
fn an_outage_ends_the_import_and_rejects_no_line() {
    let room = Room::new(DatasetDef::new("id", KeyType::Int));
    let lines: String = (1..=2000).map(|id| format!("{{\"id\":{id}}}\n")).collect();
    std::fs::write(&room.input, lines).unwrap();
    // Also of a line with several records.
    for failing in [499..510, 1204..1206] {
        let report = room.fail(failing, NEVER);
        let End::Failed(error) = &report.end else {
            panic!("{:?}", report.end)
        };
        assert!(error.to_string().contains("too few nodes"), "{error}");
        assert_eq!((report.rejected, room.rejected().len()), (0, 0));
    }
    let report = room.load();
    assert!(matches!(report.end, End::Complete), "{:?}", report.end);
    assert_eq!((report.resumed, report.records), (1000, 2000));
    assert_eq!((report.rejected, room.records()), (0, 2000));
    let several = Room::new(DatasetDef::new("id", KeyType::Int));
    let lines: String = (1..=10)
        .map(|id| format!("{{\"id\":{id}}} {{\"id\":{}}}\n", id + 100))
        .collect();
    std::fs::write(&several.input, lines).unwrap();
    // The whole line is refused first, then the second of its two records fails.
    let report = several.fail(5..6, NEVER);
    assert!(matches!(report.end, End::Failed(_)), "{:?}", report.end);
    assert_eq!((report.rejected, several.rejected().len()), (0, 0));
    let report = several.load();
    assert_eq!((report.rejected, several.records()), (0, 20));
}

/// The note of a record that was committed by itself counted the rejected lines of the whole batch,
/// so the next import did not find them before that record, and started over.
#[test]
fn an_import_that_ends_amid_single_commits_resumes_there() {
    let unique = Index::composite().int().unique();
    let def = DatasetDef::auto_key().index("v", unique);
    let lines: String = (1..=200u64)
        .map(|at| match at {
            20 => "bad\n".to_string(),
            150 => "also bad\n".to_string(),
            _ if at % 10 == 0 => format!("{{\"v\":7,\"at\":{at}}}\n"),
            // Several records of one line.
            33 => "{\"v\":1033} {\"v\":7} {\"v\":2033}\n".to_string(),
            _ => format!("{{\"v\":{at}}}\n"),
        })
        .collect();
    let mut refused: BTreeSet<u64> = (1..=20).map(|ten| ten * 10).collect();
    refused.insert(33);
    for commits in [
        1, 2, 9, 10, 11, 15, 30, 41, 42, 43, 44, 45, 46, 100, 188, 189, 190,
    ] {
        let room = Room::new(def.clone());
        std::fs::write(&room.input, &lines).unwrap();
        let failed = room.fail(NONE, commits);
        assert!(
            matches!(failed.end, End::Failed(_)),
            "{commits}: {:?}",
            failed.end
        );
        let report = room.load();
        assert!(
            matches!(report.end, End::Complete),
            "{commits}: {:?}",
            report.end
        );
        assert_eq!(report.resumed, failed.records, "{commits}");
        assert_eq!(
            room.rejected(),
            refused.iter().copied().collect::<Vec<_>>(),
            "{commits}"
        );
        assert_eq!((report.rejected, report.records), (21, 181), "{commits}");
        assert_eq!(room.records(), 181, "{commits}");
    }
}

/// Of a strict import's line that is refused for one of its records, no record is put: the line is
/// read again.
#[test]
fn a_strict_import_puts_a_line_as_a_whole() {
    let room = Room::new(DatasetDef::auto_key());
    let bad = "{\"n\":1}\n{\"n\":2} {\"n\":3} {\"_id\":5}\n{\"n\":4}\n";
    std::fs::write(&room.input, bad).unwrap();
    let import = |strict| Import::new(room.sources()).strict(strict);
    let report = import(true).run(&*room.dataset, &mut ());
    assert!(matches!(report.end, End::Bad(_)), "{:?}", report.end);
    let report = import(false).run(&*room.dataset, &mut ());
    assert!(matches!(report.end, End::Complete), "{:?}", report.end);
    assert_eq!((report.records, report.rejected, room.records()), (4, 1, 4));
}

/// Rejected lines that no file could take were counted by the interrupted import only.
#[test]
fn rejected_lines_that_could_not_be_written_are_counted_by_the_import_that_resumes() {
    struct StopsEarly(bool);
    impl Observer for StopsEarly {
        fn progress(&mut self, _: u64, _: u64) {
            self.0 = true;
        }

        fn note(&mut self, note: &Note) {
            assert!(!matches!(note, Note::RejectsLost { .. }));
        }

        fn is_stopped(&self) -> bool {
            self.0
        }
    }
    let room = Room::new(DatasetDef::new("id", KeyType::Int));
    let lines = (0..3000).map(|id| match id {
        7 | 9 => "bad\n".to_string(),
        _ => format!("{{\"id\":{id}}}\n"),
    });
    std::fs::write(&room.input, lines.collect::<String>()).unwrap();
    // A folder of the name of the file.
    let path = rejects(&room.input);
    std::fs::create_dir(&path).unwrap();
    let report = Import::new(room.sources()).run(&*room.dataset, &mut StopsEarly(false));
    assert!(matches!(report.end, End::Stopped { .. }));
    assert_eq!((report.rejected, report.records), (2, 1000));
    std::fs::remove_dir(&path).unwrap();
    let report = room.load();
    assert!(matches!(report.end, End::Complete), "{:?}", report.end);
    assert_eq!((report.resumed, report.records), (1000, 2998));
    assert_eq!(report.rejected, 2);
}

/// An import of the same files with other options is another import: its end does not delete what
/// the first one has noted.
#[test]
fn an_import_with_other_options_leaves_the_note_of_an_interrupted_one() {
    let room = Room::new(DatasetDef::new("id", KeyType::Int));
    let lines: String = (0..3000).map(|id| format!("{{\"id\":{id}}}\n")).collect();
    std::fs::write(&room.input, lines).unwrap();
    let failed = room.fail(NONE, 1);
    assert!(matches!(failed.end, End::Failed(_)), "{:?}", failed.end);
    let mut sources = room.sources();
    sources[0].records = Some(vec!["Records".to_string()]);
    let report = Import::new(sources).run(&*room.dataset, &mut ());
    assert!(matches!(report.end, End::Complete), "{:?}", report.end);
    let known = interrupted_imports(&*room.dataset).unwrap();
    assert_eq!(known.len(), 1);
    assert_eq!((known[0].records, known[0].format), (1000, None));
    // What an interrupted one was told is known.
    let mut sources = room.sources();
    sources[0].records = Some(Vec::new());
    let faulty = Faulty(&*room.dataset, Faults::of(NONE, 1));
    let failed = Import::new(sources).run(&faulty, &mut ());
    assert!(matches!(failed.end, End::Failed(_)), "{:?}", failed.end);
    let known = interrupted_imports(&*room.dataset).unwrap();
    let options =
        |import: &InterruptedImport| (import.format, import.delimiter, import.records_at.clone());
    let mut known: Vec<_> = known.iter().map(options).collect();
    known.sort_by_key(|(_, _, records)| records.is_some());
    let told = (Some(Format::Ndjson), None, Some(Vec::new()));
    assert_eq!(known, [(None, None, None), told]);
    let report = room.load();
    assert_eq!((report.resumed, report.records), (1000, 3000));
    assert_eq!(interrupted_imports(&*room.dataset).unwrap().len(), 1);
    // An import that begins anew ends all others of the same files.
    let report = Import::new(room.sources())
        .restart(true)
        .run(&*room.dataset, &mut ());
    assert!(matches!(report.end, End::Complete), "{:?}", report.end);
    assert!(interrupted_imports(&*room.dataset).unwrap().is_empty());
}

/// An earlier version named the note by the files alone.
#[test]
fn the_note_of_an_earlier_version_is_continued_and_deleted() {
    let room = Room::new(DatasetDef::new("id", KeyType::Int));
    let lines: String = (0..3000).map(|id| format!("{{\"id\":{id}}}\n")).collect();
    std::fs::write(&room.input, lines).unwrap();
    let mut sources = room.sources();
    sources[0].records = Some(Vec::new());
    let faulty = Faulty(&*room.dataset, Faults::of(NONE, 1));
    let failed = Import::new(sources.clone()).run(&faulty, &mut ());
    assert!(matches!(failed.end, End::Failed(_)), "{:?}", failed.end);
    let (name, noted) = room.dataset.notes().unwrap().pop_first().unwrap();
    let files = &name[..name.find(']').unwrap() + 1];
    assert!(files.len() < name.len(), "{name}");
    let mut batch = room.dataset.batch();
    batch.note(&name, None).unwrap();
    batch.note(files, Some(&noted)).unwrap();
    batch.commit().unwrap();
    // Interrupted once more, it has two notes.
    let faulty = Faulty(&*room.dataset, Faults::of(NONE, 1));
    let failed = Import::new(sources.clone()).run(&faulty, &mut ());
    assert!(matches!(failed.end, End::Failed(_)), "{:?}", failed.end);
    let report = Import::new(sources).run(&*room.dataset, &mut ());
    assert_eq!((report.resumed, report.records), (2000, 3000));
    assert!(room.dataset.notes().unwrap().is_empty());
}

/// Behind a value that spans lines, or shares one, the next line is not where the rest begins.
#[test]
fn an_import_that_is_stopped_says_where_its_last_value_begins() {
    struct Stops(std::cell::Cell<u32>);
    impl Observer for Stops {
        fn is_stopped(&self) -> bool {
            self.0.set(self.0.get().saturating_sub(1));
            self.0.get() == 0
        }
    }
    let row = (Format::Csv, "id,t\n1,\"a\nb\"\n2,c\n", 2, 0, true);
    for (format, text, last, number, is_in_table) in [
        (Format::Ndjson, "{\"id\":1}\n{\"id\":2}\n", 1, 0, false),
        (
            Format::Ndjson,
            "{\"id\":1,\n\"t\":2}\n{\"id\":2}\n",
            1,
            1,
            false,
        ),
        (Format::Ndjson, "[{\"id\":1},{\"id\":2}]\n", 1, 1, false),
        row,
    ] {
        let room = Room::new(DatasetDef::new("id", KeyType::Int));
        std::fs::write(&room.input, text).unwrap();
        let sources = sources(std::slice::from_ref(&room.input), Some(format)).unwrap();
        let report = Import::new(sources).run(&*room.dataset, &mut Stops(2.into()));
        let End::Stopped {
            line, part, is_row, ..
        } = report.end
        else {
            panic!("{:?}", report.end)
        };
        assert_eq!(
            (line, part, is_row),
            (last, number, is_in_table),
            "{text:?}"
        );
        assert_eq!(report.records, 1);
    }
}
