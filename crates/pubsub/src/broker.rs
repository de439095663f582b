//! The broker: the state that its handles share, opening, times, and the directory of
//! subscriptions.
//!
//! A store has one broker in a process, since the broker keeps the shapes, the latest time and the
//! queues of consumers in memory. The broker decides by exact times; the store drops elements by a
//! time of its own clock, when they have ended for certain ([`Inner::useless_at`]).

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use esker::changes::Listening;
use esker::extension::{
    Batch, Cost, Cursor, EngineError, ExtensionStore, Kind, MAX_SEQ, MAX_TIME, Snapshot, TreeId,
};
use esker::{Database, Durability, Error, Result, Seq};
use esker_coding::{Reader, put_bytes};
use parking_lot::{Condvar, Mutex};

use crate::cell::Cell;
use crate::config::{Architecture, Config, Granularity};
use crate::deliver::Deliveries;
use crate::element::{NEVER, StoredSubscription, Time, damaged, subscription};
use crate::extension::{DIRECTORY, LISTS, NAME, PUBLICATIONS, SUBSCRIPTIONS};
use crate::matching::Compiled;
use crate::message::{End, Notification, Start};
use crate::place::Extent;
use crate::shape::{Known, Shape, Shapes};
use crate::times::{Wanted, tick};
use crate::topic::TopicFilter;

/// The maximum number of cells that hold an area with variable granularity.
const CELLS: usize = 6;
/// The maximum number of cells that hold an area with fixed granularity.
const LEAVES: usize = 64 << 10;

/// Publish/subscribe in a store. Cheap to clone; all handles of a store share one broker.
///
/// See the [crate documentation](crate) for an overview and an example.
#[derive(Clone)]
pub struct Broker {
    pub(crate) inner: Arc<Inner>,
}

/// The cells that hold an element at a place, of at most so many levels.
type CellsOf = fn(&Extent, u8) -> Vec<Cell>;

impl Granularity {
    fn cells(self) -> CellsOf {
        match self {
            Granularity::Variable => |extent, depth| extent.cells(depth, CELLS),
            Granularity::Fixed => |extent, depth| extent.leaves(depth, LEAVES),
        }
    }
}

/// The place for the broker of a store. The broker's handles share it, and who opens the broker.
struct Slot {
    store: ExtensionStore,
    /// The open broker, since it keeps state of the lists in memory. Locked while one is created or
    /// opened.
    broker: Mutex<Weak<Inner>>,
}

/// The places of all stores whose broker is open or being opened. No I/O is done under its lock, so
/// stores do not wait for each other.
static SLOTS: Mutex<Vec<Weak<Slot>>> = Mutex::new(Vec::new());

impl Slot {
    /// The place of a store.
    fn of(store: ExtensionStore) -> Arc<Slot> {
        // Dropped behind the lock: the last handle of a store closes it.
        let mut others: Vec<Arc<Slot>> = Vec::new();
        let mut slots = SLOTS.lock();
        slots.retain(|slot| slot.strong_count() > 0);
        others.extend(slots.iter().filter_map(Weak::upgrade));
        let same = others
            .iter()
            .find(|slot| slot.store.is_of_same_store(&store));
        let found = same.cloned().unwrap_or_else(|| {
            let broker = Mutex::default();
            let new = Arc::new(Slot { store, broker });
            slots.push(Arc::downgrade(&new));
            new
        });
        drop(slots);
        found
    }

    /// The broker of the store. If none is open, calls `prepare`, and opens it.
    fn open(
        self: Arc<Slot>,
        prepare: impl FnOnce(&ExtensionStore) -> Result<()>,
    ) -> Result<Broker> {
        let mut broker = self.broker.lock();
        if let Some(inner) = broker.upgrade() {
            return Ok(Broker { inner });
        }
        prepare(&self.store)?;
        let inner = Arc::new(Inner::over(self.clone())?);
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
    pub(crate) compiled: Compiled,
    /// No publication has a later time.
    pub(crate) latest: AtomicI64,
    /// The latest time in the directory, which is rounded up.
    pub(crate) kept_latest: AtomicI64,
    /// The subscriptions that are being changed.
    pub(crate) changes: Changes,
    pub(crate) deliveries: Arc<Deliveries>,
    reads: Reads,
    /// What the configuration chooses, so that no call asks for it: what walks begin with
    /// ([`Inner::wanted`]), and the cells that hold an element ([`Inner::cells`]).
    wanted: Wanted,
    cells: CellsOf,
    /// Wakes consumers when the store ends.
    _ends: Listening,
    _slot: Arc<Slot>,
}

/// Orders the changes of each subscription: one at a time until it is in the log. They can share
/// syncs.
#[derive(Default)]
pub(crate) struct Changes {
    changing: Mutex<HashSet<Seq>>,
    ended: Condvar,
}

/// The right to change a subscription. It also serves to wait until no change is under way.
pub(crate) struct Turn<'c> {
    changes: &'c Changes,
    subscription: Seq,
}

impl Changes {
    pub(crate) fn turn(&self, subscription: Seq) -> Turn<'_> {
        let mut changing = self.changing.lock();
        while !changing.insert(subscription) {
            self.ended.wait(&mut changing);
        }
        Turn {
            changes: self,
            subscription,
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.changes.changing.lock().remove(&self.subscription);
        self.changes.ended.notify_all();
    }
}

/// A snapshot, and the shapes known with it: the broker may forget shapes while an older snapshot
/// is read.
#[derive(Clone)]
pub(crate) struct View {
    pub(crate) snapshot: Snapshot,
    pub(crate) known: Arc<Known>,
}

/// The trees of a broker. One tree for both sorts of lists has both names.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Trees {
    pub(crate) publications: TreeId,
    pub(crate) subscriptions: TreeId,
    pub(crate) directory: TreeId,
}

#[derive(Default)]
struct Reads {
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
        Slot::of(db.extension(NAME)?).open(|store| {
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
        Slot::of(db.extension(NAME)?).open(|store| match store.tree(DIRECTORY) {
            Some(_) => Ok(()),
            None => Err(Error::BadInput(
                "nothing was ever published or subscribed to in this store".to_owned(),
            )),
        })
    }
}

impl Inner {
    fn over(slot: Arc<Slot>) -> Result<Inner> {
        let store = slot.store.clone();
        let tree = |name: &str| {
            store
                .tree(name)
                .ok_or_else(|| damaged(&format!("its tree `{name}` is missing")))
        };
        let directory = tree(DIRECTORY)?;
        let snapshot = store.snapshot();
        let stored = snapshot.version().trees.get(&directory);
        let config = stored.and_then(|tree| Config::decode(&tree.config));
        let config = config.ok_or_else(|| damaged("its configuration is malformed"))?;
        let (publications, subscriptions) = match config.architecture {
            Architecture::DualDb => (tree(LISTS)?, tree(LISTS)?),
            Architecture::TwoDb => (tree(PUBLICATIONS)?, tree(SUBSCRIPTIONS)?),
            Architecture::RepQueries => (tree(PUBLICATIONS)?, tree(PUBLICATIONS)?),
        };
        let trees = Trees {
            publications,
            subscriptions,
            directory,
        };
        let latest = read_latest(&snapshot, directory)?;
        let deliveries = Arc::new(Deliveries::default());
        let woken = deliveries.clone();
        let ends = store.listen_for_end(Arc::new(move || woken.wake_all()));
        Ok(Inner {
            shapes: Shapes::load(read_shapes(&snapshot, directory)?),
            compiled: Compiled::new(config.depth),
            durability: store.durability(),
            latest: AtomicI64::new(latest),
            kept_latest: AtomicI64::new(latest),
            changes: Changes::default(),
            deliveries,
            reads: Reads::default(),
            wanted: match config.architecture {
                // They skip no tables, as in the paper.
                Architecture::RepQueries => Wanted::everything(),
                Architecture::DualDb | Architecture::TwoDb => Wanted::nothing(config.resolution),
            },
            cells: config.granularity.cells(),
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
            self.shapes
                .merge(read_shapes(snapshot, self.trees.directory)?);
            let latest = read_latest(snapshot, self.trees.directory)?;
            self.latest.fetch_max(latest, Ordering::AcqRel);
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
    pub(crate) fn now(&self) -> Time {
        let ticks = i64::try_from(self.store.now()).unwrap_or(i64::MAX);
        ticks.saturating_mul(i64::from(self.config.resolution))
    }

    /// The time of the store's clock from which an element that ends at `time` can be dropped: it
    /// has ended for certain. The broker itself decides by exact times.
    pub(crate) fn useless_at(&self, time: Time) -> u64 {
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

    /// True if a publication has expired since it was found, which is recorded. False while the
    /// clock may be wrong, since a skipped publication does not come again. (Reads of the lists go
    /// by the clock all the same.)
    pub(crate) fn has_expired(&self, found: &Notification) -> bool {
        let Some(expires) = found.expires.filter(|expires| *expires <= self.now()) else {
            return false;
        };
        if self.store.unconfirmed_time().is_some() {
            return false;
        }
        self.note_ended(&self.store.snapshot(), expires);
        true
    }

    /// An empty set of wanted elements.
    pub(crate) fn wanted(&self) -> Wanted {
        self.wanted
    }

    /// A duration in the broker's unit.
    pub(crate) fn units(&self, long: Duration) -> Time {
        let units = long.as_nanos() * u128::from(self.config.resolution) / 1_000_000;
        Time::try_from(units).unwrap_or(NEVER)
    }

    /// How long until a time of the broker's clock; zero if it has passed.
    pub(crate) fn until(&self, time: Time) -> Duration {
        let units = i128::from(time) - i128::from(self.now());
        let nanos = units.max(0) * 1_000_000 / i128::from(self.config.resolution);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    pub(crate) fn end(&self, end: End, now: Time) -> Time {
        match end {
            End::Never => NEVER,
            End::At(time) => time,
            End::After(long) => now.saturating_add(self.units(long)),
        }
    }

    pub(crate) fn start(&self, start: Start, now: Time) -> Time {
        match start {
            Start::Now => now,
            Start::At(time) => time,
            Start::Before(long) => now.saturating_sub(self.units(long)),
        }
    }

    /// The time until which a subscription is needed: its end, or later if it is remembered for its
    /// user.
    pub(crate) fn remembered(&self, to: Time, user: &[u8]) -> Time {
        if user.is_empty() {
            return to;
        }
        match self.config.remember {
            Some(remember) => to.saturating_add(self.units(remember)),
            None => NEVER,
        }
    }

    /// The cells that hold an element at this place.
    pub(crate) fn cells(&self, extent: &Extent) -> Vec<Cell> {
        (self.cells)(extent, self.config.depth)
    }

    pub(crate) fn is_one_tree(&self) -> bool {
        self.trees.publications == self.trees.subscriptions
    }

    pub(crate) fn count(&self, cost: &Cost) {
        let reads = &self.reads;
        reads.walks.fetch_add(1, Ordering::Relaxed);
        let add = |counter: &AtomicU64, n| counter.fetch_add(n, Ordering::Relaxed);
        add(&reads.data_blocks, cost.data_blocks.get());
        add(&reads.blocks_read, cost.blocks_read.get());
        add(&reads.tables_skipped, cost.synopses_negative.get());
    }

    /// Adds the shapes of an element that is needed until `needed` to its batch, if they must be
    /// written. Returns them, to be confirmed after the write.
    pub(crate) fn write_shapes(
        &self,
        batch: &mut Batch,
        shapes: &[Shape],
        needed: Time,
    ) -> std::result::Result<Vec<(Shape, Time)>, EngineError> {
        // While the clock may be wrong, elements that have ended can come back.
        let forgets = || self.store.unconfirmed_time().is_none();
        // Shapes last as long as elements are stored: see `useless_at`.
        let needed = needed.saturating_add(Time::from(self.config.resolution));
        let written = self.shapes.need(shapes, self.now(), needed, &forgets);
        for (shape, until) in &written {
            let key = [b"s", shape.encode().as_slice()].concat();
            let (value, useless) = (until.to_le_bytes(), self.useless_at(*until));
            batch.also_until(Kind::Put, self.trees.directory, &key, &value, useless)?;
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
    pub(crate) fn everything_written(&self) -> Result<Snapshot> {
        let look = |_: &mut Batch, _, before: &Snapshot| Ok(before.clone());
        let (_, written) = (self.store).write_with(&mut Batch::new(), Durability::Os, look)?;
        Ok(written)
    }

    /// The directory entry of a subscription.
    pub(crate) fn lookup(&self, snapshot: &Snapshot, id: Seq) -> Result<Option<Vec<u8>>> {
        let found = snapshot.get(self.trees.directory, &id_key(id), &snapshot.cost())?;
        Ok(found.map(|found| found.value.to_vec()))
    }
}

/// The directory key of a subscription.
pub(crate) fn id_key(id: Seq) -> Vec<u8> {
    [b"i", id.to_be_bytes().as_slice()].concat()
}

/// The directory key of a late publication: one written with a time long past. The value is the
/// time of the store's clock at the write.
pub(crate) fn late_key(seq: Seq) -> Vec<u8> {
    [b"l", seq.to_be_bytes().as_slice()].concat()
}

/// The late publications from one number to another, with the times of the store's clock when they
/// were written.
pub(crate) fn read_late(
    snapshot: &Snapshot,
    directory: TreeId,
    first: Seq,
    last: Seq,
) -> Result<HashMap<Seq, u64>> {
    let mut cursor = snapshot.cursor(directory, 0);
    let mut found = HashMap::new();
    cursor.within(b"l", Some(b"m"));
    cursor.seek(&late_key(first), MAX_SEQ)?;
    while cursor.valid() {
        let seq = cursor.key().strip_prefix(b"l");
        let seq = seq.and_then(|seq| <[u8; 8]>::try_from(seq).ok());
        let clock = <[u8; 8]>::try_from(cursor.value()).ok();
        let (Some(seq), Some(clock)) = (seq, clock) else {
            return Err(damaged("the write time of a publication is malformed"));
        };
        let seq = Seq::from_be_bytes(seq);
        if seq > last {
            break;
        }
        found.insert(seq, u64::from_le_bytes(clock));
        cursor.next()?;
    }
    Ok(found)
}

/// The directory entry of a subscription: its topics, then its forms, newest first.
pub(crate) fn directory_entry(
    topics: &TopicFilter,
    newest: &StoredSubscription<'_>,
    older: &[StoredSubscription<'_>],
) -> Vec<u8> {
    let topics = topics.encode();
    let mut out = Vec::with_capacity(topics.len() + newest.about());
    put_bytes(&mut out, &topics);
    for form in std::iter::once(newest).chain(older) {
        form.encode(&mut out);
    }
    out
}

pub(crate) fn read_entry(stored: &[u8]) -> Result<(TopicFilter, Vec<StoredSubscription<'_>>)> {
    let mut input = Reader::new(stored);
    let topics = input.bytes().and_then(TopicFilter::decode);
    let mut forms = Some(Vec::new());
    while let Some(read) = forms.as_mut().filter(|_| !input.is_empty()) {
        match subscription(&mut input) {
            Some(form) => read.push(form),
            None => forms = None,
        }
    }
    let read = topics.zip(forms).filter(|(_, forms)| !forms.is_empty());
    read.ok_or_else(|| damaged("a subscription in the directory is malformed"))
}

/// The directory key of the latest time of all publications.
pub(crate) const LATEST: &[u8] = b"t";

fn read_latest(snapshot: &Snapshot, directory: TreeId) -> Result<Time> {
    let Some(found) = snapshot.get(directory, LATEST, &snapshot.cost())? else {
        return Ok(Time::MIN);
    };
    let bytes: &[u8] = &found.value;
    let bytes = <[u8; 8]>::try_from(bytes).map_err(|_| damaged("the latest time is malformed"))?;
    Ok(Time::from_le_bytes(bytes))
}

fn read_shapes(snapshot: &Snapshot, directory: TreeId) -> Result<Vec<(Shape, Time)>> {
    let mut cursor = snapshot.cursor(directory, 0);
    let mut found = Vec::new();
    cursor.within(b"s", Some(b"t"));
    cursor.seek_first()?;
    while cursor.valid() {
        let encoded = cursor.key().strip_prefix(b"s").unwrap_or_default();
        let until = <[u8; 8]>::try_from(cursor.value())
            .ok()
            .map(Time::from_le_bytes);
        let read = Shape::decode(encoded).zip(until);
        found.push(read.ok_or_else(|| damaged("a shape in the directory is malformed"))?);
        cursor.next()?;
    }
    Ok(found)
}
