//! What is measured beside a cluster: `nbdkit` over a file, a bare sync, and a round trip.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use esker_volume::nbd;

use super::cluster::{PATIENCE, free, pause_until};
use crate::failure::{Failure, Result};
use crate::meter::Latency;

/// The version of `nbdkit`, where it is installed.
pub fn version() -> String {
    let output = Command::new("nbdkit").arg("--version").output();
    match output {
        Ok(output) => String::from_utf8_lossy(&output.stdout).trim().to_string(),
        Err(_) => "not installed".to_string(),
    }
}

/// `nbdkit file`: a write with FUA is synced before it is answered.
pub struct Nbdkit {
    child: Child,
    address: String,
}

impl Nbdkit {
    /// Serves a new file of this size; `None` where `nbdkit` is not installed.
    pub fn start(file: &Path, size: u64) -> Result<Option<Nbdkit>> {
        if version() == "not installed" {
            return Ok(None);
        }
        File::create(file)?.set_len(size)?;
        let address = free(1)?.pop().ok_or_else(|| Failure::new("no port"))?;
        let port = address.rsplit(':').next().unwrap_or_default();
        let child = Command::new("nbdkit")
            .args(["-f", "-i", "127.0.0.1", "-p", port, "file"])
            .arg(file)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Some(Nbdkit { child, address }))
    }

    /// A connection.
    pub fn connect(&self) -> Result<nbd::Client> {
        let end = Instant::now() + PATIENCE;
        loop {
            match nbd::Client::connect_within(&self.address[..], "", Some(PATIENCE)) {
                Ok(client) => return Ok(client),
                Err(error) => pause_until(end, &error.to_string())?,
            }
        }
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Nbdkit {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const BLOCK: usize = 4096;
/// Bytes of a file that the probe writes to.
const PREALLOCATED: usize = 16 << 20;

/// A write of 4 KiB into a file whose blocks exist, and `fdatasync`, while two others do the same.
/// The wall time of one of them.
pub fn synced(dir: &Path, time: Duration) -> Result<Latency> {
    let file = |number: usize| -> Result<File> {
        let path = dir.join(format!("probe{number}"));
        let mut open = OpenOptions::new();
        let file = open.write(true).create(true).truncate(true).open(path)?;
        file.write_all_at(&vec![1; PREALLOCATED], 0)?;
        file.sync_all()?;
        Ok(file)
    };
    let files = [file(0)?, file(1)?, file(2)?];
    let [own, others @ ..] = &files;
    let is_over = AtomicBool::new(false);
    let write = |file: &File, number: usize| -> Result<()> {
        let offset = number * BLOCK % PREALLOCATED;
        file.write_all_at(&[number as u8; BLOCK], offset as u64)?;
        Ok(file.sync_data()?)
    };
    std::thread::scope(|scope| {
        for file in others {
            let is_over = &is_over;
            scope.spawn(move || {
                let mut number = 0;
                while !is_over.load(Ordering::Relaxed) && write(file, number).is_ok() {
                    number += 1;
                }
            });
        }
        let measure = || -> Result<Latency> {
            let (mut latency, start) = (Latency::new()?, Instant::now());
            for number in 0.. {
                let before = Instant::now();
                write(own, number)?;
                latency.add(before.elapsed());
                if start.elapsed() > time {
                    break;
                }
            }
            Ok(latency)
        };
        let measured = measure();
        is_over.store(true, Ordering::Relaxed);
        measured
    })
}

/// A message of 4 KiB over loopback to another thread, and a short answer.
pub fn round_trip(count: u32) -> Result<Latency> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let echo = std::thread::spawn(move || -> std::io::Result<()> {
        let (mut stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        let mut block = vec![0; BLOCK];
        loop {
            stream.read_exact(&mut block)?;
            stream.write_all(&[1; 16])?;
        }
    });
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let (mut latency, mut answer) = (Latency::new()?, [0; 16]);
    for _ in 0..count {
        let before = Instant::now();
        stream.write_all(&[2; BLOCK])?;
        stream.read_exact(&mut answer)?;
        latency.add(before.elapsed());
    }
    drop(stream);
    // It ends with an error, since the connection does.
    let _ = echo.join();
    Ok(latency)
}
