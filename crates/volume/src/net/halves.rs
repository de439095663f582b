//! The two directions of a connection. With TLS both need the one state of the connection: it is
//! locked while bytes are encrypted or decrypted, and never while the socket is read or written, so
//! neither direction waits for the other's progress.
//!
//! Only the writing half takes encrypted bytes out of the state, so that records are sent in the
//! order in which they were encrypted. What the reading half causes to be sent (an answer to a
//! change of keys) goes out with the next write.

use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, sendmsg, sockopt};
use rustls::Connection;
use rustls::IoState;

use super::error::Error;
use super::handshake::timed_out;

/// How long sent bytes may wait for the other side unless it is said otherwise.
pub(super) const STUCK: Duration = Duration::from_secs(10);

/// The most plain bytes that are encrypted under one lock, so that the reader gets its turns.
const PIECE: usize = 64 << 10;

/// The most parts that the system takes in one call, on every system.
const MOST_PARTS: usize = 512;

/// The bytes that are read from the socket at once.
const CIPHER: usize = 32 << 10;

/// What both halves share.
struct Socket {
    stream: TcpStream,
    tls: Option<Mutex<Connection>>,
}

/// The reading half of a connection.
pub struct ReadHalf {
    socket: Arc<Socket>,
    cipher: Vec<u8>,
    plain: Vec<u8>,
    /// How much of `plain` has been read.
    taken: usize,
    /// Nothing comes any more: the other side said so.
    ended: bool,
}

/// The writing half of a connection. Each `write` sends all of its bytes or fails; after a failure
/// the connection is of no use, and is ended.
pub struct WriteHalf {
    socket: Arc<Socket>,
    out: Vec<u8>,
    broken: bool,
}

/// Ends a connection from any thread.
#[derive(Clone)]
pub struct Closer(Arc<Socket>);

impl Closer {
    /// Ends both directions at once: reads and writes in progress return.
    pub fn end(&self) {
        // It fails where the connection has ended already.
        let _ = self.0.stream.shutdown(Shutdown::Both);
    }
}

/// Divides a connection. `tls` has ended its handshake. Neither half has a time limit yet.
pub(super) fn halves(
    stream: TcpStream,
    tls: Option<Connection>,
) -> io::Result<(ReadHalf, WriteHalf)> {
    stream.set_nodelay(true)?;
    let (mut plain, mut ended, mut cipher) = (Vec::new(), false, 0);
    let tls = match tls {
        Some(mut tls) => {
            tls.set_buffer_limit(Some(PIECE));
            // Bytes may have come together with the end of the handshake.
            ended = decrypt(&mut tls, &mut plain)?;
            cipher = CIPHER;
            Some(Mutex::new(tls))
        }
        None => None,
    };
    let socket = Arc::new(Socket { stream, tls });
    let read = ReadHalf {
        socket: Arc::clone(&socket),
        cipher: vec![0; cipher],
        plain,
        taken: 0,
        ended,
    };
    let write = WriteHalf {
        socket,
        out: Vec::new(),
        broken: false,
    };
    Ok((read, write))
}

/// Appends what can be decrypted; true where the other side has ended its direction.
fn decrypt(tls: &mut Connection, plain: &mut Vec<u8>) -> io::Result<bool> {
    let state: IoState = tls.process_new_packets().map_err(Error::Tls)?;
    let size = state.plaintext_bytes_to_read();
    if size > 0 {
        tls.reader().take(size as u64).read_to_end(plain)?;
    }
    Ok(state.peer_has_closed())
}

impl ReadHalf {
    /// The longest that a read waits for a byte, without an end unless it is set; then it fails
    /// with `TimedOut`.
    pub fn set_idle_timeout(&self, longest: Option<Duration>) -> io::Result<()> {
        self.socket.stream.set_read_timeout(longest)
    }

    /// Ends the connection from other threads.
    pub fn closer(&self) -> Closer {
        Closer(Arc::clone(&self.socket))
    }

    /// True where bytes have arrived that were not read.
    pub fn has_more(&self) -> bool {
        let is_behind = || rustix::io::ioctl_fionread(&self.socket.stream).is_ok_and(|n| n > 0);
        self.taken < self.plain.len() || is_behind()
    }

    /// True where nothing comes any more, as far as the system knows without waiting: the other
    /// side has closed, or the connection failed.
    pub fn has_ended(&mut self) -> bool {
        let socket = Arc::clone(&self.socket);
        while self.taken == self.plain.len() {
            let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
            let arrived = recv(&socket.stream, &mut [0_u8][..], flags);
            match (arrived, &socket.tls) {
                _ if self.ended => return true,
                (Err(Errno::INTR), _) => {}
                (Err(Errno::AGAIN), _) => return false,
                (Err(_) | Ok((_, 0)), _) => return true,
                (Ok(_), None) => return false,
                // They may be no data: tickets of the session, or the end.
                (Ok(_), Some(tls)) => {
                    if self.fill(tls).is_err() {
                        return true;
                    }
                }
            }
        }
        false
    }

    /// Reads from the socket, then decrypts. Called when `plain` is used up.
    fn fill(&mut self, tls: &Mutex<Connection>) -> io::Result<()> {
        self.plain.clear();
        self.taken = 0;
        let read = (&self.socket.stream).read(&mut self.cipher);
        let read = read.map_err(timed_out)?;
        if read == 0 {
            // The end of the socket is not protected: it is no end without TLS' own.
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut rest = self.cipher.get(..read).unwrap_or(&[]);
        let mut tls = tls.lock();
        while !rest.is_empty() && !self.ended {
            tls.read_tls(&mut rest)?;
            self.ended = decrypt(&mut tls, &mut self.plain)?;
        }
        Ok(())
    }
}

impl Read for ReadHalf {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let socket = Arc::clone(&self.socket);
        let Some(tls) = &socket.tls else {
            return (&socket.stream).read(into).map_err(timed_out);
        };
        loop {
            let mut rest = self.plain.get(self.taken..).unwrap_or(&[]);
            if !rest.is_empty() {
                let read = rest.read(into)?;
                self.taken += read;
                return Ok(read);
            }
            if self.ended || into.is_empty() {
                return Ok(0);
            }
            self.fill(tls)?;
        }
    }
}

impl WriteHalf {
    /// How long sent bytes may wait for the other side to take them; then a write fails, and so
    /// does the connection.
    pub fn set_stuck_timeout(&self, longest: Duration) -> io::Result<()> {
        let stream = &self.socket.stream;
        stream.set_write_timeout(Some(longest))?;
        // A machine that is gone is noticed without waiting for the buffers to be full. Without it
        // the system repeats for a quarter of an hour, in ever longer intervals.
        #[cfg(target_os = "linux")]
        {
            let millis = u32::try_from(longest.as_millis()).unwrap_or(u32::MAX);
            sockopt::set_tcp_user_timeout(stream, millis)?;
        }
        Ok(())
    }

    /// Lets the system probe, while nothing is sent, whether the other side is still there: a read
    /// fails when its machine has been away for `longest`. One probe may be lost.
    pub(super) fn probe_within(&self, longest: Duration) -> io::Result<()> {
        let stream = &self.socket.stream;
        // What Linux takes.
        let possible =
            |time: Duration| time.clamp(Duration::from_secs(1), Duration::from_secs(32_767));
        sockopt::set_socket_keepalive(stream, true)?;
        sockopt::set_tcp_keepidle(stream, possible(longest / 2))?;
        sockopt::set_tcp_keepintvl(stream, possible(longest / 6))?;
        // Linux ends the connection by `set_stuck_timeout` instead.
        sockopt::set_tcp_keepcnt(stream, 3)?;
        Ok(())
    }

    /// True where neither writes nor unacknowledged bytes have a limit of time.
    #[cfg(test)]
    pub(super) fn has_no_limit(&self) -> bool {
        let stream = &self.socket.stream;
        let limit = sockopt::tcp_user_timeout(stream).unwrap();
        stream.write_timeout().unwrap().is_none() && limit == 0
    }

    /// How long the system waits before the first probe; `None` where it does not probe.
    #[cfg(test)]
    pub(super) fn probed_after(&self) -> Option<Duration> {
        let stream = &self.socket.stream;
        let is_on = sockopt::socket_keepalive(stream).unwrap();
        is_on.then(|| sockopt::tcp_keepidle(stream).unwrap())
    }

    /// Ends the connection from other threads.
    pub fn closer(&self) -> Closer {
        Closer(Arc::clone(&self.socket))
    }

    /// Sends all bytes of `parts`, in one call of the system unless the socket is full.
    pub fn write_parts(&mut self, parts: &mut [IoSlice<'_>]) -> io::Result<()> {
        if self.broken {
            return Err(Error::Broken.into());
        }
        let done = match &self.socket.tls {
            None => write_all(&self.socket.stream, parts),
            Some(tls) => encrypt_all(tls, parts, &mut self.out)
                .and_then(|()| write_all(&self.socket.stream, &mut [IoSlice::new(&self.out)])),
        };
        self.out.clear();
        self.out.shrink_to(4 * PIECE);
        self.checked(done)
    }

    /// Sends as much of `parts` as the socket takes at once, and returns how many bytes; `None`
    /// where the connection is encrypted, of which no part can be sent.
    pub(super) fn write_some(&mut self, parts: &[IoSlice<'_>]) -> io::Result<Option<usize>> {
        if self.socket.tls.is_some() || self.broken || parts.len() > MOST_PARTS {
            return Ok(None);
        }
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let mut control = SendAncillaryBuffer::default();
        let sent = sendmsg(&self.socket.stream, parts, &mut control, flags);
        match sent {
            Ok(sent) => Ok(Some(sent)),
            Err(Errno::AGAIN | Errno::INTR) => Ok(Some(0)),
            Err(error) => self.checked(Err(error.into())).map(|()| None),
        }
    }

    /// Says to the other side that nothing more comes. Its bytes can still be read.
    pub fn close(&mut self) -> io::Result<()> {
        if self.broken {
            return Ok(());
        }
        self.broken = true;
        if let Some(tls) = &self.socket.tls {
            let mut tls = tls.lock();
            tls.send_close_notify();
            take(&mut tls, &mut self.out)?;
            drop(tls);
            write_all(&self.socket.stream, &mut [IoSlice::new(&self.out)])?;
        }
        self.socket.stream.shutdown(Shutdown::Write)
    }

    /// After a failure the other side would read the rest of a record as its beginning.
    fn checked(&mut self, done: io::Result<()>) -> io::Result<()> {
        if done.is_err() {
            self.broken = true;
            self.closer().end();
        }
        done
    }
}

impl Write for WriteHalf {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.write_parts(&mut [IoSlice::new(from)])?;
        Ok(from.len())
    }

    fn write_vectored(&mut self, from: &[IoSlice<'_>]) -> io::Result<usize> {
        let length = from.iter().map(|part| part.len()).sum();
        self.write_parts(&mut from.to_vec())?;
        Ok(length)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Appends `parts`, encrypted. The lock is released between pieces.
fn encrypt_all(
    tls: &Mutex<Connection>,
    mut parts: &mut [IoSlice<'_>],
    out: &mut Vec<u8>,
) -> io::Result<()> {
    // Skips parts without bytes.
    IoSlice::advance_slices(&mut parts, 0);
    while !parts.is_empty() {
        let mut tls = tls.lock();
        // What is left from the reading half goes first, and makes room.
        take(&mut tls, out)?;
        let taken = tls.writer().write_vectored(parts)?;
        take(&mut tls, out)?;
        drop(tls);
        if taken == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        IoSlice::advance_slices(&mut parts, taken);
    }
    Ok(())
}

/// Appends the encrypted bytes that are to be sent.
fn take(tls: &mut Connection, out: &mut Vec<u8>) -> io::Result<()> {
    while tls.wants_write() {
        tls.write_tls(out)?;
    }
    Ok(())
}

fn write_all(mut stream: &TcpStream, mut parts: &mut [IoSlice<'_>]) -> io::Result<()> {
    // Skips parts without bytes.
    IoSlice::advance_slices(&mut parts, 0);
    while !parts.is_empty() {
        match stream.write_vectored(parts) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => IoSlice::advance_slices(&mut parts, written),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(timed_out(error)),
        }
    }
    Ok(())
}
