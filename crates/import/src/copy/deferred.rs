//! Indexes with unique values of a target that keeps versions: they are built when all versions are
//! copied, since an older version may have a value that another record has by now.

use std::ops::ControlFlow;

use esker::{DatasetDef, Index, IndexKind, Result};
use esker_store::Dataset;

use super::observer::CopyObserver;

/// The definition without its unique indexes: their fields are declared, so that records are stored
/// with the values.
pub(super) fn without_unique(def: &DatasetDef) -> DatasetDef {
    let mut def = def.clone();
    def.indexes
        .retain(|index| !(index.unique && index.ty.is_compound()));
    for index in &mut def.indexes {
        if index.unique {
            index.kind = IndexKind::None;
            index.unique = false;
        }
    }
    def
}

/// Completes an index that an earlier run has begun to build, and builds those that are missing.
/// False if the observer stopped it.
pub(super) fn build(
    target: &dyn Dataset,
    def: &DatasetDef,
    observer: &dyn CopyObserver,
) -> Result<bool> {
    if !resume(target, observer)? {
        return Ok(false);
    }
    for wanted in def.indexes.iter().filter(|index| index.unique) {
        let known = target.def().indexes;
        if known.iter().any(|index| index == wanted) {
            continue;
        }
        let index = Index::new(wanted.kind).of_type(wanted.ty);
        let index = index.tokenizer(wanted.tokenizer);
        let index = index.lenient_if(wanted.lenient).unique();
        let change = target.add_index(wanted.path.clone(), index)?;
        let built = change.on_progress(|_| going_on(observer)).run()?;
        if !built.complete {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Completes an index that an earlier run has begun to build. False if the observer stopped it.
pub(super) fn resume(target: &dyn Dataset, observer: &dyn CopyObserver) -> Result<bool> {
    if target.unfinished_index().is_none() {
        return Ok(true);
    }
    let change = target.resume_index()?;
    let built = change.on_progress(|_| going_on(observer)).run()?;
    Ok(built.is_none_or(|built| built.complete))
}

fn going_on(observer: &dyn CopyObserver) -> ControlFlow<()> {
    if observer.is_stopped() {
        ControlFlow::Break(())
    } else {
        ControlFlow::Continue(())
    }
}
