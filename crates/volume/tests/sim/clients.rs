//! What clients ask for, and what they are answered. A sector has the number of the write that
//! wrote it.

use std::ops::Range;
use std::sync::Arc;

use esker_volume::ids::{GroupId, NodeId, VolumeId};
use esker_volume::node::input::{ConnectionId, Input, Manner, Work};
use esker_volume::system::{RANGE, Source, SystemCommand, SystemOutcome};
use esker_volume::wire::{Change, Refusal, Reply};

use super::action::{At, By, What};
use super::world::World;

/// Bytes of a sector: the unit that is checked.
pub(crate) const SECTOR: u64 = 512;

/// A volume that clients use.
pub(crate) struct Volume {
    pub(crate) name: String,
    pub(crate) id: VolumeId,
    /// What its sectors had at first, where it is a clone.
    pub(crate) first: Vec<(u64, u64)>,
    /// Bytes, and the most that they may be: a larger size was asked for.
    pub(crate) size: u64,
    pub(crate) most: u64,
    pub(crate) is_deleted: bool,
}

impl Volume {
    pub(crate) fn new(name: String, id: VolumeId, size: u64) -> Volume {
        Volume {
            name,
            id,
            first: Vec::new(),
            size,
            most: size,
            is_deleted: false,
        }
    }
}

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    Write,
    Discard,
    Read,
    Local,
    /// Of a snapshot.
    Taken(usize),
    System,
    Other,
}

/// What was answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answered {
    Done,
    /// What sectors have.
    Values(Vec<u64>),
    System(SystemOutcome),
    Failed(String),
    /// The connection ended before.
    Lost,
}

/// A request.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) kind: Kind,
    pub(crate) volume: usize,
    pub(crate) sectors: Range<u64>,
    pub(crate) node: NodeId,
    pub(crate) connection: ConnectionId,
    pub(crate) invoked: u64,
    pub(crate) responded: u64,
    pub(crate) answered: Option<Answered>,
}

impl Call {
    pub(crate) fn is_pending(&self) -> bool {
        self.answered.is_none()
    }

    pub(crate) fn is_done(&self) -> bool {
        self.answered == Some(Answered::Done)
    }
}

/// The value of a write: rises, and is not that of zeros.
pub(crate) fn value(call: usize) -> u64 {
    call as u64 + 1
}

fn fill(call: usize, sectors: &Range<u64>) -> Vec<u8> {
    let mut data = Vec::new();
    for sector in sectors.clone() {
        let word = value(call) << 32 | sector;
        (0..SECTOR / 8).for_each(|_| data.extend_from_slice(&word.to_le_bytes()));
    }
    data
}

fn read_sector(sector: u64, bytes: &[u8]) -> u64 {
    let mut words = bytes
        .chunks_exact(8)
        .map(|word| u64::from_le_bytes(word.try_into().unwrap()));
    let first = words.next().unwrap();
    assert!(
        words.all(|word| word == first),
        "sector {sector} is torn or damaged"
    );
    assert!(
        first == 0 || first as u32 as u64 == sector,
        "sector {sector} has another's data"
    );
    first >> 32
}

impl World {
    /// The sectors that a step means.
    pub(crate) fn sectors(&self, at: At) -> (usize, Range<u64>) {
        let volume = usize::from(at.volume) % self.volumes.len();
        let areas = u64::from(self.settings.groups) + 1;
        let area = u64::from(at.area) % areas;
        let back = match area {
            0 => 0,
            // Around the border of two ranges.
            _ => 2 * u64::from(self.settings.block_size) / SECTOR,
        };
        let from = area * (RANGE / SECTOR) - back + u64::from(at.from);
        (volume, from..from + u64::from(at.count.max(1)))
    }

    /// The sectors of a volume that are used: all that [`World::sectors`] returns, as far as it has
    /// them.
    pub(crate) fn areas(&self, volume: usize) -> Vec<Range<u64>> {
        self.areas_within(self.volumes[volume].size)
    }

    /// The same of a volume or snapshot of so many bytes.
    pub(crate) fn areas_within(&self, size: u64) -> Vec<Range<u64>> {
        let sectors = size / SECTOR;
        let block = u64::from(self.settings.block_size) / SECTOR;
        let areas = u64::from(self.settings.groups) + 1;
        let area = |area: u64| {
            let back = if area == 0 { 0 } else { 2 * block };
            let from = area * (RANGE / SECTOR) - back;
            from..sectors.min(from + 9 * block)
        };
        // The last one may be there in part: requests within that are answered.
        let is_in = |area: &Range<u64>| area.start < area.end;
        (0..areas).map(area).filter(is_in).collect()
    }

    /// Asks through a connection, which is opened where there is none.
    pub(crate) fn call(
        &mut self,
        by: By,
        kind: Kind,
        at: (usize, Range<u64>),
        work: impl FnOnce(usize) -> Work,
    ) -> Option<usize> {
        let id = self.pick(by.node);
        self.node(id).core.as_ref()?;
        let known = self.node(id).connections.get(&by.connection).copied();
        let connection = known.unwrap_or_else(|| {
            self.next_connection += 1;
            let connection = ConnectionId(self.next_connection);
            self.node(id).connections.insert(by.connection, connection);
            self.node(id).open.insert(connection);
            self.input(id, Input::Open(connection));
            connection
        });
        let call = self.calls.len();
        let work = work(call);
        self.calls.push(Call {
            kind,
            volume: at.0,
            sectors: at.1,
            node: id,
            connection,
            invoked: self.count,
            responded: 0,
            answered: None,
        });
        self.count += 1;
        let manner = Manner {
            wait: u64::from(by.wait),
            direct: by.direct,
        };
        let ticket = call as u64;
        self.input(
            id,
            Input::Request {
                connection,
                ticket,
                work,
                manner,
            },
        );
        Some(call)
    }

    /// What a step asks for.
    pub(crate) fn ask_for(&mut self, what: &What) -> Option<usize> {
        let (What::Write(by, at)
        | What::Discard(by, at)
        | What::Read(by, at)
        | What::ReadLocal(by, at)) = *what
        else {
            return None;
        };
        let (volume, mut sectors) = self.sectors(at);
        if matches!(what, What::ReadLocal(..)) {
            // Of one group.
            let border = (sectors.start * SECTOR / RANGE + 1) * RANGE / SECTOR;
            sectors.end = sectors.end.min(border);
        }
        self.ask(by, what, volume, sectors)
    }

    pub(crate) fn ask(
        &mut self,
        by: By,
        what: &What,
        volume: usize,
        sectors: Range<u64>,
    ) -> Option<usize> {
        let number = self.volumes[volume].id;
        let offset = sectors.start * SECTOR;
        let length = (sectors.end - sectors.start) * SECTOR;
        let source = Source::Volume(number);
        let at = (volume, sectors.clone());
        match what {
            What::Write(..) => self.call(by, Kind::Write, at, |call| Work::Write {
                volume: number,
                offset,
                data: Arc::new(fill(call, &sectors)),
            }),
            What::Discard(..) => self.call(by, Kind::Discard, at, |_| Work::Discard {
                volume: number,
                offset,
                length,
            }),
            What::Read(..) => self.call(by, Kind::Read, at, |_| Work::Read {
                source,
                offset,
                length: length as u32,
            }),
            _ => self.call(by, Kind::Local, at, |_| Work::ReadLocal {
                source,
                offset,
                length: length as u32,
            }),
        }
    }

    /// Reads sectors of a source that is no volume's present.
    pub(crate) fn ask_source(
        &mut self,
        by: By,
        kind: Kind,
        at: (usize, Range<u64>),
        source: Source,
    ) -> Option<usize> {
        let offset = at.1.start * SECTOR;
        let length = ((at.1.end - at.1.start) * SECTOR) as u32;
        self.call(by, kind, at, |_| Work::Read {
            source,
            offset,
            length,
        })
    }

    /// Sends a command to the system group.
    pub(crate) fn command(&mut self, node: u8, command: &SystemCommand) -> Option<usize> {
        let by = By {
            node,
            connection: 9,
            wait: 3000,
            direct: false,
        };
        let command = command.encode();
        self.call(by, Kind::System, (0, 0..0), |_| Work::System(command))
    }

    pub(crate) fn transfer(&mut self, group: u8, node: u8) {
        let group = GroupId(u16::from(group) % (self.settings.groups + 1));
        let (to, by) = (
            self.pick(node),
            By {
                node,
                connection: 9,
                wait: 1000,
                direct: false,
            },
        );
        self.call(by, Kind::Other, (0, 0..0), |_| Work::Transfer(group, to));
    }

    pub(crate) fn change(&mut self, node: u8, group: GroupId, change: Change) -> Option<usize> {
        let by = By {
            node,
            connection: 9,
            wait: 1000,
            direct: false,
        };
        self.call(by, Kind::Other, (0, 0..0), |_| Work::Member(group, change))
    }

    pub(crate) fn answered(&mut self, ticket: u64, result: Result<Reply, Refusal>) {
        let result = match result {
            Ok(Reply::Local { data, .. }) => Ok(Reply::Data(data)),
            other => other,
        };
        self.say(|| {
            let short = match &result {
                Ok(Reply::Data(data)) => format!("{} bytes", data.len()),
                other => format!("{other:?}"),
            };
            format!("  call {ticket} is answered: {short}")
        });
        self.count += 1;
        let now = self.count;
        let call = &mut self.calls[ticket as usize];
        assert!(
            call.answered.is_none() || call.answered == Some(Answered::Lost),
            "call {ticket} is answered twice"
        );
        if call.answered.is_some() {
            return;
        }
        call.responded = now;
        let sectors = call.sectors.clone();
        if let (Ok(_), Some(volume)) = (&result, self.volumes.get(call.volume)) {
            let is_within = sectors.end * SECTOR <= volume.most;
            assert!(is_within, "{call:?} is beyond the volume's end");
        }
        if let (Err(refusal), Kind::Read | Kind::Write | Kind::Taken(_)) = (&result, &call.kind) {
            let text = refusal.to_string();
            let map = format!("{}/map", super::node::DIR);
            assert!(
                !text.contains(&map),
                "call {ticket} is answered by a replica with a damaged map: {text}"
            );
            let segments = format!("{}/segments", super::node::DIR);
            assert!(
                !text.contains(&segments),
                "call {ticket} fails for a block that others have: {text}"
            );
        }
        call.answered = Some(match (result, &call.kind) {
            (Err(refusal), _) => Answered::Failed(refusal.to_string()),
            (Ok(Reply::Data(data)), Kind::Read | Kind::Local | Kind::Taken(_)) => {
                assert_eq!(data.len() as u64, (sectors.end - sectors.start) * SECTOR);
                let chunks = sectors.zip(data.chunks_exact(SECTOR as usize));
                let values = chunks.map(|(sector, bytes)| read_sector(sector, bytes));
                Answered::Values(values.collect())
            }
            (Ok(Reply::System(bytes, _)), Kind::System) => {
                Answered::System(SystemOutcome::decode(&bytes).unwrap())
            }
            (Ok(Reply::Done), Kind::Write | Kind::Discard | Kind::Other) => Answered::Done,
            (Ok(other), kind) => panic!("call {ticket}, {kind:?}, is answered {other:?}"),
        });
    }

    /// The calls of a node that crashed have no answers.
    pub(crate) fn forget_calls(&mut self, id: NodeId) {
        let calls = self
            .calls
            .iter_mut()
            .filter(|call| call.node == id && call.is_pending());
        calls.for_each(|call| call.answered = Some(Answered::Lost));
    }

    /// The node ends a connection.
    pub(crate) fn ended(&mut self, id: NodeId, connection: ConnectionId) {
        if !self.node(id).open.remove(&connection) {
            return;
        }
        self.node(id)
            .connections
            .retain(|_, other| *other != connection);
        let calls = self
            .calls
            .iter_mut()
            .filter(|call| call.connection == connection);
        calls
            .filter(|call| call.is_pending())
            .for_each(|call| call.answered = Some(Answered::Lost));
        self.input(id, Input::Closed(connection));
    }

    pub(crate) fn hang(&mut self, id: NodeId, number: u8) {
        if let Some(connection) = self.node(id).connections.get(&number).copied() {
            self.ended(id, connection);
        }
    }

    /// The volume that every run has.
    pub(crate) fn create_volume(&mut self) {
        let [_, size] = self.sizes();
        let create = SystemCommand::Create {
            name: "v".to_string(),
            size,
            block_size: self.settings.block_size,
        };
        let mut call = None;
        for _ in 0..400 {
            self.run_for(50);
            let info = call.and_then(|call: usize| match &self.calls[call].answered {
                Some(Answered::System(SystemOutcome::Ok(Some(info)))) if info.is_ready => {
                    Some(info.id)
                }
                _ => None,
            });
            if let Some(id) = info {
                self.volumes.push(Volume::new("v".to_string(), id, size));
                return;
            }
            if call.is_none_or(|call| !self.calls[call].is_pending()) {
                call = self.command(0, &create);
            }
        }
        panic!("no volume: {:?}", call.map(|call| &self.calls[call]));
    }

    /// The volumes that there are.
    fn live_volumes(&self) -> Vec<usize> {
        let all = 0..self.volumes.len();
        all.filter(|volume| !self.volumes[*volume].is_deleted)
            .collect()
    }

    /// Once all is healed, every member takes writes, and all of it can be read.
    pub(crate) fn write_anew(&mut self) {
        let mut calls = Vec::new();
        for id in self.members.clone() {
            let by = By {
                node: (id.0 - 1) as u8,
                connection: 7,
                wait: 20_000,
                direct: false,
            };
            for volume in self.live_volumes() {
                for area in self.areas(volume) {
                    let sector = (area.start + u64::from(id.0)).min(area.end - 1);
                    let at = sector..sector + 1;
                    let what = What::Write(
                        by,
                        At {
                            volume: 0,
                            area: 0,
                            from: 0,
                            count: 0,
                        },
                    );
                    calls.extend(self.ask(by, &what, volume, at));
                }
            }
        }
        self.converge();
        for call in calls {
            assert!(
                self.calls[call].is_done(),
                "a last write: {:?}",
                self.calls[call]
            );
        }
    }

    /// Reads everything, through every member.
    pub(crate) fn read_all(&mut self) {
        let mut calls = Vec::new();
        for id in self.members.clone() {
            let by = By {
                node: (id.0 - 1) as u8,
                connection: 8,
                wait: 20_000,
                direct: false,
            };
            for volume in self.live_volumes() {
                for area in self.areas(volume) {
                    let what = What::Read(
                        by,
                        At {
                            volume: 0,
                            area: 0,
                            from: 0,
                            count: 0,
                        },
                    );
                    calls.extend(self.ask(by, &what, volume, area.clone()));
                    let border = (area.start * SECTOR / RANGE + 1) * RANGE / SECTOR;
                    let local = area.start..area.end.min(border);
                    let what = What::ReadLocal(
                        by,
                        At {
                            volume: 0,
                            area: 0,
                            from: 0,
                            count: 0,
                        },
                    );
                    calls.extend(self.ask(by, &what, volume, local));
                }
            }
            self.read_snapshots(by);
        }
        self.converge();
        for call in calls {
            let is_read = matches!(self.calls[call].answered, Some(Answered::Values(_)));
            assert!(is_read, "a last read: {:?}", self.calls[call]);
            if self.calls[call].kind == Kind::Local {
                // All replicas are at rest: what they have is the present.
                self.calls[call].kind = Kind::Read;
            }
        }
    }
}
