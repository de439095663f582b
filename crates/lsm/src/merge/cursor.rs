//! The k-way merge: one cursor over several, in the order of [`crate::entry::compare`].

use std::cmp::Ordering;

use crate::cursor::Cursor;
use crate::entry::{Kind, Seq, compare};
use crate::error::Result;
use esker_coding::Slice;

#[derive(Clone, Copy, PartialEq)]
enum Direction {
    Forward,
    Backward,
}

/// Merges sources, given newest first. A tree has few of them, so the next one is found by a scan;
/// while one source stays ahead of the runner-up, no other is compared, which is the common case
/// when keys grow with time.
pub(crate) struct MergeCursor<C> {
    sources: Vec<C>,
    current: Option<usize>,
    runner_up: Option<usize>,
    direction: Direction,
}

impl<C: Cursor> MergeCursor<C> {
    pub(crate) fn new(sources: Vec<C>) -> MergeCursor<C> {
        MergeCursor {
            sources,
            current: None,
            runner_up: None,
            direction: Direction::Forward,
        }
    }

    pub(crate) fn sources(&self) -> &[C] {
        &self.sources
    }

    fn lead(&self) -> Option<&C> {
        self.sources.get(self.current?)
    }

    /// Compares two valid sources in the direction of travel.
    fn order(&self, a: &C, b: &C) -> Ordering {
        let order = compare(a.key(), a.seq(), b.key(), b.seq());
        if self.direction == Direction::Forward {
            order
        } else {
            order.reverse()
        }
    }

    fn elect(&mut self) {
        let (mut best, mut second): (Option<usize>, Option<usize>) = (None, None);
        for (index, source) in self.sources.iter().enumerate() {
            if !source.valid() {
                continue;
            }
            let beats = |other: Option<usize>| match other.and_then(|o| self.sources.get(o)) {
                Some(other) => self.order(source, other) == Ordering::Less,
                None => true,
            };
            if beats(best) {
                second = best;
                best = Some(index);
            } else if beats(second) {
                second = Some(index);
            }
        }
        self.current = best;
        self.runner_up = second;
    }

    /// Moves the leading source one step.
    fn move_lead(&mut self) -> Result<()> {
        let forward = self.direction == Direction::Forward;
        match self.current.and_then(|c| self.sources.get_mut(c)) {
            Some(lead) if forward => lead.next(),
            Some(lead) => lead.prev(),
            None => Ok(()),
        }
    }

    /// Moves one step and finds the new leader.
    fn step(&mut self, direction: Direction) -> Result<()> {
        if self.direction != direction {
            self.turn(direction)?;
            self.move_lead()?;
            self.elect();
            return Ok(());
        }
        self.move_lead()?;
        if let Some(lead) = self.lead()
            && lead.valid()
        {
            match self.runner_up.and_then(|r| self.sources.get(r)) {
                None => return Ok(()),
                Some(runner_up) if self.order(lead, runner_up) != Ordering::Greater => {
                    return Ok(());
                }
                Some(_) => {}
            }
        }
        self.elect();
        Ok(())
    }

    /// Reverses the direction: every other source moves to its nearest entry on the far side of
    /// this one.
    fn turn(&mut self, direction: Direction) -> Result<()> {
        let Some(current) = self.current else {
            return Ok(());
        };
        let (key, seq) = match self.lead() {
            Some(lead) => (lead.key().to_vec(), lead.seq()),
            None => return Ok(()),
        };
        for (index, source) in self.sources.iter_mut().enumerate() {
            if index == current {
                continue;
            }
            source.seek(&key, seq)?;
            if direction == Direction::Backward {
                if source.valid() {
                    source.prev()?
                } else {
                    source.seek_last()?
                }
            }
        }
        self.direction = direction;
        Ok(())
    }
}

impl<C: Cursor> Cursor for MergeCursor<C> {
    #[inline]
    fn valid(&self) -> bool {
        self.current.is_some()
    }
    #[inline]
    fn key(&self) -> &[u8] {
        self.lead().map_or(&[], |lead| lead.key())
    }
    #[inline]
    fn seq(&self) -> Seq {
        self.lead().map_or(0, |lead| lead.seq())
    }
    #[inline]
    fn kind(&self) -> Kind {
        self.lead().map_or(Kind::Delete, |lead| lead.kind())
    }
    #[inline]
    fn value(&self) -> &[u8] {
        self.lead().map_or(&[], |lead| lead.value())
    }
    fn value_slice(&self) -> Slice {
        self.lead()
            .map_or_else(|| Slice::from(Vec::new()), |lead| lead.value_slice())
    }

    fn seek_first(&mut self) -> Result<()> {
        self.current = None;
        for source in &mut self.sources {
            source.seek_first()?;
        }
        self.direction = Direction::Forward;
        self.elect();
        Ok(())
    }

    fn seek_last(&mut self) -> Result<()> {
        self.current = None;
        for source in &mut self.sources {
            source.seek_last()?;
        }
        self.direction = Direction::Backward;
        self.elect();
        Ok(())
    }

    fn seek(&mut self, key: &[u8], seq: Seq) -> Result<()> {
        self.current = None;
        for source in &mut self.sources {
            source.seek(key, seq)?;
        }
        self.direction = Direction::Forward;
        self.elect();
        Ok(())
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        self.step(Direction::Forward)
    }

    fn prev(&mut self) -> Result<()> {
        self.step(Direction::Backward)
    }
}
