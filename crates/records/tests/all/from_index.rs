//! Aggregates and orders that an index answers are those that a look at each record gives, for
//! every kind of index, type, strategy and snapshot; and an index does answer them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::Path as FsPath;
use std::sync::Arc;

use esker::request::{Aggregate, Aggregation, GroupBy};
use esker::schema::Maintenance;
use esker::{Database, DatasetDef, DatasetSnapshot, Index, IndexKind, Key, KeyType, Query, Type};
use esker_sim::by_tier;
use esker_sim::clock::TestClock;
use esker_sim::memory::Memory;

use crate::common::{DIR, Doing, converge, path, seeds, small, with_strategy};

/// The kinds whose trees are in the order of values.
const ORDERED: [IndexKind; 4] = [
    IndexKind::Composite,
    IndexKind::Recent,
    IndexKind::Lazy,
    IndexKind::Eager,
];

/// Milliseconds since 1970.
const START: u64 = 1_700_000_000_000;

/// A field: its path and type, its values in their order, each with the ways to write it (the
/// first is the way in which it is shown).
struct Field {
    path: &'static str,
    ty: Type,
    values: &'static [&'static [&'static str]],
    /// Values that an index shows as one that its type does not have.
    others: &'static [&'static str],
}

const FIELDS: [Field; 5] = [
    Field {
        path: "i",
        ty: Type::Int,
        values: &[
            &["-9223372036854775808"],
            &["-13"],
            &["-3"],
            &["0", "-0"],
            &["7"],
            &["8"],
            &["9"],
            &["10"],
            &["255"],
            &["256"],
            &["18446744073709551615"],
        ],
        others: &["\"text\"", "true", "7.0", "18446744073709551616"],
    },
    Field {
        path: "o.f",
        ty: Type::Float,
        values: &[
            &["-2.5", "-25e-1"],
            &["-5e-320"],
            &["0", "0.0", "-0.0"],
            &["0.1", "0.10"],
            &["0.30000000000000004"],
            &["7", "7.0"],
            &["100", "1e2"],
            &["9007199254740993000"],
            &["1.7e300"],
        ],
        others: &["9007199254740993", "0.10000000000000001", "null, \"x\""],
    },
    Field {
        path: "s",
        ty: Type::String,
        values: &[
            &["\"\""],
            &["\"A\"", "\"\\u0041\""],
            &["\"a\""],
            &["\"a\\u0000\""],
            &["\"a\\u0000b\""],
            &["\"ab\""],
            &["\"\u{e9}\"", "\"\\u00e9\""],
        ],
        others: &["7", "false"],
    },
    Field {
        path: "b",
        ty: Type::Bool,
        values: &[&["false"], &["true"]],
        others: &["0", "\"true\""],
    },
    Field {
        path: "t",
        ty: Type::TimeS,
        values: &[
            &["-1"],
            &["0"],
            &["1714521600"],
            &["1714521600.5"],
            &["1714608000"],
            &["1717200000"],
        ],
        others: &["\"no time\"", "true"],
    },
];

/// The values of the fields, by their places in the order.
#[derive(Clone, Debug, Default)]
struct Row {
    values: [BTreeSet<usize>; FIELDS.len()],
    /// Fields with a value that is not of their type.
    others: [bool; FIELDS.len()],
    expires: Option<u64>,
    json: String,
}

/// A record: with values of other types, and with several values of a field, if it may.
fn row(rng: &mut fastrand::Rng, id: i64, now: u64, has_others: bool, has_lists: bool) -> Row {
    let mut row = Row::default();
    let mut fields = vec![format!("\"id\":{id}")];
    for (at, field) in FIELDS.iter().enumerate() {
        let mut one = |rng: &mut fastrand::Rng| {
            if has_others && rng.usize(0..60) == 0 {
                row.others[at] = true;
                return field.others[rng.usize(0..field.others.len())].to_string();
            }
            let place = rng.usize(0..field.values.len());
            row.values[at].insert(place);
            let ways = field.values[place];
            ways[rng.usize(0..ways.len())].to_string()
        };
        let json = match rng.usize(0..9) {
            0 => continue,
            1 => "null".to_string(),
            2 => "[]".to_string(),
            3 if at != 4 => "{\"z\":1}".to_string(),
            4 | 5 => {
                let count = if has_lists { rng.usize(1..4) } else { 1 };
                let all: Vec<String> = (0..count).map(|_| one(rng)).collect();
                format!("[{}]", all.join(", "))
            }
            _ => match one(rng) {
                two if two.contains(", ") => format!("[{two}]"),
                json => json,
            },
        };
        fields.push(match field.path.split_once('.') {
            Some((above, name)) => format!("\"{above}\":{{\"{name}\":{json}}}"),
            None => format!("\"{}\":{json}", field.path),
        });
    }
    if rng.usize(0..4) == 0 {
        let seconds = now / 1_000 + rng.u64(1..20);
        let expires = seconds * 1_000;
        fields.push(format!("\"until\":{seconds}"));
        row.expires = Some(expires);
    }
    rng.shuffle(&mut fields);
    row.json = format!("{{{}}}", fields.join(","));
    row
}

/// What is asked, and how often an index answered.
struct Asker<'a> {
    query: &'a dyn Fn() -> Query,
    rows: Vec<(i64, Row)>,
    rng: &'a mut fastrand::Rng,
    groups: Taken,
    orders: Taken,
}

#[derive(Default, Clone, Copy, Debug)]
struct Taken {
    asked: u64,
    from_index: u64,
}

impl Taken {
    fn count(&mut self, notes: &[esker::explain::Note], what: &str) -> bool {
        let is_taken = notes.iter().any(|note| note.to_string().contains(what));
        self.asked += 1;
        self.from_index += u64::from(is_taken);
        is_taken
    }

    fn add(&mut self, other: Taken) {
        self.asked += other.asked;
        self.from_index += other.from_index;
    }
}

fn shown(at: usize, place: usize) -> &'static str {
    FIELDS[at].values[place][0]
}

impl Asker<'_> {
    /// A condition on a field or none, and the rows that meet it.
    fn condition(&mut self, at: usize) -> (Query, Vec<(i64, Row)>) {
        let field = &FIELDS[at];
        let is_simple = !matches!(field.ty, Type::Bool | Type::String);
        if !is_simple || self.rng.bool() {
            return ((self.query)(), self.rows.clone());
        }
        let from = self.rng.usize(0..field.values.len());
        let to = self.rng.usize(from..field.values.len());
        let (text, from, to) = match self.rng.usize(0..3) {
            0 => (
                format!("{} >= {}", field.path, shown(at, from)),
                from,
                usize::MAX,
            ),
            1 => (format!("{} <= {}", field.path, shown(at, to)), 0, to),
            _ => (
                format!(
                    "{0} >= {1} and {0} <= {2}",
                    field.path,
                    shown(at, from),
                    shown(at, to)
                ),
                from,
                to,
            ),
        };
        // Of an array, elements may meet the two bounds that are no one element between them.
        let meets = |row: &Row| {
            let values = &row.values[at];
            values.iter().any(|place| *place >= from) && values.iter().any(|place| *place <= to)
        };
        let is_one = |row: &Row| {
            row.values[at]
                .iter()
                .any(|place| (from..=to).contains(place))
        };
        let is_same = self.rows.iter().all(|(_, row)| meets(row) == is_one(row));
        if !is_same || self.rows.iter().any(|(_, row)| row.others[at]) {
            return ((self.query)(), self.rows.clone());
        }
        let rows = self.rows.iter().filter(|(_, row)| meets(row));
        (
            (self.query)().filter(text.parse::<esker::Expr>().unwrap()),
            rows.cloned().collect(),
        )
    }

    fn groups(&mut self) {
        let at = self.rng.usize(0..FIELDS.len());
        let (query, rows) = self.condition(at);
        if rows.iter().any(|(_, row)| row.others[at]) {
            // What such values give is in the tests of questions.
            self.others(at, &query, &rows);
            return;
        }
        let field = &FIELDS[at];
        let mut counts: BTreeMap<Option<usize>, u64> = BTreeMap::new();
        let mut all = BTreeSet::new();
        for (_, row) in &rows {
            all.extend(row.values[at].iter().copied());
            for place in &row.values[at] {
                *counts.entry(Some(*place)).or_default() += 1;
            }
            if row.values[at].is_empty() {
                *counts.entry(None).or_default() += 1;
            }
        }
        let end = |place: Option<&usize>| place.map_or("null", |place| shown(at, *place));
        let path = field.path;
        let _doing = Doing(format!(
            "groups of {path}, {:?}",
            query.request().unwrap().condition
        ));
        let (aggregates, by, right): (String, &str, Vec<String>) = match self.rng.usize(0..4) {
            0 => {
                let mut right: Vec<String> = counts
                    .iter()
                    .filter_map(|(place, count)| {
                        let value = shown(at, (*place)?);
                        Some(format!("{{\"{path}\":{value},\"count\":{count}}}"))
                    })
                    .collect();
                let without = counts.get(&None);
                right.extend(without.map(|n| format!("{{\"{path}\":null,\"count\":{n}}}")));
                ("count".to_string(), path, right)
            }
            1 => {
                let (least, greatest) = (end(all.first()), end(all.last()));
                let right = format!("{{\"min({path})\":{least},\"max({path})\":{greatest}}}");
                (format!("min({path}),max({path})"), "", vec![right])
            }
            2 => {
                let greatest = end(all.last());
                (
                    format!("max({path})"),
                    "",
                    vec![format!("{{\"max({path})\":{greatest}}}")],
                )
            }
            _ => {
                let right = format!(
                    "{{\"count\":{},\"distinct({path})\":{},\"min({path})\":{}}}",
                    rows.len(),
                    all.len(),
                    end(all.first()),
                );
                (
                    format!("count,distinct({path}),min({path})"),
                    "",
                    vec![right],
                )
            }
        };
        let mut asked = Aggregation::new(Aggregate::parse_list(&aggregates).unwrap());
        if !by.is_empty() {
            asked.by = vec![by.parse::<GroupBy>().unwrap()];
        }
        let (found, notes) = run(&query, &asked);
        assert_eq!(found, right);
        self.groups.count(&notes, "values in the index");
        if !by.is_empty() {
            let most = self.rng.usize(0..4);
            asked.limit = Some(most);
            assert_eq!(
                run(&query, &asked).0,
                found[..most.min(found.len())],
                "the first {most}"
            );
        }
        if matches!(at, 0 | 4) && !by.is_empty() {
            self.buckets(at, &query, &rows);
        }
    }

    fn buckets(&mut self, at: usize, query: &Query, rows: &[(i64, Row)]) {
        let (by, period) = [("i/8", 8), ("t/1d", 86_400)][usize::from(at == 4)];
        let path = FIELDS[at].path;
        let mut counts: BTreeMap<Option<i128>, u64> = BTreeMap::new();
        for (_, row) in rows {
            let begins: BTreeSet<Option<i128>> = (row.values[at].iter())
                .map(|place| {
                    // No value is a fraction above its bucket's end.
                    let whole = shown(at, *place).split('.').next().unwrap();
                    let value: i128 = whole.parse().unwrap();
                    Some(value.div_euclid(period) * period)
                })
                .collect();
            let begins = if begins.is_empty() {
                BTreeSet::from([None])
            } else {
                begins
            };
            for begin in begins {
                *counts.entry(begin).or_default() += 1;
            }
        }
        let mut right = Vec::new();
        for (begin, count) in counts.iter().filter(|(begin, _)| begin.is_some()) {
            let begin = begin.unwrap();
            right.push(format!("{{\"{path}\":{begin},\"count\":{count}}}"));
        }
        let without = counts.get(&None);
        right.extend(without.map(|n| format!("{{\"{path}\":null,\"count\":{n}}}")));
        let mut asked = Aggregation::new(["count".parse().unwrap()]);
        asked.by = vec![by.parse().unwrap()];
        let (found, notes) = run(query, &asked);
        assert_eq!(found, right);
        self.groups.count(&notes, "values in the index");
    }

    /// Values of other types are counted, too.
    fn others(&mut self, at: usize, query: &Query, rows: &[(i64, Row)]) {
        let path = FIELDS[at].path;
        let mut asked = Aggregation::new(["count".parse().unwrap()]);
        asked.by = vec![path.parse().unwrap()];
        let (found, notes) = run(query, &asked);
        assert!(!Taken::default().count(&notes, "values in the index"));
        for (place, ways) in FIELDS[at].values.iter().enumerate() {
            let has = |(_, row): &&(i64, Row)| row.values[at].contains(&place);
            let count = rows.iter().filter(has).count();
            let line = format!("{{\"{path}\":{},\"count\":", ways[0]);
            // A value of another type may be equal to one of the field's type.
            if let Some(found) = found.iter().find_map(|group| group.strip_prefix(&line)) {
                let found: usize = found.trim_end_matches('}').parse().unwrap();
                assert!(found >= count, "{path} {place}");
            } else {
                assert_eq!(count, 0, "{path} {place}");
            }
        }
    }

    fn order(&mut self) {
        let at = self.rng.usize(0..FIELDS.len());
        let of = self.rng.usize(0..FIELDS.len());
        let (query, mut rows) = self.condition(of);
        if rows.iter().any(|(_, row)| row.others[at]) {
            return;
        }
        let is_ascending = self.rng.bool();
        let then = self.rng.usize(0..FIELDS.len());
        let has_then = self.rng.usize(0..3) == 0
            && then != at
            && !rows.iter().any(|(_, row)| row.others[then]);
        rows.sort_by_key(|(id, row)| {
            let values = &row.values[at];
            let place = if is_ascending {
                values.first().map(|place| *place as i64)
            } else {
                values.last().map(|place| -(*place as i64))
            };
            let second = row.values[then].first().filter(|_| has_then);
            (
                place.is_none(),
                place,
                has_then && second.is_none(),
                second.copied(),
                *id,
            )
        });
        let right: Vec<i64> = rows.iter().map(|(id, _)| *id).collect();
        let direction = if is_ascending { "asc" } else { "desc" };
        let mut order = format!("{}:{direction}", FIELDS[at].path);
        if has_then {
            order += &format!(",{}", FIELDS[then].path);
        }
        let _doing = Doing(format!(
            "order {order}, {:?}",
            query.request().unwrap().condition
        ));
        let query = query.order(order.parse().unwrap());
        let (size, offset) = (self.rng.usize(1..9), self.rng.usize(0..3));
        let behind = &right[offset.min(right.len())..];
        let few = query.clone().offset(offset).limit(size).keys().unwrap();
        let few: Vec<i64> = few.map(|key| id(&key.unwrap())).collect();
        assert_eq!(few, behind[..size.min(behind.len())]);
        let (mut found, mut token) = (Vec::new(), None);
        loop {
            let mut page = query.clone().limit(size);
            if let Some(token) = token.take() {
                page = page.after(token);
            }
            let mut page = page.run().unwrap();
            let before = found.len();
            for record in page.by_ref() {
                let record = record.unwrap();
                let key = id(record.key());
                let row = rows.iter().find(|(id, _)| *id == key);
                assert_eq!(record.json(), row.unwrap().1.json.as_bytes());
                found.push(key);
            }
            if found.len() == before {
                break;
            }
            assert!(found.len() <= right.len(), "more than all");
            self.orders
                .count(&page.explain().notes, "read in its order");
            token = page.token().map(|token| token.to_string().parse().unwrap());
        }
        assert_eq!(found, right);
    }
}

fn id(key: &Key) -> i64 {
    key.to_string().parse().unwrap()
}

fn run(query: &Query, asked: &Aggregation) -> (Vec<String>, Vec<esker::explain::Note>) {
    let mut made = query.clone().aggregate(asked.aggregates.clone());
    for by in &asked.by {
        made = made.by(by.clone());
    }
    let mut found = Vec::new();
    let explain = made.limit(asked.limit).visit(&mut |group| {
        found.push(group.to_json());
        ControlFlow::Continue(())
    });
    (found, explain.unwrap().notes)
}

fn definition(number: usize, kind: IndexKind, is_lenient: bool) -> DatasetDef {
    let mut def = DatasetDef::new(path("id"), KeyType::Int).expires_at(path("until"));
    for field in FIELDS {
        let index = Index::new(kind).of_type(field.ty);
        let index = if is_lenient { index.lenient() } else { index };
        def = def.index(path(field.path), index);
    }
    with_strategy(def, number)
}

#[test]
fn an_index_answers_as_a_look_at_each_record_does() {
    let mut by_kind: BTreeMap<String, [Taken; 2]> = BTreeMap::new();
    for seed in seeds(by_tier(14, 400)) {
        let mut rng = fastrand::Rng::with_seed(seed);
        let kind = match seed % 5 {
            at @ 0..4 => ORDERED[at as usize],
            _ => IndexKind::ALL[rng.usize(0..IndexKind::ALL.len())],
        };
        let is_lenient = rng.bool();
        // Without lists the counts of components are added up.
        let has_lists = rng.bool();
        let number = rng.usize(0..50);
        let def = definition(number, kind, is_lenient);
        // Queries under this strategy read the records.
        let tells = Maintenance::ALL[number % Maintenance::ALL.len()] != Maintenance::Deferred;
        let _doing = Doing(format!("seed {seed}, {kind}, lenient {is_lenient}"));
        let (fs, clock) = (Memory::new(), TestClock::new(START));
        let options = small(Arc::new(fs)).clock(clock.function());
        let db = Database::create_or_open(FsPath::new(DIR), options).unwrap();
        let dataset = db.create_dataset::<Key>("d", def).unwrap();
        let mut model: BTreeMap<i64, Row> = BTreeMap::new();
        let mut kept: Vec<(DatasetSnapshot, Vec<(i64, Row)>)> = Vec::new();
        for round in 0..3 {
            for _ in 0..rng.usize(60..300) {
                let id = rng.i64(0..200);
                if rng.usize(0..6) == 0 {
                    let key = dataset.parse_key(&id.to_string()).unwrap();
                    dataset.delete(&key).unwrap();
                    model.remove(&id);
                } else {
                    let has_others = is_lenient && round == 1;
                    let row = row(&mut rng, id, clock.get(), has_others, has_lists);
                    dataset.put_json(row.json.as_bytes()).unwrap();
                    model.insert(id, row);
                }
            }
            match rng.usize(0..4) {
                0 => converge(&db),
                1 => db.flush().unwrap(),
                _ => {}
            }
            clock.add(rng.u64(0..8_000));
            let now = clock.get();
            let live = model
                .iter()
                .filter(|(_, row)| row.expires.is_none_or(|at| at > now));
            let rows: Vec<(i64, Row)> = live.map(|(id, row)| (*id, row.clone())).collect();
            kept.push((dataset.snapshot(), rows));
        }
        let taken = by_kind.entry(kind.to_string()).or_default();
        for (snapshot, rows) in kept {
            let query = || snapshot.query();
            let mut asker = Asker {
                query: &query,
                rows,
                rng: &mut rng,
                groups: Taken::default(),
                orders: Taken::default(),
            };
            for _ in 0..6 {
                asker.groups();
                asker.order();
            }
            if tells {
                taken[0].add(asker.groups);
            }
            taken[1].add(asker.orders);
        }
    }
    for kind in ORDERED {
        let [groups, orders] = by_kind[&kind.to_string()];
        assert!(groups.from_index * 2 > groups.asked, "{kind}: {groups:?}");
        assert!(orders.from_index * 10 > orders.asked, "{kind}: {orders:?}");
    }
}
