//! The catalog: the datasets of a keyspace, their definitions, and the layouts of their indexes. It
//! is one row, changed by compare-and-set; each change makes a new version.
//!
//! A process reads the catalog again when its copy is older than [`REREAD`], and does not work with
//! one that is older than [`CATALOG_AGE`]. What all writers must know before it is so takes effect
//! [`LEAD`](crate::time::LEAD) after its change.
//!
//! A keyspace may be dropped and made again under its name while a process has it open. Its catalog
//! has another number then, and its versions begin anew.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use esker_coding::Seq;
use esker_model::definition::StoredDef;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::cells::{Cells, Swapped};
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::time::{CATALOG_AGE, Clocks, EPOCH};
use crate::unique::unique;

/// The table of rows that are changed by compare-and-set.
pub(crate) const STATE: &str = "esker_state";
const PARTITION: &[u8] = b"catalog";
/// A copy is read again after this time, in milliseconds, by a query or write that begins.
pub(crate) const REREAD: u64 = 4_000;
/// How often a change is made again after others changed the catalog.
const TRIES: usize = 50;
/// The numbers of changes that are kept: more than follow on one another while one waits for its
/// answer.
const TURNS: usize = 64;

/// A version of the catalog, of all keyspaces that have had the name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Edition {
    /// The number of the keyspace; 0 without a catalog.
    pub(crate) keyspace: u64,
    version: u64,
}

/// The catalog.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Catalog {
    /// [`Edition::keyspace`].
    #[serde(default)]
    keyspace: u64,
    version: u64,
    /// Numbers of the last changes, the last one at the end. They make each value of the row
    /// another, and a change that others have followed before its answer came sees that it has
    /// happened.
    #[serde(default)]
    turns: VecDeque<u64>,
    next_id: u32,
    pub(crate) datasets: BTreeMap<String, DatasetState>,
    /// Datasets that are being created or dropped: they may have tables.
    #[serde(default)]
    unlisted: Vec<Unlisted>,
}

/// A dataset without a name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Unlisted {
    state: DatasetState,
    /// When it was reserved or lost its name, in milliseconds since 1970.
    since: u64,
    /// Another process drops its tables: it gets no name any more.
    #[serde(default)]
    is_given_up: bool,
}

/// The creation or drop of a dataset takes less, in milliseconds: one that began before has
/// crashed.
const CRASHED: u64 = 3_600_000;

/// A dataset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DatasetState {
    /// Its number; numbers are not reused.
    pub(crate) id: u32,
    /// The definition, as stored ([`StoredDef::to_bytes`]).
    def: serde_json::Value,
    /// By number of the attribute.
    pub(crate) indexes: BTreeMap<u32, IndexState>,
}

/// An index.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct IndexState {
    /// The number of its table.
    pub(crate) table: u32,
    /// Writes from this moment on add their entries; a fill adds those of earlier ones.
    pub(crate) since: Seq,
    /// True once the fill is complete: queries use the index.
    pub(crate) is_ready: bool,
    pub(crate) layout: Layout,
}

impl DatasetState {
    pub(crate) fn def(&self) -> Result<StoredDef> {
        let bytes = self.def.to_string();
        StoredDef::from_bytes(bytes.as_bytes())
            .ok_or_else(|| Error::Damaged("the definition of a dataset cannot be read".to_string()))
    }

    pub(crate) fn set_def(&mut self, def: &StoredDef) {
        // What a definition is stored as is always JSON.
        self.def = serde_json::from_slice(&def.to_bytes()).unwrap_or_default();
    }

    pub(crate) fn data(&self) -> Arc<str> {
        format!("esker_{}", self.id).into()
    }

    pub(crate) fn heads(&self) -> Arc<str> {
        format!("esker_{}_heads", self.id).into()
    }

    pub(crate) fn index_table(&self, attribute: u32, index: &IndexState) -> Arc<str> {
        format!("esker_{}_index_{attribute}_{}", self.id, index.table).into()
    }
}

impl Catalog {
    /// The catalog of a new keyspace. The numbers of datasets, and so the names of tables, are
    /// others than those of a keyspace of the same name that was dropped before.
    fn beginning(now: u64) -> Catalog {
        let seconds = now.saturating_sub(EPOCH) / 1000;
        Catalog {
            next_id: u32::try_from(seconds).unwrap_or(0),
            ..Catalog::default()
        }
    }

    pub(crate) fn edition(&self) -> Edition {
        Edition {
            keyspace: self.keyspace,
            version: self.version,
        }
    }

    /// A new dataset, which has no name yet. It is [added](Catalog::add) when its tables exist.
    pub(crate) fn reserve(&mut self, def: &StoredDef, now: u64) -> Result<DatasetState> {
        let id = self.next_number();
        let indexed = def.attributes.iter().filter(|a| a.def.kind.is_indexed());
        let index = |id: u32| {
            let index = IndexState {
                table: 0,
                since: 0,
                is_ready: true,
                layout: Layout::default(),
            };
            (id, index)
        };
        let mut state = DatasetState {
            id,
            def: serde_json::Value::Null,
            indexes: indexed.map(|attribute| index(attribute.id)).collect(),
        };
        state.set_def(def);
        self.unlisted.push(Unlisted {
            state: state.clone(),
            since: now,
            is_given_up: false,
        });
        Ok(state)
    }

    /// A number that was not used before.
    pub(crate) fn next_number(&mut self) -> u32 {
        self.next_id += 1;
        self.next_id
    }

    /// Adds a dataset whose tables exist.
    pub(crate) fn add(&mut self, name: &str, state: DatasetState) -> Result<()> {
        if self.datasets.contains_key(name) {
            return Err(Error::Exists(format!("dataset `{name}` exists already")));
        }
        let may_be_listed = self
            .unlisted
            .iter()
            .any(|unlisted| unlisted.state.id == state.id && !unlisted.is_given_up);
        if !may_be_listed {
            let text =
                format!("the creation of `{name}` took so long that another process ended it");
            return Err(Error::Busy(text));
        }
        self.forget(&state);
        self.datasets.insert(name.to_string(), state);
        Ok(())
    }

    /// Takes the name of a dataset, whose tables are dropped next.
    pub(crate) fn remove(&mut self, name: &str, now: u64) -> Result<DatasetState> {
        let state = self.dataset(name)?.clone();
        self.datasets.remove(name);
        self.unlisted.push(Unlisted {
            state: state.clone(),
            since: now,
            is_given_up: true,
        });
        Ok(state)
    }

    /// A dataset without a name has no tables any more, or gets a name.
    pub(crate) fn forget(&mut self, state: &DatasetState) {
        self.unlisted
            .retain(|unlisted| unlisted.state.id != state.id);
    }

    /// Gives up datasets whose creation or drop has crashed, and returns them.
    pub(crate) fn give_up(&mut self, now: u64) -> Vec<DatasetState> {
        let unlisted = self.unlisted.iter_mut();
        let crashed = unlisted.filter(|unlisted| unlisted.since + CRASHED < now);
        let given_up = crashed.map(|unlisted| {
            unlisted.is_given_up = true;
            unlisted.state.clone()
        });
        given_up.collect()
    }

    /// The dataset of a name.
    pub(crate) fn dataset(&self, name: &str) -> Result<&DatasetState> {
        let names = self.datasets.keys().map(String::as_str);
        self.datasets
            .get(name)
            .ok_or_else(|| Error::UnknownDataset {
                name: name.to_string(),
                meant: esker_model::suggest::nearest(name, names).map(str::to_string),
            })
    }

    pub(crate) fn dataset_mut(&mut self, name: &str) -> Result<&mut DatasetState> {
        self.dataset(name)?;
        self.datasets.get_mut(name).ok_or(Error::UnknownDataset {
            name: name.to_string(),
            meant: None,
        })
    }
}

/// A copy of the catalog, and when it was read.
#[derive(Debug, Clone)]
struct Copy {
    catalog: Arc<Catalog>,
    /// By the steady clock, before it was read.
    read_at: u64,
}

/// A copy that a later one has replaced.
#[derive(Debug)]
struct Former {
    edition: Edition,
    /// By the steady clock, before it was read.
    read_at: u64,
}

/// What a process knows.
#[derive(Default)]
struct Known {
    copy: Option<Copy>,
    /// The copies before it that may still be used, of the same keyspace.
    former: Vec<Former>,
    /// How often the copy has become another one.
    changes: u64,
}

/// The catalog as this process knows it.
pub(crate) struct Catalogs {
    cells: Arc<dyn Cells>,
    clocks: Arc<dyn Clocks>,
    table: Arc<str>,
    known: Mutex<Known>,
}

impl Catalogs {
    pub(crate) fn new(cells: Arc<dyn Cells>, clocks: Arc<dyn Clocks>) -> Catalogs {
        Catalogs {
            cells,
            clocks,
            table: STATE.into(),
            known: Mutex::default(),
        }
    }

    /// A copy that may be used now.
    pub(crate) fn recent(&self) -> Result<Arc<Catalog>> {
        let known = self.known.lock().copy.clone();
        let now = self.clocks.steady();
        match known {
            Some(copy) if now.saturating_sub(copy.read_at) < REREAD => Ok(copy.catalog),
            _ => Ok(self.read()?.catalog),
        }
    }

    /// The catalog as it is now.
    pub(crate) fn now(&self) -> Result<Arc<Catalog>> {
        Ok(self.read()?.catalog)
    }

    /// True while what was decided by a version of the catalog may be written. A later copy proves
    /// nothing for an earlier version.
    pub(crate) fn is_recent(&self, edition: Edition) -> bool {
        let now = self.clocks.steady();
        let known = self.known.lock();
        // Writes that another thread began with an earlier copy go on.
        let former = known.former.iter().map(|of| (of.edition, of.read_at));
        let copy = known.copy.iter();
        let copy = copy.map(|copy| (copy.catalog.edition(), copy.read_at));
        let mut read = copy.chain(former).filter(|(of, _)| *of == edition);
        read.any(|(_, read_at)| now.saturating_sub(read_at) < CATALOG_AGE)
    }

    fn stored(&self) -> Result<Option<Vec<u8>>> {
        let rows = self.cells.swapped(&self.table, PARTITION)?;
        Ok(rows.into_iter().next().map(|cell| cell.value))
    }

    fn read(&self) -> Result<Copy> {
        for _ in 0..TRIES {
            let changes = self.known.lock().changes;
            let read_at = self.clocks.steady();
            let catalog = match self.stored()? {
                Some(bytes) => decode(&bytes)?,
                None => Catalog::default(),
            };
            if let Some(copy) = self.keep(catalog, read_at, changes) {
                return Ok(copy);
            }
        }
        Err(again_and_again())
    }

    /// Keeps a catalog that was read since a moment, unless another thread has read a later one;
    /// returns the later of the two. `None` if they are of two keyspaces, and it is not known which
    /// is the later one: the other was not kept before that moment.
    fn keep(&self, catalog: Catalog, read_at: u64, changes: u64) -> Option<Copy> {
        let mut known = self.known.lock();
        let is_unchanged = known.changes == changes;
        if let Some(copy) = &mut known.copy {
            if *copy.catalog == catalog {
                copy.read_at = copy.read_at.max(read_at);
                return Some(copy.clone());
            }
            let is_same = copy.catalog.keyspace == catalog.keyspace;
            if is_same && copy.catalog.version > catalog.version {
                return Some(copy.clone());
            }
            if !is_same && !is_unchanged {
                return None;
            }
        }
        let catalog = Arc::new(catalog);
        let copy = Copy { catalog, read_at };
        let replaced = known.copy.replace(copy.clone());
        known.former.extend(replaced.map(|replaced| Former {
            edition: replaced.catalog.edition(),
            read_at: replaced.read_at,
        }));
        let (now, keyspace) = (self.clocks.steady(), copy.catalog.keyspace);
        known.former.retain(|of| {
            of.edition.keyspace == keyspace && now.saturating_sub(of.read_at) < CATALOG_AGE
        });
        known.changes += 1;
        Some(copy)
    }

    /// Changes the catalog; `change` is made again on a later version if another process was first.
    pub(crate) fn change<T>(&self, mut change: impl FnMut(&mut Catalog) -> Result<T>) -> Result<T> {
        let mut tried: Option<(u64, T)> = None;
        for _ in 0..TRIES {
            let changes = self.known.lock().changes;
            let read_at = self.clocks.steady();
            let before = self.stored()?;
            let mut catalog = match &before {
                Some(bytes) => decode(bytes)?,
                None => Catalog::beginning(self.cells.now()?),
            };
            if let Some((turn, done)) = tried.take()
                && catalog.turns.contains(&turn)
            {
                let _ = self.keep(catalog, read_at, changes);
                return Ok(done);
            }
            let unchanged = catalog.clone();
            let done = change(&mut catalog)?;
            if catalog == unchanged {
                return Ok(done);
            }
            if catalog.keyspace == 0 {
                catalog.keyspace = unique();
            }
            catalog.version += 1;
            let turn = unique();
            catalog.turns.push_back(turn);
            while catalog.turns.len() > TURNS {
                catalog.turns.pop_front();
            }
            let bytes = serde_json::to_vec(&catalog)
                .map_err(|error| Error::BadInput(format!("the catalog: {error}")))?;
            let swapped = self.cells.swap(
                &self.table,
                PARTITION,
                &[0],
                before.as_deref(),
                Some(&bytes),
            )?;
            if swapped == Swapped::Done {
                // If it is not known which copy is the later one, the next reader finds out.
                let _ = self.keep(catalog, read_at, changes);
                return Ok(done);
            }
            tried = Some((turn, done));
        }
        Err(again_and_again())
    }
}

fn again_and_again() -> Error {
    Error::Busy("other processes keep changing the catalog".to_string())
}

fn decode(bytes: &[u8]) -> Result<Catalog> {
    serde_json::from_slice(bytes)
        .map_err(|error| Error::Damaged(format!("the catalog cannot be read: {error}")))
}

#[cfg(test)]
mod tests {
    use esker_model::definition::DatasetDef;
    use esker_model::schema::KeyType;

    use super::*;

    #[test]
    fn a_dataset_whose_tables_are_being_dropped_gets_no_name() {
        let mut catalog = Catalog::beginning(0);
        let def = StoredDef::new(&DatasetDef::new("id", KeyType::Int));
        let slow = catalog.reserve(&def, 1_000).unwrap();
        assert!(catalog.give_up(1_000 + CRASHED).is_empty());
        let quick = catalog.reserve(&def, 2_000).unwrap();
        assert_eq!(
            catalog.give_up(1_001 + CRASHED),
            std::slice::from_ref(&slow)
        );
        assert!(matches!(catalog.add("slow", slow), Err(Error::Busy(_))));
        catalog.add("quick", quick.clone()).unwrap();
        assert!(matches!(catalog.add("again", quick), Err(Error::Busy(_))));
        assert_eq!(catalog.give_up(u64::MAX).len(), 1, "the slow one");
    }
}
