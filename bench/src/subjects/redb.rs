//! redb: a commit (which syncs) every 10,000 puts, because its commits without sync leave everything
//! in memory. So a killed process loses the last puts: a weaker promise than the others give. Reads
//! between two commits see them, through the open transaction.

use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition, WriteTransaction};

use super::keyed::{self, Candidate, Store};
use super::{Setup, Subject, Visit};
use crate::failure::Result;
use crate::workload::{Attribute, Find, Record};

const COMMIT_EVERY: u32 = 10_000;

type Definition = TableDefinition<'static, &'static [u8], &'static [u8]>;

const DATA: Definition = TableDefinition::new("data");
const USER: Definition = TableDefinition::new("user");
const TIME: Definition = TableDefinition::new("time");

pub(super) struct Redb {
    db: Database,
    open: Option<WriteTransaction>,
    puts: u32,
    number: keyed::Number,
    record: Vec<u8>,
}

impl Redb {
    pub(super) fn open(setup: &Setup) -> Result<Redb> {
        let mut builder = Database::builder();
        builder.set_cache_size(setup.cache_bytes);
        let db = builder.create(setup.dir.join("redb"))?;
        let txn = db.begin_write()?;
        for table in [DATA, USER, TIME] {
            txn.open_table(table)?;
        }
        txn.commit()?;
        Ok(Redb {
            db,
            open: None,
            puts: 0,
            number: 0,
            record: Vec::new(),
        })
    }

    fn commit(&mut self) -> Result<()> {
        self.puts = 0;
        if let Some(txn) = self.open.take() {
            txn.commit()?;
        }
        Ok(())
    }

    fn writing(&mut self) -> Result<&WriteTransaction> {
        let txn = match self.open.take() {
            Some(txn) => txn,
            None => self.db.begin_write()?,
        };
        Ok(self.open.insert(txn))
    }
}

impl Subject for Redb {
    fn put(&mut self, record: &Record<'_>) -> Result<()> {
        self.number += 1;
        let number = self.number;
        let mut stored = std::mem::take(&mut self.record);
        keyed::store(&mut stored, number, record);
        let key = keyed::key(record.key);
        let txn = self.writing()?;
        {
            let mut data = txn.open_table(DATA)?;
            let mut user = txn.open_table(USER)?;
            let mut time = txn.open_table(TIME)?;
            let old = data.insert(&key[..], stored.as_slice())?;
            if let Some([old_user, old_time]) = old.map(|old| keyed::entries_of(old.value())) {
                user.remove(&old_user[..])?;
                time.remove(&old_time[..])?;
            }
            user.insert(&keyed::entry(record.user, number)[..], &key[..])?;
            time.insert(&keyed::entry(record.second, number)[..], &key[..])?;
        }
        self.record = stored;
        self.puts += 1;
        if self.puts == COMMIT_EVERY {
            self.commit()?;
        }
        Ok(())
    }

    fn get(&mut self, key: u64, visit: Visit<'_>) -> Result<()> {
        let key = keyed::key(key);
        let mut hand_over =
            |table: &dyn Get| table.get_into(&key, &mut |bytes| visit(keyed::stored(bytes).1));
        match &self.open {
            Some(txn) => hand_over(&txn.open_table(DATA)?),
            None => hand_over(&self.db.begin_read()?.open_table(DATA)?),
        }
    }

    fn find(&mut self, find: &Find, visit: Visit<'_>) -> Result<()> {
        let index = match find.attribute {
            Attribute::User => USER,
            Attribute::Time => TIME,
        };
        match &self.open {
            Some(txn) => {
                let (data, entries) = (txn.open_table(DATA)?, txn.open_table(index)?);
                keyed::find(&Reader { data, entries }, find, false, visit)
            }
            None => {
                let txn = self.db.begin_read()?;
                let (data, entries) = (txn.open_table(DATA)?, txn.open_table(index)?);
                keyed::find(&Reader { data, entries }, find, false, visit)
            }
        }
    }

    fn settle(&mut self) -> Result<()> {
        self.commit()
    }
}

type Bytes = &'static [u8];

/// A table of either kind of transaction.
trait Get {
    fn get_into(&self, key: &[u8], visit: Visit<'_>) -> Result<()>;
}

impl<T: ReadableTable<Bytes, Bytes>> Get for T {
    fn get_into(&self, key: &[u8], visit: Visit<'_>) -> Result<()> {
        if let Some(bytes) = self.get(key)? {
            visit(bytes.value());
        }
        Ok(())
    }
}

/// The two tables that a question needs.
struct Reader<T> {
    data: T,
    entries: T,
}

impl<T: ReadableTable<Bytes, Bytes>> Store for Reader<T> {
    fn scan(
        &self,
        _attribute: Attribute,
        from: &[u8; 16],
        to: &[u8; 16],
        each: &mut dyn FnMut(Candidate) -> Result<bool>,
    ) -> Result<()> {
        for found in self.entries.range::<&[u8]>(&from[..]..=&to[..])? {
            let (entry, key) = found?;
            if !each(Candidate::new(entry.value(), key.value()))? {
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
            self.data
                .get_into(&candidate.key, &mut |bytes| each(candidate, bytes))?;
        }
        Ok(())
    }
}
