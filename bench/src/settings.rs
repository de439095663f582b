//! The settings that are printed with every result.

use crate::failure::Result;
use crate::run::Runner;

/// The peers, by the crate that brings each.
const PEERS: [(&str, &str); 6] = [
    ("RocksDB", "librocksdb-sys"),
    ("fjall", "fjall"),
    ("SQLite", "libsqlite3-sys"),
    ("LMDB", "heed"),
    ("redb", "redb"),
    ("rstar", "rstar"),
];

/// Writes what is common to all suites: machine and versions.
pub fn common(runner: &mut Runner) -> Result<()> {
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let cores = cpu
        .lines()
        .filter(|line| line.starts_with("processor"))
        .count();
    let model = after(&cpu, "model name").unwrap_or("unknown");
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    runner.setting("date", today())?;
    runner.setting("processor", format!("{model}, {cores} cores"))?;
    runner.setting("memory", after(&memory, "MemTotal").unwrap_or("unknown"))?;
    runner.setting("kernel", kernel.trim())?;
    runner.setting(
        "esker",
        format!("{} {}", env!("CARGO_PKG_VERSION"), commit()),
    )?;
    for (name, package) in PEERS {
        runner.setting(
            name,
            format!("{package} {}", locked(package).unwrap_or("unknown")),
        )?;
    }
    Ok(())
}

/// The day, in UTC; empty where the system has no such command.
fn today() -> String {
    let date = std::process::Command::new("date")
        .args(["-u", "+%F"])
        .output();
    date.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_string())
        .unwrap_or_default()
}

/// The commit that is measured, where there is a repository.
fn commit() -> String {
    let git = std::process::Command::new("git")
        .args([
            "-C",
            env!("CARGO_MANIFEST_DIR"),
            "describe",
            "--always",
            "--dirty",
        ])
        .output();
    git.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_string())
        .unwrap_or_default()
}

/// The version of a package in the lock file.
fn locked(package: &str) -> Option<&'static str> {
    let lock = include_str!("../Cargo.lock");
    let (_, rest) = lock.split_once(&format!("name = \"{package}\"\nversion = \""))?;
    rest.split('"').next()
}

fn after<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    line.split_once(':').map(|(_, value)| value.trim())
}
