//! A node whose disk is full, on a small file system in memory.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::cluster::{Cluster, skipped, until};

/// Bytes of the small disk.
const DISK: &str = "size=80m";

/// A command that runs another one where a small file system is mounted at a folder. Only that
/// process sees it, so it ends with the process.
fn mounted(folder: &str, run: &[String]) -> Command {
    let script = r#"mount -t tmpfs -o "$0" none "$1" && shift && exec "$@""#;
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script, DISK, folder]);
    command.args(run);
    command
}

#[test]
fn a_disk_that_was_full_serves_again_when_there_is_room() {
    let mut cluster = Cluster::idle(&[]);
    let dir = cluster.dir(3);
    std::fs::create_dir(&dir).unwrap();
    let dir = dir.to_str().unwrap().to_string();
    let mut can = mounted(&dir, &["true".to_string()]);
    let can = can.stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !can.is_ok_and(|status| status.success()) {
        return skipped("a volume on a full disk", "no file system can be mounted");
    }
    cluster.start(1);
    cluster.start(2);
    let mut run = vec![env!("CARGO_BIN_EXE_esker").to_string()];
    run.extend(cluster.arguments(3));
    cluster.start_by(3, mounted(&dir, &run));
    cluster.create("disk", "4M");
    cluster.leader(3);
    let mut near = cluster.connect(1, "disk");
    let mut far = cluster.connect(3, "disk");
    let mut data = vec![0u8; 4 << 20];
    let piece = 64 << 10;
    let write = |client: &mut esker_volume::nbd::Client, data: &mut [u8], number: usize| {
        let at = number * 13 % 64 * piece;
        let bytes = &mut data[at..at + piece];
        bytes.fill(number as u8);
        client.write(at as u64, bytes).unwrap();
    };
    (1..64).for_each(|number| write(&mut far, &mut data, number));

    // The node's own view of its folder.
    let seen = PathBuf::from(format!("/proc/{}/root{dir}", cluster.process(3).id()));
    let mut filler = File::create(seen.join("filler")).unwrap();
    while filler.write_all(&[1; 4096]).is_ok() {}
    let mut number = 64;
    let failed = |cluster: &Cluster| cluster.status(3)["failed"].clone();
    while failed(&cluster).is_null() {
        write(&mut near, &mut data, number);
        number += 1;
    }
    assert!(failed(&cluster).as_str().unwrap().contains("no room"));
    // The others go on, and the node forwards to them.
    for more in 0..20 {
        write(&mut near, &mut data, number + more);
        write(&mut far, &mut data, number + more + 20);
    }
    assert!(far.read(0, 4 << 20).unwrap() == data);

    drop(filler);
    std::fs::remove_file(seen.join("filler")).unwrap();
    until("the node serves again", || failed(&cluster).is_null());
    cluster.catch_up(3);
    // Without it there is no majority.
    cluster.kill(2);
    (200..300).for_each(|number| write(&mut far, &mut data, number));
    assert!(near.read(0, 4 << 20).unwrap() == data);
    cluster.start(2);
    cluster.catch_up(2);
    cluster.kill(1);
    assert!(far.read(0, 4 << 20).unwrap() == data);
}
