//! The trees of a dataset: their names and configurations.
//!
//! A dataset `d` has a tree `d/data` (primary key -> stored record), and one tree `d/index/N` for
//! each attribute N with a stand-alone index: `d/index/N.1` after the first change of its kind, and
//! so on. While an index is built, `d/staging` gathers its index entries. Beside them `d/keys` is the primary-key
//! index (keys alone, under the sequence numbers of their records), where the maintenance strategy uses
//! one; `d/superseded` is the bitmap tree of the obsolete set; and under deleted-key
//! maintenance `d/deleted/N` are the keys written since index N began. Under eager maintenance
//! `d/widened/N` are the values of attribute N that records had before they were replaced, for its range filter.
//! `d/notes` is what programs note beside the records (name -> bytes), once one has.
//! Where records expire, `d/expiry` is what does so, by time (`crate::expiry`).
//! `d/old` has what changes replaced, in the log alone, where the feed is to have that: by key, the write and the stored record.
//! Trees of extensions are `@extension/tree`.

use esker_lsm::TreeId;
use esker_lsm::version::Version;
use esker_model::definition::{ExternalKind, IndexKind, MaintenanceSettings, Merging, Repair};

const DATA: &str = "/data";

/// The name of a dataset's data tree.
pub(crate) fn data_tree(dataset: &str) -> String {
    format!("{dataset}{DATA}")
}

/// The name of the tree of attribute `id` that is its `number`th, from 0.
pub(crate) fn index_tree(dataset: &str, id: u32, number: u32) -> String {
    match number {
        0 => format!("{dataset}/index/{id}"),
        _ => format!("{dataset}/index/{id}.{number}"),
    }
}

/// The dataset that a data tree belongs to; `None` for other trees.
pub(crate) fn dataset_of(tree: &str) -> Option<&str> {
    tree.strip_suffix(DATA).filter(|_| !is_of_extension(tree))
}

/// The trees of a dataset with their names under another name of it.
pub(crate) fn renamed_trees(version: &Version, dataset: &str, to: &str) -> Vec<(TreeId, String)> {
    let trees = version.trees.values();
    let renamed = trees.filter_map(|tree| {
        let (first, rest) = tree.name.split_once('/')?;
        (first == dataset).then(|| (tree.id, format!("{to}/{rest}")))
    });
    renamed.collect()
}

/// What the names of extensions' trees begin with; no dataset is called so.
pub(crate) const EXTENSION: char = '@';

/// True for the trees of extensions.
pub(crate) fn is_of_extension(tree: &str) -> bool {
    tree.starts_with(EXTENSION)
}

/// The name of the tree that gathers the index entries of an index that is being built.
pub(crate) fn staging_tree(dataset: &str) -> String {
    format!("{dataset}/staging")
}

/// The name of a dataset's primary-key index.
pub(crate) fn keys_tree(dataset: &str) -> String {
    format!("{dataset}/keys")
}

/// The name of the tree of the obsolete writes of a dataset.
pub(crate) fn superseded_tree(dataset: &str) -> String {
    format!("{dataset}/superseded")
}

/// The name of the tree of the keys that were written since the index of attribute `id` began.
pub(crate) fn deleted_tree(dataset: &str, id: u32) -> String {
    format!("{dataset}/deleted/{id}")
}

/// The name of the tree of what expires, by time.
pub(crate) fn expiry_tree(dataset: &str) -> String {
    format!("{dataset}/expiry")
}

/// The name of the tree of the values of attribute `id` that writes replaced.
pub(crate) fn widened_tree(dataset: &str, id: u32) -> String {
    format!("{dataset}/widened/{id}")
}

/// The name of the tree of what programs note beside the records of a dataset.
pub(crate) fn notes_tree(dataset: &str) -> String {
    format!("{dataset}/notes")
}

/// The name of the tree of the records that changes replaced.
pub(crate) fn old_tree(dataset: &str) -> String {
    format!("{dataset}/old")
}

/// What the configuration of a dataset's tree says, other than the data tree's: words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TreeConfig {
    pub(crate) role: Role,
    pub(crate) merging: Merging,
    /// Older entries are still to come.
    pub(crate) incomplete: bool,
    /// Compactions do not report to the obsolete set what they drop.
    pub(crate) silent: bool,
    /// How many versions of a record an index keeps index entries of.
    pub(crate) versions: u32,
}

/// What such a tree is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Index(IndexKind),
    Staging,
    Keys,
    Superseded,
    Deleted,
    Widened,
    Notes,
    Expiry,
    Old,
}

const INCOMPLETE: &str = "incomplete";
const SILENT: &str = "silent";
const VERSIONS: &str = "versions=";

impl TreeConfig {
    pub(crate) fn new(role: Role, settings: &MaintenanceSettings) -> TreeConfig {
        TreeConfig {
            role,
            merging: settings.merging,
            incomplete: false,
            silent: settings.repair != Repair::Merge && matches!(role, Role::Keys | Role::Deleted),
            versions: match role {
                Role::Index(_) => settings.versions,
                _ => 1,
            },
        }
    }

    /// The same for a tree whose older entries are still to come.
    pub(crate) fn incomplete(self) -> TreeConfig {
        TreeConfig {
            incomplete: true,
            ..self
        }
    }

    pub(crate) fn to_bytes(self) -> Vec<u8> {
        let mut text = match self.role {
            Role::Index(kind) => kind.to_string(),
            Role::Staging => "staging".to_string(),
            Role::Keys => "keys".to_string(),
            Role::Superseded => "superseded".to_string(),
            Role::Deleted => "deleted".to_string(),
            Role::Widened => "widened".to_string(),
            Role::Notes => "notes".to_string(),
            Role::Expiry => "expiry".to_string(),
            Role::Old => "old".to_string(),
        };
        if self.merging != Merging::Leveled {
            text += &format!(" {}", self.merging);
        }
        for (word, set) in [(INCOMPLETE, self.incomplete), (SILENT, self.silent)] {
            if set {
                text += " ";
                text += word;
            }
        }
        if self.versions > 1 {
            text += &format!(" {VERSIONS}{}", self.versions);
        }
        text.into_bytes()
    }

    /// The kind of an index's tree that another crate has to register first: why [`TreeConfig::from_bytes`] cannot decode it.
    pub(crate) fn unregistered_kind(bytes: &[u8]) -> Option<String> {
        let first = std::str::from_utf8(bytes).ok()?.split(' ').next()?;
        let unregistered = ExternalKind::is_name(first) && ExternalKind::named(first).is_none();
        unregistered.then(|| first.to_string())
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<TreeConfig> {
        let mut words = std::str::from_utf8(bytes).ok()?.split(' ');
        let mut config = TreeConfig {
            role: match words.next()? {
                "staging" => Role::Staging,
                "keys" => Role::Keys,
                "superseded" => Role::Superseded,
                "deleted" => Role::Deleted,
                "widened" => Role::Widened,
                "notes" => Role::Notes,
                "expiry" => Role::Expiry,
                "old" => Role::Old,
                kind => Role::Index(kind.parse().ok()?),
            },
            merging: Merging::Leveled,
            incomplete: false,
            silent: false,
            versions: 1,
        };
        for word in words {
            match word {
                INCOMPLETE => config.incomplete = true,
                SILENT => config.silent = true,
                word => match word.strip_prefix(VERSIONS) {
                    Some(number) => {
                        config.versions = number.parse().ok().filter(|versions| *versions > 0)?;
                    }
                    None => config.merging = word.parse().ok()?,
                },
            }
        }
        Some(config)
    }
}
