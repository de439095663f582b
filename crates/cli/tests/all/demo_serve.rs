//! `esker demo serve`: the commands that it prints are valid, and its server answers.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, ChildStdout};

use crate::common::{command, esker};
use serde_json::Value;

/// The demo, which is ended when the test fails, too.
struct Demo {
    child: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
    /// Where it keeps its store.
    folder: PathBuf,
}

impl Demo {
    fn start(args: &[&str]) -> Demo {
        let listen = ["--listen", "127.0.0.1:0", "--mqtt", "127.0.0.1:0"];
        let args = [&["demo", "serve"], args, &listen].concat();
        let mut command = command(&args);
        let mut child = command
            .stderr(std::process::Stdio::inherit())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let first = lines.next().unwrap().unwrap();
        let folder = PathBuf::from(first.strip_prefix("store: ").unwrap());
        Demo {
            child,
            lines,
            folder,
        }
    }

    /// The commands that it prints, up to the last one.
    fn commands(&mut self) -> Vec<String> {
        let mut commands = Vec::new();
        for line in self.lines.by_ref() {
            if let Some(command) = line.unwrap().strip_prefix("$ ") {
                commands.push(command.to_string());
                if command.starts_with("esker fence") {
                    return commands;
                }
            }
        }
        panic!("it ended after {commands:?}");
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The words of a command, as a shell splits them; of its quotes the demo uses the simple ones.
fn words(command: &str) -> Vec<String> {
    let (mut words, mut word, mut quoted) = (Vec::new(), String::new(), false);
    for c in command.chars() {
        match c {
            '\'' => quoted = !quoted,
            ' ' if !quoted => words.push(std::mem::take(&mut word)),
            '"' | '$' | '\\' | '&' | '(' | ')' | '#' | '?' | '>' | '<' => {
                assert!(quoted, "{command}");
                word.push(c);
            }
            _ => word.push(c),
        }
    }
    assert!(!quoted, "{command}");
    words.push(word);
    words
}

/// What curl would receive: a whole document, or the first data of a stream.
fn curl(args: &[String]) -> Value {
    let mut args = args.iter();
    let (mut url, mut query, mut streams) = (None, Vec::new(), false);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "-G" => {}
            "-N" => streams = true,
            "-d" | "--data-urlencode" => {
                let (name, value) = args.next().unwrap().split_once('=').unwrap();
                query.push((name.to_string(), value.to_string()));
            }
            text => {
                assert!(text.starts_with("http://"), "{text}");
                assert!(url.replace(text.to_string()).is_none());
            }
        }
    }
    let request = ureq::get(url.unwrap()).query_pairs(query);
    let body = request.call().unwrap().into_body().into_reader();
    let mut lines = BufReader::new(body).lines().map(Result::unwrap);
    if streams {
        let data = lines.find_map(|line| line.strip_prefix("data:").map(String::from));
        return serde_json::from_str(&data.unwrap()).unwrap();
    }
    serde_json::from_str(&lines.collect::<String>()).unwrap()
}

/// Subscribes to a topic filter over MQTT 3.1.1, and returns the first bytes of a publication.
fn mosquitto_sub(args: &[String]) -> Vec<u8> {
    let value = |name: &str| {
        let at = args.iter().position(|arg| arg == name).unwrap();
        args[at + 1].as_str()
    };
    let address = format!("{}:{}", value("-h"), value("-p"));
    let mut stream = TcpStream::connect(address).unwrap();
    stream
        .write_all(b"\x10\x0d\0\x04MQTT\x04\x02\0\0\0\x01t")
        .unwrap();
    let mut answer = [0; 4];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer, [0x20, 2, 0, 0]);
    let filter = value("-t").as_bytes();
    let length = u8::try_from(filter.len()).unwrap();
    let subscribe = [&[0x82, length + 5, 0, 1, 0, length], filter, &[0]].concat();
    stream.write_all(&subscribe).unwrap();
    let mut answer = [0; 5];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer, [0x90, 3, 0, 1, 0]);
    let mut publication = vec![0; 8];
    stream.read_exact(&mut publication).unwrap();
    publication
}

#[test]
fn the_commands_that_the_demo_prints_are_valid() {
    // It ends at the signal; the time is for a test that is stopped.
    let mut demo = Demo::start(&["--vehicles", "60", "--rate", "300", "--seconds", "900"]);
    let mut kinds = Vec::new();
    for command in demo.commands() {
        let words = words(&command);
        let (program, args) = words.split_first().unwrap();
        kinds.push(program.clone());
        match program.as_str() {
            "curl" => {
                let answer = curl(args);
                assert!(answer.is_object(), "{command}: {answer}");
                let text = answer.to_string();
                assert!(text.contains("\"at\":["), "{command}: {answer}");
            }
            "mosquitto_sub" => {
                let publication = mosquitto_sub(args);
                assert_eq!(publication[0] >> 4, 3, "{command}: {publication:?}");
            }
            "esker" => {
                let run = esker(args).expect(0);
                assert!(!run.stdout.is_empty(), "{command}");
            }
            other => panic!("{other}"),
        }
    }
    kinds.dedup();
    assert_eq!(kinds, ["curl", "mosquitto_sub", "esker"]);
    let folder = demo.folder.clone();
    assert!(folder.exists());
    let pid = rustix::process::Pid::from_child(&demo.child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(demo.child.wait().unwrap().code(), Some(130));
    assert!(!folder.exists(), "{}", folder.display());
}

#[test]
fn the_demo_ends_by_itself_and_keeps_a_store_that_was_named() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("city").display().to_string();
    let args = ["--vehicles", "12", "--rate", "10", "--seconds", "1"];
    let mut demo = Demo::start(&[&[store.as_str()], &args[..]].concat());
    demo.commands();
    assert!(demo.child.wait().unwrap().success());
    let kept = esker(&["count", &store, "vehicles"]).expect(0).stdout;
    assert_eq!(kept, "12\n");
    let listed = esker(&["list", &store, "--snapshot", "morning"]).expect(0);
    assert!(listed.stdout.contains("vehicles"), "{}", listed.stdout);
    esker(&["check", &store]).expect(0);
    esker(&["demo", "serve", &store]).expect(2);

    let mut temporary = Demo::start(&args);
    let folder = temporary.folder.clone();
    assert!(temporary.child.wait().unwrap().success());
    assert!(!folder.exists(), "{}", folder.display());
}
