//! Runs that failed once, made small.

#[allow(unused_imports)]
use esker_sim::memory::PowerCut::*;

#[allow(unused_imports)]
use super::action::What::*;
#[allow(unused_imports)]
use super::action::{At, By, Settings, Step, What};
#[allow(unused_imports)]
use super::traps::{Cue::*, Then};
use super::world::World;

#[allow(dead_code)]
fn run(settings: &Settings, steps: &[Step]) {
    esker_sim::world::run::<World>(*settings, steps);
}

#[allow(dead_code)]
fn step(after: u64, what: What) -> Step {
    Step { after, what }
}

/// The hello of a node that belonged to a cluster by then came behind an earlier one, and a replica
/// that was behind did not take it for a leader.
#[test]
#[rustfmt::skip]
fn seed_504343() {
    run(&Settings { seed: 504343, nodes: 3, spare: true, groups: 2, block_size: 512, segment_bytes: 32768, flush_bytes: 32768, log_segments: 2, window: 8388608, message: 1024, live_percent: 30, lost: 0, twice: 1, late: 40, delay: 3, sync: 5, session_loss: 500, lease: true, wild: true }, &[
        step(209, Read(By { node: 7, connection: 1, wait: 5633, direct: false }, At { volume: 0, area: 0, from: 1, count: 1 })),
        step(272, Read(By { node: 1, connection: 1, wait: 2313, direct: false }, At { volume: 0, area: 2, from: 1, count: 3 })),
        step(112, Read(By { node: 2, connection: 2, wait: 417, direct: false }, At { volume: 0, area: 2, from: 4, count: 1 })),
        step(28, Read(By { node: 4, connection: 2, wait: 2093, direct: false }, At { volume: 0, area: 0, from: 1, count: 3 })),
        step(300, Write(By { node: 1, connection: 2, wait: 1902, direct: false }, At { volume: 0, area: 3, from: 3, count: 1 })),
        step(236, Break(5, 6)),
        step(277, Read(By { node: 3, connection: 1, wait: 3715, direct: false }, At { volume: 0, area: 0, from: 4, count: 3 })),
        step(277, Write(By { node: 7, connection: 1, wait: 3922, direct: false }, At { volume: 0, area: 2, from: 3, count: 3 })),
        step(150, Write(By { node: 4, connection: 1, wait: 1799, direct: false }, At { volume: 0, area: 0, from: 2, count: 1 })),
        step(185, Clock(5, 750)),
        step(52, ReadLocal(By { node: 5, connection: 2, wait: 2716, direct: false }, At { volume: 0, area: 3, from: 0, count: 1 })),
        step(272, Read(By { node: 7, connection: 0, wait: 3110, direct: false }, At { volume: 0, area: 1, from: 3, count: 2 })),
        step(102, Write(By { node: 4, connection: 1, wait: 169, direct: false }, At { volume: 0, area: 2, from: 2, count: 1 })),
        step(228, Read(By { node: 3, connection: 1, wait: 387, direct: false }, At { volume: 0, area: 0, from: 0, count: 1 })),
        step(206, Read(By { node: 6, connection: 0, wait: 4906, direct: false }, At { volume: 0, area: 3, from: 4, count: 3 })),
        step(55, Write(By { node: 4, connection: 0, wait: 3563, direct: false }, At { volume: 0, area: 1, from: 0, count: 2 })),
        step(224, Write(By { node: 2, connection: 0, wait: 3527, direct: false }, At { volume: 0, area: 2, from: 0, count: 2 })),
        step(43, Plot(7, 0)),
        step(292, Isolate(2, 2401)),
        step(109, Clock(2, 1223)),
        step(154, Isolate(1, 1775)),
        step(201, ReadLocal(By { node: 7, connection: 1, wait: 4892, direct: false }, At { volume: 0, area: 2, from: 1, count: 2 })),
        step(66, Discard(By { node: 2, connection: 2, wait: 1483, direct: false }, At { volume: 0, area: 2, from: 1, count: 2 })),
        step(56, Write(By { node: 7, connection: 2, wait: 1373, direct: false }, At { volume: 0, area: 0, from: 2, count: 3 })),
        step(158, Break(1, 7)),
        step(125, Write(By { node: 6, connection: 0, wait: 179, direct: false }, At { volume: 0, area: 1, from: 1, count: 1 })),
        step(150, Write(By { node: 4, connection: 0, wait: 149, direct: false }, At { volume: 0, area: 1, from: 4, count: 1 })),
        step(123, Write(By { node: 6, connection: 1, wait: 1806, direct: true }, At { volume: 0, area: 1, from: 1, count: 3 })),
        step(21, Read(By { node: 6, connection: 1, wait: 2937, direct: false }, At { volume: 0, area: 2, from: 0, count: 2 })),
        step(58, Read(By { node: 0, connection: 0, wait: 1875, direct: false }, At { volume: 0, area: 0, from: 1, count: 3 })),
        step(261, Read(By { node: 5, connection: 1, wait: 887, direct: false }, At { volume: 0, area: 2, from: 1, count: 2 })),
        step(34, Discard(By { node: 6, connection: 1, wait: 3954, direct: false }, At { volume: 0, area: 3, from: 1, count: 1 })),
        step(139, Read(By { node: 5, connection: 1, wait: 5889, direct: false }, At { volume: 0, area: 2, from: 0, count: 1 })),
        step(25, Read(By { node: 5, connection: 2, wait: 4236, direct: false }, At { volume: 0, area: 3, from: 4, count: 2 })),
        step(163, Write(By { node: 5, connection: 2, wait: 1737, direct: false }, At { volume: 0, area: 3, from: 1, count: 3 })),
        step(29, Read(By { node: 0, connection: 2, wait: 3552, direct: false }, At { volume: 0, area: 2, from: 3, count: 3 })),
        step(65, Write(By { node: 4, connection: 0, wait: 3916, direct: false }, At { volume: 0, area: 1, from: 1, count: 3 })),
        step(87, Hang(2, 0)),
        step(91, Write(By { node: 3, connection: 0, wait: 3985, direct: false }, At { volume: 0, area: 2, from: 2, count: 3 })),
        step(215, Join(false)),
        step(243, Write(By { node: 5, connection: 2, wait: 2862, direct: false }, At { volume: 0, area: 3, from: 4, count: 1 })),
        step(147, Read(By { node: 6, connection: 0, wait: 4395, direct: false }, At { volume: 0, area: 0, from: 3, count: 1 })),
        step(200, Read(By { node: 0, connection: 0, wait: 2518, direct: false }, At { volume: 0, area: 2, from: 0, count: 2 })),
        step(151, Write(By { node: 6, connection: 2, wait: 3672, direct: false }, At { volume: 0, area: 2, from: 1, count: 1 })),
        step(155, Read(By { node: 2, connection: 2, wait: 5213, direct: false }, At { volume: 0, area: 3, from: 4, count: 3 })),
        step(250, ReadLocal(By { node: 6, connection: 2, wait: 3874, direct: false }, At { volume: 0, area: 0, from: 0, count: 2 })),
        step(198, Replace),
        step(254, Write(By { node: 4, connection: 0, wait: 1231, direct: false }, At { volume: 0, area: 2, from: 1, count: 2 })),
        step(0, Read(By { node: 0, connection: 0, wait: 2970, direct: false }, At { volume: 0, area: 3, from: 4, count: 2 })),
        step(175, Read(By { node: 2, connection: 0, wait: 4351, direct: false }, At { volume: 0, area: 2, from: 3, count: 1 })),
        step(20, Discard(By { node: 4, connection: 2, wait: 4747, direct: false }, At { volume: 0, area: 0, from: 1, count: 2 })),
        step(281, Break(2, 3)),
        step(20, Write(By { node: 2, connection: 1, wait: 1794, direct: false }, At { volume: 0, area: 2, from: 0, count: 2 })),
        step(46, Read(By { node: 0, connection: 0, wait: 3948, direct: false }, At { volume: 0, area: 3, from: 4, count: 3 })),
        step(160, Isolate(6, 1826)),
        step(45, Break(0, 3)),
        step(266, Block(2, 2, 2155)),
        step(72, Hang(7, 2)),
        step(146, Read(By { node: 7, connection: 0, wait: 2399, direct: false }, At { volume: 0, area: 0, from: 3, count: 3 })),
        step(238, Write(By { node: 4, connection: 2, wait: 5910, direct: false }, At { volume: 0, area: 2, from: 0, count: 1 })),
        step(52, Write(By { node: 5, connection: 1, wait: 1616, direct: false }, At { volume: 0, area: 0, from: 0, count: 2 })),
        step(262, ReadLocal(By { node: 2, connection: 0, wait: 4450, direct: true }, At { volume: 0, area: 0, from: 4, count: 2 })),
        step(11, ReadLocal(By { node: 6, connection: 0, wait: 1503, direct: false }, At { volume: 0, area: 0, from: 1, count: 2 })),
        step(134, Break(2, 1)),
        step(196, Write(By { node: 3, connection: 2, wait: 4900, direct: false }, At { volume: 0, area: 3, from: 2, count: 1 })),
        step(30, Write(By { node: 0, connection: 0, wait: 5843, direct: false }, At { volume: 0, area: 3, from: 2, count: 1 })),
        step(269, Read(By { node: 4, connection: 0, wait: 2805, direct: false }, At { volume: 0, area: 0, from: 4, count: 2 })),
        step(31, Join(false)),
        step(244, Write(By { node: 4, connection: 1, wait: 4320, direct: false }, At { volume: 0, area: 0, from: 4, count: 1 })),
        step(126, Write(By { node: 2, connection: 0, wait: 1114, direct: false }, At { volume: 0, area: 0, from: 0, count: 1 })),
        step(39, Read(By { node: 6, connection: 1, wait: 3205, direct: false }, At { volume: 0, area: 1, from: 3, count: 2 })),
        step(184, Write(By { node: 1, connection: 1, wait: 943, direct: false }, At { volume: 0, area: 1, from: 2, count: 2 })),
        step(252, Read(By { node: 6, connection: 1, wait: 1059, direct: false }, At { volume: 0, area: 3, from: 0, count: 2 })),
        step(104, ReadLocal(By { node: 4, connection: 2, wait: 5839, direct: false }, At { volume: 0, area: 0, from: 4, count: 1 })),
        step(151, Read(By { node: 6, connection: 0, wait: 4016, direct: false }, At { volume: 0, area: 0, from: 3, count: 3 })),
        step(15, Break(2, 6)),
        step(299, Read(By { node: 4, connection: 1, wait: 5775, direct: false }, At { volume: 0, area: 0, from: 0, count: 1 })),
        step(216, Read(By { node: 3, connection: 2, wait: 4930, direct: false }, At { volume: 0, area: 2, from: 4, count: 2 })),
        step(113, ReadLocal(By { node: 6, connection: 2, wait: 2806, direct: false }, At { volume: 0, area: 1, from: 3, count: 1 })),
        step(12, Read(By { node: 5, connection: 2, wait: 4296, direct: true }, At { volume: 0, area: 2, from: 3, count: 1 })),
        step(152, Pause(1, 1663)),
        step(78, Break(3, 7)),
        step(178, Write(By { node: 7, connection: 0, wait: 3113, direct: false }, At { volume: 0, area: 0, from: 2, count: 3 })),
        step(190, Break(1, 7)),
        step(94, Write(By { node: 7, connection: 2, wait: 2070, direct: false }, At { volume: 0, area: 3, from: 3, count: 2 })),
        step(158, Break(6, 3)),
        step(293, Read(By { node: 2, connection: 2, wait: 875, direct: true }, At { volume: 0, area: 1, from: 0, count: 2 })),
        step(276, Write(By { node: 1, connection: 0, wait: 1693, direct: false }, At { volume: 0, area: 0, from: 1, count: 3 })),
        step(105, Discard(By { node: 1, connection: 1, wait: 3404, direct: false }, At { volume: 0, area: 0, from: 0, count: 1 })),
        step(45, Write(By { node: 5, connection: 0, wait: 4774, direct: false }, At { volume: 0, area: 3, from: 4, count: 2 })),
        step(180, Write(By { node: 7, connection: 2, wait: 2724, direct: false }, At { volume: 0, area: 3, from: 0, count: 3 })),
    ]);
}
