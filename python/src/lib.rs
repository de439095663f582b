//! Esker for Python: the module `esker._esker`, from which the package `esker` takes its classes.
//!
//! [`DESIGN.md`](../DESIGN.md) says who owns what and which rules hold for threads, the
//! interpreter's lock, signals and forks. The layers of the modules are in `layers.txt`.

mod batch;
mod changes;
mod condition;
mod dataset;
mod definition;
mod error;
mod here;
mod json;
mod key;
mod key_value;
mod load;
mod query;
mod records;
mod report;
mod rows;
mod source;
mod store;
mod wait;

use pyo3::prelude::*;

#[pymodule]
fn _esker(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(store::open, module)?)?;
    module.add_class::<store::Database>()?;
    module.add_class::<records::Records>()?;
    module.add_class::<dataset::Dataset>()?;
    module.add_class::<query::Query>()?;
    module.add_class::<rows::Rows>()?;
    module.add_class::<rows::Keys>()?;
    module.add_class::<batch::Batch>()?;
    module.add_class::<changes::Changes>()?;
    module.add_class::<changes::Change>()?;
    module.add_class::<report::Explain>()?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    Ok(())
}
