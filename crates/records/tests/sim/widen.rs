//! Additions to the run of a seed: expiring records and an arbitrary clock, batches over several
//! datasets, notes, feeds with old records, consumers, an extension, renamed datasets, keys of
//! several fields, values of other types than the declared one, unique values, and compound
//! indexes. They draw from their own random numbers, so that other runs stay the same.

use fastrand::Rng;

use crate::action::{ABSENT, ARRAY, Action, Change, DECLARED, OTHER, Step, UNTIL_SHIFT, Write};
use crate::compound::{COMPOUND_NUMBER, MOST, UNIQUE};
use crate::consumers::BOUNDS;
use crate::define::MOST_POINT;
use crate::space::{POINT_NUMBER, STYLE, TIMED_NUMBER};

/// The additions of a run.
struct Widening {
    expires: bool,
    over: bool,
    notes: bool,
    old_records: bool,
    /// Records have points and times.
    points: bool,
    consumers: bool,
    /// The run has an extension.
    beside: bool,
    /// Indexes are rebuilt.
    rebuilds: bool,
    /// Datasets are renamed.
    renames: bool,
    /// Some keys have two fields.
    fields: bool,
    /// Indexes accept values of other types.
    lenient: bool,
    /// The number of a path whose values are unique.
    unique: Option<usize>,
    /// The number of the compound index of each dataset; 0 for none.
    compound: u8,
    /// Writes that batches over several datasets support.
    writes: Vec<Vec<Write>>,
}

pub(crate) fn widen(seed: u64, steps: Vec<Step>) -> Vec<Step> {
    let rng = &mut Rng::with_seed(seed ^ 0x0074_696d_6500);
    let mut widening = Widening {
        expires: rng.usize(0..3) == 0,
        over: rng.usize(0..4) == 0,
        notes: rng.usize(0..4) == 0,
        writes: Vec::new(),
        old_records: false,
        points: false,
        consumers: false,
        beside: false,
        rebuilds: false,
        renames: false,
        fields: false,
        lenient: false,
        unique: None,
        compound: 0,
    };
    widening.old_records = rng.usize(0..4) == 0;
    widening.points = Rng::with_seed(seed ^ 0x706f_696e_7473).usize(0..4) == 0;
    widening.consumers = Rng::with_seed(seed ^ 0x636f_6e73_756d).usize(0..4) == 0;
    widening.beside = Rng::with_seed(seed ^ 0x6265_7369_6465).usize(0..5) == 0;
    widening.rebuilds = Rng::with_seed(seed ^ 0x7265_6275_696c).usize(0..4) == 0;
    widening.renames = Rng::with_seed(seed ^ 0x7265_6e61_6d65).usize(0..4) == 0;
    widening.fields = Rng::with_seed(seed ^ 0x6669_656c_6473).usize(0..5) == 0;
    widening.lenient = Rng::with_seed(seed ^ 0x6c65_6e69_656e).usize(0..5) == 0;
    let mut unique = Rng::with_seed(seed ^ 0x756e_6971_7565);
    widening.unique = (unique.usize(0..4) == 0).then(|| unique.usize(0..DECLARED + 1));
    widening.expires |= widening.unique.is_some() && unique.bool();
    let mut compound = Rng::with_seed(seed ^ 0x636f_6d70_6f75);
    if compound.usize(0..4) == 0 {
        let unique = [0, 0, 0, UNIQUE][compound.usize(0..4)];
        widening.compound = compound.u8(1..=MOST) | unique;
    }
    let mut all = steps.clone();
    let writes = all.iter_mut().filter_map(|step| step.1.writes_mut());
    widening.writes = writes.map(|writes| writes.clone()).collect();
    if widening.writes.is_empty() {
        return steps;
    }
    widening.list(rng, steps)
}

impl Widening {
    fn list(&self, rng: &mut Rng, steps: Vec<Step>) -> Vec<Step> {
        let mut list = Vec::new();
        for mut step in steps {
            self.step(rng, &mut step);
            let is_creation = matches!(step.1, Action::Create { .. });
            list.push(step);
            if is_creation {
                continue;
            }
            if self.expires && rng.usize(0..3) == 0 {
                list.push(self.time(rng));
            }
            if self.over && rng.usize(0..3) == 0 {
                list.push(self.over(rng));
            }
            if self.beside && rng.usize(0..3) == 0 {
                list.push(beside(rng));
            }
            if self.consumers && rng.usize(0..3) == 0 {
                list.push(consume(rng));
            }
            if self.renames && rng.usize(0..6) == 0 {
                list.push(rename(rng));
            }
        }
        list
    }

    fn step(&self, rng: &mut Rng, Step(_, action): &mut Step) {
        if let Action::Create { def, .. } = action
            && self.expires
            && rng.usize(0..4) > 0
        {
            def.expiry = rng.u8(1..16);
        }
        if let Action::Create { def, .. } = action {
            def.old_records = self.old_records;
            if self.points {
                def.point = rng.u8(0..MOST_POINT);
            }
            def.lenient = self.lenient;
            def.unique = self.unique.map_or(0, |at| at as u8 + 1);
            def.compound = self.compound;
            if self.fields && rng.usize(0..3) > 0 {
                def.keys = 2;
            }
        }
        if let Action::Index { path, .. } = action
            && self.points
            && rng.usize(0..3) == 0
        {
            *path = [POINT_NUMBER, TIMED_NUMBER][rng.usize(0..2)];
        }
        if let Action::Index { path, kind, .. } = action
            && self.compound != 0
            && rng.usize(0..3) == 0
        {
            *path = COMPOUND_NUMBER;
            if rng.usize(0..4) > 0 {
                *kind = rng.u8(4..8);
            }
        }
        if let Action::Index {
            path,
            kind,
            change,
            inside,
            store,
            set,
            ..
        } = action
            && let Some(at) = self.unique
            && rng.bool()
        {
            *path = at as u8;
            *kind = rng.u8(4..8);
            let changes = [Change::Add, Change::Add, Change::DropIndex, Change::Resume];
            *change = changes[rng.usize(0..4)];
            // Writes beside the build, also of values that older records have.
            let writes = (0..rng.usize(0..8)).map(|_| {
                let action = Action::Batch {
                    store: *store,
                    set: *set,
                    writes: self.writes[rng.usize(0..self.writes.len())].clone(),
                    durability: 2,
                };
                Step(0, action)
            });
            inside.steps.extend(writes);
        }
        if let Action::Index { change, .. } = action
            && self.rebuilds
            && rng.usize(0..3) == 0
        {
            *change = Change::Rebuild;
        }
        if let Some(writes) = action.writes_mut() {
            self.writes(rng, writes);
        }
        if let Some(inside) = action.inside_mut() {
            let steps = std::mem::take(&mut inside.steps);
            inside.steps = self.list(rng, steps);
        }
    }

    fn writes(&self, rng: &mut Rng, writes: &mut Vec<Write>) {
        for write in writes.iter_mut() {
            if let Write::Put { style, .. } | Write::Insert { style, .. } = write
                && self.points
                && rng.usize(0..5) > 0
            {
                *style |= STYLE;
            }
            if let Write::Put { style, .. } | Write::Insert { style, .. } = write
                && self.expires
                && rng.bool()
            {
                *style |= rng.u8(1..9) << UNTIL_SHIFT;
            }
            if let Write::Put { cells, .. } | Write::Insert { cells, .. } = write
                && self.lenient
            {
                for cell in cells {
                    if rng.usize(0..6) == 0 {
                        *cell = rng.u8(OTHER..ARRAY);
                    }
                }
            }
        }
        if let Some(at) = self.unique {
            // Values are few: otherwise most batches would be refused.
            if rng.usize(0..4) > 0 {
                writes.truncate(rng.usize(1..4));
            }
            for write in writes.iter_mut() {
                if let Write::Put { cells, .. } | Write::Insert { cells, .. } = write
                    && rng.bool()
                {
                    cells[at] = ABSENT;
                }
            }
        }
        if self.notes && rng.bool() {
            let note = Write::Note {
                name: rng.u8(0..3),
                value: rng.u8(0..6),
            };
            writes.insert(rng.usize(0..=writes.len()), note);
        }
    }

    fn time(&self, rng: &mut Rng) -> Step {
        let (store, set) = (rng.u8(0..3), rng.u8(0..3));
        let action = match rng.usize(0..8) {
            0 | 1 => Action::Expire { store, set },
            2 if rng.bool() => Action::Ttl {
                store,
                set,
                ttl: rng.u8(0..5),
            },
            _ => Action::Tick {
                store,
                millis: match rng.usize(0..12) {
                    0 => 2 * 24 * 60 * 60 * 1000,
                    1 => -2 * 24 * 60 * 60 * 1000,
                    2 => -rng.i32(1..5_000),
                    3 => rng.i32(0..100_000),
                    4 => 1,
                    _ => rng.i32(0..3_000),
                },
                confirm: rng.usize(0..10) == 0,
            },
        };
        let seed = if rng.bool() { rng.u16(1..) } else { 0 };
        Step(seed, action)
    }

    fn over(&self, rng: &mut Rng) -> Step {
        let mut writes = self.writes[rng.usize(0..self.writes.len())].clone();
        self.writes(rng, &mut writes);
        let sets: Vec<u8> = (0..rng.usize(2..4)).map(|_| rng.u8(0..3)).collect();
        let action = Action::Over {
            store: rng.u8(0..3),
            sets,
            writes,
            durability: [0, 1, 2, 2, 2, 2][rng.usize(0..6)],
        };
        Step(rng.u16(..), action)
    }
}

fn beside(rng: &mut Rng) -> Step {
    let count = rng.usize(1..4);
    let writes = (0..count).map(|_| (rng.u8(..), rng.u8(0..4)));
    let writes = writes.collect();
    let action = Action::Beside {
        store: rng.u8(0..3),
        writes,
        durability: [0, 1, 2, 2, 2, 2][rng.usize(0..6)],
    };
    Step(rng.u16(0..3), action)
}

fn rename(rng: &mut Rng) -> Step {
    Step(
        rng.u16(..),
        Action::Rename {
            store: rng.u8(0..3),
            set: rng.u8(0..3),
            name: rng.u8(0..4),
        },
    )
}

fn consume(rng: &mut Rng) -> Step {
    let action = Action::Consume {
        store: rng.u8(0..3),
        set: rng.u8(0..3),
        // Mostly one program for all datasets.
        name: [0, 0, 1][rng.usize(0..3)],
        bytes: rng.u8(0..BOUNDS.len() as u8),
        most: match rng.usize(0..3) {
            0 => Some(rng.u8(0..6)),
            _ => None,
        },
        forget: rng.usize(0..12) == 0,
    };
    let seed = match rng.usize(0..4) {
        0 => rng.u16(1..),
        _ => 0,
    };
    Step(seed, action)
}
