//! CSV with a header row. A row is bad if a quote in it never closes, or text follows a closing
//! quote. The bad row ends with the line on which the quote opens, and reading continues on the
//! next line, so no other row is lost.

use std::io;
use std::sync::Arc;

use memchr::memchr;

use super::input::Input;
use super::message::{LINE_MAX, Message, Shape};
use super::table::{Renamed, Row, Table};

/// The separators to detect, in order of preference.
const DELIMITERS: [u8; 4] = [b',', b';', b'\t', b'|'];

/// The bytes of a header in which the separator is looked for.
const HEADER_SEEN: usize = 1 << 20;

/// Sends the rows of a source. Before each read, which may wait for a slow stream, the parsed rows
/// are sent.
pub(super) fn read(input: &mut Input<'_>, delimiter: Option<u8>) -> io::Result<()> {
    if input.byte(0)? == Some(0xEF) && input.byte(1)? == Some(0xBB) && input.byte(2)? == Some(0xBF)
    {
        input.skip(3);
    }
    let said = named_delimiter(input)?;
    let found = match delimiter.or(said) {
        Some(delimiter) => delimiter,
        None => {
            let found = likely_delimiter(input)?;
            if found != b',' {
                input.say(Message::Read(Shape::Delimiter(found)));
            }
            found
        }
    };
    let mut rows = Rows {
        input,
        delimiter: found,
        width: None,
        is_behind_return: false,
    };
    let Some(header) = rows.next()? else {
        return Ok(());
    };
    let refuse = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
    if let Some(reason) = header.reason {
        return Err(refuse(format!("the header cannot be read: {reason}")));
    }
    let (table, renamed) = Table::new(&header, found).map_err(refuse)?;
    let table = Arc::new(table);
    rows.width = Some(Arc::clone(&table));
    rows.input.parsed().table = Some(table);
    for renamed in renamed {
        rows.input.say(Message::Read(match renamed {
            Renamed::Unnamed(at, name) => Shape::Unnamed(at, name),
            Renamed::Twice(of, name) => Shape::Twice(of, name),
        }));
    }
    while let Some(row) = rows.next()? {
        rows.input.parsed().row(row);
        rows.input.flush_large();
    }
    Ok(())
}

/// The separator in a first line `sep=;`, as spreadsheets write it; takes the line.
fn named_delimiter(input: &mut Input<'_>) -> io::Result<Option<u8>> {
    for (at, expected) in b"sep=".iter().enumerate() {
        if input.byte(at)?.map(|byte| byte.to_ascii_lowercase()) != Some(*expected) {
            return Ok(None);
        }
    }
    let Some(delimiter) = input.byte(4)? else {
        return Ok(None);
    };
    let length = match (input.byte(5)?, input.byte(6)?) {
        (Some(b'\n'), _) => 6,
        (Some(b'\r'), Some(b'\n')) => 7,
        _ => return Ok(None),
    };
    input.take(length);
    Ok(Some(delimiter))
}

/// The likely separator: it occurs in the header, preferably as often as in the first row, and most
/// often.
fn likely_delimiter(input: &mut Input<'_>) -> io::Result<u8> {
    let mut at = 0;
    while at < HEADER_SEEN && !matches!(input.byte(at)?, None | Some(b'\n' | b'\r')) {
        at += 1;
    }
    let rest = input.rest();
    let header = rest.get(..at).unwrap_or_default();
    let rows = rest.get(at..).unwrap_or_default().trim_ascii_start();
    let row = rows.split(|byte| matches!(byte, b'\n' | b'\r')).next();
    let mut best = (b',', (false, 0));
    for delimiter in DELIMITERS {
        let there = count(header, delimiter);
        let is_alike = row.is_some_and(|row| count(row, delimiter) == there);
        if there > 0 && (is_alike, there) > best.1 {
            best = (delimiter, (is_alike, there));
        }
    }
    Ok(best.0)
}

/// The number of occurrences of a byte outside of quotes.
fn count(line: &[u8], byte: u8) -> usize {
    let mut is_quoted = false;
    let counts = line.iter().filter(|b| {
        is_quoted ^= **b == b'"';
        **b == byte && !is_quoted
    });
    counts.count()
}

struct Rows<'a, 'b> {
    input: &'a mut Input<'b>,
    delimiter: u8,
    /// The header, once known.
    width: Option<Arc<Table>>,
    /// The last row ended with a carriage return; a line feed behind it belongs to that end.
    is_behind_return: bool,
}

impl Rows<'_, '_> {
    /// The next row that is not empty.
    fn next(&mut self) -> io::Result<Option<Row>> {
        loop {
            match self.input.byte(0)? {
                None => return Ok(None),
                Some(b'\n') => {
                    self.input.skip(1);
                    self.input.count_lines(u64::from(!self.is_behind_return));
                    self.is_behind_return = false;
                }
                Some(b'\r') => self.end_row(0),
                Some(_) => break,
            }
        }
        self.is_behind_return = false;
        let line = self.input.line();
        let mut row = Row {
            line,
            text: Vec::new(),
            ends: Vec::with_capacity(self.width.as_ref().map_or(8, |table| table.width())),
            reason: None,
        };
        let mut at = 0;
        // The first quote whose cell spans several lines: its position and column.
        let mut over_lines = None;
        loop {
            if self.input.byte(at)? == Some(b'"') {
                let opens = at;
                let (is_closed, is_long) = self.quoted(&mut at, &mut row.text)?;
                if is_long {
                    over_lines.get_or_insert((opens, row.ends.len()));
                }
                let column = row.ends.len();
                if !is_closed {
                    let what = "the quote that opens here never closes";
                    return self.bad(opens, column, what).map(Some);
                }
                // Blanks behind a closing quote are ignored.
                while matches!(self.input.byte(at)?, Some(b' ')) {
                    at += 1;
                }
                match self.input.byte(at)? {
                    None | Some(b'\n' | b'\r') => {}
                    Some(byte) if byte == self.delimiter => {}
                    Some(_) => {
                        let what = if is_long {
                            "the quote that opens here does not close on its line, and text follows the quote that closes it"
                        } else {
                            "text follows a quoted cell"
                        };
                        return self.bad(opens, column, what).map(Some);
                    }
                }
            } else {
                self.unquoted(&mut at, &mut row.text)?;
            }
            row.ends.push(row.text.len());
            match self.input.byte(at)? {
                Some(byte) if byte == self.delimiter => at += 1,
                end => {
                    if let (Some((opens, column)), Some(table)) = (over_lines, &self.width)
                        && !table.takes(row.ends.len())
                    {
                        let (cells, header) = (row.ends.len(), table.width());
                        let what = format!(
                            "the quote that opens here closes on another line, and the row would have {cells} cells, but the header has {header}"
                        );
                        return self.bad(opens, column, &what).map(Some);
                    }
                    if over_lines.is_some() {
                        self.input.take(at);
                    } else {
                        self.input.skip(at);
                    }
                    if end.is_some() {
                        self.end_row(0);
                    }
                    return Ok(Some(row));
                }
            }
        }
    }

    /// Takes the end of a line.
    fn end_row(&mut self, at: usize) {
        self.is_behind_return = self.input.rest().get(at) == Some(&b'\r');
        self.input.skip(at + 1);
        self.input.count_lines(1);
    }

    /// Appends a quoted cell. Returns whether its quote closes, and whether it spans several lines.
    fn quoted(&mut self, at: &mut usize, text: &mut Vec<u8>) -> io::Result<(bool, bool)> {
        let begin = text.len();
        *at += 1;
        let is_closed = loop {
            let rest = self.input.rest().get(*at..).unwrap_or_default();
            let Some(end) = memchr(b'"', rest) else {
                text.extend_from_slice(rest);
                *at += rest.len();
                if *at > LINE_MAX || !self.input.fill()? {
                    break false;
                }
                continue;
            };
            text.extend_from_slice(rest.get(..end).unwrap_or_default());
            *at += end + 1;
            if self.input.byte(*at)? != Some(b'"') {
                break true;
            }
            text.push(b'"');
            *at += 1;
        };
        let cell = text.get(begin..).unwrap_or_default();
        Ok((is_closed, cell.iter().any(|b| matches!(b, b'\n' | b'\r'))))
    }

    /// Appends a cell without quotes.
    fn unquoted(&mut self, at: &mut usize, text: &mut Vec<u8>) -> io::Result<()> {
        let delimiter = self.delimiter;
        loop {
            let rest = self.input.rest().get(*at..).unwrap_or_default();
            let ends = |byte: &u8| *byte == delimiter || matches!(byte, b'\n' | b'\r');
            let end = rest.iter().position(ends);
            let length = end.unwrap_or(rest.len());
            text.extend_from_slice(rest.get(..length).unwrap_or_default());
            *at += length;
            if end.is_some() {
                return Ok(());
            }
            if *at > LINE_MAX {
                let what = format!("a row has more than the {LINE_MAX} bytes allowed");
                return Err(io::Error::new(io::ErrorKind::InvalidData, what));
            }
            if !self.input.fill()? {
                return Ok(());
            }
        }
    }

    /// A bad row because of the quote at `opens`; it ends with that line.
    fn bad(&mut self, opens: usize, column: usize, what: &str) -> io::Result<Row> {
        let mut end = opens;
        while !matches!(self.input.byte(end)?, None | Some(b'\n' | b'\r')) {
            end += 1;
        }
        let name = match &self.width {
            Some(table) if column < table.width() => format!(" (column `{}`)", table.name(column)),
            _ => format!(" (column {})", column + 1),
        };
        let text = self.input.rest().get(..end).unwrap_or_default().to_vec();
        self.input.take(end);
        let line = self.input.line();
        if self.input.byte(0)?.is_some() {
            self.end_row(0);
        }
        Ok(Row {
            line,
            text,
            ends: Vec::new(),
            reason: Some(format!("{what}{name}")),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;

    use super::*;

    /// A header that does not end, and the bytes that were read of it.
    struct Endless<'r>(&'r AtomicUsize);

    impl Read for Endless<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let read = self.0.fetch_add(buffer.len(), Ordering::Relaxed);
            if read > 64 << 20 {
                return Ok(0);
            }
            buffer.fill(b';');
            Ok(buffer.len())
        }
    }

    /// A file without a line break was read as a whole to find the separator.
    #[test]
    fn the_separator_is_found_in_the_first_bytes() {
        let read = AtomicUsize::new(0);
        let mut reader = Endless(&read);
        let (sender, _receiver) = mpsc::sync_channel(1);
        let mut input = Input::new(&mut reader, &sender);
        assert_eq!(likely_delimiter(&mut input).unwrap(), b';');
        assert!(read.load(Ordering::Relaxed) <= 2 << 20, "{read:?}");
    }
}
