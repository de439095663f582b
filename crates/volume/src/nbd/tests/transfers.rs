//! Requests and their replies.

use std::net::TcpStream;
use std::sync::atomic::Ordering;

use super::super::memory::BLOCK;
use super::super::protocol::command;
use super::super::{Client, ClientError, Failure, Limits, Operation, Run};
use super::{Raw, start, wait};

fn errno<T: std::fmt::Debug>(result: Result<T, ClientError>) -> u32 {
    match result {
        Err(ClientError::Failed(failure)) => failure.errno,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_random_history_reads_as_a_model_says() {
    for seed in esker_sim::seeds(4) {
        println!("ESKER_SEED={seed}");
        let mut rng = fastrand::Rng::with_seed(seed);
        let setup = start(Limits::default());
        let mut clients = [setup.client("disk"), setup.client("disk")];
        let mut model = vec![0_u8; 4 << 20];
        for _ in 0..300 {
            let client = &mut clients[rng.usize(..2)];
            let offset = rng.usize(..model.len());
            let length = rng.usize(1..=(model.len() - offset).min(100_000));
            let range = offset..offset + length;
            let (at, bytes) = (offset as u64, u32::try_from(length).unwrap());
            match rng.u8(..6) {
                0 | 1 => {
                    let data: Vec<u8> =
                        std::iter::repeat_with(|| rng.u8(..)).take(length).collect();
                    client.write(at, &data).unwrap();
                    model[range].copy_from_slice(&data);
                }
                2 => {
                    client.zero(at, bytes).unwrap();
                    model[range].fill(0);
                }
                3 => {
                    client.trim(at, bytes).unwrap();
                    model[range].fill(0);
                }
                4 => client.flush().unwrap(),
                _ => assert_eq!(client.read(at, bytes).unwrap(), model[range]),
            }
        }
        assert_eq!(setup.disk.contents(), model);
        let [one, other] = clients;
        one.disconnect().unwrap();
        drop(other);
        setup.wait_for_silence();
        assert_eq!(setup.closed(), 2);
    }
}

#[test]
fn a_client_knows_its_export() {
    let setup = start(Limits::default());
    let client = setup.client("disk");
    assert_eq!((client.size(), client.block_size()), (4 << 20, 4096));
    assert_eq!(client.request_bytes(), 32 << 20);
    assert!(client.multi_conn() && !client.read_only());
    assert!(setup.client("fixed").read_only());
    let refused = Client::connect(setup.address, "nothing").unwrap_err();
    assert_eq!(
        refused.to_string(),
        "the server refuses the export: there is no such export"
    );
}

#[test]
fn a_pipeline_ends_in_the_order_of_the_device() {
    let setup = start(Limits::default());
    let mut client = setup.client("disk");
    setup.disk.is_slow.store(true, Ordering::SeqCst);
    let writes = (0..8).map(|n| Operation::Write {
        offset: n * 10,
        data: vec![n as u8; 10],
        fua: n % 2 == 0,
    });
    let read = Operation::Read {
        offset: 0,
        length: 80,
    };
    let mut order = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            wait(|| setup.disk.held() == 8);
            setup.disk.release();
        });
        let all = writes.chain([read]).collect::<Vec<_>>();
        client
            .pipeline(all, 9, |n, result| order.push((n, result.unwrap().len())))
            .unwrap();
    });
    // The read is not held up, and the writes end newest first.
    let expected = [8, 7, 6, 5, 4, 3, 2, 1, 0].map(|n| (n, if n == 8 { 80 } else { 0 }));
    let reads = order.iter().filter(|(n, _)| *n == 8).count();
    let writes: Vec<_> = order.iter().filter(|(n, _)| *n != 8).copied().collect();
    assert_eq!((reads, writes.as_slice()), (1, &expected[1..]));
    setup.disk.is_slow.store(false, Ordering::SeqCst);

    // More than the sockets' buffers hold in both directions.
    let data = vec![7; 1 << 20];
    let mixed = (0..200_u64).map(|n| match n % 2 {
        0 => Operation::Write {
            offset: 0,
            data: data.clone(),
            fua: true,
        },
        _ => Operation::Read {
            offset: 0,
            length: 1 << 20,
        },
    });
    let mut ended = 0;
    client
        .pipeline(mixed, 64, |n, result| {
            assert_eq!(result.unwrap().len(), (n as usize % 2) << 20);
            ended += 1;
        })
        .unwrap();
    assert_eq!(ended, 200);
    assert_eq!(client.read(0, 1 << 20).unwrap(), data);
}

#[test]
fn failures_reach_the_client_with_their_text() {
    let setup = start(Limits::default());
    let (mut client, mut fixed) = (setup.client("disk"), setup.client("fixed"));
    let end = 4 << 20;
    assert_eq!(errno(client.read(end, 1)), Failure::EINVAL);
    assert_eq!(errno(client.read(end - 1, 2)), Failure::EINVAL);
    assert_eq!(errno(client.write(end - 1, &[1, 2])), Failure::ENOSPC);
    assert_eq!(errno(client.zero(end - 1, 2)), Failure::ENOSPC);
    assert_eq!(errno(client.trim(u64::MAX, 2)), Failure::EINVAL);
    assert_eq!(errno(client.block_status(end, 2)), Failure::EINVAL);
    assert_eq!(errno(fixed.write(0, &[1])), Failure::EPERM);
    assert_eq!(errno(fixed.zero(0, 1)), Failure::EPERM);
    assert_eq!(errno(fixed.trim(0, 1)), Failure::EPERM);
    assert_eq!(fixed.read(0, 1).unwrap(), [0]);
    client.write(end, &[]).unwrap();
    assert!(client.read(0, 0).unwrap().is_empty());
    setup.disk.errno.store(Failure::ENOSPC, Ordering::SeqCst);
    let Err(ClientError::Failed(failure)) = client.write(0, &[1]) else {
        panic!("the write should fail");
    };
    assert_eq!(failure, Failure::new(28, "as the test wants it"));
    assert_eq!(errno(client.flush()), Failure::ENOSPC);
    assert_eq!(errno(client.block_status(0, 10)), Failure::ENOSPC);
    setup.disk.is_careless.store(true, Ordering::SeqCst);
    assert_eq!(errno(client.read(0, 1)), Failure::EIO);
    setup.disk.is_careless.store(false, Ordering::SeqCst);
    setup.disk.errno.store(0, Ordering::SeqCst);
    assert_eq!(client.read(0, 1).unwrap().len(), 1);
}

#[test]
fn allocation_is_told_in_runs() {
    let setup = start(Limits::default());
    let mut client = setup.client("disk");
    client.write(2 * BLOCK as u64, &[1; 2 * BLOCK]).unwrap();
    let run = |blocks: u64, is_hole| Run {
        length: blocks * BLOCK as u64,
        is_hole,
    };
    let runs = client.block_status(0, 4 << 20).unwrap();
    assert_eq!(runs, [run(2, true), run(2, false), run(1020, true)]);
    let runs = client.block_status(3 * BLOCK as u64, BLOCK as u32).unwrap();
    assert_eq!(runs, [run(1, false)]);
}

#[test]
fn a_plain_client_gets_simple_replies() {
    let setup = start(Limits::default());
    let mut raw = Raw::open(&setup, "disk");
    raw.request(command::WRITE, 1, 10, 4, b"abcd");
    assert_eq!(raw.simple(), (0, 1));
    raw.request(command::READ, 2, 9, 6, &[]);
    assert_eq!(raw.simple(), (0, 2));
    assert_eq!(raw.take(6), b"\0abcd\0");
    raw.request(command::READ, 3, 4 << 20, 6, &[]);
    assert_eq!(raw.simple(), (22, 3));
    raw.request(command::WRITE, 4, 4 << 20, 4, b"abcd");
    assert_eq!(raw.simple(), (28, 4));
    raw.request(5, 5, 0, 4096, &[]);
    assert_eq!(raw.simple(), (22, 5));
    raw.request(command::TRIM, 6, 0, 4096, &[]);
    assert_eq!(raw.simple(), (0, 6));
    raw.request(command::DISC, 7, 0, 0, &[]);
    assert_eq!(raw.rest(), b"");
}

#[test]
fn no_more_requests_are_in_flight_than_allowed() {
    let setup = start(Limits {
        in_flight: 2,
        ..Limits::default()
    });
    setup.disk.is_slow.store(true, Ordering::SeqCst);
    let mut raw = Raw::open(&setup, "disk");
    for cookie in 0..20 {
        raw.request(command::WRITE, cookie, 0, 1, b"x");
    }
    let mut ended = Vec::new();
    while ended.len() < 20 {
        wait(|| setup.disk.held() == 2);
        setup.disk.release();
        ended.extend([raw.simple().1, raw.simple().1]);
    }
    ended.sort_unstable();
    assert_eq!(ended, (0..20).collect::<Vec<_>>());
}

#[test]
fn data_in_flight_are_bounded() {
    let setup = start(Limits {
        request_bytes: 64 << 10,
        in_flight_bytes: 256 << 10,
        ..Limits::default()
    });
    setup.disk.is_slow.store(true, Ordering::SeqCst);
    let mut raws = [(); 4].map(|()| Raw::open(&setup, "disk"));
    // More than half of the bytes are not for one connection: two requests each, of 128 KiB in all.
    for raw in &mut raws {
        for cookie in 0..4 {
            let data = vec![1; 64 << 10];
            raw.request(command::WRITE, cookie, 0, 64 << 10, &data);
        }
    }
    let mut ended = 0;
    while ended < 16 {
        wait(|| setup.disk.held() > 0);
        assert!(setup.disk.held() <= 4 && setup.server.lent() <= 256 << 10);
        ended += setup.disk.held();
        setup.disk.release();
        if ended > 12 {
            setup.disk.is_slow.store(false, Ordering::SeqCst);
            break;
        }
    }
    setup.disk.release();
    for raw in &mut raws {
        (0..4).for_each(|_| assert_eq!(raw.simple().0, 0));
    }
    wait(|| setup.server.lent() == 0);
}

#[test]
fn requests_that_are_too_large() {
    let setup = start(Limits {
        request_bytes: 64 << 10,
        ..Limits::default()
    });
    let mut client = setup.client("disk");
    assert_eq!(errno(client.read(0, (64 << 10) + 1)), Failure::EOVERFLOW);
    assert_eq!(
        errno(client.write(0, &[1; (64 << 10) + 1])),
        Failure::EINVAL
    );
    assert_eq!(client.read(0, 64 << 10).unwrap(), [0; 64 << 10]);
    client.zero(0, 4 << 20).unwrap();
    let mut raw = Raw::open(&setup, "disk");
    raw.request(command::READ, 1, 0, u32::MAX, &[]);
    assert_eq!(raw.simple(), (22, 1));
    raw.request(command::WRITE, 2, 0, (32 << 20) + 1, &[]);
    assert_eq!(raw.rest(), b"");
    client.flush().unwrap();
}

#[test]
fn a_goodbye_waits_for_the_requests_before_it() {
    let setup = start(Limits::default());
    setup.disk.is_slow.store(true, Ordering::SeqCst);
    let mut raw = Raw::open(&setup, "disk");
    raw.request(command::WRITE, 1, 0, 1, b"x");
    raw.request(command::DISC, 2, 0, 0, &[]);
    wait(|| setup.disk.held() == 1);
    assert_eq!(setup.closed(), 0);
    setup.disk.release();
    assert_eq!(raw.simple(), (0, 1));
    assert_eq!(raw.rest(), b"");
    setup.wait_for_silence();
    assert_eq!(setup.closed(), 1);
}

#[test]
fn a_server_that_stops_answers_what_it_has_begun() {
    let setup = start(Limits::default());
    setup.disk.is_slow.store(true, Ordering::SeqCst);
    let mut raw = Raw::open(&setup, "disk");
    let silent = Raw::open(&setup, "disk");
    let unfinished = setup.raw();
    wait(|| setup.server.connections() == 3);
    raw.request(command::WRITE, 1, 0, 1, b"x");
    wait(|| setup.disk.held() == 1);
    let (address, disk) = (setup.address, setup.disk);
    std::thread::scope(|scope| {
        scope.spawn(|| setup.server.stop());
        assert_eq!(silent.rest(), b"");
        assert_eq!(unfinished.rest(), b"NBDMAGICIHAVEOPT\0\x03");
        disk.release();
        assert_eq!(raw.simple(), (0, 1));
        assert_eq!(raw.rest(), b"");
    });
    assert_eq!(disk.closed.load(Ordering::SeqCst), 2);
    TcpStream::connect(address).unwrap_err();
}

#[test]
fn connections_above_the_limit_are_closed() {
    let setup = start(Limits {
        connections: 1,
        ..Limits::default()
    });
    let client = setup.client("disk");
    assert_eq!(setup.raw().rest(), b"");
    client.disconnect().unwrap();
    setup.wait_for_silence();
    setup.client("disk").flush().unwrap();
}
