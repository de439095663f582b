//! Entry points for fuzzing: whatever the bytes are, the functions here return, and what was
//! decoded survives its encoding.

use esker_coding::Reader;

use crate::admin::{Answer, Question};
use crate::command::Command;
use crate::extents::RecordHeader;
use crate::ids::DiskId;
use crate::map::ImageMeta;
use crate::place::Place;
use crate::system::{System, SystemCommand, SystemOutcome};
use crate::wire::Frame;

/// A frame of another node.
pub fn frame(bytes: &[u8]) {
    if let Some(frame) = Frame::decode(bytes) {
        let again = frame.encode().flat();
        let read = Frame::decode(&again).map(|frame| frame.encode().flat());
        assert_eq!(read, Some(again), "{frame:?}");
    }
}

/// A question of a client, and a node's answer.
pub fn client(bytes: &[u8]) {
    if let Some(question) = Question::decode(bytes) {
        assert_eq!(Question::decode(&question.encode()), Some(question));
    }
    if let Some(answer) = Answer::decode(bytes) {
        assert_eq!(Answer::decode(&answer.encode()), Some(answer));
    }
}

/// A command of a group's log, and of the system group.
pub fn command(bytes: &[u8]) {
    if let Some((command, data)) = Command::decode(bytes) {
        let mut again = Vec::new();
        command.encode(&mut again);
        again.extend_from_slice(data);
        assert_eq!(Command::decode(&again), Some((command, data)));
    }
    if let Some(command) = SystemCommand::decode(bytes) {
        assert_eq!(SystemCommand::decode(&command.encode()), Some(command));
    }
    let _ = SystemOutcome::decode(bytes);
}

/// The state of the system group, and the first piece of an image.
pub fn state(bytes: &[u8]) {
    let _ = System::decode(&mut Reader::new(bytes));
    let _ = ImageMeta::decode(&mut Reader::new(bytes));
}

/// The header of a record on disk.
pub fn record(bytes: &[u8]) {
    let place = Place {
        segment: 1,
        offset: 64,
    };
    let _ = RecordHeader::decode(bytes, DiskId(7), place);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::admin::{GroupStatus, Manner, Status};
    use crate::command::{Blocks, Request};
    use crate::consensus::{Message, Meta};
    use crate::ids::{Ballot, GroupId, LayerId, NodeId, SessionId, Slot, VolumeId};
    use crate::wire::{Change, Hello, Op, Refusal, Reply, Source};

    fn request() -> Request {
        let session = SessionId {
            node: NodeId(2),
            life: 1 << 41,
            connection: 9,
        };
        Request {
            session,
            number: 300,
            answered: 299,
        }
    }

    fn frames() -> Vec<Vec<u8>> {
        let entries = vec![Meta {
            slot: Slot(5),
            ballot: Ballot(3),
            bytes: 3,
            members: None,
        }];
        let (previous, chosen, round) = ((Slot(4), Ballot(2)), Slot(4), 1);
        let message = Message::Accept {
            ballot: Ballot(3),
            previous,
            entries,
            chosen,
            last: chosen,
            round,
        };
        let (id, group, by, volume) = (7, GroupId(3), request(), VolumeId(4));
        let source = Source::Layer(volume, LayerId(2));
        let hello = Hello {
            node: NodeId(1),
            disk: DiskId(u64::MAX),
            life: 3,
            cluster: 4,
            address: "host:7101".to_string(),
        };
        let data = Arc::new(vec![1, 2, 3]);
        let ops = [
            Op::Open(by.session),
            Op::Close(by.session),
            Op::Write {
                by,
                volume,
                offset: 5,
                data,
            },
            Op::Discard {
                by,
                volume,
                offset: 5,
                length: 1 << 33,
            },
            Op::Read {
                source,
                offset: 0,
                length: 512,
                allocation: true,
            },
            Op::Command(vec![0]),
            Op::Order {
                by,
                command: vec![0],
            },
            Op::Transfer(NodeId(2)),
            Op::Member {
                change: Change::Add(NodeId(4), "host:1".to_string()),
                since: Some(3),
            },
        ];
        let mut frames: Vec<Frame> = ops
            .into_iter()
            .map(|op| Frame::Ask { id, group, op })
            .collect();
        let results = [
            Ok(Reply::Data(vec![9; 10])),
            Ok(Reply::Local {
                data: vec![9; 10],
                age: Some(300),
            }),
            Ok(Reply::Runs(vec![(4096, true), (512, false)])),
            Ok(Reply::System(vec![1], Slot(7))),
            Ok(Reply::Members(3)),
            Err(Refusal::NotLeader(Some(NodeId(3)))),
            Err(Refusal::Failed("no".to_string())),
        ];
        frames.extend(results.map(|result| Frame::Answer { id, result }));
        let bodies = vec![vec![1, 2, 3].into(), vec![4].into()];
        frames.push(Frame::Consensus {
            group,
            message,
            bodies,
        });
        frames.push(Frame::Hello(hello));
        frames
            .into_iter()
            .map(|frame| frame.encode().flat())
            .collect()
    }

    fn others() -> Vec<Vec<u8>> {
        let (by, volume) = (request(), VolumeId(4));
        let blocks = Blocks {
            volume,
            first: 3,
            count: 2,
        };
        let mut write = Vec::new();
        Command::Write {
            by,
            blocks,
            checksums: vec![1, 2],
        }
        .encode(&mut write);
        write.extend_from_slice(&[5; 40]);
        let manner = Manner {
            wait: 30_000,
            direct: true,
        };
        let name = "disk".to_string();
        let group = GroupStatus {
            members: vec![(1, true, "host:1".to_string(), 8)],
            ..GroupStatus::default()
        };
        let status = Status {
            groups: vec![group],
            linked: vec![2, 3],
            ..Status::default()
        };
        vec![
            write,
            Question::Write {
                volume: name,
                offset: 1,
                data: Arc::new(vec![3; 9]),
                manner,
            }
            .encode(),
            Answer::Status(Box::new(status)).encode(),
            Answer::Map(vec![(1, 2, 3, 4)]).encode(),
            SystemCommand::Grow {
                name: "disk".to_string(),
                size: 1 << 40,
            }
            .encode(),
        ]
    }

    #[test]
    fn no_bytes_panic_and_what_is_decoded_survives() {
        let rounds = std::env::var("ESKER_FUZZ")
            .ok()
            .and_then(|n| n.parse().ok())
            .unwrap_or(200);
        let mut rng = fastrand::Rng::with_seed(35);
        let all: Vec<Vec<u8>> = frames().into_iter().chain(others()).collect();
        for bytes in &all {
            assert!(frames().iter().all(|frame| Frame::decode(frame).is_some()));
            for round in 0..rounds {
                let mut other = bytes.clone();
                for _ in 0..round % 4 {
                    let at = rng.usize(0..other.len());
                    other[at] = rng.u8(..);
                }
                if round % 5 == 4 {
                    other.truncate(rng.usize(0..=other.len()));
                }
                frame(&other);
                client(&other);
                command(&other);
                state(&other);
                record(&other);
            }
        }
    }
}
