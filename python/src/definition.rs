//! Definitions of datasets: the keywords of `Database.create` are the parts of the server's
//! document, and the options of `esker create`.

use esker::schema::{
    DefinitionDocument, IndexText, KeyText, infer_key_type, infer_time_type, infer_type,
};
use esker::{DatasetDef, Type};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::error::{Raise, input};
use crate::json::record_json;
use crate::report::report;

/// Types are inferred from so many records.
const SAMPLE: usize = 1000;

/// The definition of a document. Types that it does not say are those of most values in the sample.
pub(crate) fn definition_of(
    py: Python<'_>,
    mut document: DefinitionDocument,
    sample: Option<&Bound<'_, PyAny>>,
) -> PyResult<DatasetDef> {
    if let Some(sample) = sample {
        let mut records: Vec<Vec<u8>> = Vec::new();
        for record in sample.try_iter()?.take(SAMPLE) {
            let mut json = Vec::new();
            record_json(&record?, &mut json)?;
            records.push(json);
        }
        complete(py, &mut document, &records)?;
    }
    document.to_def().raise(py)
}

/// Adds the types that the records tell.
fn complete(
    py: Python<'_>,
    document: &mut DefinitionDocument,
    records: &[Vec<u8>],
) -> PyResult<()> {
    let refuse = |part: &str, text: &str, why: String| input(py, format!("{part} `{text}`: {why}"));
    let key = document.key.parse::<KeyText>();
    let mut key = key.map_err(|why| refuse("key", &document.key, why))?;
    if !key.is_auto && key.ty.is_none() {
        key.ty = infer_key_type(records, &key.path);
        document.key = key.to_string();
    }
    for text in &mut document.indexes {
        let index = text.parse::<IndexText>();
        let mut index = index.map_err(|why| refuse("index", text, why))?;
        let found = match index.known_type() {
            Some(Type::Time) => Some(infer_time_type(records, &index.path)),
            Some(_) => None,
            None => infer_type(records, &index.path),
        };
        if let Some(ty) = found {
            index.ty = Some(ty);
            *text = index.to_string();
        }
    }
    Ok(())
}

/// A definition as a dict.
pub(crate) fn definition_dict<'py>(
    py: Python<'py>,
    def: &DatasetDef,
) -> PyResult<Bound<'py, PyDict>> {
    let document = report(py, &DefinitionDocument::of(def))?;
    Ok(document.cast_into::<PyDict>()?)
}
