//! The basis of capabilities beside datasets: trees of their own in the store, atomic batches over
//! them, and the ordered log of all commits.
//!
//! Publish/subscribe, queues and the like store data other than records, need their own merge
//! operators, expiry and layouts, and must survive crashes as datasets do. They are extensions: an
//! [`Extension`] defines how its trees are compacted and read, is listed in
//! [`Options::extension`](crate::Options::extension) whenever the store is opened, and works on
//! an [`ExtensionStore`] from [`Database::extension`](crate::Database::extension). A program that
//! only stores records does not need this module.
//!
//! An extension uses the engine (`esker-lsm`) directly: its batches, snapshots, cursors and options
//! are documented there. The guarantees of datasets hold for extensions, too: a batch is applied
//! whole or not at all, and becomes visible once it is as durable as requested. An extension's
//! trees share the log, the sequence numbers, the memory budget and the compaction threads with the
//! datasets; backups and named snapshots contain them, and
//! [`Database::check`](crate::Database::check) checks them.
//!
//! On disk the tree `lists` of the extension `pubsub` is called `@pubsub/lists`. A program that
//! does not list the extension cannot open a store with such trees, since it could not compact
//! them.
//!
//! ```
//! use std::sync::Arc;
//! use esker::extension::{Batch, Cost, Extension, TreeOptions};
//! use esker::{Database, Durability, Options};
//!
//! struct Sessions;
//!
//! impl Extension for Sessions {
//!     fn name(&self) -> &'static str {
//!         "sessions"
//!     }
//!
//!     fn tree_options(&self, _tree: &str, _config: &[u8]) -> esker::Result<TreeOptions> {
//!         Ok(TreeOptions::default())
//!     }
//! }
//!
//! # fn main() -> esker::Result<()> {
//! # let dir = tempfile::tempdir().unwrap();
//! let options = Options::new().extension(Arc::new(Sessions));
//! let db = Database::create_or_open(dir.path(), options)?;
//! let store = db.extension("sessions")?;
//! let trees = store.create_trees(&[("open", b""), ("by-user", b"")])?;
//!
//! let mut batch = Batch::new();
//! batch.put(trees[0], b"7f3a", b"ann")?;
//! batch.put(trees[1], b"ann/7f3a", b"")?;
//! store.write(&mut batch, Durability::Sync)?;
//! let found = store.snapshot().get(trees[0], b"7f3a", &Cost::default())?;
//! assert_eq!(found.map(|found| found.value.to_vec()), Some(b"ann".to_vec()));
//! # Ok(())
//! # }
//! ```

/// Index types from other crates. Implement [`index::IndexType`], and open the store with the type
/// ([`Options::index_types`](crate::Options::index_types)). Then its name is valid wherever a kind
/// is expected ([`IndexKind::External`](crate::IndexKind::External)), and the type works like a
/// built-in one: with every maintenance strategy, with online builds, queries, repairs, checks and
/// backups. Opening a store that has an index of a type that is not given fails with
/// [`Error::Unsupported`].
///
/// The crate `kind-example` in the repository is an example.
pub mod index {
    pub use crate::index::cost::Workload;
    pub use crate::index::{
        Access, Attribute, AttributeProfile, BestCandidates, Build, Completion, DeferredChange,
        Entry, EntryWrites, Figures, IndexEntry, IndexType, IndexTypes, Lookup, Range, Recency,
        TreeEntry, TreeRange, VisitPosting, Writes,
    };
    pub use esker_lsm::RunSink;
    pub use esker_lsm::attributes::Summary;
}

use std::collections::BTreeSet;
use std::sync::Arc;

pub use esker_lsm::entry::{Kind, MAX_SEQ, MAX_TIME, Time, Timed};
pub use esker_lsm::table::TableMeta;
pub use esker_lsm::{
    Account, Batch, Commit, Component, Cost, Cursor, EntryCursor, Error as EngineError, Leveled,
    Loan, Observer, Slice, Snapshot, Tail, Ticket, TreeId, TreeOptions, attributes, merge,
};
use esker_lsm::{Durability, Listening, Position, Seq, Wake};

use crate::catalog::EXTENSION;
use crate::error::{Error, ErrorKind, Result};
use crate::store::{Store, append_completed};

/// A capability that has its own trees in a store.
pub trait Extension: Send + Sync {
    /// Its name: 1 to 32 lower-case letters, digits and `-`. Part of its trees' names on disk, so
    /// it never changes.
    fn name(&self) -> &'static str;

    /// The options of its tree `tree` with the configuration `config`. Called when the tree is
    /// created or configured, and whenever the store is opened; the result must depend on the two
    /// arguments only.
    ///
    /// # Errors
    /// An error rejects the tree. [`Error::Unsupported`], for a tree of a newer version of the
    /// extension, is returned as it is. Any other one is [`Error::BadInput`] where a tree is
    /// created or configured, and [`Error::Damaged`] where the store is opened.
    fn tree_options(&self, tree: &str, config: &[u8]) -> Result<TreeOptions>;
}

/// The extensions of an open store.
#[derive(Clone, Default)]
pub(crate) struct Extensions(Vec<Arc<dyn Extension>>);

impl Extensions {
    /// Checks the names of the extensions.
    ///
    /// # Errors
    /// [`Error::BadInput`] if a name has other characters or another length than
    /// [`Extension::name`] allows, or two extensions have the same.
    pub(crate) fn new(all: &[Arc<dyn Extension>]) -> Result<Extensions> {
        let mut names = BTreeSet::new();
        for extension in all {
            let name = extension.name();
            let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            if name.is_empty() || name.len() > 32 || !name.chars().all(fits) {
                return Err(Error::bad_input(format!(
                    "extension name `{name}`: 1 to 32 lower-case letters, digits and `-` are allowed"
                )));
            }
            if !names.insert(name) {
                return Err(Error::bad_input(format!(
                    "two extensions have the name `{name}`: names must differ"
                )));
            }
        }
        Ok(Extensions(all.to_vec()))
    }

    /// The extension of this name.
    fn named(&self, name: &str) -> Option<&Arc<dyn Extension>> {
        self.0.iter().find(|extension| extension.name() == name)
    }

    /// The options of an extension's tree; `None` for other trees.
    pub(crate) fn tree_options(
        &self,
        name: &str,
        config: &[u8],
    ) -> Option<esker_lsm::Result<TreeOptions>> {
        let (extension, tree) = name.strip_prefix(EXTENSION)?.split_once('/')?;
        let options = match self.named(extension) {
            Some(named) => named.tree_options(tree, config).map_err(|error| {
                let text = format!(
                    "extension `{extension}` rejects the configuration of its tree `{tree}`: {error}"
                );
                match error.kind() {
                    ErrorKind::Unsupported => EngineError::Unsupported(text),
                    // When the store is opened, damage of the manifest.
                    _ => EngineError::Invalid(text),
                }
            }),
            None => Err(EngineError::Unsupported(format!(
                "tree {name} belongs to the extension `{extension}`, which is not registered in this program: \
                 pass the extension when opening the store"
            ))),
        };
        Some(options)
    }
}

/// The part of a store that belongs to one extension
/// ([`Database::extension`](crate::Database::extension)). Cheap to clone.
#[derive(Clone)]
pub struct ExtensionStore {
    store: Arc<Store>,
    /// The prefix of its trees' names.
    prefix: String,
}

impl ExtensionStore {
    /// The part of the extension `name`.
    ///
    /// # Errors
    /// [`Error::BadInput`] if the store was opened without the extension.
    pub(crate) fn new(store: Arc<Store>, extensions: &Extensions, name: &str) -> Result<Self> {
        match extensions.named(name) {
            Some(_) => Ok(ExtensionStore {
                store,
                prefix: format!("{EXTENSION}{name}/"),
            }),
            None => Err(Error::bad_input(format!(
                "the store was opened without the extension `{name}`"
            ))),
        }
    }

    /// Its trees, by name.
    pub fn trees(&self) -> Vec<(String, TreeId)> {
        let snapshot = self.store.group.snapshot();
        let all = snapshot.version().trees.values();
        let own = all.filter_map(|tree| {
            let name = tree.name.strip_prefix(&self.prefix)?;
            Some((name.to_owned(), tree.id))
        });
        own.collect()
    }

    /// Its tree of this name.
    pub fn tree(&self, name: &str) -> Option<TreeId> {
        self.store.group.tree(&format!("{}{name}", self.prefix))
    }

    /// Creates trees, all or none, from pairs of a name and a configuration for
    /// [`Extension::tree_options`]. Durable when it returns.
    ///
    /// # Errors
    /// [`Error::Exists`] if a tree of that name exists; [`Error::BadInput`] if the extension
    /// rejects a configuration; also any write error.
    pub fn create_trees(&self, trees: &[(&str, &[u8])]) -> Result<Vec<TreeId>> {
        if let Some((name, _)) = trees.iter().find(|(name, _)| self.tree(name).is_some()) {
            return Err(Error::exists(format!(
                "the extension already has a tree `{name}`"
            )));
        }
        let named = trees
            .iter()
            .map(|(name, config)| (format!("{}{name}", self.prefix), config.to_vec()));
        Ok(self.store.group.create_trees(&named.collect::<Vec<_>>())?)
    }

    /// Gives one of its trees another configuration. Durable when it returns.
    ///
    /// # Errors
    /// As [`ExtensionStore::create_trees`]; also if the tree is not one of the extension's.
    pub fn configure_tree(&self, tree: TreeId, config: &[u8]) -> Result<()> {
        self.check_own(&[tree])?;
        Ok(self.store.group.configure_tree(tree, config.to_vec())?)
    }

    /// Drops trees with their contents, all or none. Durable when it returns.
    ///
    /// # Errors
    /// If a tree is not one of the extension's; also any write error.
    pub fn drop_trees(&self, trees: &[TreeId]) -> Result<()> {
        self.check_own(trees)?;
        Ok(self.store.group.drop_trees(trees)?)
    }

    /// Writes a batch, whole or not at all, and returns its last sequence number. Visible when it
    /// returns.
    ///
    /// # Errors
    /// [`Error::BadInput`] if the batch writes to a tree that is not one of the extension's; also
    /// any write error.
    pub fn write(&self, batch: &mut Batch, durability: Durability) -> Result<Seq> {
        self.check_own(batch.trees())?;
        Ok(self.store.group.write(batch, durability)?)
    }

    /// Writes a batch that depends on the current data: `complete` receives the batch, its first
    /// sequence number and a snapshot of everything before it, and may add writes to its own trees.
    /// Returns the batch's last sequence number, and what `complete` returned. Other writers wait
    /// for it, so `complete` must be quick and read little beyond memtables (the newest writes, in
    /// memory).
    ///
    /// # Errors
    /// As [`ExtensionStore::write`]; also any error of `complete`, and then nothing is written.
    pub fn write_with<T>(
        &self,
        batch: &mut Batch,
        durability: Durability,
        complete: impl FnMut(&mut Batch, Seq, &Snapshot) -> esker_lsm::Result<T>,
    ) -> Result<(Seq, T)> {
        let (ticket, completed) = self.append_with(batch, durability, complete)?;
        self.acknowledge(ticket)?;
        Ok((ticket.last(), completed))
    }

    /// The first half of [`ExtensionStore::write_with`], to be followed by
    /// [`ExtensionStore::acknowledge`] (see [`ExtensionStore::append`]).
    ///
    /// # Errors
    /// As [`ExtensionStore::write_with`].
    pub fn append_with<T>(
        &self,
        batch: &mut Batch,
        durability: Durability,
        mut complete: impl FnMut(&mut Batch, Seq, &Snapshot) -> esker_lsm::Result<T>,
    ) -> Result<(Ticket, T)> {
        self.check_own(batch.trees())?;
        let complete_and_check = |batch: &mut Batch, first: Seq, before: &Snapshot| {
            let completed = complete(batch, first, before)?;
            self.check_own_in(before, batch.trees())?;
            Ok(completed)
        };
        append_completed(&self.store.group, batch, durability, complete_and_check)?
    }

    /// The first half of a [`write`](ExtensionStore::write): the batch gets its position in the
    /// log, but is neither durable nor visible until [`ExtensionStore::acknowledge`]. Every ticket
    /// must be acknowledged.
    ///
    /// # Errors
    /// As [`ExtensionStore::write`].
    pub fn append(&self, batch: &mut Batch, durability: Durability) -> Result<Ticket> {
        self.check_own(batch.trees())?;
        Ok(self.store.group.append(batch, durability)?)
    }

    /// Waits until an appended batch is as durable as requested.
    ///
    /// # Errors
    /// Any sync error.
    pub fn acknowledge(&self, ticket: Ticket) -> Result<()> {
        Ok(self.store.group.acknowledge(ticket)?)
    }

    /// A snapshot of everything that is visible now, in all trees.
    pub fn snapshot(&self) -> Snapshot {
        self.store.group.snapshot()
    }

    /// A snapshot of everything appended so far, in all trees, including batches that are not
    /// acknowledged yet: for writes that depend on them. Such a write is acknowledged after those
    /// batches, or fails with them. A caller that writes nothing must wait for them before it
    /// reports what it saw.
    pub fn latest(&self) -> Snapshot {
        self.store.group.latest()
    }

    /// The time of the store's clock in milliseconds since 1970. It never goes back behind a time
    /// at which anything has expired, even if the clock is set back.
    pub fn now(&self) -> Time {
        self.store.group.now()
    }

    /// The time of the clock, if the clock is so far ahead that the store drops nothing by it until
    /// the program confirms it ([`Database::unconfirmed_time`](crate::Database::unconfirmed_time)).
    pub fn unconfirmed_time(&self) -> Option<Time> {
        self.store.group.unconfirmed_time()
    }

    /// The position in the log after everything that is visible now.
    pub fn position(&self) -> Position {
        self.store.group.position()
    }

    /// The commits after `position` in order, including those of datasets and other extensions:
    /// first those in the log, then new ones.
    ///
    /// # Errors
    /// [`Error::PositionExpired`], [`Error::OtherHistory`].
    pub fn tail(&self, position: Position) -> Result<Tail> {
        Ok(self.store.group.tail(position)?)
    }

    /// Calls `observe` with every commit from now on, in order, once it is visible, on a separate
    /// thread, until the observer is dropped. An observer that is more than 64 MiB behind gets
    /// [`EngineError::PositionExpired`], and continues with the oldest commit in the log.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn observe(
        &self,
        observe: impl FnMut(std::result::Result<&Commit, &EngineError>) + Send + 'static,
    ) -> Result<Observer> {
        Ok(self.store.group.observe(observe)?)
    }

    /// Calls `wake` when the store is closed, and when it refuses writes after a failure, until the
    /// returned value is dropped.
    pub fn listen_for_end(&self, wake: Arc<Wake>) -> Listening {
        self.store.group.listen_for_end(wake)
    }

    /// True when the store was closed or refuses writes.
    pub fn is_ended(&self) -> bool {
        self.store.group.is_ended()
    }

    /// Borrows between `least` and `want` bytes of the store's memory budget, for work that needs
    /// much memory. Waits a second at most.
    pub fn borrow(&self, account: Account, least: usize, want: usize) -> Loan {
        self.store.group.budget().borrow(account, least, want)
    }

    /// The default durability of writes.
    pub fn durability(&self) -> Durability {
        self.store.durability
    }

    /// True if both belong to the same open store.
    pub fn is_of_same_store(&self, other: &ExtensionStore) -> bool {
        Arc::ptr_eq(&self.store, &other.store)
    }

    /// True if the store was opened for reading
    /// ([`Database::open_reader`](crate::Database::open_reader)).
    pub fn is_reader(&self) -> bool {
        self.store.group.is_reader()
    }

    /// Returns [`Error::BadInput`] if a tree is not one of the extension's.
    fn check_own(&self, trees: &[TreeId]) -> Result<()> {
        match trees {
            [] => Ok(()),
            trees => self.check_own_in(&self.store.group.snapshot(), trees),
        }
    }

    /// As [`ExtensionStore::check_own`], by the trees of `snapshot`.
    fn check_own_in(&self, snapshot: &Snapshot, trees: &[TreeId]) -> Result<()> {
        for id in trees {
            let tree = snapshot.version().trees.get(id);
            if !tree.is_some_and(|tree| tree.name.starts_with(&self.prefix)) {
                return Err(Error::bad_input(format!(
                    "tree {id} does not belong to the extension `{}`",
                    self.prefix.trim_matches([EXTENSION, '/'])
                )));
            }
        }
        Ok(())
    }
}
