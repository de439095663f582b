//! The trees of a dataset, and their options for the engine: how each tree is compacted, which
//! entries its compactions drop, and what its tables summarise. The engine asks for the options by
//! a tree's name and configuration alone ([`TreeProvider`]), also when it recovers.

use std::sync::Arc;

use esker_lsm::attributes::{Extractor, Summary};
use esker_lsm::coding::{Misplaced, Own};
use esker_lsm::{
    CompactionPolicy, DropPolicy, LazyLeveled, Leveled, SupersededBy, Tiered, TreeOptions,
    TreeProvider,
};
use esker_model::definition::{
    IndexKind, MaintenanceSettings, Merging, Repair, StoredAttribute, StoredDef,
};
use esker_model::query::BackfillExtractor;
use esker_model::record::RecordRef;

use crate::catalog::{
    Role, TreeConfig, data_tree, dataset_of, deleted_tree, expiry_tree, index_tree, keys_tree,
    old_tree, superseded_tree, widened_tree,
};
use crate::extension::Extensions;
use crate::fields::FieldDigester;
use crate::index::{self, IndexTypes};
use crate::maintenance;

/// The trees of a new dataset, data first: names and configurations.
pub(crate) fn new_trees(name: &str, stored: &StoredDef) -> Vec<(String, Vec<u8>)> {
    let settings = &stored.settings;
    let config = |role| TreeConfig::new(role, settings).to_bytes();
    let mut trees = vec![(data_tree(name), stored.to_bytes())];
    for attribute in &stored.attributes {
        if widens(settings, attribute.def.kind) {
            trees.push((widened_tree(name, attribute.id), config(Role::Widened)));
        }
        if !attribute.def.kind.is_standalone() {
            continue;
        }
        let tree = index_tree(name, attribute.id, attribute.tree);
        trees.push((tree, config(Role::Index(attribute.def.kind))));
        if maintenance::strategy_of(settings.maintenance).keeps_written_keys() {
            trees.push((deleted_tree(name, attribute.id), config(Role::Deleted)));
        }
    }
    if settings.maintenance.uses_keys() {
        trees.push((keys_tree(name), config(Role::Keys)));
    }
    trees.push((superseded_tree(name), config(Role::Superseded)));
    if stored.expiry.is_some() {
        trees.push((expiry_tree(name), config(Role::Expiry)));
    }
    if stored.old_records {
        trees.push((old_tree(name), config(Role::Old)));
    }
    trees
}

/// True if writes record the values that they replaced for an index of this kind, in a tree of its
/// own ([`Role::Widened`]).
pub(crate) fn widens(settings: &MaintenanceSettings, kind: IndexKind) -> bool {
    maintenance::strategy_of(settings.maintenance).keeps_replaced_values()
        && index::is_filtered_scan(kind)
}

/// Extracts the attributes of stored records that have an embedded index. The vectors have one item
/// for each attribute, its *slot*.
struct EmbeddedAttributes {
    ids: Vec<u32>,
    summaries: Vec<Summary>,
    /// Above all IDs.
    end: u32,
    /// Extract the attributes from the JSON of records that are older than the attributes.
    backfills: Vec<BackfillExtractor>,
}

impl EmbeddedAttributes {
    fn new(stored: &StoredDef) -> Result<EmbeddedAttributes, Misplaced> {
        let key = (stored.key.clone(), stored.key_type);
        let building = stored.change.as_ref().map(|change| &change.attribute);
        let building = building.filter(|a| a.def.kind.is_embedded());
        // A change from one embedded type to another: new tables get the new one.
        let rebuilt = building.map(|a| a.id);
        let attributes: Vec<&StoredAttribute> = stored
            .attributes
            .iter()
            .filter(|a| rebuilt != Some(a.id))
            .chain(building)
            .filter(|a| a.def.kind.is_embedded())
            .collect();
        let backfills: Vec<BackfillExtractor> = attributes
            .iter()
            .map(|a| BackfillExtractor::new(&key, a, stored))
            .collect();
        let ids: Vec<u32> = backfills.iter().map(|backfill| backfill.id).collect();
        let summaries = attributes.iter().map(|a| {
            // Embedded indexes are built in, and consist of summaries.
            let summary = index::built_in(a.def.kind).and_then(|index| index.summary());
            summary.ok_or_else(|| Misplaced::here())
        });
        Ok(EmbeddedAttributes {
            summaries: summaries.collect::<Result<_, _>>()?,
            end: ids.iter().max().map_or(0, |id| id + 1),
            ids,
            backfills,
        })
    }
}

impl Extractor for EmbeddedAttributes {
    fn ids(&self) -> &[u32] {
        &self.ids
    }

    fn summary(&self, slot: usize) -> Summary {
        *self.summaries.own(slot)
    }

    fn extract(&self, _key: &[u8], value: &[u8], emit: &mut dyn FnMut(usize, &[u8])) {
        // A malformed record has no attributes: reads report it.
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
        for (slot, backfill) in self.backfills.iter().enumerate() {
            if backfill.id >= record.known() {
                backfill.any_value(record.body(), &mut |value| {
                    emit(slot, value);
                    false
                });
            }
        }
    }
}

/// Resolves the engine's options for all trees.
pub(crate) struct Trees {
    /// The size in bytes at which a compaction starts the next table.
    pub(crate) table_size: u64,
    /// The size in bytes from which a tiered tree no longer compacts a run.
    pub(crate) largest_mergeable: u64,
    /// The table of a level that is compacted next.
    pub(crate) next_table: esker_lsm::NextTable,
    /// The extensions, which have their own trees.
    pub(crate) extensions: Extensions,
    pub(crate) index_types: IndexTypes,
}

impl Trees {
    /// The policy for a setting. Level sizes are multiples of the table size, so that a store of
    /// small tables is as deep as a large one.
    fn policy(&self, merging: Merging) -> Arc<dyn CompactionPolicy> {
        let leveled = |tables: u64| Leveled {
            level1_bytes: self.table_size.saturating_mul(tables),
            next: self.next_table,
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

    /// The options of a data tree; `None` for a malformed name.
    ///
    /// # Errors
    /// [`Misplaced`] if an embedded index has no summaries.
    fn of_data(&self, name: &str, stored: &StoredDef) -> Result<Option<TreeOptions>, Misplaced> {
        let Some(dataset) = dataset_part(name) else {
            return Ok(None);
        };
        let embedded = EmbeddedAttributes::new(stored)?;
        let extractor: Option<Arc<dyn Extractor>> = if embedded.ids.is_empty() {
            None
        } else {
            Some(Arc::new(embedded))
        };
        Ok(Some(TreeOptions {
            extractor,
            digester: Some(Arc::new(FieldDigester)),
            policy: self.policy(stored.settings.merging),
            versions: stored.settings.versions as usize,
            superseded: Some(superseded(dataset, data_drops(stored))),
            ..TreeOptions::default()
        }))
    }

    /// The options of a derived or additional tree; `None` if its index type is unknown, or for a
    /// malformed name.
    fn of_role(&self, name: &str, config: &TreeConfig) -> Option<TreeOptions> {
        let dataset = dataset_part(name)?;
        // A tree that reports on the data's components has the same components, if these are whole
        // runs.
        let correlated = match config.role {
            Role::Widened => config.merging != Merging::Leveled,
            _ => config.merging == Merging::Correlated,
        };
        let follows = correlated.then(|| data_tree(dataset));
        let drops = |drop_policy| Some(superseded(dataset, drop_policy));
        Some(match config.role {
            Role::Staging => unfiltered(Arc::new(Tiered::default())),
            Role::Notes => TreeOptions {
                policy: self.policy(Merging::Leveled),
                ..TreeOptions::default()
            },
            Role::Old => TreeOptions {
                log_only: true,
                ..TreeOptions::default()
            },
            Role::Superseded => TreeOptions {
                bitmap: true,
                ..unfiltered(Arc::new(Tiered::default()))
            },
            // Only read from the front. Obsolete records need not expire.
            Role::Expiry => TreeOptions {
                superseded: drops(DropPolicy::Silent),
                ..unfiltered(self.policy(config.merging))
            },
            Role::Widened => TreeOptions {
                follows,
                ..unfiltered(self.policy(Merging::Tiered))
            },
            // Tiered: components have disjoint spans of sequence numbers, which validation uses.
            Role::Keys | Role::Deleted => TreeOptions {
                policy: self.policy(Merging::Tiered),
                follows,
                incomplete: config.incomplete,
                superseded: drops(if config.silent {
                    DropPolicy::Silent
                } else {
                    DropPolicy::Record
                }),
                ..TreeOptions::default()
            },
            Role::Index(kind) => {
                let index = self.index_types.index_of(kind)?;
                TreeOptions {
                    policy: self.policy(index.merging(config.merging)),
                    follows,
                    incomplete: config.incomplete,
                    superseded: drops(DropPolicy::Silent),
                    // It has the records themselves.
                    digester: kind.is_clustered().then(|| Arc::new(FieldDigester) as _),
                    ..index.tree_options(config.versions as usize)?
                }
            }
        })
    }

    /// Refuses trees of an index type that the store was not opened with.
    fn refuse_unknown(
        &self,
        name: &str,
        kinds: impl IntoIterator<Item = IndexKind>,
    ) -> esker_lsm::Result<()> {
        match kinds.into_iter().find(|kind| self.index_types.lacks(*kind)) {
            None => Ok(()),
            Some(kind) => Err(esker_lsm::Error::Unsupported(format!(
                "tree {name} belongs to an index of type `{kind}`, which is not among the index types that the store was opened with"
            ))),
        }
    }
}

/// A tree that is never searched by key, and so needs no key filter.
fn unfiltered(policy: Arc<dyn CompactionPolicy>) -> TreeOptions {
    TreeOptions {
        policy,
        filter_bits_per_key: 0,
        ..TreeOptions::default()
    }
}

/// The name of the dataset that the tree `name` belongs to; `None` if the name has no dataset.
fn dataset_part(name: &str) -> Option<&str> {
    name.split_once('/').map(|(dataset, _)| dataset)
}

/// The obsolete set of a dataset, by which compactions of its trees drop entries.
fn superseded(dataset: &str, drop_policy: DropPolicy) -> SupersededBy {
    SupersededBy {
        tree: superseded_tree(dataset),
        drop_policy,
    }
}

/// How compactions of the data treat obsolete records.
fn data_drops(stored: &StoredDef) -> DropPolicy {
    let settings = &stored.settings;
    // The kinds include that of an index under construction, which has index entries already.
    // A range filter records replaced values under the number of the replacing write. If that write
    // were dropped while the version that it replaced stays in a component, the older version would
    // look current.
    if stored.kinds().any(|kind| widens(settings, kind)) {
        return DropPolicy::Regardless;
    }
    // If there is a primary-key index, its compactions report instead, because it is smaller.
    let data_reports = maintenance::strategy_of(settings.maintenance).data_reports();
    match settings.repair {
        Repair::Merge if data_reports && stored.kinds().any(IndexKind::is_standalone) => {
            DropPolicy::Record
        }
        // Independent of the present indexes: readers must know that runs may hold several
        // versions.
        Repair::Staged => DropPolicy::KeepUntilRepaired,
        _ => DropPolicy::Silent,
    }
}

impl TreeProvider for Trees {
    fn tree_options(&self, name: &str, config: &[u8]) -> esker_lsm::Result<TreeOptions> {
        if let Some(options) = self.extensions.tree_options(name, config) {
            return options;
        }
        let options = if dataset_of(name).is_some() {
            match StoredDef::from_bytes(config) {
                Some(stored) => {
                    self.refuse_unknown(name, stored.kinds())?;
                    self.of_data(name, &stored)?
                }
                None => None,
            }
        } else {
            match TreeConfig::from_bytes(config) {
                Some(config) => {
                    if let Role::Index(kind) = config.role {
                        self.refuse_unknown(name, [kind])?;
                    }
                    self.of_role(name, &config)
                }
                None => None,
            }
        };
        let unreadable = || format!("tree {name}: its configuration cannot be read");
        options.ok_or_else(|| esker_lsm::Error::Invalid(unreadable()))
    }
}
