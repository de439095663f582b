//! The rows of an answer, while they arrive.

use std::io::{BufRead, BufReader, Read};

use esker::versions::ValueToken;
use esker::{Error, Explain, KeyType, PageToken, Result};
use ureq::http::Response;
use ureq::{Body, BodyReader};

use crate::client::Client;
use crate::problem::Problem;
use crate::wire;

/// The bytes that are read at a time.
const BUFFER: usize = 128 << 10;

/// Reads a row from a frame of this kind; `None` if it is malformed.
type ReadRow<T> = Box<dyn FnMut(u8, &[u8]) -> Option<T> + Send>;

/// The rows of an answer, read while they arrive. Dropping it ends the answer.
pub struct Rows<T> {
    client: Client,
    key_type: KeyType,
    reader: Option<BufReader<BodyReader<'static>>>,
    read: ReadRow<T>,
    frame: Vec<u8>,
    head: Explain,
    rows: u64,
    end: Option<wire::End>,
    has_failed: bool,
}

impl<T> Rows<T> {
    /// Reads the head of an answer.
    pub(crate) fn new(
        client: &Client,
        key_type: KeyType,
        response: Response<Body>,
        read: ReadRow<T>,
    ) -> Result<Rows<T>> {
        let reader = BufReader::with_capacity(BUFFER, response.into_body().into_reader());
        let mut rows = Rows {
            client: client.clone(),
            key_type,
            reader: Some(reader),
            read,
            frame: Vec::new(),
            head: Explain::default(),
            rows: 0,
            end: None,
            has_failed: false,
        };
        match rows.frame()? {
            wire::HEAD => {
                rows.head = rows.document()?;
                Ok(rows)
            }
            wire::PROBLEM => Err(rows.problem()),
            _ => Err(rows.malformed()),
        }
    }

    /// Reads the next frame; returns its kind.
    fn frame(&mut self) -> Result<u8> {
        let reader = self.reader.as_mut();
        let reader = reader.ok_or_else(|| self.client.broke_off(&"it has ended"))?;
        let mut head = [0; 5];
        let read = reader.read_exact(&mut head).and_then(|()| {
            let [kind, length @ ..] = head;
            let length = u64::from(u32::from_le_bytes(length));
            self.frame.clear();
            // The bytes come before the memory: the length is what the other side says.
            let read = reader.take(length).read_to_end(&mut self.frame)?;
            if u64::try_from(read) == Ok(length) {
                Ok(kind)
            } else {
                Err(std::io::ErrorKind::UnexpectedEof.into())
            }
        });
        read.map_err(|error| self.client.unread(&error))
    }

    fn document<D: serde::de::DeserializeOwned>(&self) -> Result<D> {
        serde_json::from_slice(&self.frame).map_err(|error| {
            let text = format!("{}: an answer is malformed: {error}", self.client.address());
            Error::Unavailable(text)
        })
    }

    fn problem(&self) -> Error {
        match self.document::<Problem>() {
            Ok(problem) => problem.error(Some(self.key_type)),
            Err(error) => error,
        }
    }

    fn malformed(&self) -> Error {
        Error::Unavailable(format!("{}: an answer is malformed", self.client.address()))
    }

    fn step(&mut self) -> Result<Option<T>> {
        match self.frame()? {
            wire::END => {
                self.end = Some(self.document()?);
                // The connection is used again once its answer was read to the end.
                if let Some(mut reader) = self.reader.take() {
                    let _ = reader.fill_buf();
                }
                Ok(None)
            }
            wire::PROBLEM => Err(self.problem()),
            kind => match (self.read)(kind, &self.frame) {
                Some(row) => {
                    self.rows += 1;
                    Ok(Some(row))
                }
                None => Err(self.malformed()),
            },
        }
    }

    /// The steps so far, and their cost. Before the end of the answer the costs are those of its
    /// begin.
    pub fn explain(&self) -> Explain {
        match &self.end {
            Some(end) => end.explain.clone(),
            None => {
                let mut explain = self.head.clone();
                explain.steps.answers = self.rows;
                explain
            }
        }
    }

    /// The place behind the last row; `None` before the end of the answer.
    pub fn token(&self) -> Option<PageToken> {
        self.end.as_ref()?.token.clone()
    }

    /// The place behind a page of versions; `None` before the end of the answer, and if there are
    /// no more.
    pub fn next_versions(&self) -> Option<ValueToken> {
        self.end.as_ref()?.next
    }

    /// The only row.
    ///
    /// # Errors
    /// If the answer has none or several; any read error.
    pub(crate) fn only(mut self) -> Result<T> {
        let row = self.next().transpose()?.ok_or_else(|| self.malformed())?;
        match self.next() {
            None => Ok(row),
            Some(_) => Err(self.malformed()),
        }
    }
}

impl<T> Iterator for Rows<T> {
    type Item = Result<T>;

    fn next(&mut self) -> Option<Result<T>> {
        if self.end.is_some() || self.has_failed {
            return None;
        }
        let step = self.step();
        self.has_failed = step.is_err();
        step.transpose()
    }
}
