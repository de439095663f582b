//! MQTT over TLS and as a WebSocket: what holds over TCP holds there, too.

use std::io::{Error, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use esker_server::{Config, Server, Tls, UserSettings};
use rumqttc::v5::mqttbytes::QoS;
use rumqttc::v5::mqttbytes::v5::{ConnectReturnCode, DisconnectReasonCode};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::{Client, Options, Wire, connected, pair};
use crate::common::Served;
use crate::tls::certificate;

/// Encrypts what a client sends, for a server with this certificate.
pub(super) fn encrypted(stream: TcpStream, tls: &Tls) -> StreamOwned<ClientConnection, TcpStream> {
    let mut roots = RootCertStore::empty();
    let certificate = CertificateDer::from_pem_file(&tls.certificate).unwrap();
    roots.add(certificate).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("localhost").unwrap();
    let session = ClientConnection::new(Arc::new(config), name).unwrap();
    StreamOwned::new(session, stream)
}

/// The client's side of a WebSocket, byte for byte.
pub(super) struct Socket<S> {
    stream: S,
    /// What was read of frames.
    input: Vec<u8>,
    /// The bytes of messages.
    messages: Vec<u8>,
    /// The most bytes of a message that is sent.
    most: usize,
    /// The code of the frame with which the server closed.
    closed: Option<u16>,
}

const BINARY: u8 = 2;
const TEXT: u8 = 1;
const PING: u8 = 9;

impl<S: Read + Write> Socket<S> {
    /// Asks for a WebSocket; returns the answer's head, too.
    pub(super) fn ask(mut stream: S, headers: &str) -> (Socket<S>, String) {
        let request = format!(
            "GET /mqtt HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
             sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n{headers}\r\n"
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            match stream.read(&mut byte) {
                Ok(0) => break,
                Ok(_) => head.push(byte[0]),
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(error) => panic!("{error}"),
            }
        }
        let socket = Socket {
            stream,
            input: Vec::new(),
            messages: Vec::new(),
            most: usize::MAX,
            closed: None,
        };
        (socket, String::from_utf8(head).unwrap())
    }

    fn open(stream: S, most: usize) -> Socket<S> {
        let (mut socket, head) = Socket::ask(stream, "sec-websocket-protocol: other, mqtt\r\n");
        assert!(head.starts_with("HTTP/1.1 101"), "{head}");
        assert!(head.contains("sec-websocket-protocol: mqtt\r\n"), "{head}");
        socket.most = most;
        socket
    }

    fn send(&mut self, kind: u8, data: &[u8]) -> std::io::Result<()> {
        let mut frame = vec![0x80 | kind];
        match u16::try_from(data.len()).unwrap() {
            len @ ..126 => frame.push(0x80 | len as u8),
            len => {
                frame.push(0x80 | 126);
                frame.extend(len.to_be_bytes());
            }
        }
        let mask = [1, 2, 3, 4];
        frame.extend(mask);
        frame.extend(data.iter().zip(mask.iter().cycle()).map(|(a, b)| a ^ b));
        self.stream.write_all(&frame)?;
        self.stream.flush()
    }

    /// Takes a frame out of what was read.
    fn take_frame(&mut self) -> bool {
        let [first, second, rest @ ..] = &self.input[..] else {
            return false;
        };
        let (len, begin) = match (second, rest) {
            (126, [a, b, ..]) => (usize::from(u16::from_be_bytes([*a, *b])), 4),
            (126, _) => return false,
            (127, rest) => match rest.first_chunk::<8>() {
                Some(len) => (usize::try_from(u64::from_be_bytes(*len)).unwrap(), 10),
                None => return false,
            },
            (len, _) => (usize::from(*len), 2),
        };
        let Some(data) = self.input.get(begin..begin + len) else {
            return false;
        };
        match first & 15 {
            BINARY => self.messages.extend_from_slice(data),
            8 => {
                let code = data
                    .first_chunk()
                    .map_or(1005, |code| u16::from_be_bytes(*code));
                self.closed = Some(code);
            }
            _ => {}
        }
        self.input.drain(..begin + len);
        true
    }
}

impl<S: Read + Write> Read for Socket<S> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        loop {
            if !self.messages.is_empty() {
                let len = self.messages.len().min(buffer.len());
                buffer[..len].copy_from_slice(&self.messages[..len]);
                self.messages.drain(..len);
                return Ok(len);
            }
            if self.closed.is_some() {
                return Ok(0);
            }
            if self.take_frame() {
                continue;
            }
            let mut read = [0; 4096];
            let len = self.stream.read(&mut read)?;
            if len == 0 {
                return Err(Error::from(ErrorKind::UnexpectedEof));
            }
            self.input.extend_from_slice(&read[..len]);
        }
    }
}

impl<S: Read + Write> Write for Socket<S> {
    fn write(&mut self, data: &[u8]) -> std::io::Result<usize> {
        let len = data.len().min(self.most);
        self.send(BINARY, &data[..len])?;
        Ok(len)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// All listeners, with a certificate for HTTP and for MQTT.
fn everything(dir: &Path) -> (Config, Tls) {
    let tls = certificate(dir, "localhost");
    let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let config = Config {
        mqtt: Some(any),
        mqtt_tls: Some(any),
        mqtt_websocket: true,
        tls: Some(tls.clone()),
        ..Config::default()
    };
    (config, tls)
}

fn websocket() -> Config {
    Config {
        mqtt_websocket: true,
        ..Config::default()
    }
}

fn talk(stream: impl Wire + 'static, client: &str) -> Client {
    let (client, answer) = Client::try_over(Box::new(stream), Options::new(client));
    assert_eq!(answer.code, ConnectReturnCode::Success, "{answer:?}");
    client
}

#[test]
fn clients_of_all_transports_talk_to_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let (config, tls) = everything(dir.path());
    let served = Served::with(config);
    let of_tcp = Client::new(served.mqtt(), "tcp");
    let of_tls = talk(encrypted(connected(served.mqtt_tls()), &tls), "tls");
    let socket = Socket::open(encrypted(connected(served.http()), &tls), usize::MAX);
    let of_socket = talk(socket, "socket");
    let mut all = [of_tcp, of_tls, of_socket];
    for client in &mut all {
        client.subscribe("t", QoS::AtLeastOnce);
    }
    let large = "x".repeat(100_000);
    for (number, payload) in ["of tcp", "of tls", "of a socket"].iter().enumerate() {
        // Its own publication may come before the answer to it.
        all[number].publish_later("t", payload);
        for client in &mut all {
            assert_eq!(client.receive_behind_answer(), pair("t", payload));
        }
    }
    all[0].publish_later("t", &large);
    for client in &mut all {
        assert_eq!(client.receive_behind_answer(), pair("t", &large));
    }
}

#[test]
fn packets_span_messages_and_messages_have_several_packets() {
    let served = Served::with(websocket());
    let mut small = talk(Socket::open(connected(served.http()), 1), "small");
    small.subscribe("a/#", QoS::AtLeastOnce);
    let mut socket = Socket::open(connected(served.http()), usize::MAX);
    // CONNECT, two PUBLISH and PINGREQ, behind an empty message and a ping.
    let packets = [
        &[0x10, 0x0e, 0, 4][..],
        b"MQTT",
        &[5, 2, 0, 0, 0, 0, 1, b'c'],
        &[0x30, 7, 0, 3, b'a', b'/', b'b', 0, b'1'],
        &[0x30, 7, 0, 3, b'a', b'/', b'b', 0, b'2'],
        &[0xc0, 0],
    ];
    socket.send(BINARY, b"").unwrap();
    socket.send(PING, b"?").unwrap();
    socket.send(BINARY, &packets.concat()).unwrap();
    assert_eq!(small.receive(), pair("a/b", "1"));
    assert_eq!(small.receive(), pair("a/b", "2"));
    small.nothing();
}

#[test]
fn a_text_message_ends_the_connection() {
    let served = Served::with(websocket());
    let mut socket = Socket::open(connected(served.http()), usize::MAX);
    socket.send(TEXT, b"hello").unwrap();
    let mut rest = Vec::new();
    super::read_to_end(&mut socket, &mut rest);
    assert!(rest.is_empty(), "{rest:?}");
}

#[test]
fn a_websocket_needs_the_protocol_and_an_own_page() {
    let served = Served::with(websocket());
    let status = |headers: &str| {
        let (_, head) = Socket::ask(connected(served.http()), headers);
        head.split(' ').nth(1).unwrap().to_string()
    };
    assert_eq!(status("sec-websocket-protocol: mqtt\r\n"), "101");
    assert_eq!(status(""), "400");
    assert_eq!(status("sec-websocket-protocol: mqttish\r\n"), "400");
    let foreign = "sec-websocket-protocol: mqtt\r\norigin: https://example.org\r\n";
    assert_eq!(status(foreign), "403");
    assert_eq!(served.ask("GET /mqtt").status, 400);
    // Without the setting there is no such address.
    assert_eq!(Served::new().ask("GET /mqtt").status, 404);
}

#[test]
fn users_are_asked_for_their_passwords_over_all_transports() {
    let dir = tempfile::tempdir().unwrap();
    let (mut config, tls) = everything(dir.path());
    config.users = vec![UserSettings {
        name: "ann".to_string(),
        password: esker_server::password_hash("secret", [7; 16]).unwrap(),
        role: esker_server::Role::Write,
        datasets: None,
        topics: None,
    }];
    let served = Served::with(config);
    let streams = || -> [Box<dyn Wire>; 2] {
        let of_tls = encrypted(connected(served.mqtt_tls()), &tls);
        let socket = Socket::open(encrypted(connected(served.http()), &tls), usize::MAX);
        [Box::new(of_tls), Box::new(socket)]
    };
    for (password, code) in [
        (None, ConnectReturnCode::NotAuthorized),
        (Some("wrong"), ConnectReturnCode::BadUserNamePassword),
        (Some("secret"), ConnectReturnCode::Success),
    ] {
        for stream in streams() {
            let mut options = Options::new("c");
            options.login = password.map(|text| ("ann".to_string(), text.to_string()));
            assert_eq!(Client::try_over(stream, options).1.code, code);
        }
    }
}

#[test]
fn connections_of_all_transports_are_counted_together() {
    let mut config = websocket();
    config.mqtt = Some("127.0.0.1:0".parse().unwrap());
    config.limits.connections = 2;
    let served = Served::with(config);
    let first = Client::new(served.mqtt(), "first");
    let _second = talk(Socket::open(connected(served.http()), usize::MAX), "second");
    let protocol = "sec-websocket-protocol: mqtt\r\n";
    let (_, head) = Socket::ask(connected(served.http()), protocol);
    assert!(head.starts_with("HTTP/1.1 503"), "{head}");
    first.disconnect(None);
    // The slot is free once the server has seen the end.
    let until = std::time::Instant::now() + super::PATIENCE;
    while !Socket::ask(connected(served.http()), protocol)
        .1
        .starts_with("HTTP/1.1 101")
    {
        assert!(std::time::Instant::now() < until);
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn the_end_of_the_server_ends_connections_of_all_transports() {
    let dir = tempfile::tempdir().unwrap();
    let (config, tls) = everything(dir.path());
    let served = Served::with(config);
    let of_tls = talk(encrypted(connected(served.mqtt_tls()), &tls), "tls");
    let socket = Socket::open(encrypted(connected(served.http()), &tls), usize::MAX);
    let mut all = [of_tls, talk(socket, "socket")];
    // One that does not even begin.
    let _silent = connected(served.mqtt_tls());
    served.stop();
    for client in &mut all {
        assert_eq!(
            client.ended_with(),
            DisconnectReasonCode::ServerShuttingDown
        );
    }
}

#[test]
fn a_session_goes_on_over_another_transport() {
    let dir = tempfile::tempdir().unwrap();
    let (config, tls) = everything(dir.path());
    let served = Served::with(config);
    let (mut first, _) = Client::open(served.mqtt(), Options::lasting("c", 100));
    first.subscribe("t", QoS::AtLeastOnce);
    first.disconnect(None);
    Client::new(served.mqtt(), "p").publish("t", "while away");
    let stream = encrypted(connected(served.mqtt_tls()), &tls);
    let (mut second, answer) = Client::try_over(Box::new(stream), Options::lasting("c", 100));
    assert!(answer.session_present);
    assert_eq!(second.receive(), pair("t", "while away"));
}

#[test]
fn tls_needs_a_certificate_and_open_addresses_need_users() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let refused = |config: Config| {
        let config = Config {
            dir: dir.path().join("db"),
            listen: "127.0.0.1:0".parse().unwrap(),
            ..config
        };
        let refused = runtime.block_on(Server::start(config)).err();
        refused.unwrap().to_string()
    };
    let why = refused(Config {
        mqtt_tls: Some("127.0.0.1:0".parse().unwrap()),
        ..Config::default()
    });
    assert!(why.contains("[tls]"), "{why}");
    let why = refused(Config {
        mqtt_tls: Some("0.0.0.0:0".parse().unwrap()),
        tls: Some(certificate(dir.path(), "localhost")),
        ..Config::default()
    });
    assert!(why.contains("can be reached from other machines"), "{why}");
}

#[test]
fn connections_get_the_certificate_that_was_renewed_last_and_is_valid() {
    let dir = tempfile::tempdir().unwrap();
    let (config, tls) = everything(dir.path());
    let served = Served::with(config);
    let is_trusted = |address: SocketAddr, tls: &Tls| {
        let mut stream = encrypted(connected(address), tls);
        stream.conn.complete_io(&mut stream.sock).is_ok()
    };
    let addresses = [served.http(), served.mqtt_tls()];
    for address in addresses {
        assert!(is_trusted(address, &tls));
    }

    let before = dir.path().join("before.pem");
    std::fs::copy(&tls.certificate, &before).unwrap();
    let before = Tls {
        certificate: before,
        key: tls.key.clone(),
    };
    // A certificate alone, whose key is not there yet, is not used.
    let made = certificate(&dir.path().join("made"), "localhost");
    std::fs::copy(&made.certificate, &tls.certificate).unwrap();
    std::fs::write(&tls.key, "half of a key").unwrap();
    std::thread::sleep(Duration::from_secs(6));
    for address in addresses {
        assert!(is_trusted(address, &before));
        assert!(!is_trusted(address, &tls));
    }
    std::fs::copy(&made.key, &tls.key).unwrap();
    for address in addresses {
        let begin = Instant::now();
        while !is_trusted(address, &tls) {
            assert!(begin.elapsed() < Duration::from_secs(120));
            std::thread::sleep(Duration::from_millis(100));
        }
        assert!(!is_trusted(address, &before));
    }
}
