//! The library of actions. A run is a list of actions. Each action is self-contained: its
//! references (to a store, a dataset, a snapshot) are numbers modulo those that exist when it runs;
//! if none exists, it does nothing. So every part of a list is also a run, which lets the shrinker
//! make failing runs small.

use esker::schema::{Merging, Repair, Tokenizer};
use esker_lsm::{BitmapMerges, KeepLog};
use serde::{Deserialize, Serialize};

pub(crate) use crate::define::Def;

/// The paths of every record's values. A dataset may declare the first three with any type at its
/// creation, and the others only later.
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

/// Operations between two choices of a strategy, unless a run sets another number: more than a run
/// does.
pub(crate) const CHOOSE_EVERY: u64 = 8192;

/// How the stores of a run are opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Settings {
    pub(crate) table_size: u64,
    pub(crate) memory: usize,
    pub(crate) lock: bool,
    /// Operations between two choices of a strategy.
    pub(crate) choose_every: u64,
    /// Bytes of the pieces that compactions are split into; `None` for one piece.
    pub(crate) piece_bytes: Option<u64>,
}

impl Settings {
    /// Small tables nearly always share a file, both in stores of tiny tables and in real ones.
    pub(crate) fn share_from(self) -> usize {
        if self.table_size < 1 << 10 {
            esker_lsm::Options::default().share_from
        } else {
            1
        }
    }

    /// Whether tables are read through maps of their files: half of the stores.
    pub(crate) fn mapped_reads(self) -> bool {
        self.lock != self.piece_bytes.is_some()
    }

    pub(crate) fn bitmap_merges(self) -> BitmapMerges {
        if self.lock {
            BitmapMerges::Lock
        } else {
            BitmapMerges::SideFile
        }
    }

    /// How much log stays after flushes: all, some, or nothing.
    pub(crate) fn keep_log(self) -> KeepLog {
        let bytes = match self.memory >> 10 {
            24 => u64::MAX,
            64 => 4 << 10,
            _ => 0,
        };
        KeepLog { bytes, age: None }
    }

    /// Sweeps of the obsolete set: by compactions alone, after a few writes, or at every
    /// opportunity.
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
/// Cells from here on: one value.
pub(crate) const ONE: Cell = 2;
/// Cells from here on, if the dataset takes them: a value of another type, alone or in an array.
pub(crate) const OTHER: Cell = 90;
/// Cells from here on: an array.
pub(crate) const ARRAY: Cell = 100;
/// The cell of the replaced record.
pub(crate) const KEEP: Cell = 255;

/// Expiry times of records that name one by their `style`, in milliseconds from now.
pub(crate) const UNTIL: [i64; 8] = [-2_000, 0, 1, 200, 1_500, 6_000, 60_000, 100_000_000];
/// The position of the expiry time's number in a `style`.
pub(crate) const UNTIL_SHIFT: u8 = 3;

/// Times to live, in milliseconds.
pub(crate) const TTLS: [u64; 4] = [300, 2_000, 20_000, 100_000_000];

/// A part of a batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
    /// The commit expects of the key: with `what` 0 that it does not exist, with 1 that write 7
    /// made it, else that its record is still the one at the time of this part.
    Expect {
        key: u8,
        what: u8,
    },
    /// Sets a note under a name; deletes it if `value` is 0.
    Note {
        name: u8,
        value: u8,
    },
    /// A line that is not a valid record.
    Refused {
        which: u8,
    },
}

/// An item, by a number of any size.
pub(crate) fn pick<T: Copy>(items: &[T], number: u8) -> T {
    items[usize::from(number) % items.len()]
}

/// The steps that run inside another action, two at each call of its progress callback, and the
/// call that stops the action.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Inside {
    pub(crate) steps: Vec<Step>,
    pub(crate) stop_after: Option<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Change {
    Add,
    Switch,
    DropIndex,
    Resume,
    /// The index is rebuilt.
    Rebuild,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Method {
    Auto,
    ByKey,
    ByIndex,
    Primary,
    PrimaryBefore,
    PrimaryAfter,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Fault {
    /// The n-th changing call from now fails.
    Call,
    /// As `Call`, but an append writes half of its bytes.
    Short,
    /// The n-th read from now fails.
    Read,
    /// The next sync fails.
    Sync,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
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
    /// Renames a dataset; the new name may be taken.
    Rename {
        store: u8,
        set: u8,
        name: u8,
    },
    Batch {
        store: u8,
        set: u8,
        writes: Vec<Write>,
        /// 0: synced at once, 1: soon, else whenever the system writes it.
        durability: u8,
    },
    /// One batch over several datasets; the writes go to them in turn.
    Over {
        store: u8,
        sets: Vec<u8>,
        writes: Vec<Write>,
        durability: u8,
    },
    /// Moves the clock of all stores forward or back; one store can be made to believe it.
    Tick {
        store: u8,
        millis: i32,
        confirm: bool,
    },
    /// Deletes expired records.
    Expire {
        store: u8,
        set: u8,
    },
    /// Sets the time to live of later records; 0 for no expiry.
    Ttl {
        store: u8,
        set: u8,
        ttl: u8,
    },
    /// Deletes every record.
    Clear {
        store: u8,
        set: u8,
        durability: u8,
    },
    /// Prepares a batch for [`Action::Commit`].
    Prepare {
        store: u8,
        set: u8,
        writes: Vec<Write>,
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
    /// Compacts all datasets, or one.
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
    /// Backs a store up and opens the copy as another store; without `kept`, the copy keeps only
    /// its durable bytes.
    Backup {
        store: u8,
        kept: bool,
    },
    /// As `Backup`, with a batch and its follow-up at one of the calls of the backup.
    BackupDuring {
        store: u8,
        set: u8,
        kept: bool,
        call: u8,
        writes: Vec<Write>,
        /// Adds the replaced writes to the obsolete set.
        known: bool,
        flush: bool,
    },
    /// Keeps a snapshot; if it exists, queries or drops it.
    Snapshot {
        store: u8,
        name: u8,
        drops: bool,
    },
    /// A consumer reads at most `most` changes of a dataset and acknowledges them; an unknown
    /// consumer begins here. With `forget`, the consumer is released.
    Consume {
        store: u8,
        set: u8,
        name: u8,
        /// The bytes of log that are kept for the consumer, as an index of
        /// [`crate::consumers::BOUNDS`].
        bytes: u8,
        most: Option<u8>,
        forget: bool,
    },
    /// An extension writes keys and values; a value of 0 deletes its key.
    Beside {
        store: u8,
        writes: Vec<(u8, u8)>,
        durability: u8,
    },
    /// Opens the store again after a close, or without `close` after a drop of its handle.
    Reopen {
        store: u8,
        close: bool,
    },
    /// A power cut `after` calls from now, at once for 0; `mode` is an index of
    /// [`crate::crash::MODES`].
    Cut {
        store: u8,
        after: u16,
        mode: u8,
        seed: u16,
    },
    /// A power cut right after the `after`-th sync of the manifest from now: the installed version
    /// survives, later writes do not.
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
    /// Limits the free space of the disk to `room` bytes.
    Full {
        store: u8,
        room: u32,
    },
    Room {
        store: u8,
    },
    /// Changes a byte of a copy of the store's files; with `cut`, truncates the file there.
    Damage {
        store: u8,
        file: u16,
        at: u32,
        cut: bool,
        seed: u16,
    },
    /// Runs the store's own check.
    Check {
        store: u8,
    },
    /// Does nothing; only the checks of the step run.
    Look {
        store: u8,
    },
}

/// An action, and the seed of the checks that run after it; 0 for no checks.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Step(pub(crate) u16, pub(crate) Action);

impl Action {
    /// The store that the action refers to, if any.
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

    /// The name of the action in the counts.
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
            | Action::BackupDuring { writes, .. } => Some(writes),
            _ => None,
        }
    }
}
