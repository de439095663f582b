//! A client of server-sent events that reads as slowly as a test wants, and breaks off where it
//! wants.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

use crate::common::Served;

/// Longer than anything takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// A stream of events.
pub(crate) struct Events {
    reader: BufReader<TcpStream>,
    pub(crate) status: u16,
    pub(crate) headers: Vec<String>,
    /// The id of the last event, as a browser keeps it.
    pub(crate) last_id: Option<String>,
    may_break: bool,
}

/// An event with data.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sent {
    pub(crate) id: Option<String>,
    pub(crate) event: String,
    pub(crate) data: Value,
}

impl Events {
    /// Asks for a stream; `headers` are whole lines.
    pub(crate) fn open(served: &Served, path: &str, headers: &[&str]) -> Events {
        Events::at(served.http(), path, headers).unwrap()
    }

    /// As [`Events::open`], of a server that may be killed: fails if it has gone.
    pub(crate) fn at(address: SocketAddr, path: &str, headers: &[&str]) -> io::Result<Events> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        // An answer to HTTP/1.0 has no chunks.
        let mut request = format!("GET {path} HTTP/1.0\r\nhost: localhost\r\n");
        for header in headers {
            request += &format!("{header}\r\n");
        }
        stream.write_all(format!("{request}\r\n").as_bytes())?;
        let mut reader = BufReader::new(stream);
        let mut headers = Vec::new();
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            match line.trim_end() {
                "" => break,
                line => headers.push(line.to_lowercase()),
            }
        }
        let status = headers[0].split(' ').nth(1).unwrap().parse().unwrap();
        Ok(Events {
            reader,
            status,
            headers,
            last_id: None,
            may_break: false,
        })
    }

    /// The stream may end within an event, which counts as not received.
    pub(crate) fn may_break(mut self) -> Events {
        self.may_break = true;
        self
    }

    /// As [`Events::open`], of a stream that begins; continues behind `last_id`.
    pub(crate) fn after(served: &Served, path: &str, last_id: Option<&str>) -> Events {
        let header = last_id.map(|id| format!("last-event-id: {id}"));
        let headers: Vec<&str> = header.as_deref().into_iter().collect();
        let mut events = Events::open(served, path, &headers);
        let body = events.body();
        assert_eq!(events.status, 200, "{path}: {body}");
        events.last_id = last_id.map(str::to_string);
        events
    }

    /// How long reads wait; an event that has begun must come in this time.
    pub(crate) fn set_timeout(&self, long: Duration) {
        self.reader.get_ref().set_read_timeout(Some(long)).unwrap();
    }

    /// The body of an answer that is no stream.
    fn body(&mut self) -> String {
        if self.status == 200 {
            return String::new();
        }
        let mut text = String::new();
        self.reader.read_to_string(&mut text).unwrap();
        text
    }

    /// The problem in place of a stream.
    pub(crate) fn problem(&mut self) -> Value {
        let body = self.body();
        serde_json::from_str(&body).unwrap_or_else(|_| panic!("{}: {body}", self.status))
    }

    /// Reads one block of lines; `None` at the end.
    fn block(&mut self) -> Option<Vec<String>> {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            if self.reader.read_line(&mut line).unwrap_or(0) == 0 {
                let is_whole = lines.is_empty() || self.may_break;
                assert!(is_whole, "the stream broke off in {lines:?}");
                return None;
            }
            match line.trim_end_matches('\n') {
                "" => break,
                line => lines.push(line.to_string()),
            }
        }
        let id = lines.iter().find_map(|line| line.strip_prefix("id: "));
        if let Some(id) = id {
            self.last_id = Some(id.to_string());
        }
        Some(lines)
    }

    /// The next event with data; `None` at the end.
    pub(crate) fn next(&mut self) -> Option<Sent> {
        let begun = std::time::Instant::now();
        loop {
            // Comments show that the stream lives.
            assert!(begun.elapsed() < PATIENCE, "waited in vain for an event");
            let (mut event, mut data, mut own) = ("message".to_string(), None, None);
            for line in self.block()? {
                let (name, value) = line.split_once(": ").unwrap_or((&line, ""));
                match name {
                    "id" => own = Some(value.to_string()),
                    "event" => event = value.to_string(),
                    "data" => data = Some(serde_json::from_str(value).unwrap()),
                    "retry" | "" => {}
                    other => panic!("{other}: {value}"),
                }
            }
            if let Some(data) = data {
                return Some(Sent {
                    id: own,
                    event,
                    data,
                });
            }
        }
    }

    /// The next so many events.
    pub(crate) fn take(&mut self, count: usize) -> Vec<Sent> {
        let mut found = Vec::new();
        while found.len() < count {
            found.push(self.next().expect("the stream ended"));
        }
        found
    }

    /// All events up to the end of the stream.
    pub(crate) fn rest(&mut self) -> Vec<Sent> {
        std::iter::from_fn(|| self.next()).collect()
    }

    /// Reads the id at the beginning of a stream without events.
    pub(crate) fn begin(&mut self) -> String {
        while self.last_id.is_none() {
            self.block().expect("the stream ended");
        }
        self.last_id.clone().unwrap()
    }
}

/// Waits until a condition holds.
pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = std::time::Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
