//! A small two-dimensional partitioner, and a policy with several runs in a level: the contracts of
//! the engine's traits, in few lines. Follows CONTRIBUTING.md, "How to add a policy or a
//! partitioner".

use std::collections::BTreeSet;
use std::sync::Arc;

use esker_lsm::digest::{Digest, Digester};
use esker_lsm::version::TreeVersion;
use esker_lsm::{Action, Choice, CompactionPolicy, Cutter, Cutting, Partitioner, TreeOptions};

/// Places keys in the plane, by their second byte and their last.
#[derive(Debug)]
pub(crate) struct Plane;

/// The place of a key: keys of one byte, or none, have places, too.
pub(crate) fn place(key: &[u8]) -> (u8, u8) {
    let byte = |at: Option<&u8>| at.copied().unwrap_or(0);
    (byte(key.get(1)), byte(key.last()))
}

/// Bounds: the least and the greatest x, the least and the greatest y.
fn rectangle(bounds: &[u8]) -> Option<[u8; 4]> {
    bounds.try_into().ok()
}

impl Partitioner for Plane {
    fn id(&self) -> u32 {
        77
    }

    fn cover(&self, bounds: &mut Vec<u8>, key: &[u8]) {
        let (x, y) = place(key);
        let [x0, x1, y0, y1] = rectangle(bounds).unwrap_or([x, x, y, y]);
        *bounds = vec![x0.min(x), x1.max(x), y0.min(y), y1.max(y)];
    }

    fn covers(&self, bounds: &[u8], key: &[u8]) -> bool {
        let (x, y) = place(key);
        rectangle(bounds)
            .is_some_and(|[x0, x1, y0, y1]| (x0..=x1).contains(&x) && (y0..=y1).contains(&y))
    }

    fn overlap(&self, a: &[u8], b: &[u8]) -> bool {
        match (rectangle(a), rectangle(b)) {
            (Some(a), Some(b)) => a[0] <= b[1] && b[0] <= a[1] && a[2] <= b[3] && b[2] <= a[3],
            _ => true,
        }
    }

    fn cut(&self, output: &Cutting<'_>) -> Box<dyn Cutter> {
        let beside = output.beside.iter().filter_map(|bounds| rectangle(bounds));
        let mut regions = vec![[0, 255, 0, 255]];
        let places: Vec<(u8, u8)> = output.sample.iter().map(|key| place(key)).collect();
        let tables = output.bytes.div_ceil(output.table_size.max(1)) as usize;
        let most = (places.len() / tables.clamp(1, 64)).max(1);
        let (beside, mut done): (Vec<_>, _) = (beside.collect(), Vec::new());
        while let Some(region) = regions.pop() {
            match split(region, &places, most, &beside) {
                Some(halves) => regions.extend(halves),
                None => done.push(region),
            }
        }
        let used = vec![None; done.len()];
        Box::new(Regions(done, used, 0))
    }
}

fn holds([x0, x1, y0, y1]: [u8; 4], (x, y): (u8, u8)) -> bool {
    (x0..=x1).contains(&x) && (y0..=y1).contains(&y)
}

/// Two halves of a region with more places than it should have, or that extends over the edge of a
/// table that stays.
fn split(
    region: [u8; 4],
    places: &[(u8, u8)],
    most: usize,
    beside: &[[u8; 4]],
) -> Option<[[u8; 4]; 2]> {
    let [x0, x1, y0, y1] = region;
    let at_x = |x: u8| (x0 <= x && x < x1).then(|| [[x0, x, y0, y1], [x + 1, x1, y0, y1]]);
    let at_y = |y: u8| (y0 <= y && y < y1).then(|| [[x0, x1, y0, y], [x0, x1, y + 1, y1]]);
    for [a0, a1, b0, b1] in beside {
        if *a0 <= x1 && x0 <= *a1 && *b0 <= y1 && y0 <= *b1 {
            let edges = [
                a0.checked_sub(1).and_then(at_x),
                at_x(*a1),
                b0.checked_sub(1).and_then(at_y),
                at_y(*b1),
            ];
            // None is left when all of the region is covered: no keys come there.
            if let Some(halves) = edges.into_iter().flatten().next() {
                return Some(halves);
            }
        }
    }
    let inside = places.iter().filter(|place| holds(region, **place));
    let (mut xs, mut ys): (Vec<u8>, Vec<u8>) = inside.copied().unzip();
    if xs.len() <= most {
        return None;
    }
    xs.sort_unstable();
    ys.sort_unstable();
    let middle = |values: &[u8]| values[(values.len() - 1) / 2];
    let (by_x, by_y) = (at_x(middle(&xs)), at_y(middle(&ys)));
    if x1 - x0 >= y1 - y0 {
        by_x.or(by_y)
    } else {
        by_y.or(by_x)
    }
}

/// Rectangles that tile the plane, the table of each that has keys, and the number of these.
struct Regions(Vec<[u8; 4]>, Vec<Option<usize>>, usize);

impl Cutter for Regions {
    fn part(&mut self, key: &[u8]) -> usize {
        let Regions(regions, used, count) = self;
        let at = regions.iter().position(|region| holds(*region, place(key)));
        let part = at.and_then(|at| used.get_mut(at));
        part.map_or(0, |part| {
            *part.get_or_insert_with(|| {
                *count += 1;
                *count - 1
            })
        })
    }
}

/// Three runs of level 0 become a run of level 1; of four runs there the oldest moves to level 2, a
/// table at a time.
#[derive(Debug)]
pub(crate) struct Steps;

impl CompactionPolicy for Steps {
    fn pick(&self, tree: &TreeVersion) -> Option<(f64, Choice)> {
        let mut level1 = tree.runs.iter().filter(|run| run.level == 1);
        let (runs, oldest) = (level1.clone().count(), level1.next_back());
        if let (4.., Some(oldest)) = (runs, oldest) {
            let table = oldest.tables.first()?.clone();
            let mut inputs = vec![vec![table]];
            let below = tree.level(2);
            inputs.extend(below.map(|run| run.overlapped(inputs.iter().flatten())));
            let action = match inputs.iter().flatten().count() {
                1 => Action::Move {
                    level: 2,
                    run: Some(0),
                },
                _ => Action::Merge {
                    level: 2,
                    run: Some(0),
                },
            };
            let score = runs as f64 / 4.0;
            return Some((
                score,
                Choice {
                    inputs,
                    action,
                    cursor: None,
                },
            ));
        }
        let level0 = tree.level0();
        let inputs: Vec<_> = level0.iter().map(|run| run.tables.to_vec()).collect();
        let action = Action::Merge {
            level: 1,
            run: None,
        };
        (level0.len() >= 3).then(|| {
            (
                level0.len() as f64 / 3.0,
                Choice {
                    inputs,
                    action,
                    cursor: None,
                },
            )
        })
    }

    fn level_for(&self, _: u64) -> u32 {
        2
    }

    fn pressure(&self, tree: &TreeVersion) -> f64 {
        (tree.level0().len() as f64 - 6.0) / 12.0
    }
}

/// A tree with this partitioner and policy.
pub(crate) fn tiles() -> TreeOptions {
    TreeOptions {
        partitioner: Some(Arc::new(Plane)),
        ..TreeOptions::with_policy(Arc::new(Steps))
    }
}

/// Digests with the last bytes of the values, ascending.
pub(crate) struct LastBytes;

impl Digester for LastBytes {
    fn begin(&self) -> Box<dyn Digest> {
        Box::new(BytesSeen::default())
    }
}

#[derive(Default)]
struct BytesSeen(BTreeSet<u8>);

impl Digest for BytesSeen {
    fn add(&mut self, _key: &[u8], value: &[u8]) {
        self.0.extend(value.last());
    }

    fn absorb(&mut self, stored: &[u8]) -> bool {
        self.0.extend(stored);
        stored.is_sorted()
    }

    fn is_covered_by(&self, stored: &[u8]) -> bool {
        self.0.iter().all(|byte| stored.contains(byte))
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend(&self.0);
    }
}
