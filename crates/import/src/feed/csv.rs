//! CSV with a header row, turned into JSON objects: a cell is a number where its text is one in JSON
//! (`007` is not), `true` and `false` are booleans, an empty cell is left out.

use std::cell::RefCell;
use std::collections::HashSet;
use std::io::{self, Read};
use std::rc::Rc;
use std::sync::Arc;

use csv::{ByteRecord, ReaderBuilder};

use super::{CHUNK, LINE_MAX, Message, Sender};

/// The header of a CSV file.
pub(crate) struct Table {
    /// The columns: the name, and `"name":` as JSON writes it.
    columns: Vec<(String, Vec<u8>)>,
}

/// A row, and the line on which it begins.
pub(crate) struct Row {
    pub(crate) line: u64,
    cells: ByteRecord,
}

/// Sends a stream's rows: those that have come before each read, which may have to wait for a slow stream.
pub(crate) fn read(reader: Box<dyn Read>, sender: &Sender) -> io::Result<()> {
    let parsed = Rc::new(RefCell::new(Parsed {
        sender,
        table: None,
        rows: Vec::new(),
        bytes: 0,
        unread: 0,
    }));
    let guarded = Guarded {
        inner: reader,
        parsed: Rc::clone(&parsed),
        last: b'\n',
        end: None,
        done: false,
    };
    let mut reader = ReaderBuilder::new()
        .flexible(true)
        .buffer_capacity(CHUNK)
        .from_reader(guarded);
    let header = reader.byte_headers().map_err(io_error)?.clone();
    if header.is_empty() {
        return Ok(());
    }
    parsed.borrow_mut().table = Some(Arc::new(Table::new(&header)?));
    // The parser has counted the line break of a row where that is "\n", and not where it is "\r\n",
    // of which it reads the second half with the next row.
    let breaks = 1 + breaks_within(&header);
    let counted = u64::from(reader.position().line() > breaks);

    loop {
        let mut cells = ByteRecord::new();
        let more = reader.read_byte_record(&mut cells).map_err(io_error)?;
        let mut parsed = parsed.borrow_mut();
        if !more {
            parsed.send();
            return Ok(());
        }
        let within = breaks_within(&cells);
        let line = reader.position().line().saturating_sub(within + counted);
        parsed.add(Row { line, cells });
        if parsed.bytes >= CHUNK && !parsed.send() {
            return Ok(());
        }
    }
}

/// Rows that were parsed and not yet sent.
struct Parsed<'a> {
    sender: &'a Sender,
    /// The header, once it is known.
    table: Option<Arc<Table>>,
    rows: Vec<Row>,
    /// Bytes of the rows.
    bytes: usize,
    /// Bytes read since the last complete row.
    unread: usize,
}

impl Parsed<'_> {
    fn add(&mut self, row: Row) {
        self.unread = 0;
        self.bytes += row.cells.as_slice().len();
        self.rows.push(row);
    }

    /// Sends the rows; false where nobody listens any more.
    fn send(&mut self) -> bool {
        let Some(table) = self.table.as_ref().filter(|_| !self.rows.is_empty()) else {
            return true;
        };
        self.bytes = 0;
        let rows = std::mem::take(&mut self.rows);
        let message = Message::Rows(Arc::clone(table), rows);
        self.sender.send(message).is_ok()
    }
}

impl Table {
    fn new(header: &ByteRecord) -> io::Result<Self> {
        let refuse = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
        let mut columns: Vec<(String, Vec<u8>)> = Vec::with_capacity(header.len());
        for name in header {
            let name = std::str::from_utf8(name)
                .map_err(|_| refuse("a column's name is not UTF-8".to_string()))?;
            if columns.iter().any(|(other, _)| other == name) {
                return Err(refuse(format!("two columns have the name `{name}`")));
            }
            let mut json = Vec::with_capacity(name.len() + 3);
            string(name, &mut json);
            json.push(b':');
            columns.push((name.to_string(), json));
        }
        Ok(Self { columns })
    }

    /// Replaces `json` by a row as an object, or says why it is none.
    pub(crate) fn object(
        &self,
        row: &Row,
        strings: &HashSet<String>,
        json: &mut Vec<u8>,
    ) -> Result<(), String> {
        let (cells, columns) = (row.cells.len(), self.columns.len());
        if cells != columns {
            return Err(format!("the row has {cells} cells, the header {columns}"));
        }
        json.clear();
        json.push(b'{');
        for (text, (name, prefix)) in row.cells.iter().zip(&self.columns) {
            if text.is_empty() {
                continue;
            }
            let text = std::str::from_utf8(text)
                .map_err(|_| format!("the cell of column `{name}` is not UTF-8"))?;
            if json.len() > 1 {
                json.push(b',');
            }
            json.extend_from_slice(prefix);
            cell(text, strings.contains(name), json);
        }
        json.push(b'}');
        Ok(())
    }
}

impl Row {
    /// Replaces `text` by the cells, with commas between them.
    pub(crate) fn text(&self, text: &mut Vec<u8>) {
        text.clear();
        for (at, cell) in self.cells.iter().enumerate() {
            if at > 0 {
                text.push(b',');
            }
            text.extend_from_slice(cell);
        }
    }
}

/// Appends a cell as a JSON value.
pub(crate) fn cell(text: &str, is_string: bool, json: &mut Vec<u8>) {
    if !is_string && (text == "true" || text == "false" || is_number(text)) {
        json.extend_from_slice(text.as_bytes());
    } else {
        string(text, json);
    }
}

fn string(text: &str, json: &mut Vec<u8>) {
    // Writing a string to memory does not fail.
    let _ = serde_json::to_writer(json, text);
}

/// A number by JSON's grammar that the types of Esker can hold.
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

fn breaks_within(cells: &ByteRecord) -> u64 {
    cells.as_slice().iter().filter(|&&b| b == b'\n').count() as u64
}

fn io_error(error: csv::Error) -> io::Error {
    match error.into_kind() {
        csv::ErrorKind::Io(error) => error,
        other => io::Error::new(io::ErrorKind::InvalidData, format!("{other:?}")),
    }
}

/// Sends what was parsed before it reads on, bounds what the parser may hold for one row, and ends the last row as the
/// others end, so that its line is counted as theirs are.
struct Guarded<'a> {
    inner: Box<dyn Read>,
    parsed: Rc<RefCell<Parsed<'a>>>,
    last: u8,
    /// What ends a row: the byte before the first line break tells.
    end: Option<u8>,
    done: bool,
}

impl Read for Guarded<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut parsed = self.parsed.borrow_mut();
        // Nobody needs more where nobody listens.
        self.done |= !parsed.send();
        if parsed.unread > LINE_MAX {
            let what = format!("a row has more than {LINE_MAX} bytes: is a quote left open?");
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        if self.done || buffer.is_empty() {
            return Ok(0);
        }
        let read = self.inner.read(buffer)?;
        let Some((&last, before)) = buffer.get(..read).and_then(|bytes| bytes.split_last()) else {
            self.done = true;
            return Ok(match buffer.first_mut() {
                Some(first) if self.last != b'\n' => {
                    *first = self.end.unwrap_or(b'\n');
                    1
                }
                _ => 0,
            });
        };
        if self.end.is_none() {
            let bytes = before.iter().chain([&last]);
            let mut pairs = [&self.last].into_iter().chain(before).zip(bytes);
            let end = pairs.find(|(_, byte)| **byte == b'\n');
            self.end = end.map(|(before, _)| if *before == b'\r' { b'\r' } else { b'\n' });
        }
        self.last = last;
        parsed.unread += read;
        Ok(read)
    }
}
