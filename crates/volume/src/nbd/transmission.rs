//! The transmission: one thread reads requests and begins them, another writes their replies, in
//! the order in which they end.

use std::io::{self, BufWriter, Read, Write};
use std::sync::Arc;

use super::connection::{Connection, Phase, Slot};
use super::device::{Device, Done, Failure, MOST_RUNS, Run};
use super::handshake::Chosen;
use super::limits::Limits;
use super::protocol::{Request, command};
use super::replies::Reply;
use super::requests::{Action, Rules, check, payload};

/// The largest write that is read and refused, rather than ending the connection, above the limit.
const MOST_SKIPPED: u32 = 32 << 20;

/// Why the reader stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stopped {
    /// The client said goodbye, or the server stops: requests in flight end first.
    Orderly,
    /// The client is gone, or sent something that is no request.
    Broken,
}

/// Reads requests and begins them until the connection ends. Does not close the device.
pub(super) fn read_requests(
    reader: &mut dyn Read,
    connection: &Arc<Connection>,
    chosen: &Chosen,
    limits: &Limits,
) -> Stopped {
    loop {
        match read_request(reader, connection, chosen, limits) {
            Ok(None) => {}
            Ok(Some(stopped)) => return stopped,
            // A server that stops shuts the socket for reading.
            Err(_) if connection.phase() == Phase::Draining => return Stopped::Orderly,
            Err(_) => return Stopped::Broken,
        }
    }
}

fn read_request(
    reader: &mut dyn Read,
    connection: &Arc<Connection>,
    chosen: &Chosen,
    limits: &Limits,
) -> io::Result<Option<Stopped>> {
    let mut head = [0; Request::BYTES];
    reader.read_exact(&mut head)?;
    connection.deadlines.has_read();
    let Some(request) = Request::decode(&head) else {
        return Ok(Some(Stopped::Broken));
    };
    if request.kind == command::DISC || connection.phase() != Phase::Open {
        return Ok(Some(Stopped::Orderly));
    }
    let rules = Rules {
        size: chosen.device.size(),
        read_only: chosen.device.read_only(),
        is_structured: chosen.is_structured,
        has_allocation: chosen.has_allocation,
        most: limits.request_bytes,
    };
    let action = check(&request, rules);
    let follows = payload(&request);
    if follows > limits.request_bytes.max(MOST_SKIPPED) {
        return Ok(Some(Stopped::Broken));
    }
    let held = match action {
        Action::Read | Action::Write => request.length as usize,
        Action::Extents { .. } => MOST_RUNS * size_of::<Run>(),
        _ => 0,
    };
    let Some(slot) = connection.begin(held) else {
        return Ok(Some(Stopped::Orderly));
    };
    connection
        .deadlines
        .read_within(limits.patience(follows as usize));
    let mut data = Vec::new();
    if action == Action::Write {
        data.resize(request.length as usize, 0);
        reader.read_exact(&mut data)?;
    } else {
        skip(reader, follows)?;
    }
    connection.deadlines.has_read();
    let pending = Pending {
        connection: Arc::clone(connection),
        slot: Some(slot),
        request,
        is_structured: chosen.is_structured,
    };
    act(&*chosen.device, action, data, pending);
    Ok(None)
}

fn skip(reader: &mut dyn Read, length: u32) -> io::Result<()> {
    let skipped = io::copy(&mut reader.take(u64::from(length)), &mut io::sink())?;
    match skipped == u64::from(length) {
        true => Ok(()),
        false => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Begins a request on the device.
fn act(device: &dyn Device, action: Action, data: Vec<u8>, pending: Pending) {
    let Request { offset, length, .. } = pending.request;
    match action {
        Action::Read => device.read(offset, length, pending.data()),
        Action::Write => device.write(offset, data, pending.plain()),
        Action::Discard { zeros } => {
            device.discard(offset, u64::from(length), zeros, pending.plain());
        }
        Action::Flush => device.flush(pending.plain()),
        Action::Extents { is_one } => {
            device.extents(offset, u64::from(length), pending.extents(is_one));
        }
        Action::Nothing if pending.request.kind == command::READ => pending.data()(Ok(Vec::new())),
        Action::Nothing => pending.plain()(Ok(())),
        Action::Refuse(failure) => pending.plain()(Err(failure)),
    }
}

/// A request whose reply is outstanding. Fails when it is dropped without one.
struct Pending {
    connection: Arc<Connection>,
    slot: Option<Slot>,
    request: Request,
    is_structured: bool,
}

impl Pending {
    fn plain(self) -> Done<()> {
        self.done(|request, _, ()| Ok(Reply::success(request.cookie)))
    }

    fn data(self) -> Done<Vec<u8>> {
        self.done(|request, is_structured, data: Vec<u8>| {
            if data.len() != request.length as usize {
                let text = format!("{} of {} bytes were read", data.len(), request.length);
                return Err(Failure::new(Failure::EIO, text));
            }
            let Request { cookie, offset, .. } = *request;
            Ok(Reply::data(cookie, is_structured, offset, data))
        })
    }

    fn extents(self, is_one: bool) -> Done<Vec<Run>> {
        self.done(move |request, _, runs: Vec<Run>| {
            let Request { cookie, length, .. } = *request;
            Ok(Reply::extents(cookie, length, is_one, &runs))
        })
    }

    fn done<T>(
        mut self,
        encode: impl FnOnce(&Request, bool, T) -> Result<Reply, Failure> + Send + 'static,
    ) -> Done<T> {
        Box::new(move |outcome| {
            let (request, is_structured) = (self.request, self.is_structured);
            self.reply(outcome.and_then(|value| encode(&request, is_structured, value)));
        })
    }

    fn reply(&mut self, outcome: Result<Reply, Failure>) {
        if let Some(slot) = self.slot.take() {
            let reply = outcome.unwrap_or_else(|failure| {
                Reply::failure(self.request.cookie, self.is_structured, &failure)
            });
            self.connection.reply(reply, slot);
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        let text = "the request was given up";
        self.reply(Err(Failure::new(Failure::EIO, text)));
    }
}

/// Writes replies until there are none any more.
pub(super) fn write_replies(
    writer: impl Write,
    connection: &Connection,
    limits: &Limits,
) -> io::Result<()> {
    let mut writer = BufWriter::with_capacity(16 << 10, writer);
    loop {
        // Replies that are ready are written together.
        let ready = match connection.try_next() {
            Some(ready) => Some(ready),
            None => {
                connection
                    .deadlines
                    .write_within(limits.patience(writer.buffer().len()));
                writer.flush()?;
                connection.deadlines.has_written();
                connection.next()
            }
        };
        let Some((reply, _slot)) = ready else {
            return Ok(());
        };
        connection
            .deadlines
            .write_within(limits.patience(reply.len()));
        writer.write_all(&reply.head)?;
        writer.write_all(&reply.data)?;
    }
}
