//! Versions by the values of their fields (the paper's ReadValue).

use esker_coding::{MAX_SEQ, Seq, Slice};
use esker_model::Key;
use esker_model::condition::Expr;
use esker_model::query::{Compiled, NoEstimates, Plan, Recency};
use esker_model::record::Record;

use crate::candidates::Candidates;
use crate::dataset::Dataset;
use crate::error::{Error, Result};
use crate::find::confirms;
use crate::judge::judge_all;
use crate::rows::Version;
use crate::sources::Sought;
use crate::verdict::Verdict;
use crate::view::View;

/// Candidates whose versions are read at a time.
const TOGETHER: usize = 128;

impl Dataset {
    /// The versions that satisfy a condition and are among the latest `versions` of their key as of
    /// `until`, newest first: at most `limit`, behind `after`. An index must answer the condition.
    /// Versions that are not among those that the dataset keeps of their key today may be missing.
    ///
    /// # Errors
    /// [`Error::BadInput`] if the condition does not fit; [`Error::Unsupported`] if no index
    /// answers it, more versions are asked for than the dataset keeps, or `until` is more than a
    /// minute ago and it keeps one; [`Error::Unavailable`].
    pub fn versions_with(
        &self,
        condition: Expr,
        until: Option<Seq>,
        versions: usize,
        limit: usize,
        after: Option<Seq>,
    ) -> Result<Vec<Record>> {
        let bound = self.bound()?;
        if versions > bound.versions() {
            return Err(Error::Unsupported(format!(
                "the dataset keeps {} versions of a record: {versions} cannot be read",
                bound.versions()
            )));
        }
        let view = match until {
            Some(until) => View::at(&self.shared, until.min(MAX_SEQ))?,
            None => View::now(&self.shared)?,
        };
        if bound.versions() == 1 && !view.holds(&self.shared) {
            return Err(Error::Unsupported(
                "the dataset keeps one version of a record: what was current at an earlier time is not known"
                    .to_string(),
            ));
        }
        let compiled = Compiled::new(&bound.shape, Some(condition), &mut NoEstimates)?;
        let plan = Plan::choose(&bound.shape, &compiled, &mut NoEstimates)?;
        let mut sought = Vec::new();
        for at in plan.driver.constraints() {
            let constraint = compiled.constraints.get(*at);
            let found = constraint.and_then(|constraint| {
                let mut indexes = bound.indexes.iter();
                let index = indexes.position(|i| i.place == constraint.attribute)?;
                let ranges = constraint.sought()?.to_vec();
                Some(Sought { index, ranges })
            });
            sought.extend(found);
        }
        if sought.is_empty() {
            return Err(Error::Unsupported(
                "no index answers this: add one, or read the versions of each key".to_string(),
            ));
        }
        let mut candidates = Candidates::new(
            self.shared.clone(),
            bound.clone(),
            sought,
            Recency::Newest,
            view.until,
            after,
        );
        let mut records = Vec::new();
        while records.len() < limit {
            let found = candidates.next(TOGETHER)?;
            if found.is_empty() {
                break;
            }
            let verdicts = judge_all(&self.shared, &bound, &found, &view, false)?;
            for (candidate, verdict) in found.into_iter().zip(verdicts) {
                let stored = match verdict {
                    Verdict::Newest(stored) => stored,
                    Verdict::Kept(stored)
                        if self.is_among(&candidate.key, candidate.at, &view, versions)? =>
                    {
                        stored
                    }
                    _ => continue,
                };
                if records.len() < limit && confirms(&compiled, &bound, &stored) {
                    let key = Key::from_encoded(bound.key_type(), candidate.key);
                    records.push(Record::new(key, candidate.at, Slice::from(stored))?);
                }
            }
        }
        Ok(records)
    }

    /// True if a version is among the latest of its key.
    fn is_among(&self, key: &[u8], at: Seq, view: &View, versions: usize) -> Result<bool> {
        let bound = self.bound()?;
        if versions >= bound.versions() {
            return Ok(true);
        }
        let kept = bound.versions();
        let mut read = view.read(&self.shared, &bound, &[key], kept, true);
        let cells = read.pop().transpose()?.unwrap_or_default();
        let rows = cells.iter().map(|cell| Version::of(&cell.row));
        let rows = rows.collect::<Result<Vec<_>>>()?;
        let mut seen = rows.iter().filter(|version| version.at <= view.until);
        let place = seen.position(|version| *version == Version::record(at));
        Ok(place.is_some_and(|place| place < versions))
    }
}
