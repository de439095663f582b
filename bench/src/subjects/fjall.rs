//! fjall, set up as it comes (LZ4 below level 1, memtables of 64 MiB, 10-bit Bloom filters below
//! level 0), with the common cache and two workers. The data and each index are a keyspace.

use std::time::Duration;

use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};

use super::keyed::{self, Candidate, Store};
use super::{Indexes, Put, Setup, Subject, Visit, Writes};
use crate::failure::Result;
use crate::workload::{Attribute, Find, Record};

pub(super) struct Fjall {
    db: Database,
    data: Keyspace,
    /// Of users and of times.
    entries: Option<[Keyspace; 2]>,
    indexes: Indexes,
    number: keyed::Number,
    record: Vec<u8>,
}

impl Fjall {
    pub(super) fn open(indexes: Indexes, setup: &Setup) -> Result<Fjall> {
        let db = Database::builder(&setup.dir)
            .cache_size(setup.cache_bytes as u64)
            .worker_threads(2)
            .open()?;
        let keyspace = |name: &str| db.keyspace(name, KeyspaceCreateOptions::default);
        let data = keyspace("data")?;
        let entries = match indexes {
            Indexes::None => None,
            Indexes::Blind | Indexes::Eager => Some([keyspace("user")?, keyspace("time")?]),
        };
        Ok(Fjall {
            db,
            data,
            entries,
            indexes,
            number: 0,
            record: Vec::new(),
        })
    }
}

impl Subject for Fjall {
    fn put(&mut self, record: &Record<'_>) -> Result<()> {
        self.number += 1;
        keyed::store(&mut self.record, self.number, record);
        let key = keyed::key(record.key);
        let Some([user, time]) = &self.entries else {
            return Ok(self.data.insert(key, &self.record)?);
        };
        let mut batch = self.db.batch();
        if self.indexes == Indexes::Eager
            && let Some(old) = self.data.get(key)?
        {
            let [old_user, old_time] = keyed::entries_of(&old);
            batch.remove(user, old_user);
            batch.remove(time, old_time);
        }
        batch.insert(&self.data, key, self.record.as_slice());
        batch.insert(user, keyed::entry(record.user, self.number), key);
        batch.insert(time, keyed::entry(record.second, self.number), key);
        Ok(batch.commit()?)
    }

    fn get(&mut self, key: u64, visit: Visit<'_>) -> Result<()> {
        if let Some(bytes) = self.data.get(keyed::key(key))? {
            visit(keyed::stored(&bytes).1);
        }
        Ok(())
    }

    fn find(&mut self, find: &Find, visit: Visit<'_>) -> Result<()> {
        keyed::find(self, find, self.indexes == Indexes::Blind, visit)
    }

    fn shared_writes(&self) -> Option<&dyn Writes> {
        (self.indexes == Indexes::None).then_some(self)
    }

    fn settle(&mut self) -> Result<()> {
        self.data.rotate_memtable_and_wait()?;
        for entries in self.entries.iter().flatten() {
            entries.rotate_memtable_and_wait()?;
        }
        // Nothing tells that all is done; what is due begins within some milliseconds.
        let mut quiet = 0;
        while quiet < 5 {
            std::thread::sleep(Duration::from_millis(20));
            let busy = self.db.outstanding_flushes() > 0 || self.db.active_compactions() > 0;
            quiet = if busy { 0 } else { quiet + 1 };
        }
        Ok(())
    }
}

impl Writes for Fjall {
    fn writer(&self, synced: bool) -> Result<Put<'_>> {
        let mut stored = Vec::new();
        Ok(Box::new(move |record| {
            // Only indexes need the number.
            keyed::store(&mut stored, 0, record);
            self.data.insert(keyed::key(record.key), &stored)?;
            if synced {
                self.db.persist(PersistMode::SyncData)?;
            }
            Ok(())
        }))
    }
}

impl Store for Fjall {
    fn scan(
        &self,
        attribute: Attribute,
        from: &[u8; 16],
        to: &[u8; 16],
        each: &mut dyn FnMut(Candidate) -> Result<bool>,
    ) -> Result<()> {
        let Some([user, time]) = &self.entries else {
            return Ok(());
        };
        let entries = match attribute {
            Attribute::User => user,
            Attribute::Time => time,
        };
        for found in entries.range(*from..=*to) {
            let (entry, key) = found.into_inner()?;
            if !each(Candidate::new(&entry, &key))? {
                break;
            }
        }
        Ok(())
    }

    fn fetch(
        &self,
        candidates: &[Candidate],
        each: &mut dyn FnMut(&Candidate, &[u8]),
    ) -> Result<()> {
        for candidate in candidates {
            if let Some(bytes) = self.data.get(candidate.key)? {
                each(candidate, &bytes);
            }
        }
        Ok(())
    }
}
