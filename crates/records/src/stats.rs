//! What a store looks like, as JSON for people and programs.

use lsm::version::{Run, TreeVersion};
use serde_json::{Map, Value as Json, json};

use crate::database::Database;
use crate::dataset::Dataset;

impl Database {
    /// The state of the whole store: datasets, memory, counters since opening.
    pub fn stats(&self) -> Json {
        let group = self.group();
        let mut counters = Map::new();
        for (name, value) in group.stats().each() {
            counters.insert(name.to_string(), json!(value));
        }
        let mut datasets = Map::new();
        for name in self.dataset_names() {
            if let Ok(dataset) = self.dataset(&name) {
                datasets.insert(name, dataset.stats());
            }
        }
        json!({
            "datasets": datasets,
            "memory": {
                "budget_bytes": group.options().memory_budget,
                "memtable_bytes": group.memtable_bytes(),
                "cache_bytes": group.cache().used_bytes(),
                "cache_capacity_bytes": group.cache().capacity(),
            },
            "counters": counters,
        })
    }
}

impl Dataset {
    /// The state of the dataset: its definition, and its trees level by level.
    pub fn stats(&self) -> Json {
        let snapshot = self.shared.group.snapshot();
        let mut trees = Vec::new();
        for id in self.trees() {
            let Some(tree) = snapshot.version().trees.get(&id) else {
                continue;
            };
            let memtables = snapshot.components(id);
            let (mut entries, mut bytes) = (0, 0);
            for component in &memtables {
                if let lsm::Component::Memtable(memtable) = component {
                    entries += memtable.len();
                    bytes += memtable.memory();
                }
            }
            trees.push(json!({
                "name": self.tree_label(tree),
                "memtable": { "entries": entries, "bytes": bytes },
                "levels": levels(tree),
                "bytes": tree.size(),
            }));
        }
        json!({ "definition": self.def().to_string(), "trees": trees })
    }

    fn tree_label(&self, tree: &TreeVersion) -> String {
        let attribute = self
            .layout
            .attributes
            .iter()
            .find(|a| a.tree == Some(tree.id));
        attribute.map_or_else(
            || "data".to_string(),
            |a| format!("{} index of {}", a.kind, a.path),
        )
    }
}

/// The runs of a tree, newest first; those of level 0 one by one.
fn levels(tree: &TreeVersion) -> Vec<Json> {
    tree.runs.iter().map(level).collect()
}

fn level(run: &Run) -> Json {
    let component = run.component();
    let count = |of: fn(&lsm::table::TableMeta) -> u64| {
        run.tables.iter().map(|t| of(t.meta())).sum::<u64>()
    };
    json!({
        "level": run.level,
        "files": run.tables.len(),
        "entries": count(|meta| meta.entries),
        "deletes": count(|meta| meta.deletes),
        "bytes": run.size(),
        "min_seq": component.min,
        "max_seq": component.max,
    })
}
