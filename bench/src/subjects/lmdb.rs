//! LMDB (by heed): a transaction per put, no sync. The pages are mapped, so its cache is the page
//! cache. The data and each index are a database.

use std::ops::Bound;

use heed::types::Bytes;
use heed::{CommitOrAbort, Database, Env, EnvFlags, EnvOpenOptions, RoTxn, WithTls};

use super::keyed::{self, Candidate, Store};
use super::{Setup, Subject, Visit};
use crate::failure::{Failure, Result};
use crate::workload::{Attribute, Find, Record};

/// Address space for the map; the file grows as needed.
const MAP_BYTES: usize = 64 << 30;

type Table = Database<'static, Bytes, Bytes>;

struct Tables {
    data: Table,
    user: Table,
    time: Table,
}

pub(super) struct Lmdb {
    env: Env,
    tables: Tables,
    number: keyed::Number,
    record: Vec<u8>,
}

impl Lmdb {
    pub(super) fn open(setup: &Setup) -> Result<Lmdb> {
        let mut options = EnvOpenOptions::new();
        options.map_size(MAP_BYTES).max_dbs(3);
        // Safety: the folder is of this process alone, and opened once; without sync a power cut
        // may damage it, and it is never opened again.
        #[expect(
            unsafe_code,
            reason = "heed leaves the promise about the folder to its user"
        )]
        let env = unsafe {
            options.flags(EnvFlags::NO_SYNC);
            options.open(&setup.dir)?
        };
        let txn = env.write_txn()?;
        let made = env.create_databases_and_commit(txn, |opener, txn| {
            let data = opener.create_database::<Bytes, Bytes>(txn, Some("data"))?;
            let user = opener.create_database::<Bytes, Bytes>(txn, Some("user"))?;
            let time = opener.create_database::<Bytes, Bytes>(txn, Some("time"))?;
            Ok::<_, heed::Error>(CommitOrAbort::Commit::<_, ()>((data, user, time)))
        })?;
        let CommitOrAbort::Commit((data, user, time)) = made else {
            return Err(Failure::new("LMDB did not make its databases"));
        };
        Ok(Lmdb {
            env,
            tables: Tables { data, user, time },
            number: 0,
            record: Vec::new(),
        })
    }
}

impl Subject for Lmdb {
    fn put(&mut self, record: &Record<'_>) -> Result<()> {
        self.number += 1;
        keyed::store(&mut self.record, self.number, record);
        let key = keyed::key(record.key);
        let Tables { data, user, time } = &self.tables;
        let mut txn = self.env.write_txn()?;
        let old = data.get(&txn, &key)?.map(keyed::entries_of);
        if let Some([old_user, old_time]) = old {
            user.delete(&mut txn, &old_user)?;
            time.delete(&mut txn, &old_time)?;
        }
        data.put(&mut txn, &key, &self.record)?;
        user.put(&mut txn, &keyed::entry(record.user, self.number), &key)?;
        time.put(&mut txn, &keyed::entry(record.second, self.number), &key)?;
        Ok(txn.commit()?)
    }

    fn get(&mut self, key: u64, visit: Visit<'_>) -> Result<()> {
        let txn = self.env.read_txn()?;
        if let Some(bytes) = self.tables.data.get(&txn, &keyed::key(key))? {
            visit(keyed::stored(bytes).1);
        }
        Ok(())
    }

    fn find(&mut self, find: &Find, visit: Visit<'_>) -> Result<()> {
        let reader = Reader {
            txn: self.env.read_txn()?,
            tables: &self.tables,
        };
        keyed::find(&reader, find, false, visit)
    }

    fn settle(&mut self) -> Result<()> {
        Ok(())
    }
}

struct Reader<'a> {
    txn: RoTxn<'a, WithTls>,
    tables: &'a Tables,
}

impl Store for Reader<'_> {
    fn scan(
        &self,
        attribute: Attribute,
        from: &[u8; 16],
        to: &[u8; 16],
        each: &mut dyn FnMut(Candidate) -> Result<bool>,
    ) -> Result<()> {
        let table = match attribute {
            Attribute::User => &self.tables.user,
            Attribute::Time => &self.tables.time,
        };
        let range = (Bound::Included(&from[..]), Bound::Included(&to[..]));
        for found in table.range(&self.txn, &range)? {
            let (entry, key) = found?;
            if !each(Candidate::new(entry, key))? {
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
            if let Some(bytes) = self.tables.data.get(&self.txn, &candidate.key)? {
                each(candidate, bytes);
            }
        }
        Ok(())
    }
}
