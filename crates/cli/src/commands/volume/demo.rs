//! `demo volume`: a file-system image is written to three nodes, and a leader is killed meanwhile.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use esker_volume::client::Client as NodeClient;
use esker_volume::nbd::{Client, Operation};
use esker_volume::net::Security;
use esker_volume::system::SystemCommand;

use super::processes::{NODES, Processes};
use crate::args::{AskArgs, DemoVolumeArgs, TlsArgs};
use crate::failure::{Failure, Outcome};
use crate::interrupt::Interrupt;
use crate::output::{Output, bytes, thousands};

const VOLUME: &str = "disk";
/// Bytes of one write.
const PIECE: u64 = 256 << 10;
/// Writes in flight.
const DEPTH: usize = 16;
/// The longest wait for anything: longer than a write waits through a fail-over.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time between two lines of progress.
const EVERY: Duration = Duration::from_millis(500);

/// `esker demo volume`
pub(in crate::commands) fn demo(
    args: &DemoVolumeArgs,
    folder: &Path,
    temporary: bool,
) -> Result<Outcome, Failure> {
    let size = args.size as u64;
    if size < 8 << 20 || !size.is_multiple_of(4096) {
        let text = "--size must be at least 8M and a multiple of 4096 bytes";
        return Err(Failure::Usage(text.to_string()));
    }
    let interrupt = Interrupt::watch()?;
    fs::create_dir_all(folder)
        .map_err(|error| Failure::Store(format!("{}: {error}", folder.display())))?;
    let mut show = Show {
        output: Output::new(),
        folder,
        size,
        interrupt: &interrupt,
    };
    let ended = show.run(temporary);
    // A signal also reaches the nodes if it comes from a terminal; their end is no failure then.
    match (interrupt.signal(), ended) {
        (Some(signal), _) => Ok(Outcome::Interrupted(signal)),
        (None, ended) => ended,
    }
}

/// The demo's stage.
struct Show<'a> {
    output: Output,
    folder: &'a Path,
    size: u64,
    interrupt: &'a Interrupt,
}

/// What was seen while the image was written.
#[derive(Default)]
struct Seen {
    /// When the node was killed.
    killed: Option<Instant>,
    /// The writes that were in flight at that moment, and have no acknowledgement yet.
    open: BTreeSet<u64>,
    /// From the kill to the acknowledgement of the last of them.
    failover: Option<Duration>,
    acknowledged: BTreeSet<u64>,
    failed: Option<String>,
}

impl Show<'_> {
    fn say(&mut self, text: impl std::fmt::Display) -> Result<(), Failure> {
        self.output.line(text)?;
        self.output.flush()
    }

    /// Fails if a signal arrived; `demo` turns this into the signal's exit code.
    fn go_on(&self) -> Result<(), Failure> {
        match self.interrupt.signal() {
            None => Ok(()),
            Some(_) => Err(Failure::Store("interrupted".to_string())),
        }
    }

    fn run(&mut self, temporary: bool) -> Result<Outcome, Failure> {
        let folder = self.folder;
        let mut nodes = Processes::start(folder)?;
        let shown = folder.display();
        self.say(format_args!("three nodes on loopback, in {shown}"))?;
        self.create(&mut nodes)?;
        let image = self.image()?;

        let victim = self.leader_of_most(&nodes)?;
        // The client talks to another node, which forwards its requests to the leaders.
        let reached = (1..=NODES).find(|node| *node != victim).unwrap_or(1);
        self.write(&mut nodes, &image, reached, victim)?;
        self.leaders(&nodes, reached, victim)?;
        self.amplification(&nodes)?;

        self.say(format_args!(
            "\n# read everything back from node {reached}, while node {victim} is dead"
        ))?;
        self.read_back(&nodes, &image, reached)?;

        self.say(format_args!("\n# start node {victim} again"))?;
        nodes.spawn(victim)?;
        self.catch_up(&mut nodes, reached, victim)?;
        self.say(format_args!(
            "\n# compare node {victim}'s own copy, without asking the others"
        ))?;
        self.compare_local(&nodes, &image, victim)?;
        if temporary {
            self.say(
                "\nThe nodes' folders were temporary; `esker demo volume --dir DIR` keeps them.",
            )?;
        } else {
            self.say(format_args!(
                "\nThe nodes' folders and logs stay in {shown}."
            ))?;
        }
        Ok(Outcome::Done)
    }

    /// Creates the volume as soon as the nodes have formed a cluster.
    fn create(&mut self, nodes: &mut Processes) -> Result<(), Failure> {
        let end = Instant::now() + PATIENCE;
        while nodes
            .running()
            .iter()
            .any(|node| nodes.status(*node).is_none())
        {
            self.go_on()?;
            nodes.check()?;
            if Instant::now() > end {
                return Err(Failure::Store("the nodes do not answer".to_string()));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let node = nodes.address(1)?;
        let (size, shown) = (self.size, bytes(self.size));
        self.say(format_args!(
            "\n# create a volume of {shown}\n$ esker volume create {VOLUME} --size {size} --node {node}"
        ))?;
        let ask = AskArgs {
            node,
            wait: PATIENCE.as_secs(),
            tls: TlsArgs::default(),
        };
        let command = SystemCommand::Create {
            name: VOLUME.to_string(),
            size: self.size,
            block_size: 4096,
        };
        super::link::system(&ask, &command).map(drop)
    }

    /// Makes the image: an ext4 file system with files in it, or random bytes.
    fn image(&mut self) -> Result<PathBuf, Failure> {
        let path = self.folder.join("image");
        let failed = |error| Failure::Store(format!("{}: {error}", path.display()));
        let files = self.folder.join("files");
        fs::create_dir_all(&files).map_err(failed)?;
        let mut random = fastrand::Rng::with_seed(6);
        let mut fill = |path: &Path, mut left: u64| {
            let mut file = File::create(path)?;
            let mut piece = vec![0; PIECE as usize];
            while left > 0 {
                random.fill(&mut piece);
                let now = left.min(PIECE);
                file.write_all(piece.get(..now as usize).unwrap_or_default())?;
                left -= now;
            }
            Ok(())
        };
        // Three quarters of the file system are used.
        for number in 0..12 {
            fill(&files.join(format!("file{number}")), self.size / 16).map_err(failed)?;
        }
        let made = mkfs(&path, &files, self.size);
        drop(fs::remove_dir_all(&files));
        if made {
            self.say("\n# the image: an ext4 file system with 12 files of random bytes")?
        } else {
            fill(&path, self.size).map_err(failed)?;
            self.say("\n# the image: random bytes, since mkfs.ext4 is not installed")?;
        }
        Ok(path)
    }

    /// The node that leads most groups, once each group has a leader.
    fn leader_of_most(&self, nodes: &Processes) -> Result<u32, Failure> {
        let end = Instant::now() + PATIENCE;
        loop {
            self.go_on()?;
            let groups = nodes.status(1).map(|status| status.groups);
            let groups = groups.unwrap_or_default();
            if !groups.is_empty() && groups.iter().all(|group| group.leader != 0) {
                let led = |node: &u32| groups.iter().filter(|group| group.leader == *node).count();
                return Ok((1..=NODES).max_by_key(led).unwrap_or(1));
            }
            if Instant::now() > end {
                return Err(Failure::Store("not every group has a leader".to_string()));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Writes the image through `reached`, and kills `victim` when half of it is acknowledged.
    fn write(
        &mut self,
        nodes: &mut Processes,
        image: &Path,
        reached: u32,
        victim: u32,
    ) -> Result<(), Failure> {
        let address = nodes.nbd(reached)?;
        self.say(format_args!(
            "\n# write it over NBD to node {reached} (nbd://{address}/{VOLUME}), {DEPTH} writes of {} in flight",
            bytes(PIECE)
        ))?;
        let mut client = connect(nodes, reached)?;
        let file = File::open(image).map_err(io(image))?;
        let pieces = self.size.div_ceil(PIECE);
        let sent = AtomicU64::new(0);
        let operations = (0..pieces).map_while(|piece| {
            let data = match self.interrupt.signal() {
                None => read_piece(&file, self.size, piece).ok()?,
                Some(_) => return None,
            };
            sent.store(piece + 1, Ordering::SeqCst);
            let (offset, fua) = (piece * PIECE, false);
            Some(Operation::Write { offset, data, fua })
        });
        let (begin, mut shown) = (Instant::now(), Instant::now());
        let mut seen = Seen::default();
        let (output, size) = (&mut self.output, self.size);
        let run = client.pipeline(operations, DEPTH, |piece, result| {
            if let Err(failure) = result {
                seen.failed.get_or_insert(format!("{failure:?}"));
                return;
            }
            seen.acknowledged.insert(piece);
            let done = seen.acknowledged.len() as u64;
            if seen.killed.is_none() && done * 2 >= pieces {
                let text = format!("  killing node {victim} with SIGKILL: it leads most groups");
                drop(output.line(text).and_then(|()| output.flush()));
                seen.killed = Some(Instant::now());
                if let Err(error) = nodes.kill(victim) {
                    seen.failed = error.message().map(str::to_string);
                }
                let all = 0..sent.load(Ordering::SeqCst);
                seen.open = all.filter(|piece| !seen.acknowledged.contains(piece)).collect();
            } else if seen.open.remove(&piece) && seen.open.is_empty() {
                seen.failover = seen.killed.map(|killed| killed.elapsed());
                let seconds = seen.failover.unwrap_or_default().as_secs_f64();
                let text = format!(
                    "  fail-over: every write in flight at the kill was acknowledged {seconds:.2} s later"
                );
                drop(output.line(text).and_then(|()| output.flush()));
            }
            if shown.elapsed() >= EVERY || done == pieces {
                shown = Instant::now();
                let written = (done * PIECE).min(size);
                let rate = written as f64 / begin.elapsed().as_secs_f64().max(1e-9);
                let text = format!(
                    "  {} of {} written, {}/s",
                    bytes(written),
                    bytes(size),
                    bytes(rate as u64)
                );
                drop(output.line(text).and_then(|()| output.flush()));
            }
        });
        self.go_on()?;
        run.map_err(nbd)?;
        if let Some(failed) = seen.failed {
            return Err(Failure::Store(format!("a write failed: {failed}")));
        }
        if seen.acknowledged.len() as u64 != pieces {
            let text = format!("{} cannot be read", image.display());
            return Err(Failure::Store(text));
        }
        client.flush().map_err(nbd)
    }

    /// Shows who leads the groups now.
    fn leaders(&mut self, nodes: &Processes, reached: u32, victim: u32) -> Result<(), Failure> {
        let Some(status) = nodes.status(reached) else {
            return Ok(());
        };
        let led: Vec<String> = (1..=NODES)
            .filter(|node| *node != victim)
            .map(|node| {
                let groups = status.groups.iter();
                let count = groups.filter(|group| group.leader == node).count();
                format!(
                    "node {node} leads {count} of {} groups",
                    status.groups.len()
                )
            })
            .collect();
        self.say(format_args!("  now {}", led.join(", ")))
    }

    /// Shows how much the nodes wrote to disk. A request that was sent again counts once as bytes
    /// of the user.
    fn amplification(&mut self, nodes: &Processes) -> Result<(), Failure> {
        for node in nodes.running() {
            if let Some(status) = nodes.status(node) {
                let written = status.written + status.map_written;
                let (shown, size) = (bytes(written), bytes(self.size));
                let ratio = written as f64 / self.size as f64;
                self.say(format_args!(
                    "  node {node} wrote {shown} to its disk for {size} from the client: {ratio:.3} bytes per user byte"
                ))?;
            }
        }
        Ok(())
    }

    fn read_back(&mut self, nodes: &Processes, image: &Path, node: u32) -> Result<(), Failure> {
        let mut client = connect(nodes, node)?;
        let file = File::open(image).map_err(io(image))?;
        let size = self.size;
        let pieces = size.div_ceil(PIECE);
        let operations = (0..pieces).map_while(|piece| {
            let (offset, length) = (piece * PIECE, PIECE.min(size - piece * PIECE) as u32);
            let is_interrupted = self.interrupt.signal().is_some();
            (!is_interrupted).then_some(Operation::Read { offset, length })
        });
        let begin = Instant::now();
        let (mut equal, mut wrong) = (0, Vec::new());
        let run = client.pipeline(operations, DEPTH, |piece, result| {
            match (result, read_piece(&file, size, piece)) {
                (Ok(data), Ok(expected)) if data == expected => equal += 1,
                _ => wrong.push(piece * PIECE),
            }
        });
        self.go_on()?;
        run.map_err(nbd)?;
        self.compared(equal == pieces, &wrong, begin.elapsed())
    }

    /// Waits until `victim` has applied everything that the others have, and shows its lag.
    fn catch_up(
        &mut self,
        nodes: &mut Processes,
        reached: u32,
        victim: u32,
    ) -> Result<(), Failure> {
        let begin = Instant::now();
        let mut shown = None;
        loop {
            self.go_on()?;
            nodes.check()?;
            if let (Some(ours), Some(theirs)) = (nodes.status(reached), nodes.status(victim)) {
                let behind = ours.groups.iter().map(|group| {
                    let same =
                        |other: &&esker_volume::admin::GroupStatus| other.group == group.group;
                    let applied = theirs
                        .groups
                        .iter()
                        .find(same)
                        .map_or(0, |other| other.applied.0);
                    group.applied.0.saturating_sub(applied)
                });
                let behind: u64 = behind.sum();
                if shown.is_none_or(|last| last != behind) {
                    shown = Some(behind);
                    let seconds = begin.elapsed().as_secs_f64();
                    let entries = thousands(behind);
                    self.say(format_args!(
                        "  after {seconds:.2} s node {victim} is {entries} log entries behind"
                    ))?;
                }
                if behind == 0 {
                    return Ok(());
                }
            }
            if begin.elapsed() > PATIENCE {
                return Err(Failure::Store(format!("node {victim} does not catch up")));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Compares what a node has on its own disk.
    fn compare_local(&mut self, nodes: &Processes, image: &Path, node: u32) -> Result<(), Failure> {
        let address = nodes.address(node)?;
        let client = NodeClient::connect(&address, Security::Plain, PATIENCE);
        let mut client = client.map_err(super::link::failed)?;
        let file = File::open(image).map_err(io(image))?;
        let begin = Instant::now();
        let mut wrong = Vec::new();
        for piece in 0..self.size.div_ceil(PIECE) {
            self.go_on()?;
            let expected = read_piece(&file, self.size, piece).map_err(io(image))?;
            let (offset, length) = (piece * PIECE, expected.len() as u32);
            let data = client.read_local(VOLUME, offset, length);
            if data.map_err(super::link::failed)?.data != expected {
                wrong.push(offset);
            }
        }
        self.compared(wrong.is_empty(), &wrong, begin.elapsed())
    }

    fn compared(&mut self, is_equal: bool, wrong: &[u64], took: Duration) -> Result<(), Failure> {
        if !is_equal {
            let first = wrong.first().copied().unwrap_or(0);
            let text = format!("the volume differs from the image from byte {first} on");
            return Err(Failure::Store(text));
        }
        let seconds = took.as_secs_f64();
        let rate = bytes((self.size as f64 / seconds.max(1e-9)) as u64);
        self.say(format_args!(
            "  all {} are equal to the image ({seconds:.2} s, {rate}/s)",
            bytes(self.size)
        ))
    }
}

/// Makes an ext4 file system with these files. False if the program is not there or fails.
fn mkfs(image: &Path, files: &Path, size: u64) -> bool {
    let made = File::create(image).and_then(|file| file.set_len(size));
    let kib = (size >> 10).to_string();
    // Not every shell has /usr/sbin in its path.
    let programs = ["mkfs.ext4", "/usr/sbin/mkfs.ext4", "/sbin/mkfs.ext4"];
    made.is_ok()
        && programs.iter().any(|program| {
            let mut command = Command::new(program);
            command.args(["-q", "-F", "-b", "4096", "-d"]).arg(files);
            command.arg(image).arg(format!("{kib}k"));
            command
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            command.status().is_ok_and(|status| status.success())
        })
}

fn connect(nodes: &Processes, node: u32) -> Result<Client, Failure> {
    // A node serves a volume as soon as it has heard of it.
    let end = Instant::now() + PATIENCE;
    loop {
        match Client::connect_within(nodes.nbd(node)?, VOLUME, Some(PATIENCE)) {
            Ok(client) => return Ok(client),
            Err(error) if Instant::now() > end => return Err(nbd(error)),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

fn nbd(error: esker_volume::nbd::ClientError) -> Failure {
    Failure::Store(format!("NBD: {error}"))
}

fn io(path: &Path) -> impl Fn(std::io::Error) -> Failure {
    let shown = path.display().to_string();
    move |error| Failure::Store(format!("{shown}: {error}"))
}

/// A piece of the image; the last one may be shorter.
fn read_piece(file: &File, size: u64, piece: u64) -> std::io::Result<Vec<u8>> {
    let offset = piece * PIECE;
    let mut data = vec![0; PIECE.min(size.saturating_sub(offset)) as usize];
    file.read_exact_at(&mut data, offset)?;
    Ok(data)
}
