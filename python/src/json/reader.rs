//! JSON as Python values: integers exactly, whatever their size; other numbers as `float`.
//!
//! What the reader here does not read (half of a surrogate pair, very deep nesting, what is not
//! JSON), Python's own reads or refuses.

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString};

use crate::error::exception;

/// Deeper values are left to Python.
const DEEPEST: usize = 200;

/// Names of fields that were read before, in their order: records of a dataset have mostly the
/// same.
#[derive(Default)]
pub(crate) struct Names {
    known: Vec<(Box<[u8]>, Py<PyString>)>,
    next: usize,
}

/// More names are not kept.
const MOST_NAMES: usize = 256;

impl Names {
    fn name<'py>(&mut self, py: Python<'py>, name: &[u8]) -> Option<Bound<'py, PyString>> {
        let at = self.next;
        self.next += 1;
        if let Some((known, text)) = self.known.get(at)
            && **known == *name
        {
            return Some(text.bind(py).clone());
        }
        let text = PyString::intern(py, std::str::from_utf8(name).ok()?);
        let kept = (name.into(), text.clone().unbind());
        if let Some(known) = self.known.get_mut(at) {
            *known = kept;
        } else if self.known.len() < MOST_NAMES {
            self.known.push(kept);
        }
        Some(text)
    }
}

/// The value that a JSON text stands for.
pub(crate) fn decoded<'py>(
    py: Python<'py>,
    json: &[u8],
    names: &mut Names,
) -> PyResult<Bound<'py, PyAny>> {
    names.next = 0;
    let mut reader = Reader {
        py,
        rest: json,
        names,
        depth: 0,
    };
    let value = reader.value();
    reader.blanks();
    match value {
        Some(value) if reader.rest.is_empty() => Ok(value),
        _ => by_python(py, json),
    }
}

fn by_python<'py>(py: Python<'py>, json: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    let loads = py.import("json")?.getattr("loads")?;
    loads.call1((PyBytes::new(py, json),)).map_err(|error| {
        exception(
            py,
            "DamagedError",
            &format!("a record cannot be read: {error}"),
        )
    })
}

struct Reader<'j, 'n, 'py> {
    py: Python<'py>,
    rest: &'j [u8],
    names: &'n mut Names,
    depth: usize,
}

impl<'j, 'py> Reader<'j, '_, 'py> {
    fn blanks(&mut self) {
        self.rest = self.rest.trim_ascii_start();
    }

    fn next_is(&mut self, byte: u8) -> bool {
        self.blanks();
        match self.rest.strip_prefix(&[byte]) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn value(&mut self) -> Option<Bound<'py, PyAny>> {
        self.blanks();
        match self.rest.first()? {
            b'"' => self.text(),
            b'{' => self.object(),
            b'[' => self.array(),
            b't' => self.word(b"true", PyBool::new(self.py, true).to_owned().into_any()),
            b'f' => self.word(b"false", PyBool::new(self.py, false).to_owned().into_any()),
            b'n' => self.word(b"null", self.py.None().into_bound(self.py)),
            _ => self.number(),
        }
    }

    fn word(&mut self, word: &[u8], value: Bound<'py, PyAny>) -> Option<Bound<'py, PyAny>> {
        self.rest = self.rest.strip_prefix(word)?;
        Some(value)
    }

    fn object(&mut self) -> Option<Bound<'py, PyAny>> {
        self.enter()?;
        let dict = PyDict::new(self.py);
        self.rest = self.rest.strip_prefix(b"{")?;
        if !self.next_is(b'}') {
            loop {
                self.blanks();
                let name = match self.plain() {
                    Some(name) => self.names.name(self.py, name)?.into_any(),
                    None => self.text()?,
                };
                if !self.next_is(b':') {
                    return None;
                }
                let value = self.value()?;
                dict.set_item(name, value).ok()?;
                if self.next_is(b'}') {
                    break;
                }
                if !self.next_is(b',') {
                    return None;
                }
            }
        }
        self.depth -= 1;
        Some(dict.into_any())
    }

    fn array(&mut self) -> Option<Bound<'py, PyAny>> {
        self.enter()?;
        let list = PyList::empty(self.py);
        self.rest = self.rest.strip_prefix(b"[")?;
        if !self.next_is(b']') {
            loop {
                list.append(self.value()?).ok()?;
                if self.next_is(b']') {
                    break;
                }
                if !self.next_is(b',') {
                    return None;
                }
            }
        }
        self.depth -= 1;
        Some(list.into_any())
    }

    fn enter(&mut self) -> Option<()> {
        self.depth += 1;
        (self.depth <= DEEPEST).then_some(())
    }

    /// A text without escapes, without its quotes. Otherwise nothing is read.
    fn plain(&mut self) -> Option<&'j [u8]> {
        let inside = self.rest.strip_prefix(b"\"")?;
        let end = inside
            .iter()
            .position(|b| *b == b'"' || *b == b'\\' || *b < 0x20)?;
        let (text, rest) = inside.split_at_checked(end)?;
        self.rest = rest.strip_prefix(b"\"")?;
        Some(text)
    }

    fn text(&mut self) -> Option<Bound<'py, PyAny>> {
        if let Some(text) = self.plain() {
            let text = std::str::from_utf8(text).ok()?;
            return Some(PyString::new(self.py, text).into_any());
        }
        let mut values = serde_json::Deserializer::from_slice(self.rest).into_iter::<String>();
        let text = values.next()?.ok()?;
        self.rest = self.rest.get(values.byte_offset()..)?;
        Some(PyString::new(self.py, &text).into_any())
    }

    fn number(&mut self) -> Option<Bound<'py, PyAny>> {
        let is_of_number =
            |b: &u8| b.is_ascii_digit() || matches!(b, b'-' | b'+' | b'.' | b'e' | b'E');
        let end = self
            .rest
            .iter()
            .position(|b| !is_of_number(b))
            .unwrap_or(self.rest.len());
        let (number, rest) = self.rest.split_at_checked(end)?;
        let digits = number.strip_prefix(b"-").unwrap_or(number);
        let whole = digits.iter().position(|b| !b.is_ascii_digit());
        // JSON has neither a leading zero nor a leading point.
        let leads = digits.first()?.is_ascii_digit()
            && !(digits.first() == Some(&b'0') && digits.get(1).is_some_and(u8::is_ascii_digit));
        if !leads {
            return None;
        }
        let text = std::str::from_utf8(number).ok()?;
        let value = match (whole, text.parse::<i64>()) {
            (None, Ok(int)) => int.into_pyobject(self.py).ok()?.into_any(),
            (None, Err(_)) => self.py.get_type::<PyInt>().call1((text,)).ok()?,
            (Some(_), _) => PyFloat::new(self.py, text.parse::<f64>().ok()?).into_any(),
        };
        self.rest = rest;
        Some(value)
    }
}
