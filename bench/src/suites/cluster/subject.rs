//! What is compared: Esker's put-only index, an index that is right at once, no index, and
//! Cassandra's own index. All write the same records to the same cluster.

use std::sync::Arc;

use esker_cluster::cells::{Cassandra, Cells, HBase};
use esker_cluster::{
    Clocks, Dataset, Options, Store, SystemClocks, cassandra_address, experimental, hbase_address,
};
use esker_model::Key;
use esker_model::condition::field;
use esker_model::definition::{DatasetDef, Index};
use esker_model::query::Request;
use esker_model::schema::{KeyType, Value};

use super::data::Record;
use super::sai::Sai;
use super::server::{Kind, Server};
use crate::failure::Result;

/// A way to keep an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    Esker,
    InPlace,
    NoIndex,
    Sai,
}

impl How {
    pub(super) fn name(self) -> &'static str {
        match self {
            How::Esker => "esker",
            How::InPlace => "update-in-place",
            How::NoIndex => "no index",
            How::Sai => "SAI",
        }
    }

    fn dataset(self) -> &'static str {
        match self {
            How::Esker => "esker",
            How::InPlace => "in_place",
            How::NoIndex => "plain",
            How::Sai => "sai",
        }
    }
}

/// Clocks that are so far behind: what is written by them is old enough for a repair.
struct Behind(SystemClocks, u64);

impl Clocks for Behind {
    fn wall(&self) -> u64 {
        self.0.wall() - self.1
    }

    fn steady(&self) -> u64 {
        self.0.steady()
    }

    fn sleep(&self, millis: u64) {
        self.0.sleep(millis);
    }
}

/// A store whose clock is behind, too.
struct Old(Arc<dyn Cells>, u64);

impl Cells for Old {
    fn now(&self) -> esker_cluster::Result<u64> {
        Ok(self.0.now()? - self.1)
    }
    fn create_table(
        &self,
        table: &str,
        kind: esker_cluster::cells::TableKind,
    ) -> esker_cluster::Result<()> {
        self.0.create_table(table, kind)
    }
    fn drop_table(&self, table: &str) -> esker_cluster::Result<()> {
        self.0.drop_table(table)
    }
    fn write(&self, writes: Vec<esker_cluster::cells::Write>) -> Vec<esker_cluster::Result<()>> {
        self.0.write(writes)
    }
    fn has_compaction_hook(&self, table: &Arc<str>) -> bool {
        self.0.has_compaction_hook(table)
    }
    fn write_versions(
        &self,
        versions: Vec<(
            esker_cluster::cells::Write,
            Vec<esker_cluster::cells::Write>,
        )>,
    ) -> Vec<esker_cluster::Result<()>> {
        self.0.write_versions(versions)
    }
    fn read(
        &self,
        reads: Vec<esker_cluster::cells::Read>,
    ) -> Vec<esker_cluster::Result<Vec<esker_cluster::cells::Cell>>> {
        self.0.read(reads)
    }
    fn parts(&self) -> u32 {
        self.0.parts()
    }
    fn scan(
        &self,
        table: &Arc<str>,
        part: u32,
        from: Option<&esker_cluster::cells::Mark>,
        most: usize,
        rows_only: bool,
    ) -> esker_cluster::Result<esker_cluster::cells::Page> {
        self.0.scan(table, part, from, most, rows_only)
    }
    fn swap(
        &self,
        table: &Arc<str>,
        partition: &[u8],
        row: &[u8],
        expected: Option<&[u8]>,
        to: Option<&[u8]>,
    ) -> esker_cluster::Result<esker_cluster::cells::Swapped> {
        self.0.swap(table, partition, row, expected, to)
    }
    fn swapped(
        &self,
        table: &Arc<str>,
        partition: &[u8],
    ) -> esker_cluster::Result<Vec<esker_cluster::cells::Cell>> {
        self.0.swapped(table, partition)
    }
}

/// A keyspace.
pub(super) struct Space {
    pub(super) server: Server,
    pub(super) name: String,
    pub(super) cells: Arc<dyn Cells>,
    pub(super) store: Store,
    /// What is written by it counts as written minutes ago.
    pub(super) old: Store,
}

/// How far behind [`Space::old`] is: more than a reader may need of the past, in milliseconds.
const AGE: u64 = 150_000;

impl Space {
    /// Makes the keyspace; on HBase with the coprocessor, if there is one.
    pub(super) fn new(server: &Server, name: &str, parameters: &str) -> Result<Space> {
        let text = format!("//{}/{name}{parameters}", server.hosts());
        let cells: Arc<dyn Cells> = match server.kind {
            Kind::Cassandra => Arc::new(Cassandra::connect(&cassandra_address(&text)?, true)?),
            Kind::HBase => Arc::new(HBase::connect(&hbase_address(&text)?, true)?),
        };
        let store = Store::open(cells.clone(), true, Options::default())?;
        let behind = Options {
            clocks: Arc::new(Behind(SystemClocks::default(), AGE)),
            ..Options::default()
        };
        let old = Store::open(Arc::new(Old(cells.clone(), AGE)), true, behind)?;
        Ok(Space {
            server: server.clone(),
            name: name.to_string(),
            cells,
            store,
            old,
        })
    }

    /// Makes what a subject writes to.
    pub(super) fn subject(&self, how: How) -> Result<Subject> {
        self.made(how, &self.store, how.dataset())
    }

    /// The same; what it writes counts as written minutes ago.
    pub(super) fn old_subject(&self, how: How) -> Result<Subject> {
        self.made(how, &self.old, how.dataset())
    }

    /// The same, under a name of its own.
    pub(super) fn old_named(&self, how: How, name: &str) -> Result<Subject> {
        self.made(how, &self.old, name)
    }

    fn made(&self, how: How, store: &Store, name: &str) -> Result<Subject> {
        let target = match how {
            How::Sai => Target::Table(Box::new(Sai::new(&self.server, &self.name, name)?)),
            _ => {
                let def = DatasetDef::new("id", KeyType::Int);
                let def = match how {
                    How::NoIndex => def,
                    _ => def.index("v", Index::composite().int()),
                };
                let dataset = store.create_dataset(name, &def)?;
                let (records, indexes) = experimental::tables(&dataset)?;
                if self.server.kind == Kind::Cassandra {
                    let sai = super::sai::Session::new(&self.server)?;
                    for table in indexes.iter().chain([&records]) {
                        sai.compact_when_asked(&self.name, table)?;
                    }
                }
                Target::Dataset {
                    dataset,
                    records,
                    indexes,
                }
            }
        };
        Ok(Subject { how, target })
    }

    /// Writes what the servers have in memory to files.
    pub(super) fn flush(&self) -> Result<()> {
        self.server.flush(&self.name)
    }

    /// The entries of all indexes of a subject.
    pub(super) fn entries(&self, subject: &Subject) -> Result<u64> {
        let Target::Dataset { indexes, .. } = &subject.target else {
            return Ok(0);
        };
        let mut count = 0;
        for table in indexes {
            let table: Arc<str> = table.as_str().into();
            for part in 0..self.cells.parts() {
                let mut mark = None;
                loop {
                    let page = self.cells.scan(&table, part, mark.as_ref(), 5000, true)?;
                    count += page.cells.len() as u64;
                    mark = page.next;
                    if mark.is_none() {
                        break;
                    }
                }
            }
        }
        Ok(count)
    }
}

/// What is compared.
pub(super) struct Subject {
    pub(super) how: How,
    target: Target,
}

enum Target {
    Dataset {
        dataset: Dataset,
        records: String,
        indexes: Vec<String>,
    },
    Table(Box<Sai>),
}

fn key_of(key: u64) -> Result<Key> {
    Ok(Key::new(KeyType::Int, &Value::Int(i128::from(key)))?)
}

impl Subject {
    /// The tables, that of the records first.
    pub(super) fn tables(&self) -> Vec<String> {
        match &self.target {
            Target::Dataset {
                records, indexes, ..
            } => [records].into_iter().chain(indexes).cloned().collect(),
            Target::Table(table) => vec![table.name.clone()],
        }
    }

    pub(super) fn dataset(&self) -> Option<&Dataset> {
        match &self.target {
            Target::Dataset { dataset, .. } => Some(dataset),
            Target::Table(_) => None,
        }
    }

    pub(super) fn put(&self, records: &[Record]) -> Result<()> {
        let dataset = match &self.target {
            Target::Dataset { dataset, .. } => dataset,
            Target::Table(table) => return table.put(records),
        };
        if self.how == How::InPlace {
            let jsons: Vec<&[u8]> = records.iter().map(|r| r.json.as_bytes()).collect();
            return Ok(experimental::put_in_place(dataset, &jsons)?);
        }
        let mut batch = dataset.batch();
        for record in records {
            batch.put_json(record.json.as_bytes())?;
        }
        Ok(batch.commit()?)
    }

    /// The records of keys; how many there are.
    pub(super) fn get(&self, keys: &[u64]) -> Result<usize> {
        match &self.target {
            Target::Dataset { dataset, .. } => {
                let keys: Vec<Key> = keys.iter().map(|k| key_of(*k)).collect::<Result<_>>()?;
                let found = dataset.get_many(&keys)?;
                Ok(found.iter().flatten().count())
            }
            Target::Table(table) => table.get(keys),
        }
    }

    /// The records with a value; how many there are.
    pub(super) fn find(&self, value: u64) -> Result<usize> {
        match &self.target {
            Target::Dataset { dataset, .. } => {
                let request = Request::of(field("v").eq(value as i64));
                let mut answer = dataset.find(&request)?;
                let mut count = 0;
                while answer.next_record()?.is_some() {
                    count += 1;
                }
                Ok(count)
            }
            Target::Table(table) => table.find(value),
        }
    }
}
