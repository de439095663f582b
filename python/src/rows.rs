//! Answers as iterators: records are read some at a time, ahead of the program, so that the cost of
//! leaving the interpreter is shared.

use std::collections::VecDeque;

use esker::{Key, Record, Request, Result, Stop};
use esker_store::{Answer, Records};
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::error::raised;
use crate::here::Here;
use crate::json::{Names, decoded};
use crate::key_value::key_to_python;
use crate::source::Source;
use crate::wait::wait;

/// How many records are read at a time: twice as many each time.
const FIRST: usize = 8;
const MOST: usize = 512;
/// A part ends with the record that makes it this large.
const BYTES: usize = 1 << 20;

/// The error of an answer whose read was interrupted.
const CANCELLED: esker::Error = esker::Error::Cancelled { deadline: false };

type Answered<T> = Box<dyn Answer<T>>;
type Begin<T> = Box<dyn FnOnce(&dyn Records) -> Result<Answered<T>> + Send>;

/// An answer and the part of it that was read.
struct Ahead<T: Send + 'static> {
    source: Source,
    /// Ends the reads of this answer.
    stop: Stop,
    /// The read has not begun.
    begin: Option<Begin<T>>,
    answer: Option<Answered<T>>,
    read: VecDeque<T>,
    /// What ended the answer, behind the records in `read`. It stays, so that an answer that was
    /// not read to its end never looks as if it were.
    failed: Option<esker::Error>,
    step: usize,
}

/// What a step returns: the answer, unless it has ended, and the next part of it.
struct Step<T> {
    answer: Option<Answered<T>>,
    part: VecDeque<T>,
    failed: Option<esker::Error>,
}

impl<T: Send + 'static> Ahead<T> {
    fn new(source: Source, begin: Begin<T>) -> Ahead<T> {
        Ahead {
            source,
            stop: Stop::new(),
            begin: Some(begin),
            answer: None,
            read: VecDeque::new(),
            failed: None,
            step: FIRST,
        }
    }

    fn next(&mut self, py: Python<'_>, bytes: fn(&T) -> usize) -> PyResult<Option<T>> {
        if let Some(begin) = self.begin.take() {
            let begun = self.source.read(py, &self.stop, begin);
            self.answer = Some(begun.inspect_err(|_| self.failed = Some(CANCELLED))?);
        }
        if self.read.is_empty()
            && let Some(answer) = self.answer.take()
        {
            let most = self.step;
            self.step = MOST.min(most * 2);
            let step = wait(py, &self.stop, move || next_part(answer, most, bytes));
            let step = step.inspect_err(|_| self.failed = Some(CANCELLED))?;
            (self.answer, self.read, self.failed) = (step.answer, step.part, step.failed);
        }
        match self.read.pop_front() {
            Some(next) => Ok(Some(next)),
            None => match &self.failed {
                Some(error) => Err(raised(py, error)),
                None => Ok(None),
            },
        }
    }
}

fn next_part<T>(mut answer: Answered<T>, most: usize, bytes: fn(&T) -> usize) -> Step<T> {
    let (mut part, mut size) = (VecDeque::new(), 0);
    while part.len() < most && size < BYTES {
        let failed = match answer.next() {
            Some(Ok(next)) => {
                size += bytes(&next);
                part.push_back(next);
                continue;
            }
            Some(Err(error)) => Some(error),
            None => None,
        };
        let answer = None;
        return Step {
            answer,
            part,
            failed,
        };
    }
    Step {
        answer: Some(answer),
        part,
        failed: None,
    }
}

/// An iterator over records: dicts, or bytes of JSON.
#[pyclass(module = "esker")]
pub(crate) struct Rows {
    ahead: Here<Mutex<Ahead<Record>>>,
    names: Names,
    is_raw: bool,
}

impl Rows {
    /// The records that `begin` asks for, once the first is wanted.
    pub(crate) fn new(source: &Source, is_raw: bool, begin: Begin<Record>) -> Rows {
        Rows {
            ahead: Here::new(Mutex::new(Ahead::new(source.clone(), begin))),
            names: Names::default(),
            is_raw,
        }
    }

    /// The records of a request.
    pub(crate) fn of(source: &Source, request: Request, is_raw: bool) -> Rows {
        Rows::new(
            source,
            is_raw,
            Box::new(move |records| records.find(&request)),
        )
    }
}

#[pymethods]
impl Rows {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        // The iterator is borrowed for the whole call, so that no other thread waits for the lock.
        let ahead = self.ahead.get_mut(py)?.get_mut();
        let Some(record) = ahead.next(py, |record| record.json().len())? else {
            return Ok(None);
        };
        let json = record.json();
        Ok(Some(if self.is_raw {
            PyBytes::new(py, json).into_any()
        } else {
            decoded(py, json, &mut self.names)?
        }))
    }
}

/// An iterator over keys.
#[pyclass(module = "esker")]
pub(crate) struct Keys {
    ahead: Here<Mutex<Ahead<Key>>>,
}

impl Keys {
    /// The keys of a request.
    pub(crate) fn of(source: &Source, request: Request) -> Keys {
        let begin: Begin<Key> = Box::new(move |records| records.keys(&request));
        Keys {
            ahead: Here::new(Mutex::new(Ahead::new(source.clone(), begin))),
        }
    }
}

#[pymethods]
impl Keys {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let ahead = self.ahead.get_mut(py)?.get_mut();
        match ahead.next(py, |key| key.as_bytes().len())? {
            Some(key) => Ok(Some(key_to_python(py, &key)?)),
            None => Ok(None),
        }
    }
}
