//! Conditions on attributes, as people write them: `user=alice`, `at>=2024-05-01`, `name^=Al`.
//!
//! A record matches a condition when *some* value at the path satisfies it (an array has several).
//! Conditions that bound a range on one path (`n>3 n<5`) must hold for one value together; each other
//! condition stands for itself, so `tag=a tag=b` finds arrays that have both.

use std::cmp::Ordering;
use std::fmt;
use std::ops::{Bound, ControlFlow};
use std::str::FromStr;

use crate::error::Error;
use crate::schema::{
    Bits, Found, Path, Rest, Sink, Trie, Type, Value, ValueRange, string_prefix_range,
};

/// How a value must relate to the text of a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Op {
    /// Equal to it.
    Eq,
    /// It or above.
    Ge,
    /// It or below.
    Le,
    /// Above it.
    Gt,
    /// Below it.
    Lt,
    /// A string that begins with it.
    Prefix,
}

impl Op {
    /// Those of two characters first.
    const ALL: [Op; 6] = [Op::Ge, Op::Le, Op::Prefix, Op::Eq, Op::Gt, Op::Lt];

    fn symbol(self) -> &'static str {
        match self {
            Op::Eq => "=",
            Op::Ge => ">=",
            Op::Le => "<=",
            Op::Gt => ">",
            Op::Lt => "<",
            Op::Prefix => "^=",
        }
    }

    fn holds(self, order: Ordering) -> bool {
        match self {
            Op::Eq => order.is_eq(),
            Op::Ge => order.is_ge(),
            Op::Le => order.is_le(),
            Op::Gt => order.is_gt(),
            Op::Lt => order.is_lt(),
            Op::Prefix => false,
        }
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.symbol())
    }
}

impl Op {
    /// True for operators that bound a range: those on one path must hold for one value together.
    pub fn bounds_a_range(self) -> bool {
        matches!(self, Op::Ge | Op::Le | Op::Gt | Op::Lt)
    }
}

/// A condition on the values at a path.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Condition {
    /// Where the values are.
    pub path: Path,
    /// How they must relate to the text.
    pub op: Op,
    /// What they are compared with, as it was written.
    pub text: String,
}

impl Condition {
    /// A condition on the values at `path`.
    pub fn new(path: Path, op: Op, text: impl Into<String>) -> Condition {
        let text = text.into();
        Condition { path, op, text }
    }

    /// Reads `PATH=V`, `PATH>=V`, `PATH<=V`, `PATH>V`, `PATH<V` or `PATH^=PREFIX`. The first operator
    /// counts; a backslash in the path takes the meaning away from an operator in a name. The value
    /// is everything behind the operator, empty and blanks included.
    ///
    /// # Errors
    /// There is no operator, or the path is not one.
    pub fn parse(condition: &str) -> Result<Condition, String> {
        let mut escaped = false;
        for (at, c) in condition.char_indices() {
            if escaped || c == '\\' {
                escaped = !escaped;
                continue;
            }
            let (path, rest) = condition.split_at(at);
            let op = Op::ALL
                .into_iter()
                .find_map(|op| Some((op, rest.strip_prefix(op.symbol())?)));
            if let Some((op, text)) = op {
                let path = Path::parse(path).map_err(|e| format!("{condition:?}: {e}"))?;
                return Ok(Condition {
                    path,
                    op,
                    text: text.to_owned(),
                });
            }
        }
        Err(format!(
            "{condition:?} is not a condition: write PATH=VALUE, or >=, <=, >, <, ^= for ="
        ))
    }

    /// The encoded values of type `t` that satisfy the condition.
    ///
    /// # Errors
    /// The text is not a value of the type, or a prefix is asked of something other than a string.
    pub fn to_range(&self, t: Type) -> Result<ValueRange, String> {
        if self.op == Op::Prefix {
            if t != Type::String {
                return Err(format!(
                    "{self}: ^= works on strings, and {} is of type {t}",
                    self.path
                ));
            }
            return Ok(string_prefix_range(&self.text));
        }
        let value = Value::parse(t, &self.text)
            .map_err(|e| format!("{self}: {e}"))?
            .encoded();
        Ok(match self.op {
            Op::Ge => (Bound::Included(value), Bound::Unbounded),
            Op::Gt => (Bound::Excluded(value), Bound::Unbounded),
            Op::Le => (Bound::Unbounded, Bound::Included(value)),
            Op::Lt => (Bound::Unbounded, Bound::Excluded(value)),
            Op::Eq | Op::Prefix => (Bound::Included(value.clone()), Bound::Included(value)),
        })
    }
}

impl FromStr for Condition {
    type Err = Error;

    fn from_str(text: &str) -> Result<Condition, Error> {
        Condition::parse(text).map_err(Error::bad_input)
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}{}", self.path, self.op, self.text)
    }
}

/// Conditions on paths without a declared type, evaluated on JSON; those that bound a range on one
/// path must hold for one value together, each other for some value. Evaluation: numbers compare with a text that
/// is a number (integers exactly), strings with the text by bytes, truth values with `true` and
/// `false`; anything else does not match.
#[derive(Debug, Clone)]
pub struct JsonFilter {
    trie: Trie,
    tests: Vec<Test>,
}

/// What one value must satisfy, all of it.
#[derive(Debug, Clone)]
struct Test {
    path: Path,
    parts: Vec<Part>,
}

#[derive(Debug, Clone)]
struct Part {
    op: Op,
    text: String,
    number: Option<Number>,
    truth: Option<bool>,
}

impl JsonFilter {
    /// Compiles `conditions`, all of which must hold.
    pub fn new<'a>(conditions: impl IntoIterator<Item = &'a Condition>) -> JsonFilter {
        let mut filter = JsonFilter {
            trie: Trie::new(),
            tests: Vec::new(),
        };
        for condition in conditions {
            let part = Part {
                op: condition.op,
                text: condition.text.clone(),
                number: Number::parse(&condition.text),
                truth: condition.text.parse().ok(),
            };
            let range = filter.tests.iter_mut().find(|test| {
                condition.op.bounds_a_range()
                    && test.path == condition.path
                    && test.parts.iter().all(|part| part.op.bounds_a_range())
            });
            match range {
                Some(test) => test.parts.push(part),
                None => {
                    filter.trie.add(&condition.path, filter.tests.len() as u32);
                    let path = condition.path.clone();
                    filter.tests.push(Test {
                        path,
                        parts: vec![part],
                    });
                }
            }
        }
        filter
    }

    /// True when the record `body` matches: one pass over it at most, which ends when all conditions
    /// have been met. A body that is not JSON does not match.
    pub fn matches(&self, body: &[u8]) -> bool {
        if self.tests.is_empty() {
            return true;
        }
        let mut met = Met {
            tests: &self.tests,
            met: Bits::default(),
            open: self.tests.len(),
        };
        let mut input = serde_json::Deserializer::from_slice(body);
        // The walk ends with an error both on bad JSON and when there is nothing left to meet.
        let _ = self.trie.walk(&mut input, Rest::Skipped, &mut met);
        met.open == 0
    }
}

struct Met<'a> {
    tests: &'a [Test],
    met: Bits,
    open: usize,
}

impl Sink for Met<'_> {
    fn found(&mut self, targets: &[u32], found: Found<'_>) -> ControlFlow<()> {
        for target in targets {
            let target = *target as usize;
            if !self.met.contains(target)
                && self
                    .tests
                    .get(target)
                    .is_some_and(|test| test.accepts(found))
            {
                self.met.insert(target);
                self.open -= 1;
            }
        }
        if self.open == 0 {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }
}

impl Test {
    fn accepts(&self, found: Found<'_>) -> bool {
        self.parts.iter().all(|part| part.accepts(found))
    }
}

impl Part {
    fn accepts(&self, found: Found<'_>) -> bool {
        let order = match found {
            Found::Str(v) if self.op == Op::Prefix => return v.starts_with(&self.text),
            Found::Str(v) => Some(v.cmp(self.text.as_str())),
            Found::Bool(v) => self.truth.map(|truth| v.cmp(&truth)),
            Found::Int(v) => self
                .number
                .and_then(|number| Number::Int(v).compare(number)),
            Found::Float(v) => self
                .number
                .and_then(|number| Number::Float(v).compare(number)),
            Found::Null | Found::Object => None,
        };
        order.is_some_and(|order| self.op.holds(order))
    }
}

#[derive(Debug, Clone, Copy)]
enum Number {
    Int(i128),
    Float(f64),
}

impl Number {
    fn parse(text: &str) -> Option<Number> {
        if let Ok(v) = text.parse() {
            return Some(Number::Int(v));
        }
        text.parse()
            .ok()
            .filter(|v: &f64| v.is_finite())
            .map(Number::Float)
    }

    /// The exact order of two numbers; `None` only for NaN.
    fn compare(self, other: Number) -> Option<Ordering> {
        match (self, other) {
            (Number::Int(a), Number::Int(b)) => Some(a.cmp(&b)),
            (Number::Float(a), Number::Float(b)) => a.partial_cmp(&b),
            (Number::Int(a), Number::Float(b)) => compare_mixed(a, b),
            (Number::Float(a), Number::Int(b)) => compare_mixed(b, a).map(Ordering::reverse),
        }
    }
}

/// The whole parts are compared as integers, since rounding `a` to a float could make it equal.
fn compare_mixed(a: i128, b: f64) -> Option<Ordering> {
    const LIMIT: f64 = (1u128 << 127) as f64;
    if b >= LIMIT {
        return Some(Ordering::Less);
    }
    if b < -LIMIT {
        return Some(Ordering::Greater);
    }
    let whole = b.trunc();
    Some(a.cmp(&(whole as i128)).then(0.0.partial_cmp(&(b - whole))?))
}

#[cfg(test)]
#[path = "condition_tests.rs"]
mod tests;
