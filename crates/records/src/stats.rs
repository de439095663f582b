//! What a store looks like, as JSON for people and programs.

use std::sync::Arc;

use lsm::version::{Run, TreeVersion};
use lsm::{EndedJob, Job, JobAbout, JobFailure, NamedSnapshot, Position, Retry, RunningJob, Why};
use serde_json::{Map, Value as Json, json};

use model::definition::DatasetDef;

use crate::catalog::Layout;
use crate::store::{Handle, Store};

impl Store {
    /// See [`crate::Database::stats`].
    pub(crate) fn stats(self: &Arc<Store>) -> Json {
        let group = &self.group;
        let mut counters = Map::new();
        for (name, value) in group.stats().each() {
            counters.insert(name.to_string(), json!(value));
        }
        let memory = group.memory();
        let held = memory.held.iter();
        let held = held.map(|(account, bytes)| (account.name().to_string(), json!(bytes)));
        let held: Map<String, Json> = held.collect();
        let mut datasets = Map::new();
        for current in self.currents() {
            let name = current.name.clone();
            let handle = Handle::new(self.clone(), current, None);
            datasets.insert(name, handle.stats());
        }
        json!({
            "datasets": datasets,
            "memory": {
                "held_bytes": held,
                "waiting": memory.waiting,
                "waits": memory.waits,
                "overdrafts": memory.overdrafts,
                "cache_limit_bytes": memory.cache_limit,
                "budget_bytes": group.options().memory_budget,
                "memtable_bytes": group.memtable_bytes(),
                "cache_bytes": group.cache().used_bytes(),
                "cache_capacity_bytes": group.cache().capacity(),
            },
            "counters": counters,
            "consumers": group.log_consumers().iter().map(consumer).collect::<Vec<_>>(),
            "snapshots": group.snapshots().iter().map(snapshot).collect::<Vec<_>>(),
            // Of tables that are there for snapshots alone.
            "snapshot_bytes": group.snapshot_bytes(),
            // Milliseconds since 1970; nothing that expires is dropped before somebody confirms it.
            "unconfirmed_time": group.unconfirmed_time(),
            "failures": group.failures().iter().map(failure).collect::<Vec<_>>(),
            "jobs": group.jobs().iter().map(running).collect::<Vec<_>>(),
            "ended_jobs": group.ended_jobs().iter().map(ended).collect::<Vec<_>>(),
        })
    }
}

/// Of changes, with how much of the log is kept at most.
fn consumer((name, position, bytes): &(String, Position, u64)) -> Json {
    json!({ "name": name, "position": position.to_string(), "keeps_bytes": bytes })
}

fn snapshot(kept: &NamedSnapshot) -> Json {
    json!({
        "name": kept.name,
        "seq": kept.seq,
        "bytes": kept.bytes,
        "own_bytes": kept.own_bytes,
    })
}

impl Handle {
    /// See [`crate::Dataset::stats`].
    pub(crate) fn stats(&self) -> Json {
        let snapshot = self.shared.group.snapshot();
        let mut trees = Vec::new();
        let layout = self.current.layout_in(snapshot.version());
        for id in layout.trees() {
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
                "name": tree_label(&layout, tree),
                // Of a table that cannot be opened; `check` reads all there is.
                "damage": tree.tables().find_map(|table| table.table().err()).map(|error| error.to_string()),
                "memtable": { "entries": entries, "bytes": bytes },
                "levels": levels(tree),
                "bytes": tree.size(),
            }));
        }
        let failures = self.shared.group.failures();
        let own = |failure: &&JobFailure| match &failure.tree {
            Some((id, _)) => layout.trees().contains(id),
            None => true,
        };
        let failures: Vec<Json> = failures.iter().filter(own).map(failure).collect();
        let def = layout.stored.def();
        let mut stats = json!({
            "definition": definition(&def),
            "upkeep": self.upkeep_stats(&layout, &snapshot),
            "trees": trees,
            "failures": failures,
        });
        if let (Some(change), Json::Object(fields)) = (&layout.stored.change, &mut stats) {
            let def = &change.attribute.def;
            let unfinished = json!({
                "path": def.path.to_string(),
                "kind": def.kind.to_string(),
                "type": def.ty.to_string(),
            });
            fields.insert("unfinished".to_string(), unfinished);
        }
        stats
    }
}

fn definition(def: &DatasetDef) -> Json {
    let indexes = def.indexes.iter().map(|index| {
        json!({
            "path": index.path.to_string(),
            "kind": index.kind.to_string(),
            "type": index.ty.to_string(),
            "tokenizer": index.tokenizer.to_string(),
        })
    });
    json!({
        "key": def.key.to_string(),
        "key_type": def.key_type.to_string(),
        "indexes": indexes.collect::<Vec<_>>(),
    })
}

/// A background job that fails: what, where, why, how often, and when it is tried again.
fn failure(failure: &JobFailure) -> Json {
    let retry = match failure.retry {
        Retry::In(pause) => format!("in {:.1} s", pause.as_secs_f64()),
        Retry::AfterFlushes(0) => "at the next flush".to_string(),
        Retry::AfterFlushes(n) => format!("after {n} flushes"),
    };
    json!({
        "job": match failure.job {
            Job::Flush => "flush",
            Job::Merge => "merge",
        },
        "tree": failure.tree.as_ref().map(|(_, name)| name),
        "times": failure.times,
        "next_attempt": retry,
        "error": failure.error.to_string(),
    })
}

/// What a job is about.
fn about(job: &JobAbout) -> Map<String, Json> {
    let why = match job.why {
        Why::Memtables => "memtables".to_string(),
        Why::Due(score) => format!("due, {score:.2}"),
        Why::Newer => "newer runs of a tree that cannot be merged".to_string(),
        Why::Asked => "asked for".to_string(),
        Why::Space => "unused space".to_string(),
    };
    let mut fields = Map::new();
    fields.insert("job".to_string(), json!(job.kind.name()));
    fields.insert("tree".to_string(), json!(job.tree));
    fields.insert("trees".to_string(), json!(job.trees));
    if let Some(((first, last), to)) = job.levels {
        fields.insert("from_levels".to_string(), json!([first, last]));
        fields.insert("to_level".to_string(), json!(to));
    }
    fields.insert("why".to_string(), json!(why));
    fields.insert("bytes_in".to_string(), json!(job.bytes_in));
    fields
}

fn running(job: &RunningJob) -> Json {
    let mut fields = about(&job.about);
    fields.insert("bytes_written".to_string(), json!(job.written));
    fields.insert("seconds".to_string(), json!(job.age.as_secs_f64()));
    Json::Object(fields)
}

fn ended(job: &EndedJob) -> Json {
    let mut fields = about(&job.about);
    fields.insert("bytes_written".to_string(), json!(job.written));
    fields.insert("seconds".to_string(), json!(job.took.as_secs_f64()));
    fields.insert("seconds_ago".to_string(), json!(job.ago.as_secs_f64()));
    let error = job.error.as_ref().map(ToString::to_string);
    fields.insert("error".to_string(), json!(error));
    Json::Object(fields)
}

fn tree_label(layout: &Layout, tree: &TreeVersion) -> String {
    if tree.id == layout.data {
        return "data".to_string();
    }
    if layout.keys_written == Some(tree.id) {
        let built = if layout.keys.is_none() {
            ", being built"
        } else {
            ""
        };
        return format!("primary-key index{built}");
    }
    if layout.superseded == Some(tree.id) {
        return "obsolete writes".to_string();
    }
    if let Some((_, a)) = layout.written().find(|(_, a)| a.deleted == Some(tree.id)) {
        return format!("keys written since the index of {} began", a.path);
    }
    if let Some((_, a)) = layout.written().find(|(_, a)| a.widened == Some(tree.id)) {
        return format!("replaced values of {}", a.path);
    }
    let attribute = layout.written().find(|(_, a)| a.tree == Some(tree.id));
    attribute.map_or_else(
        || "entries of the index that is being built".to_string(),
        |(_, a)| {
            let built = if a.incomplete { ", being built" } else { "" };
            format!("{} index of {}{built}", a.kind, a.path)
        },
    )
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
