//! The broker: opening, and the state that its handles share.
//!
//! A store has one broker in a process, since the broker keeps the shapes, the latest time and the
//! queues of consumers in memory.
//!
//! The broker decides by exact times, in its own unit. The store drops elements by its own clock,
//! and only when they have ended for certain ([`Inner::drop_time`]).

use std::collections::HashSet;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use esker::changes::Listening;
use esker::extension::{
    Batch, Cost, EngineError, ExtensionStore, Kind, MAX_TIME, Snapshot, TreeId,
};
use esker::{Database, Durability, Error, Result, Seq};

use parking_lot::{Condvar, Mutex};

use crate::deliver::Deliveries;
use crate::forms::cell::Cell;
use crate::forms::config::{Architecture, Config, Granularity};
use crate::forms::element::{NEVER, Tick, Time, damaged};
use crate::forms::message::{End, Notification, Start};
use crate::forms::place::Extent;
use crate::lists::directory::{read_latest, read_shapes, read_subscription, shape_key};
use crate::lists::shape::{KnownShapes, Shape, ShapeUntil, Shapes};
use crate::lists::times::{TimeFilter, tick};
use crate::lists::trees::{DIRECTORY, LISTS, NAME, PUBLICATIONS, SUBSCRIPTIONS};
use crate::matching::MatchCache;

/// The maximum number of cells that hold an area with variable granularity.
const MAX_CELLS_VARIABLE: usize = 6;
/// The maximum number of cells that hold an area with fixed granularity.
const MAX_CELLS_FIXED: usize = 64 << 10;

/// Publish/subscribe in a store. Cheap to clone; all handles of a store share one broker.
///
/// See the [crate documentation](crate) for an overview and an example.
#[derive(Clone)]
pub struct Broker {
    pub(crate) inner: Arc<Inner>,
}

/// Returns the cells that hold an element at a place. The second argument is the maximum level of a
/// cell.
type CellsOf = fn(&Extent, u8) -> Vec<Cell>;

impl Granularity {
    fn cells(self) -> CellsOf {
        match self {
            Granularity::Variable => |extent, depth| extent.cells(depth, MAX_CELLS_VARIABLE),
            Granularity::Fixed => |extent, depth| extent.leaves(depth, MAX_CELLS_FIXED),
        }
    }
}

/// Holds the broker of a store while a handle of the broker exists or a thread opens it.
struct BrokerSlot {
    store: ExtensionStore,
    /// The open broker, since it keeps state of the lists in memory. Locked while one is created or
    /// opened.
    broker: Mutex<Weak<Inner>>,
}

/// The slots of all stores whose broker is open or being opened. No I/O is done under its lock, so
/// stores do not wait for each other.
static SLOTS: Mutex<Vec<Weak<BrokerSlot>>> = Mutex::new(Vec::new());

impl BrokerSlot {
    /// The slot of a store.
    fn of(store: ExtensionStore) -> Arc<BrokerSlot> {
        // Declared before the lock, so that it is dropped after it: the last handle of a store
        // closes it.
        let mut others: Vec<Arc<BrokerSlot>> = Vec::new();
        let mut slots = SLOTS.lock();
        slots.retain(|slot| slot.strong_count() > 0);
        others.extend(slots.iter().filter_map(Weak::upgrade));
        if let Some(same) = (others.iter()).find(|slot| slot.store.is_of_same_store(&store)) {
            return same.clone();
        }
        let new = Arc::new(BrokerSlot {
            store,
            broker: Mutex::default(),
        });
        slots.push(Arc::downgrade(&new));
        new
    }

    /// The broker of the store. If none is open, calls `prepare`, and opens it.
    fn open(
        self: Arc<BrokerSlot>,
        prepare: impl FnOnce(&ExtensionStore) -> Result<()>,
    ) -> Result<Broker> {
        let mut broker = self.broker.lock();
        if let Some(inner) = broker.upgrade() {
            return Ok(Broker { inner });
        }
        prepare(&self.store)?;
        let inner = Arc::new(Inner::load(self.clone())?);
        *broker = Arc::downgrade(&inner);
        Ok(Broker { inner })
    }
}

pub(crate) struct Inner {
    pub(crate) store: ExtensionStore,
    pub(crate) config: Config,
    pub(crate) trees: Trees,
    pub(crate) durability: Durability,
    pub(crate) shapes: Shapes,
    pub(crate) match_cache: MatchCache,
    /// No publication has a later time.
    pub(crate) latest: AtomicI64,
    /// The latest time in the directory, which is rounded up. No less than `latest` once its
    /// publication is stored.
    pub(crate) stored_latest: AtomicI64,
    pub(crate) change_turns: ChangeTurns,
    pub(crate) deliveries: Arc<Deliveries>,
    reads: ReadCounters,
    /// The time filter that searches begin with ([`Inner::time_filter`]), by the architecture.
    time_filter: TimeFilter,
    /// Computes [`Inner::cells`], by the granularity.
    cells_of: CellsOf,
    /// Wakes consumers when the store ends.
    _ends: Listening,
    _slot: Arc<BrokerSlot>,
}

/// Orders the changes of each subscription: one at a time until it is in the log. They can share
/// syncs.
#[derive(Default)]
pub(crate) struct ChangeTurns {
    changing: Mutex<HashSet<Seq>>,
    ended: Condvar,
}

/// The right to change a subscription. Taking it also waits until no other change is under way.
pub(crate) struct ChangeTurn<'c> {
    turns: &'c ChangeTurns,
    subscription: Seq,
}

impl ChangeTurns {
    /// Waits until no change of this subscription is under way, and holds off others until the
    /// turn is dropped.
    pub(crate) fn take(&self, subscription: Seq) -> ChangeTurn<'_> {
        let mut changing = self.changing.lock();
        while !changing.insert(subscription) {
            self.ended.wait(&mut changing);
        }
        ChangeTurn {
            turns: self,
            subscription,
        }
    }
}

impl Drop for ChangeTurn<'_> {
    fn drop(&mut self) {
        let was_taken = self.turns.changing.lock().remove(&self.subscription);
        debug_assert!(was_taken, "a subscription has one turn at a time");
        self.turns.ended.notify_all();
    }
}

/// A snapshot, and the shapes known with it: the broker may forget shapes while an older snapshot
/// is read.
#[derive(Clone)]
pub(crate) struct View {
    pub(crate) snapshot: Snapshot,
    pub(crate) known: Arc<KnownShapes>,
}

/// The trees of a broker. One tree for both sorts of lists has both names.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Trees {
    pub(crate) publications: TreeId,
    pub(crate) subscriptions: TreeId,
    pub(crate) directory: TreeId,
}

#[derive(Default)]
struct ReadCounters {
    walks: AtomicU64,
    data_blocks: AtomicU64,
    blocks_read: AtomicU64,
    tables_skipped: AtomicU64,
}

/// The reads of a broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ReadStats {
    /// Passes over the stored lists: one per publication or subscription, or two with two trees.
    pub walks: u64,
    /// Data blocks that these passes needed, cached or not: the disk accesses of the paper's Table
    /// 3.
    pub data_blocks: u64,
    /// Blocks read from the file system.
    pub blocks_read: u64,
    /// Tables skipped because their metadata shows that they cover other times.
    pub tables_skipped: u64,
}

impl Broker {
    /// Opens the store's broker, or creates it with `config` if the store has none. The store must
    /// have been opened with the extension [`PubSub`](crate::PubSub).
    ///
    /// # Errors
    /// [`Error::BadInput`] if the store was opened without the extension, or the configuration is
    /// invalid; also any read or write error.
    pub fn create_or_open(db: &Database, config: Config) -> Result<Broker> {
        BrokerSlot::of(db.extension(NAME)?).open(|store| {
            if store.tree(DIRECTORY).is_some() {
                return Ok(());
            }
            config.check().map_err(Error::BadInput)?;
            let encoded = config.encode();
            let lists: &[&str] = match config.architecture {
                Architecture::DualDb => &[LISTS],
                Architecture::TwoDb => &[PUBLICATIONS, SUBSCRIPTIONS],
                Architecture::RepQueries => &[PUBLICATIONS],
            };
            let mut trees: Vec<(&str, &[u8])> = vec![(DIRECTORY, &encoded)];
            trees.extend(lists.iter().map(|name| (*name, &[][..])));
            store.create_trees(&trees)?;
            Ok(())
        })
    }

    /// True if the store has a broker: [`Broker::create_or_open`] was called.
    ///
    /// # Errors
    /// [`Error::BadInput`] if the store was opened without the extension.
    pub fn is_there(db: &Database) -> Result<bool> {
        Ok(db.extension(NAME)?.tree(DIRECTORY).is_some())
    }

    /// Opens the store's broker.
    ///
    /// # Errors
    /// [`Error::BadInput`] if the store was opened without the extension or has no broker; also any
    /// read error.
    pub fn open(db: &Database) -> Result<Broker> {
        BrokerSlot::of(db.extension(NAME)?).open(|store| match store.tree(DIRECTORY) {
            Some(_) => Ok(()),
            None => Err(Error::BadInput(
                "nothing was ever published or subscribed to in this store".to_owned(),
            )),
        })
    }
}

impl Inner {
    /// Loads the broker of a store from its directory.
    ///
    /// # Errors
    /// Any read error; [`Error::Damaged`] if a tree is missing or the configuration is malformed;
    /// [`Error::Unsupported`] if the configuration is of a newer version.
    fn load(slot: Arc<BrokerSlot>) -> Result<Inner> {
        let store = slot.store.clone();
        let tree = |name: &str| {
            store
                .tree(name)
                .ok_or_else(|| damaged(&format!("its tree `{name}` is missing")))
        };
        let directory = tree(DIRECTORY)?;
        let snapshot = store.snapshot();
        let config = snapshot.version().trees.get(&directory);
        let config = config.ok_or_else(|| damaged("the snapshot lacks its directory"))?;
        let config = Config::decode(&config.config)?;
        let trees = Trees {
            publications: tree(match config.architecture {
                Architecture::DualDb => LISTS,
                Architecture::TwoDb | Architecture::RepQueries => PUBLICATIONS,
            })?,
            subscriptions: tree(match config.architecture {
                Architecture::DualDb => LISTS,
                Architecture::TwoDb => SUBSCRIPTIONS,
                // No subscription is stored.
                Architecture::RepQueries => PUBLICATIONS,
            })?,
            directory,
        };
        // Without a publication, everything is later.
        let latest = read_latest(&snapshot, directory)?.unwrap_or(Time::MIN);
        let deliveries = Arc::new(Deliveries::default());
        let woken = deliveries.clone();
        let ends = store.listen_for_end(Arc::new(move || woken.wake_all()));
        Ok(Inner {
            shapes: Shapes::load(read_shapes(&snapshot, directory)?),
            match_cache: MatchCache::new(config.depth),
            durability: store.durability(),
            latest: AtomicI64::new(latest),
            stored_latest: AtomicI64::new(latest),
            change_turns: ChangeTurns::default(),
            deliveries,
            reads: ReadCounters::default(),
            time_filter: match config.architecture {
                // Repeated queries skip no tables, as in the paper.
                Architecture::RepQueries => TimeFilter::Everything,
                Architecture::DualDb | Architecture::TwoDb => {
                    TimeFilter::nothing(config.resolution)
                }
            },
            cells_of: config.granularity.cells(),
            _ends: ends,
            _slot: slot,
            store,
            config,
            trees,
        })
    }

    /// In a process beside the writer, loads the shapes and the latest time that the writer has
    /// stored.
    pub(crate) fn catch_up(&self, snapshot: &Snapshot) -> Result<()> {
        if self.store.is_reader() {
            let may_drop = self.store.unconfirmed_time().is_none();
            let stored = read_shapes(snapshot, self.trees.directory)?;
            self.shapes.merge(stored, self.now(), may_drop);
            if let Some(latest) = read_latest(snapshot, self.trees.directory)? {
                self.latest.fetch_max(latest, Ordering::AcqRel);
            }
        }
        Ok(())
    }
}

impl Broker {
    /// The configuration that it was created with.
    pub fn config(&self) -> &Config {
        &self.inner.config
    }

    /// The time of its clock, which never goes back.
    pub fn now(&self) -> Time {
        self.inner.now()
    }

    /// Its reads since it was opened.
    pub fn read_stats(&self) -> ReadStats {
        let reads = &self.inner.reads;
        ReadStats {
            walks: reads.walks.load(Ordering::Relaxed),
            data_blocks: reads.data_blocks.load(Ordering::Relaxed),
            blocks_read: reads.blocks_read.load(Ordering::Relaxed),
            tables_skipped: reads.tables_skipped.load(Ordering::Relaxed),
        }
    }
}

impl Inner {
    /// The time of the store's clock, in the broker's unit.
    pub(crate) fn now(&self) -> Time {
        // A clock that is set too far ahead for the unit shows the last of all times.
        let ticks = i64::try_from(self.store.now()).unwrap_or(i64::MAX);
        ticks.saturating_mul(i64::from(self.config.resolution))
    }

    /// The time of the store's clock from which an element that ends at `time` can be dropped: it
    /// has ended for certain. The broker itself decides by exact times.
    pub(crate) fn drop_time(&self, time: Time) -> Tick {
        if time == NEVER {
            return MAX_TIME;
        }
        tick(time, self.config.resolution)
            .saturating_add(2)
            .min(MAX_TIME)
    }

    /// Records that an element was skipped because it ended at `time`, before any result is
    /// returned. So the element does not come back if the clock is set back.
    #[inline]
    pub(crate) fn note_ended(&self, snapshot: &Snapshot, time: Time) {
        snapshot.has_expired(tick(time, self.config.resolution));
    }

    /// True if a publication has expired since it was found; the expiry is recorded. False while
    /// the clock may be wrong, since a consumer does not meet a skipped publication again. (Reads
    /// of the lists skip it all the same.)
    pub(crate) fn has_expired(&self, publication: &Notification) -> bool {
        let Some(expires) = publication.expires.filter(|expires| *expires <= self.now()) else {
            return false;
        };
        if self.store.unconfirmed_time().is_some() {
            return false;
        }
        self.note_ended(&self.store.snapshot(), expires);
        true
    }

    /// The time filter that searches begin with: it admits no elements yet, or, for repeated
    /// queries, all.
    pub(crate) fn time_filter(&self) -> TimeFilter {
        self.time_filter
    }

    /// A duration in the broker's unit; [`NEVER`] if it is too long.
    pub(crate) fn to_units(&self, long: Duration) -> Time {
        let units = long.as_nanos() * u128::from(self.config.resolution) / 1_000_000;
        Time::try_from(units).unwrap_or(NEVER)
    }

    /// How long until a time of the broker's clock; zero if it has passed.
    pub(crate) fn duration_until(&self, time: Time) -> Duration {
        let units = i128::from(time) - i128::from(self.now());
        let nanos = units.max(0) * 1_000_000 / i128::from(self.config.resolution);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// The end of a publication or subscription that is made at `now`.
    pub(crate) fn resolve_end(&self, end: End, now: Time) -> Time {
        match end {
            End::Never => NEVER,
            End::At(time) => time,
            End::After(long) => now.saturating_add(self.to_units(long)),
        }
    }

    /// The start of a subscription that is made at `now`.
    pub(crate) fn resolve_start(&self, start: Start, now: Time) -> Time {
        match start {
            Start::Now => now,
            Start::At(time) => time,
            Start::Before(long) => now.saturating_sub(self.to_units(long)),
        }
    }

    /// The time until which a subscription is needed: its end, or later if it is remembered for its
    /// user.
    pub(crate) fn remembered_until(&self, to: Time, user: &[u8]) -> Time {
        if user.is_empty() {
            return to;
        }
        match self.config.remember {
            Some(remember) => to.saturating_add(self.to_units(remember)),
            None => NEVER,
        }
    }

    /// The cells that hold an element at this place.
    pub(crate) fn cells(&self, extent: &Extent) -> Vec<Cell> {
        let cells = (self.cells_of)(extent, self.config.depth);
        debug_assert!(!cells.is_empty(), "each place lies in a cell");
        cells
    }

    /// True if one tree holds the lists of publications and of subscriptions, so that one walk can
    /// read both.
    pub(crate) fn is_one_tree(&self) -> bool {
        self.trees.publications == self.trees.subscriptions
    }

    /// Adds the cost of a walk to the statistics.
    pub(crate) fn add_reads(&self, cost: &Cost) {
        let reads = &self.reads;
        reads.walks.fetch_add(1, Ordering::Relaxed);
        let add = |counter: &AtomicU64, n| counter.fetch_add(n, Ordering::Relaxed);
        add(&reads.data_blocks, cost.data_blocks.get());
        add(&reads.blocks_read, cost.blocks_read.get());
        add(&reads.tables_skipped, cost.synopses_negative.get());
    }

    /// Adds the shapes of an element that is needed until `needed` to its batch, if they must be
    /// written. Returns the added ones, which the caller confirms after the write
    /// ([`Shapes::confirm`]).
    pub(crate) fn write_shapes(
        &self,
        batch: &mut Batch,
        shapes: &[Shape],
        needed: Time,
    ) -> std::result::Result<Vec<ShapeUntil>, EngineError> {
        // While the clock may be wrong, elements that have ended can come back.
        let may_drop = || self.store.unconfirmed_time().is_none();
        // Shapes last as long as elements are stored: see `drop_time`.
        let needed_until = needed.saturating_add(Time::from(self.config.resolution));
        let now = self.now();
        let written = (self.shapes).extend_lifetimes(shapes, now, needed_until, &may_drop);
        for ShapeUntil { shape, until } in &written {
            let (key, value) = (shape_key(shape), until.to_le_bytes());
            let drop_time = self.drop_time(*until);
            batch.also_until(Kind::Put, self.trees.directory, &key, &value, drop_time)?;
        }
        Ok(written)
    }

    /// The state before a write, under the writer lock.
    pub(crate) fn view_before(&self, snapshot: &Snapshot) -> View {
        View {
            snapshot: snapshot.clone(),
            known: self.shapes.known(),
        }
    }

    /// The state in a snapshot.
    pub(crate) fn view(&self, snapshot: &Snapshot) -> Result<View> {
        self.catch_up(snapshot)?;
        Ok(self.view_before(snapshot))
    }

    /// Waits until everything appended so far is acknowledged, and returns a snapshot of it.
    /// Publishers that append later know the queues that exist now.
    pub(crate) fn acknowledged_snapshot(&self) -> Result<Snapshot> {
        let snapshot_of = |_: &mut Batch, _, before: &Snapshot| Ok(before.clone());
        let (_, snapshot) =
            (self.store).write_with(&mut Batch::new(), Durability::Os, snapshot_of)?;
        Ok(snapshot)
    }

    /// The directory entry of a subscription; `None` if it does not exist or was forgotten.
    pub(crate) fn stored_entry(&self, snapshot: &Snapshot, id: Seq) -> Result<Option<Vec<u8>>> {
        read_subscription(snapshot, self.trees.directory, id)
    }
}
