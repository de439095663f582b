//! Two replicas apply the same random commands, each in its own time, with its own places, flushes,
//! crashes, merges of layers and vacuum; one also gets images of the other. `ESKER_SEEDS=500 cargo
//! test -p esker-volume map::tests::random` runs more seeds; `ESKER_SEED=17` repeats one.

use std::collections::{BTreeMap, HashMap};

use esker_sim::memory::PowerCut;

use super::model::Model;
use super::replica::{BLOCKS, Log, Replica};
use crate::command::{Blocks, Command, Request};
use crate::error::Error;
use crate::ids::{GroupId, LayerId, NodeId, SessionId, VolumeId};
use crate::map::{Applied, Outcome};

const GROUPS: u16 = 3;
const MODES: [PowerCut; 4] = [
    PowerCut::Lost,
    PowerCut::Kept,
    PowerCut::Torn,
    PowerCut::Reordered,
];

struct World {
    rng: fastrand::Rng,
    log: Log,
    models: BTreeMap<GroupId, Model>,
    replicas: [Replica; 2],
    block_sizes: HashMap<VolumeId, u32>,
    volumes: u32,
    layers: u32,
    number: u64,
    /// What happened, so that a run without effects is noticed.
    counts: BTreeMap<&'static str, usize>,
}

impl World {
    fn new(seed: u64) -> World {
        World {
            rng: fastrand::Rng::with_seed(seed),
            log: Log::default(),
            models: BTreeMap::new(),
            replicas: [Replica::new(0), Replica::new(1000)],
            block_sizes: HashMap::new(),
            volumes: 0,
            layers: 0,
            number: 0,
            counts: BTreeMap::new(),
        }
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    fn session(&mut self) -> SessionId {
        SessionId {
            node: NodeId(self.rng.u32(1..3)),
            life: 1,
            connection: self.rng.u64(0..4) + self.number / 200,
        }
    }

    fn request(&mut self) -> Request {
        self.number += 1;
        Request {
            session: self.session(),
            number: self.number,
            answered: 0,
        }
    }

    fn any_volume(&mut self) -> VolumeId {
        VolumeId(self.rng.u32(self.volumes.saturating_sub(4)..=self.volumes))
    }

    fn any_layer(&mut self, group: GroupId) -> LayerId {
        let model = self.models.entry(group).or_default();
        let snapshots: Vec<LayerId> = model.snapshots.keys().copied().collect();
        let any = LayerId(self.rng.u32(0..=self.layers));
        // A volume's head is no snapshot: the model has no such command.
        let is_head = |layer| {
            self.models[&group]
                .volumes
                .values()
                .any(|v| v.head == layer)
        };
        let any = if is_head(any) { LayerId(0) } else { any };
        self.rng.choice(snapshots).unwrap_or(any)
    }

    fn blocks(&mut self) -> Blocks {
        let first = self.rng.u64(0..BLOCKS);
        let most = if self.rng.bool() { 3 } else { BLOCKS };
        Blocks {
            volume: self.any_volume(),
            first,
            count: self.rng.u64(1..=most.min(BLOCKS - first)) as u32,
        }
    }

    fn command(&mut self, group: GroupId) -> Command {
        match self.rng.u32(0..100) {
            0..55 => {
                let blocks = self.blocks();
                let checksums = (0..blocks.count).map(|_| self.rng.u64(..)).collect();
                Command::Write {
                    by: self.request(),
                    blocks,
                    checksums,
                }
            }
            55..65 => Command::Discard {
                by: self.request(),
                blocks: self.blocks(),
            },
            65..70 => Command::OpenSession(self.session()),
            70 => Command::CloseSession(self.session()),
            71..74 => {
                let origin = self.rng.bool().then(|| self.any_layer(group));
                let known = origin.and_then(|l| self.models[&group].snapshots.get(&l).map(|s| s.1));
                let block_size = known.unwrap_or([512, 1024][self.rng.usize(0..2)]);
                self.volumes += 1;
                self.layers += 1;
                let volume = VolumeId(self.volumes);
                self.block_sizes.insert(volume, block_size);
                Command::CreateVolume {
                    volume,
                    block_size,
                    layer: LayerId(self.layers),
                    origin,
                }
            }
            74..80 => {
                self.layers += 1;
                Command::Cut {
                    volume: self.any_volume(),
                    layer: LayerId(self.layers),
                }
            }
            80..86 => {
                let volume = self.any_volume();
                let of = self.models.entry(group).or_default().volumes.get(&volume);
                let held = of.and_then(|volume| volume.held.first().copied());
                Command::Release {
                    volume,
                    layer: held.unwrap_or_default(),
                }
            }
            86 => Command::DropVolume(self.any_volume()),
            87..92 => Command::DropLayer(self.any_layer(group)),
            92..98 => {
                let log = self.log.0.entry(group).or_default();
                let recent = log.len().saturating_sub(40);
                let again = self
                    .rng
                    .choice(&log[recent..])
                    .map(|(command, _)| command.clone());
                match again {
                    // This layer may be a head by now.
                    Some(Command::DropLayer(_)) | None => Command::Nothing,
                    Some(command) => command,
                }
            }
            _ => Command::Nothing,
        }
    }

    /// Chooses a command.
    fn choose(&mut self) {
        let group = GroupId(self.rng.u16(1..=GROUPS));
        let command = self.command(group);
        self.block_sizes.entry(VolumeId(0)).or_insert(512);
        let model = self.models.entry(group).or_default();
        let volume = match &command {
            Command::Write { blocks, .. } | Command::Discard { blocks, .. } => Some(blocks.volume),
            Command::Release { volume, .. } | Command::DropVolume(volume) => Some(*volume),
            _ => None,
        };
        let was_held = volume.is_some_and(|volume| model.is_held(volume));
        let outcome = model.apply(&command);
        let is_held = volume.is_some_and(|volume| model.is_held(volume));
        let is_request = matches!(command, Command::Write { .. } | Command::Discard { .. });
        self.count(match outcome {
            Outcome::Done => "done",
            Outcome::Repeated => "repeated",
            _ => "refused",
        });
        let has_happened = matches!(outcome, Outcome::Done | Outcome::Repeated);
        let applied = Applied {
            held: is_request && is_held && has_happened,
            released: was_held && !is_held,
            members: None,
            outcome,
        };
        let log = self.log.0.entry(group).or_default();
        log.push((command, Some(applied)));
    }

    fn catch_up(&mut self, at: usize) {
        for group in (1..=GROUPS).map(GroupId) {
            while self.replicas[at].apply(&mut self.log, &self.block_sizes, group) {}
        }
    }

    fn check(&mut self) {
        for at in 0..2 {
            self.catch_up(at);
            let replica = &self.replicas[at];
            for (group, model) in &self.models {
                replica.check(*group, model, &mut self.rng);
            }
            replica.check_usage();
        }
        for group in self.models.keys() {
            let [one, other] = &self.replicas;
            let hashes = [one, other].map(|r| r.map().state_hash(*group).unwrap());
            assert_eq!(hashes[0], hashes[1], "group {group}");
        }
    }

    /// The second replica gets an image of the first, maybe with crashes in between.
    fn install(&mut self) {
        let group = GroupId(self.rng.u16(1..=GROUPS));
        let (bytes, seed) = (self.rng.usize(1..20_000), self.rng.u64(..));
        let [from, to] = &mut self.replicas;
        if from.map().applied(group) < to.map().applied(group) {
            let image = from.map().image(group).unwrap();
            let refused = to.map().begin_install(group, image.meta());
            assert!(matches!(refused, Err(Error::OldImage { .. })));
            return;
        }
        if self.rng.bool() && !to.install(from, group, bytes, self.rng.usize(0..4)) {
            if self.rng.bool() {
                to.map().flush().unwrap();
            }
            if self.rng.bool() {
                // A flush during the installation may have kept the group incomplete; else it is as
                // it was before.
                to.crash(seed, MODES[(seed % 4) as usize]);
            }
        }
        if self.rng.bool() || to.map().is_incomplete(group) {
            assert!(to.install(from, group, bytes, usize::MAX));
        }
        let hashes =
            [&*from, &*to].map(|r| (r.map().applied(group), r.map().state_hash(group).unwrap()));
        if hashes[0].0 == hashes[1].0 {
            assert_eq!(hashes[0], hashes[1]);
        }
        self.count("install");
    }

    fn step(&mut self) {
        let at = self.rng.usize(0..2);
        match self.rng.u32(0..200) {
            0..3 => self.replicas[at].map().flush().unwrap(),
            3..6 => {
                let seed = self.rng.u64(..);
                self.replicas[at].crash(seed, MODES[(seed % 4) as usize]);
            }
            6..16 => {
                let budget = self.rng.usize(1..60);
                self.replicas[at].map().merge_layers(budget).unwrap();
            }
            16..18 => while self.replicas[at].map().merge_layers(1000).unwrap() {},
            18..22 => {
                let segments = self.replicas[at].segments();
                if let Some(segment) = self.rng.choice(segments) {
                    self.replicas[at].vacuum(segment);
                    self.count("vacuum");
                }
            }
            22..26 => {
                for _ in 0..self.replicas[at].remove_segments() {
                    self.count("removed");
                }
            }
            26..28 => self.install(),
            28..32 => self.check(),
            32..100 => self.choose(),
            _ => {
                let group = GroupId(self.rng.u16(1..=GROUPS));
                self.replicas[at].apply(&mut self.log, &self.block_sizes, group);
            }
        }
    }
}

#[test]
fn replicas_are_as_the_model() {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let usual = esker_sim::by_tier(14, 40);
    let seeds = esker_sim::seeds(usual);
    let is_whole = seeds.end - seeds.start >= usual;
    for seed in seeds {
        let mut world = World::new(seed);
        let run = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            (0..2000).for_each(|_| world.step());
            world.check();
            for replica in &mut world.replicas {
                while replica.map().merge_layers(100).unwrap() {}
            }
            world.check();
            // All that is left are volumes and snapshots.
            for replica in &world.replicas {
                replica.map().flush().unwrap();
            }
        }));
        if let Err(panic) = run {
            eprintln!("ESKER_SEED={seed}");
            std::panic::resume_unwind(panic);
        }
        for (what, count) in world.counts {
            *counts.entry(what).or_default() += count;
        }
    }
    for what in [
        "done", "repeated", "refused", "removed", "vacuum", "install",
    ] {
        let count = counts.get(what).copied().unwrap_or(0);
        assert!(
            count > esker_sim::by_tier(13, 50) || !is_whole,
            "{what}: {count}"
        );
    }
}
