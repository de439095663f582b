//! Python values as JSON.
//!
//! | Python | JSON |
//! | --- | --- |
//! | `None`, `bool`, `str`, `int` of any size | as they are |
//! | `float` | the shortest text that reads as the same float; NaN and infinities are refused |
//! | `dict` with keys of `str`; `list`, `tuple` | object, array |
//! | `datetime` with a zone | text in UTC: `2026-11-21T09:00:00Z`; without a zone it is refused |
//! | `date`, `UUID` | text |
//! | `Decimal` | the number that it is, exactly |
//! | scalars and arrays of NumPy | what their `tolist()` returns |
//!
//! **Invariants.** Values of these exact types up to `tuple` are written without running Python
//! code, so that dicts do not change while they are read. For others the writer begins again and
//! reads copies of dicts.

use std::io::Write;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{
    PyBool, PyByteArray, PyBytes, PyDate, PyDateTime, PyDict, PyFloat, PyInt, PyList, PyString,
    PyTuple, PyTzInfo,
};

use crate::error::input;

/// Values may be nested so deeply, as in the store.
const DEEPEST: usize = 128;

/// Why a value was not written.
enum Unwritten {
    /// Python code has to run.
    Unusual,
    Raised(PyErr),
}

impl From<PyErr> for Unwritten {
    fn from(error: PyErr) -> Unwritten {
        Unwritten::Raised(error)
    }
}

type Written = Result<(), Unwritten>;

/// The JSON of a record, appended to `out`: of a dict, or given as text or bytes.
pub(crate) fn record_json(record: &Bound<'_, PyAny>, out: &mut Vec<u8>) -> PyResult<()> {
    if record.cast::<PyDict>().is_ok() {
        return value_json(record, out);
    }
    if let Ok(bytes) = record.cast::<PyBytes>() {
        out.extend_from_slice(bytes.as_bytes());
    } else if let Ok(bytes) = record.cast::<PyByteArray>() {
        out.extend_from_slice(&bytes.to_vec());
    } else if let Ok(text) = record.cast::<PyString>() {
        out.extend_from_slice(text.to_cow()?.as_bytes());
    } else {
        let name = record.get_type().qualname()?;
        return Err(PyTypeError::new_err(format!(
            "a record is a dict, or JSON as bytes or str, not {name}"
        )));
    }
    Ok(())
}

/// The JSON of a value, appended to `out`.
pub(crate) fn value_json(value: &Bound<'_, PyAny>, out: &mut Vec<u8>) -> PyResult<()> {
    let before = out.len();
    let mut writer = Writer {
        out,
        runs_python: false,
        depth: 0,
    };
    let written = match writer.value(value) {
        Err(Unwritten::Unusual) => {
            writer.out.truncate(before);
            (writer.runs_python, writer.depth) = (true, 0);
            writer.value(value)
        }
        written => written,
    };
    match written {
        Ok(()) => Ok(()),
        Err(Unwritten::Raised(error)) => Err(error),
        Err(Unwritten::Unusual) => Err(unfit(value)),
    }
}

struct Writer<'o> {
    out: &'o mut Vec<u8>,
    /// Values of any type are written, and dicts are copied.
    runs_python: bool,
    depth: usize,
}

impl Writer<'_> {
    fn value(&mut self, value: &Bound<'_, PyAny>) -> Written {
        if let Ok(text) = value.cast_exact::<PyString>() {
            return self.text(text);
        }
        if let Ok(int) = value.cast_exact::<PyInt>() {
            return self.int(int);
        }
        if let Ok(float) = value.cast_exact::<PyFloat>() {
            return self.float(value.py(), float.value());
        }
        if value.is_none() {
            self.out.extend_from_slice(b"null");
            return Ok(());
        }
        if let Ok(truth) = value.cast_exact::<PyBool>() {
            let text: &[u8] = if truth.is_true() { b"true" } else { b"false" };
            self.out.extend_from_slice(text);
            return Ok(());
        }
        self.enter(value.py())?;
        if let Ok(dict) = value.cast_exact::<PyDict>() {
            self.dict(dict)?;
        } else if let Ok(list) = value.cast_exact::<PyList>() {
            self.sequence(list.iter())?;
        } else if let Ok(tuple) = value.cast_exact::<PyTuple>() {
            self.sequence(tuple.iter())?;
        } else if self.runs_python {
            self.unusual(value)?;
        } else {
            return Err(Unwritten::Unusual);
        }
        self.depth -= 1;
        Ok(())
    }

    fn enter(&mut self, py: Python<'_>) -> Written {
        self.depth += 1;
        if self.depth > DEEPEST {
            let text = format!("a value is nested more than {DEEPEST} levels deep");
            return Err(input(py, text).into());
        }
        Ok(())
    }

    fn dict(&mut self, dict: &Bound<'_, PyDict>) -> Written {
        self.out.push(b'{');
        if self.runs_python {
            for (at, item) in dict.items().iter().enumerate() {
                let (name, value): (Bound<'_, PyAny>, Bound<'_, PyAny>) = item.extract()?;
                self.member(at, &name, &value)?;
            }
        } else {
            for (at, (name, value)) in dict.iter().enumerate() {
                self.member(at, &name, &value)?;
            }
        }
        self.out.push(b'}');
        Ok(())
    }

    fn member(&mut self, at: usize, name: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> Written {
        if at > 0 {
            self.out.push(b',');
        }
        let Ok(name) = name.cast::<PyString>() else {
            let (py, what) = (name.py(), name.get_type().qualname()?);
            let text = format!("the names of a record's fields are str, not {what}");
            return Err(input(py, text).into());
        };
        self.text(name)?;
        self.out.push(b':');
        self.value(value)
    }

    fn sequence<'py>(&mut self, values: impl Iterator<Item = Bound<'py, PyAny>>) -> Written {
        self.out.push(b'[');
        for (at, value) in values.enumerate() {
            if at > 0 {
                self.out.push(b',');
            }
            self.value(&value)?;
        }
        self.out.push(b']');
        Ok(())
    }

    fn text(&mut self, text: &Bound<'_, PyString>) -> Written {
        let Ok(utf8) = text.to_cow() else {
            let what = "a text has half of a surrogate pair, which is no character";
            return Err(input(text.py(), what).into());
        };
        self.out.push(b'"');
        let mut rest = utf8.as_bytes();
        while let Some(at) = rest
            .iter()
            .position(|b| *b < 0x20 || *b == b'"' || *b == b'\\')
        {
            let (plain, from) = rest.split_at(at);
            self.out.extend_from_slice(plain);
            if let Some((byte, after)) = from.split_first() {
                match byte {
                    b'"' => self.out.extend_from_slice(b"\\\""),
                    b'\\' => self.out.extend_from_slice(b"\\\\"),
                    b'\n' => self.out.extend_from_slice(b"\\n"),
                    b'\r' => self.out.extend_from_slice(b"\\r"),
                    b'\t' => self.out.extend_from_slice(b"\\t"),
                    // Writing to memory does not fail.
                    other => drop(write!(self.out, "\\u{other:04x}")),
                }
                rest = after;
            }
        }
        self.out.extend_from_slice(rest);
        self.out.push(b'"');
        Ok(())
    }

    fn int(&mut self, int: &Bound<'_, PyInt>) -> Written {
        match int.extract::<i64>() {
            Ok(small) => drop(write!(self.out, "{small}")),
            Err(_) => self.number_text(int.as_any())?,
        }
        Ok(())
    }

    /// A number whose text in Python is its JSON.
    fn number_text(&mut self, number: &Bound<'_, PyAny>) -> Written {
        let text = number.str()?;
        self.out.extend_from_slice(text.to_cow()?.as_bytes());
        Ok(())
    }

    fn float(&mut self, py: Python<'_>, value: f64) -> Written {
        if !value.is_finite() {
            let text = format!(
                "JSON has no number for {}: leave the field out, or set it to None",
                if value.is_nan() { "NaN" } else { "an infinity" }
            );
            return Err(input(py, text).into());
        }
        serde_json::to_writer(&mut *self.out, &value).map_err(|why| input(py, why.to_string()))?;
        Ok(())
    }

    /// A value of another type.
    fn unusual(&mut self, value: &Bound<'_, PyAny>) -> Written {
        let py = value.py();
        if let Ok(dict) = value.cast::<PyDict>() {
            return self.dict(dict);
        }
        // NumPy's before Python's, of which some are subclasses.
        let ty = value.get_type();
        if ty.module()?.to_cow()?.starts_with("numpy") {
            // Its times have no zone, and some units of them become numbers.
            let kind = value.getattr("dtype")?.getattr("kind")?;
            if matches!(&*kind.extract::<String>()?, "M" | "m") {
                return Err(unfit(value).into());
            }
            return self.value(&value.call_method0("tolist")?);
        }
        if let Ok(text) = value.cast::<PyString>() {
            return self.text(text);
        }
        if let Ok(float) = value.cast::<PyFloat>() {
            return self.float(py, float.value());
        }
        if value.is_instance_of::<PyInt>() {
            // Without the text of an `enum`.
            let plain = py.get_type::<PyInt>().call1((value,))?;
            return self.number_text(&plain);
        }
        if let Ok(list) = value.cast::<PyList>() {
            return self.sequence(list.iter());
        }
        if let Ok(tuple) = value.cast::<PyTuple>() {
            return self.sequence(tuple.iter());
        }
        if value.is_instance_of::<PyDateTime>() {
            return self.quoted(&time_text(value)?);
        }
        if value.is_instance_of::<PyDate>() {
            let text = value.call_method0("isoformat")?;
            return self.quoted(
                text.cast::<PyString>()
                    .map_err(PyErr::from)?
                    .to_cow()?
                    .as_ref(),
            );
        }
        if value.is_instance(&py.import("decimal")?.getattr("Decimal")?)? {
            if !value.call_method0("is_finite")?.is_truthy()? {
                let text = "JSON has no number for a Decimal that is not finite: leave the field out, or set it to None";
                return Err(input(py, text).into());
            }
            return self.number_text(value);
        }
        if value.is_instance(&py.import("uuid")?.getattr("UUID")?)? {
            return self.quoted(value.str()?.to_cow()?.as_ref());
        }
        Err(unfit(value).into())
    }

    /// A text without characters that need an escape.
    fn quoted(&mut self, text: &str) -> Written {
        self.out.push(b'"');
        self.out.extend_from_slice(text.as_bytes());
        self.out.push(b'"');
        Ok(())
    }
}

fn unfit(value: &Bound<'_, PyAny>) -> PyErr {
    let name = match value.get_type().qualname() {
        Ok(name) => name.to_string(),
        Err(error) => return error,
    };
    let hint = match name.as_str() {
        "bytes" | "bytearray" => ": decode it, or encode it with base64",
        "set" | "frozenset" => ": make it a list",
        "datetime64" => ": make it a datetime with a zone",
        _ => "",
    };
    input(
        value.py(),
        format!("a value of type {name} has no JSON{hint}"),
    )
}

/// A time with a zone as text in UTC.
pub(crate) fn time_text(time: &Bound<'_, PyAny>) -> PyResult<String> {
    let py = time.py();
    if time.call_method0("utcoffset")?.is_none() {
        let text =
            "a datetime without a zone is no moment: give it one, as in datetime.now(timezone.utc)";
        return Err(input(py, text));
    }
    let utc = time.call_method1("astimezone", (PyTzInfo::utc(py)?,))?;
    let text = utc.call_method0("isoformat")?.extract::<String>()?;
    Ok(match text.strip_suffix("+00:00") {
        Some(text) => format!("{text}Z"),
        None => text,
    })
}
