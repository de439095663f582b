//! Esker, which is given the JSON alone.

use std::ops::ControlFlow;
use std::path::Path;

use esker::request::Direction;
use esker::{Database, Dataset, DatasetDef, Durability, Explain, IndexKind, Options, WriteBatch};
use serde_json::Value as Json;

use super::asked::{Answer, Operation, Question};
use super::task::{MEMORY, Subject};
use crate::failure::{Failure, Result};
use crate::workload::Record;

/// Records of a batch.
const BATCH: usize = 1000;

pub(super) struct Esker {
    db: Database,
    tweets: Dataset<u64>,
    batch: WriteBatch<u64>,
    in_batch: usize,
}

impl Esker {
    /// A new store. `how` names the kind of its indexes and the strategy of their maintenance.
    pub(super) fn create(dir: &Path, how: &str) -> Result<Esker> {
        let options = Options::new()
            .memory_budget(MEMORY)
            .durability(Durability::Os);
        let db = Database::create_or_open(dir.join("esker"), options)?;
        let (kind, strategy) = how
            .split_once(' ')
            .ok_or_else(|| Failure::new("no strategy is named"))?;
        let kind: IndexKind = kind.parse()?;
        let mut def = DatasetDef::key("id").maintenance(strategy.parse()?);
        for path in ["user_id", "created_at", "likes", "retweets"] {
            def = def.index(path, esker::Index::new(kind).int());
        }
        let tweets = db.create_dataset::<u64>("tweets", def)?;
        Ok(Esker {
            batch: tweets.batch(),
            in_batch: 0,
            db,
            tweets,
        })
    }

    fn commit(&mut self) -> Result<()> {
        self.in_batch = 0;
        self.batch.commit()?;
        Ok(())
    }

    fn groups(&self, aggregates: &[&str], by: &[&str]) -> Result<Answer> {
        let aggregates = aggregates.iter().map(|text| text.parse());
        let aggregates: std::result::Result<Vec<_>, _> = aggregates.collect();
        let mut query = self.tweets.query().aggregate(aggregates?);
        for by in by {
            query = query.by(by.parse()?);
        }
        let mut answer = Answer::default();
        let explain = query.visit(&mut |group| {
            let object = serde_json::from_str(&group.to_json());
            if let Ok(Json::Object(object)) = object {
                answer.push(object.values().map(|cell| match cell {
                    Json::String(text) => text.clone(),
                    other => other.to_string(),
                }));
            }
            ControlFlow::Continue(())
        })?;
        answer.records_read = Some(read(&explain));
        Ok(answer)
    }
}

/// The records that a query has read.
fn read(explain: &Explain) -> u64 {
    explain.steps.fetched + explain.steps.scanned
}

impl Subject for Esker {
    fn put(&mut self, record: &Record<'_>) -> Result<()> {
        self.batch.put_json(record.body)?;
        self.in_batch += 1;
        if self.in_batch == BATCH {
            self.commit()?;
        }
        Ok(())
    }

    /// Writes what is in memory, and does the compactions that are due.
    fn settle(&mut self) -> Result<()> {
        self.commit()?;
        self.db.flush()?;
        self.db.group().run_compactions()?;
        Ok(())
    }

    fn ask(&mut self, question: &Question) -> Result<Answer> {
        match question.operation {
            Operation::CountByValue => self.groups(&["count"], &["likes"]),
            Operation::CountByHour => self.groups(&["count"], &["created_at/3600"]),
            Operation::Ends => self.groups(&["min(created_at)", "max(created_at)"], &[]),
            Operation::Groups => self.groups(&["count", "sum(likes)"], &["lang", "source"]),
            Operation::TopTen => {
                let query = self.tweets.query().limit(10);
                let mut rows = query.order_by("created_at", Direction::Descending).run()?;
                let mut answer = Answer::default();
                for record in &mut rows {
                    answer.push([record?.key().to_string()]);
                }
                answer.records_read = Some(read(&rows.explain()));
                Ok(answer)
            }
            Operation::Both => {
                let condition = format!(
                    "likes = {} and retweets = {}",
                    question.likes, question.retweets
                );
                let mut rows = self.tweets.find(condition.parse()?).run()?;
                let mut keys = Vec::new();
                for record in &mut rows {
                    keys.push(*record?.key());
                }
                keys.sort_unstable();
                let mut answer = Answer::default();
                for key in keys {
                    answer.push([key.to_string()]);
                }
                answer.records_read = Some(read(&rows.explain()));
                Ok(answer)
            }
        }
    }
}
