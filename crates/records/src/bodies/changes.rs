//! Changes of indexes in a dataset stored by location.

use esker_model::definition::IndexKind;
use esker_model::schema::Path;

use crate::catalog::Layout;
use crate::error::{Error, Result};

/// Refuses changes that do not fit a dataset stored by location: changing its clustered index, or
/// declaring another one, because that would move all records; and embedded indexes of attributes
/// that heads may lack, because the data tables have only heads.
pub(crate) fn refuse_change(layout: &Layout, path: &Path, kind: IndexKind) -> Result<()> {
    if kind.is_clustered() {
        return Err(Error::bad_input(format!(
            "an index of kind {kind} cannot be added: it stores the records in order of the points at `{path}`, which must be chosen when the dataset is created"
        )));
    }
    let Some(clustered) = layout.clustered() else {
        return Ok(());
    };
    if clustered.path == *path {
        return Err(Error::bad_input(format!(
            "the records are stored in order of the points at `{path}`: this index can be neither dropped nor changed"
        )));
    }
    let known = layout.stored.attribute(path);
    let in_heads = known.is_some_and(|known| layout.stored.in_all_records(known.id));
    if kind.is_embedded() && !in_heads {
        Err(Error::bad_input(format!(
            "`{path}`: the records are stored in order of the points at `{}`, so an index of kind {kind} needs an attribute that was declared when the dataset was created; choose lazy, recent or composite, or spatial:z or spatial:mbr for points",
            clustered.path
        )))
    } else {
        Ok(())
    }
}
