//! The report of a run: a table of all rows (`results.csv`), pictures (`charts/*.svg`), and a page to
//! read (`index.html`), all made of `results.jsonl` alone.

mod colours;
mod draw;
mod figures;
mod matrix;
mod page;
pub mod scale;
pub mod sheet;
mod table;
#[cfg(test)]
mod tests;

use std::path::Path;

use crate::failure::{Failure, Result};
use crate::measure::Results;
use sheet::Sheet;

/// Makes the report of the run in `out`, anew.
pub fn make(out: &Path, sheets: &[Sheet]) -> Result<()> {
    let results = Results::read(out)?;
    let save = |name: &str, text: &[u8]| {
        std::fs::write(out.join(name), text)
            .map_err(|e| Failure::new(format!("{}: {e}", out.join(name).display())))
    };
    save("results.csv", &table::csv(&results.rows)?)?;
    let charts = out.join("charts");
    match std::fs::remove_dir_all(&charts) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e.into()),
        _ => std::fs::create_dir_all(&charts)?,
    }
    let medians = results.medians();
    let sections = figures::sections(&medians, &results.claims, sheets)?;
    for section in &sections {
        for (at, picture) in section.pictures.iter().enumerate() {
            let name = format!("charts/{}-{}.svg", section.anchor, at + 1);
            save(&name, picture.alone().as_bytes())?;
        }
    }
    save(
        "index.html",
        page::html(&results, &medians, &sections)?.as_bytes(),
    )
}
