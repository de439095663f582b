//! Queries for versions of records.

use std::marker::PhantomData;

use esker_lsm::Seq;
use esker_model::schema::{IntoPath, Path};
use esker_model::{AsKey, Key, PrimaryKey};

use crate::error::Result;
use crate::query::{Page, ValuePage, ValueToken};
use crate::record;
use crate::store::View;
use esker_model::Record;

/// The default number of records per page.
const PAGE: usize = 100;

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

    /// Reads as of this write instead of now, without newer versions.
    pub fn as_of(self, seq: impl Into<Option<Seq>>) -> KeyVersions<K> {
        let as_of = seq.into();
        KeyVersions { as_of, ..self }
    }

    /// Returns at most this many versions. Default 1.
    pub fn latest(self, versions: usize) -> KeyVersions<K> {
        let latest = versions;
        KeyVersions { latest, ..self }
    }

    /// The versions, newest first.
    ///
    /// # Errors
    /// [`crate::Error::BadInput`] if the key does not have the dataset's type; also any read error.
    pub fn read(self) -> Result<Vec<Record<K>>> {
        let records = self.view.read_key(&self.key?, self.as_of, self.latest)?;
        records.into_iter().map(record::typed).collect()
    }
}

/// A query for the versions that have given values
/// ([`DatasetSnapshot::versions_with`](crate::DatasetSnapshot::versions_with)).
#[must_use = "nothing is read before `read`"]
pub struct ValueVersions<K = Key> {
    view: View,
    tokens: Result<Vec<(Path, String)>>,
    as_of: Option<Seq>,
    latest: usize,
    page: Page,
    typed: PhantomData<fn() -> K>,
}

impl<K: PrimaryKey> ValueVersions<K> {
    pub(super) fn new(view: View) -> ValueVersions<K> {
        ValueVersions {
            view,
            tokens: Ok(Vec::new()),
            as_of: None,
            latest: 1,
            page: Page::newest(PAGE),
            typed: PhantomData,
        }
    }

    /// Also requires this value at this path.
    pub fn and(mut self, path: impl IntoPath, token: impl Into<String>) -> ValueVersions<K> {
        self.tokens = self.tokens.and_then(|mut tokens| {
            tokens.push((path.into_path()?, token.into()));
            Ok(tokens)
        });
        self
    }

    /// Reads as of this write instead of now, without newer versions.
    pub fn as_of(self, seq: impl Into<Option<Seq>>) -> ValueVersions<K> {
        let as_of = seq.into();
        ValueVersions { as_of, ..self }
    }

    /// Considers this many latest versions of each key. Default 1: only the current one.
    pub fn latest(self, versions: usize) -> ValueVersions<K> {
        let latest = versions;
        ValueVersions { latest, ..self }
    }

    /// Returns at most this many versions, all held in memory. Default 100.
    pub fn limit(self, limit: usize) -> ValueVersions<K> {
        let page = self.page.limit(limit);
        ValueVersions { page, ..self }
    }

    /// Continues after the page that returned this token.
    pub fn after(self, token: impl Into<Option<ValueToken>>) -> ValueVersions<K> {
        let page = self.page.after(token.into());
        ValueVersions { page, ..self }
    }

    /// The versions, newest first, and a token to continue with if there are more.
    ///
    /// # Errors
    /// [`crate::Error::BadInput`] if a value is not of its attribute's type, if the number of
    /// versions or records is 0, or if the page before was read as of another write; also any read
    /// error.
    pub fn read(self) -> Result<ValuePage<K>> {
        let tokens = self.tokens?;
        let tokens = tokens.iter().map(|(path, token)| (path, token.as_str()));
        let tokens: Vec<_> = tokens.collect();
        let found = (self.view).read_values(&tokens, self.as_of, self.latest, self.page)?;
        Ok(ValuePage {
            records: (found.records.into_iter())
                .map(record::typed)
                .collect::<Result<_>>()?,
            next: found.next,
        })
    }
}
