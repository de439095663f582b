use std::io::{Read, Write};

use super::*;
use crate::budget::Budget;

/// The next event.
fn next(events: &mpsc::Receiver<(ConnectionId, Event)>) -> (ConnectionId, Event) {
    events.recv_timeout(LONG).unwrap()
}

/// The next event, which is that a connection opened.
fn opened(events: &mpsc::Receiver<(ConnectionId, Event)>) -> (ConnectionId, Option<String>) {
    match next(events) {
        (id, Event::Opened { peer, .. }) => (id, peer),
        other => panic!("{other:?}"),
    }
}

fn closed(events: &mpsc::Receiver<(ConnectionId, Event)>, id: ConnectionId) {
    let event = next(events);
    assert!(matches!(event, (i, Event::Closed) if i == id), "{event:?}");
}

#[test]
fn requests_are_answered_on_their_connection() {
    for (client, server) in securities() {
        let acceptor = Acceptor::bind("localhost:0", server, Limits::default()).unwrap();
        let (replies, budget) = (acceptor.replies(), Budget::new(4 << 20));
        let lender = budget.clone();
        // Memory for the frames behind the first one is lent, until the answers are sent.
        let echo = move |id, event| match event {
            Event::Frame(frame) => {
                assert!(replies.admit_within(id, &lender));
                replies
                    .send(id, vec![frame.into(), vec![9].into()])
                    .unwrap();
            }
            Event::Lent(frame, loan) => {
                assert!(lender.lent() >= frame.len());
                let part = Part::lent(frame, Some(loan));
                replies.send(id, vec![part, vec![9].into()]).unwrap();
            }
            Event::Opened { .. } | Event::Closed => {}
        };
        acceptor.start(echo).unwrap();
        let address = format!("localhost:{}", acceptor.address().port());
        std::thread::scope(|scope| {
            for n in 0..4_u8 {
                let (client, address) = (&client, &address);
                scope.spawn(move || {
                    let mut near = connect(address, client, LONG).unwrap();
                    let mut into = Vec::new();
                    for size in [1, 100, 100_000, 2_000_000] {
                        near.send.send(&[&vec![n; size]]).unwrap();
                        assert!(near.receive.receive(&mut into).unwrap());
                        assert!(into[..size] == vec![n; size] && into[size..] == [9]);
                    }
                });
            }
        });
        until(|| acceptor.replies().count() == 0);
        until(|| budget.lent() == 0);
        assert!(budget.most() >= 2_000_000);
        acceptor.stop();
        let refused = connect(&address, &client, LONG).err().unwrap();
        assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    }
}

#[test]
fn a_connection_that_is_not_admitted_sends_only_short_frames() {
    let (limits, plain) = (Limits::default(), Security::Plain);
    let acceptor = Acceptor::bind("127.0.0.1:0", plain.clone(), limits.clone()).unwrap();
    let (out, events) = mpsc::channel();
    let send = move |id, event| out.send((id, event)).unwrap();
    acceptor.start(send).unwrap();
    let mut near = connect(&acceptor.address().to_string(), &plain, LONG).unwrap();
    let (id, peer) = opened(&events);
    assert_eq!(peer, None);
    near.send.send(&[&vec![0; limits.most_unadmitted]]).unwrap();
    assert!(matches!(next(&events), (i, Event::Frame(_)) if i == id));
    near.send
        .send(&[&vec![0; limits.most_unadmitted + 1]])
        .unwrap();
    closed(&events, id);
    assert_eq!(
        acceptor.replies().send(id, vec![]).unwrap_err(),
        Refused::Gone
    );
    assert!(!acceptor.replies().admit(id));
}

#[test]
fn a_silent_connection_is_closed() {
    let limits = Limits {
        idle_unadmitted: Duration::from_millis(20),
        ..Limits::default()
    };
    let acceptor = Acceptor::bind("127.0.0.1:0", Security::Plain, limits).unwrap();
    let (out, events) = mpsc::channel();
    acceptor
        .start(move |id, event| out.send((id, event)).unwrap())
        .unwrap();
    let mut near = raw(&acceptor);
    let (id, _) = opened(&events);
    closed(&events, id);
    assert!(!matches!(near.read(&mut [0]), Ok(1..)));
}

#[test]
fn who_waits_for_an_answer_may_be_silent_and_who_has_it_may_not() {
    for (client, server) in securities() {
        let limits = Limits {
            idle: Duration::from_millis(20),
            idle_unadmitted: LONG,
            ..Limits::default()
        };
        let acceptor = Acceptor::bind("localhost:0", server, limits).unwrap();
        let (replies, (out, events)) = (acceptor.replies(), mpsc::channel());
        let take = move |id, event| {
            let asked = matches!(event, Event::Frame(_)).then(|| {
                assert!(replies.admit(id));
                replies.asked(id).unwrap()
            });
            out.send((id, event, asked)).unwrap();
        };
        acceptor.start(take).unwrap();
        let address = format!("localhost:{}", acceptor.address().port());
        let mut near = connect(&address, &client, LONG).unwrap();
        near.send.send(&[b"a question"]).unwrap();
        let (id, _, none) = events.recv_timeout(LONG).unwrap();
        assert!(none.is_none());
        let (_, _, asked) = events.recv_timeout(LONG).unwrap();
        // Many times as long as a connection may be silent.
        std::thread::sleep(Duration::from_millis(300));
        let reply = vec![b"an answer".to_vec().into()];
        acceptor.replies().send(id, reply).unwrap();
        let mut into = Vec::new();
        assert!(near.receive.receive(&mut into).unwrap());
        assert_eq!(into, b"an answer");
        drop(asked);
        let (_, event, _) = events.recv_timeout(LONG).unwrap();
        assert!(matches!(event, Event::Closed), "{event:?}");
        until(|| near.receive.has_ended());
        acceptor.stop();
    }
}

#[test]
fn connections_beyond_the_limits_are_closed_and_who_is_known_finds_room() {
    let limits = Limits {
        connections: 2,
        unadmitted: 2,
        idle_unadmitted: LONG,
        ..Limits::default()
    };
    let acceptor = Acceptor::bind("127.0.0.1:0", Security::Plain, limits).unwrap();
    let (sender, events) = mpsc::channel();
    let event = move |id, event| drop(sender.send((id, event)));
    acceptor.start(event).unwrap();
    let replies = acceptor.replies();
    let mut oldest = raw(&acceptor);
    oldest.set_read_timeout(Some(LONG)).unwrap();
    let (first, _) = opened(&events);
    let _newer = raw(&acceptor);
    let (second, _) = opened(&events);
    let _third = raw(&acceptor);
    assert!(!matches!(oldest.read(&mut [0]), Ok(1..)));
    let mut third = None;
    for _ in 0..2 {
        match next(&events) {
            (id, Event::Opened { .. }) => third = Some(id),
            (id, event) => assert!(id == first && matches!(event, Event::Closed), "{event:?}"),
        }
    }
    assert_eq!(acceptor.refused(), 1);
    // Two within a budget, and one more.
    let budget = crate::budget::Budget::new(1 << 20);
    assert!(replies.admit_within(second, &budget) && replies.admit_within(third.unwrap(), &budget));
    let _fourth = raw(&acceptor);
    let (fourth, _) = opened(&events);
    assert!(!replies.admit_within(fourth, &budget));
    closed(&events, fourth);
    // Nodes are not among them.
    let _node = raw(&acceptor);
    let (node, _) = opened(&events);
    assert!(replies.admit(node));
    // The end of the fourth is counted by its own thread.
    let begin = std::time::Instant::now();
    while replies.count() != 3 {
        assert!(begin.elapsed().as_secs() < 60);
        std::thread::yield_now();
    }
}

#[test]
fn replies_that_are_not_taken_are_refused_and_what_was_queued_is_sent_before_the_end() {
    for (client, server) in securities() {
        let limits = Limits {
            queue: 2 << 20,
            ..Limits::default()
        };
        let (acceptor, events) = acceptor("127.0.0.1:0", &server, limits);
        let mut near = connect(&acceptor.address().to_string(), &client, LONG).unwrap();
        let (id, _) = opened(&events);
        let replies = acceptor.replies();
        let mut sent = 0_u32;
        let refused = loop {
            let frame = vec![sent.to_le_bytes().to_vec().into(), vec![0; 100_000].into()];
            match replies.send(id, frame) {
                Ok(()) => sent += 1,
                Err(refused) => break refused,
            }
        };
        assert_eq!(refused, Refused::Full);
        let long = vec![vec![0; DEFAULT_MOST + 1].into()];
        assert_eq!(replies.send(id, long).unwrap_err(), Refused::TooLong);
        replies.close(id);
        assert_eq!(replies.send(id, vec![]).unwrap_err(), Refused::Gone);
        let mut into = Vec::new();
        for n in 0..sent {
            assert!(near.receive.receive(&mut into).unwrap());
            assert_eq!(into[..4], n.to_le_bytes());
        }
        assert!(!near.receive.receive(&mut into).unwrap());
        drop(near);
        closed(&events, id);
    }
}

#[test]
fn stop_ends_all_connections_also_in_the_middle_of_a_handshake() {
    for (client, server) in securities() {
        let (acceptor, events) = acceptor("127.0.0.1:0", &server, Limits::default());
        let address = acceptor.address().to_string();
        let mut near = connect(&address, &client, LONG).unwrap();
        let (id, _) = opened(&events);
        let _silent = raw(&acceptor);
        until(|| acceptor.replies().count() == 2);
        acceptor.stop();
        let rest: Vec<_> = events.try_iter().collect();
        let closed = |(i, event): &(_, Event)| *i == id && matches!(event, Event::Closed);
        assert!(rest.iter().any(closed), "{rest:?}");
        assert!(!matches!(near.receive.receive(&mut Vec::new()), Ok(true)));
        drop(acceptor);
        assert!(connect(&address, &client, LONG).is_err());
    }
}

#[test]
fn random_bytes_do_no_harm() {
    for (client, server) in securities() {
        let (acceptor, events) = acceptor("127.0.0.1:0", &server, Limits::default());
        for seed in esker_sim::seeds(60) {
            println!("ESKER_SEED={seed} {client:?}");
            let mut random = fastrand::Rng::with_seed(seed);
            let mut bytes: Vec<u8> = (0..random.usize(1..3000)).map(|_| random.u8(..)).collect();
            if random.bool() {
                // A length that is allowed.
                bytes.splice(..bytes.len().min(4), random.u32(..2000).to_le_bytes());
            } else if random.bool() {
                // The head of a record of TLS.
                bytes.splice(
                    ..bytes.len().min(5),
                    [22, 3, 1, random.u8(..4), random.u8(..)],
                );
            }
            let mut stream = raw(&acceptor);
            // The other side may end in the middle.
            let _ = stream.write_all(&bytes);
            let _ = stream.shutdown(std::net::Shutdown::Write);
            let _ = stream.read_to_end(&mut Vec::new());
        }
        until(|| acceptor.replies().count() == 0);
        assert!(
            events
                .try_iter()
                .all(|(_, event)| !matches!(event, Event::Frame(_)))
        );
        // It goes on.
        let mut near = connect(&acceptor.address().to_string(), &client, LONG).unwrap();
        let (id, _) = opened(&events);
        near.send.send(&[b"hello"]).unwrap();
        assert!(matches!(next(&events), (i, Event::Frame(f)) if i == id && f == b"hello"));
    }
}

#[test]
fn strangers_are_counted_and_not_heard_of() {
    let (ours, others) = (authority(), authority_named("others"));
    let server = ours.security("node", &HOSTS);
    let (certificate, key) = others.issue("stranger", &HOSTS);
    let stranger = load(&certificate, &key, &ours.pem).unwrap();
    let (acceptor, events) = acceptor("127.0.0.1:0", &server, Limits::default());
    let near = connect(&acceptor.address().to_string(), &stranger, LONG);
    let received = near.and_then(|mut near| near.receive.receive(&mut Vec::new()));
    assert!(received.is_err());
    until(|| acceptor.refused() == 1 && acceptor.replies().count() == 0);
    assert!(events.try_recv().is_err());
}

#[test]
fn a_panic_of_the_user_ends_its_connection_alone() {
    let acceptor = Acceptor::bind("127.0.0.1:0", Security::Plain, Limits::default()).unwrap();
    let replies = acceptor.replies();
    let event = move |id, event| match event {
        Event::Frame(frame) if frame.is_empty() => panic!("on purpose"),
        Event::Frame(frame) => replies.send(id, vec![frame.into()]).unwrap(),
        _ => {}
    };
    acceptor.start(event).unwrap();
    let address = acceptor.address().to_string();
    let connected = || connect(&address, &Security::Plain, LONG).unwrap();
    let (mut first, mut second) = (connected(), connected());
    first.send.send(&[]).unwrap();
    let mut into = Vec::new();
    assert!(!matches!(first.receive.receive(&mut into), Ok(true)));
    second.send.send(&[b"x"]).unwrap();
    assert!(second.receive.receive(&mut into).unwrap());
    until(|| acceptor.replies().count() == 1);
    acceptor.stop();
}
