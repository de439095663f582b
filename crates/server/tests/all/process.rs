//! A server in a process of its own, which a test can kill.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use esker_server::{Config, Server};

const FOLDER: &str = "ESKER_TEST_SERVED_FOLDER";

/// Not a test: the server of [`Process`].
#[test]
fn server_of_another_process() {
    let Some(folder) = std::env::var_os(FOLDER) else {
        return;
    };
    let config = Config {
        dir: folder.into(),
        listen: "127.0.0.1:0".parse().unwrap(),
        mqtt: Some("127.0.0.1:0".parse().unwrap()),
        ..Config::default()
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = runtime.block_on(Server::start(config)).unwrap();
    let (http, mqtt) = (server.address(), server.mqtt_address().unwrap());
    println!("\nserves {http} {mqtt}");
    loop {
        std::thread::park();
    }
}

/// A server without tokens, killed at the end.
pub(crate) struct Process {
    child: Child,
    pub(crate) http: SocketAddr,
    pub(crate) mqtt: SocketAddr,
}

impl Process {
    /// Serves a folder.
    pub(crate) fn start(folder: &Path) -> Process {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "process::server_of_another_process",
                "--exact",
                "--nocapture",
            ])
            .env(FOLDER, folder)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut served = lines.filter_map(|line| {
            let line = line.unwrap();
            let (http, mqtt) = line.strip_prefix("serves ")?.split_once(' ')?;
            Some([http, mqtt].map(|address| address.parse().unwrap()))
        });
        let [http, mqtt] = served.next().unwrap();
        Process { child, http, mqtt }
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
