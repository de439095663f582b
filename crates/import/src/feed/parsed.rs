//! Items that a parser has found in a source but not sent yet.

use std::sync::Arc;

use super::message::{Item, Message};
use super::table::{Row, Table};

/// The maximum number of names kept of members beside the records.
const NAMES: usize = 20;

/// The items that a parser has found.
#[derive(Default)]
pub(super) struct Parsed {
    items: Vec<Item>,
    text: Vec<u8>,
    rows: Vec<Row>,
    /// The size of the rows.
    row_bytes: usize,
    /// The header of the rows.
    pub(super) table: Option<Arc<Table>>,
    /// The number of values found so far.
    pub(super) given: u64,
    /// The line of the last value, and the number of values that began on it so far.
    last: (u64, u32),
    /// The note about arrays among the lines was sent.
    pub(super) is_array_said: bool,
    /// The indentation of the current value on its line.
    pub(super) indent: usize,
    left_out: Vec<String>,
}

impl Parsed {
    pub(super) fn value(&mut self, line: u64, text: &[u8]) {
        self.add(line, text, None);
    }

    /// Adds a value that cannot be a record.
    pub(super) fn bad(&mut self, line: u64, text: &[u8], reason: String) {
        self.add(line, text, Some(reason));
    }

    fn add(&mut self, line: u64, text: &[u8], reason: Option<String>) {
        let part = match self.last {
            (last, part) if last == line => part.saturating_add(1),
            _ => 1,
        };
        self.last = (line, part);
        self.given += 1;
        let begin = self.text.len();
        self.text.extend_from_slice(text);
        self.items.push(Item {
            line,
            part,
            text: begin..self.text.len(),
            reason,
        });
    }

    pub(super) fn row(&mut self, row: Row) {
        self.row_bytes += row.text.len() + 64;
        self.rows.push(row);
    }

    /// Adds the name of a member beside the records.
    pub(super) fn leave_out(&mut self, name: &str) {
        if name != "type" && self.left_out.len() < NAMES && !self.left_out.iter().any(|n| n == name)
        {
            self.left_out.push(name.to_string());
        }
    }

    pub(super) fn take_left_out(&mut self) -> Vec<String> {
        std::mem::take(&mut self.left_out)
    }

    pub(super) fn bytes(&self) -> usize {
        self.text.len() + self.row_bytes
    }

    /// Takes the values, or else the rows; `None` if there are none.
    pub(super) fn message(&mut self) -> Option<Message> {
        if !self.items.is_empty() {
            return Some(Message::Values {
                items: std::mem::take(&mut self.items),
                text: std::mem::take(&mut self.text),
            });
        }
        let table = self.table.as_ref().filter(|_| !self.rows.is_empty())?;
        self.row_bytes = 0;
        let rows = std::mem::take(&mut self.rows);
        Some(Message::Rows(Arc::clone(table), rows))
    }
}
