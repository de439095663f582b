//! A disk that was full serves again after room is made, without a restart; one that fails does not.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::Arc;

use esker_sim::faulty::Faulty;
use esker_sim::memory::Memory;
use esker_volume::ids::{NodeId, VolumeId};
use esker_volume::node::input::{Action, ConnectionId, Input, Manner, Work};
use esker_volume::node::{Core, Settings, open, reading};
use esker_volume::system::SystemCommand;
use esker_volume::wire::{Refusal, Reply, Source};

const BLOCK: u64 = 4096;
const BLOCKS: u64 = 16;
const SEGMENT: u64 = 128 << 10;

/// A cluster of one node, in virtual time.
struct Single {
    faulty: Faulty,
    core: Core,
    now: u64,
    next: u64,
    answers: BTreeMap<u64, Result<Reply, Refusal>>,
}

impl Single {
    fn new() -> Single {
        let faulty = Faulty::new(Arc::new(Memory::new()));
        let mut single = Single {
            core: Single::open(&faulty, 0),
            faulty,
            now: 0,
            next: 0,
            answers: BTreeMap::new(),
        };
        single.begin();
        let create = SystemCommand::Create {
            name: "disk".to_string(),
            size: BLOCKS * BLOCK,
            block_size: BLOCK as u32,
        };
        let created = single.ask(Work::System(create.encode()));
        single.ticks(200);
        assert!(matches!(single.answers[&created], Ok(Reply::System(..))));
        single
    }

    fn open(faulty: &Faulty, now: u64) -> Core {
        let settings = Settings {
            peers: BTreeMap::from([(NodeId(1), "one".to_string())]),
            groups: 1,
            segment_bytes: SEGMENT as u32,
            map_bytes: 1 << 20,
            background: false,
            first_life: now,
            ..Settings::default()
        };
        open(
            Arc::new(faulty.clone()),
            Path::new("/node"),
            NodeId(1),
            settings,
            now,
        )
        .unwrap()
    }

    fn begin(&mut self) {
        let actions = self.core.start_actions();
        self.carry_out(actions);
        self.input(Input::Open(ConnectionId(1)));
        self.ticks(200);
    }

    /// The process ends and begins again.
    fn restart(&mut self) {
        self.core.close();
        self.core = Single::open(&self.faulty, self.now);
        self.begin();
    }

    fn input(&mut self, input: Input) {
        let actions = self.core.handle(self.now, input);
        self.carry_out(actions);
    }

    fn carry_out(&mut self, actions: Vec<Action>) {
        let mut waiting: VecDeque<Action> = actions.into();
        while let Some(action) = waiting.pop_front() {
            let input = match action {
                Action::Batch(batch) => Input::BatchDone(batch.run()),
                Action::Read(ticket, work) => {
                    let (map, reader) = self.core.readers();
                    Input::ReadDone(ticket, reading::run(&map, &reader, &work))
                }
                Action::Answer { ticket, result, .. } => {
                    assert!(self.answers.insert(ticket, result).is_none());
                    continue;
                }
                Action::End(_) => panic!("the session was forgotten"),
                Action::Send(..) | Action::Peers(_) => continue,
            };
            waiting.extend(self.core.handle(self.now, input));
        }
    }

    fn ticks(&mut self, count: u64) {
        for _ in 0..count {
            self.now += 10;
            self.input(Input::Tick);
        }
    }

    fn ask(&mut self, work: Work) -> u64 {
        self.next += 1;
        self.input(Input::Request {
            connection: ConnectionId(1),
            ticket: self.next,
            work,
            manner: Manner {
                wait: 3_600_000,
                direct: false,
            },
        });
        self.next
    }

    fn volume(&self) -> VolumeId {
        match self.core.readers().0.system().source("disk") {
            Some(Source::Volume(volume)) => volume,
            other => panic!("{other:?}"),
        }
    }

    fn write(&mut self, block: u64, byte: u8) -> u64 {
        let (volume, offset) = (self.volume(), block * BLOCK);
        let data = Arc::new(vec![byte; BLOCK as usize]);
        self.ask(Work::Write {
            volume,
            offset,
            data,
        })
    }

    /// The first byte of each block, each of which is equal throughout.
    fn read(&mut self) -> Vec<u8> {
        let (source, offset) = (Source::Volume(self.volume()), 0);
        let length = (BLOCKS * BLOCK) as u32;
        let read = self.ask(Work::Read {
            source,
            offset,
            length,
        });
        self.ticks(100);
        let Ok(Reply::Data(data)) = &self.answers[&read] else {
            panic!("{:?}", self.answers[&read]);
        };
        let blocks = data.chunks(BLOCK as usize);
        blocks
            .map(|block| {
                assert!(block.iter().all(|byte| *byte == block[0]));
                block[0]
            })
            .collect()
    }
}

#[test]
fn a_full_disk_serves_again_when_there_is_room() {
    let mut single = Single::new();
    let (mut expected, mut byte) = (vec![0; BLOCKS as usize], 0u8);
    let mut writes = 0;
    // The disk is full at every place within a batch and at its ends, many times over: where a
    // segment begins, whose space is reserved, and within one that was begun without such room.
    for room in (0..9_000).step_by(197) {
        single.faulty.set_capacity(single.faulty.used() + room);
        let mut asked = Vec::new();
        while !single.core.is_full() {
            byte = byte.wrapping_add(1).max(1);
            let block = u64::from(byte) % BLOCKS;
            expected[block as usize] = byte;
            asked.push(single.write(block, byte));
            single.ticks(1);
        }
        let unanswered = *asked.last().unwrap();
        assert!(!single.answers.contains_key(&unanswered));
        assert!(single.core.status().failed.contains("no room"));
        // Without room nothing changes.
        single.now += 1_000;
        assert!(single.core.reopen(single.now).is_none());
        assert!(single.core.is_full());
        // A request that comes meanwhile waits.
        byte = byte.wrapping_add(1).max(1);
        let block = u64::from(byte) % BLOCKS;
        expected[block as usize] = byte;
        asked.push(single.write(block, byte));
        single.ticks(200);
        assert!(!single.answers.contains_key(&unanswered));

        single.faulty.set_capacity(u64::MAX);
        single.now += 1_000;
        let actions = single.core.reopen(single.now).expect("there is room");
        if (room / 197) % 2 == 0 {
            single
                .faulty
                .set_capacity(single.faulty.used() + SEGMENT - 1);
        }
        single.carry_out(actions);
        single.ticks(300);
        assert_eq!(single.core.status().failed, "");
        writes += asked.len() as u64;
        for ticket in asked {
            assert_eq!(single.answers[&ticket], Ok(Reply::Done), "room {room}");
        }
        assert_eq!(single.read(), expected, "room {room}");
    }
    let status = single.core.status();
    // What was sent again counts once.
    assert_eq!(status.user, writes * BLOCK);
    assert!(status.written > status.user, "{status:?}");
    single.restart();
    assert_eq!(single.read(), expected);
}

#[test]
fn a_disk_that_fails_stays_given_up() {
    let mut single = Single::new();
    let done = single.write(1, 7);
    single.ticks(10);
    assert_eq!(single.answers[&done], Ok(Reply::Done));
    single.faulty.fail_sync_once();
    let failed = single.write(1, 8);
    single.ticks(100);
    assert!(!single.answers.contains_key(&failed));
    assert_ne!(single.core.status().failed, "");
    assert!(!single.core.is_full());
    single.now += 10_000;
    assert!(single.core.reopen(single.now).is_none());
    single.ticks(300);
    assert!(!single.answers.contains_key(&failed));
    // The log may have it, or not.
    single.restart();
    let read = single.read()[1];
    assert!(read == 7 || read == 8, "{read}");
}

#[test]
fn a_disk_that_fails_while_it_is_opened_again_is_given_up() {
    let mut single = Single::new();
    single.faulty.set_capacity(single.faulty.used());
    while !single.core.is_full() {
        single.write(1, 7);
        single.ticks(1);
    }
    single.faulty.set_capacity(u64::MAX);
    single.faulty.fail_sync_once();
    assert!(single.core.reopen(single.now).is_none());
    assert!(!single.core.is_full());
    assert_ne!(single.core.status().failed, "");
}
