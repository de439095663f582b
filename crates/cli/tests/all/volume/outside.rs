//! The demo, and programs that others wrote.

use std::path::Path;
use std::process::{Command, Stdio};

use super::cluster::{has, skipped};
use crate::common::esker;

#[test]
fn the_demo_compares_everything() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("demo");
    let dir = dir.to_str().unwrap();
    let run = esker(&["demo", "volume", "--size", "16M", "--dir", dir]).expect(0);
    for text in [
        "with SIGKILL: it leads most groups",
        "fail-over: every write in flight at the kill was acknowledged",
        "16.0 MiB of 16.0 MiB written",
        "bytes per user byte",
        "is 0 log entries behind",
    ] {
        assert!(run.stdout.contains(text), "{text}:\n{}", run.stdout);
    }
    let equal = "all 16.0 MiB are equal to the image";
    assert_eq!(run.stdout.matches(equal).count(), 2, "{}", run.stdout);
    // A folder that has something in it is left alone.
    esker(&["demo", "volume", "--size", "16M", "--dir", dir]).expect(2);
    esker(&["demo", "volume", "--size", "1M"]).expect(2);
}

#[test]
fn judges_that_are_installed_agree() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/volume-judges");
    let missing: Vec<&str> = ["bash", "python3", "nbdinfo", "qemu-img", "fio", "nbdkit"]
        .into_iter()
        .filter(|program| !has(program))
        .collect();
    if !missing.is_empty() {
        return skipped(
            "volumes by other programs",
            &format!("absent: {}", missing.join(", ")),
        );
    }
    let output = Command::new(script)
        .args(["--quick", env!("CARGO_BIN_EXE_esker")])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, error) = (said(&output.stdout), said(&output.stderr));
    assert!(output.status.success(), "{out}\n{error}");
    assert!(out.ends_with("all judges agree\n"), "{out}");
}
