//! The trees of a dataset: their names, configurations, and the options that the engine gets for each.
//!
//! A dataset `d` has a tree `d/data` (primary key -> stored record), and one tree `d/index/N` for
//! each attribute N with a stand-alone index: `d/index/N.1` after the first change of its kind, and
//! so on. While an index is built, `d/staging` gathers its facts. Beside them `d/keys` is the primary-key
//! index (keys alone, under the sequence numbers of their records), where the maintenance strategy uses
//! one; `d/superseded` is the bitmap tree of the writes that are over; and under deleted-key
//! maintenance `d/deleted/N` are the keys written since index N began. Under eager maintenance
//! `d/widened/N` are the values of attribute N that records had before they were replaced, for its range filter.

use std::sync::Arc;

use lsm::attributes::{Extractor, Summary};
use lsm::{
    CompactionPolicy, LazyLeveled, LeavesOut, Leveled, SupersededBy, Tiered, TreeOptions,
    TreeProvider,
};

use crate::index;
use crate::layout::Late;
use model::definition::{
    IndexKind, Maintenance, Merging, Repair, StoredAttribute, StoredDef, Upkeep,
};
use model::record::RecordRef;

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
    tree.strip_suffix(DATA)
}

/// The name of the tree that gathers the facts of an index that is being built.
pub(crate) fn staging_tree(dataset: &str) -> String {
    format!("{dataset}/staging")
}

/// The name of a dataset's primary-key index.
pub(crate) fn keys_tree(dataset: &str) -> String {
    format!("{dataset}/keys")
}

/// The name of the tree of the writes of a dataset that are over.
pub(crate) fn superseded_tree(dataset: &str) -> String {
    format!("{dataset}/superseded")
}

/// The name of the tree of the keys that were written since the index of attribute `id` began.
pub(crate) fn deleted_tree(dataset: &str, id: u32) -> String {
    format!("{dataset}/deleted/{id}")
}

/// The name of the tree of the values of attribute `id` that writes replaced.
pub(crate) fn widened_tree(dataset: &str, id: u32) -> String {
    format!("{dataset}/widened/{id}")
}

/// What the configuration of a dataset's tree says, other than the data tree's: words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TreeConfig {
    pub(crate) role: Role,
    pub(crate) merging: Merging,
    /// Older entries are still to come.
    pub(crate) incomplete: bool,
    /// Merges do not tell the superseded tree what they leave out.
    pub(crate) silent: bool,
    /// How many versions of a record an index keeps facts of.
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
}

const INCOMPLETE: &str = "incomplete";
const SILENT: &str = "silent";
const VERSIONS: &str = "versions=";

impl TreeConfig {
    pub(crate) fn new(role: Role, upkeep: &Upkeep) -> TreeConfig {
        TreeConfig {
            role,
            merging: upkeep.merging,
            incomplete: false,
            silent: upkeep.repair != Repair::Merge && matches!(role, Role::Keys | Role::Deleted),
            versions: match role {
                Role::Index(_) => upkeep.versions,
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

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<TreeConfig> {
        let mut words = std::str::from_utf8(bytes).ok()?.split(' ');
        let mut config = TreeConfig {
            role: match words.next()? {
                "staging" => Role::Staging,
                "keys" => Role::Keys,
                "superseded" => Role::Superseded,
                "deleted" => Role::Deleted,
                "widened" => Role::Widened,
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

/// The trees of a new dataset, data first: names and configurations.
pub(crate) fn new_trees(name: &str, stored: &StoredDef) -> Vec<(String, Vec<u8>)> {
    let upkeep = &stored.upkeep;
    let config = |role| TreeConfig::new(role, upkeep).to_bytes();
    let mut trees = vec![(data_tree(name), stored.to_bytes())];
    for attribute in &stored.attributes {
        if widens(upkeep, attribute.def.kind) {
            trees.push((widened_tree(name, attribute.id), config(Role::Widened)));
        }
        if !attribute.def.kind.is_standalone() {
            continue;
        }
        let tree = index_tree(name, attribute.id, attribute.tree);
        trees.push((tree, config(Role::Index(attribute.def.kind))));
        if upkeep.maintenance == Maintenance::DeletedKey {
            trees.push((deleted_tree(name, attribute.id), config(Role::Deleted)));
        }
    }
    if upkeep.maintenance.uses_keys() {
        trees.push((keys_tree(name), config(Role::Keys)));
    }
    trees.push((superseded_tree(name), config(Role::Superseded)));
    trees
}

/// True when writes tell a range filter of this kind what they replaced.
pub(crate) fn widens(upkeep: &Upkeep, kind: IndexKind) -> bool {
    upkeep.maintenance == Maintenance::Eager && kind == IndexKind::Filter
}

/// Tells the engine the attributes of stored records that have an index that tables carry.
struct EmbeddedAttributes {
    ids: Vec<u32>,
    summaries: Vec<Summary>,
    /// One more than the greatest id.
    end: u32,
    late: Vec<Late>,
}

impl EmbeddedAttributes {
    fn new(stored: &StoredDef) -> EmbeddedAttributes {
        let key = (stored.key.clone(), stored.key_type);
        let building = stored.change.iter().map(|change| &change.attribute);
        // Between kinds that tables carry, what is written now is of the new one.
        let rebuilt = building.clone().find(|a| a.def.kind.is_embedded());
        let rebuilt = rebuilt.map(|a| a.id);
        let attributes: Vec<&StoredAttribute> = stored
            .attributes
            .iter()
            .filter(|a| rebuilt != Some(a.id))
            .chain(building)
            .filter(|a| a.def.kind.is_embedded())
            .collect();
        let late: Vec<Late> = attributes.iter().map(|a| Late::new(&key, a)).collect();
        let ids: Vec<u32> = late.iter().map(|late| late.id).collect();
        let summaries = attributes.iter().map(|a| match a.def.kind {
            IndexKind::Fingerprint => Summary::Fingerprints,
            IndexKind::Filter => Summary::Zones,
            _ => Summary::Filters,
        });
        EmbeddedAttributes {
            summaries: summaries.collect(),
            end: ids.iter().max().map_or(0, |id| id + 1),
            ids,
            late,
        }
    }
}

impl Extractor for EmbeddedAttributes {
    fn ids(&self) -> &[u32] {
        &self.ids
    }

    fn summary(&self, slot: usize) -> Summary {
        self.summaries.get(slot).copied().unwrap_or_default()
    }

    fn extract(&self, _key: &[u8], value: &[u8], emit: &mut dyn FnMut(usize, &[u8])) {
        let Some(record) = RecordRef::parse(value) else {
            return;
        };
        for (id, value) in record.attributes() {
            if let Some(slot) = self.ids.iter().position(|known| *known == id) {
                emit(slot, value);
            }
        }
        if record.known() >= self.end {
            return;
        }
        for (slot, late) in self.late.iter().enumerate() {
            if late.id >= record.known() {
                late.any_value(record.body(), &mut |value| {
                    emit(slot, value);
                    false
                });
            }
        }
    }
}

/// Gives the engine the options of our trees.
pub(crate) struct Trees {
    /// Bytes at which a merge starts the next table.
    pub(crate) table_size: u64,
    /// Bytes of a run that a tiered tree does not merge any more.
    pub(crate) largest_mergeable: u64,
}

impl Trees {
    /// Levels grow with the tables, so that a store of small tables is as deep as a large one.
    fn policy(&self, merging: Merging) -> Arc<dyn CompactionPolicy> {
        let leveled = |tables: u64| Leveled {
            level1_bytes: self.table_size.saturating_mul(tables),
            ..Leveled::default()
        };
        match merging {
            Merging::LazyLeveled => Arc::new(LazyLeveled {
                least: self.table_size / 4,
                lower: leveled(64),
                ..LazyLeveled::default()
            }),
            Merging::Leveled => Arc::new(leveled(2)),
            Merging::Tiered | Merging::Correlated => Arc::new(Tiered {
                largest_mergeable: self.largest_mergeable,
                ..Tiered::default()
            }),
        }
    }
}

impl TreeProvider for Trees {
    fn tree_options(&self, name: &str, config: &[u8]) -> lsm::Result<TreeOptions> {
        let unknown =
            || lsm::Error::Invalid(format!("tree {name}: its configuration is not readable"));
        let superseded = |leaves_out| {
            let dataset = name.split('/').next().unwrap_or_default();
            Some(SupersededBy {
                tree: superseded_tree(dataset),
                leaves_out,
            })
        };
        if dataset_of(name).is_some() {
            let stored = StoredDef::from_bytes(config).ok_or_else(unknown)?;
            let embedded = EmbeddedAttributes::new(&stored);
            let extractor: Option<Arc<dyn Extractor>> = if embedded.ids.is_empty() {
                None
            } else {
                Some(Arc::new(embedded))
            };
            let upkeep = &stored.upkeep;
            // An index that is being built has facts already.
            let building = stored.change.iter().map(|change| &change.attribute);
            let mut all = stored.attributes.iter().chain(building);
            let standalone = all.any(|a| a.def.kind.is_standalone());
            // With a primary-key index, that one tells, and is smaller.
            let deferred = upkeep.maintenance == Maintenance::Deferred && standalone;
            let leaves_out = superseded(match upkeep.repair {
                Repair::Merge if deferred => LeavesOut::Told,
                // Whatever indexes there are now: readers must know that runs may hold several versions.
                Repair::Staged => LeavesOut::Repaired,
                _ => LeavesOut::Silently,
            });
            // What a write replaced is told beside that write. So it must not be left out while the
            // version that it replaced, as the newest that is left of its key in a component, stays.
            let building = stored.change.iter().map(|change| &change.attribute);
            let mut attributes = stored.attributes.iter().chain(building);
            let widened = attributes.any(|a| widens(upkeep, a.def.kind));
            return Ok(TreeOptions {
                extractor,
                policy: self.policy(upkeep.merging),
                versions: upkeep.versions as usize,
                superseded: match widened {
                    true => superseded(LeavesOut::Regardless),
                    false => leaves_out,
                },
                ..TreeOptions::default()
            });
        }
        let config = TreeConfig::from_bytes(config).ok_or_else(unknown)?;
        // What tells of the data's components has the same ones, where these are whole runs.
        let correlated = match config.role {
            Role::Widened => config.merging != Merging::Leveled,
            _ => config.merging == Merging::Correlated,
        };
        let follows = correlated
            .then(|| name.split('/').next().map(data_tree))
            .flatten();
        let tiered = self.policy(Merging::Tiered);
        Ok(match config.role {
            Role::Staging => TreeOptions {
                policy: Arc::new(Tiered::default()),
                filter_bits_per_key: 0,
                ..TreeOptions::default()
            },
            Role::Superseded => TreeOptions {
                policy: Arc::new(Tiered::default()),
                filter_bits_per_key: 0,
                bitmap: true,
                ..TreeOptions::default()
            },
            Role::Widened => TreeOptions {
                policy: tiered,
                follows,
                filter_bits_per_key: 0,
                ..TreeOptions::default()
            },
            // Tiers: their components' spans of sequence numbers do not overlap, which validation uses.
            Role::Keys | Role::Deleted => TreeOptions {
                policy: tiered,
                follows,
                incomplete: config.incomplete,
                superseded: superseded(if config.silent {
                    LeavesOut::Silently
                } else {
                    LeavesOut::Told
                }),
                ..TreeOptions::default()
            },
            Role::Index(kind) => TreeOptions {
                policy: self.policy(config.merging),
                follows,
                incomplete: config.incomplete,
                superseded: superseded(LeavesOut::Silently),
                ..index::tree_options(kind, config.versions as usize)
            },
        })
    }
}
