//! The text of conditions, which parses back to them.

use std::fmt::{self, Display, Formatter};

use super::expr::Node;
use super::words::{is_keyword, quoted, relative_time, typed_name};
use super::{Expr, Operand, Predicate};
use crate::schema::{Path, Value, coordinate_paths};

impl Display for Expr {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.node {
            Node::Test(path, predicate) => test(f, path, predicate),
            Node::And(all) => joined(f, all, " and ", |part| matches!(part.node, Node::Or(_))),
            Node::Or(any) => joined(f, any, " or ", |_| false),
            Node::Not(inner) => match &inner.node {
                Node::Test(path, Predicate::Exists) => {
                    write_path(f, path)?;
                    f.write_str(" is null")
                }
                Node::And(_) | Node::Or(_) => write!(f, "not ({inner})"),
                _ => write!(f, "not {inner}"),
            },
            Node::Invalid(why) => write!(f, "<{why}>"),
        }
    }
}

fn joined(
    f: &mut Formatter<'_>,
    parts: &[Expr],
    word: &str,
    in_brackets: fn(&Expr) -> bool,
) -> fmt::Result {
    for (i, part) in parts.iter().enumerate() {
        if i > 0 {
            f.write_str(word)?;
        }
        if in_brackets(part) {
            write!(f, "({part})")?;
        } else {
            write!(f, "{part}")?;
        }
    }
    Ok(())
}

fn test(f: &mut Formatter<'_>, path: &Path, predicate: &Predicate) -> fmt::Result {
    if let Predicate::Within(area) = predicate {
        f.write_str("within(")?;
        match coordinate_paths(path).as_deref() {
            Ok([x, y]) => {
                write_path(f, x)?;
                f.write_str(",")?;
                write_path(f, y)?;
            }
            _ => write_path(f, path)?,
        }
        return write!(f, ", {area})");
    }
    write_path(f, path)?;
    match predicate {
        Predicate::Compare(op, Operand::Text(text)) if is_plain(text) => write!(f, " {op} {text}"),
        Predicate::Compare(op, operand) => write!(f, " {op} {operand}"),
        Predicate::Contains(operand) => write!(f, " contains {operand}"),
        Predicate::In(operands) => {
            f.write_str(" in (")?;
            for (i, operand) in operands.iter().enumerate() {
                if i > 0 {
                    f.write_str(", ")?;
                }
                write!(f, "{operand}")?;
            }
            f.write_str(")")
        }
        Predicate::Exists | Predicate::Within(_) => f.write_str(" exists"),
    }
}

/// Writes a path, quoted where it would end too early or mean something else.
fn write_path(f: &mut Formatter<'_>, path: &Path) -> fmt::Result {
    let text = path.to_string();
    let plain =
        !is_keyword(&text) && !text.contains(|c: char| c.is_whitespace() || "()\"'!,".contains(c));
    if plain {
        f.write_str(&text)
    } else {
        quoted(f, &text)
    }
}

impl Display for Operand {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Operand::Value(Value::String(text)) => quoted(f, text),
            Operand::Value(value) => write!(f, "{}({value})", value.type_of()),
            Operand::Text(text) if is_plain(text) && !text.contains(',') => f.write_str(text),
            Operand::Text(text) => {
                f.write_str("text(")?;
                quoted(f, text)?;
                f.write_str(")")
            }
        }
    }
}

/// True when the text needs no quotes, after a blank and outside of a list.
fn is_plain(text: &str) -> bool {
    !text.is_empty()
        && !text.contains(|c: char| c.is_whitespace() || c == ')')
        && !text.starts_with(['"', '\'', '(', '='])
        && typed_name(text).is_none()
        // These would mean something else.
        && !text.eq_ignore_ascii_case("null")
        && relative_time(text).is_none()
}
