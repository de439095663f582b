//! What is known of a group while its records arrive.

use esker_coding::{Own, Reader, put_bytes, put_varint};
use hyperloglockless::HyperLogLog;

use super::grouping::{Grouping, SlotKind};
use super::sum::Sum;
use crate::schema::ordered::{FieldValues, Ordered};

/// The logarithm of the number of registers of a sketch, of a byte each.
const PRECISION: u8 = 12;
const REGISTERS: usize = 1 << PRECISION;
/// The greatest value of a register.
const MOST: u8 = 65;

/// An estimate of the number of different values. Hashes have a constant seed, so that sketches of
/// different runs merge.
pub(super) struct Sketch(HyperLogLog);

impl Sketch {
    fn new() -> Sketch {
        Sketch(HyperLogLog::seeded(PRECISION, 0))
    }

    /// The estimate, which depends on the registers alone.
    pub(super) fn estimate(&self) -> u64 {
        let mut all = Sketch::new();
        all.merge(self);
        all.0.raw_count().round() as u64
    }

    fn merge(&mut self, other: &Sketch) {
        // All sketches have the same length.
        let _ = self.0.union(&other.0);
    }

    fn decode(registers: &[u8]) -> Option<Sketch> {
        let is_valid = registers.len() == REGISTERS && registers.iter().all(|r| *r <= MOST);
        let mut sketch = Sketch::new();
        let (_, hasher, ..) = sketch.0.parts();
        let registers: Option<Box<[u8]>> = is_valid.then(|| registers.into());
        // Zeros and sum are not read before they are computed anew.
        let read = HyperLogLog::from_parts(registers?, hasher.clone(), 0, 0.0);
        let _ = sketch.0.union(&read);
        Some(sketch)
    }
}

/// What is kept for some aggregates.
pub(super) enum Slot {
    Sum(Sum),
    /// The least or the greatest value.
    Extreme(Option<Vec<u8>>),
    Sketch(Option<Box<Sketch>>),
    /// The number of values; the values themselves are kept apart.
    Values(u64),
}

/// A group.
pub(super) struct State {
    pub(super) count: u64,
    /// A bit for each field that forms groups, then for each slot: set if a value was a number.
    pub(super) numbers: u64,
    pub(super) slots: Vec<Slot>,
}

impl State {
    pub(super) fn new(grouping: &Grouping) -> State {
        let slots = grouping.slots.iter().map(|slot| match slot.kind {
            SlotKind::Sum => Slot::Sum(Sum::default()),
            SlotKind::Least | SlotKind::Greatest => Slot::Extreme(None),
            SlotKind::Sketch => Slot::Sketch(None),
            SlotKind::Values => Slot::Values(0),
        });
        State {
            count: 0,
            numbers: 0,
            slots: slots.collect(),
        }
    }

    /// Adds a record of the group. Passes the values that are kept apart to `keep`, with their
    /// slot. Returns the memory that the group has grown by, about.
    pub(super) fn add(
        &mut self,
        grouping: &Grouping,
        values: &FieldValues,
        keep: &mut dyn FnMut(usize, &[u8]),
    ) -> usize {
        self.count += 1;
        let mut grown = 0;
        for (at, of) in grouping.slots.iter().enumerate() {
            for value in values.of(of.field) {
                grown += self.add_value(grouping, at, &value, keep);
            }
        }
        grown
    }

    /// Adds a value of a slot, as [`State::add`] does.
    pub(super) fn add_value(
        &mut self,
        grouping: &Grouping,
        at: usize,
        value: &Ordered<'_>,
        keep: &mut dyn FnMut(usize, &[u8]),
    ) -> usize {
        if value.is_number {
            self.numbers |= 1 << (grouping.by.len() + at);
        }
        let mut grown = 0;
        match self.slots.own_mut(at) {
            Slot::Sum(sum) => sum.add(value.amount),
            Slot::Extreme(extreme) => {
                grown = replace(extreme, grouping.slots.own(at).kind, value);
            }
            Slot::Sketch(sketch) => {
                if sketch.is_none() {
                    grown = REGISTERS;
                }
                let sketch = sketch.get_or_insert_with(|| Box::new(Sketch::new()));
                sketch.0.insert(value.bytes);
            }
            Slot::Values(count) => {
                *count += 1;
                keep(at, value.bytes);
            }
        }
        grown
    }

    /// Adds what is known of other records of the group.
    pub(super) fn merge(&mut self, grouping: &Grouping, other: State) {
        self.count += other.count;
        self.numbers |= other.numbers;
        let mine = self.slots.iter_mut().zip(&grouping.slots);
        for ((slot, of), other) in mine.zip(other.slots) {
            match (slot, other) {
                (Slot::Sum(sum), Slot::Sum(other)) => sum.merge(&other),
                (Slot::Extreme(mine), Slot::Extreme(Some(other)))
                    if is_better(mine.as_deref(), of.kind, &other) =>
                {
                    *mine = Some(other);
                }
                (Slot::Sketch(mine), Slot::Sketch(Some(other))) => match mine {
                    Some(mine) => mine.merge(&other),
                    None => *mine = Some(other),
                },
                (Slot::Values(count), Slot::Values(other)) => *count += other,
                _ => {}
            }
        }
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.count);
        put_varint(out, self.numbers);
        for slot in &self.slots {
            match slot {
                Slot::Sum(sum) => sum.encode(out),
                Slot::Extreme(value) => put_bytes(out, value.as_deref().unwrap_or(&[])),
                Slot::Sketch(None) => put_bytes(out, &[]),
                Slot::Sketch(Some(sketch)) => put_bytes(out, sketch.0.parts().0),
                Slot::Values(count) => put_varint(out, *count),
            }
        }
    }

    /// Decodes a group; `None` if the bytes are malformed.
    pub(super) fn decode(grouping: &Grouping, bytes: &[u8]) -> Option<State> {
        let mut input = Reader::new(bytes);
        let mut state = State::new(grouping);
        state.count = input.varint()?;
        state.numbers = input.varint()?;
        for slot in &mut state.slots {
            match slot {
                Slot::Sum(sum) => *sum = Sum::decode(&mut input)?,
                Slot::Extreme(value) => {
                    let bytes = input.bytes()?;
                    *value = (!bytes.is_empty()).then(|| bytes.to_vec());
                }
                Slot::Sketch(sketch) => match input.bytes()? {
                    [] => {}
                    registers => *sketch = Some(Box::new(Sketch::decode(registers)?)),
                },
                Slot::Values(count) => *count = input.varint()?,
            }
        }
        input.is_empty().then_some(state)
    }

    /// True if a value of a slot was a number.
    pub(super) fn has_number(&self, grouping: &Grouping, slot: usize) -> bool {
        self.numbers & 1 << (grouping.by.len() + slot) != 0
    }

    /// The slot at a place.
    pub(super) fn slot(&self, at: usize) -> &Slot {
        self.slots.own(at)
    }
}

fn is_better(extreme: Option<&[u8]>, kind: SlotKind, value: &[u8]) -> bool {
    extreme.is_none_or(|extreme| {
        if kind == SlotKind::Least {
            value < extreme
        } else {
            value > extreme
        }
    })
}

/// Replaces the least or the greatest value by a better one; returns the memory of a first one.
fn replace(extreme: &mut Option<Vec<u8>>, kind: SlotKind, value: &Ordered<'_>) -> usize {
    if !is_better(extreme.as_deref(), kind, value.bytes) {
        return 0;
    }
    let grown = value.bytes.len();
    match extreme {
        Some(bytes) => {
            let grown = grown.saturating_sub(bytes.len());
            bytes.clear();
            bytes.extend_from_slice(value.bytes);
            grown
        }
        None => {
            *extreme = Some(value.bytes.to_vec());
            grown
        }
    }
}
