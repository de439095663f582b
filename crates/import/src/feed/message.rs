//! Messages from the reading to the importing thread.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use super::table::{Row, Table};

/// The maximum length of a line (or CSV row) in bytes. A longer one is skipped without being held
/// in memory.
pub const LINE_MAX: usize = 256 << 20;
/// The number of bytes per read.
pub(super) const CHUNK: usize = 256 << 10;
/// A message of the reading thread.
pub(crate) enum Message {
    /// The next source begins.
    Begin(usize),
    /// Whole lines and the number of the first. The last line of a source may lack its line break.
    Lines { first: u64, text: Vec<u8> },
    /// A line longer than `LINE_MAX`: its first bytes, and its length.
    Long {
        line: u64,
        text: Vec<u8>,
        length: u64,
    },
    /// Values found in the source.
    Values { items: Vec<Item>, text: Vec<u8> },
    /// Rows of a CSV file.
    Rows(Arc<Table>, Vec<Row>),
    /// The shape of the source.
    Read(Shape),
    /// The source cannot be read further. It is the last message.
    Failed(String),
    /// All sources were read. It is the last message.
    End,
}

/// The shape of a source, if it is not one record per line.
pub(crate) enum Shape {
    Array,
    /// From this line on, some lines are arrays.
    Arrays(u64),
    Collection,
    Member(String),
    /// The object is one record, though its only member is an array of objects.
    Whole(String),
    /// The names of members beside the records.
    LeftOut(Vec<String>),
    /// The separator of a CSV file.
    Delimiter(u8),
    /// A column number of a CSV file without a name, and the name that it got.
    Unnamed(usize, String),
    /// A duplicate column name, and the name that the further column got.
    Twice(String, String),
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Array => f.write_str("the file is an array: its elements are the records"),
            Self::Arrays(line) => write!(
                f,
                "line {line} is an array: its elements are the records, also on later lines"
            ),
            Self::Collection => {
                f.write_str("the file is a GeoJSON FeatureCollection: its features are the records")
            }
            Self::Member(name) => write!(
                f,
                "the file is an object with one array: the elements of `{name}` are the records"
            ),
            Self::Whole(name) => write!(
                f,
                "the file is one object, which is the record: `--records {name}` loads the elements of its array"
            ),
            Self::LeftOut(names) => {
                let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
                write!(
                    f,
                    "members beside the records are not loaded: {}",
                    names.join(", ")
                )
            }
            Self::Delimiter(b'\t') => f.write_str("the columns are separated by tabs"),
            Self::Delimiter(by) => write!(f, "the columns are separated by `{}`", *by as char),
            Self::Unnamed(at, name) => write!(f, "column {at} has no name: it is called `{name}`"),
            Self::Twice(of, name) => write!(f, "another column `{of}` is called `{name}`"),
        }
    }
}

/// The reading thread's end of the queue. Sending fails once the feed is dropped.
pub(super) type Sender = SyncSender<Message>;

/// A value in a source.
pub(crate) struct Item {
    /// The line on which it begins.
    pub(crate) line: u64,
    /// Its number among the values that begin on the line, from 1.
    pub(crate) part: u32,
    /// Its range in the text of all values.
    pub(crate) text: Range<usize>,
    /// The reason why it is not a record, if known.
    pub(crate) reason: Option<String>,
}
