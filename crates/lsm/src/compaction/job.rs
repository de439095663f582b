//! Flush and compaction jobs: read entries, write tables, record them in an edit.

use std::sync::Arc;

use super::choice::check;
use super::context::{CompactionContext, READAHEAD};
use super::digests;
use super::expired;
use super::output::{Expected, Output, Written};
use super::pieces::{Between, Made};
use super::sets::read_set;
use crate::batch::check_limits;
use crate::cursor::Cursor;
use crate::entry::{Kind, MAX_SEQ, Seq, compare};
use crate::error::{Error, Result};
use crate::memtable::{MemCursor, Memtable};
use crate::merge::{MergeCursor, MergeStream, Rules};
use crate::obsolete::{ObsoleteWrites, SeqSet};
use crate::read::SourceCursor;
use crate::stats::Counters;
use crate::table::ReadOptions;
use crate::version::{
    Action, Choice, ComponentId, DropPolicy, Edit, NewTable, Run, RunCursor, TableAt, TableFile,
    TreeVersion, add_table, are_disjoint,
};
use esker_coding::{Own, Slice};

/// Consumes the entries of a run, in order: key, sequence number, kind, value.
pub type RunSink<'s> = dyn FnMut(&[u8], Seq, Kind, &[u8]) -> Result<()> + 's;

/// Produces the entries of a run into a sink.
pub type WriteRun<'w> = dyn FnMut(&mut RunSink<'_>) -> Result<()> + 'w;

impl CompactionContext<'_> {
    /// Writes one memtable of a full generation as a run of level 0 into `edit`. `older` are the
    /// tree's runs, all of them older than the memtable.
    pub(crate) fn flush(
        &self,
        tree: &TreeVersion,
        memtable: &Arc<Memtable>,
        component: ComponentId,
        edit: &mut Edit,
    ) -> Result<()> {
        let sources = vec![SourceCursor::memtable(memtable, None)];
        self.flush_from(tree, sources, memtable, component, edit)
    }

    /// As [`Self::flush`], for the entries up to `seq` of a memtable that still receives writes.
    pub(crate) fn flush_up_to(
        &self,
        tree: &TreeVersion,
        memtable: &Arc<Memtable>,
        seq: Seq,
        component: ComponentId,
        edit: &mut Edit,
    ) -> Result<()> {
        let sources = vec![UpTo(memtable.cursor(), seq)];
        self.flush_from(tree, sources, memtable, component, edit)
    }

    fn flush_from<C: Cursor>(
        &self,
        tree: &TreeVersion,
        sources: Vec<C>,
        memtable: &Memtable,
        component: ComponentId,
        edit: &mut Edit,
    ) -> Result<()> {
        if tree.options.bitmap {
            let set = read_set(tree, sources)?;
            let mut written = self.write_set(tree, &set, component)?;
            Counters::add(&self.counters.flush_bytes, written.bytes());
            written.bits = set;
            written.enter(edit, tree.id, 0, None, Some(component));
            return Ok(());
        }
        let more = self.is_ingesting || tree.options.incomplete;
        let is_oldest = |key: &[u8]| !more && !held_by(&tree.runs, key);
        let entries = memtable.len() as u64;
        let expected = Expected::of_memtable(tree, memtable)?;
        let made = self.make(tree, sources, &expected, &is_oldest)?;
        let written = self.note(tree, made, entries, component, edit)?;
        Counters::add(&self.counters.flush_bytes, written.bytes());
        written.enter(edit, tree.id, 0, None, Some(component));
        Ok(())
    }

    /// Executes a choice and records the result in `edit`. With `anew` the tables that it writes
    /// get digests of their own entries.
    pub(crate) fn merge(
        &self,
        tree: &TreeVersion,
        choice: &Choice,
        anew: bool,
        edit: &mut Edit,
    ) -> Result<()> {
        match choice.action {
            Action::Drop => expired::check(tree, choice, self.time)?,
            _ => check(tree, choice)?,
        }
        if let Some((level, key)) = &choice.cursor {
            edit.cursors.push((tree.id, *level, key.clone()));
        }
        edit.removed.extend(choice.tables().map(|table| TableAt {
            tree: tree.id,
            number: table.meta().number,
        }));
        if choice.action == Action::Drop {
            Counters::add(&self.counters.drops, choice.tables().count() as u64);
            return Ok(());
        }
        if let Action::Move { .. } = choice.action
            && !self.can_move(tree, choice)
        {
            let what = "a policy moves tables that overlap others, or must be rewritten";
            return Err(Error::Invalid(format!("tree {}: {what}", tree.name)));
        }
        let is_stale = || anew && digests::are_stale(tree, choice.tables());
        if self.should_move(tree, choice) && !is_stale() {
            self.move_tables(tree, choice, edit);
            return Ok(());
        }
        let options = ReadOptions {
            fill_cache: false,
            readahead: READAHEAD,
        };
        let cursor = |tables: Vec<_>| SourceCursor::Run(RunCursor::new(Arc::new(tables), options));
        let sources = || -> Vec<SourceCursor> {
            match tree.options.partitioner {
                None => {
                    let runs = choice.inputs.iter().filter(|run| !run.is_empty());
                    runs.map(|run| cursor(run.clone())).collect()
                }
                // The inputs overlap by key.
                Some(_) => choice
                    .tables()
                    .map(|table| cursor(vec![table.clone()]))
                    .collect(),
            }
        };
        let older = older_runs(tree, choice);
        let is_oldest = |key: &[u8]| !tree.options.incomplete && !held_by(older, key);
        let entries = choice.tables().map(|table| table.meta().entries).sum();
        let none = ComponentId {
            min: u64::MAX,
            max: 0,
        };
        let spans = choice.tables().map(|table| table.component());
        let component = spans.fold(none, ComponentId::hull);
        let written = if tree.options.bitmap {
            // Chunks of the same numbers are combined.
            let mut set = SeqSet::new();
            for table in choice.tables() {
                add_table(&mut set, table)?;
            }
            self.write_set(tree, &set, component)?
        } else {
            let of_target = tree.runs.iter().filter(|at| is_target(at, choice));
            let stays = of_target
                .flat_map(|run| run.tables.iter())
                .filter(|table| !choice.takes(table.meta().number))
                .cloned()
                .collect();
            let mut expected =
                Expected::of_tables(tree, choice.tables(), stays, self.options.block_size)?;
            expected.digest = digests::source(tree, choice.tables(), anew);
            let made = self.in_pieces(tree, choice, &|from, to| {
                let sources = sources();
                match (from, to) {
                    (None, None) => self.make(tree, sources, &expected, &is_oldest),
                    _ => {
                        let bound = |source| Between::new(source, from, to);
                        let sources = sources.into_iter().map(bound).collect();
                        self.make(tree, sources, &expected, &is_oldest)
                    }
                }
            })?;
            self.note(tree, made, entries, component, edit)?
        };
        Counters::add(&self.counters.merges, 1);
        Counters::add(&self.counters.merge_read_bytes, choice.size());
        Counters::add(&self.counters.merge_write_bytes, written.bytes());
        let (level, run) = choice.target();
        written.enter(edit, tree.id, level, run, Some(component));
        Ok(())
    }

    /// Moves the tables of a choice to its target, as they are.
    fn move_tables(&self, tree: &TreeVersion, choice: &Choice, edit: &mut Edit) {
        Counters::add(&self.counters.moves, choice.tables().count() as u64);
        let (level, run) = choice.target();
        let first = choice.tables().map(|table| table.meta().number).min();
        let run = run.or(first).unwrap_or(0);
        edit.added.extend(choice.tables().map(|table| NewTable {
            tree: tree.id,
            level,
            run,
            component: table.component(),
            meta: table.meta().clone(),
            place: table.place(),
        }));
    }

    /// Writes sorted input as a run of level 0 into `edit`.
    pub(crate) fn ingest<'e>(
        &self,
        tree: &TreeVersion,
        seq: Seq,
        entries: &mut dyn Iterator<Item = Result<(&'e [u8], &'e [u8])>>,
        edit: &mut Edit,
    ) -> Result<u64> {
        let mut output = Output::new(self, tree, &Expected::default());
        output.notes_bits = tree.options.bitmap;
        for entry in entries {
            let (key, value) = entry?;
            check_limits(key, value)?;
            if output.count > 0 && output.last_key.as_slice() >= key {
                return Err(Error::Invalid(format!(
                    "bulk load: entry {} is not above the one before it",
                    output.count + 1
                )));
            }
            output.add(key, seq, Kind::Put, value)?;
        }
        let count = output.count;
        let component = ComponentId { min: seq, max: seq };
        output
            .finish()?
            .enter(edit, tree.id, 0, None, Some(component));
        Ok(count)
    }

    /// Writes entries with their own sequence numbers, given in order, as a run of level 0 into
    /// `edit`. Returns their number.
    pub(crate) fn write_run(
        &self,
        tree: &TreeVersion,
        write: &mut WriteRun<'_>,
        edit: &mut Edit,
    ) -> Result<u64> {
        let mut output = Output::new(self, tree, &Expected::default());
        output.notes_bits = tree.options.bitmap;
        let mut last_seq = 0;
        write(&mut |key, seq, kind, value| {
            check_limits(key, value)?;
            let order = compare(&output.last_key, last_seq, key, seq);
            if (output.count > 0 && !order.is_lt()) || seq > MAX_SEQ {
                return Err(Error::Invalid(format!(
                    "bulk load: entry {} is out of order",
                    output.count + 1
                )));
            }
            last_seq = seq;
            output.add(key, seq, kind, value)
        })?;
        let count = output.count;
        output.finish()?.enter(edit, tree.id, 0, None, None);
        Ok(count)
    }

    /// Rewrites one table with the tree's current options; `edit` replaces it in place.
    pub(crate) fn rewrite(
        &self,
        tree: &TreeVersion,
        run: &Run,
        table: &Arc<TableFile>,
        edit: &mut Edit,
    ) -> Result<()> {
        let options = ReadOptions {
            fill_cache: false,
            readahead: READAHEAD,
        };
        let mut entries = RunCursor::new(Arc::new(vec![table.clone()]), options);
        let others = run.tables.iter().filter(|other| !Arc::ptr_eq(other, table));
        let others = others.cloned().collect();
        let expected =
            Expected::of_tables(tree, [table].into_iter(), others, self.options.block_size)?;
        let mut output = Output::new(self, tree, &expected);
        entries.seek_first()?;
        while entries.valid() {
            output.add(
                entries.key(),
                entries.seq(),
                entries.kind(),
                entries.value(),
            )?;
            entries.next()?;
        }
        let written = output.finish()?;
        Counters::add(&self.counters.merge_read_bytes, table.meta().size);
        Counters::add(&self.counters.merge_write_bytes, written.bytes());
        edit.removed.push(TableAt {
            tree: tree.id,
            number: table.meta().number,
        });
        let component = Some(table.component());
        written.enter(edit, tree.id, run.level, Some(run.number), component);
        Ok(())
    }

    /// True when the inputs can be moved without a rewrite: no entry needs a decision, and they
    /// overlap neither the target level nor each other.
    fn can_move(&self, tree: &TreeVersion, choice: &Choice) -> bool {
        let filter = tree.options.filter.as_ref();
        let needs_filter = filter.is_some_and(|filter| !filter.may_be_skipped());
        let partitioner = tree.options.partitioner.as_ref();
        // Overlaps with other tables there were checked with the choice.
        !needs_filter && !tree.options.bitmap && are_disjoint(choice.tables(), partitioner)
    }

    /// True when a compaction would only rewrite the same entries. Small tables are rewritten
    /// anyway, so that they do not pile up.
    fn should_move(&self, tree: &TreeVersion, choice: &Choice) -> bool {
        if let Action::Move { .. } = choice.action {
            return true;
        }
        if choice.target().0 == 0 {
            return false;
        }
        let small = |table: &Arc<TableFile>| table.meta().size < self.options.table_size / 16;
        let expired = |table: &Arc<TableFile>| {
            let expiry = table.meta().expiry;
            expiry.is_some_and(|expiry| expiry.min <= self.time)
        };
        if choice.tables().any(expired) {
            return false;
        }
        let small = choice.tables().count() > 1 && choice.tables().any(small);
        let stays = |at: &Run| {
            at.tables
                .iter()
                .any(|table| choice.takes(table.meta().number))
        };
        let stays = tree
            .runs
            .iter()
            .any(|at| is_target(at, choice) && stays(at));
        !small && !stays && self.can_move(tree, choice)
    }

    /// Merges the sources into tables.
    fn make<C: Cursor>(
        &self,
        tree: &TreeVersion,
        sources: Vec<C>,
        expected: &Expected,
        is_oldest: &dyn Fn(&[u8]) -> bool,
    ) -> Result<Made> {
        let mut input = MergeCursor::new(sources);
        input.seek_first()?;
        let obsolete = self.obsolete_writes(tree);
        let mut reported = SeqSet::new();
        let by = tree.options.superseded.as_ref();
        let drop_policy = by.map_or(DropPolicy::Silent, |by| by.drop_policy);
        let bitmap = by.and_then(|by| self.version.tree_named(&by.tree));
        let filter = tree.options.filter.as_ref();
        let rules = Rules {
            operator: tree.options.operator.clone(),
            filter: filter.map(|filter| filter.begin(&obsolete)),
            versions: tree.options.versions,
            is_oldest,
            // In a tree with a compaction filter an entry may hold many index entries: the filter
            // decides.
            obsolete: if filter.is_some() {
                ObsoleteWrites::default()
            } else {
                obsolete
            },
            reported: (drop_policy == DropPolicy::Record).then_some(&mut reported),
            repaired: match (drop_policy, bitmap) {
                (DropPolicy::KeepUntilRepaired, Some(bitmap)) => bitmap.repair_watermark(),
                _ => MAX_SEQ,
            },
            now: self.time,
        };
        let mut output = Output::new(self, tree, expected);
        MergeStream::new(input, rules)
            .run(&mut |key, seq, kind, value| output.add(key, seq, kind, value))?;
        let count = output.count;
        let written = output.finish()?;
        Ok(Made {
            written,
            reported,
            count,
        })
    }

    /// Records the result of a flush or compaction in `edit`, except for its tables. On failure
    /// their files are removed, because no edit knows them yet.
    fn note(
        &self,
        tree: &TreeVersion,
        made: Made,
        entries_in: u64,
        component: ComponentId,
        edit: &mut Edit,
    ) -> Result<Written> {
        let Made {
            written,
            reported,
            count,
        } = made;
        let dropped = entries_in.saturating_sub(count);
        Counters::add(&self.counters.entries_dropped, dropped);
        if self.applies_set(tree) {
            let numbers = written.tables.iter().map(|(meta, _)| meta.number);
            let saw = self.version.ordinal();
            edit.saw.extend(numbers.map(|number| (number, saw)));
        }
        self.report(tree, &reported, component, edit)
            .inspect_err(|_| written.remove(self.source))?;
        Ok(written)
    }
}

/// The entries of a memtable up to a sequence number.
struct UpTo(MemCursor, Seq);

impl UpTo {
    fn skip_newer(&mut self, step: fn(&mut MemCursor) -> Result<()>) -> Result<()> {
        while self.0.valid() && self.0.seq() > self.1 {
            step(&mut self.0)?;
        }
        Ok(())
    }
}

impl Cursor for UpTo {
    fn valid(&self) -> bool {
        self.0.valid()
    }
    fn key(&self) -> &[u8] {
        self.0.key()
    }
    fn seq(&self) -> Seq {
        self.0.seq()
    }
    fn kind(&self) -> Kind {
        self.0.kind()
    }
    fn value(&self) -> &[u8] {
        self.0.value()
    }
    fn value_slice(&self) -> Slice {
        self.0.value_slice()
    }
    fn seek_first(&mut self) -> Result<()> {
        self.0.seek_first()?;
        self.skip_newer(MemCursor::next)
    }
    fn seek_last(&mut self) -> Result<()> {
        self.0.seek_last()?;
        self.skip_newer(MemCursor::prev)
    }
    fn seek(&mut self, key: &[u8], seq: Seq) -> Result<()> {
        self.0.seek(key, seq.min(self.1))?;
        self.skip_newer(MemCursor::next)
    }
    fn next(&mut self) -> Result<()> {
        self.0.next()?;
        self.skip_newer(MemCursor::next)
    }
    fn prev(&mut self) -> Result<()> {
        self.0.prev()?;
        self.skip_newer(MemCursor::prev)
    }
}

/// True for the target run of a choice.
fn is_target(run: &Run, choice: &Choice) -> bool {
    (run.level, Some(run.number)) == choice.target()
}

/// True when any of the runs may hold `key`.
fn held_by(runs: &[Run], key: &[u8]) -> bool {
    runs.iter().any(|run| run.table_for(key).is_some())
}

/// The runs that are older than all inputs of a choice.
fn older_runs<'t>(tree: &'t TreeVersion, choice: &Choice) -> &'t [Run] {
    let is_of = |run: &Run| {
        run.tables
            .iter()
            .any(|table| choice.takes(table.meta().number))
    };
    let oldest = tree.runs.iter().rposition(is_of);
    tree.runs.own(oldest.map_or(0, |at| at + 1)..)
}
