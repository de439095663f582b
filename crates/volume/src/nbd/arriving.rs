//! The bytes that a client sends, and whether they have another whole request already.

use std::io::{self, BufRead, BufReader, Read};
use std::net::TcpStream;

use super::protocol::Request;
use super::requests::payload;

/// Bytes that are read ahead.
const AHEAD: usize = 16 << 10;

/// What a client sends.
pub(super) struct Arriving<'a> {
    from: BufReader<Box<dyn Read + 'a>>,
    /// The socket behind, where what it has is what is read.
    plain: Option<&'a TcpStream>,
}

impl<'a> Arriving<'a> {
    pub(super) fn new(from: Box<dyn Read + 'a>, plain: Option<&'a TcpStream>) -> Arriving<'a> {
        Arriving {
            from: BufReader::with_capacity(AHEAD, from),
            plain,
        }
    }

    /// True where the connection is not encrypted.
    pub(super) fn is_plain(&self) -> bool {
        self.plain.is_some()
    }

    /// True where all of the next request has arrived, so that reading it does not wait.
    pub(super) fn has_request(&mut self) -> bool {
        let mut behind = self.behind();
        if self.from.buffer().is_empty() && behind >= Request::BYTES as u64 {
            if self.from.fill_buf().is_err() {
                return false;
            }
            behind = self.behind();
        }
        let here = self.from.buffer();
        let head = here.get(..Request::BYTES);
        let Some(request) = head.and_then(Request::decode) else {
            return false;
        };
        let whole = Request::BYTES as u64 + u64::from(payload(&request));
        here.len() as u64 + behind >= whole
    }

    /// Bytes that the socket has.
    fn behind(&self) -> u64 {
        let bytes = self.plain.map(rustix::io::ioctl_fionread);
        bytes.and_then(Result::ok).unwrap_or(0)
    }
}

impl Read for Arriving<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.from.read(into)
    }
}

#[cfg(test)]
mod tests {
    use super::super::protocol::command;
    use super::*;
    use std::io::Write;
    use std::net::TcpListener;

    fn request(kind: u16, data: &[u8]) -> Vec<u8> {
        let request = Request {
            flags: 0,
            kind,
            cookie: 1,
            offset: 0,
            length: data.len() as u32,
        };
        let mut bytes = request.encode().to_vec();
        if kind == command::WRITE {
            bytes.extend_from_slice(data);
        }
        bytes
    }

    #[test]
    fn a_request_has_arrived_with_its_last_byte() {
        let write = request(command::WRITE, &[7; 100]);
        for missing in 1..=write.len() {
            let mut arriving = Arriving::new(Box::new(&write[..write.len() - missing]), None);
            drop(arriving.from.fill_buf());
            assert!(!arriving.has_request(), "{missing} bytes are missing");
        }
        let mut arriving = Arriving::new(Box::new(&write[..]), None);
        drop(arriving.from.fill_buf());
        assert!(arriving.has_request());
    }

    #[test]
    fn what_the_socket_has_counts_too() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let socket = listener.accept().unwrap().0;
        let from = Box::new(socket.try_clone().unwrap());
        let mut arriving = Arriving::new(from, Some(&socket));
        assert!(!arriving.has_request(), "it does not wait either");
        // More than is read ahead.
        let write = request(command::WRITE, &vec![7; 3 * AHEAD]);
        client.write_all(&write[..write.len() - 1]).unwrap();
        while arriving.from.buffer().len() as u64 + arriving.behind() < write.len() as u64 - 1 {
            assert!(!arriving.has_request());
        }
        assert!(!arriving.has_request());
        client.write_all(&write[write.len() - 1..]).unwrap();
        while !arriving.has_request() {}
        let mut bytes = vec![0; write.len()];
        arriving.read_exact(&mut bytes).unwrap();
        assert!(bytes == write && !arriving.has_request());
        client
            .write_all(&request(command::READ, &[0; 100]))
            .unwrap();
        while !arriving.has_request() {}
    }
}
