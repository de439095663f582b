//! Conditions on records: comparisons of the values at a path, joined by and, or and not. Programs
//! build them (`field("user.name").eq("ann") & !field("tags").contains("new")`), people write them
//! (`user.name = ann and not tags contains new`); both give an [`Expr`].
//!
//! ```text
//! condition := all ("or" all)*
//! all       := one ("and" one)*
//! one       := "not" one | "(" condition ")" | test
//! test      := PATH ("=" | "!=" | "<" | "<=" | ">" | ">=" | "^=") VALUE
//!            | PATH "contains" VALUE
//!            | PATH ("=" | "!=") "null"
//!            | PATH ["not"] "in" "(" [VALUE ("," VALUE)*] ")"
//!            | PATH "exists" | PATH "is" ["not"] "null"
//!            | "within" "(" POINT "," AREA ")"
//! POINT     := PATH of a GeoJSON point or of an array of two numbers
//!            | PATH "," PATH of longitude and latitude
//! AREA      := "rect(WEST,SOUTH,EAST,NORTH)" | "circle(LON,LAT,METRES)"
//!            | "polygon([[LON,LAT],...])"
//!            | "polygon(" GeoJSON ")"
//! PATH      := names joined by dots | the same in quotes
//! VALUE     := text up to a blank or ")" (in a list also ",") | text in quotes
//!            | "now" | "now-1h" | "now+1d12h"
//!            (behind `<`, `<=`, `>`, `>=`; units: w, d, h, m, s, ms)
//!            | int(N) | float(N) | bool(B) | time(T) | point(X,Y) | plane(X,Y) | text(T)
//! ```
//!
//! Keywords may be in capitals. In quotes, `\"` is the quote and `\\` a backslash. A path that is a
//! keyword or contains a blank, a bracket or a quote is quoted; a backslash before an operator in a
//! path makes it a part of the name.
//!
//! # When a condition holds
//!
//! Two truth values, no third. A path reaches the elements of arrays on it, at its end too, one by
//! one. Nulls count as absent, so an empty array, and an array of nulls, are absent values, too.
//! - `exists` holds where there is a value, `is null` where there is none.
//! - A comparison holds when it holds for some value at the path. So each, including `!=`, is false
//!   where there is none, and `a = 1 and a = 2` finds arrays that contain both. `in` is `=` with
//!   one of several.
//! - `contains` is `=` for the elements of an array and for values that are no text; text that is
//!   not in an array contains its parts.
//! - `= null` is `is null`, `!= null` is `exists`, and `null` in a list of `in` stands for `is
//!   null`, too. The text is quoted: `"null"`.
//! - `within` holds where there is a point, and it lies in the area or on its border. A point is a
//!   place of its own: where there is an array of several, there is none.
//! - Bounds (`<`, `<=`, `>`, `>=`) on one path in one chain of `and`, grouped by brackets or not,
//!   form one range: they must hold for one value together. `n > 3 and n < 5` does not find `[1,
//!   9]`.
//! - `not` negates the result: `not a = 1` finds the records without `a`, `a != 1` does not. Bounds
//!   that are negated, twice too, are no part of a range: `n > 3 and not (not n < 5)` finds `[1,
//!   9]`.
//!
//! # Types in comparisons
//!
//! An operand has a type (from a program, or written `int(5)`), or is text in quotes (from a
//! program: a string), or text without quotes, which takes the type of the value it is compared
//! with.
//!
//! Where the path is not declared, the type is that of each JSON value:
//!
//! | operand | number | string | bool | object |
//! | --- | --- | --- | --- | --- |
//! | text without quotes | if it is a number | as text | if `true` or `false` | never |
//! | text in quotes, string | never | as text | never | never |
//! | int, float | exactly, across the two types | never | never | never |
//! | bool | never | never | yes | never |
//! | time | as seconds since 1970 | if it is a [time](crate::schema::Type::Time) | never | never |
//!
//! Numbers in records and in text without quotes are compared by their values, whatever their
//! length: `n = 0.1` finds `0.10` and `1e-1`, and of two numbers of thirty digits that differ in
//! the last one only the one that is asked for. A float of a program is compared with the float
//! nearest to the number in the record, and exactly with integers of 64 bits.
//!
//! "Never" means that `=`, the bounds and `^=` are false. `!=` holds for each value for which `=`
//! does not, of any type. Text is ordered by code points. `^=` is for text only.
//!
//! Where the path is declared, all values have the declared type, and an operand that is not
//! comparable with it is an error of the query:
//!
//! | operand | int | float | string | bool | time |
//! | --- | --- | --- | --- | --- | --- |
//! | text, string | by value | by value | text | `true`, `false` | text of a time, or a number |
//! | int | exactly | exactly | error | error | a number |
//! | float | exactly | yes | error | error | a number |
//! | bool | error | error | error | yes | error |
//! | time | error | error | error | error | exactly |
//!
//! Text may be quoted or not. An operand that no integer equals keeps its meaning: `n < 2.5` is
//! `n <= 2`. A number is a time in the unit of the declared type.

mod area;
mod build;
mod display;
mod expr;
mod filter;
mod number;
mod operand;
mod parse;
mod ranges;
mod words;

pub use area::AreaExpr;
pub use build::{Field, field};
pub use expr::{Expr, MAX_DEPTH, Op, Predicate};
pub use filter::{Filter, Formula, Residual, Test};
pub use operand::Operand;
pub use parse::ParseError;

#[cfg(test)]
mod tests;
