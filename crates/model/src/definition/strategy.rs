//! Strategies: when obsolete index entries are found, when that is noted, how trees are compacted.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};

/// When an index entry of a replaced record is found to be obsolete (Luo & Carey sections 3.1, 4 and 5;
/// DELI section IV). All give the same answers; they differ in what writes and queries cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Maintenance {
    /// At the write: it reads the old record and takes its entries back. Indexes are always exact.
    Eager,
    /// At the query: it asks the primary-key index for a newer write, or fetches and looks.
    Validation,
    /// At the write, by the primary-key index alone: the bit of the old record's write is set.
    MutableBitmap,
    /// At the query, which fetches and looks, and notes what it found.
    #[default]
    Deferred,
    /// At the query: it asks a tree of written keys that each index has. The baseline that the papers measure.
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

    /// True for strategies that know of each write, when it is done, what it replaced.
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
                "unknown maintenance `{text}`: it is one of eager, validation, mutable-bitmap, deferred, deleted-key"
            ))
        })
    }
}

/// When it is noted which writes are obsolete, whose index entries merges can leave out and queries pass over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Repair {
    /// As merges go: what a merge of the primary-key index or, without one, of the data leaves out is noted
    /// in the same step (merge repair, Luo & Carey section 4.4; streaming repair, DELI section V).
    #[default]
    Merge,
    /// When it is asked for, by going through the records: until then merges keep replaced versions
    /// (staged repair, DELI section V; for deferred maintenance).
    Staged,
    /// When it is asked for, by going through the indexes (`Dataset::repair`).
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
                    "unknown repair `{text}`: it is one of merge, staged, none"
                ))
            })
    }
}

/// How the trees of a dataset are merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Merging {
    /// Tiers above one leveled run: each tree for itself. Updates write half as much as with levels, and a read asks a few runs
    /// more where there were updates.
    #[default]
    LazyLeveled,
    /// LevelDB's levels: each tree for itself. Fewest runs to read.
    Leveled,
    /// AsterixDB's tiers, ratio 1.2: each tree for itself. Writes less.
    Tiered,
    /// Tiers, and all trees of the dataset merge the same components together (Luo & Carey section 4.4).
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
                    "unknown merging `{text}`: it is one of lazy-leveled, leveled, tiered, correlated"
                ))
            })
    }
}
