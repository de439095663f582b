//! `load --view`: a picture of the levels of each spatial index after each compaction.

use std::collections::HashSet;
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use esker::space::TableBox;
use esker::{DatasetDef, Path};
use esker_store::Dataset;

use super::levels::{Mark, picture};
use super::view::paths;
use crate::failure::Failure;
use crate::output::{counted, note};

/// The interval between two looks at the tables; a compaction takes longer.
const PAUSE: Duration = Duration::from_millis(5);

/// Draws on a separate thread, until [`Merges::end`].
pub(super) struct Merges {
    end: Arc<AtomicBool>,
    thread: JoinHandle<Result<usize, Failure>>,
    dir: PathBuf,
}

/// Refuses to draw a dataset without a spatial index that has a tree.
pub(super) fn check(dir: Option<&FilePath>, name: &str, def: &DatasetDef) -> Result<(), Failure> {
    match dir.filter(|_| paths(def).is_empty()) {
        None => Ok(()),
        Some(dir) => Err(Failure::Usage(format!(
            "--view {}: dataset `{name}` has no spatial index with its own tree",
            dir.display(),
        ))),
    }
}

impl Merges {
    /// Draws the spatial indexes of a dataset into a folder, which is created.
    pub(super) fn draw(dataset: Box<dyn Dataset>, dir: &FilePath) -> Result<Merges, Failure> {
        let paths = paths(&dataset.def());
        std::fs::create_dir_all(dir).map_err(|error| unwritten(dir, &error))?;
        let end = Arc::new(AtomicBool::new(false));
        let indexes = paths.into_iter().map(|path| Levels {
            path,
            tables: None,
            drawn: 0,
        });
        let mut drawing = Drawing {
            dataset,
            dir: dir.to_path_buf(),
            indexes: indexes.collect(),
        };
        let ended = end.clone();
        let thread = std::thread::Builder::new()
            .name("pictures".to_string())
            .spawn(move || {
                loop {
                    let last = ended.load(Ordering::Acquire);
                    drawing.look()?;
                    if last {
                        return Ok(drawing.indexes.iter().map(|levels| levels.drawn).sum());
                    }
                    std::thread::sleep(PAUSE);
                }
            })
            .map_err(|error| unwritten(dir, &error))?;
        Ok(Merges {
            end,
            thread,
            dir: dir.to_path_buf(),
        })
    }

    /// Draws a last time, stops, and reports the number of pictures.
    pub(super) fn end(self) -> Result<(), Failure> {
        self.end.store(true, Ordering::Release);
        let drawn = match self.thread.join() {
            Ok(drawn) => drawn?,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        note(format_args!(
            "{} in {}",
            counted(drawn as u64, "picture"),
            self.dir.display()
        ));
        Ok(())
    }
}

struct Drawing {
    dataset: Box<dyn Dataset>,
    dir: PathBuf,
    indexes: Vec<Levels>,
}

/// An index, and its tables when last looked at.
struct Levels {
    path: Path,
    tables: Option<Vec<TableBox>>,
    drawn: usize,
}

impl Drawing {
    fn look(&mut self) -> Result<(), Failure> {
        let snapshot = self.dataset.snapshot()?;
        for levels in &mut self.indexes {
            let now = snapshot.table_boxes(&levels.path)?;
            let before = levels.tables.replace(now.clone()).unwrap_or_default();
            let Some(marked) = changed(before, now) else {
                continue;
            };
            levels.drawn += 1;
            let (path, drawn) = (levels.path.to_string(), levels.drawn);
            let title = format!("{}: {path}, compaction {drawn}", self.dataset.name());
            let name = path.replace(['/', '\\'], "_");
            let file = self.dir.join(format!("{name}-{drawn:04}.svg"));
            std::fs::write(&file, picture(&title, &marked))
                .map_err(|error| unwritten(&file, &error))?;
        }
        Ok(())
    }
}

/// The tables before and after a compaction, with marks; `None` if there was no compaction (tables
/// were only added or moved).
fn changed(before: Vec<TableBox>, now: Vec<TableBox>) -> Option<Vec<(TableBox, Mark)>> {
    let there: HashSet<u64> = now.iter().map(|table| table.table).collect();
    let known: HashSet<u64> = before.iter().map(|table| table.table).collect();
    let gone = before
        .into_iter()
        .filter(|table| !there.contains(&table.table));
    let mut marked: Vec<(TableBox, Mark)> = gone.map(|table| (table, Mark::Gone)).collect();
    if marked.is_empty() {
        return None;
    }
    marked.extend(now.into_iter().map(|table| {
        if known.contains(&table.table) {
            (table, Mark::Stays)
        } else {
            (table, Mark::Written)
        }
    }));
    Some(marked)
}

fn unwritten(file: &FilePath, error: &std::io::Error) -> Failure {
    Failure::Usage(format!("cannot write {}: {error}", file.display()))
}
