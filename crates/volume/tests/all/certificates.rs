//! A node is taken for the one that its certificate names.

use std::time::Instant;

use esker_volume::client::Client;
use esker_volume::ids::{DiskId, NodeId};
use esker_volume::net::{Security, connect};
use esker_volume::wire::{Frame, Hello};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

use super::memory::{PATIENCE, node_with};

struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    fn new() -> Authority {
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        let issuer = Issuer::new(params, key);
        Authority { issuer, pem }
    }

    /// Security with a certificate of this common name, for loopback.
    fn security(&self, name: &str) -> Security {
        let mut params = CertificateParams::new(vec!["127.0.0.1".to_string()]).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let files = [certificate.pem(), key.serialize_pem(), self.pem.clone()];
        let paths = ["cert.pem", "key.pem", "ca.pem"].map(|name| folder.path().join(name));
        for (path, text) in paths.iter().zip(files) {
            std::fs::write(path, text).unwrap();
        }
        Security::load(&paths[0], &paths[1], &paths[2]).unwrap()
    }
}

#[test]
fn a_node_is_the_one_that_its_certificate_names() {
    let authority = Authority::new();
    let node = node_with(64 << 20, authority.security("node:1"));
    let address = node.address().to_string();
    let hello = |number| {
        let hello = Hello {
            node: NodeId(number),
            disk: DiskId(7),
            life: 1,
            cluster: 0,
            address: "127.0.0.1:1".to_string(),
        };
        Frame::Hello(hello).encode().flat()
    };
    let client = authority.security("volume:disk");
    let mut client = Client::connect(&address, client, PATIENCE).unwrap();
    for (name, number) in [("node:3", 2), ("volume:disk", 2), ("2", 2), ("node:2", 22)] {
        let mut near = connect(&address, &authority.security(name), PATIENCE).unwrap();
        near.send.send(&[&hello(number)]).unwrap();
        let mut answer = Vec::new();
        let ended = near.receive.receive(&mut answer);
        assert!(
            !matches!(ended, Ok(true)),
            "{name} says that it is {number}"
        );
        assert_eq!(client.status().unwrap().linked, []);
    }
    let mut near = connect(&address, &authority.security("node:2"), PATIENCE).unwrap();
    near.send.send(&[&hello(2)]).unwrap();
    let end = Instant::now() + PATIENCE;
    while client.status().unwrap().linked != [2] {
        assert!(Instant::now() < end, "node 2 is not linked");
    }
    node.stop();
}
