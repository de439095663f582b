//! The encoded command of an entry, with its checksum: computed once, where the command is made or
//! read, and used by the record on disk and by each frame that carries it.

use xxhash_rust::xxh3::Xxh3;

use crate::bytes::Bytes;
use crate::command::{Command, checksum};

/// An encoded command. A leader has the data of a write beside what is before them; where it came
/// in a frame or from disk it is in one piece.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Body {
    head: Bytes,
    data: Bytes,
    checksum: u64,
}

impl Body {
    /// A command and the data behind it.
    pub fn of(head: Vec<u8>, data: Bytes) -> Body {
        let mut sum = Xxh3::new();
        sum.update(&head);
        sum.update(&data);
        Body {
            head: head.into(),
            data,
            checksum: sum.digest(),
        }
    }

    /// A command in one piece, of which this was found to be the checksum.
    pub fn known(bytes: Bytes, checksum: u64) -> Body {
        Body {
            head: bytes,
            data: Bytes::default(),
            checksum,
        }
    }

    /// A command in one piece; `None` where it has another checksum.
    pub fn checked(bytes: Bytes, sum: u64) -> Option<Body> {
        (checksum(&bytes) == sum).then(|| Body::known(bytes, sum))
    }

    /// Its checksum.
    pub fn checksum(&self) -> u64 {
        self.checksum
    }

    /// How many bytes it has.
    pub fn len(&self) -> usize {
        self.head.len() + self.data.len()
    }

    /// True where it has none, which is no command.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Its pieces.
    pub fn pieces(&self) -> [&Bytes; 2] {
        [&self.head, &self.data]
    }

    /// The command, and how many bytes of data are behind it; `None` where it is none.
    pub fn decode(&self) -> Option<(Command, usize)> {
        let (command, rest) = Command::decode(&self.head)?;
        match (rest.len(), self.data.len()) {
            (rest, 0) => Some((command, rest)),
            (0, data) => Some((command, data)),
            _ => None,
        }
    }
}

impl From<Vec<u8>> for Body {
    fn from(bytes: Vec<u8>) -> Body {
        let sum = checksum(&bytes);
        Body::known(bytes.into(), sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{Blocks, Request};
    use crate::ids::{NodeId, SessionId, VolumeId};

    fn write() -> Vec<u8> {
        let session = SessionId {
            node: NodeId(1),
            life: 2,
            connection: 3,
        };
        let (number, answered) = (4, 5);
        let mut head = Vec::new();
        Command::Write {
            by: Request {
                session,
                number,
                answered,
            },
            blocks: Blocks {
                volume: VolumeId(6),
                first: 7,
                count: 1,
            },
            checksums: vec![8],
        }
        .encode(&mut head);
        head
    }

    #[test]
    fn a_command_in_two_pieces_is_the_one_in_one_piece() {
        let (head, data) = (write(), vec![9; 5000]);
        let two = Body::of(head.clone(), data.clone().into());
        let one = Body::from([head, data].concat());
        assert_eq!((two.len(), two.checksum()), (one.len(), one.checksum()));
        assert_eq!(two.decode(), one.decode());
        assert_eq!(one.decode().unwrap().1, 5000);
    }

    #[test]
    fn other_bytes_are_no_such_body() {
        let head: Bytes = write().into();
        let sum = checksum(&head);
        assert!(Body::checked(head.clone(), sum).is_some());
        assert!(Body::checked(head.clone(), sum ^ 1).is_none());
        let more = [&head[..], &[1]].concat();
        assert!(Body::of(more, vec![2].into()).decode().is_none());
    }
}
