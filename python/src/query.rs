//! Queries: what `find` returns. A query is a value: each method returns another one, and nothing
//! is read before records, a number or a plan are asked for.

use std::ops::ControlFlow;

use esker::request::{Aggregate, Aggregation, FieldOrder, GroupBy};
use esker::{Explain as Plan, Order, Path, Request, Stop};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};

use crate::condition;
use crate::error::{Raise, exception, input};
use crate::here::Here;
use crate::json::{Names, decoded};
use crate::report::Explain;
use crate::rows::{Keys, Rows};
use crate::source::Source;
use crate::wait::wait;

/// A query of a dataset, from `find`: iterate over it for its records, newest first.
#[pyclass(frozen, module = "esker")]
pub(crate) struct Query {
    source: Here<Source>,
    request: Request,
}

impl Query {
    pub(crate) fn new(
        source: &Source,
        conditions: &Bound<'_, PyTuple>,
        fields: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Query> {
        let mut request = Request::default();
        request.condition = condition::all(conditions, fields)?;
        Ok(Query {
            source: Here::new(source.clone()),
            request,
        })
    }

    fn with(&self, py: Python<'_>, change: impl FnOnce(&mut Request)) -> PyResult<Query> {
        let mut request = self.request.clone();
        change(&mut request);
        Ok(Query {
            source: Here::new(self.source.get(py)?.clone()),
            request,
        })
    }
}

/// A list of fields, with their directions: `-at` and `at:desc` are descending.
fn fields_of(py: Python<'_>, fields: &[String]) -> PyResult<Vec<FieldOrder>> {
    let mut all = Vec::new();
    for text in fields {
        let text = match text.strip_prefix('-') {
            Some(path) => format!("{path}:desc"),
            None => text.clone(),
        };
        all.extend(FieldOrder::parse_list(&text).raise(py)?);
    }
    Ok(all)
}

#[pymethods]
impl Query {
    /// The query with further conditions, which must hold, too.
    #[pyo3(signature = (*conditions, **fields))]
    fn r#where(
        &self,
        conditions: &Bound<'_, PyTuple>,
        fields: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Query> {
        let further = condition::all(conditions, fields)?;
        self.with(conditions.py(), |request| {
            if let Some(further) = further {
                request.filter(further);
            }
        })
    }

    /// The query in another order: fields (`"-at"` is descending), or one of `"newest"`,
    /// `"oldest"`, `"key"` and `"any"`.
    #[pyo3(signature = (*fields))]
    fn order_by(&self, py: Python<'_>, fields: Vec<String>) -> PyResult<Query> {
        let order = match &*fields {
            [] => Order::Newest,
            [word] if !word.starts_with('-') => word.parse::<Order>().raise(py)?,
            fields => Order::Fields(fields_of(py, fields)?),
        };
        self.with(py, |request| request.order = order)
    }

    /// The query with at most this many records.
    fn limit(&self, py: Python<'_>, limit: usize) -> PyResult<Query> {
        self.with(py, |request| request.limit = Some(limit))
    }

    /// The query without its first records.
    fn offset(&self, py: Python<'_>, offset: usize) -> PyResult<Query> {
        self.with(py, |request| request.offset = offset)
    }

    /// The query with these fields of each record alone.
    #[pyo3(signature = (*fields))]
    fn select(&self, py: Python<'_>, fields: Vec<String>) -> PyResult<Query> {
        let paths = fields.iter().map(|text| text.parse::<Path>().raise(py));
        let paths = paths.collect::<PyResult<Vec<Path>>>()?;
        self.with(py, |request| request.select = paths)
    }

    fn __iter__(&self, py: Python<'_>) -> PyResult<Rows> {
        Ok(Rows::of(self.source.get(py)?, self.request.clone(), false))
    }

    /// An iterator over the records as bytes of JSON.
    fn raw(&self, py: Python<'_>) -> PyResult<Rows> {
        Ok(Rows::of(self.source.get(py)?, self.request.clone(), true))
    }

    /// An iterator over the keys of the records.
    fn keys(&self, py: Python<'_>) -> PyResult<Keys> {
        Ok(Keys::of(self.source.get(py)?, self.request.clone()))
    }

    /// The first record; `None` without one.
    fn first<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let mut request = self.request.clone();
        request.limit = Some(request.limit.map_or(1, |limit| limit.min(1)));
        let rows = Bound::new(py, Rows::of(self.source.get(py)?, request, false))?;
        rows.into_any().try_iter()?.next().transpose()
    }

    /// The number of records.
    pub(crate) fn count(&self, py: Python<'_>) -> PyResult<u64> {
        let request = self.request.clone();
        let count = move |records: &dyn esker_store::Records| records.count(&request);
        let (count, _) = self.source.get(py)?.read(py, &Stop::new(), count)?;
        Ok(count)
    }

    /// Aggregates of the records, as a list with a dict for each group: `aggregate("count,avg(n)",
    /// by="user.name")`.
    #[pyo3(signature = (aggregates, *, by=None, order_by=None, limit=None))]
    pub(crate) fn aggregate<'py>(
        &self,
        py: Python<'py>,
        aggregates: &str,
        by: Option<&str>,
        order_by: Option<&str>,
        limit: Option<usize>,
    ) -> PyResult<Bound<'py, PyList>> {
        self.request.check_settings("aggregate", &[]).raise(py)?;
        let mut aggregation = Aggregation::new(Aggregate::parse_list(aggregates).raise(py)?);
        aggregation.condition.clone_from(&self.request.condition);
        if let Some(by) = by {
            aggregation.by = GroupBy::parse_list(by).raise(py)?;
        }
        if let Some(order) = order_by {
            aggregation.order = fields_of(py, &[order.to_string()])?;
        }
        aggregation.limit = limit;
        let groups = self
            .source
            .get(py)?
            .read(py, &Stop::new(), move |records| {
                let mut groups = Vec::new();
                records.aggregate(&aggregation, &mut |group| {
                    groups.push(group.to_json());
                    ControlFlow::Continue(())
                })?;
                Ok(groups)
            })?;
        let (all, mut names) = (PyList::empty(py), Names::default());
        for group in groups {
            all.append(decoded(py, group.as_bytes(), &mut names)?)?;
        }
        Ok(all)
    }

    /// How the query would be answered.
    fn explain(&self, py: Python<'_>) -> PyResult<Explain> {
        let request = self.request.clone();
        let read = move |records: &dyn esker_store::Records| -> esker::Result<Plan> {
            records.explain(&request)
        };
        let plan = self.source.get(py)?.read(py, &Stop::new(), read)?;
        Ok(Explain::new(plan))
    }

    /// Deletes the records, and returns how many.
    fn delete(&self, py: Python<'_>) -> PyResult<u64> {
        let Some(dataset) = self.source.get(py)?.dataset() else {
            return Err(exception(
                py,
                "ReadOnlyError",
                "a snapshot is not changed: delete from the dataset",
            ));
        };
        self.request.check_settings("delete", &[]).raise(py)?;
        let Some(condition) = self.request.condition.clone() else {
            return Err(input(
                py,
                "delete needs a condition; db.drop(name) drops a dataset",
            ));
        };
        let (dataset, stop) = (dataset.clone(), Stop::new());
        let token = stop.clone();
        let delete = move || {
            dataset.delete_where(condition, &mut |_| match token.check() {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            })
        };
        wait(py, &stop, delete)?.raise(py)
    }

    /// The records nearest to a point, as a list of pairs: the record, and its distance in metres
    /// (in a plane, in the unit of its coordinates).
    #[pyo3(signature = (path, x, y, limit=10, *, max_distance=None))]
    fn near<'py>(
        &self,
        py: Python<'py>,
        path: &str,
        x: f64,
        y: f64,
        limit: usize,
        max_distance: Option<f64>,
    ) -> PyResult<Bound<'py, PyList>> {
        let (path, request) = (path.parse::<Path>().raise(py)?, self.request.clone());
        let (near, _) = self
            .source
            .get(py)?
            .read(py, &Stop::new(), move |records| {
                records.nearest(&request, &path, (x, y), limit, max_distance)
            })?;
        let (all, mut names) = (PyList::empty(py), Names::default());
        for one in near {
            let record = decoded(py, one.record.json(), &mut names)?;
            all.append((record, one.distance))?;
        }
        Ok(all)
    }

    fn __repr__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        py.import("esker._table")?.call_method1("text", (slf,))
    }

    fn _repr_html_<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        py.import("esker._table")?.call_method1("html", (slf,))
    }
}
