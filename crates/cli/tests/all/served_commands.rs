//! A folder and a server print the same: commands of `served_commands.txt` run on both, one after
//! another, and their standard output, standard error and exit code are compared byte by byte.
//!
//! The address of the store is replaced, and what differs between two runs on a folder as well:
//! times, and the random number of a store's history. Some commands print what the files of a store
//! are at the moment. A server keeps recent writes in memory, where commands on a folder write
//! tables when they end: the numbers of these commands are not compared.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::common::{Run, Server, esker_fed};

const COMMANDS: &str = include_str!("served_commands.txt");

/// A line of the file.
struct Command {
    /// Arguments, where `DIR` is the store, and `AFTER` the place behind the page before.
    args: Vec<String>,
    /// Lines of standard input.
    input: String,
    /// Which part of the output is compared.
    compares: Compares,
}

#[derive(Clone, Copy, PartialEq)]
enum Compares {
    All,
    /// All but numbers and the blanks that align them.
    Words,
    /// The exit code, and whether there is output and an error.
    Code,
}

impl Command {
    fn parse(line: &str) -> Command {
        let (compares, line) = match line.split_at(1) {
            ("~", rest) => (Compares::Words, rest),
            ("?", rest) => (Compares::Code, rest),
            _ => (Compares::All, line),
        };
        let (line, input) = line.split_once(" <<< ").unwrap_or((line, ""));
        let mut input = input.replace('|', "\n");
        if !input.is_empty() {
            input.push('\n');
        }
        // Quotes are around whole arguments.
        let parts = line.split('\'').enumerate();
        let args = parts.flat_map(|(at, part)| match at % 2 {
            0 => part.split_whitespace().map(str::to_string).collect(),
            _ => vec![part.to_string()],
        });
        Command {
            args: args.collect(),
            input,
            compares,
        }
    }

    fn run(&self, side: &mut Side) -> (i32, String, String) {
        let args = self.args.iter().map(|arg| match arg.as_str() {
            "DIR" => side.store.clone(),
            "AFTER" => side.after.clone(),
            other => other.to_string(),
        });
        let args: Vec<String> = args.collect();
        let input = self.input.clone();
        let Run {
            code,
            stdout,
            stderr,
        } = esker_fed(&args, &side.folder, move |to| {
            // A command that is refused does not read its input.
            let _ = to.write_all(input.as_bytes());
        });
        assert!(!stderr.contains("panicked"), "{args:?}: {stderr}");
        let both = format!("{stderr}{stdout}");
        if let Some((_, rest)) = both.split_once("--after ") {
            side.after = rest.split_whitespace().next().unwrap().to_string();
        }
        let [stdout, stderr] = [stdout, stderr].map(|text| {
            let text = text.replace(&side.store, "STORE");
            let text = text.replace(&side.folder.display().to_string(), "HERE");
            let text = without_positions(&without_times(&text));
            match self.compares {
                Compares::All => text,
                Compares::Words => words(&text),
                Compares::Code => text.is_empty().to_string(),
            }
        });
        (code, stdout, stderr)
    }
}

/// A store, and the folder in which commands on it run.
struct Side {
    store: String,
    folder: std::path::PathBuf,
    after: String,
}

impl Side {
    fn new(store: String, dir: &Path, name: &str) -> Side {
        let folder = dir.join(name);
        fs::create_dir(&folder).unwrap();
        let files = [
            ("visits.ndjson", visits()),
            ("rejects.ndjson", REJECTS.to_string()),
            (
                "more.csv",
                "id,user,n\n2000,dan,3\n2001,eve,4\nx,y,z\n".to_string(),
            ),
            ("area.json", AREA.to_string()),
        ];
        for (file, text) in files {
            fs::write(folder.join(file), text).unwrap();
        }
        Side {
            store,
            folder,
            after: String::new(),
        }
    }
}

const REJECTS: &str = "{\"id\":1000,\"user\":\"ann\"}\nnothing\n{\"id\":\"x\"}\n{\"user\":\"ann\"}\n[1]\n{\"id\":1001,\"user\":7,\"n\":\"x\"}\n";

const AREA: &str = r#"{"type":"Polygon","coordinates":[[[0,0],[5,0],[5,5],[0,0]]]}"#;

/// Records with points, times, arrays and missing fields.
fn visits() -> String {
    let line = |id: u32| {
        let user = ["ann", "bob", "cy"][id as usize % 3];
        let tags = match id % 4 {
            0 => r#","tags":["a","b"]"#,
            1 => r#","tags":["b"]"#,
            _ => "",
        };
        format!(
            "{{\"id\":{id},\"user\":\"{user}\",\"n\":{},\"at\":\"2026-01-{:02}T00:00:00Z\",\"place\":[{},{}]{tags}}}\n",
            id % 10,
            id % 28 + 1,
            id % 20,
            id % 15
        )
    };
    (0..300).map(line).collect()
}

/// Replaces the length of time in `in 0.05 s` and what follows it in brackets in
/// `in 0.05 s (1,234 records/s)`.
fn without_times(text: &str) -> String {
    let mut parts = text.split("in ");
    let mut out = parts.next().unwrap_or_default().to_string();
    for part in parts {
        out.push_str("in ");
        let after = part.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
        let Some(after) = after
            .strip_prefix(" s")
            .filter(|_| after.len() < part.len())
        else {
            out.push_str(part);
            continue;
        };
        out.push_str("TIME");
        match after.split_once(" records/s)") {
            Some((rate, after)) if rate.starts_with(" (") => out.push_str(after),
            _ => out.push_str(after),
        }
    }
    out
}

/// Replaces the number of the history in positions: 16 hexadecimal digits before a dash.
fn without_positions(text: &str) -> String {
    let mut parts: Vec<String> = text.split('-').map(str::to_string).collect();
    let before_dash = parts.len().saturating_sub(1);
    for part in parts.iter_mut().take(before_dash) {
        let digits = |c: char| c.is_ascii_hexdigit();
        let rest = part.trim_end_matches(digits).len();
        if part.len() - rest == 16 {
            part.replace_range(rest.., "HISTORY");
        }
    }
    parts.join("-")
}

/// The words of a text: numbers are replaced, and blanks follow each other once.
fn words(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        let c = if c.is_ascii_digit() { '#' } else { c };
        let repeats = out.ends_with(c) && ['#', ' '].contains(&c);
        let continues = out.ends_with('#') && ['.', ','].contains(&c);
        if !repeats && !continues {
            out.push(c);
        }
    }
    // What is there once is `1 table`.
    out.replace("tables", "table")
        .replace("KiB", "B")
        .replace("MiB", "B")
}

#[test]
fn commands_print_the_same_for_a_folder_and_for_a_server() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("folder").display().to_string();
    let server = Server::start(dir.path().join("served").as_os_str(), &[]);
    let mut sides = [
        Side::new(folder, dir.path(), "here"),
        Side::new(server.url.clone(), dir.path(), "there"),
    ];
    let mut differing = Vec::new();
    let (mut commands, mut codes) = (BTreeSet::new(), BTreeSet::new());
    let lines = COMMANDS
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    for line in lines {
        let command = Command::parse(line);
        let runs = sides.each_mut().map(|side| command.run(side));
        if runs[0] != runs[1] {
            differing.push(format!("{line}\n  {:?}\n  {:?}", runs[0], runs[1]));
        }
        commands.extend(command.args.first().cloned());
        codes.insert(runs[0].0);
    }
    assert!(differing.is_empty(), "{}", differing.join("\n\n"));
    assert!(commands.len() >= 30, "{} commands", commands.len());
    // Commands that find nothing and bad input are among them.
    assert_eq!(codes, BTreeSet::from([0, 1, 2, 3]));
}

#[test]
fn outputs_are_compared_without_what_differs_from_run_to_run() {
    let load = "3 records loaded, in 0.03 s (1,130 records/s)\nin all";
    assert_eq!(without_times(load), "3 records loaded, in TIME\nin all");
    let position = "it is 3a820af785d0b9f8-648; --from";
    assert_eq!(without_positions(position), "it is HISTORY-648; --from");
    assert_eq!(words("12,3.5  KiB in 7 tables"), "# B in # table");
    let command = Command::parse("~find DIR d 'a = 1' <<< {}|{}");
    assert_eq!(command.args, ["find", "DIR", "d", "a = 1"]);
    assert_eq!(command.input, "{}\n{}\n");
}
