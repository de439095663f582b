//! The columns of a CSV file, and its rows as JSON objects. A cell whose text is a number becomes a
//! number, `true` and `false` become booleans, and empty cells are left out.

use std::collections::HashSet;

/// The columns that the dataset declares, by name.
#[derive(Default)]
pub(crate) struct Columns {
    /// Columns whose cells are strings, whatever they look like.
    pub(crate) strings: HashSet<String>,
    /// Columns whose cells are numbers, if they can be read as one.
    pub(crate) numbers: HashSet<String>,
}

/// How to read the cells of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cells {
    Strings,
    Numbers,
    /// By their text.
    Any,
}

/// The header of a CSV file.
pub(crate) struct Table {
    /// For each column its name, and `"name":` as JSON.
    columns: Vec<(String, Vec<u8>)>,
    /// The minimum number of cells in a row: cells of unnamed columns at the end may be missing.
    least: usize,
    delimiter: u8,
}

/// A row, and the line on which it begins.
pub(crate) struct Row {
    pub(crate) line: u64,
    /// The concatenated cells; for a bad row, its text.
    pub(crate) text: Vec<u8>,
    /// The end of each cell in `text`.
    pub(crate) ends: Vec<usize>,
    /// The reason why the row is bad, if it is.
    pub(crate) reason: Option<String>,
}

impl Row {
    pub(super) fn cells(&self) -> impl Iterator<Item = &[u8]> {
        let begins = [0].into_iter().chain(self.ends.iter().copied());
        let cells = begins.zip(&self.ends);
        cells.map(|(begin, end)| self.text.get(begin..*end).unwrap_or_default())
    }
}

/// A generated column name, and its reason.
pub(super) enum Renamed {
    /// The column with this number had no name.
    Unnamed(usize, String),
    /// The column had the name of an earlier one, which is the first string.
    Twice(String, String),
}

impl Table {
    /// The columns of a header. Columns without a name, or with the name of an earlier one, get a
    /// generated name.
    pub(super) fn new(header: &Row, delimiter: u8) -> Result<(Self, Vec<Renamed>), String> {
        let mut names = Vec::with_capacity(header.ends.len());
        for name in header.cells() {
            let name = str::from_utf8(name);
            names.push(name.map_err(|_| "the name of a column is not UTF-8".to_string())?);
        }
        let mut known: HashSet<String> = names.iter().map(|name| (*name).to_string()).collect();
        let mut free = |name: &dyn Fn(usize) -> String, from: usize| {
            let mut at = from;
            // Terminates, since the known names are finite.
            while !known.insert(name(at)) {
                at += 1;
            }
            name(at)
        };
        let mut seen = HashSet::new();
        let (mut columns, mut renamed) = (Vec::with_capacity(names.len()), Vec::new());
        for (at, name) in names.iter().enumerate() {
            let name = if name.trim().is_empty() {
                let new = free(&|number| format!("column_{number}"), at + 1);
                // A separator at the end of the header makes no column.
                if at + 1 < names.len() {
                    renamed.push(Renamed::Unnamed(at + 1, new.clone()));
                }
                new
            } else if seen.insert(*name) {
                (*name).to_string()
            } else {
                let new = free(&|number| format!("{name}_{number}"), 2);
                renamed.push(Renamed::Twice((*name).to_string(), new.clone()));
                new
            };
            let mut json = Vec::with_capacity(name.len() + 3);
            string(&name, &mut json);
            json.push(b':');
            columns.push((name, json));
        }
        let is_named = |name: &str| !name.trim().is_empty();
        let least = names
            .iter()
            .rposition(|name| is_named(name))
            .map_or(names.len(), |at| at + 1);
        let table = Self {
            columns,
            least,
            delimiter,
        };
        Ok((table, renamed))
    }

    pub(super) fn width(&self) -> usize {
        self.columns.len()
    }

    /// How to read the cells of each column.
    pub(super) fn read_as(&self, says: &Columns) -> Vec<Cells> {
        let columns = self.columns.iter().map(|(name, _)| match () {
            () if says.strings.contains(name) => Cells::Strings,
            () if says.numbers.contains(name) => Cells::Numbers,
            () => Cells::Any,
        });
        columns.collect()
    }

    /// True if a row may have this many cells.
    pub(super) fn takes(&self, cells: usize) -> bool {
        (self.least..=self.columns.len()).contains(&cells)
    }

    /// The name of a column.
    pub(super) fn name(&self, at: usize) -> &str {
        self.columns.get(at).map_or("", |(name, _)| name)
    }

    /// Replaces `json` by a row as an object; the error says why the row is bad.
    pub(super) fn object(
        &self,
        row: &Row,
        read_as: &[Cells],
        json: &mut Vec<u8>,
    ) -> Result<(), String> {
        if let Some(reason) = &row.reason {
            return Err(reason.clone());
        }
        let (cells, columns) = (row.ends.len(), self.columns.len());
        // Empty cells behind the last column are ignored.
        let is_wider = row.cells().skip(columns).any(|cell| !cell.is_empty());
        if cells < self.least || is_wider {
            let (s, n) = (if cells == 1 { "" } else { "s" }, columns);
            return Err(format!("the row has {cells} cell{s}, the header {n}"));
        }
        json.clear();
        json.push(b'{');
        let columns = self.columns.iter().zip(read_as);
        for (text, ((name, prefix), cells)) in row.cells().zip(columns) {
            if text.is_empty() {
                continue;
            }
            let text = str::from_utf8(text)
                .map_err(|_| format!("the cell of column `{name}` is not UTF-8"))?;
            if json.len() > 1 {
                json.push(b',');
            }
            json.extend_from_slice(prefix);
            cell(text, *cells, json);
        }
        json.push(b'}');
        Ok(())
    }

    /// Replaces `text` by the cells of a row with separators; for a bad row, by its text.
    pub(super) fn text(&self, row: &Row, text: &mut Vec<u8>) {
        text.clear();
        if row.reason.is_some() {
            return text.extend_from_slice(&row.text);
        }
        for (at, cell) in row.cells().enumerate() {
            if at > 0 {
                text.push(self.delimiter);
            }
            text.extend_from_slice(cell);
        }
    }
}

/// Appends a cell as a JSON value.
pub(crate) fn cell(text: &str, cells: Cells, json: &mut Vec<u8>) {
    if cells == Cells::Strings {
        return string(text, json);
    }
    if text == "true" || text == "false" || is_number(text) {
        return json.extend_from_slice(text.as_bytes());
    }
    match number(text, cells) {
        Some(number) => json.extend_from_slice(number.as_bytes()),
        None => string(text, json),
    }
}

fn string(text: &str, json: &mut Vec<u8>) {
    // Writing to memory cannot fail.
    let _ = serde_json::to_writer(json, text);
}

/// The maximum number of digits behind a plus sign in a column not declared as a number: with more,
/// it is a telephone number.
const SIGNED_DIGITS: usize = 6;

/// A number in people's notation as JSON: with a plus sign, or without digits before or behind the
/// decimal point.
fn number(text: &str, cells: Cells) -> Option<String> {
    let (sign, unsigned) = match text.as_bytes().first()? {
        b'-' => ("-", text.get(1..)?),
        b'+' => ("", text.get(1..)?),
        _ => ("", text),
    };
    let is_code = text.starts_with('+')
        && unsigned.len() > SIGNED_DIGITS
        && unsigned.bytes().all(|byte| byte.is_ascii_digit());
    if is_code && cells != Cells::Numbers {
        return None;
    }
    let digits = unsigned.bytes().take_while(u8::is_ascii_digit).count();
    let (whole, rest) = unsigned.split_at(digits);
    let (fraction, exponent) = match rest.find(['e', 'E']) {
        Some(at) => rest.split_at(at),
        None => (rest, ""),
    };
    let whole = match whole {
        // A point alone is no number.
        "" if fraction.len() < 2 => return None,
        "" => "0",
        whole => whole,
    };
    let fraction = match fraction {
        "." => ".0",
        fraction => fraction,
    };
    Some(format!("{sign}{whole}{fraction}{exponent}")).filter(|number| is_number(number))
}

/// True for a JSON number in the range of Esker's types.
fn is_number(text: &str) -> bool {
    let unsigned = text.strip_prefix('-').unwrap_or(text);
    let digits = unsigned.len()
        - unsigned
            .trim_start_matches(|c: char| c.is_ascii_digit())
            .len();
    let (whole, rest) = unsigned.split_at(digits);
    if whole.is_empty() || (whole.len() > 1 && whole.starts_with('0')) {
        return false;
    }
    if rest.is_empty() {
        return text.parse::<i64>().is_ok() || text.parse::<u64>().is_ok();
    }
    let (fraction, exponent) = match rest.split_once(['e', 'E']) {
        Some((fraction, exponent)) => (fraction, Some(exponent)),
        None => (rest, None),
    };
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let fraction_fits = fraction.is_empty() || fraction.strip_prefix('.').is_some_and(digits);
    let exponent_fits = exponent.is_none_or(|e| digits(e.strip_prefix(['+', '-']).unwrap_or(e)));
    fraction_fits && exponent_fits && text.parse().is_ok_and(f64::is_finite)
}
