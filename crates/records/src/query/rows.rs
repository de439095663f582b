//! The rows of an answer in any order, after the offset of the request, with the selected fields of
//! each record.

use esker_lsm::coding::Misplaced;

use super::answer::{Ready, RecentAnswer};
use super::explain::Explain;
use super::input::ViewQuery;
use super::run::Run;
use super::sorted::SortedAnswer;
use super::{PageToken, Request};
use crate::error::Result;
use esker_model::schema::{KeyType, Projection};
use esker_model::{Key, Record};

/// The offset and the projection of a request, which apply to the rows that were found.
pub(super) struct RowSelection {
    /// The number of rows that are still to be left out.
    skip: usize,
    /// The selected fields; `None` for whole records.
    projection: Option<Projection>,
}

impl RowSelection {
    /// Takes the offset and the projection out of a request, and raises its limit by the offset: it
    /// becomes that of the rows to be found.
    pub(super) fn take_from(request: &mut Request) -> RowSelection {
        request.limit = request.most();
        let select = std::mem::take(&mut request.select);
        let selection = RowSelection {
            skip: request.skip(),
            projection: (!select.is_empty()).then(|| Projection::new(&select)),
        };
        request.offset = 0;
        selection
    }

    /// True if the next row, which this call counts, is to be left out.
    pub(super) fn skips(&mut self) -> bool {
        let skips = self.skip > 0;
        self.skip -= usize::from(skips);
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

/// The executor that finds the rows.
enum RowSource {
    Recent(RecentAnswer),
    Sorted(SortedAnswer),
}

/// Matching records, or their keys, in the order of the request, found during iteration.
pub(crate) struct Rows {
    source: RowSource,
    selection: RowSelection,
    key_type: KeyType,
    /// Rows that were left out so far.
    skipped: u64,
    has_failed: bool,
}

impl Rows {
    /// Prepares the query, and reads nothing of it.
    ///
    /// # Errors
    /// If the condition, the order or the page token does not fit the dataset.
    pub(super) fn new(mut query: ViewQuery) -> Result<Rows> {
        let key_type = query.view.dataset.key_type();
        let selection = RowSelection::take_from(&mut query.request);
        let source = if query.request.order.is_sorted() {
            RowSource::Sorted(SortedAnswer::new(query)?)
        } else {
            RowSource::Recent(RecentAnswer::new(Run::new(query)?))
        };
        Ok(Rows {
            source,
            selection,
            key_type,
            skipped: 0,
            has_failed: false,
        })
    }

    /// The position in the answer: a request with it continues from here.
    pub(crate) fn token(&self) -> Option<PageToken> {
        match &self.source {
            RowSource::Recent(answer) => answer.token(),
            RowSource::Sorted(answer) => answer.token(),
        }
    }

    /// The steps of the query so far and their cost.
    pub(crate) fn explain(&self) -> Explain {
        let mut explain = match &self.source {
            RowSource::Recent(answer) => answer.explain(),
            RowSource::Sorted(answer) => answer.explain(),
        };
        explain.steps.answers -= self.skipped;
        explain
    }

    /// The next row; `None` at the end, and after an error.
    pub(super) fn step(&mut self) -> Result<Option<Ready>> {
        if self.has_failed {
            return Ok(None);
        }
        loop {
            let next = match &mut self.source {
                RowSource::Recent(answer) => answer.step(),
                RowSource::Sorted(answer) => answer.step(),
            };
            self.has_failed = next.is_err();
            let Some(row) = next? else { return Ok(None) };
            if !self.selection.skips() {
                return Ok(Some(row));
            }
            self.skipped += 1;
        }
    }

    /// As [`Rows::step`], with the record. Only for queries that return records.
    pub(crate) fn next_record(&mut self) -> Result<Option<Record>> {
        let Some(Ready { seq, key, value }) = self.step()? else {
            return Ok(None);
        };
        let key = Key::from_encoded(self.key_type, key);
        let record = crate::record::returned(key, seq, value.ok_or_else(|| Misplaced::here())?);
        let selected = record.and_then(|record| self.selection.select(record));
        self.has_failed = selected.is_err();
        selected.map(Some)
    }

    /// As [`Rows::step`], with the key alone.
    pub(crate) fn next_key(&mut self) -> Result<Option<Key>> {
        let key = self.step()?.map(|row| row.key);
        Ok(key.map(|key| Key::from_encoded(self.key_type, key)))
    }
}
