//! Measuring: wall time of each operation, CPU time, memory and input/output of the whole process.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use rustix::time::{ClockId, clock_gettime};

use crate::failure::Result;

/// Operations that take longer count as this long.
const LONGEST_NANOS: u64 = 100_000_000_000;

/// CPU time of all threads of the process.
pub fn process_cpu() -> Duration {
    cpu(ClockId::ProcessCPUTime)
}

/// CPU time of the calling thread.
pub fn thread_cpu() -> Duration {
    cpu(ClockId::ThreadCPUTime)
}

fn cpu(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Wall times of operations of one kind.
#[derive(Debug, Clone)]
pub struct Latency {
    nanos: Histogram<u64>,
    sum: Duration,
}

impl Latency {
    /// None yet.
    pub fn new() -> Result<Latency> {
        let nanos = Histogram::new_with_bounds(1, LONGEST_NANOS, 3)?;
        Ok(Latency {
            nanos,
            sum: Duration::ZERO,
        })
    }

    /// Adds an operation.
    pub fn add(&mut self, took: Duration) {
        self.nanos.saturating_record(took.as_nanos() as u64);
        self.sum += took;
    }

    /// Adds the operations of another thread.
    pub fn absorb(&mut self, other: &Latency) -> Result<()> {
        self.nanos.add(&other.nanos)?;
        self.sum += other.sum;
        Ok(())
    }

    /// Operations so far.
    pub fn ops(&self) -> u64 {
        self.nanos.len()
    }

    /// Wall time of all operations together.
    pub fn wall(&self) -> Duration {
        self.sum
    }

    /// The time within which this share of the operations ended, in µs; of share 1, the slowest.
    pub fn quantile_us(&self, share: f64) -> f64 {
        self.nanos.value_at_quantile(share) as f64 / 1e3
    }
}

/// Measures a phase: what is timed, and what else the process does meanwhile.
#[derive(Debug)]
pub struct Meter {
    latency: Latency,
    cpu: Duration,
    harness: Duration,
    io: Io,
}

/// What a phase cost.
#[derive(Debug, Clone)]
pub struct Measured {
    /// Wall times of the operations.
    pub latency: Latency,
    /// CPU time of the process, background threads included, the harness's own work not.
    pub cpu: Duration,
    /// Input and output of the process.
    pub io: Io,
}

impl Meter {
    /// Begins a phase.
    pub fn start() -> Result<Meter> {
        Ok(Meter {
            latency: Latency::new()?,
            io: Io::now()?,
            harness: Duration::ZERO,
            cpu: process_cpu(),
        })
    }

    /// Does and times an operation; tells how long it took.
    #[inline]
    pub fn time<T>(&mut self, operation: impl FnOnce() -> Result<T>) -> Result<(T, Duration)> {
        let start = Instant::now();
        let done = operation()?;
        let took = start.elapsed();
        self.latency.add(took);
        Ok((done, took))
    }

    /// Does work of the harness itself, which is not to be counted: that of this thread, while
    /// background threads go on being measured.
    pub fn aside<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let start = thread_cpu();
        let done = work();
        self.harness += thread_cpu() - start;
        done
    }

    /// The wall time of all operations so far.
    pub fn wall(&self) -> Duration {
        self.latency.wall()
    }

    /// Operations so far.
    pub fn ops(&self) -> u64 {
        self.latency.ops()
    }

    /// CPU time so far.
    pub fn cpu_so_far(&self) -> Duration {
        process_cpu().saturating_sub(self.cpu + self.harness)
    }

    /// Ends the phase.
    pub fn finish(self) -> Result<Measured> {
        let cpu = self.cpu_so_far();
        let io = Io::now()?.since(&self.io);
        Ok(Measured {
            latency: self.latency,
            cpu,
            io,
        })
    }
}

/// Input and output of the process so far, as the kernel counts it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Io {
    /// Read calls.
    pub reads: u64,
    /// Bytes that read calls gave, from the page cache or not.
    pub read_bytes: u64,
    /// Bytes that came from the disk.
    pub disk_read_bytes: u64,
    /// Bytes handed to write calls.
    pub written_bytes: u64,
    /// Bytes of pages made dirty, or written directly: what reaches the disk. A page that is
    /// written again before the kernel has saved it counts once.
    pub disk_written_bytes: u64,
}

impl Io {
    /// The counters now.
    pub fn now() -> Result<Io> {
        let text = std::fs::read_to_string("/proc/self/io")?;
        let figures = colon_separated(&text);
        let of = |name: &str| figures.get(name).copied().unwrap_or_default();
        Ok(Io {
            reads: of("syscr"),
            read_bytes: of("rchar"),
            disk_read_bytes: of("read_bytes"),
            written_bytes: of("wchar"),
            disk_written_bytes: of("write_bytes"),
        })
    }

    /// What was added since `earlier`.
    pub fn since(&self, earlier: &Io) -> Io {
        Io {
            reads: self.reads.saturating_sub(earlier.reads),
            read_bytes: self.read_bytes.saturating_sub(earlier.read_bytes),
            disk_read_bytes: self.disk_read_bytes.saturating_sub(earlier.disk_read_bytes),
            written_bytes: self.written_bytes.saturating_sub(earlier.written_bytes),
            disk_written_bytes: self
                .disk_written_bytes
                .saturating_sub(earlier.disk_written_bytes),
        }
    }
}

/// Bytes of memory that the process has now, and had at most.
pub fn memory() -> Result<(u64, u64)> {
    let text = std::fs::read_to_string("/proc/self/status")?;
    let figures = colon_separated(&text);
    let of = |name: &str| figures.get(name).copied().unwrap_or_default() * 1024;
    Ok((of("VmRSS"), of("VmHWM")))
}

/// Forgets the highest memory use so far.
pub fn forget_peak() -> Result<()> {
    Ok(std::fs::write("/proc/self/clear_refs", "5")?)
}

fn colon_separated(text: &str) -> BTreeMap<&str, u64> {
    let line = |line: &'_ str| -> Option<(usize, u64)> {
        let at = line.find(':')?;
        let number = line.get(at + 1..)?.split_whitespace().next()?;
        Some((at, number.parse().ok()?))
    };
    text.lines()
        .filter_map(|text| line(text).map(|(at, number)| (&text[..at], number)))
        .collect()
}

/// Bytes of all files below a folder. One that is removed meanwhile, as compactions do, does not count.
pub fn disk_bytes(dir: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let meta = match entry.metadata() {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            meta => meta?,
        };
        bytes += if meta.is_dir() {
            disk_bytes(&entry.path())?
        } else {
            meta.len()
        };
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_are_removed_meanwhile_do_not_count() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("kept"), [7; 100]).unwrap();
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    for n in 0..50 {
                        std::fs::write(dir.path().join(format!("{n}")), []).unwrap();
                    }
                    for n in 0..50 {
                        std::fs::remove_file(dir.path().join(format!("{n}"))).unwrap();
                    }
                }
            });
            let all: Vec<_> = (0..2_000).map(|_| disk_bytes(dir.path())).collect();
            done.store(true, std::sync::atomic::Ordering::Relaxed);
            assert!(all.iter().all(|bytes| matches!(bytes, Ok(100))));
        });
    }
}
