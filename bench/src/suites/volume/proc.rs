//! What the kernel counts of other processes, and of the disk.

use std::os::linux::fs::MetadataExt;
use std::path::Path;

/// A figure of `/proc/PID/FILE`, by the name that its line begins with.
pub(in crate::suites) fn figure(pid: u32, file: &str, name: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|rest| rest.split_whitespace().next());
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// The most memory that the process ever had, in bytes.
pub fn peak_memory(pid: u32) -> u64 {
    figure(pid, "status", "VmHWM:") * 1024
}

/// Bytes of pages that the process made dirty.
pub fn written(pid: u32) -> u64 {
    figure(pid, "io", "write_bytes:")
}

/// CPU time of the process in µs.
pub fn cpu_us(pid: u32) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields = text.rsplit(')').next().unwrap_or_default();
    let times = fields.split_whitespace().skip(11).take(2);
    // Linux counts hundredths of a second here on every machine.
    times
        .filter_map(|time| time.parse::<f64>().ok())
        .sum::<f64>()
        * 1e4
}

/// Bytes that the device of this folder has written since the machine was started; 0 where it is
/// none that counts. Whatever else writes to it is in it.
pub fn device_written(dir: &Path) -> u64 {
    let Ok(meta) = std::fs::metadata(dir) else {
        return 0;
    };
    let (major, minor) = (
        rustix::fs::major(meta.st_dev()),
        rustix::fs::minor(meta.st_dev()),
    );
    let text = std::fs::read_to_string("/proc/diskstats").unwrap_or_default();
    for line in text.lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        if fields.first() == Some(&major.to_string().as_str())
            && fields.get(1) == Some(&minor.to_string().as_str())
        {
            let sectors = fields.get(9).and_then(|field| field.parse::<u64>().ok());
            return sectors.unwrap_or(0) * 512;
        }
    }
    0
}

/// Bytes of the files in a folder and those below.
pub fn folder_bytes(dir: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(dir) else {
        return 0;
    };
    let sizes = entries.flatten().map(|entry| match entry.metadata() {
        Ok(meta) if meta.is_dir() => folder_bytes(&entry.path()),
        Ok(meta) => meta.len(),
        Err(_) => 0,
    });
    sizes.sum()
}
