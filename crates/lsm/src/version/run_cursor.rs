//! A cursor over the tables of a run, in sequence; opens each table on reaching it.

use std::sync::Arc;

use super::file::TableFile;
use crate::cost::Cost;
use crate::cursor::Cursor;
use crate::entry::{Kind, Seq};
use crate::error::Result;
use crate::stop::Stop;
use crate::table::{ReadOptions, TableCursor};
use esker_coding::Slice;

pub(crate) struct RunCursor {
    tables: Arc<Vec<Arc<TableFile>>>,
    options: ReadOptions,
    at: usize,
    open: Option<TableCursor>,
    /// The cost of closed cursors.
    cost: Cost,
}

impl RunCursor {
    /// `tables` do not overlap and ascend.
    pub(crate) fn new(tables: Arc<Vec<Arc<TableFile>>>, options: ReadOptions) -> RunCursor {
        RunCursor {
            tables,
            options,
            at: 0,
            open: None,
            cost: Cost::default(),
        }
    }

    /// The same cursor, whose moves `stop` stops.
    pub(crate) fn until(mut self, stop: Option<&Stop>) -> RunCursor {
        self.cost = Cost::until(stop);
        self
    }

    /// The cost of the cursor so far.
    pub(crate) fn cost(&self) -> Cost {
        let total = self.cost.clone();
        if let Some(open) = &self.open {
            total.absorb(open.cost());
        }
        total
    }

    /// Opens table `at`; false when there is none.
    fn enter(&mut self, at: usize) -> Result<bool> {
        if self.open.is_some() && self.at == at {
            return Ok(true);
        }
        if let Some(open) = self.open.take() {
            self.cost.absorb(open.cost());
        }
        let Some(table) = self.tables.get(at) else {
            return Ok(false);
        };
        let cursor = table.table()?.cursor(self.options);
        self.open = Some(cursor.until(self.cost.stop()));
        self.at = at;
        Ok(true)
    }

    fn close(&mut self) {
        if let Some(open) = self.open.take() {
            self.cost.absorb(open.cost());
        }
    }

    /// Moves from the end of a table to the first entry of the next one.
    fn skip_forward(&mut self) -> Result<()> {
        while let Some(open) = &self.open
            && !open.valid()
        {
            if !self.enter(self.at + 1)? {
                self.close();
                return Ok(());
            }
            if let Some(open) = &mut self.open {
                open.seek_first()?;
            }
        }
        Ok(())
    }

    fn skip_backward(&mut self) -> Result<()> {
        while let Some(open) = &self.open
            && !open.valid()
        {
            if self.at == 0 {
                self.close();
                return Ok(());
            }
            if !self.enter(self.at - 1)? {
                return Ok(());
            }
            if let Some(open) = &mut self.open {
                open.seek_last()?;
            }
        }
        Ok(())
    }
}

impl Cursor for RunCursor {
    #[inline]
    fn valid(&self) -> bool {
        self.open.as_ref().is_some_and(|open| open.valid())
    }
    #[inline]
    fn key(&self) -> &[u8] {
        self.open.as_ref().map_or(&[], |open| open.key())
    }
    #[inline]
    fn seq(&self) -> Seq {
        self.open.as_ref().map_or(0, |open| open.seq())
    }
    #[inline]
    fn kind(&self) -> Kind {
        self.open.as_ref().map_or(Kind::Delete, |open| open.kind())
    }
    #[inline]
    fn value(&self) -> &[u8] {
        self.open.as_ref().map_or(&[], |open| open.value())
    }
    fn value_slice(&self) -> Slice {
        self.open
            .as_ref()
            .map_or_else(|| Slice::from(Vec::new()), |open| open.value_slice())
    }

    fn seek_first(&mut self) -> Result<()> {
        if !self.enter(0)? {
            return Ok(());
        }
        if let Some(open) = &mut self.open {
            open.seek_first()?;
        }
        self.skip_forward()
    }

    fn seek_last(&mut self) -> Result<()> {
        let Some(last) = self.tables.len().checked_sub(1) else {
            return Ok(());
        };
        self.enter(last)?;
        if let Some(open) = &mut self.open {
            open.seek_last()?;
        }
        self.skip_backward()
    }

    fn seek(&mut self, key: &[u8], seq: Seq) -> Result<()> {
        // Ascending seeks usually stay in the open table.
        let here = self.open.is_some()
            && self
                .tables
                .get(self.at)
                .is_some_and(|table| table.covers(key));
        let at = if here {
            self.at
        } else {
            self.tables
                .partition_point(|table| table.meta().largest.as_slice() < key)
        };
        if !self.enter(at)? {
            self.close();
            return Ok(());
        }
        if let Some(open) = &mut self.open {
            open.seek(key, seq)?;
        }
        self.skip_forward()
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        if let Some(open) = &mut self.open {
            open.next()?;
            if !open.valid() {
                return self.skip_forward();
            }
        }
        Ok(())
    }

    fn prev(&mut self) -> Result<()> {
        if let Some(open) = &mut self.open {
            open.prev()?;
        }
        self.skip_backward()
    }
}
