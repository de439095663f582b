//! A server for a test, and requests to it.

use std::io::Read;

use esker_server::{Config, Server};
use serde_json::Value;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use ureq::Agent;
use ureq::http::{Request, Response};

/// A server on a free port, whose folder is removed at the end.
pub(crate) struct Served {
    runtime: Runtime,
    server: Option<Server>,
    pub(crate) dir: TempDir,
    agent: Agent,
}

impl Served {
    pub(crate) fn new() -> Served {
        Served::with(Config::default())
    }

    pub(crate) fn with(config: Config) -> Served {
        Served::over(tempfile::tempdir().unwrap(), config)
    }

    /// Serves a folder.
    pub(crate) fn over(dir: TempDir, mut config: Config) -> Served {
        config.dir = dir.path().join("db");
        config.listen = "127.0.0.1:0".parse().unwrap();
        let runtime = Runtime::new().unwrap();
        let server = runtime.block_on(Server::start(config)).unwrap();
        let agent = Agent::config_builder()
            .http_status_as_error(false)
            // The server closes a connection whose request it refused before its body.
            .max_idle_connections(0)
            .build();
        Served {
            runtime,
            server: Some(server),
            dir,
            agent: agent.into(),
        }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        let address = self.server.as_ref().unwrap().address();
        format!("http://{address}{path}")
    }

    /// Where MQTT is served.
    pub(crate) fn mqtt(&self) -> std::net::SocketAddr {
        let server = self.server.as_ref().unwrap();
        server.mqtt_address().unwrap()
    }

    /// Where MQTT is served over TLS.
    pub(crate) fn mqtt_tls(&self) -> std::net::SocketAddr {
        let server = self.server.as_ref().unwrap();
        server.mqtt_tls_address().unwrap()
    }

    /// Where HTTP is served.
    pub(crate) fn http(&self) -> std::net::SocketAddr {
        self.server.as_ref().unwrap().address()
    }

    /// Sends a request with headers and a body.
    pub(crate) fn send(&self, ask: &str, headers: &[(&str, &str)], body: &[u8]) -> Reply {
        let (method, path) = ask.split_once(' ').unwrap();
        let mut request = Request::builder().method(method).uri(self.url(path));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(body.to_vec()).unwrap();
        Reply::new(self.agent.run(request).unwrap())
    }

    pub(crate) fn ask(&self, ask: &str) -> Reply {
        self.send(ask, &[], b"")
    }

    /// Sends a JSON document.
    pub(crate) fn json(&self, ask: &str, body: &Value) -> Reply {
        let of_json = [("content-type", "application/json")];
        self.send(ask, &of_json, body.to_string().as_bytes())
    }

    /// Creates a dataset with this definition.
    pub(crate) fn create(&self, name: &str, definition: Value) {
        let reply = self.json(&format!("PUT /v1/datasets/{name}"), &definition);
        assert_eq!(reply.status, 201, "{}", reply.text());
    }

    /// Ends the server; returns its folder.
    pub(crate) fn stop(mut self) -> TempDir {
        let server = self.server.take().unwrap();
        self.runtime.block_on(server.stop()).unwrap();
        self.dir
    }
}

/// An answer.
pub(crate) struct Reply {
    pub(crate) status: u16,
    headers: ureq::http::HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    fn new(response: Response<ureq::Body>) -> Reply {
        let (parts, mut body) = response.into_parts();
        let mut bytes = Vec::new();
        body.as_reader().read_to_end(&mut bytes).unwrap();
        Reply {
            status: parts.status.as_u16(),
            headers: parts.headers,
            body: bytes,
        }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }

    pub(crate) fn value(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("{}", self.text()))
    }

    /// The kind of a problem.
    pub(crate) fn problem(&self) -> String {
        let of_problems = "application/problem+json";
        assert_eq!(
            self.header("content-type"),
            Some(of_problems),
            "{}",
            self.text()
        );
        self.value()["type"].as_str().unwrap().to_string()
    }
}

/// Text as a part of an address.
pub(crate) fn encoded(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => out.push(byte as char),
            _ => out += &format!("%{byte:02X}"),
        }
    }
    out
}
