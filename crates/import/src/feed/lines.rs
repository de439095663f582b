//! Cutting a stream into chunks of whole lines, in bounded memory.

use std::io::{self, Read};

use super::{CHUNK, Message, Sender};
use crate::rejects::TEXT_MAX;

/// Sends a stream's lines. Of a line over `max` bytes only the beginning is kept.
pub(crate) fn read(reader: &mut dyn Read, max: usize, sender: &Sender) -> io::Result<()> {
    let mut chunk = Vec::new();
    // A pipe gives a quarter of it: what is not read is not cleared anew each time.
    let mut buffer = vec![0; CHUNK];
    loop {
        let start = chunk.len();
        if !fill(reader, &mut buffer, &mut chunk)? {
            break;
        }
        let fresh = chunk.get(start..).unwrap_or_default();
        if let Some(end) = fresh.iter().rposition(|&b| b == b'\n') {
            let rest = chunk.split_off(start + end + 1);
            if sender.send(Message::Lines(chunk)).is_err() {
                return Ok(());
            }
            chunk = rest;
        }
        if chunk.len() > max {
            chunk = match skip_line(reader, &mut buffer, chunk, sender)? {
                Some(rest) => rest,
                None => return Ok(()),
            };
        }
    }
    if !chunk.is_empty() {
        let _ = sender.send(Message::Lines(chunk));
    }
    Ok(())
}

/// Skips the rest of a long line and reports it; what follows it in the last chunk, or `None` at the
/// end.
fn skip_line(
    reader: &mut dyn Read,
    buffer: &mut [u8],
    mut line: Vec<u8>,
    sender: &Sender,
) -> io::Result<Option<Vec<u8>>> {
    let mut length = line.len() as u64;
    line.truncate(TEXT_MAX);
    line.shrink_to_fit();
    let mut chunk = Vec::new();
    let rest = loop {
        chunk.clear();
        if !fill(reader, buffer, &mut chunk)? {
            break None;
        }
        if let Some(end) = chunk.iter().position(|&b| b == b'\n') {
            length += end as u64;
            break Some(chunk.split_off(end + 1));
        }
        length += chunk.len() as u64;
    };
    match sender.send(Message::Long(line, length)) {
        Ok(()) => Ok(rest),
        Err(_) => Ok(None),
    }
}

/// Appends what one read into the buffer gives; false at the end of the stream.
fn fill(reader: &mut dyn Read, buffer: &mut [u8], chunk: &mut Vec<u8>) -> io::Result<bool> {
    loop {
        match reader.read(buffer) {
            Ok(read) => {
                chunk.extend_from_slice(buffer.get(..read).unwrap_or_default());
                return Ok(read > 0);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
