//! Reads of a served dataset, now or at a moment.

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use esker::request::{Aggregation, Group};
use esker::schema::Fields;
use esker::space::{CellCount, Latest, Neighbour, TableBox};
use esker::versions::ValuePage;
use esker::{DatasetDef, Error, Explain, Key, Order, Path, Record, Request, Result, Seq};
use esker_client::{At, Dataset, Moment};
use parking_lot::Mutex;

use super::answers::Arriving;
use crate::answer::Answer;
use crate::records::{Records, VersionRequest};

/// The keys that are asked for in one request: it stays within the usual limits of a server.
const KEYS_AT_A_TIME: usize = 10_000;

/// The remarks of the server that were not taken yet.
pub(super) type Remarks = Arc<Mutex<Vec<String>>>;

/// A served dataset, now or at a moment.
pub(super) struct Served {
    pub(super) dataset: Dataset,
    pub(super) moment: Option<Moment>,
    pub(super) reads_only: bool,
    pub(super) remarks: Arc<Mutex<Vec<String>>>,
}

impl Served {
    /// The dataset now.
    pub(super) fn now(dataset: Dataset, reads_only: bool) -> Served {
        Served {
            dataset,
            moment: None,
            reads_only,
            remarks: Remarks::default(),
        }
    }

    /// The dataset at a moment.
    pub(super) fn at(dataset: Dataset, moment: Moment) -> Served {
        Served {
            moment: Some(moment),
            ..Served::now(dataset, true)
        }
    }

    fn when(&self) -> At {
        self.moment.as_ref().map_or(At::Now, Moment::at)
    }
}

/// Passes rows to `visit` until that breaks.
fn pass<T>(
    mut rows: esker_client::Rows<T>,
    visit: &mut dyn FnMut(T) -> ControlFlow<()>,
) -> Result<Explain> {
    for row in rows.by_ref() {
        if visit(row?).is_break() {
            break;
        }
    }
    Ok(rows.explain())
}

impl Records for Served {
    fn name(&self) -> String {
        self.dataset.name().to_string()
    }

    fn def(&self) -> DatasetDef {
        match &self.moment {
            Some(moment) => moment.def().clone(),
            None => self.dataset.def(),
        }
    }

    fn get(&self, key: &Key) -> Result<Option<Record>> {
        self.dataset.get(&self.when(), key)
    }

    fn fields(&self) -> Result<Option<Fields>> {
        self.dataset.fields(&self.when())
    }

    fn has_no_record(&self) -> Result<bool> {
        let mut any = Request::default();
        any.limit = Some(1);
        any.order = Order::Any;
        let mut keys = self.dataset.keys(&self.when(), &any)?;
        Ok(keys.next().transpose()?.is_none())
    }

    fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Record>>> {
        let mut records = Vec::with_capacity(keys.len());
        for keys in keys.chunks(KEYS_AT_A_TIME) {
            let found = self.dataset.get_many(&self.when(), keys)?;
            if found.len() != keys.len() {
                let text = "the server answers with another number of records";
                return Err(Error::Unavailable(text.to_string()));
            }
            records.extend(found);
        }
        Ok(records)
    }

    fn find(&self, request: &Request) -> Result<Box<dyn Answer<Record>>> {
        Ok(Box::new(Arriving(
            self.dataset.find(&self.when(), request)?,
        )))
    }

    fn keys(&self, request: &Request) -> Result<Box<dyn Answer<Key>>> {
        Ok(Box::new(Arriving(
            self.dataset.keys(&self.when(), request)?,
        )))
    }

    fn visit(
        &self,
        request: &Request,
        visit: &mut dyn FnMut(Record) -> ControlFlow<()>,
    ) -> Result<Explain> {
        pass(self.dataset.visit(&self.when(), request)?, visit)
    }

    fn count(&self, request: &Request) -> Result<(u64, Explain)> {
        self.dataset.count(&self.when(), request)
    }

    fn explain(&self, request: &Request) -> Result<Explain> {
        self.dataset.explain(&self.when(), request)
    }

    fn scan(
        &self,
        range: (Bound<Key>, Bound<Key>),
        reverse: bool,
    ) -> Result<Box<dyn Answer<Record>>> {
        let scan = self.dataset.scan(&self.when(), range, reverse)?;
        Ok(Box::new(Arriving(scan)))
    }

    fn versions_of(&self, keys: &[Key], most: usize) -> Result<Vec<Vec<Record>>> {
        let mut versions = Vec::with_capacity(keys.len());
        for keys in keys.chunks(KEYS_AT_A_TIME) {
            versions.extend(self.dataset.versions(&self.when(), keys, None, most)?);
        }
        Ok(versions)
    }

    fn versions(&self, key: &Key, as_of: Option<Seq>, most: usize) -> Result<Vec<Record>> {
        let key = std::slice::from_ref(key);
        let found = self.dataset.versions(&self.when(), key, as_of, most)?;
        Ok(found.into_iter().next().unwrap_or_default())
    }

    fn versions_with(&self, request: &VersionRequest) -> Result<ValuePage> {
        self.dataset.versions_with(
            &self.when(),
            &request.tokens,
            request.as_of,
            (request.versions, request.limit),
            request.after,
        )
    }

    fn table_boxes(&self, path: &Path) -> Result<Vec<TableBox>> {
        self.dataset.table_boxes(&self.when(), path)
    }

    fn nearest(
        &self,
        request: &Request,
        path: &Path,
        from: (f64, f64),
        k: usize,
        max: Option<f64>,
    ) -> Result<(Vec<Neighbour>, Explain)> {
        (self.dataset).nearest(&self.when(), request, (path, from), k, max)
    }

    fn by_distance(
        &self,
        request: &Request,
        path: &Path,
        from: (f64, f64),
    ) -> Result<(Vec<Neighbour>, Explain)> {
        (self.dataset).by_distance(&self.when(), request, (path, from))
    }

    fn cells(&self, request: &Request, path: &Path, degrees: f64) -> Result<Vec<CellCount>> {
        self.dataset.cells(&self.when(), request, path, degrees)
    }

    fn latest_per(
        &self,
        request: &Request,
        path: &Path,
        latest: &Latest,
    ) -> Result<(Vec<Record>, Explain)> {
        self.dataset.latest_per(&self.when(), request, path, latest)
    }

    fn aggregate(
        &self,
        aggregation: &Aggregation,
        visit: &mut dyn FnMut(Group) -> ControlFlow<()>,
    ) -> Result<Explain> {
        pass(self.dataset.aggregate(&self.when(), aggregation)?, visit)
    }
}
