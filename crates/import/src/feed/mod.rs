//! Records from files: NDJSON and other JSON, or CSV. A thread of its own reads and decompresses
//! into a short queue of chunks, so that the loading thread only parses and writes.

mod csv;
mod input;
mod lines;
mod parsed;
mod scan;
mod table;

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::thread;
use std::time::{Duration, Instant};

use memchr::memchr;
use serde_json::Value;

use self::input::Input;
use self::lines::Reading;
use self::parsed::Item;
pub(crate) use self::scan::parts;
#[cfg(test)]
pub(crate) use self::table::Cells as TestCells;
pub(crate) use self::table::Columns;
#[cfg(test)]
pub(crate) use self::table::cell;
use self::table::{Cells, Row, Table};
use crate::source::{Format, Source};

/// The longest line (or CSV row) in bytes; a longer one is skipped without being held in memory.
pub const LINE_MAX: usize = 256 << 20;
/// How much is read at a time.
const CHUNK: usize = 256 << 10;
/// Chunks between the reading and the loading thread.
const QUEUE: usize = 4;

/// What the reading thread sends.
pub(crate) enum Message {
    /// The next source begins.
    Begin(usize),
    /// Whole lines (the last of a source may lack its line break), and the number of the first.
    Lines { first: u64, text: Vec<u8> },
    /// A line over `LINE_MAX`: its first bytes, and its length.
    Long {
        line: u64,
        text: Vec<u8>,
        length: u64,
    },
    /// Values that were taken out of the source.
    Values { items: Vec<Item>, text: Vec<u8> },
    /// Rows of a CSV file.
    Rows(Arc<Table>, Vec<Row>),
    /// How the source is read.
    Read(Shape),
    /// The source cannot be read on; nothing follows.
    Failed(String),
}

/// How a source is read, where that is not a record a line.
pub(crate) enum Shape {
    Array,
    /// From this line on there are arrays among the lines.
    Arrays(u64),
    Collection,
    Member(String),
    /// What stands beside the records, by name.
    LeftOut(Vec<String>),
    /// What separates the columns of a CSV file.
    Delimiter(u8),
    /// The name that a column of a CSV file got, and its number.
    Unnamed(usize, String),
    /// The name that a further column of the same name got, and that name.
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

/// The reading thread's end of the queue. An error means that nobody listens any more.
type Sender = SyncSender<Message>;

/// A line of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Which source, from 0.
    pub source: usize,
    /// Which line of it, from 1.
    pub line: u64,
    /// Which of the values that begin on the line, from 1; 0 if the line is one value.
    pub part: u32,
}

/// When nothing is there and what was given is so old, [`Event::Pause`] is given: a stream that gives something now and then, however
/// often, keeps nothing waiting for longer.
const PAUSE: Duration = Duration::from_millis(50);

/// When standard input has nothing more to give so long after the first record, what has come is the sample if it is enough: more
/// would tell more.
const SAMPLE_PAUSE: Duration = Duration::from_millis(500);

/// An item of a source.
#[derive(Debug)]
pub enum Event<'a> {
    /// No more data is available yet: what was returned so far can be committed. Returned repeatedly until data arrives.
    Pause,
    /// A line or value that may be a record.
    Record {
        /// Which source, from 0.
        source: usize,
        /// Its line, from 1.
        line: u64,
        /// Which of the values that begin on the line, from 1; 0 if the line is one value.
        part: u32,
        /// The record, as JSON.
        text: &'a [u8],
    },
    /// A line that cannot be a record.
    Bad {
        /// Which source, from 0.
        source: usize,
        /// Its line, from 1.
        line: u64,
        /// Which of the values that begin on the line, from 1; 0 if the line is one value.
        part: u32,
        /// Why it is not a record.
        reason: String,
        /// The line, or its beginning.
        text: &'a [u8],
    },
    /// The source cannot be read further.
    Failed {
        /// Which source, from 0.
        source: usize,
        /// The last line that was read.
        line: u64,
        /// Why.
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
    /// The source that cannot be read further, and why.
    pub failed: Option<(usize, String)>,
}

/// The stream of lines of all sources.
pub struct Feed {
    receiver: Receiver<Message>,
    read: Arc<AtomicU64>,
    /// Received for a sample, not yet taken.
    queue: VecDeque<Message>,
    current: Option<Message>,
    /// Bytes of `Lines`, or entries of `Rows` and `Values`, that were taken from `current`.
    taken: usize,
    source: usize,
    line: u64,
    part: u32,
    /// What lies up to here is not given.
    skipped: Option<Place>,
    /// What the dataset says about the columns of CSV files.
    columns: Columns,
    /// How the cells of the current rows are read, by column.
    read_as: Vec<Cells>,
    /// What is to be said about how the sources are read.
    notes: Vec<String>,
    json: Vec<u8>,
    /// Standard input is among the sources.
    is_stream: bool,
    /// Every source is CSV.
    is_table: bool,
    names: Vec<String>,
    size: Option<u64>,
    /// When the first of what was given since the last pause had come.
    unpaused: Option<Instant>,
}

impl Feed {
    /// Starts reading.
    pub fn start(sources: Vec<Source>) -> Self {
        let (sender, receiver) = mpsc::sync_channel(QUEUE);
        let read = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&read);
        let names = sources.iter().map(Source::name).collect();
        let size = sources.iter().map(|source| source.size).sum();
        let is_table = sources.iter().all(|source| source.format == Format::Csv);
        let is_stream = sources.iter().any(|source| source.path.is_none());
        // Not joined: it ends with its input, or with its first message after the feed is dropped.
        thread::spawn(move || read_all(&sources, &sender, &counter));
        Self {
            receiver,
            read,
            queue: VecDeque::new(),
            current: None,
            taken: 0,
            source: 0,
            line: 0,
            part: 0,
            skipped: None,
            columns: Columns::default(),
            read_as: Vec::new(),
            notes: Vec::new(),
            json: Vec::new(),
            is_stream,
            is_table,
            names,
            size,
            unpaused: None,
        }
    }

    /// The name of a source, for messages.
    pub fn name(&self, source: usize) -> &str {
        self.names.get(source).map_or("input", String::as_str)
    }

    /// The size of all sources in bytes, if known.
    pub fn size(&self) -> Option<u64> {
        self.size
    }

    /// True if every source is CSV: a column of strings accepts any cell.
    pub fn is_table(&self) -> bool {
        self.is_table
    }

    /// Where the last line is that was read.
    fn place(&self) -> Place {
        Place {
            source: self.source,
            line: self.line,
            part: self.part,
        }
    }

    /// Notes about how the sources are read; each is returned once.
    pub fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    /// Skips the lines up to a place, or to an earlier end or read error of the sources.
    pub fn skip_to(&mut self, place: Place) {
        self.skipped = Some(place);
    }

    /// Bytes read so far, before decompression.
    pub fn bytes_read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// Says which CSV columns are strings, and which are numbers, whatever their cells look like.
    pub(crate) fn set_columns(&mut self, columns: Columns) {
        self.columns = columns;
    }

    /// Reads ahead until it has `records` records or `bytes` bytes. If standard input pauses, the data so far is the sample if
    /// `enough` says so. If the process is asked to stop, it is the sample in any case.
    pub fn sample(
        &mut self,
        records: usize,
        bytes: usize,
        enough: impl Fn(&[Vec<u8>]) -> bool,
        is_stopped: impl Fn() -> bool,
    ) -> Sample {
        let mut sample = Sample::default();
        let (mut seen, mut source) = (0, 0);
        let mut since = None;
        while sample.records.len() < records && seen < bytes && !is_stopped() {
            let message = match self.receiver.recv_timeout(left(since, SAMPLE_PAUSE)) {
                Ok(message) => message,
                Err(RecvTimeoutError::Timeout) if self.is_stream && enough(&sample.records) => {
                    break;
                }
                Err(RecvTimeoutError::Timeout) => {
                    since = None;
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => break,
            };
            let mut look = |text: &[u8]| {
                seen += text.len();
                let text = without_mark(text);
                if matches!(serde_json::from_slice(text), Ok(Value::Object(_))) {
                    sample.records.push(text.to_vec());
                } else if let Some(parts) = parts(text) {
                    let parts = parts.into_iter().filter_map(|part| text.get(part));
                    sample.records.extend(parts.map(<[u8]>::to_vec));
                } else if !blank(text) {
                    sample.others += 1;
                }
            };
            match &message {
                Message::Lines { text, .. } => {
                    text.split(|&b| b == b'\n').for_each(&mut look);
                }
                Message::Rows(table, rows) => {
                    let read_as = table.read_as(&self.columns);
                    for row in rows {
                        match table.object(row, &read_as, &mut self.json) {
                            Ok(()) => look(&self.json),
                            Err(_) => look(b"bad"),
                        }
                    }
                }
                Message::Values { items, text } => {
                    for item in items {
                        match item.reason {
                            None => look(text.get(item.text.clone()).unwrap_or_default()),
                            Some(_) => look(b"bad"),
                        }
                    }
                }
                Message::Long { text, .. } => look(text),
                Message::Begin(at) => source = *at,
                Message::Read(_) => {}
                Message::Failed(reason) => sample.failed = Some((source, reason.clone())),
            }
            self.queue.push_back(message);
            if !sample.records.is_empty() {
                since.get_or_insert_with(Instant::now);
            }
        }
        sample.records.truncate(records);
        sample
    }

    /// True when the line that was just read is to be skipped.
    fn is_skipped(&self) -> bool {
        self.skipped.is_some_and(|skipped| self.place() <= skipped)
    }

    /// The next line or value, without blank ones; `None` at the end of all sources.
    #[allow(
        clippy::should_implement_trait,
        reason = "an event borrows from the feed"
    )]
    pub fn next(&mut self) -> Option<Event<'_>> {
        loop {
            match &self.current {
                Some(Message::Lines { text, .. }) if self.taken < text.len() => {
                    let rest = text.get(self.taken..).unwrap_or_default();
                    let end = memchr(b'\n', rest).unwrap_or(rest.len());
                    let start = self.taken;
                    self.taken += end + 1;
                    self.line += 1;
                    if !self.is_skipped() && !blank(rest.get(..end).unwrap_or_default()) {
                        return Some(self.record(start, start + end));
                    }
                }
                Some(Message::Rows(_, rows)) if self.taken < rows.len() => {
                    self.taken += 1;
                    self.line = rows.get(self.taken - 1).map_or(self.line, |row| row.line);
                    if self.is_skipped() {
                        continue;
                    }
                    return self.row(self.taken - 1);
                }
                Some(Message::Values { items, .. }) if self.taken < items.len() => {
                    self.taken += 1;
                    if let Some(item) = items.get(self.taken - 1) {
                        (self.line, self.part) = (item.line, item.part);
                    }
                    if self.is_skipped() {
                        continue;
                    }
                    return self.value(self.taken - 1);
                }
                _ => {
                    self.taken = 0;
                    self.current = None;
                    let message = match self.queue.pop_front() {
                        Some(message) => message,
                        None => match self.receiver.recv_timeout(left(self.unpaused, PAUSE)) {
                            Ok(message) => message,
                            Err(RecvTimeoutError::Timeout) => {
                                self.unpaused = None;
                                return Some(Event::Pause);
                            }
                            Err(RecvTimeoutError::Disconnected) => return None,
                        },
                    };
                    self.unpaused.get_or_insert_with(Instant::now);
                    self.part = 0;
                    match message {
                        Message::Begin(source) => {
                            self.source = source;
                            self.line = 0;
                        }
                        Message::Read(shape) => {
                            let name = self.name(self.source);
                            self.notes.push(format!("{name}: {shape}"));
                        }
                        Message::Long { line, text, length } => {
                            self.line = line;
                            if self.is_skipped() {
                                continue;
                            }
                            self.json = text;
                            return Some(Event::Bad {
                                source: self.source,
                                line: self.line,
                                part: 0,
                                reason: too_long(length),
                                text: &self.json,
                            });
                        }
                        Message::Failed(reason) => {
                            return Some(Event::Failed {
                                source: self.source,
                                line: self.line,
                                reason,
                            });
                        }
                        Message::Lines { first, text } => {
                            self.line = first.saturating_sub(1);
                            self.current = Some(Message::Lines { first, text });
                        }
                        Message::Rows(table, rows) => {
                            self.read_as = table.read_as(&self.columns);
                            self.current = Some(Message::Rows(table, rows));
                        }
                        message => self.current = Some(message),
                    }
                }
            }
        }
    }

    fn record(&self, start: usize, end: usize) -> Event<'_> {
        let text = match &self.current {
            Some(Message::Lines { text, .. }) => text.get(start..end).unwrap_or_default(),
            _ => &[],
        };
        let text = text.strip_suffix(b"\r").unwrap_or(text);
        let text = without_mark(text);
        let (source, line) = (self.source, self.line);
        if text.len() > LINE_MAX {
            Event::Bad {
                source,
                line,
                part: 0,
                reason: too_long(text.len() as u64),
                text,
            }
        } else {
            Event::Record {
                source,
                line,
                part: 0,
                text,
            }
        }
    }

    fn value(&self, at: usize) -> Option<Event<'_>> {
        let Some(Message::Values { items, text }) = &self.current else {
            return None;
        };
        let item = items.get(at)?;
        let text = text.get(item.text.clone()).unwrap_or_default();
        let (source, line, part) = (self.source, item.line, item.part);
        Some(match &item.reason {
            None => Event::Record {
                source,
                line,
                part,
                text,
            },
            Some(reason) => Event::Bad {
                source,
                line,
                part,
                reason: reason.clone(),
                text,
            },
        })
    }

    fn row(&mut self, at: usize) -> Option<Event<'_>> {
        let Some(Message::Rows(table, rows)) = &self.current else {
            return None;
        };
        let (source, row) = (self.source, rows.get(at)?);
        let (line, part) = (row.line, 0);
        Some(match table.object(row, &self.read_as, &mut self.json) {
            Ok(()) => Event::Record {
                source,
                line,
                part,
                text: &self.json,
            },
            Err(reason) => {
                table.text(row, &mut self.json);
                Event::Bad {
                    source,
                    line,
                    part,
                    reason,
                    text: &self.json,
                }
            }
        })
    }
}

/// A line without a byte order mark: files that begin with one are often strung together.
fn without_mark(text: &[u8]) -> &[u8] {
    text.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(text)
}

/// What is left of a time that began with `since`.
fn left(since: Option<Instant>, time: Duration) -> Duration {
    since.map_or(time, |since| time.saturating_sub(since.elapsed()))
}

fn too_long(bytes: u64) -> String {
    format!("the line has {bytes} bytes, over the limit of {LINE_MAX}")
}

/// White space only, as JSON sees it.
fn blank(text: &[u8]) -> bool {
    text.iter()
        .all(|b| matches!(b, b' ' | b'\t' | b'\r' | b'\n'))
}

fn read_all(sources: &[Source], sender: &Sender, counter: &Arc<AtomicU64>) {
    for (at, source) in sources.iter().enumerate() {
        if sender.send(Message::Begin(at)).is_err() {
            return;
        }
        let read = source.open(counter);
        let read = read.and_then(|mut reader| read_source(source, &mut *reader, sender));
        if let Err(error) = read {
            let _ = sender.send(Message::Failed(error.to_string()));
            return;
        }
    }
}

/// Sends what a source holds.
fn read_source(source: &Source, reader: &mut dyn Read, sender: &Sender) -> io::Result<()> {
    let mut input = Input::new(reader, sender);
    let read = match source.format {
        Format::Csv => csv::read(&mut input, source.delimiter),
        Format::Ndjson | Format::Lines => {
            let reading = Reading {
                max: LINE_MAX,
                is_plain: source.format == Format::Lines,
                records: source.records.as_deref(),
            };
            lines::read(&mut input, &reading)
        }
    };
    // Also what came before a failure.
    input.finish();
    read
}

#[cfg(test)]
impl Feed {
    /// A feed of what a reader gives.
    pub(crate) fn of(source: Source, mut reader: Box<dyn Read + Send>) -> Self {
        let (sender, receiver) = mpsc::sync_channel(QUEUE);
        let mut feed = Self::start(Vec::new());
        feed.receiver = receiver;
        thread::spawn(move || {
            let _ = read_source(&source, &mut *reader, &sender);
        });
        feed
    }
}
