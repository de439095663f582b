//! Versions of records: by key, and by the tokens of their values (DELI section III-A: ReadKey, ReadValue).
//!
//! A dataset *keeps* the newest [`crate::DatasetDef::versions`] entries of each key, deletions counted. Merges
//! leave out what is older, sooner or later; what they have not come to yet is not shown either, so
//! answers do not depend on them. The versions of a key *at* a moment are those that are kept, are not newer,
//! and have no deletion above them that is not newer either.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use lsm::{Kind, Seq};

use super::candidates::{Kept, Search};
use super::predicate::Predicates;
use crate::dataset::{Dataset, DatasetSnapshot};
use crate::error::{Error, Result};
use crate::record::Record;
use crate::usage::Asked;
use model::Key;
use model::condition::{Condition, Op};
use model::schema::Path;
use model::tokens::Tokenizer;

/// Which part of the versions with a value is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Page {
    limit: usize,
    after: Option<ValueToken>,
}

impl Page {
    /// The newest, at most `limit`, which is more than 0. They are in memory together.
    pub fn newest(limit: usize) -> Page {
        let after = None;
        Page { limit, after }
    }

    /// Those behind the page that gave this token.
    pub fn after(self, token: ValueToken) -> Page {
        let after = Some(token);
        Page { after, ..self }
    }
}

/// Versions of records, newest first.
#[derive(Debug, Clone)]
pub struct ValuePage {
    /// The versions.
    pub records: Vec<Record>,
    /// Goes on behind them; `None` when there are no more.
    pub next: Option<ValueToken>,
}

/// Where a page of versions ended: the moment that it was asked for, and its last version. It stays valid, in other
/// processes too, and pages go on as if nothing had been written since; but versions that are not kept
/// any more are gone. As text, `MOMENT.LAST`, or `MOMENT.LAST.TS` where it was asked for as of a write `TS` to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ValueToken {
    at: Seq,
    after: Seq,
    /// What was asked for: `at`, or later than the last write then.
    asked: Seq,
}

impl fmt::Display for ValueToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.at, self.after)?;
        match self.asked > self.at {
            true => write!(f, ".{}", self.asked),
            false => Ok(()),
        }
    }
}

impl FromStr for ValueToken {
    type Err = Error;
    fn from_str(text: &str) -> Result<ValueToken> {
        let parts: Option<Vec<Seq>> = text.split('.').map(|part| part.parse().ok()).collect();
        match parts.as_deref() {
            Some(&[at, after]) => Ok(ValueToken {
                at,
                after,
                asked: at,
            }),
            Some(&[at, after, asked]) if asked > at => Ok(ValueToken { at, after, asked }),
            _ => Err(Error::bad_input(format!(
                "`{text}` is not a token that a page gave"
            ))),
        }
    }
}

impl Dataset {
    /// [`DatasetSnapshot::read_key`], as of now.
    pub fn read_key(&self, key: &Key, ts: Option<Seq>, m: usize) -> Result<Vec<Record>> {
        self.snapshot().read_key(key, ts, m)
    }

    /// [`DatasetSnapshot::read_values`] of one attribute, as of now.
    pub fn read_value(
        &self,
        path: &Path,
        token: &str,
        ts: Option<Seq>,
        m: usize,
        page: Page,
    ) -> Result<ValuePage> {
        self.snapshot().read_values(&[(path, token)], ts, m, page)
    }

    /// [`DatasetSnapshot::read_values`], as of now.
    pub fn read_values(
        &self,
        tokens: &[(&Path, &str)],
        ts: Option<Seq>,
        m: usize,
        page: Page,
    ) -> Result<ValuePage> {
        self.snapshot().read_values(tokens, ts, m, page)
    }
}

impl DatasetSnapshot {
    /// The sequence number of the last write that it sees.
    pub fn seq(&self) -> Seq {
        self.snapshot.seq()
    }

    /// The `m` latest versions of `key` that were written up to the write `ts` (or now), newest first. They end where the
    /// record was deleted; there are fewer where it was written less often.
    ///
    /// Of a dataset that keeps `v` versions, one is gone once the key was written (put or deleted) `v` more times. So the
    /// answer is all that there was when, of the writes to the key, at most `v - m` are newer than `ts`;
    /// else it may be the newer part of it.
    ///
    /// Goes from the newest component to the oldest and stops when it has enough: at most `v` entries are read.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// use esker::{Database, DatasetDef, KeyType, Options};
    ///
    /// let db = Database::create_or_open(dir.path(), Options::default())?;
    /// let def = DatasetDef::new("id".parse()?, KeyType::Int).versions(3);
    /// let prices = db.create_dataset("prices", def)?;
    /// for price in [10, 12, 11] {
    ///     prices.put(format!(r#"{{"id": 7, "price": {price}}}"#).as_bytes())?;
    /// }
    /// let key = prices.parse_key("7")?;
    /// let latest = prices.read_key(&key, None, 2)?;
    /// assert_eq!(latest[0].body(), br#"{"id": 7, "price": 11}"#);
    /// let before = prices.read_key(&key, Some(latest[1].seq()), 1)?;
    /// assert_eq!(before[0].body(), br#"{"id": 7, "price": 12}"#);
    /// # Ok(())
    /// # }
    /// ```
    pub fn read_key(&self, key: &Key, ts: Option<Seq>, m: usize) -> Result<Vec<Record>> {
        self.dataset.current.usage.got();
        let at = ts.unwrap_or(self.seq());
        let mut kept = Kept::new(self, key.as_bytes());
        let mut records = Vec::new();
        while records.len() < m
            && let Some(entry) = kept.next_entry()?
        {
            match entry.kind {
                _ if entry.seq > at => {}
                Kind::Put => {
                    let key = key.as_bytes().to_vec();
                    records.push(Record::new(key, entry.seq, entry.value)?);
                }
                _ => break,
            }
        }
        self.dataset.shared.group.count(kept.walk.cost());
        Ok(records)
    }

    /// [`DatasetSnapshot::read_values`] of one attribute.
    pub fn read_value(
        &self,
        path: &Path,
        token: &str,
        ts: Option<Seq>,
        m: usize,
        page: Page,
    ) -> Result<ValuePage> {
        self.read_values(&[(path, token)], ts, m, page)
    }

    /// The versions of records whose value at each path matches the token beside it, and which are among the `m` latest
    /// versions of their key up to the write `ts` (or now): those that [`DatasetSnapshot::read_key`] gives. Newest first.
    ///
    /// A token matches the value that it is, and where the attribute's tokenizer is [`Tokenizer::Prefix`] each
    /// string that begins with it.
    ///
    /// What the indexes of the attributes hold is intersected before a record is read, in bounded memory; where none has
    /// an index, all records are read. Index entries that turn out to be over are noted (online repair).
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// use esker::{Database, DatasetDef, IndexKind, KeyType, Options, Page, Path, Type};
    ///
    /// let db = Database::create_or_open(dir.path(), Options::default())?;
    /// let state: Path = "state".parse()?;
    /// let def = DatasetDef::new("id".parse()?, KeyType::Int)
    ///     .index(state.clone(), IndexKind::Recent, Type::String)
    ///     .versions(2);
    /// let jobs = db.create_dataset("jobs", def)?;
    /// for (id, state) in [(1, "ready"), (2, "ready"), (1, "done")] {
    ///     jobs.put(format!(r#"{{"id": {id}, "state": "{state}"}}"#).as_bytes())?;
    /// }
    /// // Who is ready, and who was, one version ago?
    /// assert_eq!(jobs.read_value(&state, "ready", None, 1, Page::newest(10))?.records.len(), 1);
    /// assert_eq!(jobs.read_value(&state, "ready", None, 2, Page::newest(10))?.records.len(), 2);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`crate::ErrorKind::BadInput`]: no token, one that is not of the attribute's type, `m` or the limit is 0, or
    /// `ts` is not the moment of the page before.
    pub fn read_values(
        &self,
        tokens: &[(&Path, &str)],
        ts: Option<Seq>,
        m: usize,
        Page { limit, after }: Page,
    ) -> Result<ValuePage> {
        if tokens.is_empty() || m == 0 || limit == 0 {
            return Err(Error::bad_input(
                "versions by value: at least one token, one version and a limit of one are needed",
            ));
        }
        if let (Some(ts), Some(after)) = (ts, after)
            && ts != after.at
            && ts != after.asked
        {
            return Err(Error::bad_input(format!(
                "the page before was as of write {}, not {ts}",
                after.asked
            )));
        }
        let at = after.map(|after| after.at).or(ts);
        let predicates = Predicates::new(&self.layout, &self.conditions(tokens))?;
        let over = self.layout.superseded;
        let over = over.and_then(|tree| self.snapshot.superseded(tree));
        let mut search = Search {
            at: at.unwrap_or(self.seq()).min(self.seq()),
            m,
            snapshot: self,
            predicates: &predicates,
            over: over.map(Arc::new),
            data_cost: self.snapshot.cost(),
            index_cost: self.snapshot.cost(),
        };
        // The next candidates are below this one.
        let below = after.map_or(search.at.saturating_add(1), |after| after.after);
        let streams = search.streams()?;
        let by_scan = streams.is_empty();
        let (mut records, more) = match by_scan {
            true => search.by_scan(below, limit)?,
            false => search.by_index(streams, below, limit)?,
        };
        let more = more || records.len() > limit;
        records.truncate(limit);
        let group = &self.dataset.shared.group;
        group.count(&search.data_cost);
        group.count(&search.index_cost);
        self.count_use(tokens, limit, by_scan);
        let last = records.last().filter(|_| more);
        Ok(ValuePage {
            next: last.map(|last| ValueToken {
                at: search.at,
                after: last.seq(),
                asked: after.map(|after| after.asked).or(ts).unwrap_or(search.at),
            }),
            records,
        })
    }

    /// What tokens ask for.
    fn conditions(&self, tokens: &[(&Path, &str)]) -> Vec<Condition> {
        let tokenizer = |path: &Path| {
            let mut attributes = self.layout.attributes.iter();
            attributes.find(|a| a.path == *path).map(|a| a.tokenizer)
        };
        let conditions = tokens.iter().map(|(path, token)| {
            let op = match tokenizer(path) {
                Some(Tokenizer::Prefix) => Op::Prefix,
                _ => Op::Eq,
            };
            Condition::new((*path).clone(), op, *token)
        });
        conditions.collect()
    }

    fn count_use(&self, tokens: &[(&Path, &str)], limit: usize, by_scan: bool) {
        for (path, _) in tokens {
            let asked = Asked {
                lookups: 1,
                limited: 1,
                limits: (limit as u64).min(1 << 32),
                scans: u64::from(by_scan),
                ..Asked::default()
            };
            self.dataset.current.usage.asked(path, asked);
        }
    }
}
