//! Queries for versions of records.

use std::marker::PhantomData;

use esker_lsm::Seq;
use esker_model::schema::{IntoPath, Path};
use esker_model::{AsKey, Key, PrimaryKey, Record};

use crate::error::Result;
use crate::query::{PageRequest, ValuePage, ValueToken};
use crate::record;
use crate::store::View;

/// The default number of versions per page.
const DEFAULT_LIMIT: usize = 100;

/// A query for the versions of a key
/// ([`DatasetSnapshot::versions`](crate::DatasetSnapshot::versions)).
#[must_use = "nothing is read before `read`"]
pub struct KeyVersions<K = Key> {
    view: View,
    key: Result<Key>,
    as_of: Option<Seq>,
    latest: usize,
    typed: PhantomData<fn() -> K>,
}

impl<K: PrimaryKey> KeyVersions<K> {
    pub(super) fn new(view: View, key: impl AsKey<K>) -> KeyVersions<K> {
        let key = key.as_key(view.dataset.key_type());
        KeyVersions {
            view,
            key: key.map_err(Into::into),
            as_of: None,
            latest: 1,
            typed: PhantomData,
        }
    }

    /// Reads as of this write instead of the newest one in the snapshot, without newer versions.
    pub fn as_of(mut self, seq: impl Into<Option<Seq>>) -> KeyVersions<K> {
        self.as_of = seq.into();
        self
    }

    /// Returns at most this many versions. Default 1.
    pub fn latest(mut self, versions: usize) -> KeyVersions<K> {
        self.latest = versions;
        self
    }

    /// The versions, newest first.
    ///
    /// # Errors
    /// [`crate::Error::BadInput`] if the key does not have the dataset's type, or if the number of
    /// versions is 0; also any read error.
    pub fn read(self) -> Result<Vec<Record<K>>> {
        let records = self.view.read_key(&self.key?, self.as_of, self.latest)?;
        records.into_iter().map(record::with_key_type).collect()
    }
}

/// A query for the versions that have given values
/// ([`DatasetSnapshot::versions_with`](crate::DatasetSnapshot::versions_with)).
#[must_use = "nothing is read before `read`"]
pub struct ValueVersions<K = Key> {
    view: View,
    /// The required values, by path.
    required: Result<Vec<(Path, String)>>,
    as_of: Option<Seq>,
    latest: usize,
    page: PageRequest,
    typed: PhantomData<fn() -> K>,
}

impl<K: PrimaryKey> ValueVersions<K> {
    pub(super) fn new(view: View) -> ValueVersions<K> {
        ValueVersions {
            view,
            required: Ok(Vec::new()),
            as_of: None,
            latest: 1,
            page: PageRequest::newest(DEFAULT_LIMIT),
            typed: PhantomData,
        }
    }

    /// Also requires this value at this path.
    pub fn and(mut self, path: impl IntoPath, value: impl Into<String>) -> ValueVersions<K> {
        self.required = self.required.and_then(|mut required| {
            required.push((path.into_path()?, value.into()));
            Ok(required)
        });
        self
    }

    /// Reads as of this write instead of the newest one in the snapshot, without newer versions.
    pub fn as_of(mut self, seq: impl Into<Option<Seq>>) -> ValueVersions<K> {
        self.as_of = seq.into();
        self
    }

    /// Considers this many latest versions of each key. Default 1: only the current one.
    pub fn latest(mut self, versions: usize) -> ValueVersions<K> {
        self.latest = versions;
        self
    }

    /// Returns at most this many versions, all held in memory. Default 100.
    pub fn limit(mut self, limit: usize) -> ValueVersions<K> {
        self.page = self.page.limit(limit);
        self
    }

    /// Continues after the page that returned this token.
    pub fn after(mut self, token: impl Into<Option<ValueToken>>) -> ValueVersions<K> {
        self.page = self.page.after(token.into());
        self
    }

    /// The versions, newest first, and a token to continue with if there are more.
    ///
    /// # Errors
    /// [`crate::Error::BadInput`] if a value is not of its attribute's type, if
    /// [`latest`](ValueVersions::latest) or [`limit`](ValueVersions::limit) is 0, or if the token
    /// is of a page that was read as of another write; also any read error.
    pub fn read(self) -> Result<ValuePage<K>> {
        let required = self.required?;
        let page = self
            .view
            .read_values(&required, self.as_of, self.latest, self.page)?;
        let records = page.records.into_iter().map(record::with_key_type);
        Ok(ValuePage {
            records: records.collect::<Result<_>>()?,
            next: page.next,
        })
    }
}
