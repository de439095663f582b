use std::io::{Read, Write};
use std::sync::atomic::{AtomicU32, Ordering};

use rustls::CertificateError;

use super::*;

#[test]
fn frames_arrive_as_they_were_sent_in_both_directions() {
    for (client, server) in securities() {
        for seed in esker_sim::seeds(3) {
            println!("ESKER_SEED={seed} {client:?}");
            let (near, far) = pair(&client, &server);
            let ways = [(near.send, far.receive), (far.send, near.receive)];
            std::thread::scope(|scope| {
                for (at, (mut send, mut receive)) in ways.into_iter().enumerate() {
                    let mut random = fastrand::Rng::with_seed(seed * 2 + at as u64);
                    let frames: Vec<Vec<u8>> = (0..40)
                        .map(|_| {
                            let length = match random.u8(..) {
                                0..30 => 0,
                                30..200 => random.usize(..300),
                                _ => random.usize(..400_000),
                            };
                            (0..length).map(|_| random.u8(..)).collect()
                        })
                        .collect();
                    let sent = frames.clone();
                    scope.spawn(move || {
                        for frame in &sent {
                            let (head, tail) = frame.split_at(random.usize(..=frame.len()));
                            send.send(&[head, &[], tail]).unwrap();
                        }
                        send.close().unwrap();
                        assert!(send.send(&[b"behind the end"]).is_err());
                    });
                    scope.spawn(move || {
                        let mut into = vec![1, 2, 3];
                        for frame in &frames {
                            assert!(receive.receive(&mut into).unwrap());
                            assert!(into == *frame);
                        }
                        assert!(!receive.receive(&mut into).unwrap());
                    });
                }
            });
        }
    }
}

#[test]
fn the_end_of_a_connection_is_known_without_receiving() {
    for (client, server) in securities() {
        let (mut near, mut far) = pair(&client, &server);
        assert!(!near.receive.has_ended() && !far.receive.has_ended());
        far.send.send(&[b"a frame"]).unwrap();
        far.send.close().unwrap();
        let mut into = Vec::new();
        assert!(!near.receive.has_ended(), "a frame is left");
        assert!(near.receive.receive(&mut into).unwrap());
        until(|| near.receive.has_ended());
        assert!(!near.receive.receive(&mut into).unwrap());
        assert!(!far.receive.has_ended());
        // Without an end that TLS knows of.
        near.receive.closer().end();
        until(|| far.receive.has_ended());
    }
}

#[test]
fn both_ends_are_probed_while_nothing_is_sent() {
    for (client, server) in securities() {
        let (near, far) = pair(&client, &server);
        for end in [&near, &far] {
            assert_eq!(end.send.probed_after(), Some(Duration::from_secs(5)));
            end.send.set_stuck_timeout(Duration::from_secs(40)).unwrap();
            assert_eq!(end.send.probed_after(), Some(Duration::from_secs(20)));
        }
    }
}

#[test]
fn neither_direction_waits_for_the_other() {
    // Both sides send far more than fits into the sockets before either receives, and each has one
    // thread that only sends: a lock held while the socket is full would stop both for good.
    for (client, server) in securities() {
        let (near, far) = pair(&client, &server);
        let frame = vec![7; 1 << 20];
        std::thread::scope(|scope| {
            for mut send in [near.send, far.send] {
                let frame = &frame;
                scope.spawn(move || (0..32).for_each(|_| send.send(&[frame]).unwrap()));
            }
            for mut receive in [near.receive, far.receive] {
                let frame = &frame;
                scope.spawn(move || {
                    let mut into = Vec::new();
                    for _ in 0..32 {
                        assert!(receive.receive(&mut into).unwrap());
                        assert!(into == *frame);
                    }
                });
            }
        });
    }
}

#[test]
fn a_full_socket_does_not_stop_receiving() {
    for (client, server) in securities() {
        let (mut near, mut far) = pair(&client, &server);
        near.send.set_stuck_timeout(LONG).unwrap();
        let (closer, frame) = (near.send.closer(), vec![7; 1 << 20]);
        let sent = AtomicU32::new(0);
        std::thread::scope(|scope| {
            // The far side takes nothing of it, so this ends in the middle of a write.
            let stuck = scope.spawn(|| {
                while near.send.send(&[&frame]).is_ok() {
                    sent.fetch_add(1, Ordering::SeqCst);
                }
            });
            let (mut into, mut before, mut received) = (Vec::new(), 0, 0);
            // Until many frames were received while none was sent.
            while received < 300 {
                far.send.send(&[b"a frame"]).unwrap();
                assert!(near.receive.receive(&mut into).unwrap());
                received += 1;
                let now = sent.load(Ordering::SeqCst);
                if now != before || now == 0 {
                    (before, received) = (now, 0);
                }
            }
            assert!(!stuck.is_finished());
            closer.end();
        });
    }
}

#[test]
fn a_peer_that_takes_nothing_ends_the_connection() {
    for (client, server) in securities() {
        let (mut near, far) = pair(&client, &server);
        let limit = Duration::from_millis(50);
        near.send.set_stuck_timeout(limit).unwrap();
        let frame = vec![7; 1 << 20];
        let error = (0..1000).find_map(|_| near.send.send(&[&frame]).err());
        assert_eq!(error.unwrap().kind(), std::io::ErrorKind::TimedOut);
        assert!(matches!(
            inner(&near.send.send(&[b"more"]).unwrap_err()),
            Error::Broken
        ));
        // Its own receiver ends, too.
        assert!(!matches!(near.receive.receive(&mut Vec::new()), Ok(true)));
        drop(far);
    }
}

#[test]
fn a_connection_knows_the_name_in_the_certificate() {
    let authority = authority();
    let [client, server] = ["node 1", ""].map(|name| authority.security(name, &HOSTS));
    let (near, far) = pair(&client, &server);
    assert_eq!(far.peer.as_deref(), Some("node 1"));
    assert_eq!(near.peer.as_deref(), Some("localhost"), "a DNS name");
    let (near, far) = pair(&Security::Plain, &Security::Plain);
    assert_eq!((near.peer, far.peer), (None, None));
}

/// True where the other side's certificate was refused for this reason.
fn is_invalid(error: &std::io::Error, reason: &CertificateError) -> bool {
    match inner(error) {
        Error::Tls(rustls::Error::InvalidCertificate(found)) => found == reason,
        _ => false,
    }
}

/// Connects; both sides' failures. The connecting side learns of a refusal when it receives.
fn failures(
    host: &str,
    client: &Security,
    server: &Security,
) -> (Option<std::io::Error>, Option<std::io::Error>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("{host}:{}", listener.local_addr().unwrap().port());
    std::thread::scope(|scope| {
        let accepted = scope.spawn(|| {
            let accepted = accept(listener.accept().unwrap().0, server);
            accepted.and_then(|mut c| c.send.close()).err()
        });
        let connected = connect(&address, client, LONG);
        let near = connected.and_then(|mut c| c.receive.receive(&mut Vec::new()));
        (near.err(), accepted.join().unwrap())
    })
}

#[test]
fn certificates_of_other_issuers_are_refused_by_both_sides() {
    // One of them has our name, but not our key.
    for (name, reason) in [
        ("others", CertificateError::UnknownIssuer),
        ("ours", CertificateError::BadSignature),
    ] {
        let (ours, others) = (authority(), authority_named(name));
        let (certificate, key) = others.issue("stranger", &HOSTS);
        // A stranger who trusts us, though we do not trust the stranger.
        let stranger = load(&certificate, &key, &ours.pem).unwrap();
        let node = ours.security("node", &HOSTS);
        let (near, far) = failures("127.0.0.1", &stranger, &node);
        assert!(near.is_some(), "the stranger learns it");
        let far = far.unwrap();
        assert!(is_invalid(&far, &reason), "{far:?}");
        let (near, far) = failures("127.0.0.1", &node, &stranger);
        let near = near.unwrap();
        assert!(is_invalid(&near, &reason), "{near:?}");
        assert!(far.is_some());
        assert!(matches!(failures("localhost", &node, &node), (None, None)));
    }
}

#[test]
fn a_certificate_for_another_host_is_refused() {
    let authority = authority();
    let client = authority.security("client", &HOSTS);
    let server = authority.security("server", &["node2.example"]);
    let (near, _) = failures("localhost", &client, &server);
    let error = near.unwrap();
    let wrong = matches!(
        inner(&error),
        Error::Tls(rustls::Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. }
        ))
    );
    assert!(wrong, "{error:?}");
}

#[test]
fn a_client_without_a_certificate_is_refused() {
    let authority = authority();
    let server = authority.security("server", &HOSTS);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    use rustls::pki_types::{CertificateDer, pem::PemObject};
    let mut roots = rustls::RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(authority.pem.as_bytes()).unwrap())
        .unwrap();
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    std::thread::scope(|scope| {
        let accepted = scope.spawn(|| accept(listener.accept().unwrap().0, &server).err());
        let name = "localhost".try_into().unwrap();
        let tls = rustls::ClientConnection::new(std::sync::Arc::new(config), name).unwrap();
        let mut stream = rustls::StreamOwned::new(tls, TcpStream::connect(address).unwrap());
        let _ = stream.write_all(b"hello");
        assert!(stream.read_to_end(&mut Vec::new()).is_err());
        let error = accepted.join().unwrap().unwrap();
        let none = rustls::Error::NoCertificatesPresented;
        assert!(
            matches!(inner(&error), Error::Tls(e) if *e == none),
            "{error:?}"
        );
    });
}

#[test]
fn plain_and_tls_do_not_understand_each_other() {
    let [(plain, _), (tls, _)] = securities();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::scope(|scope| {
        let accepted = scope.spawn(|| accept(listener.accept().unwrap().0, &tls).err());
        let mut near = connect(&address, &plain, LONG).unwrap();
        near.send.send(&[b"a plain frame"]).unwrap();
        assert!(accepted.join().unwrap().is_some());
        let accepted = scope.spawn(|| {
            let mut far = accept(listener.accept().unwrap().0, &plain).unwrap();
            // The head of TLS is read as a length of more than this.
            far.receive.set_most(1000);
            far.receive.receive(&mut Vec::new()).err()
        });
        assert!(connect(&address, &tls, LONG).is_err());
        assert!(accepted.join().unwrap().is_some());
    });
}

#[test]
fn a_handshake_has_a_limit_of_time() {
    let [_, (tls, _)] = securities();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let error = connect(&address, &tls, Duration::from_millis(50)).err();
    assert_eq!(error.unwrap().kind(), std::io::ErrorKind::TimedOut);
}

#[test]
fn without_tls_only_loopback_is_allowed() {
    let [_, (tls, _)] = securities();
    let plain = Security::Plain;
    for local in [
        "127.0.0.1:1",
        "127.8.9.1:1",
        "[::1]:1",
        "[::ffff:127.0.0.1]:1",
    ] {
        assert!(
            check_listen(local.parse().unwrap(), &plain).is_ok(),
            "{local}"
        );
    }
    for far in ["0.0.0.0:1", "10.0.0.1:1", "[::]:1", "[fe80::1]:1"] {
        let address = far.parse().unwrap();
        let refused = check_listen(address, &plain);
        assert!(matches!(refused, Err(Error::NotLoopback(a)) if a == address));
        assert!(check_listen(address, &tls).is_ok(), "{far}");
        let refused = Acceptor::bind(far, Security::Plain, Limits::default()).err();
        assert!(matches!(inner(&refused.unwrap()), Error::NotLoopback(_)));
        let refused = connect(far, &plain, LONG).err();
        assert!(matches!(inner(&refused.unwrap()), Error::NotLoopback(_)));
    }
    for wrong in [
        "",
        "localhost",
        "127.0.0.1:",
        "127.0.0.1:x",
        "127.0.0.1:99999",
    ] {
        assert!(connect(wrong, &plain, LONG).is_err(), "{wrong}");
    }
}

#[test]
fn files_without_what_they_should_have_are_refused() {
    let authority = authority();
    let (certificate, key) = authority.issue("node", &HOSTS);
    let roots = &authority.pem;
    assert!(load(&certificate, &key, roots).is_ok());
    for (certificate, key, roots, file) in [
        (&String::new(), &key, roots, "cert.pem"),
        (&key, &key, roots, "cert.pem"),
        (&certificate, &certificate, roots, "key.pem"),
        (&certificate, &String::from("-----BEGIN"), roots, "key.pem"),
        (&certificate, &key, &key, "ca.pem"),
    ] {
        match load(certificate, key, roots) {
            Err(Error::Pem { path, .. }) => assert!(path.ends_with(file), "{path:?}"),
            other => panic!("{file}: {other:?}"),
        }
    }
    let (_, other) = authority.issue("node", &HOSTS);
    let mixed = load(&certificate, &other, roots);
    assert!(matches!(mixed, Err(Error::Identity(_))), "{mixed:?}");
    let path = std::path::Path::new("/no/such/file");
    let missing = Security::load(path, path, path);
    assert!(matches!(missing, Err(Error::File { .. })), "{missing:?}");
}

#[test]
fn another_protocol_can_go_over_to_tls() {
    let [_, (client, server)] = securities();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut read, mut write, peer) =
                upgrade(listener.accept().unwrap().0, &server).unwrap();
            assert_eq!(peer.as_deref(), Some("client"));
            assert!(
                write.has_no_limit(),
                "the other protocol has its own limits"
            );
            let mut asked = [0; HEADER + 5];
            read.read_exact(&mut asked).unwrap();
            write.write_all(&asked).unwrap();
            write.close().unwrap();
            assert_eq!(read.read(&mut asked).unwrap(), 0);
        });
        let mut near = connect(&address, &client, LONG).unwrap();
        near.send.send(&[b"hello"]).unwrap();
        let mut into = Vec::new();
        assert!(near.receive.receive(&mut into).unwrap());
        assert_eq!(into, b"hello");
        assert!(!near.receive.receive(&mut into).unwrap());
        near.send.close().unwrap();
    });
}

#[test]
fn a_change_of_keys_by_the_other_side_is_answered_and_goes_on() {
    // rustls itself is the other side, so that it can be asked to change its keys.
    let [_, (client, server)] = securities();
    let Security::Tls(roles) = client else {
        panic!("TLS")
    };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut read, mut write, _) = upgrade(listener.accept().unwrap().0, &server).unwrap();
            let mut asked = [0; 5];
            for _ in 0..20 {
                read.read_exact(&mut asked).unwrap();
                write.write_all(&asked).unwrap();
            }
        });
        let name = "localhost".try_into().unwrap();
        let tls = rustls::ClientConnection::new(roles.client.clone(), name).unwrap();
        let socket = TcpStream::connect(address).unwrap();
        socket.set_nodelay(true).unwrap();
        let mut stream = rustls::StreamOwned::new(tls, socket);
        for n in 0..20_u8 {
            if n > 0 {
                stream.conn.refresh_traffic_keys().unwrap();
            }
            stream.write_all(&[n; 5]).unwrap();
            let mut answer = [0; 5];
            stream.read_exact(&mut answer).unwrap();
            assert_eq!(answer, [n; 5]);
        }
    });
}
