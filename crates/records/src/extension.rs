//! What a capability beside datasets is built on: trees of its own in the store, atomic batches over them, and the log of everything in order.
//!
//! Publish/subscribe, queues and the like keep things that are no records, want their own merge operators, expiry and layouts, and must be as safe
//! through crashes as the datasets beside them. They are extensions: an [`Extension`] says how its trees are compacted and read, is named in
//! [`Options::extensions`](crate::Options::extensions) whenever the store is opened, and works on an [`ExtensionStore`], which
//! [`Database::extension`](crate::Database::extension) gives. A program that only keeps records has no use for any of this.
//!
//! What an extension gets is the engine (`esker-lsm`): its batches, snapshots, cursors and options are used as they are, and documented there.
//! What holds for datasets holds for it: a batch is applied whole or not at all, and is visible when it is as durable as it asked to be; its trees
//! share the log, the sequence numbers, the memory budget and the compaction threads with the datasets, are in backups and named snapshots, and are
//! checked by [`Database::check`](crate::Database::check).
//!
//! On disk a tree of the extension `pubsub` called `lists` is `@pubsub/lists`. A store with trees of an extension cannot be opened by a program
//! that does not name it: nothing would know how to compact them.
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
//!     fn tree_options(&self, _tree: &str, _config: &[u8]) -> Option<TreeOptions> {
//!         Some(TreeOptions::default())
//!     }
//! }
//!
//! # fn main() -> esker::Result<()> {
//! # let dir = tempfile::tempdir().unwrap();
//! let options = Options { extensions: vec![Arc::new(Sessions)], ..Options::default() };
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

/// What a kind of index from another crate is built on: [`index::Index`] says everything about the kind, and [`index::register`] makes it known
/// under a name, for the rest of the process. From then on the name is one of a kind wherever one is said ([`IndexKind::External`](crate::IndexKind::External)), and
/// the kind is treated like those that are built in: by every strategy of maintenance, builds while the dataset is in use, queries, repairs, checks
/// and backups. A store that has an index of a kind that is not registered is not opened ([`Error::Unsupported`]).
///
/// The crate `kind-example` in the repository is one.
pub mod index {
    pub use crate::catalog::Attribute;
    pub use crate::index::cost::Workload;
    pub use crate::index::{
        Access, AttributeProfile, Best, Build, Entry, Figures, Index, IndexEntry, Lookup, Order,
        Range, Tells, TreeEntry, TreeRange, VisitPosting, Writes, register, registered,
    };
    pub use lsm::RunSink;
    pub use lsm::attributes::Summary;
}

use std::collections::BTreeSet;
use std::sync::Arc;

pub use lsm::entry::{Kind, MAX_SEQ, MAX_TIME, Time, Timed};
pub use lsm::table::TableMeta;
pub use lsm::{
    Account, Batch, Commit, Complete, Component, Cost, Cursor, Error as EngineError, Leveled, Loan,
    Observer, Slice, Snapshot, Tail, Ticket, TreeId, TreeOptions, attributes, merge,
};
use lsm::{Durability, Position, Seq};

use crate::catalog::EXTENSION;
use crate::error::{Error, Result};
use crate::store::Store;

/// A capability with trees of its own in a store.
pub trait Extension: Send + Sync {
    /// Its name: 1 to 32 lower-case letters, digits and `-`. Part of its trees' names on disk, so it never changes.
    fn name(&self) -> &'static str;

    /// The options of its tree `tree`, created with the configuration `config`: asked when the tree is made or configured, and whenever
    /// the store is opened. Depends on nothing but the two. `None` refuses them: the store is not opened, or the tree not made.
    fn tree_options(&self, tree: &str, config: &[u8]) -> Option<TreeOptions>;
}

/// The extensions of an open store.
#[derive(Clone, Default)]
pub(crate) struct Extensions(Vec<Arc<dyn Extension>>);

impl Extensions {
    /// Checks the names.
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
                    "two extensions are called `{name}`"
                )));
            }
        }
        Ok(Extensions(all.to_vec()))
    }

    fn named(&self, name: &str) -> Option<&Arc<dyn Extension>> {
        self.0.iter().find(|extension| extension.name() == name)
    }

    /// The options of the tree; `None` where it is no extension's.
    pub(crate) fn tree_options(
        &self,
        name: &str,
        config: &[u8],
    ) -> Option<lsm::Result<TreeOptions>> {
        let (extension, tree) = name.strip_prefix(EXTENSION)?.split_once('/')?;
        let options = match self.named(extension) {
            Some(named) => named.tree_options(tree, config).ok_or_else(|| {
                EngineError::Invalid(format!(
                    "extension `{extension}` does not know the configuration of its tree `{tree}`"
                ))
            }),
            None => Err(EngineError::Unsupported(format!(
                "tree {name} belongs to the extension `{extension}`, which this program does not bring along: \
                 it must be named when the store is opened"
            ))),
        };
        Some(options)
    }
}

/// The part of a store that one extension has ([`Database::extension`](crate::Database::extension)). Cheap to clone.
#[derive(Clone)]
pub struct ExtensionStore {
    store: Arc<Store>,
    /// What its trees' names begin with.
    prefix: String,
}

impl ExtensionStore {
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

    /// Makes trees, all or none: names, and what [`Extension::tree_options`] gets. Durable when it returns.
    ///
    /// # Errors
    /// [`Error::Exists`] when one is there; [`Error::BadInput`] where its options are refused; what a write fails with.
    pub fn create_trees(&self, trees: &[(&str, &[u8])]) -> Result<Vec<TreeId>> {
        if let Some((name, _)) = trees.iter().find(|(name, _)| self.tree(name).is_some()) {
            return Err(Error::exists(format!("tree `{name}` exists")));
        }
        let named = trees
            .iter()
            .map(|(name, config)| (format!("{}{name}", self.prefix), config.to_vec()));
        Ok(self.store.group.create_trees(&named.collect::<Vec<_>>())?)
    }

    /// Gives one of its trees another configuration. Durable when it returns.
    ///
    /// # Errors
    /// As [`ExtensionStore::create_trees`]; a tree that is not its own.
    pub fn configure_tree(&self, tree: TreeId, config: &[u8]) -> Result<()> {
        self.check_own(&[tree])?;
        Ok(self.store.group.configure_tree(tree, config.to_vec())?)
    }

    /// Drops trees with all that is in them, all or none. Durable when it returns.
    ///
    /// # Errors
    /// A tree that is not its own; what a write fails with.
    pub fn drop_trees(&self, trees: &[TreeId]) -> Result<()> {
        self.check_own(trees)?;
        Ok(self.store.group.drop_trees(trees)?)
    }

    /// Writes a batch, whole or not at all, and returns the last of its sequence numbers. Visible when it returns.
    ///
    /// # Errors
    /// [`Error::BadInput`] for a batch that writes to a tree that is not its own; what a write fails with.
    pub fn write(&self, batch: &mut Batch, durability: Durability) -> Result<Seq> {
        self.check_own(batch.trees())?;
        Ok(self.store.group.write(batch, durability)?)
    }

    /// Writes a batch that depends on what is there: `complete` gets the batch, its first sequence number and a snapshot of everything before it,
    /// and may add to it, for its own trees. Nobody writes in between, so it must be quick and ask little more than memtables; other writers wait.
    ///
    /// # Errors
    /// As [`ExtensionStore::write`], and what `complete` fails with: then nothing is written.
    pub fn write_with(
        &self,
        batch: &mut Batch,
        durability: Durability,
        complete: &mut Complete<'_>,
    ) -> Result<Seq> {
        let ticket = self.append_with(batch, durability, complete)?;
        self.acknowledge(ticket)?;
        Ok(ticket.last())
    }

    /// The first half of [`ExtensionStore::write_with`], as [`ExtensionStore::append`] is of a write.
    ///
    /// # Errors
    /// As [`ExtensionStore::write_with`].
    pub fn append_with(
        &self,
        batch: &mut Batch,
        durability: Durability,
        complete: &mut Complete<'_>,
    ) -> Result<Ticket> {
        self.check_own(batch.trees())?;
        let mut complete = |batch: &mut Batch, first: Seq, before: &Snapshot| {
            complete(batch, first, before)?;
            let own = self.check_own_in(before, batch.trees());
            own.map_err(|error| lsm::Error::Invalid(error.to_string()))
        };
        let group = &self.store.group;
        Ok(group.append_with(batch, durability, &mut complete)?)
    }

    /// The first half of a [`write`](ExtensionStore::write): the batch has its place in the log, and is neither acknowledged nor visible until
    /// [`ExtensionStore::acknowledge`]. Every ticket must be acknowledged.
    ///
    /// # Errors
    /// As [`ExtensionStore::write`].
    pub fn append(&self, batch: &mut Batch, durability: Durability) -> Result<Ticket> {
        self.check_own(batch.trees())?;
        Ok(self.store.group.append(batch, durability)?)
    }

    /// Waits until an appended batch is as durable as it asked to be.
    ///
    /// # Errors
    /// What a sync fails with.
    pub fn acknowledge(&self, ticket: Ticket) -> Result<()> {
        Ok(self.store.group.acknowledge(ticket)?)
    }

    /// Everything that is visible now, in all trees.
    pub fn snapshot(&self) -> Snapshot {
        self.store.group.snapshot()
    }

    /// Everything that was appended, in all trees, what is not acknowledged among it: for whoever writes on the ground of it. What he
    /// writes is acknowledged after it, or fails with it; whoever writes nothing waits for it before he says what he saw.
    pub fn latest(&self) -> Snapshot {
        self.store.group.latest()
    }

    /// The time of the store's clock in milliseconds since 1970; never before a time by which anything has expired, even when the clock is set back.
    pub fn now(&self) -> Time {
        self.store.group.now()
    }

    /// The time of the clock, where it is so far ahead that nothing is dropped by it until it is confirmed
    /// ([`Database::unconfirmed_time`](crate::Database::unconfirmed_time)).
    pub fn unconfirmed_time(&self) -> Option<Time> {
        self.store.group.unconfirmed_time()
    }

    /// The place in the log behind everything that is visible now.
    pub fn position(&self) -> Position {
        self.store.group.position()
    }

    /// The commits behind `position` in order, those of datasets and other extensions among them: what the log still has, then what is to come.
    ///
    /// # Errors
    /// [`Error::PositionExpired`], [`Error::OtherHistory`].
    pub fn tail(&self, position: Position) -> Result<Tail> {
        Ok(self.store.group.tail(position)?)
    }

    /// Calls `observe` with every commit from now on, in order, after it is visible, on a thread of its own, until the observer is dropped.
    /// An observer that is more than 64 MiB behind gets [`EngineError::PositionExpired`], and continues with the oldest commit that is there.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn observe(
        &self,
        observe: impl FnMut(std::result::Result<&Commit, &EngineError>) + Send + 'static,
    ) -> Result<Observer> {
        Ok(self.store.group.observe(observe)?)
    }

    /// Borrows memory of the store's budget for something that takes much of it: between `least` and `want` bytes. Waits, a second at most.
    pub fn borrow(&self, account: Account, least: usize, want: usize) -> Loan {
        self.store.group.budget().borrow(account, least, want)
    }

    /// What writes use that do not say.
    pub fn durability(&self) -> Durability {
        self.store.durability
    }

    /// True when both are parts of one open store.
    pub fn is_of_same_store(&self, other: &ExtensionStore) -> bool {
        Arc::ptr_eq(&self.store, &other.store)
    }

    /// True when it was opened to read it beside the process that writes it.
    pub fn is_reader(&self) -> bool {
        self.store.group.is_reader()
    }

    fn check_own(&self, trees: &[TreeId]) -> Result<()> {
        match trees {
            [] => Ok(()),
            trees => self.check_own_in(&self.store.group.snapshot(), trees),
        }
    }

    fn check_own_in(&self, snapshot: &Snapshot, trees: &[TreeId]) -> Result<()> {
        for id in trees {
            let tree = snapshot.version().trees.get(id);
            if !tree.is_some_and(|tree| tree.name.starts_with(&self.prefix)) {
                return Err(Error::bad_input(format!(
                    "tree {id} is none of `{}`",
                    self.prefix.trim_matches([EXTENSION, '/'])
                )));
            }
        }
        Ok(())
    }
}
