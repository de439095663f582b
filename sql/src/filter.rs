//! Conditions of SQL as conditions of a dataset, where both mean the same.
//!
//! SQL knows three truth values, and a dataset two. They agree on which records are in the answer
//! for a comparison of a field with a literal if the field has values of one type alone, which are
//! not in arrays, and if the dataset does not declare the field with a type that compares in
//! another way: an absent value, or null, then meets neither. `and` and `or` of such agree, too.
//! `not` is passed on with `exists` beside it, since SQL's negation of what is unknown is unknown.
//! What does not agree is left to DataFusion.
//!
//! Comparisons of times in text are passed on as well, where the dataset declares the field as a
//! time, but for a wider range: then DataFusion tests the records that are found once more. Not in
//! the zone of a session: there SQL reads a text without an offset as another time than a dataset,
//! which takes UTC.

use datafusion::arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::{BinaryExpr, Expr as Sql, Operator};
use esker::schema::{IndexDef, Tokenizer};
use esker::{DatasetDef, Expr, Op, Operand, Path, Predicate, Type, Value};

use crate::columns::{Column, Shape};

/// Integers below it are exact as floats.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// By how much a range of times is widened, in microseconds: more than any rounding of either side.
const SECOND: i64 = 1_000_000;

/// What conditions refer to.
pub(crate) struct Dataset<'t> {
    pub(crate) columns: &'t [Column],
    pub(crate) def: &'t DatasetDef,
}

/// A condition of a dataset for one of SQL.
pub(crate) struct Pushed {
    pub(crate) condition: Expr,
    /// Whether it finds the same records, or others, too.
    pub(crate) is_exact: bool,
}

impl Dataset<'_> {
    /// The condition of the dataset for one of SQL; `None` if there is none.
    pub(crate) fn pushed(&self, sql: &Sql) -> Option<Pushed> {
        let exact = self.condition(sql).map(|condition| (condition, true));
        let (condition, is_exact) = exact.or_else(|| Some((self.time_range(sql)?, false)))?;
        condition.check().is_ok().then_some(Pushed {
            condition,
            is_exact,
        })
    }

    /// The condition of the dataset that finds the same records.
    fn condition(&self, sql: &Sql) -> Option<Expr> {
        match sql {
            Sql::BinaryExpr(BinaryExpr { left, op, right }) => match op {
                Operator::And => Some(self.condition(left)? & self.condition(right)?),
                Operator::Or => Some(self.condition(left)? | self.condition(right)?),
                _ => match (&**left, &**right) {
                    (field, Sql::Literal(value, _)) => self.comparison(field, of(*op)?, value),
                    (Sql::Literal(value, _), field) => {
                        self.comparison(field, turned(of(*op)?)?, value)
                    }
                    _ => None,
                },
            },
            Sql::Between(between) if !between.negated => {
                let (Sql::Literal(low, _), Sql::Literal(high, _)) = (&*between.low, &*between.high)
                else {
                    return None;
                };
                let low = self.comparison(&between.expr, Op::Ge, low)?;
                Some(low & self.comparison(&between.expr, Op::Le, high)?)
            }
            Sql::InList(list) => {
                let (path, shape) = self.simple(&list.expr)?;
                let operands = list.list.iter().map(|value| match value {
                    Sql::Literal(value, _) => operand(&shape, value),
                    _ => None,
                });
                let operands = operands.collect::<Option<Vec<Operand>>>()?;
                Some(unless(list.negated, path, Predicate::In(operands)))
            }
            Sql::Like(like) if !like.case_insensitive => {
                let (path, shape) = self.simple(&like.expr)?;
                let Sql::Literal(pattern, _) = &*like.pattern else {
                    return None;
                };
                let prefix = text_of(pattern)?.strip_suffix('%')?;
                let is_plain = !prefix.contains(['%', '_', '\\']) && like.escape_char.is_none();
                let test = Predicate::Compare(Op::Prefix, Operand::from(prefix));
                (is_plain && shape == Shape::Text).then(|| unless(like.negated, path, test))
            }
            Sql::IsNotNull(field) => {
                let (path, _) = self.simple(field)?;
                Some(Expr::test(path, Predicate::Exists))
            }
            Sql::IsNull(field) => {
                let (path, _) = self.simple(field)?;
                Some(!Expr::test(path, Predicate::Exists))
            }
            Sql::IsTrue(field) => self.is(field, true),
            Sql::IsFalse(field) => self.is(field, false),
            Sql::Not(field) => self.is(field, false),
            Sql::Column(_) => self.is(sql, true),
            Sql::ScalarFunction(call) => match (call.func.name(), call.args.as_slice()) {
                ("get_field", _) => self.is(sql, true),
                ("array_has", [list, Sql::Literal(value, _)]) => self.element(list, value),
                _ => None,
            },
            _ => None,
        }
    }

    /// A field of booleans that is this one.
    fn is(&self, field: &Sql, value: bool) -> Option<Expr> {
        let (path, shape) = self.simple(field)?;
        (shape == Shape::Bool).then(|| Expr::compare(path, Op::Eq, value))
    }

    /// An array that has the element.
    fn element(&self, list: &Sql, value: &ScalarValue) -> Option<Expr> {
        let (path, shape) = self.field(list)?;
        let Shape::List(element) = shape else {
            return None;
        };
        let is_same = is_simple(&element) && self.is_declared_so(&path, &element);
        let operand = operand(&element, value)?;
        is_same.then(|| Expr::compare(path, Op::Eq, operand))
    }

    fn comparison(&self, field: &Sql, op: Op, value: &ScalarValue) -> Option<Expr> {
        // Integers that are compared with a fraction: as exact as they are as floats.
        if let Sql::Cast(cast) = field
            && *cast.field.data_type() == DataType::Float64
            && let ScalarValue::Float64(Some(value)) = value
            && value.abs() < EXACT
        {
            let (path, shape) = self.simple(&cast.expr)?;
            // A dataset rounds the fraction of a time to microseconds.
            let is_time = self.index(&path).is_some_and(|index| index.ty.is_time());
            let is_exact = shape == Shape::Int && !is_time;
            return is_exact.then(|| Expr::compare(path, op, *value));
        }
        let (path, shape) = self.simple(field)?;
        // Booleans have no order in a dataset.
        if shape == Shape::Bool && op != Op::Eq && op != Op::Ne {
            return None;
        }
        Some(Expr::compare(path, op, operand(&shape, value)?))
    }

    /// The path and the shape of a field whose values compare as in SQL.
    fn simple(&self, sql: &Sql) -> Option<(Path, Shape)> {
        let (path, shape) = self.field(sql)?;
        (is_simple(&shape) && self.is_declared_so(&path, &shape)).then_some((path, shape))
    }

    /// The path and the shape of a column, or of a field of a struct.
    fn field(&self, sql: &Sql) -> Option<(Path, Shape)> {
        let column = self.column(sql)?;
        Some((path_of(&column)?, column.shape))
    }

    fn column(&self, sql: &Sql) -> Option<Column> {
        match sql {
            Sql::Column(column) => {
                let named = |known: &&Column| known.name == column.name;
                self.columns.iter().find(named).cloned()
            }
            // `get_field(get_field(column, 'a'), 'b')`, or with several names in one call.
            Sql::ScalarFunction(call) if call.func.name() == "get_field" => {
                let (of, names) = call.args.split_first()?;
                names
                    .iter()
                    .try_fold(self.column(of)?, |column, name| match name {
                        Sql::Literal(name, _) => column.field(text_of(name)?),
                        _ => None,
                    })
            }
            _ => None,
        }
    }

    /// The path of a column whose values are ordered as in SQL.
    pub(crate) fn ordered(&self, column: &Column) -> Option<Path> {
        let path = path_of(column)?;
        let is_same = is_simple(&column.shape) && self.is_declared_so(&path, &column.shape);
        is_same.then_some(path)
    }

    /// The declaration of the values at the path.
    fn index(&self, path: &Path) -> Option<&IndexDef> {
        self.def.indexes.iter().find(|index| index.path == *path)
    }

    /// False if the dataset compares the values at the path in another way than SQL.
    fn is_declared_so(&self, path: &Path, shape: &Shape) -> bool {
        self.index(path).is_none_or(|index| {
            let same = match (shape, index.ty) {
                (Shape::Bool, Type::Bool)
                | (Shape::Text, Type::String)
                | (Shape::Int, Type::Int)
                | (Shape::Float { .. }, Type::Float) => true,
                // A number is a time in the unit of the type. Nanoseconds would be rounded, and a
                // lenient index also has numbers that are no time, which a dataset does not order
                // among the times.
                (Shape::Int, Type::Time | Type::TimeS | Type::TimeMs | Type::TimeUs) => {
                    !index.lenient
                }
                _ => false,
            };
            same && index.tokenizer == Tokenizer::default()
        })
    }

    /// For a comparison of a time in text, a range that has all records that meet it.
    fn time_range(&self, sql: &Sql) -> Option<Expr> {
        match sql {
            Sql::BinaryExpr(BinaryExpr { left, op, right }) => match op {
                Operator::And => match (self.time_range(left), self.time_range(right)) {
                    (Some(left), Some(right)) => Some(left & right),
                    (one, other) => one.or(other),
                },
                _ => match (&**left, &**right) {
                    (field, Sql::Literal(value, _)) => self.around(field, of(*op)?, value),
                    (Sql::Literal(value, _), field) => self.around(field, turned(of(*op)?)?, value),
                    _ => None,
                },
            },
            Sql::Between(between) if !between.negated => {
                let (Sql::Literal(low, _), Sql::Literal(high, _)) = (&*between.low, &*between.high)
                else {
                    return None;
                };
                let low = self.around(&between.expr, Op::Ge, low)?;
                Some(low & self.around(&between.expr, Op::Le, high)?)
            }
            _ => None,
        }
    }

    fn around(&self, field: &Sql, op: Op, value: &ScalarValue) -> Option<Expr> {
        let field = match field {
            Sql::Cast(cast) if is_without_zone(cast.field.data_type()) => &cast.expr,
            Sql::ScalarFunction(call) if call.func.name() == "to_timestamp" => {
                let [field] = call.args.as_slice() else {
                    return None;
                };
                // It has the zone of the session, if that has one.
                let time = call.func.return_type(&[DataType::Utf8]).ok()?;
                is_without_zone(&time).then_some(field)?
            }
            _ => return None,
        };
        let (path, shape) = self.field(field)?;
        let index = self.index(&path)?;
        // A lenient index also has text that only SQL reads as a time.
        if shape != Shape::Text || !index.ty.is_time() || index.lenient {
            return None;
        }
        let micros = micros_of(value)?;
        let bound = |op, micros: Option<i64>| {
            let time = Operand::Value(Value::Time(micros?));
            Some(Expr::compare(path.clone(), op, time))
        };
        match op {
            Op::Ge | Op::Gt => bound(Op::Ge, micros.checked_sub(SECOND)),
            Op::Le | Op::Lt => bound(Op::Le, micros.checked_add(SECOND)),
            Op::Eq => {
                let from = bound(Op::Ge, micros.checked_sub(SECOND))?;
                Some(from & bound(Op::Le, micros.checked_add(SECOND))?)
            }
            _ => None,
        }
    }
}

/// True for a type of times that are not of a zone.
fn is_without_zone(of: &DataType) -> bool {
    matches!(of, DataType::Timestamp(_, None))
}

/// True for values that are compared one by one.
fn is_simple(shape: &Shape) -> bool {
    matches!(
        shape,
        Shape::Bool | Shape::Int | Shape::Float { .. } | Shape::Text
    )
}

/// The test of a value at the path, or that there is one which does not meet it.
fn unless(negated: bool, path: Path, test: Predicate) -> Expr {
    let meets = Expr::test(path.clone(), test);
    if negated {
        Expr::test(path, Predicate::Exists) & !meets
    } else {
        meets
    }
}

/// The path of a column; `None` if a dataset cannot name it.
fn path_of(column: &Column) -> Option<Path> {
    let names = column.path.iter().map(|name| escaped(name));
    let names = names.collect::<Option<Vec<String>>>()?;
    names.join(".").parse().ok()
}

/// A name as part of a path; `None` if it cannot be one.
fn escaped(name: &str) -> Option<String> {
    let mut text = String::with_capacity(name.len());
    for c in name.chars() {
        if ".\\=<>^".contains(c) {
            text.push('\\');
        }
        text.push(c);
    }
    // Such paths may be of several fields.
    (!name.is_empty() && !name.contains([',', '@'])).then_some(text)
}

fn of(op: Operator) -> Option<Op> {
    Some(match op {
        Operator::Eq => Op::Eq,
        Operator::NotEq => Op::Ne,
        Operator::Gt => Op::Gt,
        Operator::GtEq => Op::Ge,
        Operator::Lt => Op::Lt,
        Operator::LtEq => Op::Le,
        _ => return None,
    })
}

/// The operator with its sides exchanged.
fn turned(op: Op) -> Option<Op> {
    Some(match op {
        Op::Eq | Op::Ne => op,
        Op::Gt => Op::Lt,
        Op::Ge => Op::Le,
        Op::Lt => Op::Gt,
        Op::Le => Op::Ge,
        _ => return None,
    })
}

/// The text of a literal.
pub(crate) fn text_of(value: &ScalarValue) -> Option<&str> {
    match value {
        ScalarValue::Utf8(text) | ScalarValue::Utf8View(text) | ScalarValue::LargeUtf8(text) => {
            text.as_deref()
        }
        _ => None,
    }
}

/// A time in microseconds, rounded down. A time of a zone would be that of its clocks.
fn micros_of(value: &ScalarValue) -> Option<i64> {
    if matches!(value.data_type(), DataType::Timestamp(_, Some(_))) {
        return None;
    }
    match value
        .cast_to(&DataType::Timestamp(TimeUnit::Nanosecond, None))
        .ok()?
    {
        ScalarValue::TimestampNanosecond(nanos, _) => Some(nanos?.div_euclid(1000)),
        _ => None,
    }
}

/// A literal of the column's own type.
fn operand(shape: &Shape, value: &ScalarValue) -> Option<Operand> {
    Some(match (shape, value) {
        (Shape::Bool, ScalarValue::Boolean(Some(value))) => Operand::from(*value),
        (Shape::Int, ScalarValue::Int64(Some(value))) => Operand::from(*value),
        // SQL compares integers with a float as floats: the same where it is small enough.
        (Shape::Float { ints }, ScalarValue::Float64(Some(value)))
            if value.is_finite() && (!ints || value.abs() < EXACT) =>
        {
            Operand::from(*value)
        }
        (Shape::Text, value) => Operand::from(text_of(value)?),
        _ => return None,
    })
}
