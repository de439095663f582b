//! The parser of conditions in text form: recursive descent over characters.

use std::fmt;
use std::str::FromStr;

use super::words::{quoted, relative_time, typed_name};
use super::{AreaExpr, Expr, MAX_DEPTH, Op, Operand, Predicate};
use crate::error::Error;
use crate::schema::{Path, Type, Value};

/// A syntax error in a condition, and its position.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ParseError {
    /// The condition.
    pub text: String,
    /// The column at which parsing stopped, counted from 1.
    pub column: usize,
    /// What was expected there, or the error.
    pub what: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ParseError { text, column, what } = self;
        write!(f, "condition `{text}`, column {column}: {what}")
    }
}

impl std::error::Error for ParseError {}

impl From<ParseError> for Error {
    fn from(error: ParseError) -> Error {
        Error::bad_input(error.to_string())
    }
}

impl FromStr for Expr {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Expr, ParseError> {
        let mut parser = Parser { text, at: 0 };
        let read = parser.any(0).and_then(|expr| {
            if parser.skip_blanks().is_empty() {
                // Brackets and `not` are counted during parsing; the tree has its own bound.
                return match expr.check() {
                    Ok(()) => Ok(expr),
                    Err(why) => Err(parser.error(why)),
                };
            }
            Err(parser.expected("`and`, `or` or the end"))
        });
        read.map_err(|Wrong { at, what }| ParseError {
            text: text.to_owned(),
            column: text.get(..at).unwrap_or(text).chars().count() + 1,
            what,
        })
    }
}

/// An area as conditions have it: `rect(W,S,E,N)`, `circle(LON,LAT,METRES)` or `polygon(...)`; or a
/// GeoJSON text.
impl FromStr for AreaExpr {
    type Err = Error;

    fn from_str(text: &str) -> Result<AreaExpr, Error> {
        let text = text.trim();
        if text.starts_with('{') {
            return Ok(AreaExpr::geojson(text));
        }
        // A condition names the column of an error; its other parts would be no area.
        let condition: Expr = format!("within(at, {text})").parse()?;
        match condition.tests().as_slice() {
            [(_, Predicate::Within(area))] if condition.needs_all_tests() => Ok(area.clone()),
            _ => Err(Error::bad_input(format!(
                "area `{text}`: give rect(W,S,E,N), circle(LON,LAT,METRES), polygon(...) or GeoJSON"
            ))),
        }
    }
}

fn is_null(text: &str) -> bool {
    text.eq_ignore_ascii_case("null")
}

/// An error at a byte of the text.
struct Wrong {
    at: usize,
    what: String,
}

type Parsed<T> = Result<T, Wrong>;

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Parser<'a> {
    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn skip_blanks(&mut self) -> &'a str {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start().len();
        self.rest()
    }

    fn error(&self, what: impl Into<String>) -> Wrong {
        Wrong {
            at: self.at,
            what: what.into(),
        }
    }

    /// An error that names the text found at the current position.
    fn expected(&self, what: &str) -> Wrong {
        let rest = self.rest().trim_start();
        match rest.split_whitespace().next() {
            Some(word) => self.error(format!("expected {what}, found `{word}`")),
            None => self.error(format!("expected {what}, found the end")),
        }
    }

    /// Consumes the symbol, if it is next.
    fn take(&mut self, symbol: &str) -> bool {
        let found = self.rest().starts_with(symbol);
        if found {
            self.at += symbol.len();
        }
        found
    }

    /// The next word: up to a blank, a bracket, a comma, a quote or an operator.
    fn word(&self) -> &'a str {
        let rest = self.rest();
        let end = rest.find(|c: char| c.is_whitespace() || "()=<>!^,\"'".contains(c));
        rest.get(..end.unwrap_or(rest.len())).unwrap_or_default()
    }

    /// Consumes the keyword, if it is next.
    fn keyword(&mut self, keyword: &str) -> bool {
        self.skip_blanks();
        let word = self.word();
        let found = word.eq_ignore_ascii_case(keyword);
        if found {
            self.at += word.len();
        }
        found
    }

    /// The next operator.
    fn operator(&self) -> Option<Op> {
        let rest = self.rest();
        Op::ALL.into_iter().find(|op| rest.starts_with(op.symbol()))
    }

    fn any(&mut self, depth: usize) -> Parsed<Expr> {
        let mut expr = self.all(depth)?;
        while self.keyword("or") {
            expr = expr | self.all(depth)?;
        }
        Ok(expr)
    }

    fn all(&mut self, depth: usize) -> Parsed<Expr> {
        let mut expr = self.one(depth)?;
        while self.keyword("and") {
            expr = expr & self.one(depth)?;
        }
        Ok(expr)
    }

    fn one(&mut self, depth: usize) -> Parsed<Expr> {
        if depth > MAX_DEPTH {
            return Err(self.error(format!(
                "the condition has more than {MAX_DEPTH} levels of `and`, `or`, `not` and brackets"
            )));
        }
        self.skip_blanks();
        if self.take("(") {
            let inner = self.any(depth + 1)?;
            self.skip_blanks();
            if !self.take(")") {
                return Err(self.expected("`)`, `and` or `or`"));
            }
            return Ok(inner);
        }
        let start = self.at;
        if self.keyword("not") {
            self.skip_blanks();
            if self.operator().is_none() {
                return Ok(!self.one(depth + 1)?);
            }
            // A field of that name.
            self.at = start;
        }
        self.test()
    }

    /// What stands behind `within(`.
    fn within(&mut self) -> Parsed<Expr> {
        let start = self.at;
        let mut path = self.path()?;
        loop {
            self.skip_blanks();
            if !self.take(",") {
                return Err(self.expected("`,` and an area"));
            }
            self.skip_blanks();
            let name = self.word();
            if matches!(name, "rect" | "circle" | "polygon")
                && self
                    .rest()
                    .get(name.len()..)
                    .is_some_and(|r| r.starts_with('('))
            {
                self.at += name.len() + 1;
                let begin = self.at;
                let text = self.in_brackets()?;
                let wrong = |error: Error| Wrong {
                    at: begin,
                    what: error.to_string(),
                };
                let area = AreaExpr::parse(name, text).map_err(wrong)?;
                self.skip_blanks();
                if !self.take(")") {
                    return Err(self.expected("`)`"));
                }
                return Ok(Expr::test(path, Predicate::Within(area)));
            }
            let second = self.path().map_err(|_| {
                self.expected("rect(...), circle(...), polygon(...), or the path of the latitude")
            })?;
            let both = format!("{path},{second}");
            path = Path::parse(&both).map_err(|what| Wrong { at: start, what })?;
        }
    }

    /// The text up to the bracket that closes the one before it, which is consumed.
    fn in_brackets(&mut self) -> Parsed<&'a str> {
        let (start, mut open, mut quoted, mut escaped) = (self.at, 1, false, false);
        for (at, c) in self.rest().char_indices() {
            match c {
                _ if escaped => escaped = false,
                '\\' if quoted => escaped = true,
                '"' => quoted = !quoted,
                '(' if !quoted => open += 1,
                ')' if !quoted => open -= 1,
                _ => {}
            }
            if open == 0 {
                self.at = start + at + 1;
                return Ok(self.text.get(start..start + at).unwrap_or_default());
            }
        }
        Err(self.error("a bracket is not closed"))
    }

    fn test(&mut self) -> Parsed<Expr> {
        let start = self.at;
        let word = self.word();
        if word.eq_ignore_ascii_case("within")
            && self
                .rest()
                .get(word.len()..)
                .is_some_and(|r| r.starts_with('('))
        {
            self.at += word.len() + 1;
            self.skip_blanks();
            return self.within();
        }
        let path = self.path()?;
        self.skip_blanks();
        if let Some(op) = self.operator() {
            self.at += op.symbol().len();
            let value = self.at;
            // As other languages write it; it would find nothing, silently.
            if op == Op::Eq && self.rest().trim_start().starts_with('=') {
                return Err(self.error(
                    "`==`: equality is written `=`, and a value that begins with `=` is quoted",
                ));
            }
            let is_bare = self.is_bare();
            let mut operand = self.operand(false)?;
            if is_bare && op.bounds_a_range() && matches!(&operand, Operand::Text(t) if t == "now")
            {
                operand = self.now(operand);
            }
            self.ends(start, value)?;
            return Ok(match (op, &operand) {
                (Op::Eq, Operand::Text(text)) if is_bare && is_null(text) => {
                    !Expr::test(path, Predicate::Exists)
                }
                (Op::Ne, Operand::Text(text)) if is_bare && is_null(text) => {
                    Expr::test(path, Predicate::Exists)
                }
                (op, Operand::Text(text)) if is_bare && op.bounds_a_range() => {
                    let time = relative_time(text);
                    Expr::compare(path, op, time.unwrap_or(operand))
                }
                _ => Expr::compare(path, op, operand),
            });
        }
        if self.keyword("contains") {
            let value = self.at;
            let operand = self.operand(false)?;
            self.ends(start, value)?;
            return Ok(Expr::test(path, Predicate::Contains(operand)));
        }
        if self.keyword("exists") {
            return Ok(Expr::test(path, Predicate::Exists));
        }
        if self.keyword("is") {
            let negated = self.keyword("not");
            if !self.keyword("null") {
                return Err(self.expected("`null`"));
            }
            let exists = Expr::test(path, Predicate::Exists);
            return Ok(if negated { exists } else { !exists });
        }
        let negated = self.keyword("not");
        if self.keyword("in") {
            let (operands, has_null) = self.list()?;
            let mut found = Expr::test(path.clone(), Predicate::In(operands));
            if has_null {
                found = found | !Expr::test(path, Predicate::Exists);
            }
            return Ok(if negated { !found } else { found });
        }
        if negated {
            return Err(self.expected(
                "`in` (other tests are negated before the field, as in `not PATH exists`)",
            ));
        }
        self.skip_blanks();
        Err(self.expected("one of = != < <= > >= ^= in contains exists `is null`"))
    }

    /// The values of a list, and whether `null` is among them.
    fn list(&mut self) -> Parsed<(Vec<Operand>, bool)> {
        self.skip_blanks();
        if !self.take("(") {
            return Err(self.expected("`(` and a list of values"));
        }
        let (mut operands, mut has_null) = (Vec::new(), false);
        self.skip_blanks();
        if self.take(")") {
            return Ok((operands, has_null));
        }
        loop {
            self.skip_blanks();
            let value = self.at;
            let is_bare = self.is_bare();
            match self.operand(true)? {
                Operand::Text(text) if is_bare && is_null(&text) => has_null = true,
                operand => operands.push(operand),
            }
            self.skip_blanks();
            if self.take(")") {
                return Ok((operands, has_null));
            }
            if !self.take(",") {
                return Err(self.unquoted_element(value));
            }
        }
    }

    /// The error for an element of a list that goes on after a blank; it began at the byte `value`.
    fn unquoted_element(&self, value: usize) -> Wrong {
        let error = self.expected("`,` or `)`");
        let begun = self.text.get(value..).unwrap_or_default();
        if begun.starts_with(['"', '\'']) || self.rest().is_empty() {
            return error;
        }
        let whole = begun.split([',', ')']).next().unwrap_or_default();
        let mut form = String::new();
        // Writing to a string does not fail.
        let _ = quoted(&mut form, whole.trim_end());
        self.error(format!(
            "{}; a value with blanks is quoted: {form}",
            error.what
        ))
    }

    fn path(&mut self) -> Parsed<Path> {
        let start = self.at;
        if self.rest().starts_with(['"', '\'']) {
            let text = self.string()?;
            return Path::parse(&text).map_err(|what| Wrong { at: start, what });
        }
        let rest = self.rest();
        let mut end = rest.len();
        let mut escaped = false;
        for (at, c) in rest.char_indices() {
            if escaped {
                escaped = false;
            } else if c == '\\' {
                escaped = true;
            } else if c.is_whitespace()
                || "(),\"'".contains(c)
                || Op::ALL
                    .into_iter()
                    .any(|op| rest.get(at..).is_some_and(|r| r.starts_with(op.symbol())))
            {
                end = at;
                break;
            }
        }
        let text = rest.get(..end).unwrap_or_default();
        if text.is_empty() {
            return Err(self.expected("the path of a field"));
        }
        self.at += end;
        if matches!(text.to_ascii_lowercase().as_str(), "and" | "or") {
            self.skip_blanks();
            if self.operator().is_none() {
                self.at = start;
                return Err(self.expected("the path of a field"));
            }
        }
        Path::parse(text).map_err(|what| Wrong { at: start, what })
    }

    /// A quoted text.
    fn string(&mut self) -> Parsed<String> {
        let start = self.at;
        let mut chars = self.rest().char_indices();
        let quote = chars.next().map_or('"', |(_, quote)| quote);
        let mut text = String::new();
        while let Some((at, c)) = chars.next() {
            if c == quote {
                self.at += at + c.len_utf8();
                return Ok(text);
            }
            if c != '\\' {
                text.push(c);
                continue;
            }
            match chars.next() {
                Some((_, c)) if c == quote || c == '\\' => text.push(c),
                Some((_, c)) => {
                    text.push('\\');
                    text.push(c);
                }
                None => break,
            }
        }
        Err(Wrong {
            at: start,
            what: format!("a text in quotes without the closing {quote}"),
        })
    }

    /// `now`, which was read, with what is added to it or taken from it behind blanks, if that is
    /// next.
    fn now(&mut self, now: Operand) -> Operand {
        let start = self.at;
        let rest = self.skip_blanks();
        if rest.starts_with(['-', '+']) {
            let sign = rest.get(..1).unwrap_or_default();
            self.at += 1;
            let rest = self.skip_blanks();
            let end = rest.find(|c: char| c.is_whitespace() || c == ')');
            let number = rest.get(..end.unwrap_or(rest.len())).unwrap_or_default();
            let text = format!("now{sign}{number}");
            if relative_time(&text).is_some() {
                self.at += number.len();
                return Operand::text(text);
            }
        }
        self.at = start;
        now
    }

    /// True where a value follows that is neither quoted nor typed.
    fn is_bare(&mut self) -> bool {
        let rest = self.skip_blanks();
        !rest.starts_with(['"', '\'']) && typed_name(rest).is_none()
    }

    fn operand(&mut self, in_list: bool) -> Parsed<Operand> {
        let rest = self.skip_blanks();
        if rest.starts_with(['"', '\'']) {
            let text = self.string()?;
            let next = self.rest().chars().next();
            if next.is_some_and(|c| !c.is_whitespace() && !"),".contains(c)) {
                return Err(self.expected("a blank or `)` after a text in quotes"));
            }
            return Ok(Operand::from(text));
        }
        if let Some(name) = typed_name(rest) {
            return self.typed(name);
        }
        let ends = |c: char| c.is_whitespace() || c == ')' || (in_list && c == ',');
        let end = rest.find(ends).unwrap_or(rest.len());
        let text = rest.get(..end).unwrap_or_default();
        if text.is_empty() {
            return Err(self.expected("a value (the empty text is \"\")"));
        }
        self.at += end;
        Ok(Operand::text(text))
    }

    /// A typed operand: `int(5)`.
    fn typed(&mut self, name: &str) -> Parsed<Operand> {
        self.at += name.len() + 1;
        let start = self.at;
        self.skip_blanks();
        let text = if self.rest().starts_with(['"', '\'']) {
            self.string()?
        } else {
            let rest = self.rest();
            let end = rest.find(')').unwrap_or(rest.len());
            self.at += end;
            rest.get(..end).unwrap_or_default().trim().to_owned()
        };
        self.skip_blanks();
        if !self.take(")") {
            return Err(self.expected("`)`"));
        }
        if name == "text" {
            return Ok(Operand::text(text));
        }
        let ty: Type = name.parse().map_err(|e: Error| Wrong {
            at: start,
            what: e.to_string(),
        })?;
        // Programs may compare with numbers that no attribute can hold.
        if ty == Type::Int
            && let Ok(v) = text.parse()
        {
            return Ok(Operand::Value(Value::Int(v)));
        }
        let value = Value::parse(ty, &text).map_err(|what| Wrong { at: start, what })?;
        Ok(Operand::Value(value))
    }

    /// Refuses what looks like a value with blanks, and shows its quoted form. The test began at
    /// `start`, its value at `value`.
    fn ends(&mut self, start: usize, value: usize) -> Parsed<()> {
        let end = self.at;
        let rest = self.skip_blanks();
        let word = self.word();
        let fine = rest.is_empty()
            || rest.starts_with(')')
            || word.eq_ignore_ascii_case("and")
            || word.eq_ignore_ascii_case("or");
        if fine {
            self.at = end;
            return Ok(());
        }
        let begun = self.text.get(value..).unwrap_or_default();
        let first = begun.trim_start();
        if first.starts_with(['"', '\'']) {
            return Err(self.expected("`and`, `or`, `)` or the end"));
        }
        if rest.starts_with(['&', '|']) {
            return Err(self.expected("`and` or `or`, which join conditions"));
        }
        if first.starts_with(['=', '<', '>', '!', '^']) {
            self.at = value;
            return Err(self.expected("a value (one that begins with an operator is quoted)"));
        }
        // The value extends to the next word that joins conditions, or to a bracket that closes
        // none of its own.
        let mut last = self.at;
        let begun_with = self.text.get(value..last).unwrap_or_default();
        let mut open = begun_with.matches('(').count();
        while let Some(next) = self.text.get(last..) {
            let word = next.trim_start();
            let blanks = next.len() - word.len();
            let length = word.find(|c: char| {
                let closes = c == ')' && open == 0;
                match c {
                    '(' => open += 1,
                    ')' => open = open.saturating_sub(1),
                    _ => {}
                }
                c.is_whitespace() || closes
            });
            let word = word.get(..length.unwrap_or(word.len())).unwrap_or_default();
            if word.is_empty() || matches!(word.to_ascii_lowercase().as_str(), "and" | "or") {
                break;
            }
            last += blanks + word.len();
        }
        let head = self.text.get(start..value).unwrap_or_default().trim_end();
        let whole = self.text.get(value..last).unwrap_or_default().trim();
        let blank = if begun.starts_with(char::is_whitespace) {
            " "
        } else {
            ""
        };
        let mut form = format!("{head}{blank}");
        // Writing to a string does not fail.
        let _ = quoted(&mut form, whole);
        Err(self.error(format!(
            "expected `and`, `or` or the end, found `{}`; a value with blanks is quoted: {form}",
            rest.split_whitespace().next().unwrap_or_default()
        )))
    }
}
