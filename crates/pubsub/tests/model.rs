//! The broker against a model that compares everything with everything: random publications and subscriptions of all
//! kinds, their changes, a clock that steps back, flushes, merges, reopenings, power cuts, and reads that fail.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path as FsPath;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use esker::fs::hooked::{Call, Hooked};
use esker::fs::memory::{Memory, PowerCut};
use esker::{Database, Durability, ErrorKind, Options, Path, Seq};
use esker_pubsub::{
    Architecture, Broker, Cell, Config, Granularity, Place, PubSub, Publication, Region,
    Subscription, Threshold, Time, TopicFilter,
};
use fastrand::Rng;
use model::geometry::{Area, Point, Space, distance};

const DIR: &str = "/broker";
const DEPTH: u8 = 5;

const TOPICS: [&str; 12] = [
    "", "a", "a/b", "a/b/c", "a/c", "a/10", "a/2", "b", "b/c", "$sys", "$sys/a", "a//b",
];
const FILTERS: [&str; 10] = [
    "a/+", "a/#", "+/b", "#", "+", "a/+/c", "+/+", "b/#", "$sys/#", "a/b/#",
];

fn seeds(default: u64) -> std::ops::Range<u64> {
    let number =
        |name: &str, default| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    let first = number("ESKER_SEED", 0);
    first..first + number("ESKER_SEEDS", default)
}

/// As the words of the documentation have it, on the texts.
fn takes(filter: &str, exact: bool, topic: &str) -> bool {
    let levels = |text: &str| -> Vec<String> {
        match text {
            "" => Vec::new(),
            text => text.split('/').map(str::to_owned).collect(),
        }
    };
    let (wanted, given) = (levels(filter), levels(topic));
    if !exact && !filter.contains(['+', '#']) {
        let common = wanted.len().min(given.len());
        return wanted[..common] == given[..common];
    }
    if topic.starts_with('$') && filter.starts_with(['+', '#']) {
        return false;
    }
    if exact && filter.is_empty() && topic.starts_with('$') {
        return false;
    }
    let mut at = 0;
    for level in &wanted {
        match level.as_str() {
            "#" => return true,
            "+" if at < given.len() => {}
            level if given.get(at).is_some_and(|given| given == level) => {}
            _ => return false,
        }
        at += 1;
    }
    at == given.len()
}

#[derive(Clone, Debug)]
struct Condition {
    text: String,
    kind: u8,
    n: i64,
    s: &'static str,
}

#[derive(Clone, Debug)]
struct Body {
    n: Option<i64>,
    s: Option<&'static str>,
    p: Option<f64>,
}

impl Body {
    fn json(&self) -> String {
        let mut parts = Vec::new();
        parts.extend(self.n.map(|n| format!("\"n\":{n}")));
        parts.extend(self.s.map(|s| format!("\"s\":\"{s}\"")));
        parts.extend(self.p.map(|p| format!("\"p\":{p:?}")));
        format!("{{{}}}", parts.join(","))
    }
}

impl Condition {
    fn any(rng: &mut Rng) -> Option<Condition> {
        let (kind, n) = (rng.u8(0..14), rng.i64(-3..9));
        let s = ["x", "y", "7"][rng.usize(0..3)];
        let text = match kind {
            0 => format!("n >= {n}"),
            1 => format!("n < {n}"),
            2 => format!("n >= {n} and n <= {}", n + 2),
            3 => format!("s = {s}"),
            4 => format!("s in (\"{s}\", \"y\")"),
            5 => format!("s = \"{s}\" and n > {n}"),
            6 => format!("not s = {s}"),
            7 => format!("s = {s} or n = {n}"),
            8 => "s > \"x\"".to_owned(),
            _ => return None,
        };
        Some(Condition { text, kind, n, s })
    }

    fn holds(&self, body: &Body) -> bool {
        let (n, s) = (body.n, body.s);
        match self.kind {
            0 => n.is_some_and(|n| n >= self.n),
            1 => n.is_some_and(|n| n < self.n),
            2 => n.is_some_and(|n| n >= self.n && n <= self.n + 2),
            3 => s == Some(self.s),
            4 => s == Some(self.s) || s == Some("y"),
            5 => s == Some(self.s) && n.is_some_and(|n| n > self.n),
            6 => s != Some(self.s),
            7 => s == Some(self.s) || n == Some(self.n),
            _ => s.is_some_and(|s| s > "x"),
        }
    }
}

fn point(longitude: f64, latitude: f64) -> Point {
    Point::new(Space::Sphere, longitude, latitude).unwrap()
}

fn place(rng: &mut Rng, is_publication: bool) -> Place {
    let spots = [
        (10.0, 50.0),
        (179.9, 0.0),
        (-179.9, 0.1),
        (0.0, 89.5),
        (0.0, -90.0),
        (-74.0, 40.7),
    ];
    let (x, y) = spots[rng.usize(0..spots.len())];
    let near = |rng: &mut Rng, middle: f64, limit: f64| {
        let off = f64::from(rng.i32(-4..=4)) * 0.25;
        (middle + off).clamp(-limit, limit)
    };
    let (longitude, latitude) = (near(rng, x, 180.0), near(rng, y, 90.0));
    let kind = match is_publication {
        true => [0, 1, 1, 1, 2, 3, 4][rng.usize(0..7)],
        false => [0, 0, 1, 2, 3, 3, 4, 4][rng.usize(0..8)],
    };
    match kind {
        0 => Place::Anywhere,
        1 => Place::Point {
            longitude,
            latitude,
        },
        2 => Place::Cell(Cell::of(point(longitude, latitude), rng.u8(0..=DEPTH))),
        3 => {
            let (w, h) = (
                f64::from(rng.u8(0..8)) * 0.25,
                f64::from(rng.u8(0..8)) * 0.25,
            );
            let east = longitude + w;
            Place::Region(Region::Rect {
                west: longitude,
                south: latitude,
                east: if east > 180.0 { east - 360.0 } else { east },
                north: (latitude + h).min(90.0),
            })
        }
        _ => Place::Region(Region::Circle {
            longitude,
            latitude,
            metres: [0.0, 20_000.0, 60_000.0, 300_000.0][rng.usize(0..4)],
        }),
    }
}

/// True when a publication at `given` is for a subscription to `wanted`, without cells.
fn is_for(given: &Place, wanted: &Place) -> bool {
    let area = |place: &Place| -> Area {
        match place {
            Place::Point {
                longitude,
                latitude,
            } => Area::circle(Space::Sphere, point(*longitude, *latitude), 0.0).unwrap(),
            Place::Region(region) => region.area().unwrap(),
            _ => unreachable!(),
        }
    };
    match (given, wanted) {
        (_, Place::Anywhere) => true,
        (Place::Anywhere, _) => false,
        (Place::Cell(a), Place::Cell(b)) => a.holds(b) || b.holds(a),
        (
            Place::Cell(cell),
            Place::Point {
                longitude,
                latitude,
            },
        )
        | (
            Place::Point {
                longitude,
                latitude,
            },
            Place::Cell(cell),
        ) => Cell::of(point(*longitude, *latitude), cell.level()) == *cell,
        (
            Place::Point {
                longitude: a,
                latitude: b,
            },
            Place::Point {
                longitude: c,
                latitude: d,
            },
        ) => point(*a, *b) == point(*c, *d),
        (
            Place::Point {
                longitude,
                latitude,
            },
            Place::Region(region),
        )
        | (
            Place::Region(region),
            Place::Point {
                longitude,
                latitude,
            },
        ) => region
            .area()
            .unwrap()
            .contains(point(*longitude, *latitude)),
        (Place::Cell(cell), Place::Region(region)) | (Place::Region(region), Place::Cell(cell)) => {
            region.area().unwrap().relation(&cell.bounds()) != model::geometry::Relation::Outside
        }
        (
            Place::Region(Region::Circle {
                longitude: a,
                latitude: b,
                metres: r,
            }),
            Place::Region(Region::Circle {
                longitude: c,
                latitude: d,
                metres: s,
            }),
        ) => distance(Space::Sphere, point(*a, *b), point(*c, *d)) <= r + s,
        (first, second) => {
            let (a, b) = (area(first), area(second));
            let is_rect = |place: &Place| matches!(place, Place::Region(Region::Rect { .. }));
            let (rect, other) = if is_rect(first) { (a, b) } else { (b, a) };
            rect.boxes()
                .iter()
                .any(|part| other.relation(part) != model::geometry::Relation::Outside)
        }
    }
}

#[derive(Clone, Debug)]
struct Pub {
    seq: Seq,
    topic: &'static str,
    time: Time,
    expires: Time,
    place: Place,
    body: Body,
    retracted: bool,
    raw: Option<esker_pubsub::Notification>,
}

#[derive(Clone, Debug)]
struct Sub {
    id: Seq,
    filter: &'static str,
    exact: bool,
    from: Time,
    to: Time,
    place: Place,
    user: String,
    condition: Option<Condition>,
    joins: bool,
    change: Option<Threshold>,
    over: bool,
    /// It moved after this publication, and asks for later ones only.
    moved: Seq,
}

impl Sub {
    fn asks_for(&self, publication: &Pub) -> bool {
        takes(self.filter, self.exact, publication.topic)
            && self.from <= publication.time
            && publication.time <= self.to
            && is_for(&publication.place, &self.place)
            && self
                .condition
                .as_ref()
                .is_none_or(|condition| condition.holds(&publication.body))
    }

    fn takes_change(&self, all: &[Pub], publication: &Pub, met: (Time, Forgotten)) -> bool {
        self.change
            .is_none_or(|threshold| has_changed(all, publication, threshold, met))
    }
}

/// What the store has forgotten, by its own clock: for publications that were made earlier than they are published.
#[derive(Clone, Copy)]
struct Forgotten {
    now: Time,
    resolution: Time,
}

impl Forgotten {
    /// True for what is of no use from the end of this time on.
    fn at(self, end: Time) -> bool {
        let tick = |time: Time| time.div_euclid(self.resolution);
        end != Time::MAX && tick(end).saturating_add(2) <= tick(self.now)
    }
}

/// The number of a publication against that of the one before it, of its topic and place.
fn has_changed(
    all: &[Pub],
    publication: &Pub,
    threshold: Threshold,
    (met, forgotten): (Time, Forgotten),
) -> bool {
    let Some(now) = publication.body.p else {
        return false;
    };
    let cell = |place: &Place| match place {
        Place::Anywhere => Cell::root(),
        Place::Point {
            longitude,
            latitude,
        } => Cell::of(point(*longitude, *latitude), DEPTH),
        _ => unreachable!("changes are tested of points"),
    };
    let before = all.iter().rev().find(|earlier| {
        earlier.seq < publication.seq
            && earlier.topic == publication.topic
            && cell(&earlier.place) == cell(&publication.place)
            && earlier.body.p.is_some()
            && earlier.expires > met.max(earlier.time)
            && !forgotten.at(earlier.expires)
            && !earlier.retracted
    });
    let Some(before) = before.and_then(|before| before.body.p) else {
        return false;
    };
    match threshold {
        Threshold::Absolute(by) => (now - before).abs() > by,
        Threshold::Percent(by) => (now - before).abs() * 100.0 > by * before.abs(),
        _ => unreachable!(),
    }
}

#[derive(Default)]
struct World {
    publications: Vec<Pub>,
    subscriptions: BTreeMap<Seq, Sub>,
    /// What each user got.
    got: BTreeSet<(String, Seq)>,
    /// What each subscription has met: no publication a second time.
    met: BTreeSet<(Seq, Seq)>,
    counts: [usize; 3],
}

impl World {
    fn publish(&mut self, new: Pub, forgotten: Forgotten) -> Vec<Seq> {
        self.publications.push(new.clone());
        let mut told = Vec::new();
        for sub in self.subscriptions.values() {
            let is_gone = sub.over || sub.user.is_empty() && forgotten.at(sub.to);
            if is_gone || !sub.asks_for(&new) {
                continue;
            }
            self.met.insert((sub.id, new.seq));
            let met = (new.time, forgotten);
            if new.expires <= new.time || !sub.takes_change(&self.publications, &new, met) {
                continue;
            }
            let is_new = sub.user.is_empty() || !self.got.contains(&(sub.user.clone(), new.seq));
            if is_new || !sub.joins {
                told.push(sub.id);
                if sub.change.is_none() {
                    self.got.insert((sub.user.clone(), new.seq));
                }
            }
        }
        self.counts[0] += told.len();
        told
    }

    /// What is told of the past.
    fn past(&mut self, sub: &Sub, now: Time) -> Vec<Seq> {
        let mut told = Vec::new();
        // What a subscription meets has not expired, so that it is not forgotten either.
        let met = (now, Forgotten { now, resolution: 1 });
        for publication in &self.publications {
            let is_new =
                sub.user.is_empty() || !self.got.contains(&(sub.user.clone(), publication.seq));
            let is_alive = publication.expires > now.max(publication.time);
            let is_there = !publication.retracted && is_alive;
            if is_there
                && publication.seq > sub.moved
                && sub.asks_for(publication)
                && self.met.insert((sub.id, publication.seq))
                && sub.takes_change(&self.publications, publication, met)
                && (is_new || !sub.joins)
            {
                told.push(publication.seq);
            }
        }
        for seq in told.iter().filter(|_| sub.change.is_none()) {
            self.got.insert((sub.user.clone(), *seq));
        }
        self.counts[1] += told.len();
        told
    }
}

struct Run {
    memory: Memory,
    fs: Hooked,
    /// Reads that failed, and answers that said so.
    failed: [Arc<AtomicUsize>; 2],
    clock: Arc<AtomicU64>,
    open: Option<(Database, Broker)>,
    config: Config,
    has_changes: bool,
    world: World,
}

impl Run {
    fn options(fs: &Hooked, clock: &Arc<AtomicU64>) -> Options {
        let clock = clock.clone();
        PubSub::with(Options {
            fs: Arc::new(fs.clone()),
            background: false,
            memory_budget: 1 << 20,
            table_size: 16 << 10,
            durability: Durability::Sync,
            clock: Arc::new(move || clock.load(Ordering::SeqCst)),
            ..Options::default()
        })
    }

    fn new(seed: u64) -> Run {
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
        }
    }

    fn reopen(&mut self, memory: Memory) {
        self.open = None;
        self.memory = memory;
        self.fs = Hooked::new(Arc::new(self.memory.clone()));
        let options = Run::options(&self.fs, &self.clock);
        let db = Database::open(FsPath::new(DIR), options).unwrap();
        let broker = Broker::open(&db).unwrap();
        assert_eq!(*broker.config(), self.config);
        self.open = Some((db, broker));
    }

    fn db(&self) -> &Database {
        &self.open.as_ref().unwrap().0
    }

    fn broker(&self) -> &Broker {
        &self.open.as_ref().unwrap().1
    }

    /// A call, in which reads of tables may fail from some read on. Where it fails for that, it is made again: nothing of
    /// it was done.
    fn tried<T>(&self, rng: &mut Rng, call: impl Fn(&Broker) -> esker::Result<T>) -> T {
        if rng.u8(0..4) == 0 {
            let (but, failed) = (AtomicUsize::new(rng.usize(0..3)), self.failed[0].clone());
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
        let done = call(self.broker());
        self.fs.clear();
        done.unwrap_or_else(|error| {
            assert_eq!(error.kind(), ErrorKind::Io);
            call(self.broker()).unwrap()
        })
    }

    /// True when an answer is not known.
    fn is_unread(&self, error: Option<&esker::Error>) -> bool {
        if let Some(error) = error {
            assert_eq!(error.kind(), ErrorKind::Io);
            self.failed[1].fetch_add(1, Ordering::SeqCst);
        }
        error.is_some()
    }

    fn step(&mut self, rng: &mut Rng) {
        match rng.u8(0..100) {
            0..40 => self.publish(rng),
            40..65 => self.subscribe(rng),
            65..69 => self.unsubscribe(rng),
            69..75 => self.renew(rng),
            75..79 => self.move_to(rng),
            79..82 => self.retract(rng),
            82..85 => self.db().flush().unwrap(),
            85..86 => self.db().compact(None).unwrap(),
            86..88 => {
                self.db().clone().close().unwrap();
                self.reopen(self.memory.clone());
            }
            88..90 => {
                // What has expired may come back where power and clock fail together.
                let now = self.broker().now() as u64 / u64::from(self.config.resolution);
                self.clock.fetch_max(now, Ordering::SeqCst);
                let after = self.memory.power_cut(rng.u64(..), PowerCut::Reordered);
                self.reopen(after);
            }
            90..92 => {
                self.clock.fetch_sub(rng.u64(0..60), Ordering::SeqCst);
            }
            _ => {
                self.clock.fetch_add(rng.u64(0..40), Ordering::SeqCst);
            }
        }
    }

    fn publish(&mut self, rng: &mut Rng) {
        let topic = TOPICS[rng.usize(0..TOPICS.len())];
        let body = Body {
            n: rng.bool().then(|| rng.i64(-3..9)),
            s: rng.bool().then(|| ["x", "y", "7"][rng.usize(0..3)]),
            p: rng.bool().then(|| f64::from(rng.u8(1..9))),
        };
        let place = loop {
            let place = place(rng, true);
            if !self.has_changes || matches!(place, Place::Anywhere | Place::Point { .. }) {
                break place;
            }
        };
        let now = self.broker().now();
        // Some were made by clocks that are behind, or ahead.
        let time = now + [0, 0, 0, -1, -20, -80, 15, 70, 500][rng.usize(0..9)];
        let expires = match rng.u8(0..4) {
            0 => Time::MAX,
            1 => time + rng.i64(0..4),
            _ => time + rng.i64(1..200),
        };
        let publication = Publication::new(topic.parse().unwrap(), body.json())
            .at_place(place.clone())
            .at_time(time)
            .expires(expires);
        let made = self.tried(rng, |broker| broker.publish(&publication));
        let forgotten = Forgotten {
            now,
            resolution: Time::from(self.config.resolution),
        };
        let new = Pub {
            seq: made.seq,
            topic,
            time,
            expires,
            place,
            body,
            retracted: false,
            raw: None,
        };
        let told = self.world.publish(new, forgotten);
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

    fn subscribe(&mut self, rng: &mut Rng) {
        let exact = rng.u8(0..5) == 0;
        let filter = match rng.u8(0..3) {
            0 if !exact => FILTERS[rng.usize(0..FILTERS.len())],
            _ => TOPICS[rng.usize(0..TOPICS.len())],
        };
        let topics = match exact {
            true => TopicFilter::exact(filter.parse().unwrap()),
            false => filter.parse().unwrap(),
        };
        let now = self.broker().now();
        let user = ["", "", "ann", "bob"][rng.usize(0..4)].to_owned();
        let mut sub = Sub {
            id: 0,
            filter,
            exact,
            from: now - [0, 5, 60, 100_000][rng.usize(0..4)] + rng.i64(0..3),
            to: now + [-4, 0, 30, 100, 100_000][rng.usize(0..5)],
            place: place(rng, false),
            joins: !user.is_empty() && rng.bool(),
            user,
            condition: Condition::any(rng),
            change: (self.has_changes && rng.u8(0..3) == 0).then(|| match rng.bool() {
                true => Threshold::Absolute(f64::from(rng.u8(0..5))),
                false => Threshold::Percent(50.0),
            }),
            over: false,
            moved: 0,
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
        // As it will be known, if it is.
        sub.id = made.id;
        let told = self.world.past(&sub, now);
        let past: Vec<Seq> = made.past.iter().map(|n| n.seq).collect();
        match self.is_unread(made.unread.as_ref()) {
            true => assert!(past.is_empty() && made.id != 0),
            false => {
                self.show(&past, &told, &sub.user);
                assert_eq!(past, told, "subscription {sub:?}");
            }
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
            self.world.subscriptions.insert(made.id, sub);
        }
    }

    /// Prints what a difference is about.
    fn show(&self, found: &[Seq], expected: &[Seq], user: &str) {
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

    fn any_sub(&self, rng: &mut Rng) -> Option<Sub> {
        let subs: Vec<&Sub> = self.world.subscriptions.values().collect();
        (!subs.is_empty()).then(|| subs[rng.usize(0..subs.len())].clone())
    }

    /// True while the broker knows it.
    fn is_known(&self, sub: &Sub) -> bool {
        !sub.over && (!sub.user.is_empty() || sub.to >= self.broker().now())
    }

    fn unsubscribe(&mut self, rng: &mut Rng) {
        let Some(sub) = self.any_sub(rng) else { return };
        let is_known = self.is_known(&sub);
        assert_eq!(
            self.tried(rng, |broker| broker.unsubscribe(sub.id)),
            is_known,
            "{sub:?}"
        );
        self.world.subscriptions.get_mut(&sub.id).unwrap().over |= is_known;
    }

    fn renew(&mut self, rng: &mut Rng) {
        let Some(sub) = self.any_sub(rng) else { return };
        let is_known = self.is_known(&sub);
        let now = self.broker().now();
        let until = match rng.bool() {
            true => now + rng.i64(-20..100),
            false => sub.to + rng.i64(-100..100),
        };
        let missed = self.tried(rng, |broker| broker.renew(sub.id, until));
        assert_eq!(missed.is_some(), is_known, "{sub:?}");
        let Some(missed) = missed else { return };
        let until = until.max(now);
        let renewed = Sub {
            to: until,
            ..sub.clone()
        };
        let told = self.world.past(&renewed, now);
        let missed: Vec<Seq> = missed.iter().map(|n| n.seq).collect();
        self.show(&missed, &told, &sub.user);
        assert_eq!(missed, told, "renewed until {until} at {now}: {sub:?}");
        self.world.subscriptions.insert(sub.id, renewed);
    }

    fn move_to(&mut self, rng: &mut Rng) {
        let Some(sub) = self.any_sub(rng) else { return };
        let is_known = self.is_known(&sub);
        let place = place(rng, false);
        assert_eq!(
            self.tried(rng, |broker| broker.move_to(sub.id, place.clone())),
            is_known
        );
        if is_known {
            let moved = self.world.publications.last().map_or(0, |p| p.seq);
            let sub = self.world.subscriptions.get_mut(&sub.id).unwrap();
            (sub.place, sub.moved) = (place, moved);
        }
    }

    fn retract(&mut self, rng: &mut Rng) {
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
        self.world.publications[at].retracted |= is_there;
    }
}

#[test]
fn everything_meets_exactly_once() {
    let (mut counts, mut failed) = ([0; 3], [0; 2]);
    for seed in seeds(24) {
        println!("seed {seed}");
        let mut rng = Rng::with_seed(seed);
        let mut run = Run::new(seed);
        for _ in 0..400 {
            run.step(&mut rng);
        }
        let report = run.db().check().unwrap();
        assert_eq!(report.errors, Vec::<String>::new(), "seed {seed}");
        for (all, one) in counts.iter_mut().zip(run.world.counts) {
            *all += one;
        }
        for (all, one) in failed.iter_mut().zip(&run.failed) {
            *all += one.load(Ordering::SeqCst);
        }
    }
    println!("{counts:?} told, {failed:?} failed");
    assert!(failed[1] > 10, "{failed:?}");
    assert!(counts[0] > 100 && counts[1] > 100, "{counts:?}");
}
