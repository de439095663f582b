//! A store that executes random steps, and is compared with the model.

use std::path::{Path as FsPath, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use esker::{Database, Dataset, DatasetDef, Durability, ErrorKind, KeyType, Options, Path, Seq};
use esker_pubsub::{
    Architecture, Broker, Config, Granularity, PubSub, Publication, Published, Subscription,
    Threshold, Time, TopicFilter,
};
use esker_sim::hooked::{Call, Hooked};
use esker_sim::memory::{Memory, PowerCut};
use esker_sim::world::{Action, World as Simulation};
use fastrand::Rng;

use crate::TOTALS;
use crate::cells::cells_of;
use crate::kills::{Op, text};
use crate::mail::Open;
use crate::meaning::{Body, Condition, DEPTH, DIR, FILTERS, TOPICS, place, place_at, takes};
use crate::world::{Forgotten, Pub, Sub, World};

pub(crate) struct Run {
    pub(crate) memory: Memory,
    pub(crate) fs: Hooked,
    /// Reads that failed, and results that reported it.
    pub(crate) failed: [Arc<AtomicUsize>; 2],
    pub(crate) clock: Arc<AtomicU64>,
    pub(crate) open: Option<(Database, Broker)>,
    pub(crate) config: Config,
    pub(crate) has_changes: bool,
    pub(crate) world: World,
    pub(crate) dir: PathBuf,
    pub(crate) backups: usize,
    pub(crate) mail: Vec<Open>,
    /// The current or last operation may be cut.
    pub(crate) is_cut: bool,
    pub(crate) last: Op,
    /// Notifications read, operations cut, operations that a cut undid, backups that the run
    /// continued with.
    pub(crate) done: [usize; 4],
}

/// A step: what happens is drawn from this number, so that steps can be left out of a failing run.
#[derive(Clone, Debug)]
pub(crate) struct Step(u64);

impl Action for Step {}

impl Simulation for Run {
    /// The seed, which the configuration follows from.
    type Settings = u64;
    type Action = Step;

    fn generate(seed: u64) -> (u64, Vec<Step>) {
        let mut rng = Rng::with_seed(seed);
        (seed, (0..400).map(|_| Step(rng.u64(..))).collect())
    }

    fn new(seed: u64) -> Run {
        Run::new(seed)
    }

    fn step(&mut self, step: &Step) {
        self.step(&mut Rng::with_seed(step.0));
    }

    fn end(&mut self) {
        self.compare_records();
        self.expire();
        let report = self.db().check().unwrap();
        assert_eq!(report.errors, Vec::<String>::new());
        TOTALS.lock().add(self);
    }

    fn as_test(_: u64, seed: u64, steps: &[Step]) -> String {
        format!("run::<Run>({seed}, &{steps:?});")
    }
}

impl Run {
    pub(crate) fn options(fs: &Hooked, clock: &Arc<AtomicU64>) -> Options {
        let clock = clock.clone();
        PubSub::register(
            Options::new()
                .fs(Arc::new(fs.clone()))
                .background(false)
                .memory_budget(1 << 20)
                .table_size(16 << 10)
                .durability(Durability::Sync)
                .clock(Arc::new(move || clock.load(Ordering::SeqCst))),
        )
    }

    pub(crate) fn new(seed: u64) -> Run {
        let (memory, clock) = (Memory::new(), Arc::new(AtomicU64::new(1_000_000)));
        let fs = Hooked::new(Arc::new(memory.clone()));
        let db = PubSub::create_or_open(FsPath::new(DIR), Run::options(&fs, &clock)).unwrap();
        let config = Config::new()
            .depth(DEPTH)
            .remember(None)
            .resolution(if seed % 5 == 4 { 10 } else { 1 })
            .architecture(match seed % 2 {
                0 => Architecture::DualDb,
                _ => Architecture::TwoDb,
            })
            .granularity(match seed / 2 % 3 {
                0 => Granularity::Fixed,
                _ => Granularity::Variable,
            });
        let broker = Broker::create_or_open(&db, config.clone()).unwrap();
        let beside = DatasetDef::new("id", KeyType::Int);
        db.create_dataset::<u64>("beside", beside).unwrap();
        let (world, has_changes) = (World::default(), (seed / 6).is_multiple_of(2));
        Run {
            memory,
            fs,
            failed: Default::default(),
            clock,
            open: Some((db, broker)),
            config,
            has_changes,
            world,
            dir: DIR.into(),
            backups: 0,
            mail: Vec::new(),
            is_cut: false,
            last: Op::Nothing,
            done: [0; 4],
        }
    }

    pub(crate) fn reopen(&mut self, memory: Memory) {
        let open: Vec<Open> = self.mail.drain(..).map(Open::close).collect();
        self.open = None;
        self.memory = memory;
        self.fs = Hooked::new(Arc::new(self.memory.clone()));
        let options = Run::options(&self.fs, &self.clock);
        let db = Database::open(&self.dir, options).unwrap();
        let broker = Broker::open(&db).unwrap();
        assert_eq!(*broker.config(), self.config);
        self.open = Some((db, broker));
        for open in open {
            self.open_again(open);
        }
    }

    pub(crate) fn db(&self) -> &Database {
        &self.open.as_ref().unwrap().0
    }

    pub(crate) fn broker(&self) -> &Broker {
        &self.open.as_ref().unwrap().1
    }

    /// Fails all reads of tables after the next `but`.
    pub(crate) fn fail_reads(&self, but: usize) {
        let (but, failed) = (AtomicUsize::new(but), self.failed[0].clone());
        self.fs.set(move |call, path| {
            let is_log = path.extension().is_some_and(|ext| ext == "log");
            let may = |left: usize| left.checked_sub(1);
            let (set, read) = (Ordering::SeqCst, matches!(call, Call::Open | Call::Read));
            if is_log || !read || but.fetch_update(set, set, may).is_ok() {
                return Ok(());
            }
            failed.fetch_add(1, Ordering::SeqCst);
            Err(std::io::ErrorKind::Other.into())
        });
    }

    /// Makes a call in which reads of tables may fail. A call that fails for that has done nothing,
    /// and is repeated.
    pub(crate) fn tried<T>(&self, rng: &mut Rng, call: impl Fn(&Broker) -> esker::Result<T>) -> T {
        if !self.is_cut && rng.u8(0..4) == 0 {
            self.fail_reads(rng.usize(0..3));
        }
        let done = call(self.broker());
        if !self.is_cut {
            self.fs.clear();
        }
        done.unwrap_or_else(|error| {
            assert_eq!(error.kind(), ErrorKind::Io);
            call(self.broker()).unwrap()
        })
    }

    /// True if the result is unknown.
    pub(crate) fn is_unread(&self, error: Option<&esker::Error>) -> bool {
        if let Some(error) = error {
            assert_eq!(error.kind(), ErrorKind::Io);
            self.failed[1].fetch_add(1, Ordering::SeqCst);
        }
        error.is_some()
    }

    pub(crate) fn step(&mut self, rng: &mut Rng) {
        match rng.u8(0..100) {
            0..76 => self.change(rng),
            76..80 => self.cut_in_a_change(rng),
            80..86 => self.read_mail(rng),
            86..88 => {
                self.db().clone().close().unwrap();
                self.reopen(self.memory.clone());
            }
            88..90 => {
                self.clock_is_kept();
                let after = self.memory.power_cut(rng.u64(..), PowerCut::Reordered);
                self.reopen(after);
            }
            90 => self.back_up(rng),
            91 => {
                self.clock.fetch_sub(rng.u64(0..60), Ordering::SeqCst);
            }
            _ => {
                self.clock.fetch_add(rng.u64(0..40), Ordering::SeqCst);
            }
        }
    }

    /// Keeps the clock from stepping back: expired elements may come back if power and clock fail
    /// together.
    pub(crate) fn clock_is_kept(&self) {
        let now = self.broker().now() as u64 / u64::from(self.config.resolution);
        self.clock.fetch_max(now, Ordering::SeqCst);
    }

    /// An operation that writes.
    pub(crate) fn change(&mut self, rng: &mut Rng) {
        self.last = Op::Nothing;
        match rng.u8(0..84) {
            0..39 => self.publish(rng),
            39..63 => self.subscribe(rng),
            63..67 => self.unsubscribe(rng),
            67..73 => self.renew(rng),
            73..77 => self.move_to(rng),
            77..80 => self.retract(rng),
            80 => self.put(rng),
            81..83 => self.db().flush().unwrap(),
            _ => self.db().compact(None).unwrap(),
        }
    }

    /// Publishes, several at once every now and then.
    pub(crate) fn publish(&mut self, rng: &mut Rng) {
        let number = if rng.u8(0..4) == 0 {
            rng.usize(2..5)
        } else {
            1
        };
        let now = self.broker().now();
        let (all, new): (Vec<Publication>, Vec<Pub>) =
            (0..number).map(|_| self.publication(rng, now)).unzip();
        let made = if let [one] = &all[..] {
            vec![self.tried(rng, |broker| broker.publish(one))]
        } else {
            self.tried(rng, |broker| broker.publish_all(&all))
        };
        assert_eq!(made.len(), new.len());
        assert!(made.is_sorted_by(|one, next| one.seq < next.seq));
        let named = made.iter().zip(&new);
        let named = named.map(|(made, new)| (made.seq, new.topic, new.time));
        self.last = Op::Publish(named.collect());
        for (made, new) in made.iter().zip(new) {
            self.compare_matches(made, new, now);
        }
    }

    /// Takes a publication over into the model, and compares what it matched.
    fn compare_matches(&mut self, made: &Published, new: Pub, now: Time) {
        let forgotten = Forgotten {
            now,
            resolution: Time::from(self.config.resolution),
        };
        let seq = made.seq;
        let told = self.world.publish(Pub { seq, ..new }, forgotten);
        if self.is_unread(made.unread.as_ref()) {
            assert!(made.matches.is_empty());
            return;
        }
        let matches: Vec<Seq> = made.matches.iter().map(|m| m.subscription).collect();
        if matches != told {
            let either = |id: &&Seq| matches.contains(id) != told.contains(id);
            for id in self.world.subscriptions.keys().filter(either) {
                println!("{:?}", self.world.subscriptions[id]);
            }
        }
        assert_eq!(
            matches,
            told,
            "publication {:?}",
            self.world.publications.last()
        );
    }

    /// Any publication, and what the model knows of it.
    fn publication(&self, rng: &mut Rng, now: Time) -> (Publication, Pub) {
        // Often a publication that matches an open inbox.
        let asked = self.any_mail(rng).filter(|_| rng.bool());
        // Often one that has a cell in common with others, whose numbers are compared.
        let is_near = self.has_changes && rng.bool();
        let topic = match &asked {
            Some(sub) => {
                let takes = |topic: &&&str| takes(sub.filter, sub.exact, topic);
                let all: Vec<&str> = TOPICS.iter().filter(takes).copied().collect();
                rng.choice(all).unwrap_or_default()
            }
            None if is_near => TOPICS[rng.usize(1..3)],
            None => TOPICS[rng.usize(0..TOPICS.len())],
        };
        let body = Body {
            n: rng.bool().then(|| rng.i64(-3..9)),
            s: rng.bool().then(|| ["x", "y", "7"][rng.usize(0..3)]),
            p: rng.bool().then(|| f64::from(rng.u8(1..9))),
        };
        let place = match &asked {
            Some(sub) if rng.u8(0..4) > 0 => sub.place.clone(),
            _ if is_near => place_at(rng, 0, true),
            _ => place(rng, true),
        };
        let of_changes = self
            .has_changes
            .then(|| cells_of(&place, self.config.granularity));
        let cells = of_changes.unwrap_or_default();
        // Some times are behind the clock, some ahead.
        let time = match &asked {
            // Around the end of the subscription: a renewal may return it.
            Some(sub) if sub.to < now + 1_000 && rng.bool() => sub.to + rng.i64(-3..30),
            _ => now + [0, 0, 0, -1, -20, -80, 15, 70, 500][rng.usize(0..9)],
        };
        let expires = match rng.u8(0..4) {
            // It must be alive after a cut, to be found.
            _ if self.is_cut => time.max(now) + rng.i64(1..200),
            0 => Time::MAX,
            1 => time + rng.i64(0..4),
            _ => time + rng.i64(1..200),
        };
        let publication = Publication::new(topic.parse().unwrap(), body.json())
            .at_place(place.clone())
            .at_time(time)
            .expires(expires);
        let new = Pub {
            seq: 0,
            topic,
            time,
            expires,
            place,
            cells,
            body,
            retracted: false,
            raw: None,
        };
        (publication, new)
    }

    pub(crate) fn subscribe(&mut self, rng: &mut Rng) {
        let exact = rng.u8(0..5) == 0;
        let filter = match rng.u8(0..3) {
            0 if !exact => FILTERS[rng.usize(0..FILTERS.len())],
            _ => TOPICS[rng.usize(0..TOPICS.len())],
        };
        let topics = if exact {
            TopicFilter::exact(filter.parse().unwrap())
        } else {
            filter.parse().unwrap()
        };
        let now = self.broker().now();
        let user = ["", "", "ann", "bob"][rng.usize(0..4)].to_owned();
        let mut sub = Sub {
            id: 0,
            filter,
            exact,
            from: now - [0, 5, 60, 100_000][rng.usize(0..4)] + rng.i64(0..3),
            to: now + [-4, 0, 30, 100, 100_000][rng.usize(0..5)],
            place: if self.has_changes && rng.bool() {
                place_at(rng, 0, false)
            } else {
                place(rng, false)
            },
            joins: !user.is_empty() && rng.bool(),
            user,
            condition: Condition::any(rng),
            change: (self.has_changes && rng.u8(0..3) == 0).then(|| {
                if rng.bool() {
                    Threshold::Absolute(f64::from(rng.u8(0..5)))
                } else {
                    Threshold::Percent(50.0)
                }
            }),
            over: false,
            moved: 0,
            changed: 0,
        };
        let mut asked = Subscription::to(topics)
            .from(sub.from)
            .until(sub.to)
            .at_place(sub.place.clone())
            .user(sub.user.clone());
        if let Some(condition) = &sub.condition {
            asked = asked.matching(condition.text.parse().unwrap());
        }
        if sub.joins {
            asked = asked.join();
        }
        if let Some(threshold) = sub.change {
            asked = asked.on_change(Path::parse("p").unwrap(), threshold);
        }
        if !sub.joins {
            let found = self.tried(rng, |broker| broker.query(&asked));
            let (got, met) = (self.world.got.clone(), self.world.met.clone());
            let expected = self.world.past(&sub, now);
            (self.world.got, self.world.met) = (got, met);
            let found: Vec<Seq> = found.iter().map(|n| n.seq).collect();
            assert_eq!(found, expected, "query {sub:?}");
        }
        let made = self.tried(rng, |broker| broker.subscribe(&asked));
        // Its number, if it is stored.
        sub.id = made.id;
        let told = self.world.past(&sub, now);
        let past: Vec<Seq> = made.past.iter().map(|n| n.seq).collect();
        if self.is_unread(made.unread.as_ref()) {
            assert!(past.is_empty() && made.id != 0)
        } else {
            self.show(&past, &told, &sub.user);
            assert_eq!(past, told, "subscription {sub:?}");
        }
        for notification in made.past {
            let at = self
                .world
                .publications
                .binary_search_by_key(&notification.seq, |p| p.seq)
                .unwrap();
            let publication = &mut self.world.publications[at];
            assert_eq!(notification.body, publication.body.json().into_bytes());
            assert_eq!(notification.topic.to_string(), publication.topic);
            publication.raw = Some(notification);
        }
        if made.id == 0 {
            self.world.met.retain(|(id, _)| *id != 0);
        } else {
            self.last = Op::Subscribe(made.id);
            if !self.is_cut && rng.bool() {
                self.open_mail(&sub, rng);
            }
            self.world.subscriptions.insert(made.id, sub);
        }
    }

    /// Prints the publications and subscriptions behind a difference.
    pub(crate) fn show(&self, found: &[Seq], expected: &[Seq], user: &str) {
        if found == expected {
            return;
        }
        println!("{:?}", self.config);
        let differs = |p: &&Pub| found.contains(&p.seq) != expected.contains(&p.seq);
        for publication in self.world.publications.iter().filter(differs) {
            println!("{publication:?}");
        }
        let own = |sub: &&Sub| sub.user == user;
        for subscription in self.world.subscriptions.values().filter(own) {
            println!("{subscription:?}");
        }
    }

    /// A subscription with an open inbox.
    fn any_mail(&self, rng: &mut Rng) -> Option<Sub> {
        let open = rng.choice(&self.mail)?;
        self.world.subscriptions.get(&open.id).cloned()
    }

    pub(crate) fn any_sub(&self, rng: &mut Rng) -> Option<Sub> {
        if let Some(sub) = self.any_mail(rng).filter(|_| rng.bool()) {
            return Some(sub);
        }
        let subs: Vec<&Sub> = self.world.subscriptions.values().collect();
        (!subs.is_empty()).then(|| subs[rng.usize(0..subs.len())].clone())
    }

    /// True while the broker knows it.
    pub(crate) fn is_known(&self, sub: &Sub) -> bool {
        !sub.over && (!sub.user.is_empty() || sub.to >= self.broker().now())
    }

    pub(crate) fn unsubscribe(&mut self, rng: &mut Rng) {
        let Some(sub) = self.any_sub(rng) else { return };
        let is_known = self.is_known(&sub);
        assert_eq!(
            self.tried(rng, |broker| broker.unsubscribe(sub.id)),
            is_known,
            "{sub:?}"
        );
        self.world.subscriptions.get_mut(&sub.id).unwrap().over |= is_known;
        if is_known {
            self.last = Op::End(sub.id);
        }
    }

    pub(crate) fn renew(&mut self, rng: &mut Rng) {
        let Some(sub) = self.any_sub(rng) else { return };
        let is_known = self.is_known(&sub);
        let now = self.broker().now();
        let until = if rng.bool() {
            now + rng.i64(-20..100)
        } else {
            sub.to + rng.i64(-100..100)
        };
        let missed = self.tried(rng, |broker| broker.renew(sub.id, until));
        assert_eq!(missed.is_some(), is_known, "{sub:?}");
        let Some(missed) = missed else { return };
        let until = until.max(now);
        let renewed = Sub {
            to: until,
            changed: sub.changed + 1,
            ..sub.clone()
        };
        let told = self.world.past(&renewed, now);
        let missed: Vec<Seq> = missed.iter().map(|n| n.seq).collect();
        self.show(&missed, &told, &sub.user);
        assert_eq!(missed, told, "renewed until {until} at {now}: {sub:?}");
        self.world.subscriptions.insert(sub.id, renewed);
        self.last = Op::Renew(sub.id, until, told);
    }

    pub(crate) fn move_to(&mut self, rng: &mut Rng) {
        let Some(sub) = self.any_sub(rng) else { return };
        let is_known = self.is_known(&sub);
        let place = place(rng, false);
        assert_eq!(
            self.tried(rng, |broker| broker.move_to(sub.id, place.clone())),
            is_known
        );
        if is_known {
            let moved = self.world.publications.last().map_or(0, |p| p.seq);
            self.last = Op::Move(sub.id, place.clone());
            let sub = self.world.subscriptions.get_mut(&sub.id).unwrap();
            (sub.place, sub.moved) = (place, moved);
            sub.changed += 1;
        }
    }

    pub(crate) fn retract(&mut self, rng: &mut Rng) {
        let known: Vec<usize> = (0..self.world.publications.len())
            .filter(|at| self.world.publications[*at].raw.is_some())
            .collect();
        if known.is_empty() {
            return;
        }
        let at = known[rng.usize(0..known.len())];
        let publication = &self.world.publications[at];
        let is_there = publication.expires > self.broker().now();
        let raw = publication.raw.as_ref().unwrap();
        assert_eq!(self.broker().retract(raw).unwrap(), is_there);
        if is_there {
            self.last = Op::Retract(raw.clone());
        }
        self.world.publications[at].retracted |= is_there;
    }

    /// Puts a record into the dataset in the same store.
    fn put(&mut self, rng: &mut Rng) {
        let (id, n) = (rng.u64(0..20), rng.u64(0..1_000_000));
        let records = self.records();
        records.put_json(text(id, n).as_bytes()).unwrap();
        self.world.records.insert(id, n);
        self.last = Op::Put(id);
    }

    pub(crate) fn records(&self) -> Dataset<u64> {
        self.db().dataset("beside").unwrap()
    }
}
