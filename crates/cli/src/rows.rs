//! Records on standard output: as they were put, one a line or in an array, as CSV, or as a table
//! for people.
//!
//! The columns of CSV and tables are those of `--select`, or the fields of the first record:
//! records are printed as they are found, so later fields are not known yet. The first later field
//! without a column is reported.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::io::{self, IsTerminal};

use esker::Path;
use esker::request::Projection;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::args::{RowForm, RowsArgs};
use crate::failure::Failure;
use crate::output::{Output, bold, note, terminal_width};
use crate::table::Layout;

/// The number of rows that set the widths of a table's columns.
const SAMPLE: usize = 500;

/// Writes records in the chosen form.
pub(crate) struct Rows {
    output: Output,
    form: Form,
    /// Records written.
    written: u64,
}

enum Form {
    /// The records, or some of their fields.
    Ndjson(Option<Projection>),
    /// The same as elements of one array.
    Json(Option<Projection>),
    Csv(Columns),
    Table(Columns, Table),
}

/// The columns of CSV or a table.
struct Columns {
    /// Heading and path of each column; empty until the first record.
    all: Vec<(String, Vec<String>)>,
    /// True if the columns are the first record's fields.
    inferred: bool,
    /// True after a field without a column was reported.
    reported: bool,
}

struct Table {
    /// Rows that are not printed yet, because the widths are unknown.
    waiting: Vec<Vec<String>>,
    /// `None` until the widths are known.
    layout: Option<Layout>,
    /// The width of a line, if it is limited.
    width: Option<usize>,
}

impl Rows {
    /// A writer for the form in the arguments; without one for a table on a terminal.
    pub(crate) fn new(args: &RowsArgs) -> Self {
        let usual = if io::stdout().is_terminal() {
            RowForm::Table
        } else {
            RowForm::Ndjson
        };
        Rows::in_form(args, usual)
    }

    /// A writer for the form in the arguments; without one for whole records.
    pub(crate) fn whole(args: &RowsArgs) -> Self {
        Rows::in_form(args, RowForm::Ndjson)
    }

    fn in_form(args: &RowsArgs, usual: RowForm) -> Self {
        let named = |path: &Path| {
            let names: Vec<String> = path.names().map(str::to_string).collect();
            let heading = match names.as_slice() {
                // The name alone, as in inferred columns.
                [name] => name.clone(),
                _ => path.to_string(),
            };
            (heading, names)
        };
        let columns = Columns {
            all: (args.select.iter())
                .flat_map(|columns| columns.0.iter().map(named))
                .collect(),
            inferred: args.select.is_empty(),
            reported: false,
        };
        let selected: Vec<Path> = args.select.iter().flat_map(|s| s.0.clone()).collect();
        let projection = (!selected.is_empty()).then(|| Projection::new(&selected));
        Self {
            output: Output::new(),
            form: match args.format.unwrap_or(usual) {
                RowForm::Ndjson => Form::Ndjson(projection),
                RowForm::Json => Form::Json(projection),
                RowForm::Csv => Form::Csv(columns),
                RowForm::Table => Form::Table(
                    columns,
                    Table {
                        waiting: Vec::new(),
                        layout: None,
                        width: args.width.or_else(terminal_width),
                    },
                ),
            },
            written: 0,
        }
    }

    /// Writes a record.
    pub(crate) fn record(&mut self, body: &[u8]) -> Result<(), Failure> {
        self.with_seq(None, body)
    }

    /// Writes a version of a record with the sequence number of its write.
    pub(crate) fn version(&mut self, seq: u64, body: &[u8]) -> Result<(), Failure> {
        self.with_seq(Some(seq), body)
    }

    fn with_seq(&mut self, seq: Option<u64>, body: &[u8]) -> Result<(), Failure> {
        let first = self.written == 0;
        self.written += 1;
        let (columns, table) = match &mut self.form {
            Form::Ndjson(projection) => {
                if let Some(seq) = seq {
                    self.output.text(format_args!("{seq}\t"))?;
                }
                return self.output.record(&projected(projection.as_ref(), body)?);
            }
            Form::Json(projection) => {
                self.output.bytes(if first { b"[" } else { b",\n" })?;
                if let Some(seq) = seq {
                    self.output
                        .text(format_args!("{{\"seq\":{seq},\"record\":"))?;
                }
                self.output.json(&projected(projection.as_ref(), body)?)?;
                return self.output.bytes(if seq.is_some() { b"}" } else { b"" });
            }
            Form::Csv(columns) => (columns, None),
            Form::Table(columns, table) => (columns, Some(table)),
        };
        // Stored bodies are valid JSON. Cells are parts of the text: numbers stay as they are.
        let record: Option<&RawValue> = serde_json::from_slice(body).ok();
        let record = record.map_or(JsonValue::Other, JsonValue::of);
        columns.see(&record);
        let heading = seq.map(|_| "seq".to_string());
        let heading = heading
            .into_iter()
            .chain(columns.all.iter().map(|(name, _)| name.clone()));
        let cells = columns.all.iter().map(|(_, path)| cell(&record, path));
        let cells: Vec<String> = seq
            .map(|seq| seq.to_string())
            .into_iter()
            .chain(cells)
            .collect();
        match table {
            None => {
                if first {
                    csv_line(&mut self.output, heading)?;
                }
                csv_line(&mut self.output, cells.into_iter())
            }
            Some(table) => {
                if first {
                    table.waiting.push(heading.collect());
                }
                table.waiting.push(cells);
                if table.layout.is_some() || table.waiting.len() > SAMPLE {
                    table.write(&mut self.output)
                } else {
                    Ok(())
                }
            }
        }
    }

    /// The number of records written.
    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    /// Writes what is behind the last record, and all buffered bytes.
    pub(crate) fn finish(&mut self) -> Result<(), Failure> {
        match &mut self.form {
            Form::Table(_, table) => table.write(&mut self.output)?,
            Form::Json(_) if self.written == 0 => self.output.line("[]")?,
            Form::Json(_) => self.output.line("]")?,
            Form::Ndjson(_) | Form::Csv(_) => {}
        }
        self.output.flush()
    }
}

/// The record, or the selected fields of it.
fn projected<'b>(
    projection: Option<&Projection>,
    body: &'b [u8],
) -> Result<Cow<'b, [u8]>, Failure> {
    let Some(projection) = projection else {
        return Ok(Cow::Borrowed(body));
    };
    let selected = projection.apply(body).map_err(esker::Error::from)?;
    Ok(Cow::Owned(selected))
}

impl Columns {
    /// Infers the columns from the first record, and reports the first later field without a
    /// column.
    fn see(&mut self, record: &JsonValue<'_>) {
        let JsonValue::Object(fields) = record else {
            return;
        };
        if !self.inferred {
            return;
        }
        if self.all.is_empty() {
            let named = |(name, _): &(String, _)| (name.clone(), vec![name.clone()]);
            self.all = fields.iter().map(named).collect();
        } else if !self.reported
            && let Some((other, _)) = fields
                .iter()
                .find(|(name, _)| !self.all.iter().any(|(known, _)| known == name))
        {
            self.reported = true;
            // A path cannot contain an empty name.
            let names = self.all.iter().map(|(name, _)| name).chain([other]);
            let named = names.filter(|name| !name.is_empty());
            let mut columns = named.map(|name| column(name)).collect::<Vec<_>>().join(",");
            if columns.contains(['\\', ' ']) {
                columns = format!("'{columns}'");
            }
            note(format_args!(
                "note: the first record has no field `{other}`, so it has no column: name the columns, as in --select {columns}"
            ));
        }
    }
}

/// A field name as a path for `--select`.
fn column(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for c in name.chars() {
        if ".\\=<>^,'".contains(c) {
            text.push('\\');
        }
        text.push(c);
    }
    text
}

impl Table {
    /// Writes the waiting rows.
    fn write(&mut self, output: &mut Output) -> Result<(), Failure> {
        let rows = std::mem::take(&mut self.waiting);
        let mut rows = rows.iter();
        let layout = match &self.layout {
            Some(layout) => layout,
            None => {
                let layout = self.layout.insert(Layout::of(rows.as_slice(), self.width));
                if let Some(heading) = rows.next() {
                    let line = layout.line(heading);
                    if io::stdout().is_terminal() {
                        output.line(bold(&line))?
                    } else {
                        output.line(line)?
                    }
                }
                layout
            }
        };
        for row in rows {
            output.line(layout.line(row))?;
        }
        Ok(())
    }
}

fn csv_line(output: &mut Output, cells: impl Iterator<Item = String>) -> Result<(), Failure> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let cells: Vec<String> = cells.collect();
    let line = writer
        .write_record(&cells)
        .map_err(|error| error.to_string())
        .and_then(|()| writer.into_inner().map_err(|error| error.to_string()));
    // Writing to memory cannot fail.
    let line = line.map_err(Failure::Store)?;
    output.bytes(&line)
}

/// A value, one level deep.
enum JsonValue<'a> {
    /// Its members, in order, each once.
    Object(Vec<(String, &'a RawValue)>),
    Array(Vec<&'a RawValue>),
    Other,
}

impl<'a> JsonValue<'a> {
    fn of(raw: &'a RawValue) -> JsonValue<'a> {
        let text = raw.get();
        match text.as_bytes().first() {
            Some(b'{') => serde_json::from_str(text)
                .map_or(JsonValue::Other, |Members(members)| {
                    JsonValue::Object(members)
                }),
            Some(b'[') => serde_json::from_str(text).map_or(JsonValue::Other, JsonValue::Array),
            _ => JsonValue::Other,
        }
    }
}

/// The members of an object; of several with a name, the last one counts.
struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct All;
        impl<'de> Visitor<'de> for All {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
                let mut members: Vec<(String, &RawValue)> = Vec::new();
                let mut places: HashMap<String, usize> = HashMap::new();
                while let Some((name, value)) = map.next_entry::<String, &RawValue>()? {
                    match places.get(&name).and_then(|at| members.get_mut(*at)) {
                        Some(known) => known.1 = value,
                        None => {
                            places.insert(name.clone(), members.len());
                            members.push((name, value));
                        }
                    }
                }
                Ok(Members(members))
            }
        }
        from.deserialize_map(All)
    }
}

/// The value of a record at a path, as a cell: a string as it is, another value as JSON. Several
/// values (a path through an array) are a JSON array.
fn cell(record: &JsonValue<'_>, path: &[String]) -> String {
    let mut found = Vec::new();
    gather(record, path, &mut found);
    match found.as_slice() {
        [] => String::new(),
        [one] => match one.get() {
            "null" => String::new(),
            text if text.starts_with('"') => {
                serde_json::from_str(text).unwrap_or_else(|_| text.to_string())
            }
            text => compact(text),
        },
        several => {
            let several: Vec<String> = several.iter().map(|value| compact(value.get())).collect();
            format!("[{}]", several.join(","))
        }
    }
}

fn gather<'a>(value: &JsonValue<'a>, path: &[String], found: &mut Vec<&'a RawValue>) {
    let Some((name, rest)) = path.split_first() else {
        return;
    };
    match value {
        JsonValue::Object(members) => {
            match (members.iter().find(|(member, _)| member == name), rest) {
                (None, _) => {}
                (Some((_, value)), []) => found.push(value),
                (Some((_, value)), rest) => gather(&JsonValue::of(value), rest, found),
            }
        }
        JsonValue::Array(elements) => {
            for element in elements {
                gather(&JsonValue::of(element), path, found);
            }
        }
        JsonValue::Other => {}
    }
}

/// JSON without white space between its tokens.
fn compact(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    let (mut is_string, mut is_escaped) = (false, false);
    for c in json.chars() {
        if is_string {
            is_string = is_escaped || c != '"';
            is_escaped = !is_escaped && c == '\\';
        } else if c.is_ascii_whitespace() {
            continue;
        } else {
            is_string = c == '"';
        }
        text.push(c);
    }
    text
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// Cells went through floats and numbers of 64 bits.
    #[test]
    fn a_cell_is_what_the_record_says() {
        let record = r#"{"n": 123456789012345678901234567, "f": 1.10, "e": 1e2, "s": "a\u00e9",
            "o": {"x": [ 1.0 , {"y" : "a \" b"} ]}, "l": [{"v": 1.50}, {"v": 99999999999999999999}, {}],
            "z": null, "twice": 1, "twice": 2, "sum": 18446744073709551616, "bad": "\ud800"}"#;
        let raw: &RawValue = serde_json::from_str(record).unwrap();
        let record = JsonValue::of(raw);
        for (path, wanted) in [
            ("n", "123456789012345678901234567"),
            ("f", "1.10"),
            ("e", "1e2"),
            ("s", "a\u{e9}"),
            ("o", r#"{"x":[1.0,{"y":"a \" b"}]}"#),
            ("o.x.y", "a \" b"),
            ("l.v", "[1.50,99999999999999999999]"),
            ("z", ""),
            ("twice", "2"),
            ("sum", "18446744073709551616"),
            ("bad", r#""\ud800""#),
            ("none", ""),
            ("n.none", ""),
        ] {
            let path: Vec<String> = path.split('.').map(str::to_string).collect();
            assert_eq!(cell(&record, &path), wanted, "{path:?}");
        }
    }
}
