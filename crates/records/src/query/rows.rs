//! The rows of an answer in any order: without those that the offset leaves out, and of each record
//! the fields that are selected.

use esker_lsm::coding::Misplaced;

use super::answer::{Answer, Ready};
use super::explain::Explain;
use super::input::Query;
use super::run::Run;
use super::sorted::SortedAnswer;
use super::{PageToken, Request};
use crate::error::Result;
use esker_model::schema::{KeyType, Projection};
use esker_model::{Key, Record};

/// What is left of the rows that were found: offset and projection of a request.
pub(super) struct Cut {
    skip: usize,
    projection: Option<Projection>,
}

impl Cut {
    /// Takes the offset and the projection out of a request, whose limit then is that of the rows
    /// to be found.
    pub(super) fn of(request: &mut Request) -> Cut {
        request.limit = request.most();
        let select = std::mem::take(&mut request.select);
        Cut {
            skip: std::mem::take(&mut request.offset),
            projection: (!select.is_empty()).then(|| Projection::new(&select)),
        }
    }

    /// True if the next row is left out.
    pub(super) fn skips(&mut self) -> bool {
        let skips = self.skip > 0;
        self.skip = self.skip.saturating_sub(1);
        skips
    }

    /// A record with the selected fields.
    pub(super) fn select(&self, record: Record) -> Result<Record> {
        let Some(projection) = &self.projection else {
            return Ok(record);
        };
        let json = projection.apply(record.json())?;
        Ok(Record::from_json(record.key().clone(), record.seq(), &json))
    }
}

enum Source {
    Recent(Answer),
    Sorted(SortedAnswer),
}

/// Matching records, or their keys, in the order of the request, found during iteration.
pub(crate) struct Rows {
    source: Source,
    cut: Cut,
    key_type: KeyType,
    /// Rows that were left out.
    skipped: u64,
    has_failed: bool,
}

impl Rows {
    pub(super) fn new(mut query: Query) -> Result<Rows> {
        let key_type = query.view.dataset.key_type();
        let cut = Cut::of(&mut query.request);
        let source = if query.request.order.is_sorted() {
            Source::Sorted(SortedAnswer::new(query)?)
        } else {
            Source::Recent(Answer::new(Run::new(query)?))
        };
        Ok(Rows {
            source,
            cut,
            key_type,
            skipped: 0,
            has_failed: false,
        })
    }

    /// The position in the answer: a request with it continues from here.
    pub(crate) fn token(&self) -> Option<PageToken> {
        match &self.source {
            Source::Recent(answer) => answer.token(),
            Source::Sorted(answer) => answer.token(),
        }
    }

    /// The steps of the query so far and their cost.
    pub(crate) fn explain(&self) -> Explain {
        let mut explain = match &self.source {
            Source::Recent(answer) => answer.explain(),
            Source::Sorted(answer) => answer.explain(),
        };
        explain.steps.answers = explain.steps.answers.saturating_sub(self.skipped);
        explain
    }

    /// The next row; none after an error.
    pub(super) fn step(&mut self) -> Result<Option<Ready>> {
        if self.has_failed {
            return Ok(None);
        }
        loop {
            let next = match &mut self.source {
                Source::Recent(answer) => answer.step(),
                Source::Sorted(answer) => answer.step(),
            };
            self.has_failed = next.is_err();
            let Some(row) = next? else { return Ok(None) };
            if !self.cut.skips() {
                return Ok(Some(row));
            }
            self.skipped += 1;
        }
    }

    /// The next record.
    pub(crate) fn next_record(&mut self) -> Result<Option<Record>> {
        let Some(Ready { seq, key, value }) = self.step()? else {
            return Ok(None);
        };
        let key = Key::from_encoded(self.key_type, key);
        let record = crate::record::returned(key, seq, value.ok_or_else(Misplaced::here)?);
        let selected = record.and_then(|record| self.cut.select(record));
        self.has_failed = selected.is_err();
        selected.map(Some)
    }

    /// The next key.
    pub(crate) fn next_key(&mut self) -> Result<Option<Key>> {
        let key = self.step()?.map(|row| row.key);
        Ok(key.map(|key| Key::from_encoded(self.key_type, key)))
    }
}
