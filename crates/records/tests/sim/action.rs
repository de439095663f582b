//! The library of actions. A run is a list of them, and each carries all that it does: what it refers to (a store, a
//! dataset, a snapshot) is taken modulo what is there when it runs, and where nothing is there it does nothing. So every
//! part of a list is a run too, which is what makes failing runs small.

use std::fmt;
use std::time::Duration;

use esker::experimental::Tuning;
use esker::{DatasetDef, IndexKind, KeyType, Maintenance, Merging, Repair, Tokenizer, Type};
use lsm::{BitmapMerges, KeepLog};

use crate::common::path;
use crate::space::{LAYOUTS, POINT, TIME, TIMED};

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
/// From here on: an array.
pub(crate) const ARRAY: Cell = 100;
/// What the record that is replaced has there.
pub(crate) const KEEP: Cell = 255;

/// One more than what a definition's `point` may be.
pub(crate) const MOST_POINT: u8 = 15;

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

/// A dataset's definition in numbers; what does not go together is made to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Def {
    pub(crate) text_keys: bool,
    /// 0: not declared; else one more than the place among [`IndexKind::ALL`].
    pub(crate) kinds: [u8; DECLARED],
    pub(crate) types: [u8; DECLARED],
    pub(crate) tokenizers: [u8; DECLARED],
    /// Among [`Maintenance::ALL`]; the one behind them is `auto`.
    pub(crate) maintenance: u8,
    pub(crate) repair: u8,
    pub(crate) merging: u8,
    pub(crate) versions: u8,
    /// 1: records say when they expire; 2: they do so long after they were written; 3: both. The time is behind these bits.
    pub(crate) expiry: u8,
    /// The feed has what changes replaced.
    pub(crate) old_records: bool,
    /// 0: points are not declared; else what [`Def::place`] makes of it.
    pub(crate) point: u8,
}

/// An item, by a number of any size.
pub(crate) fn pick<T: Copy>(items: &[T], number: u8) -> T {
    items[usize::from(number) % items.len()]
}

/// The tokenizer that is meant, or the plain one where it does not go with the index.
pub(crate) fn tokenizer(number: u8, kind: IndexKind, ty: Type) -> Tokenizer {
    let wanted = pick(&TOKENIZERS, number);
    let fits = match wanted {
        Tokenizer::Exact => true,
        Tokenizer::Prefix => ty == Type::String,
        Tokenizer::Number => matches!(ty, Type::Int | Type::Float | Type::Time),
    };
    match fits && kind.is_standalone() {
        true => wanted,
        false => Tokenizer::Exact,
    }
}

impl Def {
    pub(crate) fn key_type(&self) -> KeyType {
        match self.text_keys {
            true => KeyType::String,
            false => KeyType::Int,
        }
    }

    /// The type of each path. What is not declared is compared as numbers or as strings.
    pub(crate) fn types(&self) -> [Type; PATHS.len()] {
        let mut types = [Type::Int, Type::Int, Type::Int, Type::Int, Type::String];
        let declared = types.iter_mut().zip(self.kinds.iter().zip(&self.types));
        for (ty, (kind, number)) in declared {
            *ty = match kind {
                0 => pick(&[Type::Int, Type::String], *number),
                _ => pick(&Type::SCALAR, *number),
            };
        }
        types
    }

    /// Declares points: with an index of theirs (up to 4), of them at their times (up to 8), both, or stored by place.
    fn place(&self, def: DatasetDef) -> DatasetDef {
        let number = self.point.wrapping_sub(1);
        let layout = pick(&LAYOUTS, number);
        let points = || esker::Index::new(IndexKind::Spatial(layout)).of_type(Type::Point);
        let timed = || esker::Index::new(IndexKind::SpaceTime(layout)).of_type(Type::PointTime);
        let with_times =
            |def: DatasetDef| def.index(path(TIME), esker::Index::none().of_type(Type::Int));
        match self.point % MOST_POINT {
            0 => def,
            1..=4 => def.index(path(POINT), points()),
            5..=8 => with_times(def).index(path(TIMED), timed()),
            9 => with_times(def)
                .index(path(POINT), points())
                .index(path(TIMED), timed()),
            10 | 11 => def.cluster(path(POINT)),
            12 => with_times(def).cluster(path(TIMED)),
            13 => with_times(def)
                .cluster(path(POINT))
                .index(path(TIMED), timed()),
            _ => with_times(def)
                .index(path(POINT), points())
                .cluster(path(TIMED)),
        }
    }

    pub(crate) fn build(&self) -> DatasetDef {
        let types = self.types();
        let mut def = DatasetDef::new(path("id"), self.key_type());
        for at in 0..DECLARED {
            if self.kinds[at] == 0 {
                continue;
            }
            let kind = pick(&IndexKind::ALL, self.kinds[at] - 1);
            let tokenizer = tokenizer(self.tokenizers[at], kind, types[at]);
            def = def.index(
                path(PATHS[at]),
                esker::Index::new(kind)
                    .of_type(types[at])
                    .tokenizer(tokenizer),
            );
        }
        let strategies = Maintenance::ALL.len() as u8;
        def = match self.maintenance % (strategies + 1) {
            auto if auto == strategies => def.auto(),
            number => def.maintenance(pick(&Maintenance::ALL, number)),
        };
        def = self.place(def);
        if self.old_records {
            def = def.keep_old_records();
        }
        if self.expiry & 1 != 0 {
            def = def.expires_at(path("until"));
        }
        if self.expiry & 2 != 0 {
            let ttl = Duration::from_millis(pick(&TTLS, self.expiry >> 2));
            def = def.ttl(ttl);
        }
        let deferred = def.maintenance == Maintenance::Deferred;
        let repair = match pick(&REPAIRS, self.repair) {
            Repair::Staged if !deferred => Repair::Merge,
            repair => repair,
        };
        let is_clustered = def.indexes.iter().any(|index| index.kind.is_clustered());
        let versions = match deferred && !is_clustered {
            true => u32::from(self.versions % 3) + 1,
            false => 1,
        };
        def.repair(repair)
            .merging(pick(&MERGINGS, self.merging))
            .versions(versions)
    }
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
