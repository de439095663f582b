//! Who is measured: Esker's three architectures, and a broker that keeps everything in memory.

use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use esker::{Database, Durability, Options, Path as Field};
use esker_pubsub::{
    Architecture, Broker, Cell, Config, Granularity, Place, PubSub, Publication, Region,
    RepeatedQueries, Subscription, Threshold, Topic,
};
use serde::{Deserialize, Serialize};

use super::load::{At, DEPTH, Load, Operation, number_of};
use crate::failure::{Failure, Result};

/// Who it is: the subject of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Who {
    /// One tree (section 5.3), and variable granularity.
    Dual,
    /// Two trees (section 5.2).
    Two,
    /// Queries that are repeated every so many milliseconds (section 5.1).
    Repeated(i64),
    /// One tree, fixed granularity (section 6.2.1).
    Fixed,
    /// Lists in a hash map.
    Memory,
}

impl Who {
    /// The name in the rows.
    pub fn name(self) -> &'static str {
        match self {
            Who::Dual => "DualDB",
            Who::Two => "TwoDB",
            Who::Repeated(1000) => "RepQueries, 1 s",
            Who::Repeated(_) => "RepQueries, 5 s",
            Who::Fixed => "DualDB, fixed",
            Who::Memory => "in memory",
        }
    }
}

/// What was told, in a form that can be compared: how often, and a sum over the pairs of a subscription and a publication.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Told {
    /// Notifications.
    pub count: u64,
    sum: u64,
    /// Milliseconds by which those that came later than their publication were late, together.
    pub late: u64,
}

impl Told {
    fn add(&mut self, subscription: u64, publication: u64) {
        // So that no two sets of pairs are likely to have the same sum.
        let mixed =
            (subscription ^ publication.rotate_left(32)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.sum = self.sum.wrapping_add(mixed ^ (mixed >> 29));
        self.count += 1;
    }

    /// Adds what was told in a turn.
    pub fn join(&mut self, other: &Told) {
        self.count += other.count;
        self.sum = self.sum.wrapping_add(other.sum);
        self.late += other.late;
    }

    /// True when both are the same pairs.
    pub fn is_same(&self, other: &Told) -> bool {
        (self.count, self.sum) == (other.count, other.sum)
    }
}

/// What was read so far.
#[derive(Debug, Clone, Copy, Default)]
pub struct Read {
    /// Looks at the lists of a tree.
    pub walks: u64,
    /// Blocks with entries, from the cache or not.
    pub blocks: u64,
    /// Of them and of filters and block indexes, those that came from the file system.
    pub from_files: u64,
}

/// One of them.
pub trait Subject {
    /// Does an operation, at its time.
    fn act(&mut self, operation: &Operation, told: &mut Told) -> Result<()>;

    /// Does what is due at a time, if there is such a thing; false when there is nothing.
    fn advance(&mut self, time: i64, told: &mut Told) -> Result<bool>;

    /// Ends what is left to do in the background.
    fn settle(&mut self) -> Result<()>;

    /// What it has read.
    fn read(&self) -> Read;

    /// Sorted runs of publications, and of subscriptions.
    fn runs(&self) -> (usize, usize);

    /// Bytes that the log was extended by so far.
    fn logged(&self) -> u64;
}

/// How a store is set up.
#[derive(Debug, Clone, Copy)]
pub struct Setup {
    /// Bytes of memory.
    pub memory: usize,
    /// Whether reads go round the page cache.
    pub is_direct: bool,
    /// Whether subscriptions and publications look at earlier ones of their kind.
    pub joins: bool,
    /// What is to come.
    pub load: Load,
}

/// A store of Esker's.
pub struct Esker {
    db: Database,
    broker: Broker,
    clock: Arc<AtomicU64>,
    repeated: Option<RepeatedQueries>,
    setup: Setup,
    price: Field,
}

impl Esker {
    /// Makes one in `dir`.
    pub fn create(dir: &Path, who: Who, setup: Setup) -> Result<Esker> {
        let clock = Arc::new(AtomicU64::new(0));
        let now = clock.clone();
        let mut options = Options::new()
            .memory_budget(setup.memory)
            .durability(Durability::Os)
            .clock(Arc::new(move || now.load(Ordering::Relaxed)));
        if setup.is_direct {
            options = options.fs(Arc::new(esker::fs::disk::Disk::direct()));
        }
        let db = PubSub::create_or_open(dir, options)?;
        let (architecture, granularity) = match who {
            Who::Two => (Architecture::TwoDb, Granularity::Variable),
            Who::Repeated(_) => (Architecture::RepQueries, Granularity::Variable),
            Who::Fixed => (Architecture::DualDb, Granularity::Fixed),
            Who::Dual | Who::Memory => (Architecture::DualDb, Granularity::Variable),
        };
        let config = Config::new()
            .architecture(architecture)
            .granularity(granularity)
            .depth(DEPTH);
        let broker = Broker::create_or_open(&db, config)?;
        let repeated = match who {
            Who::Repeated(every) => Some(RepeatedQueries::new(&broker, every)),
            _ => None,
        };
        Ok(Esker {
            db,
            broker,
            clock,
            repeated,
            setup,
            price: "v".parse()?,
        })
    }

    fn place(at: &At) -> Result<(Topic, Place)> {
        Ok(match at {
            At::Grid(cell) => (Topic::dewey(&[*cell])?, Place::Anywhere),
            At::Cell(quarters) => (Topic::root(), Place::Cell(Cell::new(quarters)?)),
            At::Circle(longitude, latitude, metres) => {
                let circle = Region::Circle {
                    longitude: *longitude,
                    latitude: *latitude,
                    metres: *metres,
                };
                (Topic::root(), Place::Region(circle))
            }
        })
    }
}

/// The number of a subscription, by its tag.
fn tagged(tag: &[u8]) -> u64 {
    <[u8; 8]>::try_from(tag).map_or(0, u64::from_be_bytes)
}

impl Subject for Esker {
    fn act(&mut self, operation: &Operation, told: &mut Told) -> Result<()> {
        let (time, reach) = (operation.time, self.setup.load.reach);
        self.clock.store(time as u64, Ordering::Relaxed);
        let (topic, place) = Esker::place(&operation.at)?;
        if !operation.is_subscription {
            let publication = Publication::new(topic, operation.body.as_slice())
                .at_place(place)
                .lives(Duration::from_millis(2 * reach as u64));
            let published = self.broker.publish(&publication)?;
            // What is not known is not to be counted as none.
            published.unread.map_or(Ok(()), Err)?;
            for matched in published.matches {
                told.add(tagged(&matched.tag), operation.number);
            }
            return Ok(());
        }
        let mut subscription = Subscription::to(topic.into())
            .at_place(place)
            .tag(operation.number.to_be_bytes())
            .from(time - reach)
            .until(time + reach);
        if self.setup.joins {
            subscription = subscription
                .user(operation.user.to_be_bytes())
                .join()
                .on_change(self.price.clone(), Threshold::Percent(5.0));
        }
        match &mut self.repeated {
            Some(repeated) => {
                repeated.subscribe(&subscription, &mut |_, tag, notification| {
                    told.add(tagged(tag), number_of(&notification.body));
                })?;
            }
            None => {
                let subscribed = self.broker.subscribe(&subscription)?;
                subscribed.unread.map_or(Ok(()), Err)?;
                for notification in subscribed.past {
                    told.add(operation.number, number_of(&notification.body));
                }
            }
        }
        Ok(())
    }

    fn advance(&mut self, time: i64, told: &mut Told) -> Result<bool> {
        let Some(repeated) = &mut self.repeated else {
            return Ok(false);
        };
        let is_due = repeated.next_due().is_some_and(|due| due <= time);
        if is_due {
            repeated.advance(time, &mut |_, tag, notification| {
                told.add(tagged(tag), number_of(&notification.body));
                told.late += (time - notification.time).max(0) as u64;
            })?;
        }
        Ok(is_due)
    }

    fn settle(&mut self) -> Result<()> {
        Ok(self.db.group().run_compactions()?)
    }

    fn read(&self) -> Read {
        let stats = self.broker.read_stats();
        Read {
            walks: stats.walks,
            blocks: stats.data_blocks,
            from_files: stats.blocks_read,
        }
    }

    fn runs(&self) -> (usize, usize) {
        let snapshot = self.db.group().snapshot();
        let runs = |ends: &str| {
            let mut trees = snapshot.version().trees.values();
            let found = trees.find(|tree| tree.name.ends_with(ends));
            found.map_or(0, |tree| tree.runs.len())
        };
        match runs("/lists") {
            0 => (runs("/publications"), runs("/subscriptions")),
            both => (both, both),
        }
    }

    fn logged(&self) -> u64 {
        self.db.group().stats().log_bytes
    }
}

/// Lists in a hash map: what brokers do, and the model whose answers all others have to give. For workloads on a grid.
pub struct Naive {
    reach: i64,
    topics: HashMap<u64, Node>,
    /// When each publication was made and where, oldest first.
    publications: VecDeque<(i64, u64)>,
    /// The same of subscriptions.
    subscriptions: VecDeque<(i64, u64)>,
}

#[derive(Default)]
struct Node {
    publications: VecDeque<(u64, i64, Box<[u8]>)>,
    subscriptions: VecDeque<(u64, i64)>,
}

impl Naive {
    /// An empty one.
    pub fn new(reach: i64) -> Naive {
        Naive {
            reach,
            topics: HashMap::new(),
            publications: VecDeque::new(),
            subscriptions: VecDeque::new(),
        }
    }

    fn forget(&mut self, now: i64) {
        let Naive {
            reach,
            topics,
            publications,
            subscriptions,
        } = self;
        for (queue, last, is_subscription) in [
            (publications, now - 2 * *reach, false),
            // The last moment belongs to a subscription.
            (subscriptions, now - *reach - 1, true),
        ] {
            while let Some((_, topic)) = queue.front().filter(|made| made.0 <= last) {
                if let Some(node) = topics.get_mut(topic) {
                    match is_subscription {
                        true => drop(node.subscriptions.pop_front()),
                        false => drop(node.publications.pop_front()),
                    }
                    if node.publications.is_empty() && node.subscriptions.is_empty() {
                        topics.remove(topic);
                    }
                }
                queue.pop_front();
            }
        }
    }
}

impl Subject for Naive {
    fn act(&mut self, operation: &Operation, told: &mut Told) -> Result<()> {
        let At::Grid(topic) = operation.at else {
            return Err(Failure::new("what is kept in memory is on a grid"));
        };
        let (number, now) = (operation.number, operation.time);
        self.forget(now);
        let node = self.topics.entry(topic).or_default();
        if operation.is_subscription {
            for (publication, time, _) in &node.publications {
                if *time >= now - self.reach {
                    told.add(number, *publication);
                }
            }
            node.subscriptions.push_back((number, now));
            self.subscriptions.push_back((now, topic));
        } else {
            for (subscription, _) in &node.subscriptions {
                told.add(*subscription, number);
            }
            let body = operation.body.clone().into_boxed_slice();
            node.publications.push_back((number, now, body));
            self.publications.push_back((now, topic));
        }
        Ok(())
    }

    fn advance(&mut self, _: i64, _: &mut Told) -> Result<bool> {
        Ok(false)
    }

    fn settle(&mut self) -> Result<()> {
        Ok(())
    }

    fn read(&self) -> Read {
        Read::default()
    }

    fn runs(&self) -> (usize, usize) {
        (0, 0)
    }

    fn logged(&self) -> u64 {
        0
    }
}
