//! A dataset of an open store ([`Handle`]) and a dataset in one snapshot ([`View`]).

use std::sync::Arc;

use esker_lsm::coding::Own;
use esker_lsm::{Component, Cost, Found, Seq, Slice, Snapshot, Stop, TreeId};
use esker_model::Key;
use esker_model::record::RecordRef;
use esker_model::schema::KeyType;

use super::{DatasetState, Store, has_expired};
use crate::bodies;
use crate::catalog::Layout;
use crate::error::Result;
use crate::record;
use esker_model::Record;

/// Background maintenance, as handles see it. The module of background maintenance lies above this
/// one, and implements it.
pub(crate) trait Background: Send + Sync {
    /// Called after each write: may start work in another thread, and does not block.
    fn wrote(&self, store: &Arc<Store>);
}

/// A dataset of an open store.
#[derive(Clone)]
pub(crate) struct Handle {
    /// Declared before the store, so that background maintenance ends first. `None` in the handles
    /// of background maintenance itself.
    pub(crate) background: Option<Arc<dyn Background>>,
    pub(crate) store: Arc<Store>,
    pub(crate) state: Arc<DatasetState>,
    /// Ends reads that users request, when it is set.
    pub(crate) stop: Option<Stop>,
}

impl Handle {
    /// A handle whose reads cannot be stopped.
    pub(crate) fn new(
        store: Arc<Store>,
        state: Arc<DatasetState>,
        background: Option<Arc<dyn Background>>,
    ) -> Handle {
        Handle {
            background,
            store,
            state,
            stop: None,
        }
    }

    /// The layout in the newest snapshot.
    pub(crate) fn layout(&self) -> Arc<Layout> {
        self.state.layout_in(self.store.group.snapshot().version())
    }

    /// The type of the primary key, which never changes.
    pub(crate) fn key_type(&self) -> KeyType {
        self.state.key_type
    }

    /// The present name of the dataset.
    pub(crate) fn name(&self) -> String {
        self.state.name()
    }

    /// The record of `key` in the newest snapshot; `None` if there is none, or it has expired. As
    /// [`View::get`], without the cost of a view.
    ///
    /// # Errors
    /// [`Error::Cancelled`](crate::Error::Cancelled) if `stop` is set; any read error.
    pub(crate) fn find(&self, key: Key, stop: Option<&Stop>) -> Result<Option<Record>> {
        let cost = Cost::until(stop);
        cost.check()?;
        let snapshot = self.store.group.snapshot();
        let layout = || self.state.layout_in(snapshot.version());
        let record = record_of(key, self.state.data, &snapshot, layout, &cost)?;
        self.store.group.count(&cost);
        Ok(record)
    }

    /// The dataset as it is now.
    pub(crate) fn snapshot(&self) -> View {
        let now = self.now();
        View {
            snapshot: now.snapshot.with_stop(self.stop.clone()),
            ..now
        }
    }

    /// As [`Handle::snapshot`], but its reads cannot be stopped.
    pub(crate) fn now(&self) -> View {
        let snapshot = self.store.group.snapshot();
        View {
            dataset: self.clone(),
            layout: self.state.layout_in(snapshot.version()),
            snapshot,
        }
    }
}

/// The record of `key` in the tree `data`; `None` if there is none, or it has expired. Calls
/// `layout` only for a record whose body is stored separately.
fn record_of(
    key: Key,
    data: TreeId,
    snapshot: &Snapshot,
    layout: impl FnOnce() -> Arc<Layout>,
    cost: &Cost,
) -> Result<Option<Record>> {
    let Some(Found { seq, value, .. }) = snapshot.get(data, key.as_bytes(), cost)? else {
        return Ok(None);
    };
    if has_expired(snapshot, &value) {
        return Ok(None);
    }
    let mut stored = value;
    if RecordRef::lacks_body(&stored) {
        let layout = layout();
        stored = bodies::with_body(&layout, snapshot, key.as_bytes(), seq, stored, cost)?;
    }
    record::returned(key, seq, stored).map(Some)
}

/// The approximate number of records in a component of the data tree, from metadata: counts
/// replaced and expired records, and the deletions in a memtable.
pub(crate) fn records_in(component: &Component) -> u64 {
    match component {
        Component::Memtable(memtable) => memtable.len() as u64,
        Component::Run(run) => {
            let tables = run.tables.iter().map(|table| table.meta());
            let puts = tables.map(|meta| meta.entries.saturating_sub(meta.deletes));
            puts.sum()
        }
    }
}

/// A dataset in one snapshot. The layout is that of the snapshot, which may be older than the
/// dataset's.
#[derive(Clone)]
pub(crate) struct View {
    pub(crate) dataset: Handle,
    pub(crate) layout: Arc<Layout>,
    pub(crate) snapshot: Snapshot,
}

impl View {
    /// The sequence number of the last write that the snapshot sees.
    pub(crate) fn seq(&self) -> Seq {
        self.snapshot.seq()
    }

    /// True if the dataset was dropped before the snapshot was taken.
    pub(crate) fn is_dropped(&self) -> bool {
        let trees = &self.snapshot.version().trees;
        !trees.contains_key(&self.layout.data)
    }

    /// See [`bodies::with_body`].
    pub(crate) fn with_body(
        &self,
        key: &[u8],
        seq: Seq,
        stored: Slice,
        cost: &Cost,
    ) -> Result<Slice> {
        bodies::with_body(&self.layout, &self.snapshot, key, seq, stored, cost)
    }

    /// A record of the dataset, from its encoded key and its stored form with the body.
    ///
    /// # Errors
    /// Damage if the stored form is malformed.
    pub(crate) fn record(&self, key: Vec<u8>, seq: Seq, stored: Slice) -> Result<Record> {
        let key = Key::from_encoded(self.dataset.key_type(), key);
        record::returned(key, seq, stored)
    }

    /// The record of `key`; `None` if the snapshot has none, or it has expired.
    pub(crate) fn get(&self, key: Key) -> Result<Option<Record>> {
        self.dataset.state.usage.count_get();
        let cost = self.snapshot.cost();
        let record = self.read(key, &cost)?;
        self.dataset.store.group.count(&cost);
        Ok(record)
    }

    /// As [`View::get`], as a part of another read, at its cost.
    pub(crate) fn read(&self, key: Key, cost: &Cost) -> Result<Option<Record>> {
        cost.check()?;
        let layout = || Arc::clone(&self.layout);
        record_of(key, self.layout.data, &self.snapshot, layout, cost)
    }

    /// The records of several keys, each at the index of its key. Looks the keys up in ascending
    /// order, so that keys of one block read it once.
    pub(crate) fn get_many(&self, keys: Vec<Key>) -> Result<Vec<Option<Record>>> {
        let cost = self.snapshot.cost();
        cost.check()?;
        let mut order: Vec<usize> = (0..keys.len()).collect();
        let key = |at: &usize| keys.own(*at).as_bytes();
        order.sort_by(|a, b| key(a).cmp(key(b)));
        let sorted: Vec<&[u8]> = order.iter().map(key).collect();
        let mut entries: Vec<Option<Found>> = vec![None; keys.len()];
        let data = self.layout.data;
        (self.snapshot).visit_batch(data, &sorted, &cost, &mut |nth, entry| {
            if !self.has_expired(&entry.value) {
                let value = entry.value.compact();
                *entries.own_mut(*order.own(nth)) = Some(Found { value, ..entry });
            }
        })?;
        let records = keys.into_iter().zip(entries).map(|(key, entry)| {
            self.dataset.state.usage.count_get();
            let Some(Found { seq, value, .. }) = entry else {
                return Ok(None);
            };
            let stored = self.with_body(key.as_bytes(), seq, value, &cost)?;
            record::returned(key, seq, stored).map(Some)
        });
        let records = records.collect();
        self.dataset.store.group.count(&cost);
        records
    }

    /// The approximate number of records ([`records_in`]).
    pub(crate) fn record_count(&self) -> u64 {
        let components = self.snapshot.components(self.layout.data);
        components.iter().map(records_in).sum()
    }
}
