//! Clients that others wrote: libnbd's, qemu's and fio's tools. A tool that is not installed is
//! skipped, and the test says so.

use std::net::TcpListener;
use std::process::{Child, Command};

use super::super::{Client, Limits, Operation, Run};
use super::{Setup, start};

/// Runs a command line and returns what it prints; `None` where the tool is not installed.
fn run(setup: &Setup, tool: &str, arguments: &[&str]) -> Option<String> {
    let uri = format!("nbd://{}", setup.address);
    let port = setup.address.port().to_string();
    let fill = |text: &&str| text.replace("URI", &uri).replace("PORT", &port);
    let arguments: Vec<String> = arguments.iter().map(fill).collect();
    // nbdsh needs the Python that it was installed with.
    let path = format!("/usr/bin:{}", std::env::var("PATH").unwrap_or_default());
    match Command::new(tool)
        .args(&arguments)
        .env("PATH", path)
        .output()
    {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            println!("SKIPPED: {tool} is not installed");
            None
        }
        Err(error) => panic!("{tool}: {error}"),
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let errors = String::from_utf8_lossy(&output.stderr);
            let all = format!("{tool} {arguments:?}: {}\n{text}\n{errors}", output.status);
            assert!(output.status.success(), "{all}");
            Some(text)
        }
    }
}

#[test]
fn nbdinfo_lists_and_describes() {
    let setup = start(Limits::default());
    let Some(text) = run(&setup, "nbdinfo", &["--list", "--json", "URI"]) else {
        return;
    };
    for part in [
        "\"export-name\": \"disk\"",
        "\"export-name\": \"fixed\"",
        "\"structured\": true",
        "\"can_multi_conn\": true",
        "\"can_fua\": true",
        "\"can_df\": true",
        "\"block_size_preferred\": 4096",
        "\"block_size_maximum\": 33554432",
        "base:allocation",
    ] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
    let mut client = setup.client("disk");
    client.write(1 << 20, &[1; 8192]).unwrap();
    let map = run(&setup, "nbdinfo", &["--map", "URI/disk"]).unwrap();
    let lines: Vec<Vec<&str>> = map
        .lines()
        .map(|line| line.split_whitespace().take(3).collect())
        .collect();
    let expected = [
        ["0", "1048576", "3"],
        ["1048576", "8192", "0"],
        ["1056768", "3137536", "3"],
    ];
    assert_eq!(lines, expected);
}

#[test]
fn nbdcopy_copies_there_and_back() {
    let setup = start(Limits::default());
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    let (from, to) = (from.to_str().unwrap(), to.to_str().unwrap());
    let mut bytes = vec![0; 4 << 20];
    let mut rng = fastrand::Rng::with_seed(1);
    rng.fill(&mut bytes[100_000..900_000]);
    rng.fill(&mut bytes[3_000_001..3_500_001]);
    std::fs::write(from, &bytes).unwrap();
    let there = [
        "--connections=4",
        "--requests=16",
        "--flush",
        from,
        "URI/disk",
    ];
    if run(&setup, "nbdcopy", &there).is_none() {
        return;
    }
    assert!(setup.disk.contents() == bytes);
    run(&setup, "nbdcopy", &["URI/disk", to]).unwrap();
    assert!(std::fs::read(to).unwrap() == bytes);
}

#[test]
fn nbdsh_meets_each_command_and_error() {
    let setup = start(Limits::default());
    let script = r#"
import errno
h.set_strict_mode(0)
h.add_meta_context("base:allocation")
h.connect_uri("URI/disk")
assert h.get_structured_replies_negotiated()
assert h.can_meta_context("base:allocation")
def fails(number, f, *arguments):
    try:
        f(*arguments)
    except nbd.Error as error:
        assert error.errnum == number, (error.errnum, number, error.string)
    else:
        raise AssertionError("no error")
h.pwrite(b"abc" * 1000, 4095, nbd.CMD_FLAG_FUA)
assert h.pread(3000, 4095) == b"abc" * 1000
h.zero(1000, 4096, nbd.CMD_FLAG_NO_HOLE)
h.trim(4096, 8192, nbd.CMD_FLAG_FUA)
h.flush()
assert h.pread(1, 4095) == b"a" and h.pread(1000, 4096) == bytes(1000)
size = h.get_size()
fails(errno.EINVAL, h.pread, 2, size - 1)
fails(errno.ENOSPC, h.pwrite, b"ab", size - 1)
fails(errno.ENOSPC, h.zero, 2, size - 1)
fails(errno.EINVAL, h.trim, 2, size - 1)
fails(errno.EINVAL, h.cache, 2, 0)
fails(errno.EINVAL, h.zero, 2, 0, nbd.CMD_FLAG_FAST_ZERO)
fails(errno.EINVAL, h.pread, 2, 0, nbd.CMD_FLAG_REQ_ONE)
seen = []
def extents(context, offset, entries, error):
    seen.append((context, offset, entries))
    return 0
h.block_status(size, 0, extents)
assert seen[0][0] == "base:allocation" and sum(seen[0][2][0::2]) == size, seen
del seen[:]
h.block_status(size, 0, extents, nbd.CMD_FLAG_REQ_ONE)
assert len(seen[0][2]) == 2, seen
chunks = []
def chunk(data, offset, status, error):
    chunks.append((len(data), offset, status))
    return 0
h.pread_structured(100000, 5, chunk, nbd.CMD_FLAG_DF)
assert chunks == [(100000, 5, nbd.READ_DATA)], chunks
cookies = {h.aio_pread(nbd.Buffer(4096), n * 4096): n for n in range(100)}
while cookies:
    h.poll(-1)
    for cookie in list(cookies):
        if h.aio_command_completed(cookie):
            del cookies[cookie]
h.shutdown()

r = nbd.NBD()
r.set_strict_mode(0)
r.connect_uri("URI/fixed")
assert r.is_read_only()
fails(errno.EPERM, r.pwrite, b"a", 0)
fails(errno.EPERM, r.zero, 1, 0)
fails(errno.EPERM, r.trim, 1, 0)
r.shutdown()

for setting in ("set_full_info", "set_request_structured_replies", "set_handshake_flags"):
    o = nbd.NBD()
    if setting == "set_full_info": o.set_full_info(True)
    elif setting == "set_handshake_flags": o.set_handshake_flags(0)
    else: o.set_request_structured_replies(False)
    o.connect_uri("URI/disk")
    if setting == "set_full_info": assert o.get_export_description() == "in memory" and o.get_canonical_export_name() == "disk"
    assert o.pread(1, 4095) == b"a"
    o.shutdown()

m = nbd.NBD()
m.set_opt_mode(True)
m.connect_tcp("127.0.0.1", "PORT")
names = []
assert m.opt_list(lambda name, description: names.append(name) or 0) == 2 and names == ["disk", "fixed"]
m.set_export_name("nothing")
fails(errno.ENOENT, m.opt_go)
m.set_export_name("disk")
m.opt_info()
assert m.get_block_size(nbd.SIZE_MINIMUM) == 1
m.opt_abort()
print("right")
"#;
    if let Some(text) = run(&setup, "nbdsh", &["-c", script]) {
        assert_eq!(text.trim(), "right");
    }
    setup.wait_for_silence();
}

#[test]
fn qemu_reads_writes_converts_and_compares() {
    let setup = start(Limits::default());
    let commands = [
        "write -P 0xab 4097 10000",
        "write -f -P 0xcd 1M 64k",
        "write -z 1M 4k",
        "discard 2M 1M",
        "flush",
        "read -P 0xab 4097 10000",
        "read -P 0 1M 4k",
        "read -P 0xcd 1052672 60k",
    ];
    let mut arguments = vec!["-f", "raw"];
    commands
        .iter()
        .for_each(|command| arguments.extend(["-c", command]));
    arguments.push("URI/disk");
    let Some(text) = run(&setup, "qemu-io", &arguments) else {
        return;
    };
    assert!(!text.contains("failed"), "{text}");
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image.qcow2");
    let image = image.to_str().unwrap();
    let convert = ["convert", "-f", "raw", "-O", "qcow2", "URI/disk", image];
    if run(&setup, "qemu-img", &convert).is_none() {
        return;
    }
    let compare = ["compare", "-f", "qcow2", "-F", "raw", image, "URI/disk"];
    let text = run(&setup, "qemu-img", &compare).unwrap();
    assert!(text.contains("Images are identical"), "{text}");
    setup.client("disk").zero(0, 4 << 20).unwrap();
    let convert = [
        "convert", "-n", "-f", "qcow2", "-O", "raw", image, "URI/disk",
    ];
    run(&setup, "qemu-img", &convert).unwrap();
    run(&setup, "qemu-img", &compare).unwrap();
    let text = run(
        &setup,
        "qemu-img",
        &["map", "-f", "raw", "--output=json", "URI/disk"],
    );
    assert!(text.unwrap().contains("\"zero\": true"));
}

#[test]
fn fio_verifies_what_it_wrote() {
    let setup = start(Limits::default());
    let arguments = [
        "--name=verify",
        "--ioengine=nbd",
        "--uri=URI/disk",
        "--rw=randwrite",
        "--bsrange=512-64k",
        "--size=4m",
        "--iodepth=16",
        "--verify=crc32c",
        "--do_verify=1",
        "--verify_state_save=0",
        "--output-format=terse",
    ];
    let engines = Command::new("fio").arg("--enghelp").output();
    match engines {
        Ok(output) if String::from_utf8_lossy(&output.stdout).contains("nbd") => {
            run(&setup, "fio", &arguments).unwrap();
        }
        _ => println!("SKIPPED: fio is not installed, or has no nbd engine"),
    }
}

/// A server that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The client against a server that others wrote, with 4 MiB under the name `disk` that are zero
/// but for the second MiB.
fn client_against(tool: &str, arguments: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    let mut bytes = vec![0; 4 << 20];
    fastrand::Rng::with_seed(2).fill(&mut bytes[1 << 20..2 << 20]);
    let file = std::fs::File::create(&image).unwrap();
    file.set_len(4 << 20).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &bytes[1 << 20..2 << 20], 1 << 20).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let port = address.port().to_string();
    let image = image.to_str().unwrap();
    let fill = |text: &&str| text.replace("PORT", &port).replace("IMAGE", image);
    let command = Command::new(tool).args(arguments.iter().map(fill)).spawn();
    let Ok(child) = command else {
        println!("SKIPPED: {tool} is not installed");
        return;
    };
    let _running = Running(child);
    super::wait(|| Client::connect(address, "disk").is_ok());
    let mut client = Client::connect(address, "disk").unwrap();
    assert_eq!(client.size(), 4 << 20);
    assert!(client.read(0, 4 << 20).unwrap() == bytes);
    let mut runs: Vec<Run> = Vec::new();
    let mut at = 0;
    while at < client.size() {
        let left = u32::try_from(client.size() - at).unwrap();
        let more = client.block_status(at, left).unwrap();
        at += more.iter().map(|run| run.length).sum::<u64>();
        runs.extend(more);
    }
    assert!(
        runs[0].is_hole && runs.iter().any(|run| !run.is_hole),
        "{runs:?}"
    );
    client.zero(1 << 20, 1000).unwrap();
    client.trim(2 << 20, 4096).unwrap();
    let writes = (0..100).map(|n| Operation::Write {
        offset: n * 1000,
        data: vec![n as u8; 1000],
        fua: true,
    });
    let ended = |_, result: Result<Vec<u8>, _>| assert!(result.is_ok());
    client.pipeline(writes, 10, ended).unwrap();
    client.flush().unwrap();
    for n in 0..100_u8 {
        bytes[usize::from(n) * 1000..][..1000].fill(n);
    }
    bytes[1 << 20..][..1000].fill(0);
    let reads = (0..64).map(|n| Operation::Read {
        offset: n << 16,
        length: 1 << 16,
    });
    let ended = |n, result: Result<Vec<u8>, _>| {
        assert!(result.unwrap() == bytes[(n as usize) << 16..][..1 << 16]);
    };
    client.pipeline(reads, 16, ended).unwrap();
    client.read(4 << 20, 1).unwrap_err();
    assert_eq!(client.read(0, 1).unwrap(), [0]);
    client.disconnect().unwrap();
}

#[test]
fn the_client_reads_and_writes_at_the_server_of_qemu() {
    let arguments = [
        "-f",
        "raw",
        "-b",
        "127.0.0.1",
        "-p",
        "PORT",
        "-x",
        "disk",
        "-t",
    ];
    let more = ["-e", "4", "--discard=unmap", "IMAGE"];
    client_against("qemu-nbd", &[arguments.as_slice(), &more].concat());
}

#[test]
fn the_client_reads_and_writes_at_nbdkit() {
    let arguments = ["-f", "-i", "127.0.0.1", "-p", "PORT", "-e", "disk"];
    client_against(
        "nbdkit",
        &[arguments.as_slice(), &["file", "IMAGE"]].concat(),
    );
}
