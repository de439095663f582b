//! Esker. It is given the JSON alone, and finds key and attributes in it, as it does for everybody.

use std::collections::BTreeMap;

use esker::{
    Database, Dataset, DatasetDef, Durability, IndexKind, Key, KeyType, Options, Path, Type,
};
use esker::{Operand, Value, WriteBatch, field};

use super::{Put, Reads, Setup, Subject, Visit, Writes};
use crate::failure::{Failure, Result};
use crate::workload::{Attribute, Find, Record};

pub(super) struct Esker {
    db: Database,
    tweets: Tweets,
    batch: WriteBatch,
}

/// What is read.
struct Tweets {
    dataset: Dataset,
    user: Path,
    time: Path,
}

impl Esker {
    /// `how` names the kind of both indexes, or of each: `lazy`, `lazy+embedded`.
    pub(super) fn open(how: &str, setup: &Setup) -> Result<Esker> {
        // Half of the budget is block cache.
        let mut options = Options::new()
            .memory_budget(setup.cache_bytes * 2)
            .durability(Durability::Os);
        if setup.direct {
            // Here the whole budget is what the others have as cache alone.
            options = options.memory_budget(setup.cache_bytes);
            options = options.fs(std::sync::Arc::new(esker::fs::disk::Disk::direct()));
        }
        let db = Database::create_or_open(&setup.dir, options)?;
        let (user, time): (Path, Path) = ("user_id".parse()?, "created_at".parse()?);
        let (of_user, of_time) = how.split_once('+').unwrap_or((how, how));
        let mut def = DatasetDef::new("id", KeyType::Int);
        for (path, kind) in [(&user, of_user), (&time, of_time)] {
            let kind: IndexKind = kind.parse()?;
            if kind != IndexKind::None {
                def = def.index(path.clone(), esker::Index::new(kind).of_type(Type::Int));
            }
        }
        let dataset = db.create_dataset::<esker::Key>("tweets", def)?;
        Ok(Esker {
            db,
            batch: dataset.batch(),
            tweets: Tweets {
                dataset,
                user,
                time,
            },
        })
    }
}

impl Subject for Esker {
    fn put(&mut self, record: &Record<'_>) -> Result<()> {
        self.batch.put_json(record.body)?;
        Ok(self.batch.durability(Durability::Os).commit()?)
    }

    fn get(&mut self, key: u64, visit: Visit<'_>) -> Result<()> {
        self.tweets.get(key, visit)
    }

    fn find(&mut self, find: &Find, visit: Visit<'_>) -> Result<()> {
        self.tweets.find(find, visit)
    }

    fn shared(&self) -> Option<&dyn Reads> {
        Some(&self.tweets)
    }

    fn shared_writes(&self) -> Option<&dyn Writes> {
        Some(&self.tweets)
    }

    fn settle(&mut self) -> Result<()> {
        self.db.flush()?;
        Ok(self.db.group().run_compactions()?)
    }

    fn counters(&self) -> BTreeMap<String, f64> {
        let stats = self.db.group().stats();
        let counters = stats.each().into_iter();
        counters
            .map(|(name, count)| (name.to_string(), count as f64))
            .collect()
    }
}

impl Writes for Tweets {
    fn writer(&self, synced: bool) -> Result<Put<'_>> {
        let durability = match synced {
            true => Durability::Sync,
            false => Durability::Os,
        };
        let mut batch = self.dataset.batch();
        Ok(Box::new(move |record| {
            batch.put_json(record.body)?;
            Ok(batch.durability(durability).commit()?)
        }))
    }
}

impl Reads for Tweets {
    fn get(&self, key: u64, visit: Visit<'_>) -> Result<()> {
        let key = Key::new(KeyType::Int, &Value::Int(i128::from(key))).map_err(Failure::new)?;
        if let Some(record) = self.dataset.get(&key)? {
            visit(record.json());
        }
        Ok(())
    }

    fn find(&self, find: &Find, visit: Visit<'_>) -> Result<()> {
        let path = match find.attribute {
            Attribute::User => &self.user,
            Attribute::Time => &self.time,
        };
        let query = self.dataset.query();
        let query = if find.lo == find.hi {
            query.filter(field(path).eq(Operand::text(find.lo.to_string())))
        } else {
            query.filter(
                field(path)
                    .range(Operand::text(find.lo.to_string())..=Operand::text(find.hi.to_string())),
            )
        };
        for record in query.limit(find.limit).run()? {
            visit(record?.json());
        }
        Ok(())
    }
}
