//! What an importer gets from the sources.

/// A line of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The number of the source, from 0.
    pub source: usize,
    /// The line number, from 1.
    pub line: u64,
    /// The number among the values that begin on the line, from 1; 0 if the line is one value.
    pub part: u32,
}

impl Place {
    /// Before the first line.
    pub(crate) const START: Place = Place {
        source: 0,
        line: 0,
        part: 0,
    };

    /// Behind all lines of a source.
    pub(crate) fn end_of(source: usize) -> Place {
        Place {
            source,
            line: u64::MAX,
            part: u32::MAX,
        }
    }
}

/// An item of a source.
#[derive(Debug)]
pub enum Event<'a> {
    /// No more data is available yet: what was returned so far can be committed. Returned
    /// repeatedly until data arrives.
    Pause,
    /// A line or value that may be a record.
    Record {
        /// The number of the source, from 0.
        source: usize,
        /// Its line, from 1.
        line: u64,
        /// The number among the values that begin on the line, from 1; 0 if the line is one value.
        part: u32,
        /// The record, as JSON.
        text: &'a [u8],
    },
    /// A line that cannot be a record.
    Bad {
        /// The number of the source, from 0.
        source: usize,
        /// Its line, from 1.
        line: u64,
        /// The number among the values that begin on the line, from 1; 0 if the line is one value.
        part: u32,
        /// The reason why it is not a record.
        reason: String,
        /// The line, or its beginning.
        text: &'a [u8],
    },
    /// The source cannot be read further.
    Failed {
        /// The number of the source, from 0.
        source: usize,
        /// The last line that was read.
        line: u64,
        /// The reason.
        reason: String,
    },
}

/// The records of the first lines, read ahead.
#[derive(Default)]
pub struct Sample {
    /// JSON objects.
    pub records: Vec<Vec<u8>>,
    /// Lines read that are not records.
    pub others: u64,
    /// The source that cannot be read further, and the reason.
    pub failed: Option<(usize, String)>,
}
