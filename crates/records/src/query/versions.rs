//! Versions of records: by key, and by the tokens of their values (DELI section III-A: ReadKey,
//! ReadValue).
//!
//! A dataset *keeps* the newest [`crate::DatasetDef::versions`] entries of each key, including
//! deletions. Compactions drop older entries sooner or later; queries hide the older entries that
//! remain, so answers do not depend on compactions. The versions of a key *at* a write are its kept
//! entries up to this write, down to the newest deletion among them.

use std::sync::Arc;

use esker_lsm::{Kind, Seq};
use esker_model::Key;
use esker_model::condition::{Expr, Op, Operand};
use esker_model::query::{Compiled, NoEstimates};
use esker_model::schema::Path;
use esker_model::tokens::Tokenizer;

use super::ValueToken;
use super::statistics::AnsweredBy;
use super::version_search::{FoundVersions, KeptVersions, VersionSearch};
use crate::error::{Error, Result};
use crate::record;
use crate::store::View;
use crate::telemetry::QueryStats;
use esker_model::Record;

/// Which of the versions with a value a page has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PageRequest {
    /// The largest number of versions; more than 0.
    limit: usize,
    /// The token of the page before; `None` for the first page.
    after: Option<ValueToken>,
}

impl PageRequest {
    /// The newest `limit` versions. `limit` is more than 0; the versions are in memory together.
    pub(crate) fn newest(limit: usize) -> PageRequest {
        PageRequest { limit, after: None }
    }

    /// At most `limit` versions.
    pub(crate) fn limit(self, limit: usize) -> PageRequest {
        PageRequest { limit, ..self }
    }

    /// The versions after the page that returned this token.
    pub(crate) fn after(self, after: Option<ValueToken>) -> PageRequest {
        PageRequest { after, ..self }
    }
}

/// Versions of records, newest first.
#[derive(Debug, Clone)]
pub struct ValuePage<K = Key> {
    /// The versions.
    pub records: Vec<Record<K>>,
    /// Continues after these versions; `None` if no more exist.
    pub next: Option<ValueToken>,
}

impl View {
    /// See [`crate::DatasetSnapshot::versions`].
    pub(crate) fn read_key(
        &self,
        key: &Key,
        as_of: Option<Seq>,
        latest: usize,
    ) -> Result<Vec<Record>> {
        if latest == 0 {
            return Err(Error::bad_input(
                "versions of a key: give at least 1 for the number of versions",
            ));
        }
        self.dataset.state.usage.count_get();
        let at = as_of.unwrap_or(self.seq());
        let mut kept = KeptVersions::new(self, key.as_bytes());
        let mut records = Vec::new();
        while records.len() < latest
            && let Some(entry) = kept.next_entry()?
        {
            if entry.seq > at {
                continue;
            }
            if entry.kind != Kind::Put {
                break;
            }
            let cost = kept.walk.cost();
            let stored = self.with_body(key.as_bytes(), entry.seq, entry.value, cost)?;
            records.push(record::returned(key.clone(), entry.seq, stored)?);
        }
        self.dataset.store.group.count(kept.walk.cost());
        Ok(records)
    }

    /// See [`crate::DatasetSnapshot::versions_with`].
    pub(crate) fn read_values(
        &self,
        required: &[(Path, String)],
        as_of: Option<Seq>,
        latest: usize,
        PageRequest { limit, after }: PageRequest,
    ) -> Result<ValuePage> {
        if required.is_empty() || latest == 0 || limit == 0 {
            return Err(Error::bad_input(
                "versions by value: give at least one value, and at least 1 for the number of versions and the limit",
            ));
        }
        check_token(as_of, after)?;
        let at = after.map(|after| after.at).or(as_of);
        let condition = self.condition(required);
        let compiled = Compiled::new(&self.layout.shape, condition, &mut NoEstimates)?;
        let obsolete = (self.layout.superseded).and_then(|tree| self.snapshot.superseded(tree));
        let search = VersionSearch {
            at: at.unwrap_or(self.seq()).min(self.seq()),
            latest,
            view: self,
            compiled: &compiled,
            obsolete: obsolete.map(Arc::new),
            data_cost: self.snapshot.cost(),
            index_cost: self.snapshot.cost(),
        };
        // The next candidates are below this one.
        let below = after.map_or(search.at.saturating_add(1), |after| after.after);
        let streams = search.streams(limit)?;
        let by_scan = streams.is_empty();
        let FoundVersions {
            mut records,
            has_more,
        } = if by_scan {
            search.by_scan(below, limit)?
        } else {
            search.by_index(streams, below, limit)?
        };
        records.truncate(limit);
        let group = &self.dataset.store.group;
        group.count(&search.data_cost);
        group.count(&search.index_cost);
        let answered_by = if by_scan {
            AnsweredBy::Scan
        } else {
            AnsweredBy::Index
        };
        self.count_attribute_queries(required, limit, answered_by);
        let last = records.last().filter(|_| has_more);
        Ok(ValuePage {
            next: last.map(|last| ValueToken {
                at: search.at,
                after: last.seq(),
                as_of: after
                    .map(|after| after.as_of)
                    .or(as_of)
                    .unwrap_or(search.at),
            }),
            records,
        })
    }

    /// The condition that a record has all values.
    fn condition(&self, required: &[(Path, String)]) -> Option<Expr> {
        let tokenizer = |path: &Path| {
            let mut attributes = self.layout.attributes.iter();
            attributes.find(|a| a.path == *path).map(|a| a.tokenizer)
        };
        let each = required.iter().map(|(path, value)| {
            let op = match tokenizer(path) {
                Some(Tokenizer::Prefix) => Op::Prefix,
                _ => Op::Eq,
            };
            Expr::compare(path.clone(), op, Operand::text(value))
        });
        each.reduce(|a, b| a & b)
    }

    /// Counts the search for the advisor, for each of its attributes.
    fn count_attribute_queries(
        &self,
        required: &[(Path, String)],
        limit: usize,
        answered_by: AnsweredBy,
    ) {
        for (path, _) in required {
            let stats = QueryStats {
                lookups: 1,
                limited: 1,
                limits: (limit as u64).min(1 << 32),
                scans: u64::from(answered_by == AnsweredBy::Scan),
                ..QueryStats::default()
            };
            self.dataset.state.usage.count_attribute_query(path, stats);
        }
    }
}

/// Refuses a token of a page as of another write.
fn check_token(as_of: Option<Seq>, after: Option<ValueToken>) -> Result<()> {
    match (as_of, after) {
        (Some(as_of), Some(after)) if as_of != after.at && as_of != after.as_of => {
            Err(Error::bad_input(format!(
                "the token comes from a page as of write {}, not {as_of}: continue with the same write",
                after.as_of
            )))
        }
        _ => Ok(()),
    }
}
