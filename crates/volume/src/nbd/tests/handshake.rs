//! The handshake, option by option.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::super::protocol::{can, command, option, rep};
use super::super::{Client, ClientError, Encrypted, Limits, Upgrade};
use super::{Raw, contexts, start, start_with, wanted};

const FLAGS: u16 =
    can::HAS_FLAGS | can::FLUSH | can::FUA | can::TRIM | can::WRITE_ZEROES | can::MULTI_CONN;

#[test]
fn export_name_ends_with_zeroes_unless_they_were_declined() {
    let setup = start(Limits::default());
    for (flags, zeroes) in [(1, 124), (3, 0), (0, 124), (2, 0)] {
        let mut raw = setup.raw();
        raw.greet(flags);
        raw.send(b"IHAVEOPT\0\0\0\x01\0\0\0\x04disk");
        let size = (4_u64 << 20).to_be_bytes();
        let expected = [size.as_slice(), &FLAGS.to_be_bytes(), &vec![0; zeroes]].concat();
        assert_eq!(raw.take(expected.len()), expected);
        raw.request(command::FLUSH, 9, 0, 0, &[]);
        assert_eq!(raw.simple(), (0, 9));
    }
    for name in ["nothing", "forbidden"] {
        let mut raw = setup.raw();
        raw.greet(3);
        let option = super::protocol::option(option::EXPORT_NAME, name.as_bytes());
        raw.send(&option);
        assert_eq!(raw.rest(), b"");
    }
}

#[test]
fn go_and_info_describe_the_export() {
    let setup = start(Limits {
        request_bytes: 1 << 20,
        ..Limits::default()
    });
    let mut raw = setup.raw();
    raw.greet(3);
    let size = (4_u64 << 20).to_be_bytes();
    let export = [b"\0\0".as_slice(), &size, &FLAGS.to_be_bytes()].concat();
    let sizes = b"\0\x03\0\0\0\x01\0\0\x10\0\0\x10\0\0".to_vec();
    let info = |data: &[u8]| (rep::INFO, data.to_vec());
    let ack = || (rep::ACK, Vec::new());
    assert_eq!(
        raw.option(option::INFO, &wanted("disk", &[])),
        [info(&export), info(&sizes), ack()]
    );
    assert_eq!(
        raw.option(option::INFO, &wanted("disk", &[3, 2, 1, 0, 77])),
        [
            info(&export),
            info(b"\0\x01disk"),
            info(b"\0\x02in memory"),
            info(&sizes),
            ack()
        ]
    );
    let fixed = raw.option(option::INFO, &wanted("fixed", &[]));
    assert_eq!(
        fixed[0].1[10..],
        [1, 0b1111],
        "read-only, and nothing that writes"
    );
    let refused = [
        ("nothing", rep::ERR_UNKNOWN, "there is no such export"),
        ("forbidden", rep::ERR_POLICY, "not for you"),
        ("away", rep::ERR_UNKNOWN, "no quorum"),
    ];
    for (name, kind, text) in refused {
        let replies = raw.option(option::GO, &wanted(name, &[]));
        assert_eq!(replies, [(kind, text.as_bytes().to_vec())]);
    }
    for data in [
        b"".as_slice(),
        b"\0\0\0\x05disk\0\0",
        b"\0\0\0\x04disk\0\x01\0",
    ] {
        assert_eq!(raw.outcome(option::GO, data), rep::ERR_INVALID);
    }
    raw.go("disk");
    raw.request(command::FLUSH, 9, 0, 0, &[]);
    assert_eq!(raw.simple(), (0, 9));
    drop(raw);
    setup.wait_for_silence();
    assert_eq!(
        setup.closed(),
        2,
        "once opened for information, and once to use it"
    );
    assert_eq!(setup.fixed.closed.load(Ordering::SeqCst), 1);
}

#[test]
fn options_that_are_unknown_malformed_or_last() {
    let setup = start(Limits::default());
    let mut raw = setup.raw();
    raw.greet(3);
    for unknown in [0, 4, 11, 99, u32::MAX] {
        assert_eq!(raw.outcome(unknown, b"some data"), rep::ERR_UNSUP);
    }
    let listed = [
        (rep::SERVER, b"\0\0\0\x04disk".to_vec()),
        (rep::SERVER, b"\0\0\0\x05fixed".to_vec()),
        (rep::ACK, Vec::new()),
    ];
    assert_eq!(raw.option(option::LIST, &[]), listed);
    for option in [option::LIST, option::STARTTLS, option::STRUCTURED_REPLY] {
        assert_eq!(raw.outcome(option, b"x"), rep::ERR_INVALID);
    }
    assert_eq!(raw.outcome(option::STARTTLS, &[]), rep::ERR_POLICY);
    assert_eq!(raw.outcome(option::ABORT, b"ignored"), rep::ACK);
    assert_eq!(raw.rest(), b"");
    let names = Client::list(setup.address, None).unwrap();
    assert_eq!(names, ["disk", "fixed"]);
}

#[test]
fn clients_with_unknown_flags_or_without_fixed_newstyle() {
    let setup = start(Limits::default());
    let mut raw = setup.raw();
    raw.greet(4);
    assert_eq!(raw.rest(), b"");
    let mut raw = setup.raw();
    raw.greet(2);
    raw.send(&super::protocol::option(option::LIST, &[]));
    assert_eq!(raw.rest(), b"");
    setup.wait_for_silence();
}

#[test]
fn contexts_belong_to_one_export() {
    let setup = start(Limits::default());
    let (set, list) = (option::SET_META_CONTEXT, option::LIST_META_CONTEXT);
    let allocation = ["base:allocation"];
    let status = |prepare: &dyn Fn(&mut Raw)| {
        let mut raw = setup.raw();
        raw.greet(3);
        prepare(&mut raw);
        raw.go("disk");
        raw.request(command::BLOCK_STATUS, 9, 0, 8192, &[]);
        let head = raw.take(20);
        // The kind of the chunk.
        u16::from_be_bytes(head[6..8].try_into().unwrap())
    };
    let structured = |raw: &mut Raw| {
        assert_eq!(raw.outcome(option::STRUCTURED_REPLY, &[]), rep::ACK);
    };
    let selected = |raw: &mut Raw, name: &str, queries: &[&str]| {
        let replies = raw.option(set, &contexts(name, queries));
        assert_eq!(replies.last().unwrap().0, rep::ACK);
        replies.len() - 1
    };
    let right = status(&|raw| {
        assert_eq!(
            raw.outcome(set, &contexts("disk", &allocation)),
            rep::ERR_INVALID
        );
        structured(raw);
        let listed = raw.option(list, &contexts("disk", &[]));
        assert_eq!(
            listed[0],
            (rep::META_CONTEXT, b"\0\0\0\0base:allocation".to_vec())
        );
        assert_eq!(raw.option(list, &contexts("disk", &["base:"])).len(), 2);
        assert_eq!(raw.option(list, &contexts("disk", &["qemu:"])).len(), 1);
        assert_eq!(selected(raw, "disk", &["base:"]), 0);
        assert_eq!(selected(raw, "disk", &["x-a:b", "base:allocation"]), 1);
    });
    assert_eq!(right, 5);
    let error = (1 << 15) | 1;
    let of_another = status(&|raw| {
        structured(raw);
        assert_eq!(selected(raw, "fixed", &allocation), 1);
    });
    assert_eq!(of_another, error);
    let replaced = status(&|raw| {
        structured(raw);
        assert_eq!(selected(raw, "disk", &allocation), 1);
        assert_eq!(selected(raw, "disk", &[]), 0);
    });
    assert_eq!(replaced, error);
    let failed = status(&|raw| {
        structured(raw);
        assert_eq!(selected(raw, "disk", &allocation), 1);
        assert_eq!(raw.outcome(set, b"\0\0"), rep::ERR_INVALID);
    });
    assert_eq!(failed, error);
}

/// Stands for encryption in tests: each bit is flipped.
struct Flip {
    required: bool,
}

struct Flipped<T>(T);

impl<T: Read> Read for Flipped<T> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let length = self.0.read(into)?;
        into[..length].iter_mut().for_each(|byte| *byte = !*byte);
        Ok(length)
    }
}

impl<T: Write> Write for Flipped<T> {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        let flipped: Vec<u8> = from.iter().map(|byte| !*byte).collect();
        self.0.write(&flipped)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl Upgrade for Flip {
    fn accept(&self, stream: TcpStream) -> io::Result<Encrypted> {
        let mut reader = Flipped(stream.try_clone()?);
        let mut name = [0; 5];
        reader.read_exact(&mut name)?;
        let name = String::from_utf8(name.to_vec()).map_err(io::Error::other)?;
        Ok((
            Box::new(reader),
            Box::new(Flipped(stream)),
            Some(name.trim().to_owned()),
        ))
    }
    fn required(&self) -> bool {
        self.required
    }
}

#[test]
fn where_tls_is_required_nothing_else_comes_first() {
    let setup = start_with(Limits::default(), Some(Arc::new(Flip { required: true })));
    let mut raw = setup.raw();
    raw.greet(3);
    let go = wanted("disk", &[]);
    for option in [
        option::LIST,
        option::STRUCTURED_REPLY,
        option::INFO,
        option::GO,
        99,
    ] {
        assert_eq!(raw.outcome(option, &go), rep::ERR_TLS_REQD);
    }
    assert_eq!(raw.outcome(option::STARTTLS, b"x"), rep::ERR_INVALID);
    assert_eq!(raw.outcome(option::STARTTLS, &[]), rep::ACK);
    raw.reader = Box::new(Flipped(raw.reader));
    raw.writer = Box::new(Flipped(raw.writer));
    raw.send(b"fixed");
    assert_eq!(raw.outcome(option::STARTTLS, &[]), rep::ERR_INVALID);
    // The default export is the one that the certificate names.
    let export = raw.option(option::GO, &wanted("", &[]));
    assert_eq!(export[0].1[2..10], (1_u64 << 20).to_be_bytes());
    raw.request(command::READ, 4, 0, 3, &[]);
    assert_eq!(raw.simple(), (0, 4));
    assert_eq!(raw.take(3), [0; 3]);

    let mut raw = setup.raw();
    raw.greet(3);
    raw.send(&super::protocol::option(option::EXPORT_NAME, b"disk"));
    assert_eq!(raw.rest(), b"");
    let mut raw = setup.raw();
    raw.greet(3);
    assert_eq!(raw.outcome(option::ABORT, &[]), rep::ACK);
    let refused = Client::connect(setup.address, "disk").unwrap_err();
    assert!(matches!(refused, ClientError::Refused(_)), "{refused}");
}

#[test]
fn what_was_negotiated_before_tls_is_forgotten() {
    let setup = start_with(Limits::default(), Some(Arc::new(Flip { required: false })));
    let mut raw = setup.raw();
    raw.greet(3);
    assert_eq!(raw.outcome(option::STRUCTURED_REPLY, &[]), rep::ACK);
    assert_eq!(raw.outcome(option::INFO, &wanted("disk", &[])), rep::ACK);
    assert_eq!(raw.outcome(option::STARTTLS, &[]), rep::ACK);
    raw.reader = Box::new(Flipped(raw.reader));
    raw.writer = Box::new(Flipped(raw.writer));
    raw.send(b"disk ");
    super::wait(|| setup.closed() == 1);
    raw.go("");
    raw.request(command::READ, 4, 0, 1, &[]);
    assert_eq!(raw.simple(), (0, 4));

    let mut client = Client::connect_encrypted(setup.address, "", None, |stream| {
        let mut writer = Flipped(stream.try_clone()?);
        writer.write_all(b"fixed")?;
        Ok((Flipped(stream), writer))
    })
    .unwrap();
    assert_eq!(client.size(), 1 << 20);
    assert_eq!(client.read(0, 2).unwrap(), [0; 2]);

    // Without TLS the same server serves as well.
    let mut client = setup.client("disk");
    assert_eq!(client.read(0, 2).unwrap(), [0; 2]);
}
