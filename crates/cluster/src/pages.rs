//! How many rows are read at a time: a server counts rows, and memory counts bytes.

use crate::cells::Cell;

/// The bytes that a page should have.
const PAGE_BYTES: usize = 4 << 20;

/// The rows of a first page: of the largest records they take 128 MiB.
const FIRST: usize = 16;

/// A page has at most this many times the rows of the one before.
const GROWTH: usize = 8;

/// The sizes of pages that are read one after the other.
#[derive(Debug, Clone)]
pub(crate) struct Pages {
    rows: usize,
    most: usize,
}

impl Pages {
    /// Pages of at most this many rows.
    pub(crate) fn of(most: usize) -> Pages {
        Pages {
            rows: FIRST.min(most),
            most,
        }
    }

    /// The rows of the next page.
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// A page of so many rows had so many bytes: the next one has the rows that should take
    /// [`PAGE_BYTES`].
    pub(crate) fn had(&mut self, rows: usize, bytes: usize) {
        if rows == 0 {
            return;
        }
        let fitting = PAGE_BYTES / (bytes / rows).max(1);
        let grown = self.rows.saturating_mul(GROWTH);
        self.rows = fitting.clamp(1, grown.min(self.most).max(1));
    }

    /// These cells were a page.
    pub(crate) fn had_cells(&mut self, cells: &[Cell]) {
        let bytes = cells.iter().map(|cell| cell.row.len() + cell.value.len());
        self.had(cells.len(), bytes.sum());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_follow_the_size_of_rows() {
        let mut pages = Pages::of(1000);
        let mut sizes = Vec::new();
        for bytes in [100, 100, 100, 1 << 20, 8 << 20, 1 << 20, 100] {
            sizes.push(pages.rows());
            pages.had(pages.rows(), pages.rows() * bytes);
        }
        assert_eq!(sizes, [16, 128, 1000, 1000, 4, 1, 4]);
        // What says nothing of sizes changes nothing.
        let before = pages.rows();
        pages.had(0, 0);
        assert_eq!(pages.rows(), before);
        assert_eq!(Pages::of(3).rows(), 3);
    }
}
