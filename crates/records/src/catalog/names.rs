//! The trees of a dataset: their names and configurations.
//!
//! A dataset `d` has these trees:
//!
//! - `d/data`: primary key -> stored record.
//! - `d/index/N`: the index of attribute N, if that is stand-alone; `d/index/N.1` after the first
//!   change of its type, and so on.
//! - `d/staging`: collected entries of an index under construction.
//! - `d/keys`: the primary-key index, if the maintenance strategy uses one: keys under the sequence
//!   numbers of their records.
//! - `d/superseded`: the bitmap tree of the obsolete set.
//! - `d/deleted/N`: the keys written since index N began, under deleted-key maintenance.
//! - `d/widened/N`: the replaced values of attribute N, for its range filter under eager
//!   maintenance.
//! - `d/notes`: notes of programs beside the records (name -> bytes), created with the first note.
//! - `d/expiry`: expiry times, if records expire (`store/expired.rs`).
//! - `d/old`: replaced records, in the log only, if the feed includes them: key -> write and stored
//!   record.
//!
//! Trees of extensions are called `@extension/tree`.

use esker_lsm::TreeId;
use esker_lsm::version::Version;
use esker_model::definition::{IndexKind, MaintenanceSettings, Merging, Repair};

/// The end of the names of data trees.
const DATA: &str = "/data";

/// The name of a dataset's data tree.
pub(crate) fn data_tree(dataset: &str) -> String {
    format!("{dataset}{DATA}")
}

/// The name of an index tree of attribute `id`. `number` counts the changes of the index's type.
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

/// The trees of a dataset, with their names after a rename.
pub(crate) fn renamed_trees(version: &Version, dataset: &str, to: &str) -> Vec<(TreeId, String)> {
    let trees = version.trees.values();
    let renamed = trees.filter_map(|tree| {
        let (first, rest) = tree.name.split_once('/')?;
        (first == dataset).then(|| (tree.id, format!("{to}/{rest}")))
    });
    renamed.collect()
}

/// The prefix of extensions' trees. No dataset name begins with it.
pub(crate) const EXTENSION: char = '@';

/// True for the trees of extensions.
pub(crate) fn is_of_extension(tree: &str) -> bool {
    tree.starts_with(EXTENSION)
}

/// The name of the tree of collected entries of an index under construction.
pub(crate) fn staging_tree(dataset: &str) -> String {
    format!("{dataset}/staging")
}

/// The name of a dataset's primary-key index.
pub(crate) fn keys_tree(dataset: &str) -> String {
    format!("{dataset}/keys")
}

/// The name of the tree of a dataset's obsolete set.
pub(crate) fn superseded_tree(dataset: &str) -> String {
    format!("{dataset}/superseded")
}

/// The name of the tree of keys written since the index of attribute `id` began.
pub(crate) fn deleted_tree(dataset: &str, id: u32) -> String {
    format!("{dataset}/deleted/{id}")
}

/// The name of the tree of expiry times.
pub(crate) fn expiry_tree(dataset: &str) -> String {
    format!("{dataset}/expiry")
}

/// The name of the tree of replaced values of attribute `id`.
pub(crate) fn widened_tree(dataset: &str, id: u32) -> String {
    format!("{dataset}/widened/{id}")
}

/// The name of the tree of notes.
pub(crate) fn notes_tree(dataset: &str) -> String {
    format!("{dataset}/notes")
}

/// The name of the tree of replaced records.
pub(crate) fn old_tree(dataset: &str) -> String {
    format!("{dataset}/old")
}

/// The configuration of a dataset's tree, except the data tree. Stored as words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TreeConfig {
    pub(crate) role: Role,
    /// The compaction policy.
    pub(crate) merging: Merging,
    /// Older entries will be added later.
    pub(crate) incomplete: bool,
    /// Compactions do not report their drops to the obsolete set.
    pub(crate) silent: bool,
    /// The number of versions of a record whose entries an index keeps.
    pub(crate) versions: u32,
}

/// The role of a tree in its dataset (see the head of this file).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// `d/index/N`, of this kind.
    Index(IndexKind),
    /// `d/staging`.
    Staging,
    /// `d/keys`.
    Keys,
    /// `d/superseded`.
    Superseded,
    /// `d/deleted/N`.
    Deleted,
    /// `d/widened/N`.
    Widened,
    /// `d/notes`.
    Notes,
    /// `d/expiry`.
    Expiry,
    /// `d/old`.
    Old,
}

// Words of configurations.
const INCOMPLETE: &str = "incomplete";
const SILENT: &str = "silent";
const VERSIONS: &str = "versions=";

impl TreeConfig {
    /// The configuration of a tree under these settings, complete from its creation.
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

    /// The same configuration, for a tree whose older entries will be added later.
    pub(crate) fn incomplete(self) -> TreeConfig {
        TreeConfig {
            incomplete: true,
            ..self
        }
    }

    /// The words, separated by spaces: the role, and what differs from the default.
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

    /// Reads the words; `None` if one is unknown.
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
