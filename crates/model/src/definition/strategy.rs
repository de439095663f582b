//! Strategies: when obsolete index entries are detected, when they are recorded, and how trees are
//! compacted.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};

/// When the index entry of a replaced record is detected as obsolete (Luo & Carey sections 3.1, 4
/// and 5; DELI section IV). Queries return the same answers with every strategy; strategies differ
/// in the costs of writes and queries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Maintenance {
    /// At the write: reads the old record and removes its index entries. Indexes are always exact.
    Eager,
    /// At the query: looks in the primary-key index (a tree of keys only) for a newer write, or
    /// fetches the record and compares.
    Validation,
    /// At the write, with the primary-key index only: sets the bit of the old record's write in the
    /// set of obsolete writes.
    MutableBitmap,
    /// At the query: fetches the record, compares, and records obsolete writes.
    #[default]
    Deferred,
    /// At the query: looks in a tree of written keys beside each index. A baseline of the papers.
    DeletedKey,
}

impl Maintenance {
    /// All strategies.
    pub const ALL: [Maintenance; 5] = [
        Maintenance::Eager,
        Maintenance::Validation,
        Maintenance::MutableBitmap,
        Maintenance::Deferred,
        Maintenance::DeletedKey,
    ];

    /// True for strategies that look up, at each write, the write that it replaces.
    pub fn looks_at_writes(self) -> bool {
        matches!(self, Maintenance::Eager | Maintenance::MutableBitmap)
    }

    /// True for strategies that use the primary-key index.
    pub fn uses_keys(self) -> bool {
        matches!(
            self,
            Maintenance::Eager | Maintenance::Validation | Maintenance::MutableBitmap
        )
    }

    fn name(self) -> &'static str {
        match self {
            Maintenance::Eager => "eager",
            Maintenance::Validation => "validation",
            Maintenance::MutableBitmap => "mutable-bitmap",
            Maintenance::Deferred => "deferred",
            Maintenance::DeletedKey => "deleted-key",
        }
    }
}

impl fmt::Display for Maintenance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Maintenance {
    type Err = Error;
    fn from_str(text: &str) -> Result<Maintenance> {
        Maintenance::ALL.into_iter().find(|m| m.name() == text).ok_or_else(|| {
            Error::bad_input(format!(
                "unknown maintenance `{text}`: use one of eager, validation, mutable-bitmap, deferred, deleted-key"
            ))
        })
    }
}

/// When the store records which writes are obsolete, so that compactions drop their index entries
/// and queries skip them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Repair {
    /// During compactions of the primary-key index or, without one, of the records: each records
    /// atomically the writes that it drops (merge repair, Luo & Carey section 4.4; streaming
    /// repair, DELI section V).
    #[default]
    Merge,
    /// On request, by a scan of the records; until then compactions keep replaced versions (staged
    /// repair, DELI section V; needs deferred maintenance). A baseline of the papers.
    Staged,
    /// On request, by a scan of the indexes (`Dataset::repair`).
    None,
}

impl Repair {
    const ALL: [Repair; 3] = [Repair::Merge, Repair::Staged, Repair::None];

    fn name(self) -> &'static str {
        match self {
            Repair::Merge => "merge",
            Repair::Staged => "staged",
            Repair::None => "none",
        }
    }
}

impl fmt::Display for Repair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Repair {
    type Err = Error;
    fn from_str(text: &str) -> Result<Repair> {
        Repair::ALL
            .into_iter()
            .find(|r| r.name() == text)
            .ok_or_else(|| {
                Error::bad_input(format!(
                    "unknown repair `{text}`: use one of merge, staged, none"
                ))
            })
    }
}

/// How the trees of a dataset are compacted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Merging {
    /// Tiers above one leveled run, for each tree separately. Updates write half as much as with
    /// levels; a read probes a few more runs after updates.
    #[default]
    LazyLeveled,
    /// LevelDB's levels, for each tree separately. Fewest runs to read.
    Leveled,
    /// AsterixDB's tiers, ratio 1.2, for each tree separately. Writes less.
    Tiered,
    /// Tiers, and all trees of the dataset compact the same components together (Luo & Carey
    /// section 4.4). A baseline of the papers.
    Correlated,
}

impl Merging {
    const ALL: [Merging; 4] = [
        Merging::LazyLeveled,
        Merging::Leveled,
        Merging::Tiered,
        Merging::Correlated,
    ];

    fn name(self) -> &'static str {
        match self {
            Merging::LazyLeveled => "lazy-leveled",
            Merging::Leveled => "leveled",
            Merging::Tiered => "tiered",
            Merging::Correlated => "correlated",
        }
    }
}

impl fmt::Display for Merging {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Merging {
    type Err = Error;
    fn from_str(text: &str) -> Result<Merging> {
        Merging::ALL
            .into_iter()
            .find(|m| m.name() == text)
            .ok_or_else(|| {
                Error::bad_input(format!(
                    "unknown merging `{text}`: use one of lazy-leveled, leveled, tiered, correlated"
                ))
            })
    }
}
