//! Batches over several datasets, and the operations that they share with batches over one.

use esker::schema::Maintenance;
use esker::{Batch, Dataset, Durability, Key, Result, WriteBatch};

use crate::action::Write;
use crate::data::Effects;
use crate::runner::count;
use crate::world::World;

/// The operations of a batch on one dataset.
pub(crate) trait Filled {
    fn put(&mut self, json: &[u8], insert: bool) -> Result<()>;
    fn delete(&mut self, key: &Key) -> Result<()>;
    fn expect(&mut self, key: &Key, seq: Option<u64>) -> Result<()>;
    /// `None` if the batch takes no notes.
    fn note(&mut self, name: &str, value: Option<&[u8]>) -> Option<Result<()>>;
    fn len(&self) -> usize;
    fn commit_as(&mut self, durability: Durability) -> Result<()>;
}

impl Filled for WriteBatch {
    fn put(&mut self, json: &[u8], insert: bool) -> Result<()> {
        if insert {
            self.insert_json(json)
        } else {
            self.put_json(json)
        }
    }

    fn delete(&mut self, key: &Key) -> Result<()> {
        WriteBatch::delete(self, key)
    }

    fn expect(&mut self, key: &Key, seq: Option<u64>) -> Result<()> {
        match seq {
            None => self.if_absent(key),
            Some(seq) => self.if_seq(key, seq),
        }
    }

    fn note(&mut self, name: &str, value: Option<&[u8]>) -> Option<Result<()>> {
        Some(WriteBatch::note(self, name, value))
    }

    fn len(&self) -> usize {
        WriteBatch::len(self)
    }

    fn commit_as(&mut self, durability: Durability) -> Result<()> {
        self.durability(durability).commit()
    }
}

/// A batch over several datasets, as one of them sees it.
struct Part<'a>(&'a mut Batch, &'a Dataset);

impl Filled for Part<'_> {
    fn put(&mut self, json: &[u8], insert: bool) -> Result<()> {
        if insert {
            self.0.insert_json(self.1, json)
        } else {
            self.0.put_json(self.1, json)
        }
    }

    fn delete(&mut self, key: &Key) -> Result<()> {
        self.0.delete(self.1, key)
    }

    fn expect(&mut self, key: &Key, seq: Option<u64>) -> Result<()> {
        match seq {
            None => self.0.if_absent(self.1, key),
            Some(seq) => self.0.if_seq(self.1, key, seq),
        }
    }

    fn note(&mut self, _name: &str, _value: Option<&[u8]>) -> Option<Result<()>> {
        None
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn commit_as(&mut self, durability: Durability) -> Result<()> {
        self.0.durability(durability).commit()
    }
}

impl World {
    /// One batch over some datasets; the writes go to them in turn.
    pub(crate) fn over(&mut self, at: usize, sets: &[u8], writes: &[Write], durability: u8) {
        let mut chosen: Vec<usize> = Vec::new();
        for set in sets.iter().filter_map(|set| self.set_at(at, *set)) {
            if !chosen.contains(&set) {
                chosen.push(set);
            }
        }
        if chosen.is_empty() {
            return;
        }
        // Eager maintenance takes an unknown number of write numbers: its dataset comes last, and
        // once.
        let of = |set: &usize| self.stores[at].sets[*set].def.maintenance;
        let (eager, mut order): (Vec<usize>, Vec<usize>) = chosen
            .into_iter()
            .partition(|set| of(set) == Maintenance::Eager);
        order.extend(eager.first());
        let mut batch = self.stores[at].db.as_ref().unwrap().batch();
        let mut parts: Vec<Effects> = Vec::new();
        for (nth, set) in order.iter().enumerate() {
            let mine = writes.iter().skip(nth).step_by(order.len());
            let mine: Vec<Write> = mine.cloned().collect();
            let name = self.stores[at].sets[*set].name.clone();
            let dataset = self.stores[at].handle(&name).unwrap();
            let mut part = Part(&mut batch, &dataset);
            parts.push(self.fill_in(at, *set, &mine, &dataset, &mut part));
        }
        if parts.len() > 1 {
            count("batch: over several datasets");
        }
        let store = &self.stores[at];
        let dataset = store.handle(&store.sets[order[0]].name).unwrap();
        let mut whole = Part(&mut batch, &dataset);
        self.commit(at, &mut whole, &parts, durability);
    }
}
