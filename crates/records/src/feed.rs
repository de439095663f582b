//! The change feed: each committed change of a dataset, in order, from a position on; later changes
//! follow as they are committed.
//!
//! The feed reads the log, so writers pay nothing for it. It goes back as far as the log does: the
//! log holds all writes that are in no table yet, and the older writes that
//! [`crate::Options::keep_log`] or a named consumer ([`crate::Dataset::keep_changes_for`]) keeps.
//! If the dataset keeps old records ([`crate::DatasetDef::keep_old_records`]), each commit also
//! logs the records that it replaced, and the feed can return them.
//!
//! The feed returns a change once readers see it, never before. Changes of one batch come in the
//! order in which they were added.
//!
//! **Old records** are read when they are replaced, and logged in the same commit: a batch looks up
//! the records that it replaces, all keys together, before it is appended to the log. Under the
//! writer lock it validates them against the memtables (`write/pre_images.rs`), and adds one
//! operation per key in the tree `d/old`. That tree is in the log alone (`TreeOptions::log_only`):
//! it costs no memtable, flush or compaction, and goes back as far as the feed. If a batch writes a
//! key several times, the feed takes its earlier change as the old record of the later one.
//!
//! The alternative, keeping old versions in the data until the feed's retention has passed, would
//! cost writers nothing, but every compaction and every read of such a key; followers would have to
//! register, and look each change up in trees that have changed since. The logged pre-image is
//! exact wherever the log exists, also for tails and readers beside the writer. A backup has no
//! log, so its feed begins with the backup.
//!
//! An expired record that was not deleted yet counts as the old record when it is replaced, since
//! the feed returned no change that removed it. So the old record of a change is always the record
//! that the previous change of its key returned.

use std::collections::{HashMap, VecDeque};
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::{Duration, Instant};

use esker_lsm::entry::Timed;
use esker_lsm::{Commit, Kind, Listening, Position, Seq, Tail, TreeId, Wake};
use esker_model::schema::KeyType;
use esker_model::{Key, PrimaryKey, Record};

use crate::bodies::CommitBodies;
use crate::error::{Error, Result};
use crate::record;
use crate::store::Handle;

/// Where a feed begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChangesFrom {
    /// With the oldest change in the log.
    Oldest,
    /// After the write with this number, from [`crate::DatasetSnapshot::seq`] or
    /// [`crate::Record::seq`].
    Seq(Seq),
    /// After this position. Rejected if it comes from another store, or from a copy that has
    /// diverged.
    Position(Position),
    /// With the next new change.
    Now,
}

impl From<Seq> for ChangesFrom {
    fn from(seq: Seq) -> ChangesFrom {
        ChangesFrom::Seq(seq)
    }
}

impl From<Position> for ChangesFrom {
    fn from(position: Position) -> ChangesFrom {
        ChangesFrom::Position(position)
    }
}

/// What happened to a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChangeKind {
    /// It was put.
    Put,
    /// It was deleted.
    Deleted,
    /// It had expired, and the store deleted it: in the background, some time after reads stopped
    /// returning it, or in [`crate::Dataset::expire_now`]. Reported once for each record, and not
    /// at all if the record was put again or deleted first.
    Expired,
}

/// One committed change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change<K = Key> {
    key: K,
    position: Position,
    record: Option<Record<K>>,
    old: Option<Record<K>>,
    kind: ChangeKind,
}

impl Change {
    /// A change, for stores of other crates: the record as it left it, and the one that it
    /// replaced.
    pub fn new(
        key: Key,
        position: Position,
        kind: ChangeKind,
        (record, old): (Option<Record>, Option<Record>),
    ) -> Change {
        Change {
            key,
            position,
            record,
            old,
            kind,
        }
    }

    /// Converts the keys to the type `K`.
    fn typed<K: PrimaryKey>(self) -> Result<Change<K>> {
        Ok(Change {
            key: K::from_key(self.key)?,
            position: self.position,
            record: self.record.map(record::with_key_type).transpose()?,
            old: self.old.map(record::with_key_type).transpose()?,
            kind: self.kind,
        })
    }
}

impl<K> Change<K> {
    /// The kind of the change.
    pub fn kind(&self) -> ChangeKind {
        self.kind
    }

    /// The primary key.
    pub fn key(&self) -> &K {
        &self.key
    }

    /// The number of the write: larger is newer.
    pub fn seq(&self) -> Seq {
        self.position.seq
    }

    /// The position after the change: a feed from there continues with the next change.
    pub fn position(&self) -> Position {
        self.position
    }

    /// The record as the change left it; `None` if it was deleted or had expired.
    pub fn record(&self) -> Option<&Record<K>> {
        self.record.as_ref()
    }

    /// In a feed with old records ([`Changes::with_old`]): the record that was replaced or deleted,
    /// or that expired, as the previous change of this key reported it. If a record had expired
    /// when a put replaced it, this is the expired record, since the expiry was not reported as a
    /// change. `None` if there was no record, and in feeds without old records.
    pub fn old(&self) -> Option<&Record<K>> {
        self.old.as_ref()
    }
}

/// Reads the changes of a dataset in order ([`crate::Dataset::changes`]).
pub struct Changes<K = Key> {
    key: PhantomData<fn() -> K>,
    dataset: Handle,
    tail: Tail,
    /// The feed has returned every change up to this position.
    returned: Position,
    /// The changes of the last commit read that were not returned yet.
    pending: VecDeque<Change>,
    /// Changes carry the records that they replaced.
    with_old: bool,
}

/// The interval between two checks whether the reader was stopped.
const STOP_CHECKS: Duration = Duration::from_millis(200);

impl<K: PrimaryKey> Changes<K> {
    /// A feed of the dataset's changes.
    ///
    /// # Errors
    /// [`Error::PositionExpired`], [`Error::OtherHistory`].
    pub(crate) fn new(dataset: Handle, from: ChangesFrom) -> Result<Changes<K>> {
        let group = &dataset.store.group;
        let from = match from {
            ChangesFrom::Oldest => group.oldest_position(),
            ChangesFrom::Seq(seq) => Position {
                history: group.position().history,
                seq,
            },
            ChangesFrom::Position(position) => position,
            ChangesFrom::Now => group.position(),
        };
        Ok(Changes {
            key: PhantomData,
            tail: group.tail(from)?,
            dataset,
            returned: from,
            pending: VecDeque::new(),
            with_old: false,
        })
    }

    /// Makes each change carry the record that it replaced ([`Change::old`]).
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// use esker::{Database, DatasetDef, Options};
    ///
    /// let db = Database::create_or_open(dir.path(), Options::default())?;
    /// let def = DatasetDef::key("id").keep_old_records();
    /// let users = db.create_dataset::<u64>("users", def)?;
    /// let mut changes = users.changes(0)?.with_old()?;
    /// users.put_json(r#"{"id": 1, "name": "ann"}"#)?;
    /// users.put_json(r#"{"id": 1, "name": "anne"}"#)?;
    ///
    /// assert!(changes.next()?.unwrap().old().is_none());
    /// let renamed = changes.next()?.unwrap();
    /// assert_eq!(renamed.old().unwrap().json(), br#"{"id": 1, "name": "ann"}"#);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::NoOldRecords`] if the dataset was not created with
    /// [`crate::DatasetDef::keep_old_records`].
    pub fn with_old(self) -> Result<Changes<K>> {
        if self.dataset.layout().old.is_none() {
            let dataset = self.dataset.name();
            return Err(Error::NoOldRecords { dataset });
        }
        Ok(Changes {
            with_old: true,
            ..self
        })
    }

    /// The feed has returned every change before this position: a feed from there continues where
    /// this one stands.
    pub fn position(&self) -> Position {
        if self.pending.is_empty() {
            self.tail.position()
        } else {
            self.returned
        }
    }

    /// Keeps up to `bytes` bytes of log for this feed while it exists, so that a slow reader misses
    /// nothing.
    pub fn hold(&mut self, bytes: u64) {
        self.tail.hold(bytes);
    }

    /// The next change, or `None` if there is none yet; later calls can return more.
    ///
    /// # Errors
    /// [`Error::PositionExpired`] if the log no longer contains the next change;
    /// [`Error::UnknownDataset`] if the dataset was dropped, after its last change;
    /// [`Error::Damaged`]; also any error of reading the log.
    #[allow(
        clippy::should_implement_trait,
        reason = "it can be called again after `None`"
    )]
    pub fn next(&mut self) -> Result<Option<Change<K>>> {
        self.wait(Duration::ZERO)
    }

    /// The next change, if it is found before `until`; then [`Changes::is_behind`] says whether
    /// there is more to read. So a feed of few changes in a long log can be read in steps: other
    /// datasets' commits are in the log, too.
    ///
    /// # Errors
    /// As [`Changes::next`].
    pub fn next_until(&mut self, until: Instant) -> Result<Option<Change<K>>> {
        while self.pending.is_empty() {
            if let Some(stop) = &self.dataset.stop {
                stop.check()?;
            }
            match self.tail.next()? {
                Some(commit) => self.add_changes_of(&commit)?,
                // Also sees that the dataset was dropped.
                None => return self.next(),
            }
            if Instant::now() >= until {
                break;
            }
        }
        if self.pending.is_empty() {
            return Ok(None);
        }
        self.next()
    }

    /// True if the log has commits that this feed has not read.
    pub fn is_behind(&self) -> bool {
        !self.pending.is_empty() || self.tail.is_behind()
    }

    /// The next change; waits for it for at most `most`.
    ///
    /// # Errors
    /// As [`Changes::next`]; after the last change, [`Error::Closed`] if the store was closed, and
    /// [`Error::Poisoned`] if it refuses writes after a failure; [`Error::Cancelled`] if the handle
    /// was stopped ([`crate::Dataset::with_stop`]).
    pub fn wait(&mut self, most: Duration) -> Result<Option<Change<K>>> {
        // `None` if the clock cannot express the time: waits forever.
        let until = Instant::now().checked_add(most);
        let mut was_dropped = false;
        loop {
            if let Some(change) = self.pending.pop_front() {
                self.returned = change.position;
                return change.typed().map(Some);
            }
            if let Some(stop) = &self.dataset.stop {
                stop.check()?;
            }
            let left = until.map_or(STOP_CHECKS, |until| {
                until.saturating_duration_since(Instant::now())
            });
            let commit = if left.is_zero() || was_dropped {
                self.tail.next()?
            } else {
                self.tail.wait(left.min(STOP_CHECKS))?
            };
            let Some(commit) = commit else {
                if was_dropped {
                    return Err(Error::unknown_dataset(self.dataset.name()));
                }
                // Changes committed just before the drop are returned first.
                was_dropped = self.dataset.now().is_dropped();
                if left.is_zero() && !was_dropped {
                    return Ok(None);
                }
                continue;
            };
            self.add_changes_of(&commit)?;
        }
    }

    /// Calls `wake` whenever there may be a change, until the returned value is dropped: after each
    /// commit of the store, after a dataset is dropped, when the store is closed, and when it
    /// refuses writes after a failure. So one thread can serve any number of feeds: after `listen`
    /// and after each call of `wake` it calls [`Changes::next`] until that returns `None`. In a
    /// store that is open for reading, one thread polls the writer's files for all listeners.
    ///
    /// `wake` must not block and not use the store ([`Wake`]). Cancelling a [`crate::Stop`] does
    /// not call it.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// use std::sync::{Arc, mpsc};
    /// use esker::{Database, DatasetDef, Options};
    ///
    /// let db = Database::create_or_open(dir.path(), Options::default())?;
    /// let users = db.create_dataset::<u64>("users", DatasetDef::key("id"))?;
    /// let mut changes = users.changes(0)?;
    /// let (sender, woken) = mpsc::channel();
    /// let _listening = changes.listen(Arc::new(move || {
    ///     let _ = sender.send(());
    /// }))?;
    /// assert!(changes.next()?.is_none());
    /// users.put_json(r#"{"id": 1}"#)?;
    /// woken.recv()?;
    /// assert_eq!(changes.next()?.map(|change| *change.key()), Some(1));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// In a store that is open for reading: the thread that polls the writer's files cannot be
    /// started.
    pub fn listen(&self, wake: Arc<Wake>) -> Result<Listening> {
        Ok(self.tail.listen(wake)?)
    }

    /// True when the store was closed or refuses writes: when [`Changes::next`] then returns
    /// `None`, no more changes come.
    pub fn is_ended(&self) -> bool {
        self.tail.is_ended()
    }

    /// Adds the changes of a commit to `pending`. The tail does not return the commit again: every
    /// readable change is added, and the first error is returned.
    fn add_changes_of(&mut self, commit: &Commit) -> Result<()> {
        let layout = self.dataset.layout();
        let replaced = match layout.old.filter(|_| self.with_old) {
            Some(old) => Some(replaced_records(commit, old)?),
            None => None,
        };
        let mut changes = CommitChanges {
            data: layout.data,
            expiry: layout.expiry,
            key_type: self.dataset.key_type(),
            history: commit.position().history,
            after: self.returned.seq,
            replaced,
            bodies: CommitBodies::of(commit, &layout),
            pending: &mut self.pending,
        };
        let mut failed = None;
        commit.each(&mut |tree, seq, kind, key, value| {
            let added = if tree == changes.data {
                changes.add(seq, kind, key, value)
            } else {
                changes.note_expiry(tree, seq, kind);
                Ok(())
            };
            if let Err(error) = added {
                failed.get_or_insert(error);
            }
        });
        failed.map_or(Ok(()), Err)
    }
}

/// Decodes the operations of a commit to a dataset, in their order.
struct CommitChanges<'a> {
    /// The trees of the records and of the expiry times.
    data: TreeId,
    expiry: Option<TreeId>,
    key_type: KeyType,
    /// The history of the commit's position.
    history: u64,
    /// Changes up to this number were returned before.
    after: Seq,
    /// For each key, the record that its next change in the commit replaces; `None` in a feed
    /// without old records.
    replaced: Option<HashMap<Vec<u8>, ReplacedRecord>>,
    bodies: CommitBodies,
    pending: &'a mut VecDeque<Change>,
}

impl CommitChanges<'_> {
    /// Marks the last change as an expiry if an operation deletes its expiry entry, under the same
    /// number.
    fn note_expiry(&mut self, tree: TreeId, seq: Seq, kind: Kind) {
        if Some(tree) == self.expiry
            && kind == Kind::Delete
            && let Some(last) = self.pending.back_mut()
            && last.position.seq == seq
        {
            last.kind = ChangeKind::Expired;
        }
    }

    /// Adds the change of an operation on the data tree, unless it was returned before.
    fn add(&mut self, seq: Seq, kind: Kind, key: &[u8], value: &[u8]) -> Result<()> {
        let stored = stored_in(kind, value)?.map(|stored| self.bodies.with_body(seq, stored));
        // The next change of the key in this commit replaces this one's record.
        let old = match (&mut self.replaced, stored) {
            (None, _) => None,
            (Some(replaced), Some(stored)) => {
                let stored = stored.to_vec();
                replaced.insert(key.to_vec(), ReplacedRecord { seq, stored })
            }
            (Some(replaced), None) => replaced.remove(key),
        };
        if seq <= self.after {
            return Ok(());
        }
        let key = Key::from_encoded(self.key_type, key.to_vec());
        let record = |seq: Seq, stored: &[u8]| record::returned(key.clone(), seq, stored.into());
        let new = stored.map(|stored| record(seq, stored)).transpose()?;
        let old = old.map(|old| record(old.seq, &old.stored)).transpose()?;
        self.pending.push_back(Change {
            kind: match new {
                Some(_) => ChangeKind::Put,
                None => ChangeKind::Deleted,
            },
            key,
            position: Position {
                history: self.history,
                seq,
            },
            record: new,
            old,
        });
        Ok(())
    }
}

/// The stored record in an operation on the data tree; `None` if the operation deletes it.
fn stored_in(kind: Kind, value: &[u8]) -> Result<Option<&[u8]>> {
    match kind {
        Kind::Put => Ok(Some(value)),
        Kind::Timed => match Timed::parse(value) {
            Some(timed) => Ok(Some(timed.value)),
            None => Err(Error::damaged("the log: a malformed put with a time")),
        },
        Kind::Delete | Kind::Operand => Ok(None),
    }
}

/// A record that a commit replaced.
struct ReplacedRecord {
    /// The number of its write.
    seq: Seq,
    /// Its stored form.
    stored: Vec<u8>,
}

/// The records that a commit replaced, by key, from the tree of old records.
fn replaced_records(commit: &Commit, old: TreeId) -> Result<HashMap<Vec<u8>, ReplacedRecord>> {
    let mut replaced = HashMap::new();
    let mut is_malformed = false;
    commit.each(&mut |tree, _, _, key, value| {
        if tree != old {
            return;
        }
        match value.split_first_chunk() {
            Some((seq, stored)) => {
                let seq = Seq::from_le_bytes(*seq);
                let stored = stored.to_vec();
                replaced.insert(key.to_vec(), ReplacedRecord { seq, stored });
            }
            None => is_malformed = true,
        }
    });
    if is_malformed {
        return Err(Error::damaged("the log: a malformed old record"));
    }
    Ok(replaced)
}
