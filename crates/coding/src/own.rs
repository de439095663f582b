//! Access by places that Esker computed itself: a wrong one is a defect of the program, never a
//! property of a file or of input. [`Own::item`] and [`Own::part`] report it as an error,
//! [`Own::own`] panics where a function has no error to return. Bytes from disk and from callers
//! are read by [`Reader`](crate::Reader) or `get`, whose absence is an ordinary answer.

use std::fmt;
use std::ops::Range;
use std::panic::Location;
use std::slice::SliceIndex;

/// A place outside what it points into: a defect of Esker, with the line that met it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Misplaced {
    at: &'static Location<'static>,
}

impl Misplaced {
    /// The defect, met by the caller. A debug build stops here.
    #[track_caller]
    #[cold]
    pub fn here() -> Misplaced {
        let at = Location::caller();
        debug_assert!(false, "{}", Misplaced { at });
        Misplaced { at }
    }
}

impl fmt::Display for Misplaced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Misplaced { at } = self;
        write!(f, "a defect of Esker, please report it: {at}")
    }
}

impl std::error::Error for Misplaced {}

/// Items of a slice at places that the program computed.
///
/// ```
/// use esker_coding::Own;
/// let ends = [3, 5];
/// assert_eq!(ends.item(1), Ok(&5));
/// assert_eq!(ends.own(0), &3);
/// assert_eq!(ends.own(1..), &[5]);
/// ```
pub trait Own<T> {
    /// The item at `at`.
    ///
    /// # Errors
    ///
    /// [`Misplaced`] outside the slice; a debug build panics instead.
    fn item(&self, at: usize) -> Result<&T, Misplaced>;

    /// The items of `range`.
    ///
    /// # Errors
    ///
    /// [`Misplaced`] outside the slice; a debug build panics instead.
    fn part(&self, range: Range<usize>) -> Result<&[T], Misplaced>;

    /// The item or the items at `place`.
    ///
    /// # Panics
    ///
    /// Outside the slice: this is for places that were checked or made by the program.
    fn own<I: SliceIndex<[T]>>(&self, place: I) -> &I::Output;

    /// The item or the items at `place`, to be changed.
    ///
    /// # Panics
    ///
    /// Outside the slice: this is for places that were checked or made by the program.
    fn own_mut<I: SliceIndex<[T]>>(&mut self, place: I) -> &mut I::Output;
}

impl<T> Own<T> for [T] {
    #[inline]
    #[track_caller]
    fn item(&self, at: usize) -> Result<&T, Misplaced> {
        match self.get(at) {
            Some(item) => Ok(item),
            None => Err(Misplaced::here()),
        }
    }

    #[inline]
    #[track_caller]
    fn part(&self, range: Range<usize>) -> Result<&[T], Misplaced> {
        match self.get(range) {
            Some(items) => Ok(items),
            None => Err(Misplaced::here()),
        }
    }

    #[inline]
    #[track_caller]
    fn own<I: SliceIndex<[T]>>(&self, place: I) -> &I::Output {
        &self[place]
    }

    #[inline]
    #[track_caller]
    fn own_mut<I: SliceIndex<[T]>>(&mut self, place: I) -> &mut I::Output {
        &mut self[place]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "a defect of Esker")]
    fn a_debug_build_stops_at_a_wrong_place() {
        let _ = [1, 2].item(2);
    }

    #[test]
    #[should_panic(expected = "out of range")]
    fn a_wrong_place_panics_where_no_error_can_be_returned() {
        let _ = [1, 2].own(3..);
    }
}
