//! Changes of indexes.
//!
//! A new index is announced in the catalog with a moment in the future. By then every writer knows
//! it, and adds entries of its later writes. When all writers of earlier writes have ended, a fill
//! adds the entries of the versions that are there; then queries use the index.

use std::ops::ControlFlow;

use esker_model::Key;
use esker_model::definition::{DatasetDef, Index, IndexDef, IndexKind, StoredAttribute};
use esker_model::query::Attribute;
use esker_model::record::RecordRef;
use esker_model::schema::{Extracted, Path};

use crate::bound::Bound;
use crate::catalog::{DatasetState, IndexState, REREAD};
use crate::cells::{Mark, TableKind, Write};
use crate::dataset::Dataset;
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::pages::Pages;
use crate::rows::{Entry, Version};
use crate::split;
use crate::store::{check_not_compound, check_not_unique};
use crate::time::{CLOCK_BOUND, DEADLINE, LEAD, stamp};

/// Rows of a page.
const PAGE: usize = 1000;
/// Tokens that are kept to lay out a new index.
const SAMPLE: usize = 1 << 14;

/// The steps of adding an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IndexStep {
    /// Looks at the records to lay out the index.
    Sampling,
    /// Waits until all writers know the index, and earlier writes have ended.
    Waiting,
    /// Adds the entries of the records that exist.
    Filling,
}

/// The progress of adding an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexProgress {
    /// The step.
    pub step: IndexStep,
    /// How much of it is done: parts of the records, or milliseconds.
    pub done: u64,
    /// Of how much.
    pub of: u64,
}

/// What adding an index has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Filled {
    /// Records that were read.
    pub records: u64,
    /// False if it was stopped: it is unfinished then.
    pub complete: bool,
}

/// Observes the addition of an index, and can stop it.
pub type OnIndex<'p> = dyn FnMut(IndexProgress) -> ControlFlow<()> + 'p;

/// Takes a version: its key, and its stored form.
type OnVersion<'v> = dyn FnMut(&[u8], Version, &[u8]) -> Result<()> + 'v;

impl Dataset {
    /// Adds an index of the kind `composite`. Takes about two minutes: all writers must know it
    /// first.
    ///
    /// # Errors
    /// [`Error::Exists`]; [`Error::Busy`] while another one is unfinished; [`Error::BadInput`] if a
    /// record does not fit the type; [`Error::Unsupported`] for another kind;
    /// [`Error::Unavailable`].
    pub fn add_index(
        &self,
        path: Path,
        index: Index,
        progress: &mut OnIndex<'_>,
    ) -> Result<Filled> {
        self.shared.check_writes()?;
        let bound = self.shared.bound_now(&self.name)?;
        let mut def = index_def(&bound, path, index)?;
        if let Some(known) = bound.stored.attribute(&def.path) {
            let (path, declared) = (&def.path, known.def.ty);
            if known.def.kind.is_indexed() {
                return Err(Error::Exists(format!("`{path}` has an index")));
            }
            // Records hold values of that type.
            if !declared.is_allowed_by(def.ty) {
                let text = format!("`{path}` is declared as {declared}, not {}", def.ty);
                return Err(Error::BadInput(text));
            }
            def.ty = declared;
            def.lenient |= known.def.lenient;
        }
        if let Some(unfinished) = self.unfinished_index()? {
            let path = &unfinished.path;
            return Err(Error::Busy(format!("the index of `{path}` is unfinished")));
        }
        let mut changed = bound.stored.clone();
        let id = match changed
            .attributes
            .iter_mut()
            .find(|a| a.def.path == def.path)
        {
            Some(known) => {
                known.def = def.clone();
                known.id
            }
            None => {
                let id = changed.next_id;
                changed.next_id += 1;
                changed.attributes.push(StoredAttribute {
                    id,
                    def: def.clone(),
                    tree: 0,
                    since: 0,
                    exact: true,
                });
                id
            }
        };
        let stored = changed.attribute(&def.path);
        let attribute = stored.map(|stored| Attribute::new(stored, &changed));
        let Some(attribute) = attribute else {
            return Ok(Filled::default());
        };
        let Some(layout) = self.sample(&bound, &attribute, progress)? else {
            return Ok(Filled::default());
        };
        let index = IndexState {
            table: self
                .shared
                .catalogs
                .change(|catalog| Ok(catalog.next_number()))?,
            since: stamp(self.shared.cells.now()? + LEAD),
            is_ready: false,
            layout,
        };
        let table = bound.state.index_table(id, &index);
        self.shared.cells.create_table(&table, TableKind::Entries)?;
        self.shared.catalogs.change(|catalog| {
            let state = catalog.dataset_mut(&self.name)?;
            if state.id != bound.state.id || state.def()? != bound.stored {
                return Err(Error::Busy(
                    "another process changes the dataset".to_string(),
                ));
            }
            let since = stamp(self.shared.cells.now()? + LEAD);
            state.set_def(&changed);
            let index = index.clone();
            state.indexes.insert(id, IndexState { since, ..index });
            Ok(())
        })?;
        self.finish(progress)
    }

    /// Continues the addition of an index that was interrupted. Takes as long as the addition.
    ///
    /// # Errors
    /// As [`Dataset::add_index`].
    pub fn resume_index(&self, progress: &mut OnIndex<'_>) -> Result<Option<(Path, Filled)>> {
        self.shared.check_writes()?;
        let Some(def) = self.unfinished_index()? else {
            return Ok(None);
        };
        // A change of the catalog whose process died may have landed long after it was made: then
        // writers did not know the index from the moment on that it says.
        self.shared.catalogs.change(|catalog| {
            let since = stamp(self.shared.cells.now()? + LEAD);
            let state = catalog.dataset_mut(&self.name)?;
            let mut indexes = state.indexes.values_mut();
            if let Some(unfinished) = indexes.find(|index| !index.is_ready) {
                unfinished.since = since;
            }
            Ok(())
        })?;
        Ok(Some((def.path, self.finish(progress)?)))
    }

    /// The index that is being added.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub fn unfinished_index(&self) -> Result<Option<IndexDef>> {
        let bound = self.shared.bound_now(&self.name)?;
        let mut attributes = bound.stored.attributes.iter();
        let found = attributes.find(|attribute| {
            let index = bound.state.indexes.get(&attribute.id);
            index.is_some_and(|index| !index.is_ready)
        });
        Ok(found.map(|attribute| attribute.def.clone()))
    }

    /// Drops an index, or cancels its addition. The field stays declared. It takes some seconds:
    /// at first no new query reads the index, and when all processes know that, no write adds
    /// entries to it. A drop that is interrupted leaves an index that is unfinished.
    ///
    /// # Errors
    /// [`Error::BadInput`] if there is none; [`Error::Unavailable`].
    pub fn drop_index(&self, path: &Path) -> Result<()> {
        self.shared.check_writes()?;
        let none = || Error::BadInput(format!("`{path}` has no index"));
        let dropped = self.shared.catalogs.change(|catalog| {
            let state = catalog.dataset_mut(&self.name)?;
            let def = state.def()?;
            let found = def.attributes.iter().find(|a| a.def.path == *path);
            let id = found.ok_or_else(none)?.id;
            let index = state.indexes.get_mut(&id).ok_or_else(none)?;
            index.is_ready = false;
            let index = index.clone();
            Ok(state.index_table(id, &index))
        })?;
        // Also where it was not ready: a drop that was interrupted may have begun just before.
        self.shared.clocks().sleep(2 * REREAD);
        let (table, layout) = self.shared.catalogs.change(|catalog| {
            let state = catalog.dataset_mut(&self.name)?;
            let mut def = state.def()?;
            let found = def.attributes.iter_mut().find(|a| a.def.path == *path);
            let attribute = found.ok_or_else(none)?;
            let index = state.indexes.get(&attribute.id).ok_or_else(none)?;
            // Tables have the numbers of the dataset and of the index.
            if state.index_table(attribute.id, index) != dropped || index.is_ready {
                let text = "another process has changed the index meanwhile";
                return Err(Error::Busy(text.to_string()));
            }
            let index = state.indexes.remove(&attribute.id).ok_or_else(none)?;
            attribute.def.kind = IndexKind::None;
            let id = attribute.id;
            state.set_def(&def);
            Ok((state.index_table(id, &index), index.layout))
        })?;
        self.shared.cells.drop_table(&table)?;
        self.shared.clear(&split::partitions(&table, &layout))
    }

    /// Reads all records to lay out an index; `None` if it was stopped.
    fn sample(
        &self,
        bound: &Bound,
        attribute: &Attribute,
        progress: &mut OnIndex<'_>,
    ) -> Result<Option<Layout>> {
        let (mut tokens, mut count): (Vec<Vec<u8>>, u64) = (Vec::new(), 0);
        let parts = self.shared.cells.parts();
        for part in 0..parts {
            self.each_record(bound, part, &mut |key, _, stored| {
                check_fit(bound, attribute, key, stored)?;
                let Some(record) = RecordRef::parse(stored) else {
                    return Ok(());
                };
                attribute.each_token(&record, &mut |token| {
                    count += 1;
                    // Each token takes its place in the sample with the same chance.
                    let at = xxhash_rust::xxh3::xxh3_64_with_seed(token, count) % count;
                    if tokens.len() < SAMPLE {
                        tokens.push(token.to_vec());
                    } else if let Some(place) = tokens.get_mut(at as usize) {
                        *place = token.to_vec();
                    }
                });
                Ok(())
            })?;
            let now = IndexProgress {
                step: IndexStep::Sampling,
                done: u64::from(part + 1),
                of: u64::from(parts),
            };
            if progress(now).is_break() {
                return Ok(None);
            }
        }
        let buckets = (count / (self.shared.options.split_at / 2).max(1)) as usize;
        tokens.sort_unstable();
        let mut begins: Vec<Vec<u8>> = (1..=buckets)
            .filter_map(|bucket| tokens.get(bucket * tokens.len() / (buckets + 1)).cloned())
            .collect();
        begins.dedup();
        Ok(Some(Layout::beginning_at(begins.into_iter())))
    }

    /// Waits, fills, and makes the index ready.
    fn finish(&self, progress: &mut OnIndex<'_>) -> Result<Filled> {
        let mut filled = Filled::default();
        let bound = self.shared.bound_now(&self.name)?;
        let building = bound.indexes.iter().enumerate().find(|(_, index)| {
            let attribute = bound.stored.attributes.get(index.place);
            let state = attribute.and_then(|a| bound.state.indexes.get(&a.id));
            state.is_some_and(|state| !state.is_ready)
        });
        let Some((at, index)) = building else {
            return Ok(filled);
        };
        if !self.wait(index.since, progress)? {
            return Ok(filled);
        }
        let Some(attribute) = bound.shape.attribute(index.place) else {
            return Ok(filled);
        };
        let parts = self.shared.cells.parts();
        for part in 0..parts {
            let mut entries: Vec<Write> = Vec::new();
            let written = |entries: &mut Vec<Write>| {
                let writes = std::mem::take(entries);
                self.shared
                    .cells
                    .write(writes)
                    .into_iter()
                    .collect::<Result<()>>()
            };
            self.each_record(&bound, part, &mut |key, version, stored| {
                check_fit(&bound, attribute, key, stored)?;
                filled.records += 1;
                if let Some(record) = RecordRef::parse(stored)
                    && version.at < index.since
                {
                    attribute.each_token(&record, &mut |token| {
                        let entry = Entry {
                            token,
                            at: version.at,
                            key,
                        };
                        entries.extend(bound.entry(at, entry, true));
                    });
                }
                if entries.len() >= PAGE {
                    written(&mut entries)
                } else {
                    Ok(())
                }
            })?;
            written(&mut entries)?;
            let now = IndexProgress {
                step: IndexStep::Filling,
                done: u64::from(part + 1),
                of: u64::from(parts),
            };
            if progress(now).is_break() {
                return Ok(filled);
            }
        }
        let id = bound.stored.attributes.get(index.place).map(|a| a.id);
        self.shared.catalogs.change(|catalog| {
            let state: &mut DatasetState = catalog.dataset_mut(&self.name)?;
            let known = id.and_then(|id| Some((id, state.indexes.get(&id)?)));
            // Another one may have been added since, which this one has not filled.
            let is_filled = |(id, known): &(u32, &IndexState)| {
                // Another process that resumes the addition has writers know it later.
                state.id == bound.state.id
                    && state.index_table(*id, known) == index.table
                    && known.since == index.since
            };
            let id = known.filter(is_filled).map(|(id, _)| id);
            let known = id.and_then(|id| state.indexes.get_mut(&id));
            let gone = || {
                let text = "another process has dropped the index meanwhile, or resumes it";
                Error::Busy(text.to_string())
            };
            known.ok_or_else(gone)?.is_ready = true;
            Ok(())
        })?;
        filled.complete = true;
        Ok(filled)
    }

    /// Waits until all writes from before a timestamp have ended; false if it was stopped.
    fn wait(&self, since: u64, progress: &mut OnIndex<'_>) -> Result<bool> {
        let end = crate::time::millis(since) + DEADLINE + 2 * CLOCK_BOUND;
        let begun = self.shared.cells.now()?;
        loop {
            let now = self.shared.cells.now()?;
            if now > end {
                return Ok(true);
            }
            let at = IndexProgress {
                step: IndexStep::Waiting,
                done: now.saturating_sub(begun),
                of: end.saturating_sub(begun),
            };
            if progress(at).is_break() {
                return Ok(false);
            }
            self.shared.clocks().sleep((end - now).clamp(1, 500));
        }
    }

    /// Passes the versions that count of a part.
    fn each_record(&self, bound: &Bound, part: u32, visit: &mut OnVersion<'_>) -> Result<()> {
        let mut mark: Option<Mark> = None;
        let mut pages = Pages::of(PAGE);
        let (mut key, mut seen, mut is_deleted) = (Vec::new(), 0, false);
        loop {
            let cells = &self.shared.cells;
            let page = cells.scan(&bound.data, part, mark.as_ref(), pages.rows(), false)?;
            pages.had_cells(&page.cells);
            for cell in page.cells {
                if cell.partition != key {
                    (seen, is_deleted) = (0, false);
                    key.clone_from(&cell.partition);
                }
                let version = Version::of(&cell.row)?;
                is_deleted |= version.is_deletion;
                if !is_deleted && seen < bound.versions() {
                    visit(&key, version, &cell.value)?;
                }
                seen += 1;
            }
            mark = page.next;
            if mark.is_none() {
                return Ok(());
            }
        }
    }
}

/// The definition of an index on a dataset.
fn index_def(bound: &Bound, path: Path, index: Index) -> Result<IndexDef> {
    if index.kind() != IndexKind::Composite {
        return Err(Error::Unsupported(format!(
            "an index of kind `{}` does not exist on a cluster: use `composite`",
            index.kind()
        )));
    }
    check_not_unique(&path, index.is_unique())?;
    check_not_compound(&path, index.type_of())?;
    let def = DatasetDef::new(bound.stored.key.clone(), bound.key_type()).index(path, index);
    def.validate()?;
    let mut indexes = def.indexes.into_iter();
    let missing = || Error::BadInput("an index has a path".to_string());
    indexes.next().ok_or_else(missing)
}

/// Fails for a record that does not fit the type of the attribute.
fn check_fit(bound: &Bound, attribute: &Attribute, key: &[u8], stored: &[u8]) -> Result<()> {
    let Some(record) = RecordRef::parse(stored) else {
        return Ok(());
    };
    let mut out = Extracted::default();
    let fits = attribute.values_of(&record, &mut out);
    fits.map(|_| ()).map_err(|error| {
        let key = Key::display(bound.key_type(), key);
        Error::BadInput(format!("the record of key {key} does not fit: {error}"))
    })
}
