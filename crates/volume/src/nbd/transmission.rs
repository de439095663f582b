//! The transmission: one thread reads requests and begins them, another writes their replies, in
//! the order in which they end.

use std::io::{self, BufWriter, Read, Write};
use std::sync::Arc;

use super::arriving::Arriving;
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
    reader: &mut Arriving<'_>,
    connection: &Arc<Connection>,
    chosen: &Chosen,
    limits: &Limits,
) -> Stopped {
    let mut together = Together::of(&*chosen.device);
    loop {
        match read_request(reader, connection, chosen, limits, &mut together) {
            Ok(None) => {}
            Ok(Some(stopped)) => return stopped,
            // A server that stops shuts the socket for reading.
            Err(_) if connection.phase() == Phase::Draining => return Stopped::Orderly,
            Err(_) => return Stopped::Broken,
        }
    }
}

/// The most requests that are begun together, and the bytes behind which no other one joins them:
/// the first ones wait for the last.
const TOGETHER: usize = 16;
const TOGETHER_BYTES: usize = 192 << 10;

/// Requests that came together, and that the device has not all got yet.
struct Together<'a> {
    device: &'a dyn Device,
    count: usize,
    bytes: usize,
}

impl<'a> Together<'a> {
    fn of(device: &'a dyn Device) -> Together<'a> {
        Together {
            device,
            count: 0,
            bytes: 0,
        }
    }

    /// Before a request is begun: `follows` where another one has arrived.
    fn before(&mut self, bytes: usize, follows: bool) {
        if self.count == 0 && follows {
            self.device.together(true);
        }
        if self.count > 0 || follows {
            self.count += 1;
            self.bytes += bytes;
        }
    }

    /// After it.
    fn after(&mut self, follows: bool) {
        if !follows || self.count >= TOGETHER || self.bytes >= TOGETHER_BYTES {
            self.end();
        }
    }

    /// The device has them all. Called before anything that waits.
    fn end(&mut self) {
        if self.count > 0 {
            self.device.together(false);
            (self.count, self.bytes) = (0, 0);
        }
    }
}

impl Drop for Together<'_> {
    fn drop(&mut self) {
        self.end();
    }
}

fn read_request(
    reader: &mut Arriving<'_>,
    connection: &Arc<Connection>,
    chosen: &Chosen,
    limits: &Limits,
    together: &mut Together<'_>,
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
    let slot = connection.try_begin(held).or_else(|| {
        together.end();
        connection.begin(held)
    });
    let Some(slot) = slot else {
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
    let follows = reader.has_request();
    together.before(data.len(), follows);
    let Request { offset, length, .. } = request;
    match action {
        Action::Read if !follows && connection.is_alone() => {
            chosen.device.read_alone(offset, length, pending.data());
        }
        Action::Write if !follows && connection.is_alone() => {
            chosen.device.write_alone(offset, data, pending.plain());
        }
        _ => act(&*chosen.device, action, data, pending),
    }
    together.after(follows);
    Ok(None)
}

fn skip(reader: &mut dyn Read, length: u32) -> io::Result<()> {
    let skipped = io::copy(&mut reader.take(u64::from(length)), &mut io::sink())?;
    if skipped == u64::from(length) {
        Ok(())
    } else {
        Err(io::ErrorKind::UnexpectedEof.into())
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

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::budget::Budget;

    /// Carries out nothing while more requests follow.
    #[derive(Default)]
    struct Waiting {
        held: Mutex<Option<Vec<Done<()>>>>,
        /// How many were carried out at a time.
        counts: Mutex<Vec<usize>>,
    }

    impl Device for Waiting {
        fn size(&self) -> u64 {
            1 << 20
        }

        fn block_size(&self) -> u32 {
            512
        }

        fn read_only(&self) -> bool {
            false
        }

        fn read(&self, _: u64, length: u32, done: Done<Vec<u8>>) {
            done(Ok(vec![0; length as usize]));
        }

        fn write(&self, _: u64, _: Vec<u8>, done: Done<()>) {
            match &mut *self.held.lock().unwrap() {
                Some(held) => held.push(done),
                None => {
                    self.counts.lock().unwrap().push(1);
                    done(Ok(()));
                }
            }
        }

        fn discard(&self, _: u64, _: u64, _: bool, done: Done<()>) {
            done(Ok(()));
        }

        fn flush(&self, done: Done<()>) {
            done(Ok(()));
        }

        fn extents(&self, _: u64, _: u64, done: Done<Vec<Run>>) {
            done(Ok(Vec::new()));
        }

        fn together(&self, are_more: bool) {
            let next = are_more.then(Vec::new);
            let held = std::mem::replace(&mut *self.held.lock().unwrap(), next);
            if let Some(held) = held {
                assert!(!are_more, "they were told of before");
                self.counts.lock().unwrap().push(held.len());
                held.into_iter().for_each(|done| done(Ok(())));
            }
        }

        fn closed(&self) {}
    }

    /// Sends so many writes of `length` bytes at once, and returns how they were carried out.
    fn carried_out(writes: usize, length: u32, in_flight: usize, budget: usize) -> Vec<usize> {
        let device = Arc::new(Waiting::default());
        let mut bytes = Vec::new();
        for cookie in 0..writes as u64 {
            let request = Request {
                flags: 0,
                kind: command::WRITE,
                cookie,
                offset: 0,
                length,
            };
            bytes.extend(request.encode());
            bytes.resize(bytes.len() + length as usize, 7);
        }
        let connection = Connection::new(in_flight, budget, Budget::new(budget));
        let chosen = Chosen {
            device: device.clone(),
            is_structured: false,
            has_allocation: false,
        };
        std::thread::scope(|scope| {
            let replies = scope.spawn(|| std::iter::from_fn(|| connection.next()).count());
            let mut reader = Arriving::new(Box::new(&bytes[..]), None);
            let stopped = read_requests(&mut reader, &connection, &chosen, &Limits::default());
            assert_eq!(stopped, Stopped::Broken, "the end comes without a goodbye");
            connection.enter(Phase::Draining);
            assert_eq!(replies.join().unwrap(), writes);
        });
        assert!(device.held.lock().unwrap().is_none());
        let counts = std::mem::take(&mut *device.counts.lock().unwrap());
        assert_eq!(counts.iter().sum::<usize>(), writes);
        counts
    }

    #[test]
    fn requests_that_came_together_are_begun_together() {
        assert_eq!(carried_out(1, 100, 64, 1 << 20), [1]);
        let counts = carried_out(5, 100, 64, 1 << 20);
        assert_eq!(counts, [5]);
        let counts = carried_out(40, 100, 64, 1 << 20);
        assert!(counts.iter().all(|count| *count <= TOGETHER), "{counts:?}");
        let bytes = 64 << 10;
        let counts = carried_out(9, bytes, 64, 1 << 20);
        let most = TOGETHER_BYTES / bytes as usize + 1;
        assert!(counts.iter().all(|count| *count <= most), "{counts:?}");
    }

    #[test]
    fn requests_that_wait_for_others_do_not_wait_for_those_behind_them() {
        // Room for two at a time, by number and by bytes.
        carried_out(20, 100, 2, 1 << 20);
        carried_out(20, 100, 64, 200);
    }
}
