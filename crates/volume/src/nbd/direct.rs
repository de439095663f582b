//! Replies are sent by the thread that has them, where the socket takes them: then no other thread
//! has to wake up.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::net::TcpStream;
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};

use super::replies::Reply;

/// A connection, whose replies any thread may send.
pub(super) trait Sender {
    /// Sends as many of the queued replies as the socket takes at once.
    fn send_queued(&self);
}

/// The most replies that are sent in one call of the system.
pub(super) const TOGETHER: usize = 64;

thread_local! {
    /// Connections with replies that this thread sends later, while it is in `replies_together`.
    static LATER: RefCell<Option<Vec<Arc<dyn Sender>>>> = const { RefCell::new(None) };
}

/// Runs `act`. The replies that it makes are sent when it returns: those of a connection in one
/// call of the system.
pub(crate) fn replies_together<T>(act: impl FnOnce() -> T) -> T {
    let is_outer = LATER.with_borrow_mut(|later| {
        let is_outer = later.is_none();
        later.get_or_insert_default();
        is_outer
    });
    // Where it is made, it also ends.
    let _ending = if is_outer { Some(Ending) } else { None };
    act()
}

/// Sends what is to be sent later, also where a reply panics.
struct Ending;

impl Drop for Ending {
    fn drop(&mut self) {
        let later = LATER.with_borrow_mut(Option::take);
        later.iter().flatten().for_each(|of| of.send_queued());
    }
}

/// A reply was queued: sends it, now or at the end of `replies_together`.
pub(super) fn queued<S: Sender + 'static>(connection: &Arc<S>) {
    let is_later = LATER.with_borrow_mut(|later| {
        let Some(later) = later else { return false };
        let connection: Arc<dyn Sender> = connection.clone();
        if !later.iter().any(|of| Arc::ptr_eq(of, &connection)) {
            later.push(connection);
        }
        true
    });
    if !is_later {
        connection.send_queued();
    }
}

/// Replies, and what is held for the requests that they answer.
type Replies<H> = Vec<(Reply, H)>;

/// Sends as much of the replies as the socket takes at once. Returns the rest: bytes of the first
/// reply that was not sent in full, and those behind it; and what was sent in full.
pub(super) fn send<H>(socket: &TcpStream, mut replies: Replies<H>) -> (Replies<H>, Replies<H>) {
    let parts = replies
        .iter()
        .flat_map(|(reply, _)| [&reply.head, &reply.data]);
    let parts: Vec<IoSlice<'_>> = parts.map(|part| IoSlice::new(part)).collect();
    // What fails here fails again for the thread that writes replies, which ends the connection.
    let mut sent = send_some(socket, &parts).unwrap_or(0);
    let mut whole = 0;
    for (reply, _) in &replies {
        let Some(left) = sent.checked_sub(reply.len()) else {
            break;
        };
        (sent, whole) = (left, whole + 1);
    }
    let mut rest = replies.split_off(whole);
    if let Some((reply, _)) = rest.first_mut() {
        reply.skip(sent);
    }
    (rest, replies)
}

fn send_some(socket: &TcpStream, parts: &[IoSlice<'_>]) -> io::Result<usize> {
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    match sendmsg(socket, parts, &mut SendAncillaryBuffer::default(), flags) {
        Ok(sent) => Ok(sent),
        Err(Errno::AGAIN | Errno::INTR) => Ok(0),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::io::Read;
    use std::net::TcpListener;
    use std::time::Duration;

    use super::super::limits::Limits;
    use super::super::transmission::write_replies;
    use super::*;
    use crate::budget::Budget;
    use crate::nbd::connection::{Connection, Phase};

    /// A connection whose replies any thread may send, its socket, and its client.
    fn pair() -> (Arc<Connection>, Arc<TcpStream>, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let socket = Arc::new(listener.accept().unwrap().0);
        let connection = Connection::new(10_000, 1 << 30, Budget::new(1 << 30));
        connection.send_directly(Arc::clone(&socket));
        (connection, socket, client)
    }

    fn reply(connection: &Arc<Connection>, cookie: u64, length: usize) {
        let slot = connection.begin(0).unwrap();
        let data = vec![cookie as u8; length];
        connection.reply(Reply::data(cookie, false, 0, data), slot);
    }

    #[test]
    fn replies_stay_whole_with_any_thread_that_sends_them() {
        const EACH: u64 = 100;
        const LENGTH: usize = 50_000;
        let (connection, socket, mut client) = pair();
        std::thread::scope(|scope| {
            scope.spawn(|| write_replies(&*socket, &connection, &Limits::default()).unwrap());
            let senders = (0..3).map(|sender| {
                let connection = &connection;
                scope.spawn(move || {
                    for cookie in sender * EACH..(sender + 1) * EACH {
                        if cookie % 3 == 0 {
                            replies_together(|| reply(connection, cookie, LENGTH));
                        } else {
                            reply(connection, cookie, LENGTH);
                        }
                    }
                })
            });
            let senders: Vec<_> = senders.collect();
            // Sockets hold less than all of them, and nothing is read before.
            senders
                .into_iter()
                .for_each(|sender| sender.join().unwrap());
            let (mut head, mut data) = ([0; 16], vec![0; LENGTH]);
            let mut seen = BTreeSet::new();
            for _ in 0..3 * EACH {
                client.read_exact(&mut head).unwrap();
                client.read_exact(&mut data).unwrap();
                let cookie = u64::from_be_bytes(head[8..].try_into().unwrap());
                assert!(data.iter().all(|byte| *byte == cookie as u8));
                assert!(seen.insert(cookie) && cookie < 3 * EACH);
            }
            connection.enter(Phase::Draining);
        });
        assert!(connection.is_quiet());
    }

    #[test]
    fn replies_that_are_made_together_are_sent_at_the_end() {
        let (connection, _socket, mut client) = pair();
        client
            .set_read_timeout(Some(Duration::from_millis(20)))
            .unwrap();
        let mut heads = [0; 32];
        replies_together(|| {
            reply(&connection, 1, 0);
            replies_together(|| reply(&connection, 2, 0));
            assert!(client.read(&mut heads).is_err(), "nothing is sent yet");
        });
        client.set_read_timeout(None).unwrap();
        client.read_exact(&mut heads).unwrap();
        assert_eq!((heads[15], heads[31]), (1, 2));
        assert!(connection.is_quiet());
    }
}
