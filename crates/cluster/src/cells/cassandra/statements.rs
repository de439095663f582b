//! The texts of the statements.

/// A statement of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Statement {
    Put,
    Delete,
    /// Of a partition, from a row on; with an end; the rows alone.
    Read {
        has_end: bool,
        rows_only: bool,
        reverse: bool,
    },
    /// Of a range of tokens.
    Scan {
        rows_only: bool,
    },
    SwapNew,
    SwapValue,
    SwapGone,
    /// All rows of a partition, after all swaps that have begun.
    Swapped,
}

impl Statement {
    pub(super) fn is_idempotent(self) -> bool {
        !matches!(
            self,
            Statement::SwapNew | Statement::SwapValue | Statement::SwapGone
        )
    }

    pub(super) fn text(self, keyspace: &str, table: &str) -> String {
        let of = format!("{keyspace}.{table}");
        let what = |rows_only| if rows_only { "c" } else { "c, v" };
        match self {
            Statement::Put => {
                format!("INSERT INTO {of} (p, c, v) VALUES (?, ?, ?) USING TIMESTAMP ?")
            }
            Statement::Delete => {
                format!("DELETE FROM {of} USING TIMESTAMP ? WHERE p = ? AND c = ?")
            }
            Statement::Read {
                has_end,
                rows_only,
                reverse,
            } => {
                let order = if reverse { " ORDER BY c DESC" } else { "" };
                let end = if has_end { " AND c < ?" } else { "" };
                let what = what(rows_only);
                format!("SELECT {what} FROM {of} WHERE p = ? AND c >= ?{end}{order} LIMIT ?")
            }
            Statement::Scan { rows_only } => {
                let what = what(rows_only);
                format!("SELECT p, {what} FROM {of} WHERE token(p) >= ? AND token(p) <= ?")
            }
            Statement::SwapNew => {
                format!("INSERT INTO {of} (p, c, v) VALUES (?, ?, ?) IF NOT EXISTS")
            }
            Statement::SwapValue => format!("UPDATE {of} SET v = ? WHERE p = ? AND c = ? IF v = ?"),
            Statement::SwapGone => format!("DELETE FROM {of} WHERE p = ? AND c = ? IF v = ?"),
            Statement::Swapped => format!("SELECT c, v FROM {of} WHERE p = ?"),
        }
    }
}
