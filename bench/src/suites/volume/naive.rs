//! The store that Hydra is compared with: each of three processes appends a write to its log, syncs
//! that, acknowledges, and writes the data again into a file that is the volume. That file is synced
//! at checkpoints, where the log begins anew. NBD at the leader, by the same server as a node's.
//!
//! The leader computes a checksum of each write, which goes into the records of the logs and is checked where the write
//! arrives: no store could do with less. A measurement ends with a checkpoint, and counts it: otherwise a short one
//! would leave the second write of its data to the next one.

use super::task::{Replica, Share};
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{BufReader, Read, Seek, SeekFrom, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use esker_volume::nbd::{self, Device, Done, Exports, Failure as Failed, Limits, Refused, Run};

use super::cluster::{PATIENCE, VOLUME, free, pause_until};
use crate::failure::{Failure, Result};
use crate::run::{self, Job};

/// Bytes of the log after which the state is synced and the log begins anew.
const CHECKPOINT: u64 = 64 << 20;
/// Bytes of a record's header, in the log and between replicas.
const HEADER: usize = 32;
/// The number of a question for the bytes that were written.
const COUNT: u64 = u64::MAX;
/// The number of a question that is answered behind a checkpoint.
const SETTLE: u64 = u64::MAX - 1;

/// A write on its way.
struct Pending {
    number: u64,
    offset: u64,
    data: Arc<Vec<u8>>,
    checksum: u64,
    acknowledge: Arc<dyn Acknowledge>,
}

/// Takes word that writes are in the log, durably.
trait Acknowledge: Send + Sync {
    fn durable(&self, numbers: &[u64]);
}

fn checksum(number: u64, offset: u64, data: &[u8]) -> u64 {
    xxh3_64_with_seed(data, number ^ offset.rotate_left(32))
}

fn header(number: u64, offset: u64, length: usize, checksum: u64) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    let fields = [number, offset, length as u64, checksum];
    for (place, field) in header.chunks_exact_mut(8).zip(fields) {
        place.copy_from_slice(&field.to_le_bytes());
    }
    header
}

fn field(header: &[u8], at: usize) -> u64 {
    let bytes = header.chunks_exact(8).nth(at);
    bytes
        .and_then(|bytes| bytes.try_into().ok())
        .map_or(0, u64::from_le_bytes)
}

/// The log and the state of a replica.
struct Store {
    log: File,
    state: Arc<File>,
    logged: u64,
    written: Arc<AtomicU64>,
}

impl Store {
    fn create(dir: &Path, size: u64, written: Arc<AtomicU64>) -> Result<Store> {
        std::fs::create_dir_all(dir)?;
        let mut open = OpenOptions::new();
        open.read(true).write(true).create(true).truncate(true);
        let (log, state) = (open.open(dir.join("log"))?, open.open(dir.join("state"))?);
        state.set_len(size)?;
        Ok(Store {
            log,
            state: Arc::new(state),
            logged: 0,
            written,
        })
    }

    /// Writes whatever has come, with one sync of the log, until nothing can come any more.
    fn run(mut self, writes: &Receiver<Pending>) -> Result<()> {
        let mut bytes = Vec::new();
        while let Ok(first) = writes.recv() {
            let some: Vec<Pending> = std::iter::once(first).chain(writes.try_iter()).collect();
            bytes.clear();
            let (questions, some): (Vec<_>, Vec<_>) =
                some.into_iter().partition(|write| write.number == SETTLE);
            for write in &some {
                let head = header(write.number, write.offset, write.data.len(), write.checksum);
                bytes.extend_from_slice(&head);
                bytes.extend_from_slice(&write.data);
            }
            self.log.write_all(&bytes)?;
            self.log.sync_data()?;
            self.logged += bytes.len() as u64;
            let mut written = bytes.len();
            for group in some.chunk_by(|a, b| Arc::ptr_eq(&a.acknowledge, &b.acknowledge)) {
                let numbers: Vec<u64> = group.iter().map(|write| write.number).collect();
                if let Some(first) = group.first() {
                    first.acknowledge.durable(&numbers);
                }
            }
            for write in &some {
                self.state.write_all_at(&write.data, write.offset)?;
                written += write.data.len();
            }
            self.written.fetch_add(written as u64, Ordering::Relaxed);
            if self.logged > CHECKPOINT || !questions.is_empty() {
                self.state.sync_data()?;
                self.log.set_len(0)?;
                self.log.seek(SeekFrom::Start(0))?;
                self.log.sync_data()?;
                self.logged = 0;
            }
            for question in questions {
                question.acknowledge.durable(&[SETTLE]);
            }
        }
        Ok(())
    }
}

/// Does a replica's part until the process is killed.
pub fn child(replica: &Replica) -> Result<()> {
    let written = Arc::new(AtomicU64::new(0));
    let store = Store::create(&replica.dir, replica.size, written.clone())?;
    let (sender, receiver) = channel();
    let listener = TcpListener::bind(&replica.listen)?;
    let _server = match &replica.leads {
        Some((nbd, followers)) => {
            let volume = Volume {
                size: replica.size,
                state: store.state.clone(),
                leader: Leader::new(followers, sender.clone())?,
            };
            let exports = Arc::new(Only(Arc::new(volume)));
            let at = TcpListener::bind(nbd)?;
            Some(nbd::Server::start(at, exports, Limits::default(), None)?)
        }
        None => None,
    };
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (sender, written) = (sender.clone(), written.clone());
            // A connection that ends is the other side's.
            std::thread::spawn(move || drop(follow(stream, &sender, &written)));
        }
    });
    store.run(&receiver)
}

/// Answers on a connection.
struct Answers(Mutex<TcpStream>);

impl Acknowledge for Answers {
    fn durable(&self, numbers: &[u64]) {
        let bytes: Vec<u8> = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
        if let Ok(mut stream) = self.0.lock() {
            // A leader that is gone needs no answer.
            let _ = stream.write_all(&bytes);
        }
    }
}

/// Takes a leader's writes, and questions.
fn follow(stream: TcpStream, store: &Sender<Pending>, written: &AtomicU64) -> Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::with_capacity(256 << 10, stream.try_clone()?);
    let answers = Arc::new(Answers(Mutex::new(stream)));
    let mut header = [0; HEADER];
    loop {
        reader.read_exact(&mut header)?;
        let (number, offset) = (field(&header, 0), field(&header, 1));
        if number == COUNT {
            answers.durable(&[written.load(Ordering::Relaxed)]);
            continue;
        }
        let mut data = vec![0; field(&header, 2) as usize];
        reader.read_exact(&mut data)?;
        let sum = field(&header, 3);
        if number != SETTLE && sum != checksum(number, offset, &data) {
            return Err(Failure::new("a damaged write arrived"));
        }
        store.send(Pending {
            number,
            offset,
            data: Arc::new(data),
            checksum: sum,
            acknowledge: answers.clone(),
        })?;
    }
}

/// Writes that wait for a majority: how many have them, and who is told.
type Waiting = HashMap<u64, (usize, Option<Done<()>>)>;

/// A write for a follower: its header, its data.
type Forwarded = ([u8; HEADER], Arc<Vec<u8>>);

/// Hands writes to all replicas, in one order.
struct Leader {
    ways: Mutex<Ways>,
    waiting: Arc<Majority>,
}

struct Ways {
    next: u64,
    own: Sender<Pending>,
    followers: Vec<Sender<Forwarded>>,
}

#[derive(Default)]
struct Majority(Mutex<Waiting>);

impl Acknowledge for Majority {
    fn durable(&self, numbers: &[u64]) {
        let mut told = Vec::new();
        if let Ok(mut waiting) = self.0.lock() {
            for number in numbers {
                let Some((count, done)) = waiting.get_mut(number) else {
                    continue;
                };
                *count += 1;
                if *count == 2 {
                    told.extend(done.take());
                }
                if *count == 3 {
                    waiting.remove(number);
                }
            }
        }
        told.into_iter().for_each(|done| done(Ok(())));
    }
}

impl Leader {
    fn new(followers: &[String], own: Sender<Pending>) -> Result<Leader> {
        let waiting = Arc::new(Majority::default());
        let mut ways = Ways {
            next: 0,
            own,
            followers: Vec::new(),
        };
        for address in followers {
            let end = Instant::now() + PATIENCE;
            let mut stream = loop {
                match TcpStream::connect(address) {
                    Ok(stream) => break stream,
                    Err(error) => pause_until(end, &error.to_string())?,
                }
            };
            stream.set_nodelay(true)?;
            let (sender, receiver) = channel::<Forwarded>();
            ways.followers.push(sender);
            let mut answers = BufReader::new(stream.try_clone()?);
            std::thread::spawn(move || {
                for (head, data) in receiver {
                    let mut frame = Vec::with_capacity(HEADER + data.len());
                    frame.extend_from_slice(&head);
                    frame.extend_from_slice(&data);
                    if stream.write_all(&frame).is_err() {
                        return;
                    }
                }
            });
            let waiting = waiting.clone();
            std::thread::spawn(move || {
                let mut number = [0; 8];
                while answers.read_exact(&mut number).is_ok() {
                    waiting.durable(&[u64::from_le_bytes(number)]);
                }
            });
        }
        Ok(Leader {
            ways: Mutex::new(ways),
            waiting,
        })
    }

    fn write(&self, offset: u64, data: Vec<u8>, done: Done<()>) {
        let data = Arc::new(data);
        let Ok(mut ways) = self.ways.lock() else {
            return;
        };
        let number = ways.next;
        ways.next += 1;
        if let Ok(mut waiting) = self.waiting.0.lock() {
            waiting.insert(number, (0, Some(done)));
        }
        let checksum = checksum(number, offset, &data);
        let head = header(number, offset, data.len(), checksum);
        let write = Pending {
            number,
            offset,
            data: data.clone(),
            checksum,
            acknowledge: self.waiting.clone(),
        };
        // A way that is closed belongs to a replica that has failed.
        drop(ways.own.send(write));
        for follower in &ways.followers {
            drop(follower.send((head, data.clone())));
        }
    }
}

/// The volume at the leader.
struct Volume {
    size: u64,
    state: Arc<File>,
    leader: Leader,
}

impl Device for Volume {
    fn size(&self) -> u64 {
        self.size
    }

    fn block_size(&self) -> u32 {
        4096
    }

    fn read_only(&self) -> bool {
        false
    }

    fn read(&self, offset: u64, length: u32, done: Done<Vec<u8>>) {
        let mut data = vec![0; length as usize];
        let read = self.state.read_exact_at(&mut data, offset);
        let failed = |error: std::io::Error| Failed::new(Failed::EIO, error.to_string());
        done(read.map(|()| data).map_err(failed));
    }

    fn write(&self, offset: u64, data: Vec<u8>, done: Done<()>) {
        self.leader.write(offset, data, done);
    }

    fn discard(&self, _: u64, _: u64, _: bool, done: Done<()>) {
        done(Err(Failed::new(Failed::ENOTSUP, "it keeps what it has")));
    }

    fn flush(&self, done: Done<()>) {
        done(Ok(()));
    }

    fn extents(&self, _: u64, _: u64, done: Done<Vec<Run>>) {
        done(Ok(Vec::new()));
    }

    fn closed(&self) {}
}

struct Only(Arc<Volume>);

impl Exports for Only {
    fn list(&self) -> Vec<String> {
        vec![VOLUME.to_string()]
    }

    fn open(&self, _: &str, _: Option<&str>) -> std::result::Result<Arc<dyn Device>, Refused> {
        Ok(self.0.clone())
    }
}

/// Three replicas, as processes.
pub struct Naive {
    nbd: String,
    listen: Vec<String>,
    children: Vec<Child>,
}

impl Naive {
    /// Starts them below `dir`.
    pub fn start(job: &Job, dir: &Path, size: u64) -> Result<Naive> {
        let addresses = free(4)?;
        let (nbd, listen) = addresses
            .split_first()
            .ok_or_else(|| Failure::new("no ports"))?;
        let (first, others) = listen
            .split_first()
            .ok_or_else(|| Failure::new("no ports"))?;
        let mut naive = Naive {
            nbd: nbd.clone(),
            listen: listen.to_vec(),
            children: Vec::new(),
        };
        let leads = Some((nbd.clone(), others.to_vec()));
        let roles = others.iter().map(|at| (at, None)).chain([(first, leads)]);
        for (number, (listen, leads)) in roles.enumerate() {
            let replica = Replica {
                dir: dir.join(format!("naive{number}")),
                size,
                listen: listen.clone(),
                leads,
            };
            let job = Job {
                parameters: serde_json::to_value(Share::Naive(replica))?,
                ..job.clone()
            };
            let child = Command::new(std::env::current_exe()?)
                .args([run::CHILD, &serde_json::to_string(&job)?])
                .stdout(Stdio::null())
                .spawn()?;
            naive.children.push(child);
        }
        Ok(naive)
    }

    /// A connection to the volume.
    pub fn connect(&self) -> Result<nbd::Client> {
        let end = Instant::now() + PATIENCE;
        loop {
            match nbd::Client::connect_within(&self.nbd[..], VOLUME, Some(PATIENCE)) {
                Ok(client) => return Ok(client),
                Err(error) => pause_until(end, &error.to_string())?,
            }
        }
    }

    /// Bytes that the replicas passed to write calls.
    pub fn written(&self) -> Result<u64> {
        Ok(self.ask(COUNT)?.iter().sum())
    }

    /// Waits for a checkpoint of all replicas: what was written is in the state, and synced there.
    pub fn settle(&self) -> Result<()> {
        self.ask(SETTLE).map(drop)
    }

    /// The answers of the replicas, all of which are asked at the same time.
    fn ask(&self, question: u64) -> Result<Vec<u64>> {
        let ask = |address: &String| -> Result<TcpStream> {
            let mut stream = TcpStream::connect(address)?;
            stream.write_all(&header(question, 0, 0, 0))?;
            Ok(stream)
        };
        let asked = self.listen.iter().map(ask);
        let asked = asked.collect::<Result<Vec<TcpStream>>>()?;
        let answer = |mut stream: TcpStream| -> Result<u64> {
            let mut number = [0; 8];
            stream.read_exact(&mut number)?;
            Ok(u64::from_le_bytes(number))
        };
        asked.into_iter().map(answer).collect()
    }

    /// The processes.
    pub fn pids(&self) -> Vec<u32> {
        self.children.iter().map(Child::id).collect()
    }
}

impl Drop for Naive {
    fn drop(&mut self) {
        for child in &mut self.children {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
