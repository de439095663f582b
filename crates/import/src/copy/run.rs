//! A copy of a dataset, from its definition to its comparison.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::scope;
use std::time::Duration;

use esker::{DatasetDef, Error, Request, Result};
use esker_store::{Dataset, Records, Store};

use super::agree::{agree, agree_on_keys};
use super::deferred::{self, without_unique};
use super::differences::{self, Differing, Mending, Sides, stopped};
use super::items::Versions;
use super::observer::{CopyObserver, CopyStep};
use super::sorted::Sorted;
use super::stored::Stored;
use super::sums::{Reading, Sums};
use super::transfer::Transfer;

const POLL: Duration = Duration::from_millis(50);

/// How a copy ended.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum CopyEnd {
    /// Both sides are equal.
    Equal,
    /// They differ in these ranges of keys.
    Unequal(Vec<Differing>),
    /// The observer stopped it.
    Stopped,
}

/// What a copy has done.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Copied {
    /// Records that were copied, by this run and those that it continues.
    pub records: u64,
    /// The number of these that earlier runs have copied.
    pub resumed: u64,
    /// Records that were put or deleted after a comparison.
    pub mended: u64,
    /// The records of the source and of the target, when they were compared.
    pub compared: Option<(u64, u64)>,
    /// How it ended.
    pub end: CopyEnd,
}

/// A copy of datasets from one store to another.
///
/// The source is read as of a snapshot, if its store has snapshots. On a cluster each record is
/// copied as it was at some moment of the copy; what was written meanwhile is found by the
/// comparison and copied again, once. The target must not be written by others until the copy is
/// complete.
pub struct StoreCopy<'a> {
    from: &'a dyn Store,
    to: &'a dyn Store,
    /// The name of the source in what is stored at the target.
    address: String,
    snapshot: Option<String>,
    workers: usize,
    mend: bool,
}

impl std::fmt::Debug for StoreCopy<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoreCopy")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl<'a> StoreCopy<'a> {
    /// A copy from a store at an address. A copy that was interrupted continues if it has the same
    /// address.
    pub fn new(from: &'a dyn Store, address: &str, to: &'a dyn Store) -> StoreCopy<'a> {
        StoreCopy {
            from,
            to,
            address: address.to_string(),
            snapshot: None,
            workers: 2,
            mend: false,
        }
    }

    /// Copies what is in a named snapshot of the source.
    #[must_use]
    pub fn snapshot(mut self, name: Option<&str>) -> Self {
        self.snapshot = name.map(str::to_string);
        self
    }

    /// The threads that read, and those that write. Default: two.
    #[must_use]
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = workers.clamp(1, 64);
        self
    }

    /// Makes a copy that was complete equal again, if the sides differ: puts what differs, and
    /// deletes what the source does not have.
    #[must_use]
    pub fn mend(mut self, mend: bool) -> Self {
        self.mend = mend;
        self
    }

    /// Copies a dataset, or continues to, and compares both sides.
    ///
    /// # Errors
    /// [`Error::Exists`] if the target has a dataset of the name that is no copy of the source, or
    /// has another definition; [`Error::BadInput`] for a record that the target refuses; any read
    /// or write error.
    pub fn run(&self, name: &str, observer: &mut dyn CopyObserver) -> Result<Copied> {
        let source = match &self.snapshot {
            Some(snapshot) => self.from.dataset_at(snapshot, name)?,
            None => self.from.dataset(name)?.snapshot()?,
        };
        let source = &*source;
        let (def, notes) = self.to.adapted(&source.def());
        let have_versions = self.from.capabilities().versions && self.to.capabilities().versions;
        let most = source.def().versions.min(def.versions);
        let versions = Versions(if have_versions { most as usize } else { 1 });
        let first = if versions.0 > 1 {
            without_unique(&def)
        } else {
            def.clone()
        };
        let begun = self.target(name, &first, &def, &notes, observer)?;
        let (target, mut stored) = (&*begun.target, begun.stored);
        // A target that was there may keep fewer.
        let kept = usize::try_from(target.def().versions).unwrap_or(usize::MAX);
        let versions = Versions(versions.0.min(kept.max(1)));
        let mut copied = Copied {
            records: stored.records,
            resumed: stored.records,
            mended: 0,
            compared: None,
            end: CopyEnd::Stopped,
        };
        let was_complete = stored.is_complete;
        if !was_complete {
            let transfer = Transfer {
                source,
                target,
                versions,
                workers: self.workers,
                is_resumed: begun.is_resumed,
            };
            let is_done = transfer.run(&mut stored, observer);
            copied.records = stored.records;
            if !is_done? {
                return Ok(copied);
            }
            target.sync()?;
        }
        let comparing = Comparing {
            of: self,
            source,
            target,
            versions,
        };
        copied.end = comparing.compare(&mut copied, observer)?;
        let is_mended = self.mend || !was_complete;
        if let (CopyEnd::Unequal(differing), true) = (&copied.end, is_mended) {
            let differing = differing.clone();
            copied.mended = comparing.mend(&differing, observer)?;
            copied.end = comparing.compare(&mut copied, observer)?;
        }
        if let CopyEnd::Unequal(differing) = &mut copied.end {
            comparing.name(differing, observer)?;
            if differing.is_empty() {
                copied.end = CopyEnd::Equal;
            }
        }
        if copied.end == CopyEnd::Equal && !was_complete {
            if first != def && !deferred::build(target, &def, observer)? {
                copied.end = CopyEnd::Stopped;
                return Ok(copied);
            }
            stored.is_complete = true;
            stored.write(target)?;
        }
        if first != def && !stored.is_complete {
            observer.note(
                "the target's unique indexes are built when both sides are equal: run the copy again",
            );
        }
        target.sync()?;
        Ok(copied)
    }

    /// The dataset at the target, created as `first` if it does not exist, and how far it is
    /// copied.
    fn target(
        &self,
        name: &str,
        first: &DatasetDef,
        def: &DatasetDef,
        notes: &[String],
        observer: &mut dyn CopyObserver,
    ) -> Result<Begun> {
        let begun = Stored {
            from: self.address.clone(),
            ..Stored::default()
        };
        let target = match self.to.dataset(name) {
            Ok(target) => target,
            Err(Error::UnknownDataset { .. }) => {
                for note in notes {
                    observer.note(&format!("dataset `{name}`: {note}"));
                }
                let target = self.to.create_dataset(name, first.clone())?;
                begun.write(&*target)?;
                return Ok(Begun {
                    target,
                    stored: begun,
                    is_resumed: false,
                });
            }
            Err(error) => return Err(error),
        };
        let address = &self.address;
        match Stored::read(&*target)? {
            Some(stored) if stored.from != *address => Err(Error::Exists(format!(
                "dataset `{name}` exists at the target as a copy from {}, not from {address}",
                stored.from
            ))),
            Some(stored) if stored.is_complete => {
                agree_on_keys(name, &target.def(), def)?;
                Ok(Begun {
                    target,
                    stored,
                    is_resumed: true,
                })
            }
            Some(stored) => {
                if first == def {
                    agree(name, &target.def(), def)?;
                } else {
                    // Some of the deferred indexes may be built.
                    deferred::resume(&*target, observer)?;
                    agree(name, &without_unique(&target.def()), first)?;
                }
                Ok(Begun {
                    target,
                    stored,
                    is_resumed: true,
                })
            }
            None => {
                let is_first = agree(name, &target.def(), first).is_ok();
                if !is_first {
                    agree(name, &target.def(), def)?;
                }
                let mut one = Request::default();
                one.limit = Some(1);
                if target.count(&one)?.0 > 0 {
                    return Err(Error::Exists(format!(
                        "dataset `{name}` exists at the target, with records that are not of a copy"
                    )));
                }
                begun.write(&*target)?;
                Ok(Begun {
                    target,
                    stored: begun,
                    is_resumed: false,
                })
            }
        }
    }
}

/// A dataset at the target.
struct Begun {
    target: Box<dyn Dataset>,
    stored: Stored,
    /// An earlier run has begun to copy it.
    is_resumed: bool,
}

/// The comparison of both sides.
struct Comparing<'a> {
    of: &'a StoreCopy<'a>,
    source: &'a dyn Records,
    target: &'a dyn Dataset,
    versions: Versions,
}

impl Comparing<'_> {
    /// Runs `work` beside the observer, which may stop it.
    fn beside<T: Send>(
        &self,
        step: CopyStep,
        observer: &mut dyn CopyObserver,
        work: impl FnOnce(&AtomicU64, &(dyn Fn() -> bool + Sync)) -> Result<T> + Send,
    ) -> Result<T> {
        let (count, is_stopped) = (AtomicU64::new(0), AtomicBool::new(false));
        scope(|threads| {
            let stops = || is_stopped.load(Ordering::Relaxed);
            let count = &count;
            let begun = threads.spawn(move || {
                let done = work(count, &stops);
                if stops() { Err(stopped()) } else { done }
            });
            while !begun.is_finished() {
                std::thread::park_timeout(POLL);
                observer.progress(step, count.load(Ordering::Relaxed));
                if observer.is_stopped() {
                    is_stopped.store(true, Ordering::Relaxed);
                }
            }
            let failed = |_| Error::Unavailable("a thread of the copy failed".to_string());
            begun.join().map_err(failed)?
        })
    }

    fn reading<'r>(
        &self,
        records: &'r dyn Records,
        read: &'r AtomicU64,
        is_stopped: &'r (dyn Fn() -> bool + Sync),
    ) -> Reading<'r> {
        Reading {
            records,
            versions: self.versions,
            read,
            is_stopped,
        }
    }

    /// Compares counts and checksums by range of keys.
    fn compare(&self, copied: &mut Copied, observer: &mut dyn CopyObserver) -> Result<CopyEnd> {
        let (workers, of) = (self.of.workers, self.of);
        let (source, target) = (self.source, self.target.records());
        let (in_order, target_in_order) = (
            of.from.capabilities().key_order,
            of.to.capabilities().key_order,
        );
        let compared = self.beside(CopyStep::Comparing, observer, |read, is_stopped| {
            let source = self.reading(source, read, is_stopped);
            let target = self.reading(target, read, is_stopped);
            // The side with an order of keys says what the ranges are.
            if in_order {
                let sums = Sums::ordered(&source)?;
                let other = Sums::by(&target, &sums.bounds, workers)?;
                return Ok((sums, other));
            }
            if target_in_order {
                let sums = Sums::ordered(&target)?;
                let other = Sums::by(&source, &sums.bounds, workers)?;
                return Ok((other, sums));
            }
            let bounds = Sums::sampled(source.records)?;
            let sums = Sums::by(&source, &bounds, workers)?;
            Ok((sums, Sums::by(&target, &bounds, workers)?))
        });
        let (source, target) = match compared {
            Ok(sums) => sums,
            Err(_) if observer.is_stopped() => return Ok(CopyEnd::Stopped),
            Err(error) => return Err(error),
        };
        copied.compared = Some((source.records(), target.records()));
        let differing = differences::ranges(&source, &target, self.source);
        Ok(if differing.is_empty() {
            CopyEnd::Equal
        } else {
            CopyEnd::Unequal(differing)
        })
    }

    /// Passes each key that differs within these ranges.
    fn each(
        &self,
        differing: &[Differing],
        read: &AtomicU64,
        is_stopped: &(dyn Fn() -> bool + Sync),
        each: &mut dyn FnMut(Vec<u8>, differences::Unequal) -> Result<()>,
    ) -> Result<()> {
        let orders = [self.of.from, self.of.to].map(|store| store.capabilities().key_order);
        let [in_order, target_in_order] = orders;
        for span in differences::spans(differing) {
            let source = self.reading(self.source, read, is_stopped);
            let target = self.reading(self.target.records(), read, is_stopped);
            let source = Sorted::new(source, in_order, span.clone());
            let target = Sorted::new(target, target_in_order, span);
            differences::keys((source, target), &mut |key, how| {
                if is_stopped() {
                    return Err(stopped());
                }
                each(key, how)
            })?;
        }
        Ok(())
    }

    fn sides(&self) -> Sides<'_> {
        Sides {
            source: self.source,
            target: self.target,
            versions: self.versions,
            expiry: self.source.def().expiry,
        }
    }

    /// Makes the target what the source is within these ranges.
    fn mend(&self, differing: &[Differing], observer: &mut dyn CopyObserver) -> Result<u64> {
        let mended = self.beside(CopyStep::Mending, observer, |read, is_stopped| {
            let mut mending = Mending {
                sides: self.sides(),
                waiting: Vec::new(),
                mended: 0,
            };
            self.each(differing, read, is_stopped, &mut |key, how| {
                mending.add(key, how)
            })?;
            mending.finish()?;
            Ok(mending.mended)
        });
        match mended {
            Err(_) if observer.is_stopped() => Ok(0),
            other => other,
        }
    }

    /// Finds the first key that differs in each range; ranges in which records have only expired
    /// meanwhile are equal.
    fn name(&self, differing: &mut Vec<Differing>, observer: &mut dyn CopyObserver) -> Result<()> {
        let found = self.beside(CopyStep::Comparing, observer, |read, is_stopped| {
            let sides = self.sides();
            let mut named = differing.clone();
            let all = named.clone();
            self.each(&all, read, is_stopped, &mut |key, how| {
                sides.note((key, how), &mut named)
            })?;
            if sides.expiry.is_some() {
                named.retain(|range| range.first.is_some());
            }
            Ok(named)
        });
        match found {
            Ok(named) => *differing = named,
            Err(_) if observer.is_stopped() => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}
