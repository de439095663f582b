//! The reading thread.

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::input::Input;
use super::lines::Reading;
use super::message::{LINE_MAX, Message, Sender};
use super::{csv, lines};
use crate::source::{Format, Source};

/// The capacity of the queue between the reading and the importing thread, in chunks.
pub(super) const QUEUE: usize = 4;

pub(super) fn read_all(sources: &[Source], sender: &Sender, counter: &Arc<AtomicU64>) {
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
    let _ = sender.send(Message::End);
}

/// Sends the content of a source.
pub(super) fn read_source(
    source: &Source,
    reader: &mut dyn Read,
    sender: &Sender,
) -> io::Result<()> {
    let mut input = Input::new(reader, sender);
    let read = match source.format {
        Format::Csv => csv::read(&mut input, source.delimiter),
        Format::Ndjson | Format::Lines => {
            let reading = Reading {
                max: LINE_MAX,
                is_plain: source.format == Format::Lines,
                records: source.records.as_deref(),
                unwraps: source.unwraps,
                is_stream: source.size.is_none(),
            };
            lines::read(&mut input, &reading)
        }
    };
    // Also the items before a failure.
    input.finish();
    read
}
