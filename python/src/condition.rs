//! Conditions: texts as on the command line, and keyword arguments such as `user__name="ann"` and
//! `at__ge=datetime(...)`.

use esker::{AreaExpr, Expr, Field, Operand, Path, Value, field};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDate, PyDateTime, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};

use crate::error::{Raise, input};
use crate::json::{time_text, value_json};

/// All of these conditions; `None` without any.
pub(crate) fn all(
    texts: &Bound<'_, PyTuple>,
    fields: Option<&Bound<'_, PyDict>>,
) -> PyResult<Option<Expr>> {
    let py = texts.py();
    let mut all: Vec<Expr> = Vec::new();
    for text in texts.iter() {
        let Ok(text) = text.cast::<PyString>() else {
            let what = "a condition is a text, as in find(\"user.name = ann\"), or a keyword, as in find(user__name=\"ann\")";
            return Err(input(py, what));
        };
        all.push(text.to_cow()?.parse::<Expr>().raise(py)?);
    }
    if let Some(fields) = fields {
        for (name, value) in fields.iter() {
            let name = name.extract::<String>()?;
            all.push(keyword(&name, &value)?);
        }
    }
    Ok(all.into_iter().reduce(|all, one| all & one))
}

/// The condition of a keyword argument: `FIELD__FIELD__OPERATION`, without an operation equality.
fn keyword(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Expr> {
    let py = value.py();
    let mut parts: Vec<&str> = name.split("__").collect();
    let last = parts.last().copied().unwrap_or_default();
    let is_operation = parts.len() > 1 && OPERATIONS.contains(&last);
    if is_operation {
        parts.pop();
    }
    let path = parts.join(".").parse::<Path>().raise(py)?;
    let at: Field = field(path);
    let refuse = |what: &str| input(py, format!("{name}: {what}"));
    Ok(match if is_operation { last } else { "eq" } {
        "eq" if value.is_none() => at.is_null(),
        "eq" => at.eq(operand(name, value)?),
        "ne" => at.ne(operand(name, value)?),
        "lt" => at.lt(operand(name, value)?),
        "le" => at.le(operand(name, value)?),
        "gt" => at.gt(operand(name, value)?),
        "ge" => at.ge(operand(name, value)?),
        "contains" => at.contains(operand(name, value)?),
        "prefix" => match value.cast::<PyString>() {
            Ok(text) => at.prefix(text.to_cow()?.into_owned()),
            Err(_) => return Err(refuse("a prefix is a str")),
        },
        "exists" => match value.cast::<PyBool>() {
            Ok(exists) if exists.is_true() => at.exists(),
            Ok(_) => !at.exists(),
            Err(_) => return Err(refuse("give True or False")),
        },
        "in" => {
            if value.is_instance_of::<PyString>() {
                return Err(refuse("give a list of values"));
            }
            let values = value.try_iter()?.map(|value| operand(name, &value?));
            at.one_of(values.collect::<PyResult<Vec<Operand>>>()?)
        }
        "within" => at.within(area(name, value)?),
        _ => return Err(refuse("this is not an operation")),
    })
}

const OPERATIONS: [&str; 11] = [
    "eq", "ne", "lt", "le", "gt", "ge", "in", "prefix", "contains", "exists", "within",
];

/// The value that a field is compared with.
fn operand(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Operand> {
    let py = value.py();
    if let Ok(text) = value.cast::<PyString>() {
        return Ok(Operand::from(text.to_cow()?.as_ref()));
    }
    if let Ok(truth) = value.cast::<PyBool>() {
        return Ok(Operand::from(truth.is_true()));
    }
    if let Ok(float) = value.cast::<PyFloat>() {
        return Ok(Operand::from(float.value()));
    }
    if let Ok(int) = value.cast::<PyInt>() {
        let fits = |int: &i128| (i128::from(i64::MIN)..=i128::from(u64::MAX)).contains(int);
        if let Some(int) = int.extract::<i128>().ok().filter(fits) {
            return Ok(Operand::Value(Value::Int(int)));
        }
    }
    if value.is_none() {
        return Err(input(
            py,
            format!(
                "{name}: None is compared with = alone, as in find(field=None); use __exists for fields that records may lack"
            ),
        ));
    }
    if value.is_instance_of::<PyDateTime>() {
        return Ok(Operand::text(time_text(value)?));
    }
    if value.is_instance_of::<PyDate>() {
        return Ok(Operand::text(
            value.call_method0("isoformat")?.extract::<String>()?,
        ));
    }
    // As in a record: numbers of any size, UUID, NumPy's.
    let mut json = Vec::new();
    value_json(value, &mut json)?;
    let text = String::from_utf8_lossy(&json).into_owned();
    if text.starts_with(['{', '[']) {
        let what = format!("{name}: a condition compares with a single value");
        return Err(input(py, what));
    }
    match text
        .strip_prefix('"')
        .and_then(|text| text.strip_suffix('"'))
    {
        Some(inside) => Ok(Operand::from(inside)),
        None => Ok(Operand::text(text)),
    }
}

/// An area: `(west, south, east, north)`, `(x, y, radius)`, GeoJSON as a dict, or its text.
fn area(name: &str, value: &Bound<'_, PyAny>) -> PyResult<AreaExpr> {
    let py = value.py();
    if let Ok(text) = value.cast::<PyString>() {
        return text.to_cow()?.parse::<AreaExpr>().raise(py);
    }
    if value.cast::<PyDict>().is_ok() {
        let mut json = Vec::new();
        value_json(value, &mut json)?;
        return Ok(AreaExpr::geojson(
            String::from_utf8_lossy(&json).into_owned(),
        ));
    }
    let is_sequence = value.cast::<PyTuple>().is_ok() || value.cast::<PyList>().is_ok();
    let numbers = if is_sequence {
        value.extract::<Vec<f64>>().unwrap_or_default()
    } else {
        Vec::new()
    };
    match *numbers {
        [west, south, east, north] => Ok(AreaExpr::rect(west, south, east, north)),
        [x, y, radius] => Ok(AreaExpr::circle(x, y, radius)),
        _ => Err(input(
            py,
            format!(
                "{name}: an area is (west, south, east, north), (x, y, radius), GeoJSON as a dict, or a text such as rect:-1,50,1,52"
            ),
        )),
    }
}
