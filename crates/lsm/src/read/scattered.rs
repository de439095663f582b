//! Estimates of what lies in an area: in many ranges of keys, of which each has a few blocks.

use std::sync::Arc;

use super::estimate::{Looks, SHOWN};
use super::{Component, Snapshot};
use crate::batch::TreeId;
use crate::cost::Cost;
use crate::cursor::Cursor;
use crate::entry::{Kind, MAX_SEQ, Timed};
use crate::error::Result;
use crate::memtable::Memtable;
use crate::table::{Edge, KeyRange, Table};
use crate::version::{Run, TableFile};

/// The share of blocks above which it does not matter how keys lie in them.
const WELL_SPREAD: f64 = 0.5;

/// Entries of which so many more or less say nothing.
const DOUBT: f64 = 3.0;

/// What lies in several ranges, where keys do not tell all: in a tree of points, those in an area.
#[derive(Clone, Copy)]
pub struct Scattered<'a> {
    /// The ranges, ascending and without overlap.
    pub ranges: &'a [KeyRange<'a>],
    /// True of the keys that are sought, of those in the ranges.
    pub inside: &'a dyn Fn(&[u8]) -> bool,
    /// True for tables that may have some.
    pub meets: &'a dyn Fn(&TableFile) -> bool,
}

impl Snapshot {
    /// About how many entries of a tree, deletes not counted, lie in some ranges. As there are many of them, blocks are in parts in
    /// them: by how their keys lie, and as the one block shows that is read.
    ///
    /// # Errors
    /// What reading block indexes and blocks fails with.
    pub fn estimate_scattered(
        &self,
        tree: TreeId,
        sought: Scattered<'_>,
        (looks, cost): (&Looks, &Cost),
    ) -> Result<u64> {
        let (mut in_memory, mut parts) = (0.0, Vec::new());
        for component in self.components(tree) {
            match component {
                Component::Memtable(memtable) => {
                    in_memory += scattered_in_memtable(&memtable, sought)?;
                }
                Component::Run(run) => parts.push(scattered_in_run(&run, sought, cost)?),
            }
        }
        let (mut sum, mut all) = (in_memory, 0.0);
        for part in &parts {
            sum += part.whole;
            all += part.even();
        }
        // The largest run has the most of what lies anywhere.
        parts.sort_by(|a, b| b.mass.total_cmp(&a.mass));
        let open = parts.iter().position(|part| !part.edges.is_empty());
        let chosen = open.and_then(|at| parts.get(at));
        let most = chosen.and_then(Scatter::most);
        let (Some(chosen), Some((table, edge))) = (chosen, most) else {
            return Ok(sum.round() as u64);
        };
        let entries: u64 = (parts.iter().flat_map(|part| &part.edges))
            .map(|(_, edge)| edge.amount.entries)
            .sum();
        if entries as f64 <= sum || sum + all > WELL_SPREAD * entries as f64 || !looks.take() {
            return Ok((sum + all).round() as u64);
        }
        let counted = scattered_in_block(table, edge, sought, cost)? as f64;
        let even = units_of(edge);
        // Some more of each: little in the block does not tell much of the others.
        let ratio = (counted + DOUBT) / (even + DOUBT);
        let of_chosen = counted + (chosen.even() - even) * ratio;
        let mut sum = in_memory;
        for part in &parts {
            let entries: u64 = part.edges.iter().map(|(_, edge)| edge.amount.entries).sum();
            sum += part.whole;
            sum += match std::ptr::eq(part, chosen) {
                true => of_chosen.min(entries as f64),
                false if part.whole > 0.0 => part.even(),
                false => (of_chosen * part.mass / chosen.mass.max(1.0)).min(entries as f64),
            };
        }
        Ok(sum.round() as u64)
    }
}

/// What a run has of some ranges.
struct Scatter {
    /// Bytes of its files.
    mass: f64,
    /// Entries of blocks that are in a range from end to end.
    whole: f64,
    /// The other blocks, each once.
    edges: Vec<(Arc<Table>, Edge)>,
}

impl Scatter {
    /// The entries of edges, if keys lie evenly.
    fn even(&self) -> f64 {
        self.edges.iter().map(|(_, edge)| units_of(edge)).sum()
    }

    /// The edge that has the most of them.
    fn most(&self) -> Option<&(Arc<Table>, Edge)> {
        let units = |(_, edge): &(Arc<Table>, Edge)| units_of(edge);
        self.edges
            .iter()
            .max_by(|a, b| units(a).total_cmp(&units(b)))
    }
}

fn units_of(edge: &Edge) -> f64 {
    edge.amount.entries as f64 * edge.share
}

fn scattered_in_run(run: &Run, sought: Scattered<'_>, cost: &Cost) -> Result<Scatter> {
    let mut part = Scatter {
        mass: run.size() as f64,
        whole: 0.0,
        edges: Vec::new(),
    };
    for file in run.tables.iter().filter(|file| (sought.meets)(file)) {
        let meta = file.meta();
        let puts = 1.0 - meta.deletes as f64 / meta.entries.max(1) as f64;
        for (lo, hi) in sought.ranges {
            let apart = hi.is_some_and(|hi| meta.smallest.as_slice() >= hi);
            if apart || meta.largest.as_slice() < *lo {
                continue;
            }
            let table = file.table()?;
            let extent = table.extent(lo, *hi, cost)?;
            part.whole += extent.whole.entries as f64 * puts;
            for mut edge in extent.edges {
                edge.share *= puts;
                match part.edges.last_mut() {
                    Some((of, last)) if Arc::ptr_eq(of, table) && last.hint == edge.hint => {
                        last.share = (last.share + edge.share).min(1.0);
                    }
                    _ => part.edges.push((table.clone(), edge)),
                }
            }
        }
    }
    Ok(part)
}

fn scattered_in_block(
    table: &Table,
    edge: &Edge,
    sought: Scattered<'_>,
    cost: &Cost,
) -> Result<u64> {
    let mut counted = 0;
    let mut entries = table.block_entries(&edge.hint, cost)?;
    while entries.advance()? {
        let key = entries.key();
        let ended = |(_, hi): &KeyRange<'_>| hi.is_some_and(|hi| hi <= key);
        let next = sought.ranges.get(sought.ranges.partition_point(ended));
        let is_in = next.is_some_and(|(lo, _)| *lo <= key) && (sought.inside)(key);
        counted += u64::from(is_in && entries.kind() != Kind::Delete);
    }
    Ok(counted)
}

fn scattered_in_memtable(memtable: &Memtable, sought: Scattered<'_>) -> Result<f64> {
    let mut cursor = memtable.cursor();
    let (mut all, mut shown, mut inside) = (0.0, 0, 0);
    for (lo, hi) in sought.ranges {
        let most = shown + SHOWN;
        all += cursor.between(lo, *hi) as f64;
        cursor.seek(lo, MAX_SEQ)?;
        while shown < most && cursor.valid() && hi.is_none_or(|hi| cursor.key() < hi) {
            let is_put = Timed::of(cursor.kind(), cursor.value()).0 != Kind::Delete;
            inside += u64::from(is_put && (sought.inside)(cursor.key()));
            shown += 1;
            cursor.next()?;
        }
    }
    Ok(all * inside as f64 / shown.max(1) as f64)
}
