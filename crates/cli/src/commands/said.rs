//! What several commands print.

use esker::Durability;
use esker_store::Dataset;

use crate::output::note;

/// Prints the remarks on written records, each once.
pub(super) fn say_remarks(dataset: &dyn Dataset) {
    for remark in dataset.remarks() {
        note(format_args!("note: {remark}"));
    }
}

/// A plan or statistics as JSON.
pub(super) fn json(of: &impl serde::Serialize) -> serde_json::Value {
    serde_json::to_value(of).unwrap_or_default()
}

/// The promise of a durability level, in words.
pub(super) fn promise(durability: Durability) -> String {
    match durability {
        Durability::Sync => "each batch is synced".to_string(),
        Durability::Periodic(every) => {
            format!("synced every {} ms and at the end", every.as_millis())
        }
        Durability::Os => "left to the system, synced at the end".to_string(),
    }
}
