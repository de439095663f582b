//! The kinds of index.

use std::fmt;
use std::str::FromStr;

use super::ExternalKind;
use crate::error::{Error, Result};
use crate::schema::Type;

/// How an attribute is indexed (LevelDB++ sections 3 and 4, Luo & Carey section 3). Queries return
/// the same answers with every kind; kinds differ in the costs of writes and queries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum IndexKind {
    /// Not indexed: the attribute is typed and extracted, queries scan.
    None,
    /// No separate index: the tables of records carry a zone map (the least and the greatest value)
    /// and a value filter for each block. Cheapest to write; best if the attribute grows with time.
    Embedded,
    /// As embedded, but each table carries one map from value fingerprints to blocks in place of a
    /// filter per block, so that a lookup probes each table once. Nearly as cheap to write; lookups
    /// of a value come close to those of the stand-alone kinds.
    Fingerprint,
    /// Only the least and the greatest value of each component, one flush or compaction result (Luo
    /// & Carey section 3). Costs nothing to write; for ranges of an attribute that grows with time,
    /// read by a scan. The [`Maintenance`](super::Maintenance) strategy determines how many
    /// components a query can skip.
    Filter,
    /// A posting list (the keys of the records with a value) for each value, read and rewritten at
    /// each write. Writes slow down as lists grow; a baseline of the papers.
    Eager,
    /// A posting list (the keys of the records with a value) for each value. Writes append to it
    /// without reading it; compactions merge the pieces later. Best for the newest few matches.
    Lazy,
    /// A tree of (value, primary key). Best for queries that return all matches.
    Composite,
    /// A tree of (value, descending sequence number, primary key): the newest records of a value
    /// are adjacent. Good for the newest few matches and for all.
    Recent,
    /// Points in space, in one of several layouts; for attributes of type point or plane.
    Spatial(Layout),
    /// Points at a time, in one of the same layouts: it answers conditions on an area and a time
    /// together. For attributes whose path is `POINT@TIME`.
    SpaceTime(Layout),
    /// A kind from another crate, with its own tree.
    External(ExternalKind),
}

/// How the points of a spatial index are laid out. Queries return the same answers with every
/// layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Layout {
    /// A tree in z-order: an area is a bounded number of ranges of its keys.
    #[default]
    Z,
    /// A tree whose tables are cut by space: tables of a level do not overlap, and each compaction
    /// packs them anew.
    Mbr,
    /// A tree of tiered runs, each packed by space: a baseline of the paper.
    Stacked,
    /// No tree: tables and blocks of the records carry the bounds of their points. Writes cost
    /// nothing; for records that are written in the order of their location, or whose keys are in
    /// that order.
    Embedded,
    /// A tree in z-order that contains the records themselves: the dataset is stored by location
    /// ([`DatasetDef::cluster`](super::DatasetDef::cluster)). For one attribute, fixed at creation.
    Clustered,
}

impl Layout {
    /// All layouts that an index can have at any time.
    pub const ALL: [Layout; 4] = [Layout::Z, Layout::Mbr, Layout::Stacked, Layout::Embedded];

    fn name(self) -> &'static str {
        match self {
            Layout::Z => "spatial:z",
            Layout::Mbr => "spatial:mbr",
            Layout::Stacked => "spatial:stacked",
            Layout::Embedded => "spatial:embedded",
            Layout::Clustered => "spatial:clustered",
        }
    }

    fn timed_name(self) -> &'static str {
        match self {
            Layout::Z => "space-time:z",
            Layout::Mbr => "space-time:mbr",
            Layout::Stacked => "space-time:stacked",
            Layout::Embedded => "space-time:embedded",
            Layout::Clustered => "space-time:clustered",
        }
    }

    /// True if the layout has a tree.
    fn has_tree(self) -> bool {
        self != Layout::Embedded
    }
}

impl IndexKind {
    /// All built-in kinds for attributes of any type except points.
    pub const ALL: [IndexKind; 8] = [
        IndexKind::None,
        IndexKind::Embedded,
        IndexKind::Fingerprint,
        IndexKind::Filter,
        IndexKind::Eager,
        IndexKind::Lazy,
        IndexKind::Composite,
        IndexKind::Recent,
    ];

    /// False if the attribute is only declared.
    pub fn is_indexed(self) -> bool {
        self != IndexKind::None
    }

    /// True for the stand-alone kinds: their index is a separate tree.
    pub fn is_standalone(self) -> bool {
        match self {
            IndexKind::Eager
            | IndexKind::Lazy
            | IndexKind::Composite
            | IndexKind::Recent
            | IndexKind::External(_) => true,
            IndexKind::Spatial(layout) | IndexKind::SpaceTime(layout) => layout.has_tree(),
            IndexKind::None | IndexKind::Embedded | IndexKind::Fingerprint | IndexKind::Filter => {
                false
            }
        }
    }

    /// True for the kinds whose values can be unique: their trees are ordered by value.
    pub fn can_be_unique(self) -> bool {
        matches!(
            self,
            IndexKind::Eager | IndexKind::Lazy | IndexKind::Composite | IndexKind::Recent
        )
    }

    /// True for the kinds that can have the values of several fields together: their trees are
    /// ordered by value.
    pub fn can_be_compound(self) -> bool {
        self.can_be_unique()
    }

    /// True for the kinds for points, at a time or not.
    pub fn is_spatial(self) -> bool {
        matches!(self, IndexKind::Spatial(_) | IndexKind::SpaceTime(_))
    }

    /// True for the kind of the attribute by whose location the records themselves are stored.
    pub fn is_clustered(self) -> bool {
        matches!(
            self,
            IndexKind::Spatial(Layout::Clustered) | IndexKind::SpaceTime(Layout::Clustered)
        )
    }

    /// The type of an attribute of this kind, given the declared type, if any; points become points
    /// at a time in the kind for these.
    pub fn type_for(self, said: Option<Type>) -> Option<Type> {
        match self {
            IndexKind::Spatial(_) => said.or(Some(Type::Point)),
            IndexKind::SpaceTime(_) => Some(said.unwrap_or(Type::Point).at_time()),
            _ => said,
        }
    }

    /// True for the embedded kinds: the tables and memtables of the records carry the index.
    pub fn is_embedded(self) -> bool {
        self.is_indexed() && !self.is_standalone()
    }

    fn name(&self) -> &str {
        match self {
            IndexKind::None => "none",
            IndexKind::Embedded => "embedded",
            IndexKind::Fingerprint => "fingerprint",
            IndexKind::Filter => "filter",
            IndexKind::Eager => "eager",
            IndexKind::Lazy => "lazy",
            IndexKind::Composite => "composite",
            IndexKind::Recent => "recent",
            IndexKind::Spatial(layout) => layout.name(),
            IndexKind::SpaceTime(layout) => layout.timed_name(),
            IndexKind::External(kind) => kind.name(),
        }
    }
}

impl fmt::Display for IndexKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for IndexKind {
    type Err = Error;
    fn from_str(text: &str) -> Result<IndexKind> {
        if text == "spatial" {
            return Ok(IndexKind::Spatial(Layout::default()));
        }
        if text == "space-time" {
            return Ok(IndexKind::SpaceTime(Layout::default()));
        }
        let layouts = || Layout::ALL.into_iter().chain([Layout::Clustered]);
        let spatial = layouts().map(IndexKind::Spatial);
        let timed = layouts().map(IndexKind::SpaceTime);
        let mut all = IndexKind::ALL.into_iter().chain(spatial).chain(timed);
        let built_in = all.find(|kind| kind.name() == text);
        let external = || ExternalKind::new(text).ok().map(IndexKind::External);
        built_in.or_else(external).ok_or_else(|| {
            Error::bad_input(format!(
                "unknown index kind `{text}`: use one of embedded, fingerprint, filter, eager, lazy, composite, recent, spatial, space-time, none"
            ))
        })
    }
}
