//! Sources of events, which are read in steps, and the source that reads the changes of a dataset.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use esker::changes::{Listening, Wake};
use esker::{
    Change, ChangeKind, Changes, Dataset, Error, Expr, Key, KeyType, Position, Record, Value,
};
use esker_model::condition::Filter;

use super::id::EventId;
use super::recent::{Recent, Taken};
use crate::problem::Problem;

/// A step ends when its events have this many bytes.
const STEP: usize = 64 << 10;

/// A step ends after this time, also if it found nothing: a condition may admit few of many
/// changes.
pub(crate) const STEP_TIME: Duration = Duration::from_millis(50);

/// Something that happened.
#[derive(Debug, Clone)]
pub(crate) struct Event {
    /// Where a reader that has it continues.
    pub(crate) id: String,
    pub(crate) name: &'static str,
    /// A JSON object on one line.
    pub(crate) data: Vec<u8>,
}

/// What comes after a step.
#[derive(Debug, Default)]
pub(crate) enum Next {
    /// Another step, at once.
    #[default]
    More,
    /// Another step when there may be something new, or at this time.
    Wait(Option<Instant>),
    /// Nothing.
    End,
    /// Nothing, because of an error.
    Fail(Problem),
}

/// The events that a step has found.
#[derive(Debug, Default)]
pub(crate) struct Step {
    pub(crate) events: Vec<Event>,
    bytes: usize,
    pub(crate) next: Next,
}

impl Step {
    pub(crate) fn push(&mut self, event: Event) {
        self.bytes += event.data.len() + event.id.len() + event.name.len();
        self.events.push(event);
    }

    /// True if the step has enough bytes.
    pub(crate) fn is_full(&self) -> bool {
        self.bytes >= STEP
    }
}

/// Finds events, in steps that run on the engine's threads.
pub(crate) trait Source: Send + 'static {
    /// The next events.
    fn step(&mut self) -> Step;

    /// Calls `wake` whenever there may be a new event, until what it returns is dropped.
    ///
    /// # Errors
    /// Those of the store.
    fn listen(&self, wake: Arc<Wake>) -> Result<Vec<Listening>, Problem>;

    /// Where a reader continues that has every event so far; `None` if events alone say so.
    fn place(&self) -> Option<String>;
}

/// Compiles a condition.
///
/// # Errors
/// 400.
pub(crate) fn condition(text: &str) -> Result<Expr, Problem> {
    let condition = text.parse::<Expr>().map_err(Error::from)?;
    condition.check().map_err(Problem::bad_request)?;
    Ok(condition)
}

/// What a feed has found.
pub(crate) enum Found {
    Change(Arc<Change>),
    /// No change that matches, for as long as a step may take.
    Skipped,
    /// No more changes for now.
    Nothing,
}

/// The error of reads of a dataset by a name that it no longer has.
pub(super) fn renamed(name: &str) -> Error {
    Error::UnknownDataset {
        name: name.to_string(),
        meant: None,
    }
}

/// After which time a stream looks again, if nothing wakes it.
const LOOK: Duration = Duration::from_millis(200);

/// The changes of a dataset that match a condition. They end when the dataset gets another name:
/// who may read them is decided by its name.
pub(crate) struct Feed {
    /// Reads the log, while the recent changes do not have what comes next.
    log: Option<Changes<Key>>,
    recent: Option<Arc<Recent>>,
    /// Recent changes that come next.
    taken: VecDeque<Arc<Change>>,
    /// Where the feed is when it has returned those.
    reached: Position,
    /// Everything up to here was returned.
    position: Position,
    /// Changes carry the records that they replaced.
    with_old: bool,
    filter: Option<Filter>,
    dataset: Dataset<Key>,
    name: String,
}

impl Feed {
    /// The changes that a reader of the log returns. A change passes if the record that it stores
    /// meets the condition. In a feed with old records it passes, too, if the record that it
    /// replaced or deleted met it (as in [`pubsub::Watch`]).
    pub(crate) fn new(
        dataset: &Dataset<Key>,
        changes: Changes<Key>,
        condition: Option<&Expr>,
    ) -> Feed {
        Feed {
            taken: VecDeque::new(),
            reached: changes.position(),
            position: changes.position(),
            log: Some(changes),
            recent: None,
            with_old: true,
            filter: condition.map(Filter::new),
            dataset: dataset.clone(),
            name: dataset.name(),
        }
    }

    /// The same, which takes recent changes from where they are read once for all; with the records
    /// that they replaced, if `with_old`.
    pub(crate) fn sharing(self, recent: Arc<Recent>, with_old: bool) -> Feed {
        Feed {
            recent: Some(recent),
            with_old,
            ..self
        }
    }

    /// Everything up to this position was returned.
    pub(crate) fn position(&self) -> Position {
        self.position
    }

    /// The id of an event at a position.
    pub(crate) fn id(&self, position: Position) -> EventId {
        EventId::new(&self.dataset, position)
    }

    /// Where a reader continues that has every change so far.
    pub(crate) fn place(&self) -> EventId {
        self.id(self.position)
    }

    /// The event of a change of this feed.
    pub(crate) fn event(&self, change: &Change) -> Event {
        Event {
            id: self.id(change.position()).to_string(),
            name: kind(change),
            data: change_json(change, None, self.with_old),
        }
    }

    /// Calls `wake` when there may be a new change, until what it returns is dropped.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) fn listen(&self, wake: Arc<Wake>) -> Result<Listening, Error> {
        match &self.recent {
            Some(recent) => Ok(recent.listen(wake)),
            None => self.dataset.changes(self.position)?.listen(wake),
        }
    }

    /// When to look for a change, if nothing calls before.
    pub(crate) fn looks_again(&self) -> Option<Instant> {
        let has_ended = self
            .recent
            .as_ref()
            .is_some_and(|recent| recent.has_ended());
        has_ended.then(|| Instant::now() + LOOK)
    }

    /// The next change that matches, if one is found before `until`.
    ///
    /// # Errors
    /// [`Error::UnknownDataset`] if the dataset has another name now; those of reading changes.
    pub(crate) fn next(&mut self, until: Instant) -> Result<Found, Error> {
        if self.dataset.name() != self.name {
            return Err(renamed(&self.name));
        }
        loop {
            let change = match self.taken.pop_front() {
                Some(change) => {
                    self.position = if self.taken.is_empty() {
                        self.reached
                    } else {
                        change.position()
                    };
                    change
                }
                None if self.take_recent() => {
                    if self.taken.is_empty() {
                        return Ok(Found::Nothing);
                    }
                    continue;
                }
                None => match self.read_log(until)? {
                    Found::Change(change) => change,
                    other => return Ok(other),
                },
            };
            if self.matches(&change) {
                return Ok(Found::Change(change));
            }
            if Instant::now() >= until {
                return Ok(Found::Skipped);
            }
        }
    }

    /// Takes recent changes, if they are all that comes next.
    fn take_recent(&mut self) -> bool {
        let Some(recent) = &self.recent else {
            return false;
        };
        match recent.after(self.position) {
            Taken::Behind => false,
            Taken::Changes(taken, reached) => {
                self.log = None;
                self.reached = reached;
                if taken.is_empty() {
                    self.position = reached;
                }
                self.taken = taken;
                true
            }
        }
    }

    /// The next change of the log.
    fn read_log(&mut self, until: Instant) -> Result<Found, Error> {
        let log = match &mut self.log {
            Some(log) => log,
            None => {
                let mut log = self.dataset.changes(self.position)?;
                if self.with_old {
                    log = log.with_old()?;
                }
                self.log.insert(log)
            }
        };
        let change = log.next_until(until)?;
        self.position = log.position();
        Ok(match change {
            Some(change) => Found::Change(Arc::new(change)),
            None if log.is_behind() => Found::Skipped,
            None => Found::Nothing,
        })
    }

    fn matches(&self, change: &Change) -> bool {
        let Some(filter) = &self.filter else {
            return true;
        };
        let old = change.old().filter(|_| self.with_old);
        let mut both = [change.record(), old].into_iter().flatten();
        both.any(|record| filter.matches_json(record.json()))
    }
}

/// Adds JSON without line breaks, which mean nothing in it.
pub(crate) fn push_json(out: &mut Vec<u8>, json: &[u8]) {
    out.extend(json.iter().map(|byte| match byte {
        b'\n' | b'\r' => b' ',
        other => *other,
    }));
}

/// A key as JSON.
fn key_text(key: &Key) -> String {
    match key.value() {
        Value::Int(number) => number.to_string(),
        // A key of several fields is a JSON array.
        array if key.key_type() == KeyType::Fields => array.to_string(),
        other => serde_json::Value::String(other.to_string()).to_string(),
    }
}

fn kind(change: &Change) -> &'static str {
    match change.kind() {
        ChangeKind::Put => "put",
        ChangeKind::Expired => "expire",
        _ => "delete",
    }
}

/// A change as `esker changes` prints it; with what a fence says about it, and with the record that
/// it replaced if that is wanted.
pub(crate) fn change_json(change: &Change, fence: Option<&str>, with_old: bool) -> Vec<u8> {
    let (seq, what, key) = (change.seq(), kind(change), key_text(change.key()));
    let mut out = format!("{{\"seq\":{seq}").into_bytes();
    if let Some(fence) = fence {
        out.extend_from_slice(format!(",\"event\":\"{fence}\"").as_bytes());
    }
    out.extend_from_slice(format!(",\"change\":\"{what}\",\"key\":").as_bytes());
    push_json(&mut out, key.as_bytes());
    let old = change.old().filter(|_| with_old);
    let records: [(&str, Option<&Record>); 2] = [("record", change.record()), ("old", old)];
    for (name, record) in records {
        if let Some(record) = record {
            out.extend_from_slice(format!(",\"{name}\":").as_bytes());
            push_json(&mut out, record.json());
        }
    }
    out.push(b'}');
    out
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use esker::{ChangesFrom, Database, DatasetDef, Options, Seq};

    use super::super::recent::Follower;
    use super::*;

    /// A stream: where it began, what it reads and what it has received.
    struct Reader {
        feed: Feed,
        begin: Seq,
        with_old: bool,
        condition: Option<Expr>,
        seen: Vec<Arc<Change>>,
    }

    struct Scene {
        _dir: tempfile::TempDir,
        db: Database,
        dataset: Dataset<Key>,
        other: Dataset<Key>,
        recent: Arc<Recent>,
        follower: Follower,
    }

    fn later() -> Instant {
        Instant::now() + Duration::from_secs(3600)
    }

    impl Scene {
        fn new(kept: usize) -> Scene {
            let dir = tempfile::tempdir().unwrap();
            let db = Database::create_or_open(dir.path(), Options::default()).unwrap();
            let def = DatasetDef::key("id").keep_old_records();
            db.create_dataset::<u64>("d", def).unwrap();
            db.create_dataset::<u64>("other", DatasetDef::key("id"))
                .unwrap();
            let dataset = db.dataset::<Key>("d").unwrap();
            let (recent, follower) = Recent::keeping(&dataset, kept).unwrap();
            Scene {
                _dir: dir,
                other: db.dataset::<Key>("other").unwrap(),
                db,
                dataset,
                recent,
                follower,
            }
        }

        fn feed(&self, from: ChangesFrom, with_old: bool, condition: Option<&Expr>) -> Feed {
            let mut changes = self.dataset.changes(from).unwrap();
            if with_old {
                changes = changes.with_old().unwrap();
            }
            Feed::new(&self.dataset, changes, condition).sharing(self.recent.clone(), with_old)
        }

        fn follow(&mut self) {
            while self.follower.read(later()).unwrap() {}
        }

        /// Some writes.
        fn write(&self, random: &mut fastrand::Rng) {
            let record = |random: &mut fastrand::Rng| {
                let padding = "x".repeat(random.usize(0..300));
                let (id, n) = (random.u32(0..20), random.u32(0..10));
                format!(r#"{{"id": {id}, "n": {n}, "padding": "{padding}"}}"#)
            };
            match random.u32(0..4) {
                0 => self.other.put_json(record(random)).unwrap(),
                1 => {
                    let mut batch = self.db.batch();
                    for _ in 0..random.u32(1..6) {
                        batch.put_json(&self.dataset, record(random)).unwrap();
                        batch.put_json(&self.other, record(random)).unwrap();
                    }
                    batch.commit().unwrap();
                }
                2 => {
                    let key = Key::parse(KeyType::Int, &random.u32(0..20).to_string()).unwrap();
                    self.dataset.delete(key).unwrap();
                }
                _ => self.dataset.put_json(record(random)).unwrap(),
            }
        }
    }

    impl Reader {
        /// Reads at most so many changes.
        fn read(&mut self, most: usize, until: impl Fn() -> Instant) -> bool {
            for _ in 0..most {
                match self.feed.next(until()).unwrap() {
                    Found::Change(change) => self.seen.push(change),
                    Found::Skipped => {}
                    Found::Nothing => return false,
                }
            }
            true
        }

        /// A new connection behind what was received.
        fn resume(&mut self, scene: &Scene) {
            let from = ChangesFrom::Position(self.feed.position());
            self.feed = scene.feed(from, self.with_old, self.condition.as_ref());
        }

        fn wants(&self, change: &Change) -> bool {
            let meets = |record: &Record| {
                let filter = self.condition.as_ref().map(Filter::new);
                filter.is_none_or(|filter| filter.matches_json(record.json()))
            };
            let old = change.old().filter(|_| self.with_old);
            let all = self.condition.is_none();
            all || change.record().is_some_and(meets) || old.is_some_and(meets)
        }
    }

    fn run(seed: u64) {
        let random = &mut fastrand::Rng::with_seed(seed);
        let mut scene = Scene::new(2 << 10);
        let mut readers: Vec<Reader> = Vec::new();
        for _ in 0..300 {
            match random.u32(0..8) {
                0..=2 => scene.write(random),
                3 => scene.follow(),
                4 if readers.len() < 8 => {
                    let from = if random.bool() {
                        ChangesFrom::Now
                    } else {
                        ChangesFrom::Seq(random.u64(0..=scene.db.position().seq))
                    };
                    let with_old = random.bool();
                    let condition = random.bool().then(|| condition("n > 5").unwrap());
                    let feed = scene.feed(from, with_old, condition.as_ref());
                    readers.push(Reader {
                        begin: feed.position().seq,
                        feed,
                        with_old,
                        condition,
                        seen: Vec::new(),
                    });
                }
                _ if readers.is_empty() => {}
                5 => {
                    let at = random.usize(0..readers.len());
                    readers[at].resume(&scene);
                }
                _ => {
                    let at = random.usize(0..readers.len());
                    let is_quick = random.bool();
                    let until = || if is_quick { Instant::now() } else { later() };
                    readers[at].read(random.usize(1..30), until);
                }
            }
        }
        scene.follow();
        let mut log = scene.dataset.changes(ChangesFrom::Oldest).unwrap();
        log = log.with_old().unwrap();
        let all: Vec<Change> = std::iter::from_fn(|| log.next().unwrap()).collect();
        for reader in &mut readers {
            while reader.read(100, later) {}
            let wanted = all.iter().filter(|change| change.seq() > reader.begin);
            let wanted: Vec<&Change> = wanted.filter(|change| reader.wants(change)).collect();
            let of = |change: &Change| {
                let old = change.old().filter(|_| reader.with_old).cloned();
                let new = change.record().cloned();
                (change.position(), change.kind(), new, old)
            };
            let seen: Vec<_> = reader.seen.iter().map(|change| of(change)).collect();
            let wanted: Vec<_> = wanted.into_iter().map(of).collect();
            assert_eq!(seen, wanted, "seed {seed}");
            // It reads no log any more.
            assert!(reader.feed.log.is_none(), "seed {seed}");
        }
    }

    #[test]
    fn streams_receive_each_change_once_wherever_they_read() {
        for seed in 0..esker_sim::by_tier(16, 40) {
            run(seed);
        }
    }

    #[test]
    fn commits_of_other_datasets_wake_no_stream_and_streams_at_the_head_read_no_log() {
        let mut scene = Scene::new(1 << 20);
        let mut feed = scene.feed(ChangesFrom::Now, false, None);
        let woken = Arc::new(AtomicUsize::new(0));
        let wakes = woken.clone();
        let wake = Arc::new(move || {
            wakes.fetch_add(1, Ordering::SeqCst);
        });
        let _listening = feed.listen(wake).unwrap();
        for id in 0..10 {
            scene.other.put_json(format!(r#"{{"id": {id}}}"#)).unwrap();
            scene.follow();
        }
        assert_eq!(woken.load(Ordering::SeqCst), 0);
        assert!(matches!(feed.next(later()).unwrap(), Found::Nothing));
        // Its place moves on with the store.
        assert_eq!(feed.position(), scene.db.position());
        for id in 0..10 {
            scene
                .dataset
                .put_json(format!(r#"{{"id": {id}}}"#))
                .unwrap();
            scene.follow();
            assert!(matches!(feed.next(later()).unwrap(), Found::Change(_)));
            assert!(feed.log.is_none());
        }
        assert_eq!(woken.load(Ordering::SeqCst), 10);
    }

    #[test]
    fn without_the_follower_streams_read_the_log() {
        let scene = Scene::new(1 << 20);
        let mut feed = scene.feed(ChangesFrom::Now, true, None);
        assert!(feed.looks_again().is_none());
        let Scene {
            _dir,
            db: _db,
            dataset,
            other: _other,
            recent: _recent,
            follower,
        } = scene;
        drop(follower);
        dataset.put_json(r#"{"id": 1}"#).unwrap();
        assert!(matches!(feed.next(later()).unwrap(), Found::Change(_)));
        assert!(matches!(feed.next(later()).unwrap(), Found::Nothing));
        assert!(feed.looks_again().is_some());
    }
}
