//! A store without an order of keys, for tests: another one whose keys are hidden behind a hash.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};

use esker::{DatasetDef, Explain, Expr, Key, Record, Request, Result, Seq, Update};
use esker_store::{Answer, Batch, Capabilities, Dataset, Part, Records, Store};
use xxhash_rust::xxh3::xxh3_64;

const PARTS: u32 = 7;

pub(super) struct Unordered<T>(pub(super) T);

impl Store for Unordered<Box<dyn Store>> {
    fn capabilities(&self) -> Capabilities {
        let mut of = self.0.capabilities();
        of.key_order = false;
        of
    }

    fn dataset_names(&self) -> Result<Vec<String>> {
        self.0.dataset_names()
    }

    fn dataset(&self, name: &str) -> Result<Box<dyn Dataset>> {
        Ok(Box::new(Unordered(self.0.dataset(name)?)))
    }

    fn create_dataset(&self, name: &str, def: DatasetDef) -> Result<Box<dyn Dataset>> {
        Ok(Box::new(Unordered(self.0.create_dataset(name, def)?)))
    }

    fn rename_dataset(&self, name: &str, to: &str) -> Result<()> {
        self.0.rename_dataset(name, to)
    }

    fn drop_dataset(&self, name: &str) -> Result<()> {
        self.0.drop_dataset(name)
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.0.close()
    }
}

/// The records of a part by their hashes.
struct Hashed(std::vec::IntoIter<Record>, Vec<u8>);

fn hash(key: &[u8]) -> u64 {
    xxh3_64(key)
}

impl Iterator for Hashed {
    type Item = Result<Record>;

    fn next(&mut self) -> Option<Result<Record>> {
        let next = self.0.next()?;
        self.1 = hash(next.key().as_bytes()).to_be_bytes().to_vec();
        Some(Ok(next))
    }
}

impl Part for Hashed {
    fn mark(&self) -> Vec<u8> {
        self.1.clone()
    }
}

macro_rules! records {
    ($of:ty) => {
        impl Records for Unordered<$of> {
            fn name(&self) -> String {
                self.0.name()
            }

            fn def(&self) -> DatasetDef {
                self.0.def()
            }

            fn get(&self, key: &Key) -> Result<Option<Record>> {
                self.0.get(key)
            }

            fn find(&self, request: &Request) -> Result<Box<dyn Answer<Record>>> {
                self.0.find(request)
            }

            fn keys(&self, request: &Request) -> Result<Box<dyn Answer<Key>>> {
                self.0.keys(request)
            }

            fn visit(
                &self,
                request: &Request,
                visit: &mut dyn FnMut(Record) -> ControlFlow<()>,
            ) -> Result<Explain> {
                self.0.visit(request, visit)
            }

            fn count(&self, request: &Request) -> Result<(u64, Explain)> {
                self.0.count(request)
            }

            fn explain(&self, request: &Request) -> Result<Explain> {
                self.0.explain(request)
            }

            fn scan(
                &self,
                _range: (Bound<Key>, Bound<Key>),
                _reverse: bool,
            ) -> Result<Box<dyn Answer<Record>>> {
                panic!("a range of keys is read of a store without an order of keys");
            }

            fn parts(&self) -> u32 {
                PARTS
            }

            fn part(&self, part: u32, behind: Option<&[u8]>) -> Result<Box<dyn Part>> {
                let behind = behind.map(|mark| u64::from_be_bytes(mark.try_into().unwrap()));
                let all = self.0.scan((Bound::Unbounded, Bound::Unbounded), false)?;
                let mut own = BTreeMap::new();
                for record in all {
                    let record = record?;
                    let hash = hash(record.key().as_bytes());
                    let is_left = behind.is_none_or(|behind| hash > behind);
                    if hash % u64::from(PARTS) == u64::from(part) && is_left {
                        own.insert(hash, record);
                    }
                }
                let own: Vec<Record> = own.into_values().collect();
                Ok(Box::new(Hashed(own.into_iter(), Vec::new())))
            }

            fn versions(&self, key: &Key, as_of: Option<Seq>, most: usize) -> Result<Vec<Record>> {
                self.0.versions(key, as_of, most)
            }
        }
    };
}

records!(Box<dyn Records>);
records!(Box<dyn Dataset>);

impl Dataset for Unordered<Box<dyn Dataset>> {
    fn snapshot(&self) -> Result<Box<dyn Records>> {
        Ok(Box::new(Unordered(self.0.snapshot()?)))
    }

    fn records(&self) -> &dyn Records {
        self
    }

    fn batch(&self) -> Box<dyn Batch> {
        self.0.batch()
    }

    fn update(
        &self,
        key: &Key,
        change: &mut dyn FnMut(Option<&Record>) -> Result<Update>,
    ) -> Result<Option<Record>> {
        self.0.update(key, change)
    }

    fn delete_where(
        &self,
        condition: Expr,
        progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<u64> {
        self.0.delete_where(condition, progress)
    }

    fn sync(&self) -> Result<()> {
        self.0.sync()
    }

    fn notes(&self) -> Result<BTreeMap<String, Vec<u8>>> {
        self.0.notes()
    }
}
