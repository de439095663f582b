//! The records of all sources, in order.

use std::collections::VecDeque;
#[cfg(test)]
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use memchr::memchr;
use serde::de::IgnoredAny;

use super::event::{Event, Place, Sample};
use super::message::{LINE_MAX, Message};
#[cfg(test)]
use super::reading::read_source;
use super::reading::{QUEUE, read_all};
use super::scan::{Wrapper, parts, wrapper};
use super::table::{Cells, Columns};
use crate::source::{Format, Source};

/// When no data is available and the first event since the last pause is this old, the feed returns
/// [`Event::Pause`]. So even on a stream that sends a little all the time, no record waits longer
/// for its commit.
const PAUSE: Duration = Duration::from_millis(50);

/// If standard input pauses this long after the first record, the records so far are the sample, if
/// they suffice.
const SAMPLE_PAUSE: Duration = Duration::from_millis(500);

/// Why the reading thread may end without a last message.
const PANIC: &str = "the thread that reads it has ended unexpectedly";

/// The stream of lines of all sources.
pub struct Feed {
    receiver: Receiver<Message>,
    read: Arc<AtomicU64>,
    /// Messages received for a sample, and not consumed yet.
    queue: VecDeque<Message>,
    current: Option<Message>,
    /// How much of `current` is consumed: bytes of `Lines`, or entries of `Rows` and `Values`.
    taken: usize,
    source: usize,
    line: u64,
    part: u32,
    /// Events up to this place are skipped.
    skipped: Option<Place>,
    /// The CSV columns that the dataset declares.
    columns: Columns,
    /// How to read the cells of the current rows, by column.
    read_as: Vec<Cells>,
    /// Notes about how the sources are read.
    notes: Vec<String>,
    json: Vec<u8>,
    /// One of the sources is standard input.
    is_stream: bool,
    /// Every source is CSV.
    is_table: bool,
    /// An object whose only member is an array of objects is no record of any source.
    unwraps: bool,
    /// For each source, whether it is CSV.
    rows: Vec<bool>,
    names: Vec<String>,
    size: Option<u64>,
    /// The arrival of the first message since the last pause.
    unpaused: Option<Instant>,
    /// The last message was consumed.
    is_ended: bool,
}

impl Feed {
    /// Starts reading.
    pub fn start(sources: Vec<Source>) -> Self {
        let (sender, receiver) = mpsc::sync_channel(QUEUE);
        let read = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&read);
        let names = sources.iter().map(Source::name).collect();
        let size = sources.iter().map(|source| source.size).sum();
        let rows = sources.iter().map(|source| source.format == Format::Csv);
        let rows: Vec<bool> = rows.collect();
        let is_table = rows.iter().all(|has| *has);
        let is_stream = sources.iter().any(|source| source.path.is_none());
        let unwraps = sources.iter().all(|source| source.unwraps);
        // Not joined: the thread ends with its input, or when it sends after the feed was dropped.
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
            unwraps,
            rows,
            names,
            size,
            unpaused: None,
            is_ended: false,
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

    /// True if the lines of a source are rows of a table, which may span several lines.
    pub fn has_rows(&self, source: usize) -> bool {
        self.rows.get(source).is_some_and(|has| *has)
    }

    /// The place of the last line read.
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

    /// Sets the CSV columns to read as strings or as numbers, regardless of their cells' text.
    pub(crate) fn set_columns(&mut self, columns: Columns) {
        self.columns = columns;
    }

    /// Reads ahead until it has `records` records or `bytes` bytes. If standard input pauses, the
    /// records so far are the sample if `enough` returns true for them. If `is_stopped` returns
    /// true, they are the sample in any case.
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
                // The next event is the end, or says that the reading failed.
                Err(RecvTimeoutError::Disconnected) => break,
            };
            let mut look = |text: &[u8]| {
                seen += text.len();
                let text = without_mark(text);
                // Without a key, the object is put by its elements.
                let is_wrapper =
                    || matches!(wrapper(text.trim_ascii_start()), Some(Wrapper::Only(_)));
                if is_object(text) && !(self.unwraps && is_wrapper()) {
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
                Message::Read(_) | Message::End => {}
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

    /// True if the current line is to be skipped.
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
                            Err(RecvTimeoutError::Disconnected) if self.is_ended => return None,
                            Err(RecvTimeoutError::Disconnected) => Message::Failed(PANIC.into()),
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
                        Message::End => {
                            self.is_ended = true;
                            return None;
                        }
                        Message::Failed(reason) => {
                            self.is_ended = true;
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

/// Removes a byte order mark, which any line may have: files that begin with one are often
/// concatenated.
fn without_mark(text: &[u8]) -> &[u8] {
    text.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(text)
}

/// The rest of a period that began at `since`.
fn left(since: Option<Instant>, time: Duration) -> Duration {
    since.map_or(time, |since| time.saturating_sub(since.elapsed()))
}

fn too_long(bytes: u64) -> String {
    format!("the line has {bytes} bytes, over the limit of {LINE_MAX}")
}

/// True for the text of an object. Of values in it only the grammar counts: the import reads them.
fn is_object(text: &[u8]) -> bool {
    let begin = text.iter().find(|byte| !byte.is_ascii_whitespace());
    begin == Some(&b'{') && serde_json::from_slice::<IgnoredAny>(text).is_ok()
}

/// True if the text is only white space of JSON.
fn blank(text: &[u8]) -> bool {
    text.iter()
        .all(|b| matches!(b, b' ' | b'\t' | b'\r' | b'\n'))
}

#[cfg(test)]
impl Feed {
    /// A feed of a reader's content.
    pub(crate) fn of(source: Source, mut reader: Box<dyn Read + Send>) -> Self {
        let (sender, receiver) = mpsc::sync_channel(QUEUE);
        let mut feed = Self::start(Vec::new());
        feed.receiver = receiver;
        thread::spawn(move || {
            let read = read_source(&source, &mut *reader, &sender);
            let _ = sender
                .send(read.map_or_else(|e| Message::Failed(e.to_string()), |()| Message::End));
        });
        feed
    }
}
