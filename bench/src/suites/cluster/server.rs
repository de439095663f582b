//! Real servers on this machine, by the scripts of `tools/esker_cluster`, and what the kernel and
//! their logs tell of them.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

use crate::failure::{Failure, Result};

/// What runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Kind {
    Cassandra,
    HBase,
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Cassandra => "cassandra",
            Kind::HBase => "hbase",
        }
    }

    /// The variables of the script: folder, and settings.
    fn variables(self) -> (&'static str, &'static str) {
        match self {
            Kind::Cassandra => ("ESKER_CASSANDRA", "ESKER_CASSANDRA_SETTINGS"),
            Kind::HBase => ("ESKER_HBASE", "ESKER_HBASE_SETTINGS"),
        }
    }

    /// Caches are smaller than the data, and files are compacted when that is asked for.
    fn settings(self) -> &'static str {
        match self {
            Kind::Cassandra => "file_cache_size: 16MiB; key_cache_size: 4MiB",
            Kind::HBase => {
                "hfile.block.cache.size: 0.04; hbase.hstore.compaction.min: 60; \
                 hbase.hstore.blockingStoreFiles: 200; hbase.hregion.majorcompaction: 0"
            }
        }
    }
}

/// Servers that run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Server {
    pub(super) kind: Kind,
    pub(super) nodes: usize,
}

/// Ends the servers.
pub(super) struct Running(Server);

impl Drop for Running {
    fn drop(&mut self) {
        if let Err(failure) = self.0.script(&["down"]) {
            eprintln!("  {failure}");
        }
    }
}

/// What servers have read.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Reads {
    /// Bytes from the disk.
    pub(super) disk: u64,
    /// Calls.
    pub(super) calls: u64,
}

impl Reads {
    pub(super) fn since(self, before: Reads) -> Reads {
        Reads {
            disk: self.disk.saturating_sub(before.disk),
            calls: self.calls.saturating_sub(before.calls),
        }
    }
}

impl Server {
    pub(super) fn start(&self) -> Result<Running> {
        self.script(&["down"])?;
        self.script(&["up", &self.nodes.to_string()])?;
        Ok(Running(self.clone()))
    }

    fn script(&self, words: &[&str]) -> Result<String> {
        let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tools/esker_cluster");
        let (folder, settings) = self.kind.variables();
        let output = Command::new("python3")
            .arg(tools.join(format!("{}.py", self.kind.name())))
            .args(words)
            .env(folder, self.folder())
            .env(settings, self.kind.settings())
            .stderr(Stdio::inherit())
            .output()?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => {
                let doing = format!("{} {}", self.kind.name(), words.join(" "));
                Err(Failure::new(format!("{doing}: {}", output.status)))
            }
        }
    }

    fn folder(&self) -> PathBuf {
        let (folder, _) = self.kind.variables();
        let named = std::env::var_os(folder).map(PathBuf::from);
        let usual = || {
            std::env::temp_dir()
                .join("esker-cluster")
                .join(self.kind.name())
        };
        named.unwrap_or_else(usual)
    }

    fn run(&self) -> PathBuf {
        self.folder().join("run")
    }

    /// The hosts of an address.
    pub(super) fn hosts(&self) -> String {
        match self.kind {
            Kind::Cassandra => {
                let hosts: Vec<String> = (1..=self.nodes).map(|n| format!("127.0.0.{n}")).collect();
                hosts.join(",")
            }
            Kind::HBase => "127.0.0.1".to_string(),
        }
    }

    pub(super) fn address(&self, keyspace: &str) -> String {
        format!("{}://{}/{keyspace}", self.kind.name(), self.hosts())
    }

    /// The processes that have data.
    pub(super) fn pids(&self) -> Vec<u32> {
        let run = self.run();
        let files: Vec<PathBuf> = match (self.kind, self.nodes) {
            (Kind::Cassandra, nodes) => (1..=nodes)
                .map(|n| run.join(format!("node{n}/pid")))
                .collect(),
            (Kind::HBase, 1) => vec![run.join("hbase.pid")],
            (Kind::HBase, nodes) => (1..=nodes)
                .map(|n| run.join(format!("rs{n}.pid")))
                .collect(),
        };
        let read = |path: &PathBuf| std::fs::read_to_string(path).ok()?.trim().parse().ok();
        files.iter().filter_map(read).collect()
    }

    pub(super) fn reads(&self) -> Reads {
        let mut reads = Reads::default();
        for pid in self.pids() {
            reads.disk += super::super::volume::proc::figure(pid, "io", "read_bytes:");
            reads.calls += super::super::volume::proc::figure(pid, "io", "syscr:");
        }
        reads
    }

    /// The CPU time of the servers, in µs.
    pub(super) fn cpu_us(&self) -> f64 {
        let pids = self.pids();
        pids.into_iter()
            .map(super::super::volume::proc::cpu_us)
            .sum()
    }

    fn table(&self, keyspace: &str, table: &str) -> String {
        match self.kind {
            Kind::Cassandra => format!("{keyspace}.{table}"),
            Kind::HBase => format!("{keyspace}:{table}"),
        }
    }

    /// Writes what is in memory of a keyspace's tables to files.
    pub(super) fn flush(&self, keyspace: &str) -> Result<()> {
        let all = match self.kind {
            Kind::Cassandra => keyspace.to_string(),
            Kind::HBase => format!("{keyspace}:"),
        };
        self.script(&["admin", "flush", &all]).map(drop)
    }

    /// Compacts all files of a table; returns the seconds by the servers' logs.
    pub(super) fn compact(&self, keyspace: &str, table: &str) -> Result<f64> {
        let before: Vec<(PathBuf, u64)> = self.logs();
        let table = self.table(keyspace, table);
        self.script(&["admin", "compact", &table])?;
        let mut seconds = 0.0;
        for (path, from) in before {
            let text = std::fs::read(&path)?;
            let new = text.get(from as usize..).unwrap_or_default();
            let new = String::from_utf8_lossy(new);
            seconds += match self.kind {
                Kind::Cassandra => cassandra_seconds(&new, &table.replace('.', "/")),
                Kind::HBase => hbase_seconds(&new, &table),
            };
        }
        Ok(seconds)
    }

    /// The logs of the processes that have data, and their lengths.
    fn logs(&self) -> Vec<(PathBuf, u64)> {
        let run = self.run();
        let files: Vec<PathBuf> = match (self.kind, self.nodes) {
            (Kind::Cassandra, nodes) => (1..=nodes)
                .map(|n| run.join(format!("node{n}/system.log")))
                .collect(),
            (Kind::HBase, 1) => vec![run.join("hbase.log")],
            (Kind::HBase, nodes) => (1..=nodes)
                .map(|n| run.join(format!("rs{n}.log")))
                .collect(),
        };
        let length = |path: PathBuf| {
            let length = std::fs::metadata(&path).map_or(0, |meta| meta.len());
            (path, length)
        };
        files.into_iter().map(length).collect()
    }

    /// Takes the servers' files out of the page cache.
    pub(super) fn evict(&self) {
        evict(&self.run());
    }
}

fn evict(dir: &Path) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => evict(&path),
            Ok(kind) if kind.is_file() => {
                // A file that is gone by now needs no eviction.
                if let Ok(file) = std::fs::File::open(&path) {
                    let advice = rustix::fs::Advice::DontNeed;
                    let _ = rustix::fs::fadvise(&file, 0, None, advice);
                }
            }
            _ => {}
        }
    }
}

/// The seconds of the compactions of a table's files (`KEYSPACE/TABLE`), by the lines of a log such
/// as `Compacted (…) 4 sstables to […/KEYSPACE/TABLE-…] to level=0. … in 1,234ms.`.
fn cassandra_seconds(log: &str, table: &str) -> f64 {
    let of = format!("/{table}-");
    let lines = log
        .lines()
        .filter(|line| line.contains("Compacted (") && line.contains(&of));
    let millis = lines.filter_map(|line| {
        let (before, _) = line.split_once("ms.")?;
        let (_, number) = before.rsplit_once(" in ")?;
        number.replace(',', "").parse::<f64>().ok()
    });
    millis.sum::<f64>() / 1e3
}

/// The same for HBase: from the line that says that a compaction starts to that which says that it
/// has ended, by the thread.
fn hbase_seconds(log: &str, table: &str) -> f64 {
    let mut begun: Vec<(String, f64)> = Vec::new();
    let mut seconds = 0.0;
    for line in log.lines() {
        let Some(at) = time_of(line) else { continue };
        let thread = line
            .split(['[', ']'])
            .nth(1)
            .unwrap_or_default()
            .to_string();
        if line.contains("Starting compaction of") && line.contains(table) {
            begun.push((thread, at));
        } else if line.contains("Completed major compaction of")
            && let Some(place) = begun.iter().position(|(of, _)| *of == thread)
        {
            seconds += (at - begun.swap_remove(place).1).max(0.0);
        }
    }
    seconds
}

/// The seconds of the day at the head of a line, `2026-11-26 12:34:56,789 …`.
fn time_of(line: &str) -> Option<f64> {
    let clock = line.get(11..23)?;
    let (clock, millis) = clock.split_once(',')?;
    let mut parts = clock.split(':').map(|part| part.parse::<f64>());
    let (hours, minutes, seconds) = (parts.next()?, parts.next()?, parts.next()?);
    let millis: f64 = millis.parse().ok()?;
    Some(hours.ok()? * 3600.0 + minutes.ok()? * 60.0 + seconds.ok()? + millis / 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_compactions_are_read_from_logs() {
        let log = "INFO  2026-11-26 12:00:00,000 CompactionTask - Compacted (5f) 4 sstables to \
                   [/n/data/bench/esker_1-5f/da-9-bti,] to level=0.  12.3MiB to 8.0MiB (~66% of \
                   original) in 1,234ms.  Read Throughput = 9MiB/s\n";
        assert_eq!(cassandra_seconds(log, "bench/esker_1"), 1.234);
        assert_eq!(cassandra_seconds(log, "bench/esker_11"), 0.0);
        let log = "2026-11-26 12:00:00,900 INFO  [rs-longCompactions-0] regionserver.HStore: \
                   Starting compaction of [hdfs] into tmpdir=/x/bench/esker_1/, bench:esker_1,,\n\
                   2026-11-26 12:00:02,000 INFO  [rs-longCompactions-0] regionserver.HStore: \
                   Completed major compaction of 3 (all) file(s) in f of bench:esker_1\n";
        assert!((hbase_seconds(log, "bench:esker_1") - 1.1).abs() < 1e-9);
        assert_eq!(hbase_seconds(log, "bench:esker_2"), 0.0);
    }
}
