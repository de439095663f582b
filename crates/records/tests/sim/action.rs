//! The library of actions. A run is a list of them, and each carries all that it does: what it refers to (a store, a
//! dataset, a snapshot) is taken modulo what is there when it runs, and where nothing is there it does nothing. So every
//! part of a list is a run too, which is what makes failing runs small.

use esker::experimental::Tuning;
use esker::schema::{Merging, Repair, Tokenizer};
use esker_lsm::{BitmapMerges, KeepLog};
use std::fmt;

pub(crate) use crate::define::Def;

/// The paths of every record's values. The first three have any type where a dataset declares them from the start; the
/// others are never declared then, and may be later.
pub(crate) const PATHS: [&str; 5] = ["a", "b", "n.c", "u", "n.s"];

/// How many of [`PATHS`] a definition may declare.
pub(crate) const DECLARED: usize = 3;

pub(crate) const MERGINGS: [Merging; 4] = [
    Merging::Leveled,
    Merging::Tiered,
    Merging::Correlated,
    Merging::LazyLeveled,
];
pub(crate) const REPAIRS: [Repair; 3] = [Repair::Merge, Repair::Staged, Repair::None];
pub(crate) const TOKENIZERS: [Tokenizer; 3] =
    [Tokenizer::Exact, Tokenizer::Prefix, Tokenizer::Number];

/// A `Vec` that prints as code.
#[derive(Clone)]
pub(crate) struct List<T>(pub(crate) Vec<T>);

impl<T: fmt::Debug> fmt::Debug for List<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "list({:?})", self.0)
    }
}

#[allow(dead_code)]
pub(crate) fn list<T, const N: usize>(items: [T; N]) -> List<T> {
    List(items.into())
}

/// Operations between two choices of a strategy, where no run says otherwise: more than it does.
pub(crate) const CHOOSE_EVERY: u64 = 8192;

/// How the stores of a run are opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) table_size: u64,
    pub(crate) memory: usize,
    pub(crate) lock: bool,
    /// Operations between two choices of a strategy.
    pub(crate) choose_every: u64,
    /// Bytes of the pieces that merges are done in, one after the other; else each is one.
    pub(crate) piece_bytes: Option<u64>,
}

impl Settings {
    /// Small tables nearly always share a file; in stores of tiny ones as in a real one.
    pub(crate) fn share_from(self) -> usize {
        match self.table_size < 1 << 10 {
            true => Tuning::default().share_from,
            false => 1,
        }
    }

    pub(crate) fn bitmap_merges(self) -> BitmapMerges {
        match self.lock {
            true => BitmapMerges::Lock,
            false => BitmapMerges::SideFile,
        }
    }

    /// Of the log all is kept behind the flushes, or some, or nothing.
    pub(crate) fn keep_log(self) -> KeepLog {
        let bytes = match self.memory >> 10 {
            24 => u64::MAX,
            64 => 4 << 10,
            _ => 0,
        };
        KeepLog { bytes, age: None }
    }

    /// Sets are swept by compactions alone, by a few writes, or at every chance.
    pub(crate) fn bitmap_slack(self) -> usize {
        match self.table_size {
            0..1024 => 0,
            1024..4096 => 256,
            _ => 16 << 10,
        }
    }
}

/// A value of a record, as a number: see [`crate::model::field`].
pub(crate) type Cell = u8;
pub(crate) const ABSENT: Cell = 0;
pub(crate) const NULL: Cell = 1;
/// From here on: one value.
pub(crate) const ONE: Cell = 2;
/// From here on, where the dataset takes them: a value of another type, alone or in an array.
pub(crate) const OTHER: Cell = 90;
/// From here on: an array.
pub(crate) const ARRAY: Cell = 100;
/// What the record that is replaced has there.
pub(crate) const KEEP: Cell = 255;

/// From now on, in milliseconds: when a record expires that says so by its `style`.
pub(crate) const UNTIL: [i64; 8] = [-2_000, 0, 1, 200, 1_500, 6_000, 60_000, 100_000_000];
/// The place of that in a `style`.
pub(crate) const UNTIL_SHIFT: u8 = 3;

/// Times to live, in milliseconds.
pub(crate) const TTLS: [u64; 4] = [300, 2_000, 20_000, 100_000_000];

/// A part of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Write {
    Put {
        key: u8,
        cells: [Cell; PATHS.len()],
        pad: u16,
        style: u8,
    },
    Insert {
        key: u8,
        cells: [Cell; PATHS.len()],
        pad: u16,
        style: u8,
    },
    Delete {
        key: u8,
    },
    /// The key must be as it is when this is added; with `what` of 0 it must not be there, with 1 be of a write that it hardly is of.
    Expect {
        key: u8,
        what: u8,
    },
    /// Something is noted under a name, or with 0 nothing any more.
    Note {
        name: u8,
        value: u8,
    },
    /// A line that is no record.
    Refused {
        which: u8,
    },
}

/// An item, by a number of any size.
pub(crate) fn pick<T: Copy>(items: &[T], number: u8) -> T {
    items[usize::from(number) % items.len()]
}

/// What is done while another action is at work, two steps at each call of its progress, and when that is broken off.
#[derive(Debug, Clone)]
pub(crate) struct Inside {
    pub(crate) steps: List<Step>,
    pub(crate) stop_after: Option<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    Add,
    Switch,
    DropIndex,
    Resume,
    /// The index is made again.
    Rebuild,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Method {
    Auto,
    ByKey,
    ByIndex,
    Primary,
    PrimaryBefore,
    PrimaryAfter,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The call that changes something and is so many calls away fails.
    Call,
    /// The same, and what was appended is there by half.
    Short,
    /// The read that is so many reads away fails.
    Read,
    /// The next sync fails.
    Sync,
}

#[derive(Debug, Clone)]
pub(crate) enum Action {
    Create {
        store: u8,
        name: u8,
        def: Def,
    },
    DropSet {
        store: u8,
        set: u8,
    },
    /// A dataset gets another name, which may be taken.
    Rename {
        store: u8,
        set: u8,
        name: u8,
    },
    Batch {
        store: u8,
        set: u8,
        writes: List<Write>,
        /// 0: for sure, 1: soon, else when the system sees fit.
        durability: u8,
    },
    /// One batch over several datasets: each write is to the next of these.
    Over {
        store: u8,
        sets: List<u8>,
        writes: List<Write>,
        durability: u8,
    },
    /// The clock goes on or back, for all stores; one of them can be told to believe it.
    Tick {
        store: u8,
        millis: i32,
        confirm: bool,
    },
    /// What has expired is deleted.
    Expire {
        store: u8,
        set: u8,
    },
    /// How long records live from now on: 0 for ever.
    Ttl {
        store: u8,
        set: u8,
        ttl: u8,
    },
    /// Every record is deleted.
    Clear {
        store: u8,
        set: u8,
        durability: u8,
    },
    /// A batch that is made now, for [`Action::Commit`].
    Prepare {
        store: u8,
        set: u8,
        writes: List<Write>,
    },
    Commit {
        which: u8,
        durability: u8,
    },
    Flush {
        store: u8,
    },
    Settle {
        store: u8,
    },
    /// All datasets, or one.
    Compact {
        store: u8,
        set: Option<u8>,
    },
    SyncLog {
        store: u8,
    },
    Hold {
        store: u8,
        set: u8,
    },
    Release {
        which: u8,
    },
    Index {
        store: u8,
        set: u8,
        path: u8,
        kind: u8,
        tokenizer: u8,
        change: Change,
        inside: Inside,
    },
    Strategy {
        store: u8,
        set: u8,
        to: u8,
        inside: Inside,
    },
    RepairSet {
        store: u8,
        set: u8,
        method: Method,
        memory: u32,
        lookups: u8,
        bloom: bool,
        inside: Inside,
    },
    /// A copy of a store that lives on as another one; without `kept` only what the copy made durable is there.
    Backup {
        store: u8,
        kept: bool,
    },
    /// The same, with a batch at one of the calls that the backup makes, and what follows it at once.
    BackupDuring {
        store: u8,
        set: u8,
        kept: bool,
        call: u8,
        writes: List<Write>,
        /// What the batch replaced is put into the obsolete set.
        known: bool,
        flush: bool,
    },
    /// A snapshot is kept, or where it is kept already asked, or dropped.
    Snapshot {
        store: u8,
        name: u8,
        drops: bool,
    },
    /// A consumer reads changes of a dataset, at most so many, and notes in the store how far it is; one that is not known begins here. Or
    /// it is forgotten.
    Consume {
        store: u8,
        set: u8,
        name: u8,
        /// Among [`crate::consumers::BOUNDS`]: the bytes of log that are kept for it.
        bytes: u8,
        most: Option<u8>,
        forget: bool,
    },
    /// An extension writes keys and values, and deletes those of 0.
    Beside {
        store: u8,
        writes: List<(u8, u8)>,
        durability: u8,
    },
    /// Closed, or without `close` just dropped.
    Reopen {
        store: u8,
        close: bool,
    },
    /// A power cut so many calls from now, at once for 0; `mode` among [`crate::crash::MODES`].
    Cut {
        store: u8,
        after: u16,
        mode: u8,
        seed: u16,
    },
    /// A power cut right after the manifest has been synced so many times more: what was installed is there, and nothing
    /// that was done behind it.
    CutInstalled {
        store: u8,
        after: u8,
        mode: u8,
        seed: u16,
    },
    Fail {
        store: u8,
        after: u16,
        fault: Fault,
    },
    /// So many bytes of room are left.
    Full {
        store: u8,
        room: u32,
    },
    Room {
        store: u8,
    },
    /// A byte of a copy of a store's files is changed, or with `cut` the file ends there.
    Damage {
        store: u8,
        file: u16,
        at: u32,
        cut: bool,
        seed: u16,
    },
    /// The store's own check.
    Check {
        store: u8,
    },
    /// Nothing but the questions of its step.
    Look {
        store: u8,
    },
}

/// An action, and the seed of the questions that are asked after it; none for 0.
#[derive(Debug, Clone)]
pub(crate) struct Step(pub(crate) u16, pub(crate) Action);

impl Action {
    /// The store that it is about, if it is about one.
    pub(crate) fn store(&self) -> Option<u8> {
        use Action::*;
        match self {
            Create { store, .. }
            | DropSet { store, .. }
            | Rename { store, .. }
            | Batch { store, .. }
            | Over { store, .. }
            | Tick { store, .. }
            | Expire { store, .. }
            | Ttl { store, .. }
            | Clear { store, .. }
            | Prepare { store, .. }
            | Flush { store }
            | Settle { store }
            | Compact { store, .. }
            | SyncLog { store }
            | Hold { store, .. }
            | Index { store, .. }
            | Strategy { store, .. }
            | RepairSet { store, .. }
            | Backup { store, .. }
            | BackupDuring { store, .. }
            | Snapshot { store, .. }
            | Consume { store, .. }
            | Beside { store, .. }
            | Reopen { store, .. }
            | Cut { store, .. }
            | CutInstalled { store, .. }
            | Fail { store, .. }
            | Full { store, .. }
            | Room { store }
            | Damage { store, .. }
            | Check { store }
            | Look { store } => Some(*store),
            Commit { .. } | Release { .. } => None,
        }
    }

    /// For counting.
    pub(crate) fn name(&self) -> &'static str {
        use Action::*;
        match self {
            Create { .. } => "create",
            DropSet { .. } => "drop",
            Rename { .. } => "rename",
            Batch { .. } => "batch",
            Over { .. } => "batch: over datasets",
            Tick { .. } => "clock",
            Expire { .. } => "expire",
            Ttl { .. } => "time to live",
            Clear { .. } => "clear",
            Prepare { .. } => "prepare",
            Commit { .. } => "commit",
            Flush { .. } => "flush",
            Settle { .. } => "settle",
            Compact { .. } => "compact",
            SyncLog { .. } => "sync",
            Hold { .. } => "hold",
            Release { .. } => "release",
            Index { .. } => "index",
            Strategy { .. } => "strategy",
            RepairSet { .. } => "repair",
            Backup { .. } => "backup",
            BackupDuring { .. } => "backup: with writes",
            Snapshot { .. } => "snapshot",
            Consume { .. } => "consume",
            Beside { .. } => "beside",
            Reopen { .. } => "reopen",
            Cut { .. } => "cut",
            CutInstalled { .. } => "cut: installed",
            Fail { .. } => "fail",
            Full { .. } => "full",
            Room { .. } => "room",
            Damage { .. } => "damage",
            Check { .. } => "check",
            Look { .. } => "look",
        }
    }

    pub(crate) fn inside(&self) -> Option<&Inside> {
        match self {
            Action::Index { inside, .. }
            | Action::Strategy { inside, .. }
            | Action::RepairSet { inside, .. } => Some(inside),
            _ => None,
        }
    }

    pub(crate) fn inside_mut(&mut self) -> Option<&mut Inside> {
        match self {
            Action::Index { inside, .. }
            | Action::Strategy { inside, .. }
            | Action::RepairSet { inside, .. } => Some(inside),
            _ => None,
        }
    }

    pub(crate) fn writes_mut(&mut self) -> Option<&mut Vec<Write>> {
        match self {
            Action::Batch { writes, .. }
            | Action::Over { writes, .. }
            | Action::Prepare { writes, .. }
            | Action::BackupDuring { writes, .. } => Some(&mut writes.0),
            _ => None,
        }
    }
}
