//! The run of a seed.

use esker_sim::memory::PowerCut;
use fastrand::Rng;

use super::action::{At, By, Settings, Step, What};
use super::traps::{CUES, Cue, Then};

const CUTS: [PowerCut; 4] = [
    PowerCut::Lost,
    PowerCut::Kept,
    PowerCut::Torn,
    PowerCut::Reordered,
];

/// How often each kind of step happens in a run: nothing, or some weight.
struct Mix {
    crash: u32,
    net: u32,
    pause: u32,
    disk: u32,
    rot: u32,
    clock: u32,
    lead: u32,
    snapshots: u32,
    replace: u32,
    members: u32,
    volumes: u32,
    hang: u32,
    traps: u32,
    duels: u32,
    /// Steps follow each other this fast, in milliseconds.
    pace: u64,
    /// Steps use so many volumes.
    used: u8,
}

/// A list of steps, and what it begins with.
pub(crate) fn run(seed: u64) -> (Settings, Vec<Step>) {
    let mut random = Rng::with_seed(seed);
    let random = &mut random;
    let some = |random: &mut Rng, most: u32| {
        if random.bool() {
            random.u32(1..=most)
        } else {
            0
        }
    };
    let rough = random.u8(..3);
    let members = some(random, 2);
    let mut settings = Settings {
        seed,
        nodes: if random.u8(..8) == 0 { 5 } else { 3 },
        spare: members > 0,
        groups: random.u16(1..=4),
        block_size: *random.choice(&[512, 1024, 2048, 4096]).unwrap_or(&1024),
        segment_bytes: 32 << 10 << random.u32(..3),
        flush_bytes: 16 << 10 << random.u32(..4),
        log_segments: random.u32(1..=4),
        live_percent: *random.choice(&[30, 50, 70, 90]).unwrap_or(&50),
        window: *random
            .choice(&[1 << 10, 32 << 10, 8 << 20])
            .unwrap_or(&(8 << 20)),
        message: *random
            .choice(&[1 << 10, 1 << 10, 16 << 10, 1 << 20])
            .unwrap_or(&(1 << 20)),
        lost: if rough > 0 { random.u32(..30) } else { 0 },
        twice: if rough > 0 { random.u32(..30) } else { 0 },
        late: if rough > 1 { random.u32(..50) } else { 0 },
        delay: *random.choice(&[1, 3, 20]).unwrap_or(&3),
        sync: *random.choice(&[1, 5, 30]).unwrap_or(&5),
        session_loss: *random.choice(&[500, 2000, 10_000]).unwrap_or(&2000),
        lease: random.u8(..3) > 0,
        wild: random.u8(..6) == 0,
    };
    let mix = Mix {
        crash: some(random, 6),
        net: some(random, 6),
        pause: some(random, 3),
        disk: some(random, 3),
        rot: some(random, 3),
        clock: some(random, 3),
        lead: some(random, 4),
        snapshots: some(random, 4),
        replace: some(random, 1),
        members,
        volumes: some(random, 8),
        hang: some(random, 4),
        traps: some(random, 8),
        duels: some(random, 3),
        pace: *random.choice(&[10, 40, 150]).unwrap_or(&40),
        used: random.u8(1..=4),
    };
    let steps = random.usize(50..300);
    let steps = (0..steps).map(|_| Step {
        after: random.u64(..=mix.pace * 2),
        what: what(random, &settings, &mix),
    });
    let mut steps: Vec<Step> = steps.collect();
    // Most runs have something that chance brings together once in thousands.
    for _ in 0..random.u8(..3) {
        let what = match random.u8(..13) {
            12 => What::Plot(3, random.u8(..5)),
            9.. => {
                let (group, skip) = (random.u8(..5), random.u8(1..4));
                What::ThreeElections(group, skip, random.u16(2000..5000))
            }
            kind => What::Plot(kind, random.u8(..5)),
        };
        let after = random.u64(..=mix.pace * 2);
        steps.insert(random.usize(..=steps.len()), Step { after, what });
    }
    if random.bool() {
        scene(random, &mut settings, &mix, &mut steps);
    }
    (settings, steps)
}

/// Behind all other steps, a plot that needs several elections or starts: nothing else disturbs it.
fn scene(random: &mut Rng, settings: &mut Settings, mix: &Mix, steps: &mut Vec<Step>) {
    let kind = *random.choice(&[6, 7, 7, 8]).unwrap_or(&7);
    if kind == 7 {
        // An entry of one ballot is not in one message with that of another.
        settings.message = 1 << 10;
    }
    let what = What::Plot(kind, random.u8(..5));
    let after = random.u64(1_000..2_500);
    steps.push(Step { after, what });
    steps.extend((0..16).map(|_| Step {
        after: 500,
        what: request(random, settings, mix),
    }));
}

fn what(random: &mut Rng, settings: &Settings, mix: &Mix) -> What {
    let weights = [
        60,
        mix.crash,
        mix.net,
        mix.pause,
        mix.disk,
        mix.rot,
        mix.clock,
        mix.lead,
        mix.snapshots,
        mix.replace,
        mix.members,
        mix.volumes,
        mix.hang,
        mix.traps,
        mix.duels,
    ];
    let mut at = random.u32(..weights.iter().sum::<u32>());
    let kind = weights.iter().position(|weight| {
        let is_here = at < *weight;
        at = at.saturating_sub(*weight);
        is_here
    });
    let node = random.u8(..8);
    match kind.unwrap_or(0) {
        0 => request(random, settings, mix),
        1 if random.u8(..6) == 0 => What::Restart(node, random.u16(..1500)),
        1 if random.u8(..6) == 0 => {
            let cut = *random.choice(&CUTS).unwrap_or(&PowerCut::Lost);
            What::Blackout(cut, random.u8(..12), down(random))
        }
        1 => {
            let cut = *random.choice(&CUTS).unwrap_or(&PowerCut::Lost);
            What::Crash(node, cut, random.u8(..12), down(random))
        }
        2 => match random.u8(..3) {
            0 => What::Block(node, random.u8(..8), random.u16(..4000)),
            1 => What::Isolate(node, random.u16(..4000)),
            _ => What::Break(node, random.u8(..8)),
        },
        3 => What::Pause(node, random.u16(..2500)),
        4 if random.u8(..3) == 0 => {
            let millis = if random.bool() { 0 } else { random.u16(..1500) };
            What::Unreadable(node, random.u8(..20), millis)
        }
        4 => match random.u8(..3) {
            0 if random.u8(..4) == 0 => What::Slow(node, random.u16(..6000)),
            0 => What::Slow(node, random.u16(..1000)),
            1 if random.bool() => What::FailAhead(node, random.u16(..300)),
            1 => What::FailSync(node),
            _ => What::Full(node, random.u16(..20_000), random.u16(..5000)),
        },
        5 => match random.u8(..10) {
            0..3 => What::Scrub(node),
            3..5 => What::RotMap(random.u8(..)),
            _ => What::Rot(random.u8(..)),
        },
        6 => What::Clock(
            node,
            if settings.wild {
                random.u16(300..3000)
            } else {
                *random.choice(&[950, 1000, 1050]).unwrap_or(&1000)
            },
        ),
        7 => What::Transfer(random.u8(..5), node),
        8 => match random.u8(..6) {
            0 => What::Clone(random.u8(..)),
            1 => What::Forget(random.u8(..)),
            _ => What::Snapshot(random.u8(..)),
        },
        9 => What::Replace,
        10 => match random.u8(..5) {
            0..3 => What::Join(random.bool()),
            _ => What::Leave(node),
        },
        11 => match random.u8(..8) {
            0..3 => What::Create(random.u8(..)),
            3..5 => What::Grow(random.u8(..)),
            5 => What::Rename(random.u8(..)),
            _ => What::Delete(random.u8(..)),
        },
        12 => What::Hang(node, random.u8(..3)),
        13 => trap(random, node),
        _ => directed(random),
    }
}

/// Several things that come together.
fn directed(random: &mut Rng) -> What {
    let group = random.u8(..5);
    match random.u8(..6) {
        0 => What::Plot(random.u8(..6), group),
        1 => What::ThreeElections(group, random.u8(1..4), random.u16(2000..5000)),
        2 => What::FlushCut(group, random.u16(50..500), down(random)),
        _ => What::Duel(group, random.u16(500..3000), random.bool()),
    }
}

fn trap(random: &mut Rng, node: u8) -> What {
    let cue = *random.choice(&CUES).unwrap_or(&Cue::Promise);
    let skip = if random.bool() { 0 } else { random.u8(..8) };
    let then = match random.u8(..8) {
        0..3 => {
            let cut = *random.choice(&CUTS).unwrap_or(&PowerCut::Lost);
            Then::Crash(cut, random.u8(..12), down(random))
        }
        3..5 => Then::Hold(random.u16(20..2500)),
        5 if random.bool() => Then::FlushCut(down(random)),
        5 => Then::Lose,
        6 => Then::Isolate(random.u16(300..3000)),
        _ => Then::Pause(random.u16(50..2000)),
    };
    What::Trap(node, cue, skip, then)
}

/// For how many milliseconds a node is down: often so short that others do not notice.
fn down(random: &mut Rng) -> u16 {
    let most = if random.bool() { 60 } else { 3000 };
    random.u16(..most)
}

fn request(random: &mut Rng, settings: &Settings, mix: &Mix) -> What {
    let direct = random.u8(..12) == 0;
    let by = By {
        node: random.u8(..8),
        connection: random.u8(..3),
        // As a client asks that wants its errors at once.
        wait: if direct && random.bool() {
            0
        } else {
            random.u16(100..6000)
        },
        direct,
    };
    let per_block = (settings.block_size / 512) as u8;
    let mut at = At {
        volume: random.u8(..mix.used),
        area: random.u8(..4),
        from: random.u8(..per_block * 5),
        count: random.u8(1..=per_block * 3),
    };
    if random.bool() {
        // Whole blocks.
        at.from = at.from / per_block * per_block;
        at.count = at.count.div_ceil(per_block) * per_block;
    }
    match random.u8(..12) {
        0 => What::Discard(by, at),
        1 => What::ReadLocal(by, at),
        2..6 => What::Read(by, at),
        _ => What::Write(by, at),
    }
}
