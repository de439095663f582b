//! Values of the library in the syntax of the command line.

use std::fmt::Write;

use esker::advise::AdvisedChange;
use esker::schema::{IndexText, Merging, Repair};
use esker::{DatasetDef, IndexKind, KeyType, Path, Type};

use crate::args::{Strategy, Ttl};

/// The arguments of `load` that create a dataset with this definition; defaults are left out.
pub(crate) fn definition(def: &DatasetDef) -> String {
    let mut text = match def.key_type {
        _ if def.auto_key => "--key auto".to_string(),
        KeyType::Fields => format!("--key {}", def.key),
        one => format!("--key {}:{one}", def.key),
    };
    // Writing to a string cannot fail.
    for index in &def.indexes {
        if index.kind.is_clustered() {
            let _ = write!(text, " --cluster {}", index.path);
            if matches!(index.ty, Type::PlanePoint | Type::PlanePointTime) {
                text += ":plane";
            }
            continue;
        }
        let _ = write!(text, " --index {}", IndexText::of(index));
    }
    let usual = DatasetDef::new(def.key.clone(), def.key_type);
    let strategy = Strategy::of(def);
    if strategy != Strategy::of(&usual) {
        let _ = write!(text, " --maintenance {strategy}");
    }
    if def.repair != Repair::default() {
        let _ = write!(text, " --repair {}", def.repair);
    }
    if def.merging != Merging::default() {
        let _ = write!(text, " --merging {}", def.merging);
    }
    if def.versions != 1 {
        let _ = write!(text, " --versions {}", def.versions);
    }
    if def.expiry.ttl.is_some() {
        let _ = write!(text, " --ttl {}", Ttl(def.expiry.ttl));
    }
    if let Some(path) = &def.expiry.path {
        let _ = write!(text, " --expires {path}");
        if def.expiry.ty != Type::Time {
            let _ = write!(text, ":{}", def.expiry.ty);
        }
    }
    if def.old_records {
        text += " --old-records";
    }
    text
}

/// The arguments of `esker index` that make the advised change in the store at `dir`; `None` if no
/// change is advised.
pub(crate) fn index_command(
    path: &Path,
    kind: IndexKind,
    change: AdvisedChange,
    dir: &str,
    dataset: &str,
) -> Option<String> {
    match change {
        AdvisedChange::Add => Some(format!("add {dir} {dataset} {path}:{kind}")),
        AdvisedChange::Switch => Some(format!("switch {dir} {dataset} {path}:{kind}")),
        AdvisedChange::Drop => Some(format!("drop {dir} {dataset} {path}")),
        _ => None,
    }
}
