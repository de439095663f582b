//! A run planned in full before anything is measured: what is written, what is asked in between, and
//! (the [`History`]) what every answer must be.

use fastrand::Rng;

use super::Record;
use super::profile::Profile;
use super::tweets::Tweets;
use crate::model::History;

/// The shares of the operations of a mixed phase, in percent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mix {
    /// Puts of new keys.
    pub put: u32,
    /// Puts of existing keys, with other attributes.
    pub update: u32,
    /// Reads by primary key.
    pub get: u32,
    /// Lookups of a user, K = 10. What is left of 100.
    pub lookup: u32,
}

impl Mix {
    /// LevelDB++'s write-heavy mix.
    pub const WRITE_HEAVY: Mix = Mix {
        put: 80,
        update: 0,
        get: 15,
        lookup: 5,
    };
    /// LevelDB++'s read-heavy mix.
    pub const READ_HEAVY: Mix = Mix {
        put: 20,
        update: 0,
        get: 70,
        lookup: 10,
    };
    /// LevelDB++'s update-heavy mix.
    pub const UPDATE_HEAVY: Mix = Mix {
        put: 40,
        update: 40,
        get: 15,
        lookup: 5,
    };
}

/// An operation of a mixed phase. Keys by their number in order of creation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// Put the next record under a new key.
    Put,
    /// Put the next record under this key.
    Update(u32),
    /// Get this key.
    Get(u32),
    /// Look up the user of this write.
    Lookup(u32),
}

/// A load of records, then a mixed phase.
#[derive(Debug)]
pub struct Plan {
    /// Every write, in order.
    pub history: History,
    /// Writes of the load; those behind it are of the mixed phase.
    pub load: usize,
    /// The mixed phase.
    pub ops: Vec<Op>,
    seed: u64,
    profile: Profile,
}

impl Plan {
    /// Plans `load` records, then `mixed` operations.
    pub fn new(seed: u64, profile: Profile, load: usize, mixed: usize, mix: Mix) -> Plan {
        let mut history = History::default();
        let mut tweets = Tweets::new(seed, profile.clone());
        for _ in 0..load {
            history.put(&tweets.next(None));
        }
        let mut rng = Rng::with_seed(seed ^ 0x6d69_7865_6421);
        let mut ops = Vec::with_capacity(mixed);
        for _ in 0..mixed {
            let keys = history.keys() as u32;
            let op = match rng.u32(0..100) {
                n if n < mix.put => Op::Put,
                n if n < mix.put + mix.update => Op::Update(rng.u32(0..keys)),
                n if n < mix.put + mix.update + mix.get => Op::Get(rng.u32(0..keys)),
                _ => Op::Lookup(rng.u32(0..history.len() as u32)),
            };
            match op {
                Op::Put => history.put(&tweets.next(None)),
                Op::Update(key) => {
                    let replaced = history.key(key as usize);
                    history.update(key as usize, &tweets.next(Some(replaced)));
                }
                Op::Get(_) | Op::Lookup(_) => {}
            }
            ops.push(op);
        }
        history.seal();
        Plan {
            history,
            load,
            ops,
            seed,
            profile,
        }
    }

    /// The records of the plan from the first on, in the order in which they are written.
    pub fn stream(&self) -> Stream<'_> {
        Stream {
            tweets: Tweets::new(self.seed, self.profile.clone()),
            history: &self.history,
            at: 0,
        }
    }
}

/// Makes the records of a plan again.
#[derive(Debug)]
pub struct Stream<'p> {
    tweets: Tweets,
    history: &'p History,
    at: usize,
}

impl Stream<'_> {
    /// The next record.
    pub fn next(&mut self) -> Record<'_> {
        let replaced = self.history.replaced(self.at);
        self.at += 1;
        self.tweets.next(replaced)
    }
}
