//! Buffered standard output; formatting of numbers, tables and emphasis for people.

pub(crate) use esker_import::thousands;
use std::fmt;
use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};

use crate::failure::Failure;
pub(crate) use crate::report::note;

/// Buffered standard output. Call `finish` at the end, so that a failed last write is reported.
pub(crate) struct Output {
    inner: BufWriter<StdoutLock<'static>>,
}

impl Output {
    pub(crate) fn new() -> Self {
        Self {
            inner: BufWriter::with_capacity(64 << 10, io::stdout().lock()),
        }
    }

    /// Writes a record's body as one line.
    pub(crate) fn record(&mut self, body: &[u8]) -> Result<(), Failure> {
        self.json(body)?;
        self.bytes(b"\n")
    }

    /// Writes a record's body without line breaks.
    pub(crate) fn json(&mut self, body: &[u8]) -> Result<(), Failure> {
        if !body.contains(&b'\n') {
            return self.bytes(body);
        }
        // Inside JSON a raw line break is white space between tokens, never part of a string.
        let line: Vec<u8> = body
            .iter()
            .map(|&b| if b == b'\n' { b' ' } else { b })
            .collect();
        self.bytes(&line)
    }

    /// Writes text.
    pub(crate) fn text(&mut self, text: impl fmt::Display) -> Result<(), Failure> {
        write!(self.inner, "{text}").map_err(|e| Failure::output(&e))
    }

    /// Writes a line of text.
    pub(crate) fn line(&mut self, text: impl fmt::Display) -> Result<(), Failure> {
        writeln!(self.inner, "{text}").map_err(|e| Failure::output(&e))
    }

    /// Writes all buffered bytes.
    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        self.inner.flush().map_err(|e| Failure::output(&e))
    }

    /// Writes all buffered bytes and ends the output.
    pub(crate) fn finish(mut self) -> Result<(), Failure> {
        self.flush()
    }

    /// Writes bytes as they are.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.inner.write_all(bytes).map_err(|e| Failure::output(&e))
    }
}

/// Text in bold, if standard output is a terminal and `NO_COLOR` is unset (<https://no-color.org>).
pub(crate) fn bold(text: &str) -> String {
    let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    if io::stdout().is_terminal() && !refused {
        format!("\x1b[1m{text}\x1b[0m")
    } else {
        text.to_string()
    }
}

/// The columns of the terminal, if standard output is one.
pub(crate) fn terminal_width() -> Option<usize> {
    let stdout = io::stdout();
    if !stdout.is_terminal() {
        return None;
    }
    let size = rustix::termios::tcgetwinsize(&stdout).ok();
    size.map(|size| usize::from(size.ws_col))
        .filter(|columns| *columns > 0)
}

/// A number and its noun, with an `s` for the plural: `1 record`, `1,200 records`.
pub(crate) fn counted(number: u64, thing: &str) -> String {
    let s = if number == 1 { "" } else { "s" };
    format!("{} {thing}{s}", thousands(number))
}

/// A time that has passed, for people.
pub(crate) fn age(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// A number of bytes with a binary unit: `64.0 MiB`.
pub(crate) fn bytes(number: u64) -> String {
    let mut value = number as f64;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if value < 1024.0 {
            return if unit == "B" {
                format!("{number} B")
            } else {
                format!("{value:.1} {unit}")
            };
        }
        value /= 1024.0;
    }
    format!("{value:.1} TiB")
}

/// At most `limit` characters of a text, with `...` if it was cut.
pub(crate) fn shorten(text: &str, limit: usize) -> String {
    match text.char_indices().nth(limit) {
        Some((end, _)) => format!("{}...", text.get(..end).unwrap_or(text)),
        None => text.to_string(),
    }
}

/// Rows of cells, each column as wide as its widest cell.
pub(crate) fn columns<const N: usize>(rows: &[[String; N]]) -> String {
    let mut widths = [0; N];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(widths);
        let line: Vec<String> = cells
            .map(|(cell, width)| format!("{cell:<width$}"))
            .collect();
        text += line.join("  ").trim_end();
        text.push('\n');
    }
    text
}

/// How to continue an input behind its last value, which begins on a line as number `part` of those
/// that do; 0 for a line as a whole.
pub(crate) fn behind(line: u64, part: u32, is_row: bool) -> String {
    let at = thousands(line);
    match (part, is_row) {
        (_, true) => format!(
            "continue behind the row that begins on line {at}, with the row of the names before the rest"
        ),
        (0, false) => format!("continue with line {}", thousands(line + 1)),
        (1, false) => format!("continue behind the value that begins on line {at}"),
        (part, false) => format!(
            "continue behind value {} of those that begin on line {at}",
            thousands(u64::from(part))
        ),
    }
}
