//! Threads that publish, withdraw, subscribe, change subscriptions and read inboxes while syncs are
//! slow and the power is cut. The steps at which each call began and ended decide which results are
//! possible: certain results are compared, others may go either way.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};

use esker::{Database, Durability, Options, Seq};
use esker_pubsub::{
    Architecture, Broker, Config, Inbox, Place, PubSub, Publication, Region, Subscription, Time,
};
use esker_sim::hooked::Hooked;
use esker_sim::memory::{Memory, PowerCut};
use fastrand::Rng;
use parking_lot::Mutex;

use crate::held::Held;

const DIR: &str = "/threads";
const BEGIN: Time = 1_000_000;
/// The distance between the ends of renewed subscriptions: more than the clock advances in a run.
const LONG: Time = 1_000_000_000;
const FAR: Time = 100 * LONG;
/// The directory keeps this many changes of a subscription.
const CHANGES: usize = 12;

/// The steps at which a call began and ended.
#[derive(Clone, Copy, Debug, Default)]
struct Span {
    begin: usize,
    end: usize,
}

struct Published {
    seq: Seq,
    span: Span,
    x: u8,
    n: u8,
    /// A time ahead of the clock; `None` for a time of the clock, or before it.
    time: Option<Time>,
    told: Vec<Seq>,
}

/// A subscription made before the run, which is moved, renewed and ended.
struct Changing {
    id: Seq,
    places: Vec<(Option<u8>, Span)>,
    ends: Vec<(Time, Span)>,
    over: Option<Span>,
    missed: Vec<(Seq, Span)>,
    changes: usize,
}

/// A subscription made during the run, which does not change.
struct Made {
    id: Seq,
    span: Span,
    x: Option<u8>,
    least: u8,
    past: Vec<Seq>,
}

/// The subscription of an inbox, and the notifications that it returned, each with the step of the
/// call.
type Given = (Seq, Vec<(Seq, usize)>);

/// The remains of a power cut, and its span: after all calls that had ended, before all that had
/// not begun.
struct Cut {
    span: Span,
    left: Memory,
}

#[derive(Default)]
struct Log {
    steps: AtomicUsize,
    published: Mutex<Vec<Published>>,
    retracted: Mutex<BTreeMap<Seq, Span>>,
    made: Mutex<Vec<Made>>,
    /// The notifications that inboxes returned.
    given: Mutex<Vec<Given>>,
    cut: Mutex<Option<Cut>>,
}

impl Log {
    fn step(&self) -> usize {
        self.steps.fetch_add(1, SeqCst)
    }

    fn timed<T>(&self, call: impl FnOnce() -> T) -> (T, Span) {
        let begin = self.step();
        let done = call();
        let end = self.step();
        (done, Span { begin, end })
    }
}

/// The versions that a call may have seen.
fn possible<T: Copy>(versions: &[(T, Span)], call: Span) -> impl Iterator<Item = T> {
    let is_possible = move |of: &&(T, Span)| {
        let is_replaced = |by: &(T, Span)| by.1.begin > of.1.end && by.1.end < call.begin;
        of.1.begin <= call.end && !versions.iter().any(is_replaced)
    };
    versions.iter().filter(is_possible).map(|of| of.0)
}

impl Changing {
    /// Whether a publication may match it, and whether it may not.
    fn may_be(&self, x: u8, time: Option<Time>, call: Span) -> [bool; 2] {
        let mut may = [false; 2];
        for place in possible(&self.places, call) {
            for to in possible(&self.ends, call) {
                let is_for = place.is_none_or(|place| place == x);
                may[usize::from(is_for && time.is_none_or(|time| time <= to))] = true;
            }
        }
        if self.over.is_some_and(|over| over.begin <= call.end) {
            may[0] = true;
            may[1] &= self.over.is_some_and(|over| over.end >= call.begin);
        }
        [may[1], may[0]]
    }
}

fn place(x: Option<u8>) -> Place {
    x.map_or(Place::Anywhere, |x| {
        Place::Region(Region::Circle {
            longitude: f64::from(x),
            latitude: 50.0,
            metres: 10_000.0,
        })
    })
}

fn publication(x: u8, n: u8, time: Option<Time>) -> Publication {
    let new = Publication::new("a/b".parse().unwrap(), format!("{{\"n\":{n}}}"));
    let new = new.at_point(f64::from(x), 50.0);
    match time {
        Some(time) => new.at_time(time),
        None => new,
    }
}

fn open(fs: Arc<dyn esker::fs::Fs>, clock: &Arc<AtomicU64>) -> Database {
    let clock = clock.clone();
    let options = PubSub::register(
        Options::new()
            .fs(fs)
            .memory_budget(1 << 20)
            .table_size(16 << 10)
            .durability(Durability::Sync)
            // Each read of the clock advances it.
            .clock(Arc::new(move || clock.fetch_add(1, SeqCst))),
    );
    PubSub::create_or_open(DIR, options).unwrap()
}

/// The state that the threads of a run share.
struct Life<'a> {
    seed: u64,
    broker: &'a Broker,
    log: &'a Log,
    changing: &'a [Mutex<Changing>],
    left: &'a AtomicUsize,
}

/// Counts a thread as ended, also when it panics: the others then end, and the test fails.
struct Ending<'a>(&'a AtomicUsize);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

impl Life<'_> {
    fn publish(&self, thread: u64) {
        let _ending = Ending(self.left);
        let mut rng = Rng::with_seed(self.seed << 8 | thread);
        for _ in 0..60 {
            let (x, n) = (rng.u8(0..3), rng.u8(0..4));
            let ahead = rng.bool().then(|| BEGIN + LONG * rng.i64(0..8) + LONG / 2);
            // Some of the others have a past time, at which brief subscriptions had not ended.
            let past = rng.bool().then(|| self.broker.now() - rng.i64(0..300));
            let new = publication(x, n, ahead.or(past));
            let (made, span) = self.log.timed(|| self.broker.publish(&new).unwrap());
            assert!(made.unread.is_none());
            let told = made.matches.iter().map(|m| m.subscription).collect();
            self.log.published.lock().push(Published {
                seq: made.seq,
                span,
                x,
                n,
                time: ahead,
                told,
            });
            if rng.u8(0..3) == 0 {
                let raw = self.found(made.seq);
                let (done, span) = self.log.timed(|| self.broker.retract(&raw).unwrap());
                assert!(done);
                self.log.retracted.lock().insert(made.seq, span);
            }
        }
    }

    fn found(&self, seq: Seq) -> esker_pubsub::Notification {
        let all = self.broker.query(&everything()).unwrap();
        all.into_iter().find(|found| found.seq == seq).unwrap()
    }

    fn change(&self, thread: u64, db: &Database) {
        let _ending = Ending(self.left);
        let mut rng = Rng::with_seed(self.seed << 8 | thread);
        for _ in 0..40 {
            let (at, x) = (rng.usize(0..self.changing.len()), rng.u8(0..3));
            let to = BEGIN + LONG * rng.i64(1..8);
            let (id, may) = {
                let mut changing = self.changing[at].lock();
                changing.changes += 1;
                (changing.id, changing.changes <= CHANGES)
            };
            match rng.u8(0..12) {
                0 => db.flush().unwrap(),
                1 if at == 0 => {
                    let (ended, span) = self.log.timed(|| self.broker.unsubscribe(id).unwrap());
                    // Otherwise another thread has ended it.
                    if ended {
                        self.changing[at].lock().over = Some(span);
                    }
                }
                _ if !may => {}
                _ if at % 2 == 0 => {
                    let (moved, span) = self
                        .log
                        .timed(|| self.broker.move_to(id, place(Some(x))).unwrap());
                    if moved {
                        self.changing[at].lock().places.push((Some(x), span));
                    }
                }
                _ => {
                    let (missed, span) = self.log.timed(|| self.broker.renew(id, to).unwrap());
                    let mut changing = self.changing[at].lock();
                    let missed = missed.unwrap().into_iter().map(|one| (one.seq, span));
                    changing.missed.extend(missed);
                    changing.ends.push((to, span));
                }
            }
        }
    }

    /// Subscribes, and reads the inboxes of brief subscriptions.
    fn subscribe(&self, thread: u64) {
        let ending = Ending(self.left);
        let mut rng = Rng::with_seed(self.seed << 8 | thread);
        let mut brief = Vec::new();
        for _ in 0..30 {
            let (x, least) = (rng.bool().then(|| rng.u8(0..3)), rng.u8(0..3));
            let asked = Subscription::to("a".parse().unwrap())
                .from(0)
                .at_place(place(x))
                .matching(format!("n >= {least}").parse().unwrap());
            let (made, span) = self.log.timed(|| self.broker.subscribe(&asked).unwrap());
            assert!(made.unread.is_none());
            let past = made.past.iter().map(|one| one.seq).collect();
            self.log.made.lock().push(Made {
                id: made.id,
                span,
                x,
                least,
                past,
            });
            let until = self.broker.now() + rng.i64(0..400);
            let asked = Subscription::to("a/b".parse().unwrap()).until(until);
            let made = self.broker.subscribe(&asked).unwrap();
            if made.id != 0 {
                let inbox = self.broker.inbox(made.id, None).unwrap();
                // The inbox of a forgotten subscription is empty.
                if self.broker.now() <= until {
                    brief.push((made.id, inbox, Vec::new()));
                }
            }
            for (_, inbox, got) in brief.iter_mut().filter(|_| rng.u8(0..8) == 0) {
                self.read(inbox, got);
            }
        }
        drop(ending);
        while self.left.load(SeqCst) > 0 {
            std::thread::yield_now();
        }
        for (id, mut inbox, mut got) in brief {
            self.read(&mut inbox, &mut got);
            self.log.given.lock().push((id, got));
        }
    }

    fn read(&self, inbox: &mut Inbox, got: &mut Vec<(Seq, usize)>) {
        loop {
            let asked = self.log.step();
            match inbox.next().unwrap() {
                Some(next) => got.push((next.seq, asked)),
                None => return,
            }
        }
    }

    fn consume(&self, (id, mut inbox): (Seq, Inbox), thread: u64) {
        let mut rng = Rng::with_seed(self.seed << 8 | thread);
        let mut got = Vec::new();
        // Some look again and again, the others only when they are woken.
        let looks = thread % 2 == 1;
        let woken = Arc::new(AtomicBool::new(true));
        let wake = woken.clone();
        let wake: Arc<esker::changes::Wake> = Arc::new(move || wake.store(true, SeqCst));
        let mut listening = inbox.listen(wake.clone());
        loop {
            let is_last = self.left.load(SeqCst) == 0;
            if looks || woken.swap(false, SeqCst) {
                self.read(&mut inbox, &mut got);
            }
            if is_last {
                break;
            }
            // Now and then the inbox is opened again at its last number; not that of the
            // subscription that may have ended.
            if rng.u8(0..200) == 0 && thread != 100 {
                inbox = self.broker.inbox(id, Some(inbox.seen())).unwrap();
                listening = inbox.listen(wake.clone());
                woken.store(true, SeqCst);
            }
            std::thread::yield_now();
        }
        let before = got.len();
        self.read(&mut inbox, &mut got);
        assert_eq!(got.len(), before, "a wake-up was lost");
        drop(listening);
        self.log.given.lock().push((id, got));
    }

    /// Releases held calls, advances the clock, and cuts the power once.
    fn control(&self, held: &Held, memory: &Memory, clock: &AtomicU64) {
        let mut rng = Rng::with_seed(self.seed << 8 | 255);
        let at = rng.usize(0..200);
        let mut turns = 0;
        while self.left.load(SeqCst) > 0 {
            for _ in 0..rng.usize(0..40) {
                std::thread::yield_now();
            }
            clock.fetch_add(rng.u64(0..20), SeqCst);
            held.let_one_go(&mut rng);
            turns += 1;
            if turns == at {
                let modes = [PowerCut::Lost, PowerCut::Reordered, PowerCut::Kept];
                let begin = self.log.step();
                let left = memory.power_cut(rng.u64(..), modes[rng.usize(0..3)]);
                let end = self.log.step();
                let span = Span { begin, end };
                *self.log.cut.lock() = Some(Cut { span, left });
            }
        }
        held.let_all_go();
    }
}

fn everything() -> Subscription {
    Subscription::to("#".parse().unwrap()).from(0)
}

/// Runs a seed. Returns how many notifications inboxes returned, and whether the power was cut.
pub(crate) fn run(seed: u64) -> (usize, bool) {
    let (memory, clock) = (Memory::new(), Arc::new(AtomicU64::new(BEGIN as u64)));
    let fs = Hooked::new(Arc::new(memory.clone()));
    let db = open(Arc::new(fs.clone()), &clock);
    let architecture = match seed % 2 {
        0 => Architecture::DualDb,
        _ => Architecture::TwoDb,
    };
    let config = Config::new().architecture(architecture).remember(None);
    let broker = Broker::create_or_open(&db, config).unwrap();
    let log = Log::default();
    let changing: Vec<Mutex<Changing>> = (0..6)
        .map(|n| {
            let (x, to) = match n % 2 {
                0 => (Some(n as u8 % 3), FAR),
                _ => (None, BEGIN + LONG * n),
            };
            let asked = Subscription::to("a".parse().unwrap())
                .from(0)
                .until(to)
                .at_place(place(x))
                .user(["", "ann"][n as usize / 3]);
            let id = broker.subscribe(&asked).unwrap().id;
            log.steps.store(1, SeqCst);
            Mutex::new(Changing {
                id,
                places: vec![(x, Span::default())],
                ends: vec![(to, Span::default())],
                over: None,
                missed: Vec::new(),
                changes: 0,
            })
        })
        .collect();
    // Opened before any subscription ends. The late ones are read after all other calls.
    let inbox_of = |of: &Mutex<Changing>| {
        let id = of.lock().id;
        (id, broker.inbox(id, None).unwrap())
    };
    let quick: Vec<(Seq, Inbox)> = changing.iter().map(inbox_of).collect();
    let late: Vec<(Seq, Inbox)> = changing.iter().map(inbox_of).collect();
    let held = Held::of(&fs, seed);
    let left = AtomicUsize::new(5);
    let life = Life {
        seed,
        broker: &broker,
        log: &log,
        changing: &changing,
        left: &left,
    };
    std::thread::scope(|scope| {
        let (life, db, held, memory, clock) = (&life, &db, &held, &memory, &*clock);
        scope.spawn(move || life.control(held, memory, clock));
        for thread in 0..2 {
            scope.spawn(move || life.publish(thread));
            scope.spawn(move || life.change(2 + thread, db));
        }
        scope.spawn(move || life.subscribe(4));
        for (thread, open) in (100..).zip(quick) {
            scope.spawn(move || life.consume(open, thread));
        }
    });
    fs.clear();
    for (id, mut inbox) in late {
        let mut got = Vec::new();
        life.read(&mut inbox, &mut got);
        log.given.lock().push((id, got));
    }
    let mut changing: Vec<Changing> = changing.into_iter().map(Mutex::into_inner).collect();
    for renewed in changing.iter_mut().skip(1).step_by(2) {
        let (missed, span) = log.timed(|| broker.renew(renewed.id, FAR).unwrap().unwrap());
        let missed = missed.into_iter().map(|one| (one.seq, span));
        renewed.missed.extend(missed);
        renewed.ends.push((FAR, span));
    }
    let past = Past {
        seed,
        published: log.published.into_inner(),
        retracted: log.retracted.into_inner(),
        made: log.made.into_inner(),
        changing,
    };
    past.check_matches();
    past.check_renewals();
    let given = log.given.into_inner();
    past.check_inboxes(&given);
    let report = db.check().unwrap();
    assert_eq!(report.errors, Vec::<String>::new(), "seed {seed}");
    let last = log.steps.load(SeqCst);
    past.check_broker(
        &broker,
        Span {
            begin: last,
            end: last,
        },
    );
    let cut = log.cut.into_inner();
    if let Some(cut) = &cut {
        let db = open(Arc::new(cut.left.clone()), &clock);
        past.check_broker(&Broker::open(&db).unwrap(), cut.span);
        let report = db.check().unwrap();
        assert_eq!(report.errors, Vec::<String>::new(), "seed {seed}");
    }
    (given.iter().map(|(_, got)| got.len()).sum(), cut.is_some())
}

/// All calls of a finished run.
struct Past {
    seed: u64,
    published: Vec<Published>,
    retracted: BTreeMap<Seq, Span>,
    made: Vec<Made>,
    changing: Vec<Changing>,
}

impl Past {
    fn withdrawn_before(&self, seq: Seq, step: usize) -> bool {
        self.retracted.get(&seq).is_some_and(|span| span.end < step)
    }

    fn check_matches(&self) {
        let seed = self.seed;
        for one in &self.published {
            for of in &self.changing {
                let is_told = one.told.contains(&of.id);
                let [may, may_not] = of.may_be(one.x, one.time, one.span);
                let may_be = if is_told { may } else { may_not };
                assert!(may_be, "seed {seed}: {} to {}: {is_told}", one.seq, of.id);
            }
            for of in &self.made {
                let asks = of.x.is_none_or(|x| x == one.x) && one.n >= of.least;
                let (told, past) = (one.told.contains(&of.id), of.past.contains(&one.seq));
                assert!(
                    !(told && past),
                    "seed {seed}: {} twice to {}",
                    one.seq,
                    of.id
                );
                let is_behind = one.seq > of.id;
                assert_eq!(
                    told,
                    asks && is_behind,
                    "seed {seed}: {} to {}",
                    one.seq,
                    of.id
                );
                // A future time is in its interval, which has no end.
                let withdrawn = self.retracted.get(&one.seq);
                let may_be_gone = withdrawn.is_some_and(|span| span.begin < of.span.end);
                let is_past = past == (asks && !is_behind) || may_be_gone && !past;
                assert!(is_past, "seed {seed}: {} in the past of {}", one.seq, of.id);
                let is_gone = self.withdrawn_before(one.seq, of.span.begin);
                assert!(!(past && is_gone), "seed {seed}: {} was withdrawn", one.seq);
            }
        }
    }

    /// A renewed subscription receives each publication once, at its publication or by a renewal.
    fn check_renewals(&self) {
        let seed = self.seed;
        for of in self.changing.iter().skip(1).step_by(2) {
            for one in &self.published {
                let told = usize::from(one.told.contains(&of.id));
                let missed = of.missed.iter().filter(|(seq, _)| *seq == one.seq);
                let met = told + missed.clone().count();
                let least = usize::from(!self.retracted.contains_key(&one.seq));
                let is_once = (least..=1).contains(&met);
                assert!(is_once, "seed {seed}: {} {met} times to {}", one.seq, of.id);
                for (seq, span) in missed {
                    let is_gone = self.withdrawn_before(*seq, span.begin);
                    assert!(!is_gone, "seed {seed}: {seq} was withdrawn");
                }
            }
        }
    }

    fn told(&self, id: Seq) -> BTreeSet<Seq> {
        let of_it = self.published.iter().filter(|one| one.told.contains(&id));
        of_it.map(|one| one.seq).collect()
    }

    fn check_inboxes(&self, given: &[Given]) {
        let seed = self.seed;
        for (id, given) in given {
            let once: BTreeSet<Seq> = given.iter().map(|(seq, _)| *seq).collect();
            let is_sorted = given.is_sorted_by(|a, b| a.0 < b.0);
            assert!(is_sorted, "seed {seed}: {id} got {given:?}");
            for (seq, asked) in given {
                let is_gone = self.withdrawn_before(*seq, *asked);
                assert!(!is_gone, "seed {seed}: {id} got the withdrawn {seq}");
            }
            let told = self.told(*id);
            let strange: Vec<_> = once.difference(&told).collect();
            assert!(strange.is_empty(), "seed {seed}: {id} got {strange:?}");
            let is_there = |seq: &&Seq| !self.retracted.contains_key(*seq);
            let missed: Vec<_> = told.difference(&once).filter(is_there).collect();
            assert!(missed.is_empty(), "seed {seed}: {id} missed {missed:?}");
        }
    }

    /// A broker of the store at some time has everything that had ended by then, and nothing that
    /// had not begun.
    fn check_broker(&self, broker: &Broker, then: Span) {
        let seed = self.seed;
        let all = broker.query(&everything()).unwrap();
        let there: BTreeSet<Seq> = all.iter().map(|one| one.seq).collect();
        let known: BTreeSet<Seq> = self.published.iter().map(|one| one.seq).collect();
        assert!(there.is_subset(&known), "seed {seed}");
        let is_withdrawn = |seq: Seq| self.withdrawn_before(seq, then.begin);
        let may_be_withdrawn = |seq: Seq| {
            let span = self.retracted.get(&seq);
            span.is_some_and(|span| span.begin < then.end)
        };
        for one in &self.published {
            let is_there = there.contains(&one.seq);
            let must = one.span.end < then.begin && !may_be_withdrawn(one.seq);
            let may = one.span.begin < then.end && !is_withdrawn(one.seq);
            assert!(is_there || !must, "seed {seed}: {} is lost", one.seq);
            assert!(!is_there || may, "seed {seed}: {} is there", one.seq);
        }
        let of_made = self.made.iter().filter(|of| of.span.end < then.begin);
        let of_changing = self.changing.iter().filter(|of| of.over.is_none());
        for id in of_made.map(|of| of.id).chain(of_changing.map(|of| of.id)) {
            let mut inbox = broker.inbox(id, None).unwrap();
            let given = std::iter::from_fn(|| inbox.next().unwrap().map(|next| next.seq));
            let given: BTreeSet<Seq> = given.collect();
            let told = self.told(id);
            let told: BTreeSet<Seq> = told.intersection(&there).copied().collect();
            assert_eq!(given, told, "seed {seed}: the inbox of {id} at {then:?}");
        }
        for x in 0..3 {
            for ahead in 0..8 {
                let time = Some(BEGIN + LONG * ahead + LONG / 2);
                let probe = broker.publish(&publication(x, 9, time)).unwrap();
                let told = |id| probe.matches.iter().any(|m| m.subscription == id);
                for of in &self.changing {
                    let [may, may_not] = of.may_be(x, time, then);
                    let may_be = if told(of.id) { may } else { may_not };
                    assert!(may_be, "seed {seed}: {} at {then:?}", of.id);
                }
                for of in self.made.iter().filter(|of| of.span.end < then.begin) {
                    let asks = of.x.is_none_or(|at| at == x);
                    assert_eq!(told(of.id), asks, "seed {seed}: {} at {then:?}", of.id);
                }
            }
        }
    }
}
