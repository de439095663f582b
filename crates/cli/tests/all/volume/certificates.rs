//! Certificates of nodes and clients.

use std::path::Path;
use std::process::{Command, Stdio};

use super::cluster::{Cluster, Process, has, skipped};
use crate::common::{command, esker};

/// The shell commands of a block of the guide that begins with this line.
fn guide(first: &str) -> String {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/volumes.md");
    let text = std::fs::read_to_string(guide).unwrap();
    let begin = text
        .find(&format!("```sh\n{first}"))
        .expect("the guide has this block");
    let block = &text[begin + 6..];
    block[..block.find("```").unwrap()].to_string()
}

#[test]
fn certificates_of_the_guide_protect_nodes_and_clients() {
    if !has("openssl") {
        return skipped("volumes with certificates", "openssl is absent");
    }
    let folder = tempfile::tempdir().unwrap();
    let script = guide("# The authority");
    // The guide's machines have addresses of their own; here all are this one.
    let machines = ["10.0.0.1", "10.0.0.2", "10.0.0.3"];
    let script = machines.iter().fold(script, |script, machine| {
        script.replace(machine, "127.0.0.1")
    });
    let run = Command::new("sh")
        .args(["-euc", &script])
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert!(
        run.status.success(),
        "{}",
        String::from_utf8_lossy(&run.stderr)
    );

    let options = |name: &str| {
        let path = |file: String| folder.path().join(file).display().to_string();
        [
            format!("--cert={}", path(format!("{name}.pem"))),
            format!("--key={}", path(format!("{name}-key.pem"))),
            format!("--ca={}", path("ca.pem".to_string())),
        ]
    };
    let mut cluster = Cluster::idle(&options("node1"));
    for node in 1..=3 {
        cluster.security = options(&format!("node{node}")).to_vec();
        cluster.start(node);
    }
    cluster.create("disk", "1M");
    let node = cluster.address(1);
    // A client with a certificate of its own is served; one without, or of another authority, is
    // not.
    let with = |more: &[String]| {
        let words = ["volume", "list", "--node", &node].map(str::to_string);
        esker(&[&words[..], more].concat())
    };
    with(&options("disk")).expect(0);
    with(&[]).expect(3);
    let script = script.replace("/CN=esker volumes", "/CN=esker volumes of others");
    let other = folder.path().join("other");
    std::fs::create_dir(&other).unwrap();
    let run = Command::new("sh")
        .args(["-euc", &script])
        .current_dir(&other)
        .output()
        .unwrap();
    assert!(run.status.success());
    let strange = options("disk").map(|option| {
        let is_authority = option.starts_with("--ca");
        let (ours, theirs) = (
            folder.path().display().to_string(),
            other.display().to_string(),
        );
        if is_authority {
            option
        } else {
            option.replace(&ours, &theirs)
        }
    });
    with(&strange).expect(3);

    // A node with the certificate of another, or of a client, does not start.
    cluster.kill(3);
    for name in ["node2", "disk"] {
        cluster.security = options(name).to_vec();
        let mut command = command(&cluster.arguments(3));
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        let (status, said) = Process::start(&mut command).ended();
        assert_eq!(status.code(), Some(3), "{said}");
        assert!(said.contains("node:3"), "{said}");
    }
    cluster.security = options("disk").to_vec();

    if !has("nbdinfo") {
        return skipped("NBD over TLS", "nbdinfo is absent");
    }
    // The tools of others find fixed names in a folder.
    let info = |name: &str, export: &str| {
        let dir = tempfile::tempdir().unwrap();
        for (from, to) in [
            ("ca.pem".to_string(), "ca-cert.pem"),
            (format!("{name}.pem"), "client-cert.pem"),
            (format!("{name}-key.pem"), "client-key.pem"),
        ] {
            std::fs::copy(folder.path().join(from), dir.path().join(to)).unwrap();
        }
        let certificates = dir.path().display();
        let uri = format!(
            "nbds://{}/{export}?tls-certificates={certificates}",
            cluster.nbd[0]
        );
        Command::new("nbdinfo")
            .args(["--size", &uri])
            .output()
            .unwrap()
    };
    cluster.create("second", "1M");
    let output = info("disk", "disk");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "1048576");
    // The certificate's name allows one volume.
    assert!(!info("disk", "second").status.success());
    let plain = format!("nbd://{}/disk", cluster.nbd[0]);
    let output = Command::new("nbdinfo")
        .args(["--size", &plain])
        .output()
        .unwrap();
    assert!(!output.status.success());
}
