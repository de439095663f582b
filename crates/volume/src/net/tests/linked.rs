use std::collections::BTreeMap;
use std::io::Read;
use std::sync::Arc;

use super::*;
use crate::bytes::Bytes;

type Events = mpsc::Receiver<(u32, LinkEvent)>;

/// Links to one peer, whose events come out of a channel.
fn links(security: &Security, options: LinkOptions, address: &str) -> (Links, Events) {
    let (out, events) = mpsc::channel();
    let hello = |peer| format!("hello {peer}").into_bytes();
    let links = Links::new(security.clone(), options, hello, move |peer, event| {
        let _ = out.send((peer, event));
    });
    links.set_peers(peers(address)).unwrap();
    (links, events)
}

fn peers(address: &str) -> BTreeMap<u32, String> {
    BTreeMap::from([(7, address.to_string())])
}

/// Waits for an event of peer 7.
fn wait(events: &Events, wanted: fn(&LinkEvent) -> bool) {
    let (peer, event) = events.recv_timeout(LONG).unwrap();
    assert!(peer == 7 && wanted(&event), "{event:?}");
}

fn is_connected(event: &LinkEvent) -> bool {
    matches!(event, LinkEvent::Connected)
}

fn is_disconnected(event: &LinkEvent) -> bool {
    matches!(event, LinkEvent::Disconnected)
}

/// The next frame at the other end.
fn frame(events: &mpsc::Receiver<(ConnectionId, Event)>) -> Vec<u8> {
    loop {
        if let (_, Event::Frame(frame)) = events.recv_timeout(LONG).unwrap() {
            return frame;
        }
    }
}

fn quick() -> LinkOptions {
    LinkOptions {
        backoff: Duration::from_millis(1),
        most_backoff: Duration::from_millis(5),
        ..LinkOptions::default()
    }
}

#[test]
fn frames_come_in_order_behind_hello_and_answers_come_back() {
    for (client, server) in securities() {
        let (acceptor, far) = acceptor("127.0.0.1:0", &server, Limits::default());
        let (links, near) = links(&client, quick(), &acceptor.address().to_string());
        wait(&near, is_connected);
        assert_eq!(links.connected(), [7]);
        let shared = Arc::new(vec![5; 1000]);
        for n in 0..100_u32 {
            let parts = vec![
                n.to_le_bytes().to_vec().into(),
                Bytes::from(Arc::clone(&shared)).into(),
            ];
            assert!(links.send(7, parts));
        }
        assert_eq!(frame(&far), b"hello 7");
        for n in 0..100_u32 {
            assert_eq!(frame(&far), [&n.to_le_bytes()[..], &shared].concat());
        }
        let reply = vec![b"answer".to_vec().into()];
        acceptor.replies().send(ConnectionId(1), reply).unwrap();
        wait(
            &near,
            |event| matches!(event, LinkEvent::Frame(f) if f == b"answer"),
        );
        assert_eq!(links.dropped(7), 0);
        links.stop();
        wait(&near, is_disconnected);
        assert!(!links.send(7, vec![]));
        assert!(links.connected().is_empty());
    }
}

#[test]
fn a_link_is_restored_when_the_peer_restarts() {
    for (client, server) in securities() {
        let (first, far) = acceptor("127.0.0.1:0", &server, Limits::default());
        let address = first.address().to_string();
        let (links, near) = links(&client, quick(), &address);
        wait(&near, is_connected);
        assert_eq!(frame(&far), b"hello 7");
        drop(first);
        wait(&near, is_disconnected);
        // The port may be in use for a moment yet by the connections that ended.
        let mut again = None;
        until(|| {
            again = Acceptor::bind(&address, server.clone(), Limits::default()).ok();
            again.is_some()
        });
        let again = again.unwrap();
        let (out, far) = mpsc::channel();
        again
            .start(move |id, event| {
                let _ = out.send((id, event));
            })
            .unwrap();
        wait(&near, is_connected);
        assert_eq!(frame(&far), b"hello 7");
        assert!(links.send(7, vec![b"after".to_vec().into()]));
        assert_eq!(frame(&far), b"after");
    }
}

#[test]
fn a_peer_that_receives_nothing_does_not_block_and_losses_are_counted() {
    for (client, server) in securities() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let options = LinkOptions {
            queue: 4 << 20,
            ..quick()
        };
        let address = listener.local_addr().unwrap().to_string();
        let (links, near) = links(&client, options, &address);
        let far = accept(listener.accept().unwrap().0, &server).unwrap();
        wait(&near, is_connected);
        let block = Arc::new(vec![0; 1 << 20]);
        // Until the queue stays full, since the sockets of the system are, too.
        let (mut lost, mut in_turn) = (0, 0);
        until(|| {
            let sent = links.send(7, vec![Bytes::from(Arc::clone(&block)).into()]);
            (lost, in_turn) = if sent {
                (lost, 0)
            } else {
                (lost + 1, in_turn + 1)
            };
            in_turn == 100
        });
        assert_eq!(links.dropped(7), lost);
        drop(far);
        wait(&near, is_disconnected);
        // What was queued for that connection does not go to the next one.
        let mut far = accept(listener.accept().unwrap().0, &server).unwrap();
        wait(&near, is_connected);
        assert!(links.dropped(7) >= lost);
        assert!(links.send(7, vec![b"new".to_vec().into()]));
        let mut into = Vec::new();
        for wanted in [&b"hello 7"[..], b"new"] {
            assert!(far.receive.receive(&mut into).unwrap());
            assert_eq!(into, wanted);
        }
    }
}

#[test]
fn a_stuck_peer_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let options = LinkOptions {
        stuck: Duration::from_millis(50),
        ..quick()
    };
    let address = listener.local_addr().unwrap().to_string();
    let (links, near) = links(&Security::Plain, options, &address);
    let _far = listener.accept().unwrap();
    wait(&near, is_connected);
    let block = Arc::new(vec![0; 1 << 20]);
    let mut gone = false;
    until(|| {
        links.send(7, vec![Bytes::from(Arc::clone(&block)).into()]);
        gone = gone || matches!(near.try_recv(), Ok((7, LinkEvent::Disconnected)));
        gone
    });
}

#[test]
fn frames_to_a_peer_that_is_away_are_lost_and_counted() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    let (links, _near) = links(&Security::Plain, quick(), &address);
    assert!(links.send(7, vec![vec![1].into()]));
    until(|| links.dropped(7) == 1);
    assert!(!links.send(8, vec![vec![1].into()]), "no such peer");
    let long = vec![vec![0; DEFAULT_MOST + 1].into()];
    assert!(!links.send(7, long));
    until(|| links.dropped(7) == 2);
}

#[test]
fn peers_move_go_and_come_back() {
    let (a, at_a) = acceptor("127.0.0.1:0", &Security::Plain, Limits::default());
    let (b, at_b) = acceptor("127.0.0.1:0", &Security::Plain, Limits::default());
    let [to_a, to_b] = [&a, &b].map(|acceptor| acceptor.address().to_string());
    let (links, near) = links(&Security::Plain, quick(), &to_a);
    wait(&near, is_connected);
    assert_eq!(frame(&at_a), b"hello 7");
    links.set_peers(peers(&to_a)).unwrap();
    assert!(near.try_recv().is_err(), "nothing changed");
    links.set_peers(peers(&to_b)).unwrap();
    wait(&near, is_disconnected);
    wait(&near, is_connected);
    assert_eq!(frame(&at_b), b"hello 7");
    until(|| a.replies().count() == 0);
    links.set_peers(BTreeMap::new()).unwrap();
    wait(&near, is_disconnected);
    assert!(!links.send(7, vec![]));
    until(|| b.replies().count() == 0);
    links.set_peers(peers(&to_a)).unwrap();
    wait(&near, is_connected);
    assert_eq!(frame(&at_a), b"hello 7");
    // The same peer twice, under two numbers.
    let two = BTreeMap::from([(7, to_a.clone()), (8, to_a)]);
    links.set_peers(two).unwrap();
    let (peer, event) = near.recv_timeout(LONG).unwrap();
    assert!(peer == 8 && is_connected(&event));
    assert_eq!(frame(&at_a), b"hello 8");
    assert_eq!(links.connected(), [7, 8]);
}

#[test]
fn links_may_be_stopped_by_their_own_event_and_while_they_connect() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let slot: Arc<std::sync::OnceLock<Arc<Links>>> = Arc::default();
    let (own, (out, done)) = (Arc::clone(&slot), mpsc::channel());
    let links = Arc::new(Links::new(
        Security::Plain,
        quick(),
        |_| Vec::new(),
        move |_, event| {
            if let LinkEvent::Connected = event {
                own.wait_and_stop();
            }
            let _ = out.send(is_disconnected(&event));
        },
    ));
    assert!(slot.set(Arc::clone(&links)).is_ok());
    links.set_peers(peers(&address)).unwrap();
    let (mut far, _) = listener.accept().unwrap();
    assert!(!done.recv_timeout(LONG).unwrap());
    assert!(done.recv_timeout(LONG).unwrap());
    let mut hello = Vec::new();
    let _ = far.read_to_end(&mut hello);
    assert_eq!(hello.len(), HEADER);
}

/// Stops the links that the slot holds.
trait Stop {
    fn wait_and_stop(&self);
}

impl Stop for std::sync::OnceLock<Arc<Links>> {
    fn wait_and_stop(&self) {
        until(|| self.get().is_some());
        self.get().unwrap().stop();
    }
}

#[test]
fn a_peer_whose_certificate_names_another_is_not_sent_anything() {
    let authority = authority();
    let client = authority.security("node:1", &HOSTS);
    let options = LinkOptions {
        name: Some(node_name),
        ..quick()
    };
    for (name, is_it) in [
        ("node:7", true),
        ("node:8", false),
        ("node:77", false),
        ("", false),
    ] {
        let server = authority.security(name, &HOSTS);
        let (acceptor, far) = acceptor("127.0.0.1:0", &server, Limits::default());
        let (links, _events) = links(&client, options.clone(), &acceptor.address().to_string());
        let next = || far.recv_timeout(LONG).unwrap().1;
        assert!(matches!(next(), Event::Opened { .. }));
        if is_it {
            assert!(matches!(next(), Event::Frame(hello) if hello == b"hello 7"));
            continue;
        }
        // Again and again, and never with a hello.
        let mut closed = 0;
        while closed < 3 {
            match next() {
                // The next one may be opened before the end of the one before has been noticed.
                Event::Opened { .. } => {}
                Event::Closed => closed += 1,
                other => panic!("{name}: {other:?}"),
            }
        }
        assert!(links.connected().is_empty());
    }
}
