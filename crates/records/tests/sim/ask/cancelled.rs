//! Reads that are cancelled: what they gave until then is right.

use esker::{ErrorKind, Order, Result, Stop};

use super::{Asker, same};
use crate::common::tree::Tree;
use crate::common::{Row, row};
use crate::runner::count;

impl Asker<'_> {
    /// Cancels a query before it begins, or after a few records. It gives the first records of the
    /// answer, and then says so.
    pub(super) fn cancelled(&mut self) -> Result<()> {
        let stop = Stop::new();
        let wanted = Tree::All(self.wanted(), Vec::new());
        let mut right = self.records.meeting(&wanted);
        right.sort_by_key(|(_, seq, _)| std::cmp::Reverse(*seq));
        let right = right.into_iter();
        let right: Vec<Row> = right
            .map(|(key, _, body)| (key.to_string(), body.to_string()))
            .collect();
        let mut query = self.snapshot.with_stop(&stop).query().order(Order::Newest);
        if let Some(condition) = wanted.expr() {
            query = query.filter(condition);
        }
        let after = self.rng.usize(0..4);
        let (mut given, mut is_cancelled, mut was_told) = (Vec::new(), after == 0, false);
        if is_cancelled {
            stop.cancel();
        }
        let told = |error: esker::Error, is_cancelled| match error.kind() {
            ErrorKind::Cancelled if is_cancelled => Ok(()),
            _ => Err(error),
        };
        let answer = match query.run() {
            Ok(answer) => answer,
            Err(error) => return told(error, is_cancelled),
        };
        for record in answer {
            match record {
                Ok(record) => given.push(row(Ok(record))?),
                Err(error) => {
                    told(error, is_cancelled)?;
                    was_told = true;
                }
            }
            if given.len() == after && !is_cancelled {
                stop.cancel();
                is_cancelled = true;
            }
        }
        let first = &right[..right.len().min(given.len())];
        same(&given, if was_told { first } else { &right }, || {
            format!("cancelled after {after}: {wanted:?}")
        });
        count(if was_told {
            "cancelled: told"
        } else {
            "cancelled: too late"
        });
        Ok(())
    }
}
