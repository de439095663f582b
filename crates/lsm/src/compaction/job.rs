//! Carrying out a flush or a merge: entries in, tables out.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::Choice;
use super::shared::SharedFiles;
use crate::batch::{TreeId, check_limits};
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
    ComponentId, Edit, NewTable, Place, Run, RunCursor, TableAt, TableFile, TableSource,
    TreeVersion, Version, add_table,
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
    /// Where small tables go, if not each into a file of its own.
    pub(crate) shared: Option<&'a SharedFiles<'a>>,
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
        let sources = vec![SourceCursor::memtable(memtable, None)];
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
            let set = read_set(tree, sources)?;
            let mut written = self.write_set(tree, &set, component)?;
            Counters::add(&self.counters.flush_bytes, written.bytes());
            written.bits = set;
            written.enter(edit, tree.id, 0, Some(component));
            return Ok(());
        }
        let ingesting = self.ingesting.load(Ordering::SeqCst);
        let more = ingesting || tree.options.incomplete;
        let is_oldest = |key: &[u8]| !more && !held_by(&tree.runs, key);
        let entries = memtable.len() as u64;
        let written = self.write(tree, sources, &is_oldest, entries, component, edit)?;
        Counters::add(&self.counters.flush_bytes, written.bytes());
        written.enter(edit, tree.id, 0, Some(component));
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
                    place: table.place(),
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
        let written = match tree.options.bitmap {
            // Chunks of the same numbers become one.
            true => {
                let mut set = SeqSet::new();
                for table in &choice.inputs {
                    add_table(&mut set, table)?;
                }
                self.write_set(tree, &set, component)?
            }
            false => self.write(tree, sources, &is_oldest, entries, component, edit)?,
        };
        Counters::add(&self.counters.merges, 1);
        Counters::add(&self.counters.merge_read_bytes, choice.size());
        Counters::add(&self.counters.merge_write_bytes, written.bytes());
        written.enter(edit, tree.id, choice.level, Some(component));
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
        output.finish()?.enter(edit, tree.id, 0, Some(component));
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
        output.finish()?.enter(edit, tree.id, 0, None);
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
        let mut written = output.finish()?;
        Counters::add(&self.counters.merge_read_bytes, table.meta().size);
        Counters::add(&self.counters.merge_write_bytes, written.bytes());
        edit.removed.push(TableAt {
            tree: tree.id,
            number: table.meta().number,
        });
        written.run = Some(run.number);
        written.enter(edit, tree.id, run.level, Some(table.component()));
        Ok(())
    }

    /// True when the inputs can go down as they are: they overlap nothing, and each other neither.
    /// Small tables are rewritten all the same, so that they do not pile up.
    fn can_move(&self, tree: &TreeVersion, choice: &Choice) -> bool {
        let filter = tree.options.filter.as_ref();
        let must_judge = filter.is_some_and(|filter| !filter.may_be_passed_over());
        if choice.level == 0 || must_judge {
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
    ) -> Result<Written> {
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
        let written = output.finish()?;
        if self.applies_set(tree) {
            let numbers = written.tables.iter().map(|(meta, _)| meta.number);
            let saw = self.version.ordinal();
            edit.saw.extend(numbers.map(|number| (number, saw)));
        }
        self.tell(tree, &told, component, edit)?;
        Ok(written)
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
        self.add_set(bitmap, told.clone(), component, edit)
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

    /// Writes numbers as a run of a bitmap tree into `edit`. `component` spans the writes that made them.
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
        self.add_set(bitmap, set, component, edit)
    }

    /// Writes a set that is added to a bitmap tree as a run of it into `edit`.
    fn add_set(
        &self,
        bitmap: &TreeVersion,
        set: SeqSet,
        component: ComponentId,
        edit: &mut Edit,
    ) -> Result<()> {
        let mut written = self.write_set(bitmap, &set, component)?;
        written.bits = set;
        written.enter(edit, bitmap.id, 0, Some(component));
        Ok(())
    }

    /// Writes a set in place of all tables of a bitmap tree, as one run, into `edit`.
    pub(crate) fn replace_set(
        &self,
        bitmap: &TreeVersion,
        set: &SeqSet,
        component: ComponentId,
        edit: &mut Edit,
    ) -> Result<()> {
        edit.removed.extend(bitmap.tables().map(|table| TableAt {
            tree: bitmap.id,
            number: table.meta().number,
        }));
        let written = self.write_set(bitmap, set, component)?;
        written.enter(edit, bitmap.id, 0, Some(component));
        Ok(())
    }

    fn write_set(
        &self,
        bitmap: &TreeVersion,
        set: &SeqSet,
        component: ComponentId,
    ) -> Result<Written> {
        let mut output = Output::new(self, bitmap);
        obsolete::encode(set, &mut |key, value| {
            output.add(key, component.max, Kind::Put, value)
        })?;
        output.finish()
    }
}

/// What a memtable of a bitmap tree holds.
fn read_set<C: Cursor>(tree: &TreeVersion, sources: Vec<C>) -> Result<SeqSet> {
    let mut set = SeqSet::new();
    for mut source in sources {
        source.seek_first()?;
        while source.valid() {
            obsolete::decode(source.key(), source.value(), &mut set)
                .map_err(|what| Error::Invalid(format!("tree {}: {what}", tree.name)))?;
            source.next()?;
        }
    }
    Ok(set)
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
    builder: Option<TableBuilder<'a>>,
    written: Written,
    /// Whether numbers are noted as they are written: those that are added to a bitmap tree.
    notes_bits: bool,
    last_key: Vec<u8>,
    count: u64,
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
        Output {
            shop,
            options,
            builder: None,
            written: Written::default(),
            notes_bits: false,
            last_key: Vec::new(),
            count: 0,
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
            self.end_table(full)?;
        }
        let table = match &mut self.builder {
            Some(table) => table,
            None => {
                let number = (self.shop.next_file)();
                let source = self.shop.source;
                self.written.files.push(number);
                let path = source.path(number);
                let begun = TableBuilder::begin(&*source.fs, &path, number, &self.options);
                self.builder.insert(begun)
            }
        };
        if new_key {
            self.last_key.clear();
            self.last_key.extend_from_slice(key);
            if self.notes_bits {
                obsolete::decode(key, value, &mut self.written.bits)
                    .map_err(|what| Error::Invalid(what.to_string()))?;
            }
        }
        table.add(key, seq, kind, value)
    }

    fn end_table(&mut self, table: TableBuilder<'a>) -> Result<()> {
        let Some(shared) = self.shop.shared else {
            self.written.tables.push((table.finish()?, None));
            return Ok(());
        };
        let (meta, small) = table.finish_small()?;
        let place = match small {
            Some(small) => {
                // It has no file after all; the first table of a shared file gives it its number.
                self.written.files.pop();
                Some(shared.add(&small, &|| meta.number)?)
            }
            None => None,
        };
        self.written.tables.push((meta, place));
        Ok(())
    }

    fn finish(mut self) -> Result<Written> {
        if let Some(last) = self.builder.take() {
            self.end_table(last)?;
        }
        Ok(std::mem::take(&mut self.written))
    }
}

impl Drop for Output<'_> {
    fn drop(&mut self) {
        let source = self.shop.source;
        for number in &self.written.files {
            let _ = source.fs.remove(&source.path(*number));
        }
    }
}

/// What an [`Output`] wrote.
#[derive(Default)]
struct Written {
    tables: Vec<(TableMeta, Option<Place>)>,
    files: Vec<u64>,
    /// Of a bitmap tree, the numbers that are added.
    bits: SeqSet,
    /// The number of the run, where it is not that of its first table.
    run: Option<u64>,
}

impl Written {
    fn bytes(&self) -> u64 {
        self.tables.iter().map(|(meta, _)| meta.size).sum()
    }

    /// Enters the tables into an edit, as one run of `level`. `component` spans the writes that made them; without,
    /// those that are in them.
    fn enter(self, edit: &mut Edit, tree: TreeId, level: u32, component: Option<ComponentId>) {
        let metas = || self.tables.iter().map(|(meta, _)| meta);
        let component = component.unwrap_or_else(|| ComponentId {
            min: metas().map(|meta| meta.min_seq).min().unwrap_or(0),
            max: metas().map(|meta| meta.max_seq).max().unwrap_or(0),
        });
        let first = metas().next().map_or(0, |meta| meta.number);
        let run = self.run.unwrap_or(if level == 0 { first } else { 0 });
        edit.files.extend(self.files);
        edit.add_bits(tree, &self.bits);
        edit.added
            .extend(self.tables.into_iter().map(|(meta, place)| NewTable {
                tree,
                level,
                run,
                component,
                meta: Arc::new(meta),
                place,
            }));
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
