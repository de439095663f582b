//! Tests of connections. What they wait for they wait for as long as it takes.

mod acceptors;
mod connections;
mod damage;
mod linked;

use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

use super::*;

/// Longer than anything here takes.
pub(super) const LONG: Duration = Duration::from_secs(60);

/// An issuer of certificates.
pub(super) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub(super) pem: String,
}

pub(super) fn authority() -> Authority {
    authority_named("ours")
}

pub(super) fn authority_named(name: &str) -> Authority {
    let mut params = CertificateParams::new(vec![]).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let pem = params.self_signed(&key).unwrap().pem();
    let issuer = Issuer::new(params, key);
    Authority { issuer, pem }
}

impl Authority {
    /// A certificate with this common name ("" for none) for these hosts, and its key, as PEM.
    pub(super) fn issue(&self, name: &str, hosts: &[&str]) -> (String, String) {
        let hosts: Vec<String> = hosts.iter().map(|host| host.to_string()).collect();
        let mut params = CertificateParams::new(hosts).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        if !name.is_empty() {
            params
                .distinguished_name
                .push(DnType::OrganizationName, "Esker");
            params.distinguished_name.push(DnType::CommonName, name);
        }
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    /// Security of one with such a certificate who trusts this issuer.
    pub(super) fn security(&self, name: &str, hosts: &[&str]) -> Security {
        let (certificate, key) = self.issue(name, hosts);
        load(&certificate, &key, &self.pem).unwrap()
    }
}

/// Reads security from files with these contents.
pub(super) fn load(certificate: &str, key: &str, roots: &str) -> Result<Security, Error> {
    let folder = tempfile::tempdir().unwrap();
    let paths = ["cert.pem", "key.pem", "ca.pem"].map(|name| folder.path().join(name));
    for (path, text) in paths.iter().zip([certificate, key, roots]) {
        std::fs::write(path, text).unwrap();
    }
    Security::load(&paths[0], &paths[1], &paths[2])
}

/// The hosts that tests connect to.
pub(super) const HOSTS: [&str; 2] = ["localhost", "127.0.0.1"];

/// Connects two ends: the one that connected, and the one that accepted.
pub(super) fn pair(client: &Security, server: &Security) -> (Connection, Connection) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::scope(|scope| {
        let accepted = scope.spawn(|| accept(listener.accept().unwrap().0, server).unwrap());
        let connected = connect(&address, client, LONG).unwrap();
        (connected, accepted.join().unwrap())
    })
}

/// Security of both ends, without and with TLS.
pub(super) fn securities() -> [(Security, Security); 2] {
    let authority = authority();
    let tls = ["client", "server"].map(|name| authority.security(name, &HOSTS));
    let [client, server] = tls;
    [(Security::Plain, Security::Plain), (client, server)]
}

/// Waits until it is so.
pub(super) fn until(mut done: impl FnMut() -> bool) {
    let end = std::time::Instant::now() + LONG;
    while !done() {
        assert!(std::time::Instant::now() < end, "it did not happen");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// An acceptor whose events come out of a channel.
pub(super) fn acceptor(
    address: &str,
    security: &Security,
    limits: Limits,
) -> (Acceptor, mpsc::Receiver<(ConnectionId, Event)>) {
    let acceptor = Acceptor::bind(address, security.clone(), limits).unwrap();
    let (events, out) = mpsc::channel();
    let replies = acceptor.replies();
    let admit = move |id, event| {
        if let Event::Opened { .. } = event {
            assert!(replies.admit(id));
        }
        let _ = events.send((id, event));
    };
    acceptor.start(admit).unwrap();
    (acceptor, out)
}

/// The error of TLS or frames in an error of input and output.
pub(super) fn inner(error: &std::io::Error) -> &Error {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
    inner.unwrap_or_else(|| panic!("{error:?}"))
}

/// A plain stream to the acceptor.
pub(super) fn raw(acceptor: &Acceptor) -> TcpStream {
    TcpStream::connect(acceptor.address()).unwrap()
}
