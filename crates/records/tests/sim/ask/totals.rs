//! Sums, means, high percentiles and buckets of times, beside an evaluator that reads the records'
//! JSON and shares no arithmetic with the library: sums are made in one large integer.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use esker::request::{Aggregate, GroupBy};
use esker::{Order, Result, Value};
use serde_json::{Number, Value as Json};

use super::Asker;
use super::sorted::{Sorting, compare};
use crate::action::PATHS;
use crate::model::K;
use crate::runner::count;

/// The words of a sum: in units of the least float, with the largest one and some carries.
const WORDS: usize = 36;

/// The power of two of the unit.
const LEAST: u32 = 1074;

/// The sum of any numbers, exactly: an integer in two's complement, the least word first.
#[derive(Clone, PartialEq)]
struct Exact([u64; WORDS]);

impl Exact {
    fn is_negative(&self) -> bool {
        self.0[WORDS - 1] >> 63 == 1
    }

    fn negate(&mut self) {
        let mut carries = true;
        for word in &mut self.0 {
            (*word, carries) = (!*word).overflowing_add(u64::from(carries));
        }
    }

    /// Adds `digits` times two to the power of `shift`, in units.
    fn add(&mut self, is_negative: bool, digits: u128, shift: u32) {
        let mut term = Exact([0; WORDS]);
        for bit in (0..128).filter(|bit| digits >> bit & 1 == 1) {
            let at = bit + shift;
            term.0[at as usize / 64] |= 1 << (at % 64);
        }
        if is_negative {
            term.negate();
        }
        let mut carries = false;
        for (word, more) in self.0.iter_mut().zip(term.0) {
            let (sum, first) = word.overflowing_add(more);
            let (sum, second) = sum.overflowing_add(u64::from(carries));
            (*word, carries) = (sum, first || second);
        }
    }

    fn add_whole(&mut self, whole: i128) {
        self.add(whole < 0, whole.unsigned_abs(), LEAST);
    }

    fn add_float(&mut self, float: f64) {
        let (exponent, fraction) = (
            float.to_bits() >> 52 & 0x7ff,
            float.to_bits() & ((1 << 52) - 1),
        );
        let digits = if exponent == 0 {
            fraction
        } else {
            fraction | 1 << 52
        };
        self.add(
            float < 0.0,
            u128::from(digits),
            (exponent as u32).saturating_sub(1),
        );
    }

    fn bit(&self, at: usize) -> bool {
        self.0[at / 64] >> (at % 64) & 1 == 1
    }

    /// The nearest float; of two, the even one.
    fn rounded(&self) -> f64 {
        let mut size = self.clone();
        if self.is_negative() {
            size.negate();
        }
        let Some(top) = (0..WORDS * 64).rev().find(|at| size.bit(*at)) else {
            return 0.0;
        };
        let from = top.saturating_sub(52);
        let digits = (from..=top).fold(0, |sum, at| sum | u64::from(size.bit(at)) << (at - from));
        let half = from > 0 && size.bit(from - 1);
        let has_rest = (0..from.saturating_sub(1)).any(|at| size.bit(at));
        let up = half && (has_rest || digits % 2 == 1);
        // A carry of the digits is one more in the exponent.
        let nearest = f64::from_bits(((from as u64) << 52) + digits + u64::from(up));
        if self.is_negative() {
            -nearest
        } else {
            nearest
        }
    }
}

/// The sum of JSON numbers, exactly, and whether one of them is a float.
#[derive(Clone)]
struct Total {
    exact: Exact,
    whole: i128,
    has_floats: bool,
    count: usize,
}

impl Total {
    fn new() -> Total {
        Total {
            exact: Exact([0; WORDS]),
            whole: 0,
            has_floats: false,
            count: 0,
        }
    }

    fn add(&mut self, number: &Number) {
        self.count += 1;
        if number.is_f64() {
            self.has_floats = true;
            self.exact.add_float(number.as_f64().unwrap());
        } else {
            let whole = number.as_i128().unwrap();
            self.whole += whole;
            self.exact.add_whole(whole);
        }
    }

    fn sum(&self) -> Option<Value> {
        match (self.count, self.has_floats) {
            (0, _) => None,
            (_, true) => Some(Value::Float(self.exact.rounded())),
            (_, false) => Some(Value::Int(self.whole)),
        }
    }

    fn mean(&self) -> Option<f64> {
        let sum = match self.sum()? {
            Value::Float(sum) => sum,
            _ => self.whole as f64,
        };
        Some(sum / self.count as f64)
    }
}

/// The begin of the day, the month or the year of a time, all in microseconds, by the calendar's
/// rules for leap years.
fn begin_of(micros: i64, period: &str) -> i64 {
    const DAY: i64 = 86_400_000_000;
    let mut day = micros.div_euclid(DAY);
    let is_leap = |year: i64| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days_of = |year: i64| 365 + i64::from(is_leap(year));
    // From the year 1 on; the day 0 is in 1970.
    let (mut year, mut begin) = (1, -719_162);
    if period == "1d" {
        return day * DAY;
    }
    while day >= begin + days_of(year) {
        begin += days_of(year);
        year += 1;
    }
    if period == "year" {
        return begin * DAY;
    }
    day -= begin;
    let february = 28 + i64::from(is_leap(year));
    for days in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if day < days {
            break;
        }
        (day, begin) = (day - days, begin + days);
    }
    begin * DAY
}

/// Adds the numbers at a path; those of all elements of arrays on the way.
fn add_numbers(value: &Json, names: &[&str], found: &mut Vec<Number>) {
    match (value, names.split_first()) {
        (Json::Array(elements), _) => {
            elements
                .iter()
                .for_each(|value| add_numbers(value, names, found));
        }
        (Json::Number(number), None) => found.push(number.clone()),
        (value, Some((name, rest))) => {
            let below = value.get(*name);
            below
                .iter()
                .for_each(|value| add_numbers(value, rest, found));
        }
        _ => {}
    }
}

fn is_same(a: Option<&Value>, b: Option<&Value>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => compare(a, b).is_eq(),
        (a, b) => a.is_none() && b.is_none(),
    }
}

impl Asker<'_> {
    /// The numbers in the JSON of a record at a path.
    fn numbers(&self, key: &K, path: &str) -> Vec<Number> {
        let (_, row) = self.records.current(key).unwrap();
        let body: Json = serde_json::from_str(&row.put.body).unwrap();
        let names: Vec<&str> = path.split('.').collect();
        let mut found = Vec::new();
        add_numbers(&body, &names, &mut found);
        found
    }

    fn total<'k>(&self, keys: impl Iterator<Item = &'k K>, path: &str) -> Total {
        let mut total = Total::new();
        for key in keys {
            self.numbers(key, path)
                .iter()
                .for_each(|number| total.add(number));
        }
        total
    }

    /// The sum, the mean and the high percentiles of all records.
    pub(super) fn totals(&self, sorting: &Sorting<'_>, by: &str) -> Result<()> {
        let texts = format!("sum({by}),avg({by}),p95({by}),p99({by})");
        let what = format!("{texts} of {:?}", sorting.query.request().unwrap());
        let query = sorting.query.clone().order(Order::Any);
        let found = query.aggregate(Aggregate::parse_list(&texts)?).run()?;
        let [found] = found.as_slice() else {
            panic!("{what}: {found:?}");
        };
        let total = self.total(sorting.keys.iter().copied(), by);
        if total.has_floats {
            count("aggregate: a sum of floats");
        }
        let sum = found.value(&format!("sum({by})"));
        assert_eq!(sum, total.sum(), "{what}: {found:?}");
        let mean = found.value(&format!("avg({by})"));
        assert_eq!(mean, total.mean().map(Value::Float), "{what}: {found:?}");
        let mut all: Vec<Value> = (sorting.keys.iter())
            .flat_map(|key| self.values(key, by))
            .collect();
        all.sort_by(compare);
        for percent in [95, 99] {
            // The first value that at least so many percent do not exceed.
            let enough = |at: &usize| (at + 1) * 100 >= all.len() * percent;
            let right = (0..all.len()).find(enough).map(|at| &all[at]);
            let value = found.value(&format!("p{percent}({by})"));
            assert!(
                is_same(value.as_ref(), right),
                "{what}: p{percent}, {found:?}"
            );
        }
        Ok(())
    }

    /// The number of records, and the sum of the numbers of another field, in each bucket of a
    /// field of times.
    pub(super) fn buckets(&self, sorting: &Sorting<'_>, by: &str) -> Result<()> {
        let place = PATHS.iter().position(|path| *path == by);
        if !place.is_some_and(|at| self.view.types[at].is_time()) {
            return Ok(());
        }
        let period = ["1d", "month", "year"][sorting.keys.len() % 3];
        // Records without a time come last.
        let mut groups: BTreeMap<(bool, i64), Vec<&K>> = BTreeMap::new();
        for key in &sorting.keys {
            let begins = self
                .values(key, by)
                .into_iter()
                .filter_map(|value| match value {
                    Value::Time(micros) => Some((false, begin_of(micros, period))),
                    _ => None,
                });
            let mut begins: Vec<(bool, i64)> = begins.collect();
            begins.dedup();
            if begins.is_empty() {
                begins.push((true, 0));
            }
            for begin in begins {
                groups.entry(begin).or_default().push(key);
            }
        }
        let summed = PATHS[(sorting.keys.len() + 1) % PATHS.len()];
        let texts = format!("count,sum({summed})");
        let what = format!(
            "{texts} by {by}/{period} of {:?}",
            sorting.query.request().unwrap()
        );
        let query = sorting.query.clone().order(Order::Any);
        let grouped = query.aggregate(Aggregate::parse_list(&texts)?);
        let mut left = groups.into_iter();
        let by_period = format!("{by}/{period}").parse::<GroupBy>()?;
        grouped.by(by_period).visit(&mut |group| {
            let ((is_none, begin), keys) =
                left.next().unwrap_or_else(|| panic!("{what}: {group:?}"));
            let begin = (!is_none).then_some(Value::Time(begin));
            assert_eq!(group.value(by), begin, "{what}: {group:?}");
            let records = Some(Value::Int(keys.len() as i128));
            assert_eq!(group.value("count"), records, "{what}: {group:?}");
            let sum = self.total(keys.into_iter(), summed).sum();
            let found = group.value(&format!("sum({summed})"));
            assert_eq!(found, sum, "{what}: {group:?}");
            count("aggregate: a bucket of times");
            ControlFlow::Continue(())
        })?;
        assert!(left.next().is_none(), "{what}");
        Ok(())
    }
}
