//! The model: every write in order, searched by brute force. It knows the state after any number of
//! writes, so that answers can be checked at any moment of a run.

use std::hash::Hasher;

use crate::workload::{Attribute, Find, Record};

/// No write.
const NONE: u32 = u32::MAX;

/// All writes of a plan. Writes are numbered from 0, newer ones higher.
#[derive(Debug, Default)]
pub struct History {
    keys: Vec<u64>,
    users: Vec<u64>,
    seconds: Vec<u64>,
    bodies: Vec<u64>,
    /// The next write of the same key.
    next: Vec<u32>,
    /// True for writes of a key that was there.
    updates: Vec<bool>,
    /// For each key, by number: its first and its last write.
    spans: Vec<(u32, u32)>,
    /// All writes by user, then number.
    by_user: Vec<u32>,
}

impl History {
    /// Adds the write of a new key.
    pub fn put(&mut self, record: &Record<'_>) {
        let write = self.keys.len() as u32;
        self.push(record, false);
        self.spans.push((write, write));
    }

    /// Adds another write of the key with this number.
    pub fn update(&mut self, key: usize, record: &Record<'_>) {
        let write = self.keys.len() as u32;
        self.push(record, true);
        let last = std::mem::replace(&mut self.spans[key].1, write);
        self.next[last as usize] = write;
    }

    fn push(&mut self, record: &Record<'_>, update: bool) {
        self.keys.push(record.key);
        self.users.push(record.user);
        self.seconds.push(record.second);
        self.bodies.push(digest(record.body));
        self.next.push(NONE);
        self.updates.push(update);
    }

    /// Gets ready for questions.
    pub fn seal(&mut self) {
        self.by_user = (0..self.keys.len() as u32).collect();
        self.by_user
            .sort_by_key(|&write| (self.users[write as usize], write));
    }

    /// The number of writes.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// The number of keys.
    pub fn keys(&self) -> usize {
        self.spans.len()
    }

    /// The key with this number in order of creation.
    pub fn key(&self, number: usize) -> u64 {
        self.keys[self.spans[number].0 as usize]
    }

    /// How many keys there were after so many writes.
    pub fn keys_after(&self, writes: usize) -> usize {
        self.spans
            .partition_point(|&(first, _)| (first as usize) < writes)
    }

    /// The key that this write replaced the record of.
    pub fn replaced(&self, write: usize) -> Option<u64> {
        self.updates[write].then(|| self.keys[write])
    }

    /// The user that this write is of.
    pub fn user(&self, write: usize) -> u64 {
        self.users[write]
    }

    /// When this write was made.
    pub fn second(&self, write: usize) -> u64 {
        self.seconds[write]
    }

    /// The digest of the record that a get of the key with this number must give after so many
    /// writes.
    pub fn get(&self, key: usize, writes: usize) -> Option<u64> {
        let mut write = self.spans[key].0 as usize;
        if write >= writes {
            return None;
        }
        while (self.next[write] as usize) < writes {
            write = self.next[write] as usize;
        }
        Some(self.bodies[write])
    }

    /// The digests of the records that a question must give after so many writes, in order.
    pub fn find(&self, find: &Find, writes: usize) -> Vec<u64> {
        let mut found: Vec<u32> = match find.attribute {
            Attribute::User => {
                let of = |&write: &u32| self.users[write as usize];
                let from = self.by_user.partition_point(|write| of(write) < find.lo);
                let to = self.by_user.partition_point(|write| of(write) <= find.hi);
                self.by_user[from..to].to_vec()
            }
            Attribute::Time => {
                // The clock of the generator does not go back.
                let from = self.seconds.partition_point(|&second| second < find.lo);
                let to = self.seconds.partition_point(|&second| second <= find.hi);
                (from as u32..to as u32).collect()
            }
        };
        found.retain(|&write| {
            (write as usize) < writes && self.next[write as usize] as usize >= writes
        });
        found.sort_unstable_by(|a, b| b.cmp(a));
        found.truncate(find.limit.unwrap_or(usize::MAX));
        found
            .iter()
            .map(|&write| self.bodies[write as usize])
            .collect()
    }

    /// The different users, ascending.
    pub fn users(&self) -> Vec<u64> {
        let mut users: Vec<u64> = self
            .by_user
            .iter()
            .map(|&w| self.users[w as usize])
            .collect();
        users.dedup();
        users
    }
}

/// What the model keeps of a record's JSON.
pub fn digest(body: &[u8]) -> u64 {
    let mut hasher = std::hash::DefaultHasher::new();
    hasher.write(body);
    hasher.finish()
}

#[cfg(test)]
#[path = "model_tests.rs"]
mod tests;
