//! Compare-and-set by lightweight transactions.

use std::sync::Arc;
use std::time::Duration;

use scylla::errors::ExecutionError;
use scylla::response::query_result::QueryResult;
use scylla::value::{CqlValue, Row};
use tokio::time::Instant;

use super::super::swap::Swapped;
use super::connect::{Cassandra, PATIENCE};
use super::errors::{failed, may_pass, unexpected};
use super::statements::Statement;
use crate::error::{Error, Result};

impl Cassandra {
    /// Sets a row. If an attempt was not answered, the row is read, which ends what has begun, and
    /// says whether it happened: values of one row are never the same twice.
    pub(super) async fn swap_row(
        &self,
        table: &Arc<str>,
        partition: &[u8],
        row: &[u8],
        expected: Option<&[u8]>,
        to: Option<&[u8]>,
    ) -> Result<Swapped> {
        let begun = Instant::now();
        loop {
            let error = match self.swap_once(table, partition, row, expected, to).await {
                Ok(found) => {
                    // What it finds may be an earlier attempt of its own, that had no answer.
                    return Ok(match outcome(found)? {
                        Swapped::Other(now) if now.as_deref() == to => Swapped::Done,
                        outcome => outcome,
                    });
                }
                Err(Attempt::Refused(error)) => return Err(error),
                Err(Attempt::Unanswered(error)) => error,
            };
            if begun.elapsed() > PATIENCE {
                return Err(error);
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
            let rows = self.swapped_rows(table, partition).await?;
            let now = rows.into_iter().find(|cell| cell.row == row);
            let now = now.map(|cell| cell.value);
            if now.as_deref() == to {
                return Ok(Swapped::Done);
            }
            if now.as_deref() != expected {
                return Ok(Swapped::Other(now));
            }
        }
    }

    async fn swap_once(
        &self,
        table: &Arc<str>,
        partition: &[u8],
        row: &[u8],
        expected: Option<&[u8]>,
        to: Option<&[u8]>,
    ) -> std::result::Result<QueryResult, Attempt> {
        let statement = match (expected, to) {
            (None, _) => Statement::SwapNew,
            (Some(_), Some(_)) => Statement::SwapValue,
            (Some(_), None) => Statement::SwapGone,
        };
        let prepared = self.prepared(table, statement).await;
        let prepared = prepared.map_err(|error| {
            if may_pass(&error) {
                Attempt::Unanswered(error)
            } else {
                Attempt::Refused(error)
            }
        })?;
        let session = &self.session;
        let done = match (expected, to) {
            (None, to) => {
                let values = (partition, row, to.unwrap_or_default());
                session.execute_unpaged(&prepared, values).await
            }
            (Some(expected), Some(to)) => {
                let values = (to, partition, row, expected);
                session.execute_unpaged(&prepared, values).await
            }
            (Some(expected), None) => {
                let values = (partition, row, expected);
                session.execute_unpaged(&prepared, values).await
            }
        };
        done.map_err(|error| Attempt::of(&error))
    }
}

/// Why a swap has no outcome.
enum Attempt {
    /// It did not happen, and will not.
    Refused(Error),
    /// It may have happened.
    Unanswered(Error),
}

impl Attempt {
    fn of(error: &ExecutionError) -> Attempt {
        let error = failed(error);
        if may_pass(&error) {
            Attempt::Unanswered(error)
        } else {
            Attempt::Refused(error)
        }
    }
}

/// The answer has a column `[applied]`, and, if it is false and the row exists, `v` as the last
/// one.
fn outcome(found: QueryResult) -> Result<Swapped> {
    let rows = found.into_rows_result().map_err(|e| unexpected(&e))?;
    let has_value = rows.column_specs().get_by_name("v").is_some();
    let row = rows.first_row::<Row>().map_err(|e| unexpected(&e))?;
    let value = match row.columns.last() {
        Some(Some(CqlValue::Blob(value))) if has_value => Some(value.clone()),
        _ => None,
    };
    match row.columns.first() {
        Some(Some(CqlValue::Boolean(true))) => Ok(Swapped::Done),
        Some(Some(CqlValue::Boolean(false))) => Ok(Swapped::Other(value)),
        _ => Err(unexpected(&"no `[applied]`")),
    }
}
