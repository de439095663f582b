//! About how much lies between two keys of a tree: from block indexes and, where these leave it
//! open, a few data blocks.
//!
//! An index knows the entries and the bytes of each block. Blocks that lie in the range from end to
//! end are counted by them; how much of a block is in the range in which it begins or ends, its
//! keys tell if they lie evenly. Where most of what may be there lies in such blocks (a rare value
//! is in a part of one block), the one of the largest run is read: what it has, the other runs have
//! in proportion to their sizes. If that is little beside what the blocks of other runs could have
//! (a value that is new), one of these is read as well. In a tree of lists an entry stands for many
//! units; what bytes a unit takes, the block shows, too.

use std::cell::Cell;
use std::sync::Arc;

pub use super::shares::{PartBefore, Sought};
use super::shares::{Share, share_of};
use super::{Component, Snapshot};
use crate::batch::TreeId;
use crate::cost::Cost;
use crate::cursor::Cursor;
use crate::entry::{Kind, MAX_SEQ, Seq, Timed};
use crate::error::Result;
use crate::memtable::Memtable;
use crate::table::{Amount, BlockHint, Edge, Table};
use crate::version::TableFile;

/// So few are as good as none.
const FEW: f64 = 10.0;

/// Entries of a memtable that are looked at, to see what an entry there stands for.
const SHOWN: usize = 32;

/// The same where of each key only the newest counts.
const SHOWN_KEYS: usize = 64;

/// Bytes of a unit in a list, and of the rest of an entry, before any was seen.
const UNIT_BYTES: f64 = 6.0;
const ENTRY_BYTES: f64 = 16.0;

/// The share that a single value has of the block that it lies in, before any was seen.
const SHARE_OF_ONE: f64 = 1.0 / 16.0;

/// The share of units that are not there to take others back, at least.
const LEAST_ADDED: f64 = 0.5;

/// The same of a value that a large run does not have, and the most that is expected of it.
const SHARE_OF_UNSEEN: f64 = 1.0 / 32.0;
const MOST_UNSEEN: f64 = 25.0;

/// A further run is looked into if the blocks of the others at the ends of the range have this many
/// times the units that are estimated of all runs.
const UNCLEAR: f64 = 8.0;

/// Units of which a mean is taken.
const MEAN_OF: u64 = 8;

/// What an entry stands for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Units {
    /// Those that count.
    pub counted: u64,
    /// All of them.
    pub all: u64,
    /// Bytes of the entry's value that these take.
    pub bytes: u64,
}

impl Units {
    fn add(&mut self, more: Units) {
        self.counted += more.counted;
        self.all += more.all;
        self.bytes += more.bytes;
    }
}

/// How the entries of a tree are counted.
pub trait Count {
    /// The units of an entry; of those that were written before `since` none counts.
    fn units(&self, since: Seq, seq: Seq, kind: Kind, value: &[u8]) -> Units;

    /// True where entries are lists, whose units follow from their bytes.
    fn is_of_lists(&self) -> bool {
        false
    }

    /// True where the newest entry of a key repeats what the older ones have.
    fn repeats(&self) -> bool {
        false
    }
}

/// Counts the entries that are not deletes.
pub struct Entries;

impl Count for Entries {
    fn units(&self, _since: Seq, _seq: Seq, kind: Kind, _value: &[u8]) -> Units {
        Units {
            counted: u64::from(kind != Kind::Delete),
            all: 1,
            bytes: 0,
        }
    }
}

/// How many data blocks may be read, and what those that were read have shown.
#[derive(Debug, Default)]
pub struct Looks {
    left: Cell<u32>,
    is_planning: Cell<bool>,
    /// The share that a single value had of its block.
    share: Cell<Option<f64>>,
}

impl Looks {
    /// So many blocks may be read for what comes now.
    pub fn renew(&self, blocks: u32) {
        self.is_planning.set(true);
        self.left.set(blocks);
        self.share.set(None);
    }

    /// Takes one of them, if one is left.
    pub fn take(&self) -> bool {
        let left = self.left.get();
        self.left.set(left.saturating_sub(1));
        left > 0
    }

    /// True where indexes are compared. Elsewhere metadata alone have to do.
    pub fn is_planning(&self) -> bool {
        self.is_planning.get()
    }

    /// True when none is left.
    fn is_over(&self) -> bool {
        self.left.get() == 0
    }
}

/// What units take in a list, and an entry besides.
#[derive(Clone, Copy)]
struct Model {
    is_of_lists: bool,
    unit: f64,
    entry: f64,
}

impl Model {
    fn units(&self, amount: Amount) -> f64 {
        let entries = amount.entries as f64;
        if self.is_of_lists {
            ((amount.bytes as f64 - entries * self.entry) / self.unit).max(entries)
        } else {
            entries
        }
    }
}

/// What a block that was read has.
struct Seen {
    /// Of the block.
    hint: BlockHint,
    table: Arc<Table>,
    entries: u64,
    block: Units,
    inside: Units,
}

/// The units of a run of which a block was read.
struct Known {
    at: usize,
    units: f64,
    /// How much it may have beside another run.
    weight: f64,
}

impl Seen {
    /// Of what there is enough of: what is in the range, or else all of the block.
    fn mean(&self) -> Units {
        if self.inside.all >= MEAN_OF {
            self.inside
        } else {
            self.block
        }
    }
}

impl Snapshot {
    /// About how many units of a tree lie in a range, in tables for which `meets` is true.
    ///
    /// # Errors
    /// What reading block indexes and blocks fails with.
    pub fn estimate(
        &self,
        tree: TreeId,
        sought: Sought<'_>,
        count: &dyn Count,
        meets: &dyn Fn(&TableFile) -> bool,
        (looks, cost): (&Looks, &Cost),
    ) -> Result<u64> {
        let components = self.components(tree);
        let (mut in_memory, mut shares) = (0.0, Vec::new());
        for (at, component) in components.iter().enumerate() {
            // What is older than this one has the rest.
            let since = components
                .get(at + 1)
                .map_or(0, |older| older.max_seq() + 1);
            match component {
                Component::Memtable(memtable) => {
                    in_memory += units_of_memtable(memtable, sought, count, since)?;
                }
                Component::Run(run) => {
                    let share = share_of(run, sought, since, meets, cost)?;
                    shares.extend(share);
                }
            }
        }
        let model = Model {
            is_of_lists: count.is_of_lists(),
            unit: UNIT_BYTES,
            entry: ENTRY_BYTES,
        };
        let estimate = Estimate {
            sought,
            count,
            looks,
            cost,
            in_memory,
            shares,
            model,
        };
        Ok((in_memory + estimate.of_runs()?).round() as u64)
    }
}

impl Snapshot {
    /// The share of the entries of a tree that have keys before this one, by the block indexes of
    /// its largest run.
    ///
    /// # Errors
    /// What reading block indexes fails with.
    pub fn rank(&self, tree: TreeId, key: &[u8], cost: &Cost) -> Result<f64> {
        let components = self.components(tree);
        let runs = components.iter().filter_map(|component| match component {
            Component::Memtable(_) => None,
            Component::Run(run) => Some(run),
        });
        let Some(run) = runs.max_by_key(|run| run.size()) else {
            return Ok(0.5);
        };
        let (mut before, mut all) = (0, 0);
        for file in run.tables.iter() {
            let meta = file.meta();
            all += meta.entries;
            before += match () {
                () if meta.largest.as_slice() < key => meta.entries,
                () if meta.smallest.as_slice() >= key => 0,
                () => {
                    let (from, to) = file.table()?.spanned(b"", Some(key), cost)?;
                    to.saturating_sub(from)
                }
            };
        }
        Ok(before as f64 / all.max(1) as f64)
    }
}

struct Estimate<'a> {
    sought: Sought<'a>,
    count: &'a dyn Count,
    looks: &'a Looks,
    cost: &'a Cost,
    in_memory: f64,
    shares: Vec<Share>,
    model: Model,
}

impl Estimate<'_> {
    fn of_runs(mut self) -> Result<f64> {
        let largest = self.largest();
        let seen = self.look(largest)?;
        if let Some(seen) = &seen {
            let mean = seen.mean();
            if self.model.is_of_lists && mean.all > 0 && mean.bytes > 0 {
                self.model.unit = mean.bytes as f64 / mean.all as f64;
                let rest = self.raw_of(seen).saturating_sub(seen.block.bytes);
                self.model.entry = rest as f64 / seen.entries.max(1) as f64;
            }
        }
        self.weigh_parts(seen.as_ref(), largest);
        let mut known = Vec::new();
        if let (Some(at), Some(seen)) = (largest, &seen) {
            known.extend(self.known(at, seen));
        }
        let mut estimated = self.sum(&known);
        while let Some(at) = self.unclear(&known, estimated)
            && let Some(share) = self.shares.get(at)
            && let Some(seen) = self.read_block(share)?
        {
            known.extend(self.known(at, &seen));
            estimated = self.sum(&known);
        }
        Ok(estimated)
    }

    /// What a block shows of the run at a place.
    fn known(&self, at: usize, seen: &Seen) -> Option<Known> {
        let share = self.shares.get(at)?;
        Some(Known {
            at,
            units: self.of_seen(share, seen),
            weight: self.weight(share).max(1.0),
        })
    }

    /// The units of all runs: those of the known ones, and of the others as the one that is nearest
    /// to them in size.
    fn sum(&self, known: &[Known]) -> f64 {
        let (mut sum, mut unseen) = (0.0, 0.0);
        for (at, share) in self.shares.iter().enumerate() {
            if let Some(of_this) = known.iter().find(|known| known.at == at) {
                sum += of_this.units;
                continue;
            }
            let weight = self.weight(share).max(1.0);
            let apart = |known: &Known| (known.weight / weight).max(weight / known.weight);
            let nearest = known.iter().min_by(|a, b| apart(a).total_cmp(&apart(b)));
            let is_elsewhere = share.whole.entries == 0 && self.sought.is_one;
            if nearest.is_some_and(|known| known.units <= 0.0) && is_elsewhere {
                // What such a run does not have may be new, or nowhere.
                unseen += self.most(share) * SHARE_OF_UNSEEN;
            } else {
                sum += self.of_unseen(share, nearest);
            }
        }
        sum + unseen.min(MOST_UNSEEN)
    }

    /// The units of the blocks of a run in which the range begins and ends.
    fn most(&self, share: &Share) -> f64 {
        let edges = share.edges.iter().map(|(_, edge)| edge.amount);
        edges.map(|amount| self.units(share, amount)).sum()
    }

    /// The next run to look into, if those that were not looked into may have many times what is
    /// estimated of all: values that are new, or much more frequent than before, are in the runs of
    /// the latest writes.
    fn unclear(&self, known: &[Known], estimated: f64) -> Option<usize> {
        if self.model.is_of_lists || known.is_empty() {
            return None;
        }
        let all = self.shares.iter().enumerate();
        let open = all.filter(|(at, share)| {
            share.whole.entries == 0 && known.iter().all(|known| known.at != *at)
        });
        let open: Vec<(usize, f64)> = open.map(|(at, share)| (at, self.most(share))).collect();
        let most: f64 = open.iter().map(|(_, most)| most).sum();
        if most < UNCLEAR * estimated.max(FEW) {
            return None;
        }
        let largest = open.iter().map(|(_, most)| *most).fold(0.0, f64::max);
        // The newest comes first.
        let (at, _) = open.iter().find(|(_, most)| *most >= largest / 2.0)?;
        Some(*at)
    }

    /// How much a run may have beside another one.
    fn weight(&self, share: &Share) -> f64 {
        if self.count.repeats() {
            share.writes
        } else {
            share.mass
        }
    }

    /// The run that a block is read of: a large one, in which much may be in the range.
    fn largest(&self) -> Option<usize> {
        let score = |share: &Share| {
            let edges = share
                .edges
                .iter()
                .map(|(_, edge)| self.model.units(edge.amount));
            let whole = if self.model.is_of_lists {
                self.model.units(share.whole)
            } else {
                0.0
            };
            self.weight(share) * (1.0 + whole + edges.sum::<f64>())
        };
        let all = self.shares.iter().enumerate();
        let largest = all.max_by(|(_, a), (_, b)| score(a).total_cmp(&score(b)));
        largest.map(|(at, _)| at)
    }

    /// Reads a block, if that is worth it.
    fn look(&self, largest: Option<usize>) -> Result<Option<Seen>> {
        let Some(share) = largest.and_then(|at| self.shares.get(at)) else {
            return Ok(None);
        };
        let (mut whole, mut edges) = (self.in_memory, 0.0);
        for share in &self.shares {
            whole += self.model.units(share.whole);
            let amounts = share.edges.iter().map(|(_, edge)| edge.amount);
            edges += amounts.map(|amount| self.model.units(amount)).sum::<f64>();
        }
        let is_open = edges > whole || self.model.is_of_lists;
        if !is_open || whole + edges <= FEW || self.looks.is_over() {
            return Ok(None);
        }
        self.read_block(share)
    }

    /// Reads a block of a run in which the range begins or ends, if one may still be read.
    fn read_block(&self, share: &Share) -> Result<Option<Seen>> {
        let by_share = share.edges.iter().enumerate();
        let widest = by_share.max_by(|(_, (_, a)), (_, (_, b))| a.share.total_cmp(&b.share));
        let chosen = match share.split {
            Some(split) => Some(usize::from(split < 0.5)),
            None => widest.map(|(at, _)| at),
        };
        let edge = chosen.and_then(|at| share.edges.get(at));
        let edge = edge.map(|(table, edge)| (table.clone(), edge.hint));
        let Some((table, hint)) = edge.or_else(|| share.first.clone()) else {
            return Ok(None);
        };
        if !self.looks.take() {
            return Ok(None);
        }
        let mut seen = Seen {
            hint,
            table,
            entries: 0,
            block: Units::default(),
            inside: Units::default(),
        };
        let mut entries = seen.table.block_entries(&hint, self.cost)?;
        while entries.advance()? {
            let (kind, value) = (entries.kind(), entries.value());
            let units = self.count.units(share.since, entries.seq(), kind, value);
            seen.entries += 1;
            seen.block.add(units);
            let key = entries.key();
            if key >= self.sought.lo && self.sought.hi.is_none_or(|hi| key < hi) {
                seen.inside.add(units);
            }
        }
        if self.sought.is_one && share.whole.entries == 0 {
            let share = seen.inside.all as f64 / seen.block.all.max(1) as f64;
            self.looks.share.set(Some(share));
        }
        Ok(Some(seen))
    }

    /// Bytes of the block that was read.
    fn raw_of(&self, seen: &Seen) -> u64 {
        let mut edges = self.shares.iter().flat_map(|share| &share.edges);
        let read = edges.find(|(table, edge)| is_of(seen, table, edge));
        match read {
            Some((_, edge)) => edge.amount.bytes,
            None => seen.block.bytes + seen.entries * ENTRY_BYTES as u64,
        }
    }

    /// Sets what share of the units of each run counts.
    fn weigh_parts(&mut self, seen: Option<&Seen>, largest: Option<usize>) {
        let of_seen = seen.map(Seen::mean).filter(|mean| mean.all > 0);
        let of_seen = of_seen.map(|mean| mean.counted as f64 / mean.all as f64);
        for (at, share) in self.shares.iter_mut().enumerate() {
            share.counted = match of_seen {
                // There is nothing to take back that was not added.
                Some(part) if share.since == 0 => part.max(LEAST_ADDED),
                Some(part) if largest == Some(at) => part,
                // The units of a run that it does not repeat are at most as many as the writes that
                // made it.
                _ if self.count.repeats() && share.since > 0 => {
                    let all = share.mass / self.model.unit;
                    (share.writes / all.max(1.0)).min(1.0)
                }
                Some(part) if share.puts >= 1.0 => part.max(LEAST_ADDED),
                _ => share.puts,
            };
        }
    }

    fn units(&self, share: &Share, amount: Amount) -> f64 {
        self.model.units(amount) * share.counted
    }

    /// The share of an edge that is in the range, as far as its keys tell.
    fn even(&self, edge: &Edge) -> f64 {
        if self.sought.is_one { 0.5 } else { edge.share }
    }

    /// The units of a run of which a block was read.
    fn of_seen(&self, share: &Share, seen: &Seen) -> f64 {
        let inside = seen.inside.counted as f64;
        let mut sum = self.units(share, share.whole);
        for (at, (table, edge)) in share.edges.iter().enumerate() {
            if is_of(seen, table, edge) {
                sum += inside;
                continue;
            }
            let all = self.units(share, edge.amount);
            sum += match share.split {
                Some(split) if inside > 0.0 => {
                    let part = if at == 0 { split } else { 1.0 - split };
                    (inside * part / (1.0 - part).max(0.01)).min(all)
                }
                // Where the larger part was expected is nothing.
                Some(_) => 0.0,
                None => self.even(edge) * all,
            };
        }
        sum
    }

    /// The units of a run of which no block was read: as those of a known one.
    fn of_unseen(&self, share: &Share, known: Option<&Known>) -> f64 {
        let whole = self.units(share, share.whole);
        let edges = share.edges.iter().map(|(_, edge)| {
            let all = self.units(share, edge.amount);
            (all, all * self.even(edge))
        });
        let (all, even) = edges.fold((0.0, 0.0), |sum, (all, even)| (sum.0 + all, sum.1 + even));
        if share.whole.entries > 0 {
            return whole + even;
        }
        match known {
            // A large entry, of what may be there: if it is anywhere, it is that.
            Some(known) if known.units > 0.0 && share.is_one_entry() => all,
            Some(known) => (known.units * self.weight(share) / known.weight).min(all),
            None if self.sought.is_one => all * self.looks.share.get().unwrap_or(SHARE_OF_ONE),
            None => even,
        }
    }
}

fn is_of(seen: &Seen, table: &Arc<Table>, edge: &Edge) -> bool {
    Arc::ptr_eq(table, &seen.table) && edge.hint == seen.hint
}

fn units_of_memtable(
    memtable: &Memtable,
    sought: Sought<'_>,
    count: &dyn Count,
    since: Seq,
) -> Result<f64> {
    if sought.key.is_some_and(|key| !memtable.may_contain(key)) {
        return Ok(0.0);
    }
    let mut cursor = memtable.cursor();
    let all = cursor.between(sought.lo, sought.hi) as f64;
    let most = if count.repeats() { SHOWN_KEYS } else { SHOWN };
    let (mut shown, mut units) = (0, Units::default());
    cursor.seek(sought.lo, MAX_SEQ)?;
    while cursor.valid() && sought.hi.is_none_or(|hi| cursor.key() < hi) {
        if shown == most {
            let part = if count.repeats() {
                cursor.between(sought.lo, Some(cursor.key()))
            } else {
                shown as u64
            };
            return Ok(units.counted as f64 * (all / part.max(1) as f64).max(1.0));
        }
        shown += 1;
        let (kind, _, value) = Timed::of(cursor.kind(), cursor.value());
        units.add(count.units(since, cursor.seq(), kind, value));
        if count.repeats() {
            let key = cursor.key().to_vec();
            cursor.seek(&key, 0)?;
        } else {
            cursor.next()?
        }
    }
    Ok(units.counted as f64)
}
