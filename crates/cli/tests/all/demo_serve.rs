//! `esker demo serve`: the commands that it prints are valid, and its server answers.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::common::{command, esker};

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
        Demo::of(&args, Stdio::inherit())
    }

    fn of(args: &[&str], stderr: Stdio) -> Demo {
        let mut child = command(args).stderr(stderr).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let first = lines.next().unwrap().unwrap();
        let folder = PathBuf::from(first.strip_prefix("store: ").unwrap());
        Demo {
            child,
            lines,
            folder,
        }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
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
    demo.signal(Signal::INT);
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

#[test]
fn a_signal_removes_the_temporary_folder_also_while_the_city_is_prepared() {
    for args in [&["demo", "serve", "--vehicles", "100000"], &["demo"][..]] {
        // The signal meets the creation of the folders of the store, its files and its writes.
        for wait in [0, 1, 2, 4, 8, 16, 32, 64] {
            let mut demo = Demo::of(args, Stdio::inherit());
            assert!(demo.folder.exists());
            std::thread::sleep(Duration::from_millis(wait));
            demo.signal(Signal::TERM);
            assert_eq!(demo.child.wait().unwrap().code(), Some(143));
            assert!(!demo.folder.exists(), "{}", demo.folder.display());
        }
    }
}

#[test]
fn a_second_signal_ends_the_demo_at_once_and_removes_the_temporary_folder() {
    let args = ["demo", "serve", "--vehicles", "12", "--rate", "10"];
    let listen = ["--listen", "127.0.0.1:0", "--mqtt", "127.0.0.1:0"];
    let mut demo = Demo::of(&[&args[..], &listen].concat(), Stdio::piped());
    let commands = demo.commands().join(" ");
    let address = commands.split("http://").nth(1).unwrap();
    let address = address.split('/').next().unwrap().to_string();
    // A load whose client sends no more: the server waits for it at its end.
    let mut load = TcpStream::connect(&address).unwrap();
    load.write_all(
        b"POST /v1/datasets/vehicles/records HTTP/1.1\r\nhost: localhost\r\n\
          expect: 100-continue\r\ncontent-length: 1000\r\n\r\n",
    )
    .unwrap();
    // The handler has begun to read the body.
    let mut answer = [0; 12];
    load.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 100");
    let mut log = BufReader::new(demo.child.stderr.take().unwrap()).lines();
    demo.signal(Signal::INT);
    let ends = log.any(|line| line.unwrap().contains("a second signal ends at once"));
    assert!(ends);
    demo.signal(Signal::INT);
    let ended = log.any(|line| line.unwrap().contains("ended by a second signal"));
    assert!(ended);
    assert_eq!(demo.child.wait().unwrap().code(), Some(130));
    assert!(!demo.folder.exists(), "{}", demo.folder.display());
}

#[test]
fn an_address_in_use_is_named_with_the_option_that_chooses_another() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("db").display().to_string();
    let demo = ["demo", "serve", "--vehicles", "1"];
    let serve = ["serve", &store];
    let options = ["--listen", "--mqtt"];
    for command in [&demo[..], &serve[..]] {
        for option in options {
            let mut args = command.to_vec();
            for one in options {
                let is_taken = one == option;
                args.extend([one, if is_taken { &address } else { "127.0.0.1:0" }]);
            }
            let run = esker(&args).expect(2);
            let says = format!(
                "{address} is in use by another program: choose another address with {option}"
            );
            assert!(run.stderr.contains(&says), "{}", run.stderr);
        }
    }
}
