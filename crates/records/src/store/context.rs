//! What everything below the public API takes for a dataset, and for a dataset at one moment.

use std::sync::Arc;

use lsm::{Snapshot, Stop};

use super::{State, Store};
use crate::catalog::Layout;
use model::schema::KeyType;

/// A dataset of an open store.
#[derive(Clone)]
pub(crate) struct Context {
    pub(crate) store: Arc<Store>,
    pub(crate) state: Arc<State>,
}

impl Context {
    /// The layout as of now.
    pub(crate) fn layout(&self) -> Arc<Layout> {
        self.state.layout_in(self.store.group.snapshot().version())
    }

    pub(crate) fn key_type(&self) -> KeyType {
        self.state.key_type
    }

    pub(crate) fn name(&self) -> &str {
        &self.state.name
    }

    /// A consistent picture of the dataset, with reads that nothing stops.
    pub(crate) fn now(&self) -> View {
        let snapshot = self.store.group.snapshot();
        View {
            dataset: self.clone(),
            layout: self.state.layout_in(snapshot.version()),
            snapshot,
        }
    }
}

/// A dataset at one moment. Keeps the files that it sees from being removed.
#[derive(Clone)]
pub(crate) struct View {
    pub(crate) dataset: Context,
    pub(crate) layout: Arc<Layout>,
    pub(crate) snapshot: Snapshot,
}

impl View {
    /// The same, with reads that `stop` stops.
    pub(crate) fn with_stop(self, stop: Option<Stop>) -> View {
        View {
            snapshot: self.snapshot.with_stop(stop),
            ..self
        }
    }

    /// The last write that it sees.
    pub(crate) fn seq(&self) -> lsm::Seq {
        self.snapshot.seq()
    }

    /// True when the dataset was dropped before the snapshot was taken.
    pub(crate) fn is_dropped(&self) -> bool {
        let trees = &self.snapshot.version().trees;
        !trees.contains_key(&self.layout.data)
    }
}
