//! Changing a dataset while it is in use: its indexes (`add.rs`, `indexes.rs`, `build.rs`,
//! `unique.rs`), its maintenance strategy (`migration.rs`), and the expiry of its records
//! (`expiry.rs`). The first two begin with one edit of the engine, after which writes maintain the
//! old and the new structure. Then they transfer the older records (`backfill.rs`). They can be
//! interrupted anywhere and resumed.

mod add;
mod backfill;
mod build;
mod expiry;
mod indexes;
mod migration;
mod unique;

pub use indexes::{IndexChange, IndexProgress, IndexStep};
pub(crate) use migration::MigrationTarget;
pub use migration::{MigrationProgress, MigrationReport, MigrationStep};
