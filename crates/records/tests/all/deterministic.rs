//! Without background threads, a run depends only on its calls: the same calls on a new file system
//! give the same answers, the same sequence of file-system calls and the same bytes, all on the
//! caller's thread.

use crate::common;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::ops::ControlFlow;
use std::path::{Path as FsPath, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;

use crate::common::{DIR, TextQuery, path, small};
use esker::fs::{Fs, Lock, ReadFile, WriteFile};
use esker::maintain::Compaction;
use esker::maintain::{RepairMethod, RepairOptions};
use esker::schema::{Maintenance, Merging};
use esker::{Database, DatasetDef, Durability, IndexKind, KeyType, Order, Type};
use esker_sim::memory::Memory;

/// All events, in order.
#[derive(Default)]
struct Journal {
    lines: Vec<String>,
    threads: Vec<ThreadId>,
}

/// A file system that records every call.
#[derive(Clone)]
struct Noting {
    inner: Memory,
    journal: Arc<Mutex<Journal>>,
}

/// Only the names of temporary files depend on the process; they are replaced.
fn name_of(path: &FsPath) -> String {
    if path
        .extension()
        .is_some_and(|extension| extension == "sort")
    {
        "PROCESS-NUMBER.sort".to_string()
    } else {
        path.display().to_string()
    }
}

fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

impl Noting {
    fn note(&self, line: String) {
        let mut journal = self.journal.lock().unwrap();
        journal.lines.push(line);
        let thread = std::thread::current().id();
        if !journal.threads.contains(&thread) {
            journal.threads.push(thread);
        }
    }
}

impl Fs for Noting {
    fn create(&self, path: &FsPath) -> io::Result<Box<dyn WriteFile>> {
        self.note(format!("create {}", name_of(path)));
        let inner = self.inner.create(path)?;
        Ok(Box::new(Writer(inner, name_of(path), self.clone())))
    }

    fn open(&self, path: &FsPath) -> io::Result<Arc<dyn ReadFile>> {
        self.note(format!("open {}", name_of(path)));
        let inner = self.inner.open(path)?;
        Ok(Arc::new(Reader(inner, name_of(path), self.clone())))
    }

    fn rename(&self, from: &FsPath, to: &FsPath) -> io::Result<()> {
        self.note(format!("rename {} {}", name_of(from), name_of(to)));
        self.inner.rename(from, to)
    }

    fn remove(&self, path: &FsPath) -> io::Result<()> {
        self.note(format!("remove {}", name_of(path)));
        self.inner.remove(path)
    }

    fn link(&self, from: &FsPath, to: &FsPath) -> io::Result<()> {
        self.note(format!("link {} {}", name_of(from), name_of(to)));
        self.inner.link(from, to)
    }

    fn list(&self, dir: &FsPath) -> io::Result<Vec<PathBuf>> {
        self.note(format!("list {}", name_of(dir)));
        self.inner.list(dir)
    }

    fn create_dir(&self, dir: &FsPath) -> io::Result<()> {
        self.note(format!("create_dir {}", name_of(dir)));
        self.inner.create_dir(dir)
    }

    fn sync(&self, path: &FsPath) -> io::Result<()> {
        self.note(format!("sync {}", name_of(path)));
        self.inner.sync(path)
    }

    fn sync_dir(&self, dir: &FsPath) -> io::Result<()> {
        self.note(format!("sync_dir {}", name_of(dir)));
        self.inner.sync_dir(dir)
    }

    fn unique(&self) -> u64 {
        self.note("unique".to_string());
        self.inner.unique()
    }

    fn exists(&self, path: &FsPath) -> bool {
        self.note(format!("exists {}", name_of(path)));
        self.inner.exists(path)
    }

    fn lock(&self, path: &FsPath) -> io::Result<Box<dyn Lock>> {
        self.note(format!("lock {}", name_of(path)));
        self.inner.lock(path)
    }

    fn is_locked(&self, path: &FsPath) -> io::Result<bool> {
        self.inner.is_locked(path)
    }
}

struct Writer(Box<dyn WriteFile>, String, Noting);

impl WriteFile for Writer {
    fn append(&self, data: &[u8]) -> io::Result<()> {
        let (len, hash) = (data.len(), hash(data));
        self.2.note(format!("append {} {len} {hash:x}", self.1));
        self.0.append(data)
    }

    fn sync(&self) -> io::Result<()> {
        self.2.note(format!("sync {}", self.1));
        self.0.sync()
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        self.2.note(format!("truncate {} {len}", self.1));
        self.0.truncate(len)
    }
}

struct Reader(Arc<dyn ReadFile>, String, Noting);

impl ReadFile for Reader {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let len = buf.len();
        self.2.note(format!("read {} {offset} {len}", self.1));
        self.0.read_at(offset, buf)
    }

    fn len(&self) -> io::Result<u64> {
        self.2.note(format!("len {}", self.1));
        self.0.len()
    }
}

/// So many datasets that a random order would not repeat.
const DATASETS: usize = 6;

/// One life of a store; the calls depend on the seed only.
struct Run {
    fs: Noting,
    rng: fastrand::Rng,
    db: Option<Database>,
    backups: usize,
}

impl Run {
    fn new(seed: u64) -> Run {
        let inner = Memory::new();
        inner.create_dir(FsPath::new(DIR)).unwrap();
        let journal = Arc::default();
        let mut run = Run {
            fs: Noting { inner, journal },
            rng: fastrand::Rng::with_seed(seed),
            db: None,
            backups: 0,
        };
        run.open();
        for at in 0..DATASETS {
            let def = run.def(at);
            run.db()
                .create_dataset::<esker::Key>(&format!("d{at}"), def)
                .unwrap();
        }
        run
    }

    fn open(&mut self) {
        // A small cache, so that evictions change which blocks are read.
        let options = small(Arc::new(self.fs.clone())).memory_budget(384 << 10);
        self.db = Some(Database::create_or_open(FsPath::new(DIR), options).unwrap());
    }

    fn db(&self) -> &Database {
        self.db.as_ref().unwrap()
    }

    fn def(&mut self, at: usize) -> DatasetDef {
        let kinds: Vec<IndexKind> = IndexKind::ALL.to_vec();
        let mut def = DatasetDef::new(path("id"), KeyType::Int)
            .index(
                path("a"),
                esker::Index::new(kinds[self.rng.usize(0..kinds.len())]).of_type(Type::Int),
            )
            .index(
                path("tags"),
                esker::Index::new(IndexKind::Lazy).of_type(Type::String),
            );
        def = match at {
            0..=3 => def,
            4 => def.auto(),
            _ => def.maintenance(Maintenance::ALL[self.rng.usize(0..Maintenance::ALL.len())]),
        };
        def.merging(
            [
                Merging::Leveled,
                Merging::Tiered,
                Merging::Correlated,
                Merging::LazyLeveled,
            ][at % 4],
        )
    }

    fn record(&mut self) -> String {
        let rng = &mut self.rng;
        let (id, a, b) = (rng.u32(0..300), rng.u32(0..9), rng.u32(0..5));
        let pad = "x".repeat(rng.usize(0..200));
        format!(
            r#"{{"id":{id},"a":{a},"b":{b},"tags":["t{a}","t{b}","t{}"],"pad":"{pad}"}}"#,
            rng.u32(0..20)
        )
    }

    fn step(&mut self) -> String {
        let name = format!("d{}", self.rng.usize(0..DATASETS));
        let dataset = self.db().dataset::<esker::Key>(&name).unwrap();
        let which = self.rng.u32(0..100);
        let done = match which {
            0..=59 => {
                let mut batch = dataset.batch();
                for _ in 0..self.rng.usize(1..80) {
                    let record = self.record();
                    batch.put_json(record.as_bytes()).unwrap();
                }
                if self.rng.bool() {
                    let id = self.rng.u32(0..300).to_string();
                    batch.delete(dataset.parse_key(&id).unwrap()).unwrap();
                }
                let durability = [Durability::Os, Durability::Sync][self.rng.usize(0..2)];
                format!("{:?}", batch.durability(durability).commit().is_ok())
            }
            60..=62 => {
                let record = self.record();
                format!("{:?}", dataset.insert_json(record.as_bytes()).is_ok())
            }
            63..=82 => {
                let (at, value) = match self.rng.usize(0..3) {
                    0 => ("a", self.rng.u32(0..9).to_string()),
                    1 => ("b", self.rng.u32(0..5).to_string()),
                    _ => ("tags", format!("t{}", self.rng.u32(0..20))),
                };
                let query = dataset.query().equals(&path(at), &value);
                match self.rng.usize(0..3) {
                    0 => format!("{:?}", query.count().unwrap()),
                    1 => {
                        let mut keys = Vec::new();
                        let mut visit = |record: esker::Record| {
                            keys.push(record.key().to_string());
                            ControlFlow::Continue(())
                        };
                        query.order(Order::Any).visit(&mut visit).unwrap();
                        format!("{keys:?}")
                    }
                    _ => {
                        let found = query.limit(Some(20)).run().unwrap();
                        let keys = found.map(|record| record.unwrap().key().to_string());
                        format!("{:?}", keys.collect::<Vec<_>>())
                    }
                }
            }
            83..=85 => {
                let methods = [
                    RepairMethod::Auto,
                    RepairMethod::Index,
                    RepairMethod::Key,
                    RepairMethod::Primary {
                        compaction: Compaction::Before,
                    },
                ];
                let options = RepairOptions {
                    method: methods[self.rng.usize(0..methods.len())],
                    ..RepairOptions::default()
                };
                let mut reports = Vec::new();
                let report = dataset
                    .repair(&options)
                    .on_progress(|progress| {
                        reports.push(progress);
                        ControlFlow::Continue(())
                    })
                    .run();
                let counts = report.map(|report| (report.entries, report.found, report.sorted));
                format!("{counts:?} {reports:?}")
            }
            86..=87 => {
                let to = Maintenance::ALL[self.rng.usize(0..Maintenance::ALL.len())];
                let auto = self.rng.bool();
                let mut reports = Vec::new();
                let mut progress = |progress| {
                    reports.push(progress);
                    ControlFlow::Continue(())
                };
                let report = if auto {
                    dataset.set_auto().on_progress(&mut progress).run()
                } else {
                    dataset.set_maintenance(to).on_progress(&mut progress).run()
                };
                let report = report.map(|report| (report.from, report.to, report.keys));
                format!("{report:?} {reports:?}")
            }
            88..=90 => {
                let kind = IndexKind::ALL[self.rng.usize(0..IndexKind::ALL.len())];
                let at = path(["a", "b"][self.rng.usize(0..2)]);
                let go = &mut |_| ControlFlow::Continue(());
                let change = if dataset.def().indexes.iter().any(|i| i.path == at) {
                    dataset.switch_index(&at, kind).on_progress(go).run()
                } else {
                    dataset.add_index(&at, kind).on_progress(go).run()
                };
                format!("{:?}", change.map(|change| (change.from, change.to)))
            }
            91 => {
                // The next flush writes the obsolete writes found by queries of several datasets.
                self.db().flush().unwrap();
                let names = self.db().dataset_names();
                let datasets = names
                    .iter()
                    .map(|name| self.db().dataset::<esker::Key>(name).unwrap());
                let mut found = Vec::new();
                for dataset in datasets {
                    dataset.put_json(br#"{"id":1,"a":1,"tags":[]}"#).unwrap();
                    let query = dataset.query().between(&path("tags"), "a", "z");
                    found.extend(query.run().unwrap().map(|r| r.unwrap().key().to_string()));
                }
                format!("{:?} {found:?}", self.db().flush())
            }
            92 => format!("{:?}", self.db().compact(None)),
            93 => {
                self.backups += 1;
                let dest = PathBuf::from(format!("/backup{}", self.backups));
                format!("{:?}", self.db().backup(&dest))
            }
            94 => format!("{:?}", dataset.advise(None).unwrap()),
            95 => {
                drop(dataset);
                self.db().drop_dataset(&name).unwrap();
                let def = self.def(0);
                self.db().create_dataset::<esker::Key>(&name, def).unwrap();
                String::new()
            }
            96 => format!("{:?}", self.db().check().unwrap().errors),
            _ => {
                drop(dataset);
                let db = self.db.take().unwrap();
                if self.rng.bool() {
                    db.close().unwrap()
                } else {
                    drop(db)
                }
                self.open();
                String::new()
            }
        };
        format!("{name}: {which}: {done}")
    }
}

/// All observable results of a run.
fn life(seed: u64) -> (Vec<String>, Vec<ThreadId>, Memory) {
    let mut run = Run::new(seed);
    for step in 0..400 {
        let done = run.step();
        run.fs.note(format!("step {step}: {done}"));
    }
    run.db.take().unwrap().close().unwrap();
    let journal = std::mem::take(&mut *run.fs.journal.lock().unwrap());
    (journal.lines, journal.threads, run.fs.inner)
}

#[test]
fn without_background_threads_the_same_calls_give_the_same_store() {
    for seed in common::seeds(4) {
        let (first, threads, files) = life(seed);
        assert_eq!(threads, [std::thread::current().id()], "seed {seed}");
        let (second, _, others) = life(seed);
        for (at, (a, b)) in first.iter().zip(&second).enumerate() {
            let before = &first[at.saturating_sub(5)..at];
            assert_eq!(a, b, "seed {seed}, event {at}, after {before:#?}");
        }
        assert_eq!(first.len(), second.len(), "seed {seed}");
        assert_eq!(files.paths(), others.paths(), "seed {seed}");
        for path in files.paths() {
            assert!(
                files.read(&path) == others.read(&path),
                "seed {seed}: {path:?}"
            );
        }
    }
}
