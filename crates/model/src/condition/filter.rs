//! A condition compiled for evaluation: a formula of tests, of which those on undeclared paths are
//! evaluated in one pass over a record's JSON.

use std::cmp::Ordering;
use std::ops::ControlFlow;

use super::expr::Node;
use super::number::Number;
use super::{Expr, Op, Operand, Predicate};
use crate::geometry::{Area, Space};
use crate::schema::{
    Bits, Found, Numbers, Path, PointAt, Rest, Sink, Trie, Type, Value, fits, time_of,
    without_repeated_names,
};

/// A test that some value at a path must satisfy: one predicate, or several bounds of a range.
#[derive(Debug, Clone, PartialEq)]
pub struct Test {
    /// The path.
    pub path: Path,
    /// All of these must hold for one value.
    pub predicates: Vec<Predicate>,
}

impl Test {
    /// The test as a condition.
    pub fn to_expr(&self) -> Option<Expr> {
        let each = self.predicates.iter().cloned();
        each.map(|predicate| Expr::test(self.path.clone(), predicate))
            .reduce(|a, b| a & b)
    }
}

/// A formula of tests.
#[derive(Debug, Clone, PartialEq)]
pub enum Formula {
    /// The test with this number.
    Test(usize),
    /// All of these.
    And(Vec<Formula>),
    /// One of these.
    Or(Vec<Formula>),
    /// Not this.
    Not(Box<Formula>),
}

impl Formula {
    /// The truth of the formula if that of some tests is known: `None` when it depends on the
    /// others.
    fn truth(&self, known: &mut dyn FnMut(usize) -> Option<bool>) -> Option<bool> {
        match self {
            Formula::Test(test) => known(*test),
            Formula::And(parts) => decided(parts, false, known),
            Formula::Or(parts) => decided(parts, true, known),
            Formula::Not(inner) => inner.truth(known).map(|truth| !truth),
        }
    }
}

/// The truth of parts of which a single one with the truth `by` decides.
fn decided(
    parts: &[Formula],
    by: bool,
    known: &mut dyn FnMut(usize) -> Option<bool>,
) -> Option<bool> {
    let mut all_known = true;
    for part in parts {
        match part.truth(known) {
            Some(truth) if truth == by => return Some(by),
            Some(_) => {}
            None => all_known = false,
        }
    }
    all_known.then_some(!by)
}

/// A compiled condition.
#[derive(Debug, Clone)]
pub struct Filter {
    formula: Formula,
    tests: Vec<Test>,
    /// For each test, its evaluation on JSON, unless its truth is supplied.
    json: Vec<Option<JsonTest>>,
    /// For each test, the area in which a point of the JSON must lie.
    areas: Vec<Option<JsonArea>>,
    trie: Trie,
}

/// Where a point is in JSON, and the area in which it must lie: in degrees, as no declaration says
/// otherwise.
#[derive(Debug, Clone)]
struct JsonArea {
    point: PointAt,
    area: Area,
}

impl JsonArea {
    fn of(test: &Test) -> Option<JsonArea> {
        let [Predicate::Within(area)] = test.predicates.as_slice() else {
            return None;
        };
        Some(JsonArea {
            point: PointAt::new(&test.path).ok()?,
            area: area.area(Space::Sphere).ok()?,
        })
    }

    fn holds(&self, body: &[u8]) -> bool {
        let point = self.point.find(Space::Sphere, body);
        point.is_some_and(|point| self.area.contains(point))
    }
}

fn is_within(test: &Test) -> bool {
    matches!(test.predicates.as_slice(), [Predicate::Within(_)])
}

impl Filter {
    /// Compiles a condition that is evaluated entirely on JSON.
    pub fn new(expr: &Expr) -> Filter {
        Filter::with(expr.clone(), |_| false)
    }

    /// Compiles a condition. The truth of the tests on `declared` paths is supplied by the caller.
    pub fn with(expr: Expr, declared: impl Fn(&Path) -> bool) -> Filter {
        let mut tests = Vec::with_capacity(1);
        let formula = compile(expr, &mut tests);
        let mut trie = Trie::new();
        let mut json = Vec::with_capacity(tests.len());
        let mut areas = Vec::with_capacity(tests.len());
        for (at, test) in tests.iter().enumerate() {
            let here = !declared(&test.path);
            areas.push(here.then(|| JsonArea::of(test)).flatten());
            if here && !is_within(test) {
                let made = JsonTest::new(test);
                trie.add(&test.path, at as u32, made.numbers());
                json.push(Some(made));
            } else {
                json.push(None);
            }
        }
        Filter {
            formula,
            tests,
            json,
            areas,
            trie,
        }
    }

    /// The formula of the condition. The bounds of a range form one test.
    pub fn formula(&self) -> &Formula {
        &self.formula
    }

    /// The tests of the formula, by number.
    pub fn tests(&self) -> &[Test] {
        &self.tests
    }

    /// True if the record with this body matches. `elsewhere` returns the truth of the tests on
    /// declared paths; if they do not decide, the body is read, in one pass. If an object has
    /// several fields of one name, the last one counts. A body that is not JSON does not match.
    pub fn matches(&self, elsewhere: &mut dyn FnMut(usize) -> bool, body: &[u8]) -> bool {
        let is_json = |test: usize| matches!(self.json.get(test), Some(Some(_)));
        let mut elsewhere = |test: usize| match self.areas.get(test) {
            Some(Some(area)) => area.holds(body),
            _ => elsewhere(test),
        };
        let mut met = Bits::default();
        let early = self.formula.truth(&mut |test| {
            if is_json(test) {
                return None;
            }
            let truth = elsewhere(test);
            if truth {
                met.insert(test);
            }
            Some(truth)
        });
        if let Some(truth) = early {
            return truth;
        }
        // An early decision may have skipped tests; they are needed where the rest is still open.
        for test in 0..self.tests.len() {
            if !is_json(test) && !met.contains(test) && elsewhere(test) {
                met.insert(test);
            }
        }
        let walk = |body: &[u8]| {
            let mut walk = Walk {
                filter: self,
                met: met.clone(),
                is_repeated: false,
            };
            let mut input = serde_json::Deserializer::from_slice(body);
            let walked = self.trie.walk(&mut input, Rest::Skipped, &mut walk);
            (walk, walked.is_ok())
        };
        let (mut walked, mut is_json) = walk(body);
        if walked.is_repeated {
            let text = std::str::from_utf8(body).ok();
            let Some(text) = text.and_then(without_repeated_names) else {
                return false;
            };
            (walked, is_json) = walk(text.as_bytes());
        }
        let met = walked.met;
        is_json
            && self
                .formula
                .truth(&mut |test| Some(met.contains(test)))
                .unwrap_or(false)
    }

    /// True if the record with this body matches, evaluated entirely on JSON.
    pub fn matches_json(&self, body: &[u8]) -> bool {
        self.matches(&mut |_| false, body)
    }
}

fn compile(expr: Expr, tests: &mut Vec<Test>) -> Formula {
    match expr.node {
        Node::Test(path, predicate) => {
            tests.push(Test {
                path,
                predicates: vec![predicate],
            });
            Formula::Test(tests.len() - 1)
        }
        Node::And(parts) => {
            let mut all = Vec::with_capacity(parts.len());
            // The tests of this chain that are ranges.
            let mut ranges: Vec<usize> = Vec::new();
            for part in parts {
                match part.node {
                    Node::Test(path, Predicate::Compare(op, operand)) if op.bounds_a_range() => {
                        let predicate = Predicate::Compare(op, operand);
                        let same = (ranges.iter().copied())
                            .find(|at| tests.get(*at).is_some_and(|test| test.path == path));
                        match same.and_then(|at| tests.get_mut(at)) {
                            Some(test) => test.predicates.push(predicate),
                            None => {
                                ranges.push(tests.len());
                                all.push(compile(Expr::test(path, predicate), tests));
                            }
                        }
                    }
                    node => all.push(compile(Expr { node, ..part }, tests)),
                }
            }
            match all.len() {
                1 => all.remove(0),
                _ => Formula::And(all),
            }
        }
        Node::Or(parts) => {
            Formula::Or(parts.into_iter().map(|part| compile(part, tests)).collect())
        }
        Node::Not(inner) => Formula::Not(Box::new(compile(*inner, tests))),
        // Queries refuse such a condition earlier.
        Node::Invalid(_) => Formula::Or(Vec::new()),
    }
}

struct Walk<'a> {
    filter: &'a Filter,
    met: Bits,
    is_repeated: bool,
}

impl Walk<'_> {
    fn see(&mut self, targets: &[u32], found: Found<'_>, is_element: bool) {
        for target in targets {
            let target = *target as usize;
            if !self.met.contains(target)
                && let Some(Some(test)) = self.filter.json.get(target)
                && test.accepts(found, is_element)
            {
                self.met.insert(target);
            }
        }
    }
}

impl Sink for Walk<'_> {
    fn found(&mut self, targets: &[u32], found: Found<'_>) -> ControlFlow<()> {
        self.see(targets, found, false);
        ControlFlow::Continue(())
    }

    fn element(&mut self, targets: &[u32], found: Found<'_>) -> ControlFlow<()> {
        self.see(targets, found, true);
        ControlFlow::Continue(())
    }

    fn repeated(&mut self) -> ControlFlow<()> {
        self.is_repeated = true;
        ControlFlow::Break(())
    }
}

/// The part of a test on a declared attribute that the encoded values of a record cannot decide:
/// values that the attribute's type cannot encode, and all numbers if the type is float.
#[derive(Debug, Clone)]
pub struct Residual {
    /// `None` where it is all values.
    ty: Option<Type>,
    test: JsonTest,
    trie: Trie,
}

impl Residual {
    /// For an attribute of type `ty`.
    pub fn new(test: &Test, ty: Type) -> Residual {
        let mut trie = Trie::new();
        trie.add(&test.path, 0, Numbers::Exact);
        let mut made = JsonTest::new(test);
        if ty != Type::String {
            made.read_quoted();
        }
        Residual {
            ty: Some(ty),
            test: made,
            trie,
        }
    }

    /// The test on all values of any type.
    pub fn of_all(test: &Test) -> Residual {
        let mut trie = Trie::new();
        trie.add(&test.path, 0, Numbers::Exact);
        Residual {
            ty: None,
            test: JsonTest::new(test),
            trie,
        }
    }

    /// True if such a value in a record with this body satisfies the test.
    pub fn holds(&self, body: &[u8]) -> bool {
        let walk = |body: &[u8]| {
            let mut look = Look {
                residual: self,
                holds: false,
                is_repeated: false,
            };
            let mut input = serde_json::Deserializer::from_slice(body);
            let walked = self.trie.walk(&mut input, Rest::Skipped, &mut look);
            (look.holds && walked.is_ok(), look.is_repeated)
        };
        match walk(body) {
            (_, true) => {
                let text = std::str::from_utf8(body).ok();
                let text = text.and_then(without_repeated_names);
                text.is_some_and(|text| walk(text.as_bytes()).0)
            }
            (holds, false) => holds,
        }
    }
}

struct Look<'r> {
    residual: &'r Residual,
    holds: bool,
    is_repeated: bool,
}

impl Look<'_> {
    fn see(&mut self, found: Found<'_>, is_element: bool) {
        let Residual { ty, test, .. } = self.residual;
        if ty.is_none_or(|ty| ty == Type::Float || !fits(ty, found)) {
            self.holds |= test.accepts(found, is_element);
        }
    }
}

impl Sink for Look<'_> {
    fn found(&mut self, _: &[u32], found: Found<'_>) -> ControlFlow<()> {
        self.see(found, false);
        ControlFlow::Continue(())
    }

    fn element(&mut self, _: &[u32], found: Found<'_>) -> ControlFlow<()> {
        self.see(found, true);
        ControlFlow::Continue(())
    }

    fn repeated(&mut self) -> ControlFlow<()> {
        self.is_repeated = true;
        ControlFlow::Break(())
    }
}

/// The evaluation of a test on JSON values.
#[derive(Debug, Clone)]
struct JsonTest(Vec<JsonPredicate>);

#[derive(Debug, Clone)]
enum JsonPredicate {
    Compare(Op, JsonOperand),
    Contains(JsonOperand),
    In(AnyOf),
    Exists,
    /// A point in an area: not tested one value at a time, see [`JsonArea`].
    Never,
}

/// The forms of an operand for JSON values of each type.
#[derive(Debug, Clone, Default)]
struct JsonOperand {
    number: Option<Number>,
    text: Option<String>,
    truth: Option<bool>,
    time: Option<i64>,
}

/// Operands of which a value has to equal one, however many they are.
#[derive(Debug, Clone)]
struct AnyOf {
    all: Vec<JsonOperand>,
    /// The whole numbers and the texts among them, each in order.
    ints: Vec<i128>,
    texts: Vec<String>,
    /// Those that whole numbers or texts are compared with in another way: times, and numbers with
    /// a fraction.
    others: Vec<JsonOperand>,
}

impl AnyOf {
    fn new(all: Vec<JsonOperand>) -> AnyOf {
        let (mut ints, mut texts, mut others) = (Vec::new(), Vec::new(), Vec::new());
        for operand in &all {
            match (operand.time, &operand.number) {
                (None, Some(Number::Int(v))) => ints.push(*v),
                (None, None) => {}
                _ => others.push(operand.clone()),
            }
            if operand.time.is_none() {
                texts.extend(operand.text.clone());
            }
        }
        ints.sort_unstable();
        texts.sort_unstable();
        AnyOf {
            all,
            ints,
            texts,
            others,
        }
    }

    fn accepts(&self, found: Found<'_>) -> bool {
        let equals = |operand: &JsonOperand| operand.order(found).is_some_and(Ordering::is_eq);
        match found {
            Found::Int(v) => self.ints.binary_search(&v).is_ok() || self.others.iter().any(equals),
            Found::Str(v) => {
                let is_among = self
                    .texts
                    .binary_search_by(|text| text.as_str().cmp(v))
                    .is_ok();
                is_among || self.others.iter().any(equals)
            }
            _ => self.all.iter().any(equals),
        }
    }
}

impl JsonTest {
    fn new(test: &Test) -> JsonTest {
        let each = test.predicates.iter().map(|predicate| match predicate {
            Predicate::Compare(op, operand) => JsonPredicate::Compare(*op, operand.into()),
            Predicate::In(operands) => {
                JsonPredicate::In(AnyOf::new(operands.iter().map(JsonOperand::from).collect()))
            }
            Predicate::Contains(operand) => JsonPredicate::Contains(operand.into()),
            Predicate::Exists => JsonPredicate::Exists,
            Predicate::Within(_) => JsonPredicate::Never,
        });
        JsonTest(each.collect())
    }

    /// Floats are compared with numbers and times only.
    fn numbers(&self) -> Numbers {
        let compared = |operand: &JsonOperand| operand.number.is_some() || operand.time.is_some();
        let exact = self.0.iter().any(|predicate| match predicate {
            JsonPredicate::Compare(_, operand) | JsonPredicate::Contains(operand) => {
                compared(operand)
            }
            JsonPredicate::In(any) => any.all.iter().any(compared),
            JsonPredicate::Exists | JsonPredicate::Never => false,
        });
        if exact {
            Numbers::Exact
        } else {
            Numbers::Parsed
        }
    }

    /// Reads text in quotes as text without them, as the operands of declared attributes are read.
    fn read_quoted(&mut self) {
        let read = |operand: &mut JsonOperand| {
            if let (Some(text), None) = (&operand.text, &operand.number) {
                operand.number = Number::parse(text);
            }
        };
        for predicate in &mut self.0 {
            match predicate {
                JsonPredicate::Compare(_, operand) | JsonPredicate::Contains(operand) => {
                    read(operand);
                }
                JsonPredicate::In(any) => {
                    let mut all = std::mem::take(&mut any.all);
                    all.iter_mut().for_each(read);
                    *any = AnyOf::new(all);
                }
                JsonPredicate::Exists | JsonPredicate::Never => {}
            }
        }
    }

    fn accepts(&self, found: Found<'_>, is_element: bool) -> bool {
        !matches!(found, Found::Null)
            && (self.0.iter()).all(|predicate| predicate.accepts(found, is_element))
    }
}

impl JsonPredicate {
    fn accepts(&self, found: Found<'_>, is_element: bool) -> bool {
        match self {
            JsonPredicate::Exists => true,
            JsonPredicate::Never => false,
            JsonPredicate::Contains(operand) => match (found, &operand.text) {
                (Found::Str(v), Some(part)) if !is_element => v.contains(part),
                _ => operand.order(found).is_some_and(Ordering::is_eq),
            },
            JsonPredicate::In(any) => any.accepts(found),
            JsonPredicate::Compare(Op::Prefix, operand) => match (found, &operand.text) {
                (Found::Str(v), Some(text)) => v.starts_with(text),
                _ => false,
            },
            JsonPredicate::Compare(op, operand) => {
                let order = operand.order(found);
                match op {
                    Op::Ne => order != Some(Ordering::Equal),
                    Op::Eq => order.is_some_and(Ordering::is_eq),
                    Op::Ge => order.is_some_and(Ordering::is_ge),
                    Op::Le => order.is_some_and(Ordering::is_le),
                    Op::Gt => order.is_some_and(Ordering::is_gt),
                    Op::Lt => order.is_some_and(Ordering::is_lt),
                    Op::Prefix => false,
                }
            }
        }
    }
}

impl From<&Operand> for JsonOperand {
    fn from(operand: &Operand) -> JsonOperand {
        let mut made = JsonOperand::default();
        match operand {
            Operand::Text(text) => {
                made.number = Number::parse(text);
                made.truth = text.parse().ok();
                made.text = Some(text.clone());
            }
            Operand::Value(Value::String(text)) => made.text = Some(text.clone()),
            Operand::Value(Value::Int(v)) => made.number = Some(Number::Int(*v)),
            Operand::Value(Value::Float(v)) => made.number = Some(Number::Float(*v)),
            Operand::Value(Value::Bool(v)) => made.truth = Some(*v),
            Operand::Value(Value::Time(v)) => made.time = Some(*v),
            Operand::Value(Value::Point(..) | Value::PointTime(..)) => {}
        }
        made
    }
}

impl JsonOperand {
    /// Compares a value with the operand; `None` when they are not comparable.
    fn order(&self, found: Found<'_>) -> Option<Ordering> {
        if let Some(time) = self.time {
            return Some(time_of(Type::Time, found)?.0.cmp(&time));
        }
        match found {
            Found::Str(v) => Some(v.cmp(self.text.as_deref()?)),
            Found::Bool(v) => Some(v.cmp(&self.truth?)),
            Found::Int(_) | Found::Float(_) | Found::Long(..) => {
                let number = self.number.as_ref()?;
                Number::found(found)?.compare(number)
            }
            Found::Null | Found::Object => None,
        }
    }
}
