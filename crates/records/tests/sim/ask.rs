//! Every way to query, compared with the model. Wrong answers panic; errors of the store are
//! returned.

mod cancelled;
mod keys;
mod places;
mod sorted;
mod totals;

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use std::ops::Bound;

use esker::experimental::{Combining, LookupOptions};
use esker::maintain::Validation;
use esker::schema::Tokenizer;
use esker::{DatasetDef, DatasetSnapshot, KeyType, Op, Order, Path, Query, Result, Type, Value};

use crate::action::PATHS;
use crate::common::tree::Tree;
use crate::common::{Row, Wanted, domain, meets, path, row, skewed};
use crate::compound;
use crate::model::{KEYS, Records, key};

/// A dataset as the queries see it.
#[derive(Clone)]
pub(crate) struct View {
    pub(crate) key_type: KeyType,
    pub(crate) types: [Type; PATHS.len()],
    pub(crate) def: DatasetDef,
}

impl View {
    fn kept(&self) -> usize {
        self.def.versions as usize
    }
}

/// A snapshot, the state that it must show, and the random numbers that choose the queries.
struct Asker<'a> {
    snapshot: &'a DatasetSnapshot,
    view: &'a View,
    records: &'a Records,
    rng: &'a mut fastrand::Rng,
    /// True to run all queries instead of a random selection.
    all: bool,
}

/// Runs some queries.
pub(crate) fn some(
    snapshot: &DatasetSnapshot,
    view: &View,
    records: &Records,
    rng: &mut fastrand::Rng,
    times: usize,
) -> Result<()> {
    let mut asker = Asker {
        snapshot,
        view,
        records,
        rng,
        all: false,
    };
    for _ in 0..times {
        let tree = match asker.rng.usize(0..3) {
            0 => asker.tree(),
            _ => Tree::All(asker.wanted(), Vec::new()),
        };
        let limit = [None, None, Some(0), Some(1), Some(3)][asker.rng.usize(0..5)];
        asker.question(&tree, limit)?;
    }
    asker.get()?;
    if asker.has_places() {
        asker.nearest()?;
    }
    if asker.rng.bool() {
        asker.scan()?;
    }
    if asker.rng.usize(0..6) == 0 {
        asker.cancelled()?;
    }
    if asker.rng.bool() {
        asker.versions()?;
    }
    Ok(())
}

/// Queries each value of each path.
pub(crate) fn everything(
    snapshot: &DatasetSnapshot,
    view: &View,
    records: &Records,
    rng: &mut fastrand::Rng,
) -> Result<()> {
    let mut asker = Asker {
        snapshot,
        view,
        records,
        rng,
        all: true,
    };
    for (at, name) in PATHS.iter().enumerate() {
        let declared = view.def.indexes.iter().any(|i| i.path == path(name));
        let there: Vec<Value> = domain(view.types[at])
            .into_iter()
            .filter(|value| {
                let mut all = records.rows().flat_map(|(_, _, put)| &put.values[*name]);
                all.any(|other| other == value)
            })
            .take(if declared { 5 } else { 1 })
            .collect();
        for value in there {
            let wanted = |op| {
                let wanted = Wanted {
                    path: (*name).to_string(),
                    op,
                    value: value.clone(),
                };
                Tree::All(vec![wanted], Vec::new())
            };
            asker.question(&wanted(Op::Eq), None)?;
            asker.all = false;
            asker.question(&wanted(Op::Ge), None)?;
            asker.question(&wanted(Op::Lt), None)?;
            asker.all = true;
        }
    }
    asker.question(&Tree::All(Vec::new(), Vec::new()), None)?;
    if asker.has_places() {
        asker.nearest()?;
        asker.nearest()?;
    }
    asker.scan()?;
    for number in 0..KEYS {
        asker.read_key(number)?;
    }
    asker.versions()
}

impl Asker<'_> {
    fn value(&mut self, ty: Type) -> Value {
        let domain = domain(ty);
        let most = match self.rng.usize(0..4) {
            0 => domain.len(),
            _ => domain.len().min(4),
        };
        domain[skewed(self.rng, most)].clone()
    }

    fn wanted(&mut self) -> Vec<Wanted> {
        let fields = compound::fields_in(&self.view.def);
        if !fields.is_empty() && self.rng.usize(0..3) == 0 {
            return self.of_fields(&fields);
        }
        let declared: Vec<usize> = (0..PATHS.len())
            .filter(|at| {
                let indexes = &self.view.def.indexes;
                indexes.iter().any(|index| index.path == path(PATHS[*at]))
            })
            .collect();
        let mut paths = declared;
        if paths.is_empty() || self.rng.usize(0..5) == 0 {
            paths.push(self.rng.usize(0..PATHS.len()));
        }
        // The ranges of one path count together, and may then be reversed.
        paths.sort_unstable();
        paths.dedup();
        self.rng.shuffle(&mut paths);
        let count = match self.rng.usize(0..3) {
            0 => self.rng.usize(0..=paths.len()),
            _ => 1,
        };
        let mut wanted = Vec::new();
        for at in paths.into_iter().take(count) {
            let ty = self.view.types[at];
            let one = |op, value| Wanted {
                path: PATHS[at].to_string(),
                op,
                value,
            };
            match self.rng.usize(0..12) {
                0..=4 => wanted.push(one(Op::Eq, self.value(ty))),
                5..=7 => {
                    let (mut lo, mut hi) = (self.value(ty), self.value(ty));
                    if lo > hi {
                        std::mem::swap(&mut lo, &mut hi);
                    }
                    let below = [Op::Ge, Op::Gt][self.rng.usize(0..2)];
                    let above = [Op::Le, Op::Lt][self.rng.usize(0..2)];
                    wanted.push(one(below, lo));
                    wanted.push(one(above, hi));
                }
                8 => {
                    let op = [Op::Ge, Op::Gt, Op::Le, Op::Lt][self.rng.usize(0..4)];
                    wanted.push(one(op, self.value(ty)));
                }
                9 | 10 if ty == Type::String => wanted.push(one(Op::Prefix, self.value(ty))),
                11 => {
                    wanted.push(one(Op::Eq, self.value(ty)));
                    wanted.push(one(Op::Eq, self.value(ty)));
                }
                _ => wanted.push(one(Op::Eq, self.value(ty))),
            }
        }
        wanted
    }

    /// Values of the leading fields of a compound index, and mostly a bound of the next one.
    fn of_fields(&mut self, fields: &[usize]) -> Vec<Wanted> {
        let leading = self.rng.usize(1..fields.len());
        let mut wanted = Vec::new();
        for (place, at) in fields[..=leading].iter().enumerate() {
            let op = match self.rng.usize(0..5) {
                _ if place < leading => Op::Eq,
                0 => break,
                1 => Op::Eq,
                _ => [Op::Ge, Op::Gt, Op::Le, Op::Lt][self.rng.usize(0..4)],
            };
            wanted.push(Wanted {
                path: PATHS[*at].to_string(),
                op,
                value: self.value(self.view.types[*at]),
            });
        }
        wanted
    }

    fn tree(&mut self) -> Tree {
        // Drawn beforehand, because building a tree of conditions draws from the same generator.
        let mut parts: Vec<Vec<Wanted>> = (0..16)
            .map(|_| {
                let mut wanted = self.wanted();
                while wanted.is_empty() {
                    wanted = self.wanted();
                }
                wanted
            })
            .collect();
        let mut values: Vec<(String, Vec<Value>)> = (0..16)
            .map(|_| {
                let at = self.rng.usize(0..PATHS.len());
                let count = self.rng.usize(1..4);
                let ty = self.view.types[at];
                let values = (0..count).map(|_| self.value(ty)).collect();
                (PATHS[at].to_string(), values)
            })
            .collect();
        let mut some = |rng: &mut fastrand::Rng| parts.swap_remove(rng.usize(0..parts.len()));
        let mut value = |rng: &mut fastrand::Rng| values.swap_remove(rng.usize(0..values.len()));
        Tree::random(self.rng, 1, &mut some, &mut value)
    }

    fn rows(&self, query: Query) -> Result<Vec<Row>> {
        query.run()?.map(row).collect()
    }

    /// Decides at random whether one of the ways is taken.
    fn takes(&mut self) -> bool {
        self.all || self.rng.usize(0..5) < 2
    }

    fn question(&mut self, wanted: &Tree, limit: Option<usize>) -> Result<()> {
        let order = match self.rng.usize(0..3) {
            0 => Order::Oldest,
            _ => Order::Newest,
        };
        let lookup = LookupOptions {
            batch_bytes: [0, 1000, 16 << 20][self.rng.usize(0..3)],
            stateful: self.rng.bool(),
            hints: self.rng.bool(),
        };
        let validations = [Validation::Auto, Validation::Direct, Validation::Timestamp];
        let validation = validations[self.rng.usize(0..3)];
        // From numbers of its own, so that the other questions stay as they were.
        let combining = match fastrand::Rng::with_seed(self.rng.clone().u64(..)).usize(0..5) {
            0 | 1 => Combining::Auto,
            _ => Combining::Always,
        };
        let query = self.snapshot.query().order(order.clone()).lookup(lookup);
        let mut query = query.combining(combining);
        if let Some(condition) = wanted.expr() {
            query = query.filter(condition);
        }
        let mut by_key = self.records.meeting(wanted);
        let place = self.place();
        if let Some(condition) = place.condition() {
            query = query.filter(match wanted.expr() {
                Some(other) => other & condition,
                None => condition,
            });
            by_key.retain(|(key, ..)| self.is_at(&place, key) == Some(true));
        }
        let of_key = self.of_key();
        if let Some(condition) = of_key.condition() {
            query = query.filter(condition);
            by_key.retain(|(key, ..)| of_key.accepts(key));
        }
        let mut right = by_key.clone();
        right.sort_by_key(|(_, seq, _)| *seq);
        if order == Order::Newest {
            right.reverse();
        }
        // From numbers of its own, so that the other questions stay as they were.
        let mut rng = fastrand::Rng::with_seed(self.rng.clone().u64(..));
        self.first_of_fields(&mut rng)?;
        let one_in = if compound::fields_in(&self.view.def).is_empty() {
            5
        } else {
            2
        };
        if self.all || rng.usize(0..one_in) == 0 {
            let keys = by_key.iter().map(|(key, ..)| *key).collect();
            let sorting = sorted::Sorting {
                query: &query,
                keys,
                limit,
            };
            self.sorted(&sorting, &mut rng)?;
        }
        let own = |rows: &[(&crate::model::K, u64, &str)]| -> Vec<Row> {
            let rows = rows.iter();
            rows.map(|(key, _, body)| (key.to_string(), (*body).to_string()))
                .collect()
        };
        let (all, by_key) = (own(&right), own(&by_key));
        let few = &all[..all.len().min(limit.unwrap_or(usize::MAX))];
        let what = |way: &str| {
            format!(
                "{way}: {wanted:?} {place:?} {of_key:?} {order:?} limit {limit:?} {validation:?} {combining:?} {lookup:?}"
            )
        };
        let limited = || query.clone().limit(limit);
        if self.takes() {
            same(&self.rows(limited())?, few, || what("records"));
        }
        let query = query.clone().validation(validation);
        let limited = || query.clone().limit(limit);
        if self.takes() {
            let (count, plan) = limited().count_explained()?;
            assert_eq!(count, few.len() as u64, "{}: {plan}", what("count"));
        }
        if self.takes() {
            same(&self.rows(limited())?, few, || what("records validated"));
        }
        if self.takes() {
            let keys = limited().keys()?;
            let keys = keys
                .map(|key| Ok(key?.to_string()))
                .collect::<Result<Vec<_>>>()?;
            let right: Vec<&String> = few.iter().map(|row| &row.0).collect();
            assert_eq!(keys.iter().collect::<Vec<_>>(), right, "{}", what("keys"));
        }
        if self.takes() {
            let found = self.in_bulk(limited(), Order::Key)?;
            same(&found, &by_key[..few.len()], || what("in bulk by key"));
        }
        if self.takes() {
            let found = self.in_bulk(limited(), Order::Any)?;
            let any: BTreeSet<&Row> = found.iter().collect();
            assert_eq!(any.len(), found.len(), "{}", what("in bulk, twice"));
            assert_eq!(any.len(), few.len(), "{}", what("in bulk"));
            let rights: BTreeSet<&Row> = by_key.iter().collect();
            assert!(any.is_subset(&rights), "{}", what("in bulk, others"));
        }
        if self.takes() {
            let size = self.rng.usize(1..6);
            let keys_alone = self.rng.usize(0..3) == 0;
            self.by_page(&query, size, keys_alone, &all, &|| what("by page"))?;
        }
        Ok(())
    }

    fn in_bulk(&self, query: Query, order: Order) -> Result<Vec<Row>> {
        let mut found = Vec::new();
        query.order(order).visit(&mut |record| {
            found.push(row(Ok(record)).unwrap());
            ControlFlow::Continue(())
        })?;
        Ok(found)
    }

    fn by_page(
        &self,
        query: &Query,
        size: usize,
        keys_alone: bool,
        right: &[Row],
        what: &dyn Fn() -> String,
    ) -> Result<()> {
        let mut pages: Vec<Row> = Vec::new();
        let mut token = None;
        loop {
            let mut page = query.clone().limit(Some(size));
            if let Some(token) = token {
                page = page.after(token);
            }
            let before = pages.len();
            if keys_alone {
                let mut keys = page.keys()?;
                for key in keys.by_ref() {
                    pages.push((key?.to_string(), String::new()));
                }
                token = keys.token();
            } else {
                let mut answer = page.run()?;
                for record in answer.by_ref() {
                    pages.push(row(record)?);
                }
                token = answer.token();
            }
            if pages.len() == before {
                break;
            }
            assert!(pages.len() <= right.len(), "{}: more than all", what());
        }
        if keys_alone {
            let keys = pages.iter().map(|row| &row.0);
            assert!(keys.eq(right.iter().map(|row| &row.0)), "{}", what());
        } else {
            same(&pages, right, what);
        }
        Ok(())
    }

    fn get(&mut self) -> Result<()> {
        let key = key(self.view.key_type, self.rng.u8(0..KEYS));
        let api = self.snapshot.parse_key(&key.to_string())?;
        let found = self.snapshot.get(&api)?;
        let found = found.map(|r| (r.seq(), String::from_utf8(r.json().to_vec()).unwrap()));
        let right = self.records.current(&key);
        let right = right.map(|(seq, row)| (seq, row.put.body.clone()));
        assert_eq!(found, right, "get {key}");
        Ok(())
    }

    fn scan(&mut self) -> Result<()> {
        let ty = self.view.key_type;
        let (mut from, mut to) = (key(ty, self.rng.u8(0..KEYS)), key(ty, self.rng.u8(0..KEYS)));
        if from > to {
            std::mem::swap(&mut from, &mut to);
        }
        let whole = self.rng.usize(0..3) == 0;
        let from = (!whole && self.rng.bool()).then_some(from);
        let to = (!whole && self.rng.bool()).then_some(to);
        let reverse = self.rng.bool();
        let mut right: Vec<Row> = self
            .records
            .rows()
            .filter(|(key, ..)| from.as_ref().is_none_or(|from| *key >= from))
            .filter(|(key, ..)| to.as_ref().is_none_or(|to| *key <= to))
            .map(|(key, _, put)| (key.to_string(), put.body.clone()))
            .collect();
        if reverse {
            right.reverse();
        }
        let api = |key: &Option<crate::model::K>| {
            let key = key.as_ref();
            let key = key.map(|key| self.snapshot.parse_key(&key.to_string()).unwrap());
            key.map_or(Bound::Unbounded, Bound::Included)
        };
        let found = self.snapshot.scan((api(&from), api(&to)));
        let found = if reverse { found.rev() } else { found };
        let found = found.map(row);
        let found = found.collect::<Result<Vec<Row>>>()?;
        same(&found, &right, || format!("scan {from:?} {to:?} {reverse}"));
        Ok(())
    }

    fn moment(&mut self) -> Option<u64> {
        let last = self.snapshot.seq();
        match self.rng.usize(0..3) {
            0 => None,
            1 => Some(self.rng.u64(0..=last)),
            _ => Some(last.saturating_sub(self.rng.u64(0..6))),
        }
    }

    fn read_key(&mut self, number: u8) -> Result<()> {
        let key = key(self.view.key_type, number);
        let (ts, m) = (self.moment(), self.rng.usize(1..self.view.kept() + 2));
        let api = self.snapshot.parse_key(&key.to_string())?;
        let found = self.snapshot.versions(&api).as_of(ts).latest(m).read()?;
        let found: Vec<(u64, &[u8])> = found.iter().map(|r| (r.seq(), r.json())).collect();
        let right = self.records.versions(&key, ts.unwrap_or(u64::MAX), m);
        let right: Vec<(u64, &[u8])> = right
            .iter()
            .map(|(seq, row)| (*seq, row.put.body.as_bytes()))
            .collect();
        let numbers = |rows: &[(u64, &[u8])]| rows.iter().map(|row| row.0).collect::<Vec<_>>();
        assert!(
            found == right,
            "{m} versions of {key} at {ts:?}: {:?}, not {:?}",
            numbers(&found),
            numbers(&right)
        );
        Ok(())
    }

    /// Reads versions by key, and by the values of one path or two.
    fn versions(&mut self) -> Result<()> {
        let number = self.rng.u8(0..KEYS);
        self.read_key(number)?;
        let (ts, m) = (self.moment(), self.rng.usize(1..self.view.kept() + 2));
        let mut wanted: Vec<Wanted> = Vec::new();
        for _ in 0..self.rng.usize(1..3) {
            let at = self.rng.usize(0..PATHS.len());
            let indexes = &self.view.def.indexes;
            let declared = indexes.iter().find(|i| i.path == path(PATHS[at]));
            let op = match declared.map(|declared| declared.tokenizer) {
                Some(Tokenizer::Prefix) => Op::Prefix,
                _ => Op::Eq,
            };
            let value = self.value(self.view.types[at]);
            wanted.push(Wanted {
                path: PATHS[at].to_string(),
                op,
                value,
            });
        }
        let paths: Vec<Path> = wanted.iter().map(|w| path(&w.path)).collect();
        let tokens: Vec<String> = wanted.iter().map(|w| w.value.to_string()).collect();
        let at = ts.unwrap_or(u64::MAX);
        let keys = self.records.keys.keys();
        let versions = keys.flat_map(|key| self.records.versions(key, at, m));
        let mut right: Vec<u64> = versions
            .filter(|(_, row)| meets(&row.put, &wanted))
            .map(|(seq, _)| seq)
            .collect();
        right.sort_unstable_by(|a, b| b.cmp(a));
        let limit = self.rng.usize(1..6);
        let (mut after, mut found) = (None, Vec::new());
        loop {
            let mut asked = (paths.iter().zip(&tokens)).map(|(path, token)| (path, token.as_str()));
            let (path, token) = asked.next().unwrap();
            let versions = self.snapshot.versions_with(path, token);
            let versions = asked.fold(versions, |all, (path, token)| all.and(path, token));
            let part = versions
                .as_of(ts)
                .latest(m)
                .limit(limit)
                .after(after)
                .read()?;
            found.extend(part.records.iter().map(|record| record.seq()));
            let Some(next) = part.next else { break };
            assert_eq!(part.records.len(), limit, "a page that is not the last");
            assert!(found.len() <= right.len(), "versions by value, too many");
            after = Some(next.to_string().parse()?);
        }
        assert_eq!(found, right, "versions by value: {wanted:?} {m} at {ts:?}");
        Ok(())
    }
}

/// Rows are long, so the message has the keys of those that differ, and the first row.
fn same(found: &[Row], right: &[Row], what: impl Fn() -> String) {
    if found == right {
        return;
    }
    let keys = |rows: &[Row]| rows.iter().map(|row| row.0.clone()).collect::<Vec<_>>();
    let pairs = found.iter().zip(right);
    let first = pairs.clone().find(|(found, right)| found != right);
    let cut = |row: &Row| row.1.chars().take(200).collect::<String>();
    let first = first.map(|(found, right)| format!("{}\nnot {}", cut(found), cut(right)));
    panic!(
        "{}\nfound {:?},\nnot   {:?}\n{}",
        what(),
        keys(found),
        keys(right),
        first.unwrap_or_default()
    );
}
