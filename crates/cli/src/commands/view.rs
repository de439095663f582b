//! `view`: where the tables of an index of points lie, level by level, as a picture.

use std::collections::BTreeMap;
use std::fmt::Write;

use esker::{DatasetSnapshot, Path, TableBox};

use super::{dataset_at, open_to_read};
use crate::args::ViewArgs;
use crate::failure::{Failure, Outcome};
use crate::output::{Output, bytes, counted, thousands};

/// The size of the part of the picture that shows a level.
const WIDTH: f64 = 900.0;
const MOST_HEIGHT: f64 = 600.0;
/// Above it, its heading and the space to the next.
const HEADING: f64 = 34.0;
const MARGIN: f64 = 20.0;

/// `esker view DIR DATASET [PATH]`
pub(crate) fn view(args: &ViewArgs, memory: usize) -> Result<Outcome, Failure> {
    let db = open_to_read(&args.dir, memory)?;
    let dataset = dataset_at(&db, &args.dataset, None)?;
    let path = match &args.path {
        Some(path) => path.clone(),
        None => only_path(&dataset)?,
    };
    let boxes = dataset.table_boxes(&path)?;
    let title = format!("{}: {path}", args.dataset);
    let mut output = Output::new();
    output.line(picture(&title, &boxes))?;
    output.finish()?;
    Ok(Outcome::Done)
}

/// The index of points, if there is one.
fn only_path(dataset: &DatasetSnapshot) -> Result<Path, Failure> {
    let def = dataset.def();
    let points: Vec<&Path> = def
        .indexes
        .iter()
        .filter(|index| index.kind.is_spatial() && index.kind.is_standalone())
        .map(|index| &index.path)
        .collect();
    match points.as_slice() {
        [only] => Ok((*only).clone()),
        [] => Err(Failure::Usage(format!(
            "dataset `{}` has no index of points with a tree",
            dataset.name()
        ))),
        several => {
            let names: Vec<String> = several.iter().map(ToString::to_string).collect();
            Err(Failure::Usage(format!(
                "say which index of points: {}",
                names.join(" or ")
            )))
        }
    }
}

/// All levels below each other, on the same axes.
fn picture(title: &str, boxes: &[TableBox]) -> String {
    let least = |side: fn(&TableBox) -> f64| boxes.iter().map(side).fold(f64::INFINITY, f64::min);
    let most =
        |side: fn(&TableBox) -> f64| boxes.iter().map(side).fold(f64::NEG_INFINITY, f64::max);
    let (west, south) = (least(|b| b.west), least(|b| b.south));
    let (east, north) = (most(|b| b.east), most(|b| b.north));
    let (wide, high) = ((east - west).max(1e-9), (north - south).max(1e-9));
    let scale = (WIDTH / wide).min(MOST_HEIGHT / high);
    let (width, height) = ((wide * scale).max(80.0), (high * scale).max(20.0));
    let mut levels: BTreeMap<(u32, usize), Vec<&TableBox>> = BTreeMap::new();
    for table in boxes {
        // The runs of level 0 are together.
        let run = if table.level == 0 { 0 } else { table.run };
        levels.entry((table.level, run)).or_default().push(table);
    }
    let all_high = HEADING + levels.len() as f64 * (HEADING + height + MARGIN);
    let all_wide = WIDTH.max(width) + 2.0 * MARGIN;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {all_wide:.0} {all_high:.0}\" font-family=\"sans-serif\" font-size=\"14\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <text x=\"{MARGIN}\" y=\"24\" font-weight=\"bold\">{}</text>\n",
        escaped(title)
    );
    for (nth, ((level, _), tables)) in levels.iter().enumerate() {
        let top = HEADING + nth as f64 * (HEADING + height + MARGIN) + HEADING;
        let size: u64 = tables.iter().map(|table| table.bytes).sum();
        let entries: u64 = tables.iter().map(|table| table.entries).sum();
        // Writing to a string cannot fail.
        let _ = write!(
            svg,
            "<text x=\"{MARGIN}\" y=\"{:.1}\">level {level}: {}, {} entries, {}</text>\n\
             <rect x=\"{MARGIN}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"#f4f4f1\"/>\n",
            top - 8.0,
            counted(tables.len() as u64, "table"),
            thousands(entries),
            bytes(size),
        );
        for table in tables {
            let (x, y) = (
                MARGIN + (table.west - west) * scale,
                top + (north - table.north) * scale,
            );
            let (w, h) = (
                (table.east - table.west) * scale,
                (table.north - table.south) * scale,
            );
            let _ = writeln!(
                svg,
                "<rect x=\"{x:.2}\" y=\"{y:.2}\" width=\"{:.2}\" height=\"{:.2}\" fill=\"#2a6f97\" fill-opacity=\"0.15\" stroke=\"#2a6f97\"><title>{} entries: {} to {}, {} to {}</title></rect>",
                w.max(0.5),
                h.max(0.5),
                thousands(table.entries),
                table.west,
                table.east,
                table.south,
                table.north,
            );
        }
    }
    svg.push_str("</svg>");
    svg
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}
