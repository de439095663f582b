use std::io::{Read, Write};

use super::*;
use crate::net::frame::header;

/// Two ends of plain TCP, the first without frames.
fn raw_pair() -> (TcpStream, Connection) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let far = accept(listener.accept().unwrap().0, &Security::Plain).unwrap();
    (near, far)
}

fn frame(payload: &[u8]) -> Vec<u8> {
    let header = header(&[payload], usize::MAX).unwrap();
    [&header[..], payload].concat()
}

#[test]
fn every_flipped_bit_of_a_frame_is_noticed() {
    let whole = frame(b"a payload");
    for bit in 0..whole.len() * 8 {
        let (mut near, mut far) = raw_pair();
        far.receive.set_most(64);
        let mut damaged = whole.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        near.write_all(&damaged).unwrap();
        near.shutdown(std::net::Shutdown::Write).unwrap();
        let mut into = Vec::new();
        let received = far.receive.receive(&mut into);
        assert!(received.is_err() && into.is_empty(), "bit {bit}");
        // The connection is ended.
        let end = near.read(&mut [0]);
        assert!(!matches!(end, Ok(1..)), "bit {bit}");
    }
}

#[test]
fn every_cut_of_a_frame_is_an_error_and_between_frames_is_the_end() {
    let whole = frame(b"a payload");
    for cut in 0..whole.len() {
        let (mut near, mut far) = raw_pair();
        near.write_all(&whole).unwrap();
        near.write_all(&whole[..cut]).unwrap();
        drop(near);
        let mut into = Vec::new();
        assert!(far.receive.receive(&mut into).unwrap());
        assert_eq!(into, b"a payload");
        match far.receive.receive(&mut into) {
            Ok(more) => assert!(!more && cut == 0),
            Err(error) => {
                assert!(cut > 0);
                assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof);
            }
        }
    }
}

#[test]
fn a_cut_connection_is_no_end_with_tls() {
    let [_, (client, server)] = securities();
    let (near, mut far) = pair(&client, &server);
    near.send.closer().end();
    let error = far.receive.receive(&mut Vec::new()).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof);
}

#[test]
fn too_long_frames_are_refused_on_both_sides() {
    let (mut near, mut far) = pair(&Security::Plain, &Security::Plain);
    near.send.set_most(100);
    let error = near.send.send(&[&[0; 60], &[0; 41]]).unwrap_err();
    let too_long = |error: &std::io::Error, length: usize, most: usize| match inner(error) {
        Error::TooLong { length: l, most: m } => assert_eq!((*l, *m), (length, most)),
        other => panic!("{other:?}"),
    };
    too_long(&error, 101, 100);
    near.send.send(&[&[1; 100]]).unwrap();
    far.receive.set_most(99);
    too_long(&far.receive.receive(&mut Vec::new()).unwrap_err(), 100, 99);
}

#[test]
fn a_header_alone_costs_no_memory() {
    let (mut near, mut far) = raw_pair();
    far.receive.set_most(usize::MAX);
    near.write_all(&[0xff; HEADER]).unwrap();
    near.write_all(&[1; 1000]).unwrap();
    near.shutdown(std::net::Shutdown::Write).unwrap();
    let mut into = Vec::new();
    assert!(far.receive.receive(&mut into).is_err());
    assert!(into.capacity() < 1 << 20, "{}", into.capacity());
}

#[test]
fn silence_ends_a_connection_with_a_limit() {
    for (client, server) in securities() {
        let (_near, mut far) = pair(&client, &server);
        let limit = Duration::from_millis(20);
        far.receive.set_idle_timeout(Some(limit)).unwrap();
        let error = far.receive.receive(&mut Vec::new()).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
    }
}
