//! Carrying out a flush or a merge: entries in, tables out.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::Choice;
use crate::batch::check_limits;
use crate::cursor::Cursor;
use crate::entry::{Kind, MAX_SEQ, Seq, compare};
use crate::error::{Error, Result};
use crate::memtable::{MemCursor, Memtable};
use crate::merge::{MergeCursor, MergeStream, Rules};
use crate::obsolete::{self, Over, SeqSet};
use crate::options::{BitmapMerges, LeavesOut, Options};
use crate::read::SourceCursor;
use crate::slice::Slice;
use crate::stats::Counters;
use crate::table::{ReadOptions, TableBuilder, TableMeta, TableOptions};
use crate::version::{
    ComponentId, Edit, NewTable, Run, RunCursor, TableAt, TableFile, TableSource, TreeVersion,
    Version, add_table,
};

/// Bytes that a merge reads ahead from each of its runs.
const READAHEAD: usize = 256 << 10;

/// What jobs of a group share.
pub(crate) struct Workshop<'a> {
    pub(crate) source: &'a TableSource,
    pub(crate) options: &'a Options,
    pub(crate) counters: &'a Counters,
    /// Hands out file numbers.
    pub(crate) next_file: &'a dyn Fn() -> u64,
    /// Set when the group is closing: a merge gives up.
    pub(crate) closing: &'a AtomicBool,
    /// Set while a bulk load is under way, which will put a run below what is flushed meanwhile.
    pub(crate) ingesting: &'a AtomicBool,
    /// The version as it was when the job began, and as it is.
    pub(crate) version: Arc<Version>,
    pub(crate) now: Arc<dyn Fn() -> Arc<Version> + Send + Sync>,
}

/// Takes the entries of a run, in order: key, sequence number, kind, value.
pub type RunSink<'s> = dyn FnMut(&[u8], Seq, Kind, &[u8]) -> Result<()> + 's;

/// Gives the entries of a run to a sink.
pub type WriteRun<'w> = dyn FnMut(&mut RunSink<'_>) -> Result<()> + 'w;

/// Tables that a job wrote and nobody uses yet: removed again unless they are installed.
struct Unused<'a> {
    source: &'a TableSource,
    numbers: Vec<u64>,
}

impl Drop for Unused<'_> {
    fn drop(&mut self) {
        for number in &self.numbers {
            let _ = self.source.fs.remove(&self.source.path(*number));
        }
    }
}

impl Workshop<'_> {
    /// Writes one memtable of a full generation as a run of level 0 into `edit`. `older` are the
    /// tree's runs, all of them older than the memtable.
    pub(crate) fn flush(
        &self,
        tree: &TreeVersion,
        memtable: &Arc<Memtable>,
        component: ComponentId,
        edit: &mut Edit,
    ) -> Result<()> {
        let sources = vec![SourceCursor::Memtable(memtable.cursor())];
        self.flush_from(tree, sources, memtable, component, edit)
    }

    /// The same of the entries up to `seq`: of a memtable that is still written to.
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
            let written = self.flush_set(tree, sources, component, edit)?;
            Counters::add(&self.counters.flush_bytes, written);
            return Ok(());
        }
        let ingesting = self.ingesting.load(Ordering::SeqCst);
        let more = ingesting || tree.options.incomplete;
        let is_oldest = |key: &[u8]| !more && !held_by(&tree.runs, key);
        let entries = memtable.len() as u64;
        let metas = self.write(tree, sources, &is_oldest, entries, component, edit)?;
        Counters::add(
            &self.counters.flush_bytes,
            metas.iter().map(|meta| meta.size).sum(),
        );
        let run = metas.first().map_or(0, |meta| meta.number);
        edit.added.extend(metas.into_iter().map(|meta| NewTable {
            tree: tree.id,
            level: 0,
            run,
            component,
            meta,
        }));
        Ok(())
    }

    /// Carries out a choice, into `edit`.
    pub(crate) fn merge(&self, tree: &TreeVersion, choice: &Choice, edit: &mut Edit) -> Result<()> {
        if let Some((level, key)) = &choice.cursor {
            edit.cursors.push((tree.id, *level, key.clone()));
        }
        for table in &choice.inputs {
            edit.removed.push(TableAt {
                tree: tree.id,
                number: table.meta().number,
            });
        }
        if self.can_move(tree, choice) {
            Counters::add(&self.counters.moves, choice.inputs.len() as u64);
            edit.added
                .extend(choice.inputs.iter().map(|table| NewTable {
                    tree: tree.id,
                    level: choice.level,
                    run: 0,
                    component: table.component(),
                    meta: table.meta().clone(),
                }));
            return Ok(());
        }
        let options = ReadOptions {
            fill_cache: false,
            readahead: READAHEAD,
        };
        let runs = choice.runs.iter().filter(|run| !run.is_empty());
        let sources: Vec<SourceCursor> = runs
            .map(|run| SourceCursor::Run(RunCursor::new(Arc::new(run.clone()), options)))
            .collect();
        let older = older_runs(tree, choice);
        let is_oldest = |key: &[u8]| !tree.options.incomplete && !held_by(older, key);
        let entries = choice.inputs.iter().map(|table| table.meta().entries).sum();
        let none = ComponentId {
            min: u64::MAX,
            max: 0,
        };
        let spans = choice.inputs.iter().map(|table| table.component());
        let component = spans.fold(none, ComponentId::hull);
        if tree.options.bitmap {
            return self.merge_set(tree, choice, component, edit);
        }
        let metas = self.write(tree, sources, &is_oldest, entries, component, edit)?;
        Counters::add(&self.counters.merges, 1);
        Counters::add(&self.counters.merge_read_bytes, choice.size());
        Counters::add(
            &self.counters.merge_write_bytes,
            metas.iter().map(|meta| meta.size).sum(),
        );
        let run = if choice.level == 0 {
            metas.first().map_or(0, |meta| meta.number)
        } else {
            0
        };
        edit.added.extend(metas.into_iter().map(|meta| NewTable {
            tree: tree.id,
            level: choice.level,
            run,
            component,
            meta,
        }));
        Ok(())
    }

    /// Writes sorted input as a run of level 0 into `edit`.
    pub(crate) fn ingest<'e>(
        &self,
        tree: &TreeVersion,
        seq: Seq,
        entries: &mut dyn Iterator<Item = Result<(&'e [u8], &'e [u8])>>,
        edit: &mut Edit,
    ) -> Result<u64> {
        let mut output = Output::new(self, tree);
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
        let metas = output.finish()?;
        let run = metas.first().map_or(0, |meta| meta.number);
        let component = ComponentId { min: seq, max: seq };
        edit.added.extend(metas.into_iter().map(|meta| NewTable {
            tree: tree.id,
            level: 0,
            run,
            component,
            meta,
        }));
        Ok(count)
    }

    /// Writes entries that come in order, with sequence numbers of their own, as a run of level 0
    /// into `edit`. Returns how many.
    pub(crate) fn write_run(
        &self,
        tree: &TreeVersion,
        write: &mut WriteRun<'_>,
        edit: &mut Edit,
    ) -> Result<u64> {
        let mut output = Output::new(self, tree);
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
        let metas = output.finish()?;
        let run = metas.first().map_or(0, |meta| meta.number);
        let component = ComponentId {
            min: metas.iter().map(|meta| meta.min_seq).min().unwrap_or(0),
            max: metas.iter().map(|meta| meta.max_seq).max().unwrap_or(0),
        };
        edit.added.extend(metas.into_iter().map(|meta| NewTable {
            tree: tree.id,
            level: 0,
            run,
            component,
            meta,
        }));
        Ok(count)
    }

    /// Writes the entries of one table again, with the tree's options of now, in its place into
    /// `edit`.
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
        let mut output = Output::new(self, tree);
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
        let metas = output.finish()?;
        let written = metas.iter().map(|meta| meta.size).sum();
        Counters::add(&self.counters.merge_read_bytes, table.meta().size);
        Counters::add(&self.counters.merge_write_bytes, written);
        edit.removed.push(TableAt {
            tree: tree.id,
            number: table.meta().number,
        });
        edit.added.extend(metas.into_iter().map(|meta| NewTable {
            tree: tree.id,
            level: run.level,
            run: run.number,
            component: table.component(),
            meta,
        }));
        Ok(())
    }

    /// True when the inputs can go down as they are: they overlap nothing, and each other neither.
    /// Small tables are rewritten all the same, so that they do not pile up.
    fn can_move(&self, tree: &TreeVersion, choice: &Choice) -> bool {
        let filter = tree.options.filter.as_ref();
        let must_judge = filter.is_some_and(|filter| !filter.may_be_passed_over());
        if choice.level == 0 || tree.options.observer.is_some() || must_judge {
            return false;
        }
        let small = choice.inputs.len() > 1
            && choice
                .inputs
                .iter()
                .any(|table| table.meta().size < self.options.table_size / 16);
        let stays = |number: u64| {
            let same = |run: &Run| run.level == choice.level;
            tree.runs
                .iter()
                .any(|run| same(run) && run.tables.iter().any(|t| t.meta().number == number))
        };
        if small || choice.inputs.iter().any(|table| stays(table.meta().number)) {
            return false;
        }
        let mut tables: Vec<_> = choice.inputs.iter().map(|table| table.meta()).collect();
        tables.sort_by(|a, b| a.smallest.cmp(&b.smallest));
        tables
            .windows(2)
            .all(|pair| matches!(pair, [a, b] if a.largest < b.smallest))
    }

    fn write<C: Cursor>(
        &self,
        tree: &TreeVersion,
        sources: Vec<C>,
        is_oldest: &dyn Fn(&[u8]) -> bool,
        entries_in: u64,
        component: ComponentId,
        edit: &mut Edit,
    ) -> Result<Vec<TableMeta>> {
        let mut input = MergeCursor::new(sources);
        input.seek_first()?;
        let over = self.over(tree);
        let mut told = SeqSet::new();
        let by = tree.options.superseded.as_ref();
        let leaves_out = by.map_or(LeavesOut::Silently, |by| by.leaves_out);
        let bitmap = by.and_then(|by| self.version.tree_named(&by.tree));
        let filter = tree.options.filter.as_ref();
        let rules = Rules {
            operator: tree.options.operator.clone(),
            judge: filter.map(|filter| filter.begin(&over)),
            observer: tree.options.observer.clone(),
            versions: tree.options.versions,
            is_oldest,
            // A tree with a filter may have entries of many facts: it is for the filter to judge them.
            over: if filter.is_some() {
                Over::default()
            } else {
                over
            },
            told: (leaves_out == LeavesOut::Told).then_some(&mut told),
            repaired: match (leaves_out, bitmap) {
                (LeavesOut::Repaired, Some(bitmap)) => bitmap.mark(),
                _ => MAX_SEQ,
            },
        };
        let mut output = Output::new(self, tree);
        MergeStream::new(input, rules)
            .run(&mut |key, seq, kind, value| output.add(key, seq, kind, value))?;
        Counters::add(
            &self.counters.entries_dropped,
            entries_in.saturating_sub(output.count),
        );
        let metas = output.finish()?;
        if self.applies_set(tree) {
            let saw = |meta: &TableMeta| (meta.number, self.version.ordinal());
            edit.saw.extend(metas.iter().map(saw));
        }
        self.tell(tree, &told, component, edit)?;
        Ok(metas)
    }

    /// Which writes to `tree` are over.
    fn over(&self, tree: &TreeVersion) -> Over {
        let Some(by) = &tree.options.superseded else {
            return Over::default();
        };
        if by.leaves_out == LeavesOut::Regardless {
            return Over::default();
        }
        let bitmap = self.version.tree_named(&by.tree);
        Over(bitmap.map(|bitmap| match self.options.bitmap_merges {
            BitmapMerges::SideFile => obsolete::Source::Pinned(bitmap.bitmap().clone()),
            BitmapMerges::Lock => {
                let (now, id) = (self.now.clone(), bitmap.id);
                let bitmap = move || now().trees.get(&id).map(|tree| tree.bitmap().clone());
                obsolete::Source::Live(Arc::new(move || bitmap().unwrap_or_default()))
            }
        }))
    }

    /// Writes the numbers that a flush or merge of `tree` left out into the tree's bitmap tree, as a
    /// part of the same edit: they are there when, and only when, the puts are gone.
    fn tell(
        &self,
        tree: &TreeVersion,
        told: &SeqSet,
        component: ComponentId,
        edit: &mut Edit,
    ) -> Result<()> {
        let by = tree.options.superseded.as_ref();
        let bitmap = by.and_then(|by| self.version.tree_named(&by.tree));
        let Some(bitmap) = bitmap.filter(|_| !told.is_empty()) else {
            return Ok(());
        };
        self.write_set(bitmap, told, component, edit).map(|_| ())
    }

    /// True when what flushes and merges of a tree write has nothing of any write that is in its set.
    fn applies_set(&self, tree: &TreeVersion) -> bool {
        let Some(by) = &tree.options.superseded else {
            return false;
        };
        let leaves_out = match &tree.options.filter {
            Some(filter) => filter.leaves_out() && by.leaves_out != LeavesOut::Repaired,
            None => by.leaves_out != LeavesOut::Regardless,
        };
        leaves_out && self.version.tree_named(&by.tree).is_some()
    }

    /// Writes what a memtable of a bitmap tree holds as chunks. Returns how many bytes.
    fn flush_set<C: Cursor>(
        &self,
        tree: &TreeVersion,
        sources: Vec<C>,
        component: ComponentId,
        edit: &mut Edit,
    ) -> Result<u64> {
        let mut set = SeqSet::new();
        for mut source in sources {
            source.seek_first()?;
            while source.valid() {
                obsolete::decode(source.key(), source.value(), &mut set)
                    .map_err(|what| Error::Invalid(format!("tree {}: {what}", tree.name)))?;
                source.next()?;
            }
        }
        self.write_set(tree, &set, component, edit)
    }

    /// Merges runs of a bitmap tree: chunks of the same numbers become one.
    fn merge_set(
        &self,
        tree: &TreeVersion,
        choice: &Choice,
        component: ComponentId,
        edit: &mut Edit,
    ) -> Result<()> {
        let mut set = SeqSet::new();
        for table in &choice.inputs {
            add_table(&mut set, table)?;
        }
        let written = self.write_set(tree, &set, component, edit)?;
        Counters::add(&self.counters.merges, 1);
        Counters::add(&self.counters.merge_read_bytes, choice.size());
        Counters::add(&self.counters.merge_write_bytes, written);
        Ok(())
    }

    /// Writes ascending numbers as a run of a bitmap tree into `edit`. `component` spans the writes
    /// that made them.
    pub(crate) fn write_bits(
        &self,
        bitmap: &TreeVersion,
        numbers: &mut dyn Iterator<Item = Result<Seq>>,
        component: ComponentId,
        edit: &mut Edit,
    ) -> Result<()> {
        let mut set = SeqSet::new();
        for seq in numbers {
            set.insert(seq?);
        }
        self.write_set(bitmap, &set, component, edit).map(|_| ())
    }

    /// Writes a set as a run of a bitmap tree into `edit`. Returns how many bytes.
    pub(crate) fn write_set(
        &self,
        bitmap: &TreeVersion,
        set: &SeqSet,
        component: ComponentId,
        edit: &mut Edit,
    ) -> Result<u64> {
        let mut output = Output::new(self, bitmap);
        obsolete::encode(set, &mut |key, value| {
            output.add(key, component.max, Kind::Put, value)
        })?;
        let metas = output.finish()?;
        let written = metas.iter().map(|meta| meta.size).sum();
        let run = metas.first().map_or(0, |meta| meta.number);
        edit.added.extend(metas.into_iter().map(|meta| NewTable {
            tree: bitmap.id,
            level: 0,
            run,
            component,
            meta,
        }));
        Ok(written)
    }
}

/// The entries of a memtable up to a sequence number.
struct UpTo(MemCursor, Seq);

impl UpTo {
    fn pass_over(&mut self, step: fn(&mut MemCursor) -> Result<()>) -> Result<()> {
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
        self.pass_over(MemCursor::next)
    }
    fn seek_last(&mut self) -> Result<()> {
        self.0.seek_last()?;
        self.pass_over(MemCursor::prev)
    }
    fn seek(&mut self, key: &[u8], seq: Seq) -> Result<()> {
        self.0.seek(key, seq.min(self.1))?;
        self.pass_over(MemCursor::next)
    }
    fn next(&mut self) -> Result<()> {
        self.0.next()?;
        self.pass_over(MemCursor::next)
    }
    fn prev(&mut self) -> Result<()> {
        self.0.prev()?;
        self.pass_over(MemCursor::prev)
    }
}

/// Tables being written one after the other, cut between keys when they have their size. Dropped
/// before its end, it removes what it wrote.
struct Output<'a> {
    shop: &'a Workshop<'a>,
    options: TableOptions,
    builder: Option<TableBuilder>,
    metas: Vec<TableMeta>,
    last_key: Vec<u8>,
    count: u64,
    unused: Unused<'a>,
}

impl<'a> Output<'a> {
    fn new(shop: &'a Workshop<'a>, tree: &TreeVersion) -> Output<'a> {
        let options = TableOptions {
            block_size: shop.options.block_size,
            compress: shop.options.compress,
            filter_bits_per_key: tree.options.filter_bits_per_key,
            blocked_filter: shop.options.blocked_filter,
            value_filter_bits: shop.options.value_filter_bits,
            extractor: tree.options.extractor.clone(),
            ..TableOptions::default()
        };
        let unused = Unused {
            source: shop.source,
            numbers: Vec::new(),
        };
        Output {
            shop,
            options,
            builder: None,
            metas: Vec::new(),
            last_key: Vec::new(),
            count: 0,
            unused,
        }
    }

    fn add(&mut self, key: &[u8], seq: Seq, kind: Kind, value: &[u8]) -> Result<()> {
        self.count += 1;
        if self.count.is_multiple_of(1024) && self.shop.closing.load(Ordering::Relaxed) {
            return Err(Error::Closed);
        }
        let new_key = self.last_key.as_slice() != key;
        let table_size = self.shop.options.table_size;
        if let Some(full) = self
            .builder
            .take_if(|b| new_key && b.estimated_size() >= table_size)
        {
            self.metas.push(full.finish()?);
        }
        let table = match &mut self.builder {
            Some(table) => table,
            None => {
                let number = (self.shop.next_file)();
                self.unused.numbers.push(number);
                let source = self.shop.source;
                let path = source.path(number);
                self.builder.insert(TableBuilder::create(
                    &*source.fs,
                    &path,
                    number,
                    &self.options,
                )?)
            }
        };
        if new_key {
            self.last_key.clear();
            self.last_key.extend_from_slice(key);
        }
        table.add(key, seq, kind, value)
    }

    fn finish(mut self) -> Result<Vec<TableMeta>> {
        if let Some(last) = self.builder.take() {
            self.metas.push(last.finish()?);
        }
        self.unused.numbers.clear();
        Ok(std::mem::take(&mut self.metas))
    }
}

/// True when any of the runs may hold `key`.
fn held_by(runs: &[Run], key: &[u8]) -> bool {
    runs.iter().any(|run| run.table_for(key).is_some())
}

/// The runs that are older than all inputs of a choice.
fn older_runs<'t>(tree: &'t TreeVersion, choice: &Choice) -> &'t [Run] {
    let is_input = |number: u64| {
        choice
            .inputs
            .iter()
            .any(|table| table.meta().number == number)
    };
    let oldest = tree
        .runs
        .iter()
        .rposition(|run| run.tables.iter().any(|table| is_input(table.meta().number)));
    tree.runs
        .get(oldest.map_or(0, |at| at + 1)..)
        .unwrap_or_default()
}
