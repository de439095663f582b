//! Records on standard output: as they were put, as CSV, or as a table for people.
//!
//! The columns of CSV and tables are those of `--select`, or the fields of the first record:
//! records are printed as they are found, so later fields are not known yet. The first later field
//! without a column is reported.

use std::io::{self, IsTerminal};

use esker::Path;
use esker::request::Projection;
use serde_json::Value;

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
                return match projection {
                    Some(projection) => {
                        let selected = projection.apply(body).map_err(esker::Error::from)?;
                        self.output.record(&selected)
                    }
                    None => self.output.record(body),
                };
            }
            Form::Csv(columns) => (columns, None),
            Form::Table(columns, table) => (columns, Some(table)),
        };
        // Stored bodies are valid JSON.
        let record: Value = serde_json::from_slice(body).unwrap_or(Value::Null);
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

    /// Writes the waiting rows and all buffered bytes.
    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        if let Form::Table(_, table) = &mut self.form {
            table.write(&mut self.output)?;
        }
        self.output.flush()
    }
}

impl Columns {
    /// Infers the columns from the first record, and reports the first later field without a
    /// column.
    fn see(&mut self, record: &Value) {
        let Value::Object(fields) = record else {
            return;
        };
        if !self.inferred {
            return;
        }
        if self.all.is_empty() {
            let named = |name: &String| (name.clone(), vec![name.clone()]);
            self.all = fields.keys().map(named).collect();
        } else if !self.reported
            && let Some(other) = fields
                .keys()
                .find(|name| !self.all.iter().any(|(known, _)| known == *name))
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

/// The value of a record at a path, as a cell: a string as it is, another value as JSON. Several
/// values (a path through an array) are a JSON array.
fn cell(record: &Value, path: &[String]) -> String {
    let mut found = Vec::new();
    gather(record, path, &mut found);
    match found.as_slice() {
        [] | [Value::Null] => String::new(),
        [Value::String(text)] => text.clone(),
        [one] => one.to_string(),
        several => Value::Array(several.iter().map(|value| (*value).clone()).collect()).to_string(),
    }
}

fn gather<'a>(value: &'a Value, path: &[String], found: &mut Vec<&'a Value>) {
    match (path.split_first(), value) {
        (None, value) => found.push(value),
        (Some((name, rest)), Value::Object(fields)) => {
            if let Some(value) = fields.get(name) {
                gather(value, rest, found);
            }
        }
        (Some(_), Value::Array(elements)) => {
            elements.iter().for_each(|value| gather(value, path, found))
        }
        _ => {}
    }
}
