//! A run: tables that do not overlap, by key or in the order of the tree's partitioner.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::sync::Arc;

use super::component::ComponentId;
use super::file::TableFile;
use super::partition::Partitioner;
use crate::coding::Own;
use crate::entry::Seq;

/// Tables that do not overlap: all entries of a key are in one of them.
#[derive(Clone)]
pub struct Run {
    /// The level that it is on.
    pub level: u32,
    /// Distinguishes the runs of a level. 0 in a level below level 0 that has one run only.
    pub number: u64,
    /// The tables, by their smallest key. Shared, so that a reader can pin a run in one step.
    pub tables: Arc<Vec<Arc<TableFile>>>,
    /// The order in which they are disjoint, if not that of keys.
    pub partitioner: Option<Arc<dyn Partitioner>>,
}

/// The sort key of the runs of a tree, newest first.
pub(crate) type RunPlace = (u32, Reverse<Seq>, Reverse<Seq>, Reverse<u64>);

impl Run {
    /// The position of a run with these numbers among those of its tree.
    pub(crate) fn place(level: u32, span: ComponentId, number: u64) -> RunPlace {
        (level, Reverse(span.max), Reverse(span.min), Reverse(number))
    }

    /// The span of the run's tables.
    pub fn component(&self) -> ComponentId {
        let none = ComponentId {
            min: Seq::MAX,
            max: 0,
        };
        self.tables
            .iter()
            .fold(none, |span, table| span.hull(table.component()))
    }

    /// Bytes of the run's files.
    pub fn size(&self) -> u64 {
        self.tables.iter().map(|table| table.meta().size).sum()
    }

    /// True when the tables ascend by key without overlap.
    pub fn is_by_key(&self) -> bool {
        self.partitioner.is_none()
    }

    /// In a run by key: the position of the first table whose largest key is at or after `key`.
    pub(crate) fn position(&self, key: &[u8]) -> usize {
        self.tables.partition_point(|table| table.ends_before(key))
    }

    /// The position of the table that may hold `key`. In a run by key a binary search; otherwise
    /// each table is checked.
    #[inline]
    pub(crate) fn position_of(&self, key: &[u8]) -> Option<usize> {
        let Some(partitioner) = &self.partitioner else {
            let at = self.position(key);
            return self.tables.get(at).filter(|t| t.covers(key)).map(|_| at);
        };
        let holds =
            |table: &Arc<TableFile>| table.covers(key) && partitioner.covers(table.bounds(), key);
        self.tables.iter().position(holds)
    }

    /// The table that may hold `key`.
    #[inline]
    pub fn table_for(&self, key: &[u8]) -> Option<&Arc<TableFile>> {
        self.tables.get(self.position_of(key)?)
    }

    /// The tables whose keys reach into `lo..=hi`, by their smallest key.
    pub fn between(&self, lo: &[u8], hi: &[u8]) -> impl Iterator<Item = &Arc<TableFile>> {
        let start = if self.is_by_key() {
            self.position(lo)
        } else {
            0
        };
        let tables = self.tables.own(start..).iter();
        tables
            .take_while(move |table| table.meta().smallest.as_slice() <= hi)
            .filter(move |table| table.meta().largest.as_slice() >= lo)
    }

    /// The run's tables that may share keys with any of `tables`, which belong to the same tree. In
    /// a run by key these are all between the least and the greatest key of `tables`.
    pub fn overlapped<'t>(
        &self,
        tables: impl Iterator<Item = &'t Arc<TableFile>> + Clone,
    ) -> Vec<Arc<TableFile>> {
        let Some(partitioner) = &self.partitioner else {
            let lo = tables.clone().map(|table| &table.meta().smallest).min();
            let hi = tables.map(|table| &table.meta().largest).max();
            let between = lo.zip(hi).map(|(lo, hi)| self.between(lo, hi).cloned());
            return between.into_iter().flatten().collect();
        };
        let overlaps = |own: &&Arc<TableFile>| {
            let mut tables = tables.clone();
            tables.any(|other| partitioner.overlap(own.bounds(), other.bounds()))
        };
        self.tables.iter().filter(overlaps).cloned().collect()
    }

    /// Where a table of the run stands in the order of turns of compactions: by its key, or as the
    /// partitioner says.
    pub fn turn<'t>(&self, table: &'t TableFile) -> Cow<'t, [u8]> {
        let partitioner = self.partitioner.as_ref();
        let turn = partitioner.and_then(|partitioner| partitioner.turn(table.bounds()));
        turn.map_or(Cow::Borrowed(&table.meta().smallest), Cow::Owned)
    }

    /// Sorts the tables, and returns an error where two of them overlap, or one has bounds of an
    /// unknown order.
    pub(super) fn normalise(&mut self) -> Result<(), String> {
        Arc::make_mut(&mut self.tables).sort_by(|a, b| a.meta().smallest.cmp(&b.meta().smallest));
        let id = self
            .partitioner
            .as_ref()
            .map(|partitioner| partitioner.id());
        for table in self.tables.iter() {
            let of = table
                .meta()
                .bounds
                .as_ref()
                .map(|bounds| bounds.partitioner);
            if of != id {
                let number = table.meta().number;
                return Err(match (of, id) {
                    (Some(of), _) => format!(
                        "table {number} was cut by partitioner {of}, which the tree does not have"
                    ),
                    (None, _) => format!("table {number} has no bounds, as its run must have"),
                });
            }
        }
        match self.overlap() {
            None => Ok(()),
            Some((a, b)) => Err(format!(
                "tables {} and {} of level {} overlap",
                a.meta().number,
                b.meta().number,
                self.level
            )),
        }
    }

    /// Two overlapping tables, if any; the tables are sorted.
    fn overlap(&self) -> Option<(&Arc<TableFile>, &Arc<TableFile>)> {
        let Some(partitioner) = &self.partitioner else {
            let mut pairs = self.tables.iter().zip(self.tables.iter().skip(1));
            return pairs.find(|(a, b)| a.meta().largest >= b.meta().smallest);
        };
        self.tables.iter().enumerate().find_map(|(at, a)| {
            let mut others = self.tables.iter().skip(at + 1);
            let b = others.find(|b| partitioner.overlap(a.bounds(), b.bounds()))?;
            Some((a, b))
        })
    }
}

/// True when tables of a tree do not overlap each other.
pub(crate) fn are_disjoint<'t>(
    tables: impl Iterator<Item = &'t Arc<TableFile>>,
    partitioner: Option<&Arc<dyn Partitioner>>,
) -> bool {
    let mut run = Run {
        level: 0,
        number: 0,
        tables: Arc::new(tables.cloned().collect()),
        partitioner: partitioner.cloned(),
    };
    run.normalise().is_ok()
}
