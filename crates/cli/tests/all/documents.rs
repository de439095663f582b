//! Runs every transcript of the command line in README.md and the guides, and compares its output.
//!
//! A transcript is a block that begins with ```` ```console ````. Its lines that begin with `$ `
//! are run by a shell, in order, in one folder per document; the lines below a command are its
//! output, from both streams. A block that begins with ```` ```json NAME ```` is first written to
//! the file of that name. Numbers may differ, because they are times, rates and sizes; in records,
//! and in lines that are only a number, they must not.

use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::real_data;

/// The documents with transcripts.
const DOCUMENTS: [&str; 4] = [
    "README.md",
    "docs/command-line.md",
    "docs/pubsub.md",
    "docs/space.md",
];

struct Step {
    line: usize,
    command: String,
    expected: Vec<String>,
}

enum Part {
    File(String, String),
    Step(Step),
}

/// The files and commands of a document, in order.
fn parts(text: &str) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((_, line)) = lines.next() {
        let Some(fence) = line.strip_prefix("```") else {
            continue;
        };
        let body: Vec<(usize, &str)> = lines
            .by_ref()
            .take_while(|(_, line)| !line.starts_with("```"))
            .collect();
        if let Some(name) = fence.strip_prefix("json ") {
            let text: String = body.iter().map(|(_, line)| format!("{line}\n")).collect();
            parts.push(Part::File(name.trim().to_owned(), text));
        } else if fence == "console" {
            for (at, line) in body {
                match (line.strip_prefix("$ "), parts.last_mut()) {
                    (Some(command), _) => parts.push(Part::Step(Step {
                        line: at + 1,
                        command: command.to_owned(),
                        expected: Vec::new(),
                    })),
                    (None, Some(Part::Step(step))) => step.expected.push(line.to_owned()),
                    (None, _) => panic!("line {}: output without a command", at + 1),
                }
            }
        }
    }
    parts
}

/// A line without its numbers, unless it is a record or a count.
fn comparable(line: &str) -> String {
    if line.starts_with(['{', '[']) || line.bytes().all(|c| c.is_ascii_digit()) {
        return line.to_owned();
    }
    let mut out = String::new();
    let mut in_number = false;
    for c in line.chars() {
        let number = c.is_ascii_digit() || in_number && ".,".contains(c);
        if number && !in_number {
            out.push('#');
        }
        if !number {
            out.push(c);
        }
        in_number = number;
    }
    // Units of sizes and widths of columns vary.
    let out = out.replace("# KiB", "# B").replace("# MiB", "# B");
    out.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Runs the commands of a document in a folder; the steps whose output differs.
fn run(document: &str, dir: &Path) -> Vec<String> {
    let program = Path::new(env!("CARGO_BIN_EXE_esker"))
        .parent()
        .unwrap()
        .to_owned();
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{path}", program.display());
    let mut wrong = Vec::new();
    let text = std::fs::read_to_string(root().join(document)).unwrap();
    let mut steps = 0;
    for part in parts(&text) {
        let step = match part {
            Part::File(name, text) => {
                std::fs::write(dir.join(name), text).unwrap();
                continue;
            }
            Part::Step(step) => step,
        };
        steps += 1;
        let output = Command::new("sh")
            .args(["-c", &format!("{{ {}\n}} 2>&1", step.command)])
            .current_dir(dir)
            .env("PATH", &path)
            .output()
            .unwrap();
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        let printed: Vec<String> = printed.lines().map(comparable).collect();
        let mut expected: Vec<String> = step.expected.iter().map(|l| comparable(l)).collect();
        while expected.last().is_some_and(String::is_empty) {
            expected.pop();
        }
        if printed != expected {
            wrong.push(format!(
                "{document}:{}: $ {}\n  expected:\n    {}\n  printed:\n    {}",
                step.line,
                step.command,
                expected.join("\n    "),
                printed.join("\n    ")
            ));
        }
    }
    assert!(steps > 5, "{document} has {steps} commands");
    wrong
}

#[test]
fn transcripts_are_what_is_printed() {
    let mut wrong = Vec::new();
    for document in DOCUMENTS {
        let dir = tempfile::tempdir().unwrap();
        wrong.append(&mut run(document, dir.path()));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The first lines of a compressed file of the data, as a file of this folder.
fn unpack(data: &Path, name: &str, lines: usize, dir: &Path) {
    let packed = std::fs::File::open(data.join(format!("{name}.ndjson.zst"))).unwrap();
    let unpacked = BufReader::new(zstd::Decoder::new(packed).unwrap());
    let mut file =
        BufWriter::new(std::fs::File::create(dir.join(format!("{name}.ndjson"))).unwrap());
    for line in unpacked.lines().take(lines) {
        writeln!(file, "{}", line.unwrap()).unwrap();
    }
    file.flush().unwrap();
}

#[test]
fn questions_of_real_data_are_answered_as_the_guide_says() {
    let Some((data, _)) = real_data("docs/questions.md") else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    unpack(&data, "flights", 100_000, dir.path());
    unpack(&data, "events", usize::MAX, dir.path());
    let wrong = run("docs/questions.md", dir.path());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
