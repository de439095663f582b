//! The report of a run: a table of all rows (`results.csv`), pictures (`charts/*.svg`), a page to read (`index.html`), and
//! figures for a repository to show (`README.md`), all made of `results.jsonl` alone.

mod colours;
mod document;
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
            save(&chart(section, at), picture.alone().as_bytes())?;
        }
    }
    let document = document::markdown(&results, &sections, chart)?;
    save("README.md", document.as_bytes())?;
    save(
        "index.html",
        page::html(&results, &medians, &sections)?.as_bytes(),
    )
}

/// The file of a section's picture, named after what it shows.
fn chart(section: &figures::Section<'_>, at: usize) -> String {
    let caption = section.pictures.get(at).map_or("", |p| p.caption.as_str());
    let name = figures::anchor(&section.anchor, caption);
    let earlier = section.pictures.iter().take(at);
    match earlier.filter(|p| p.caption == caption).count() {
        0 => format!("charts/{name}.svg"),
        again => format!("charts/{name}-{}.svg", again + 1),
    }
}
