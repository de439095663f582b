//! A picture of the tables of a spatial index: one panel per level, all with the same axes.

use std::collections::BTreeMap;
use std::fmt::Write;

use esker::space::TableBox;

use crate::output::{bytes, counted, thousands};

/// The maximum size of a level's panel.
const WIDTH: f64 = 900.0;
const MOST_HEIGHT: f64 = 600.0;
/// The heading above a panel, the space between panels, and the room for the axes' numbers.
const HEADING: f64 = 34.0;
const MARGIN: f64 = 20.0;
const LEFT: f64 = 64.0;
const BELOW: f64 = 16.0;
/// The maximum number of grid lines per axis.
const LINES: f64 = 8.0;

/// The part that a table had in a compaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mark {
    Stays,
    /// The compaction wrote it.
    Written,
    /// The compaction read and removed it.
    Gone,
}

impl Mark {
    fn style(self) -> &'static str {
        match self {
            Mark::Stays => "fill=\"#2a6f97\" fill-opacity=\"0.15\" stroke=\"#2a6f97\"",
            Mark::Written => "fill=\"#d1495b\" fill-opacity=\"0.2\" stroke=\"#d1495b\"",
            Mark::Gone => "fill=\"none\" stroke=\"#777\" stroke-dasharray=\"4 3\"",
        }
    }
}

/// Coordinates of a level's panel.
struct Axes {
    west: f64,
    south: f64,
    east: f64,
    north: f64,
    scale: f64,
}

impl Axes {
    fn of(boxes: &[(TableBox, Mark)]) -> Axes {
        let least = |side: fn(&TableBox) -> f64| {
            let sides = boxes.iter().map(|(table, _)| side(table));
            sides.fold(f64::INFINITY, f64::min)
        };
        let most = |side: fn(&TableBox) -> f64| {
            let sides = boxes.iter().map(|(table, _)| side(table));
            sides.fold(f64::NEG_INFINITY, f64::max)
        };
        let (west, south) = (least(|b| b.west), least(|b| b.south));
        let (east, north) = (most(|b| b.east), most(|b| b.north));
        let (wide, high) = ((east - west).max(1e-9), (north - south).max(1e-9));
        Axes {
            west,
            south,
            east,
            north,
            scale: (WIDTH / wide).min(MOST_HEIGHT / high),
        }
    }

    fn x(&self, longitude: f64) -> f64 {
        LEFT + (longitude - self.west) * self.scale
    }

    fn y(&self, top: f64, latitude: f64) -> f64 {
        top + (self.north - latitude) * self.scale
    }

    fn width(&self) -> f64 {
        ((self.east - self.west) * self.scale).max(80.0)
    }

    fn height(&self) -> f64 {
        ((self.north - self.south) * self.scale).max(20.0)
    }
}

/// Draws all levels below each other.
pub(super) fn picture(title: &str, boxes: &[(TableBox, Mark)]) -> String {
    let axes = Axes::of(boxes);
    let (width, height) = (axes.width(), axes.height());
    let mut levels: BTreeMap<(u32, usize), Vec<&(TableBox, Mark)>> = BTreeMap::new();
    for marked in boxes {
        let table = &marked.0;
        // The runs of level 0 share a panel.
        let run = if table.level == 0 { 0 } else { table.run };
        levels.entry((table.level, run)).or_default().push(marked);
    }
    let each = HEADING + height + BELOW + MARGIN;
    let all_high = HEADING + levels.len() as f64 * each;
    let all_wide = WIDTH.max(width) + LEFT + MARGIN;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {all_wide:.0} {all_high:.0}\" font-family=\"sans-serif\" font-size=\"14\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <text x=\"{MARGIN}\" y=\"24\" font-weight=\"bold\">{}</text>\n",
        escaped(title)
    );
    for (nth, ((level, _), tables)) in levels.iter().enumerate() {
        let top = HEADING + nth as f64 * each + HEADING;
        let there = tables.iter().filter(|(_, mark)| *mark != Mark::Gone);
        let (mut count, mut entries, mut size) = (0, 0, 0);
        for (table, _) in there {
            count += 1;
            entries += table.entries;
            size += table.bytes;
        }
        // Writing to a string cannot fail.
        let _ = write!(
            svg,
            "<text x=\"{LEFT}\" y=\"{:.1}\">level {level}: {}, {} entries, {}</text>\n\
             <rect x=\"{LEFT}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"#f4f4f1\"/>\n",
            top - 8.0,
            counted(count, "table"),
            thousands(entries),
            bytes(size),
        );
        lines(&mut svg, &axes, top);
        for (table, mark) in tables {
            let (x, y) = (axes.x(table.west), axes.y(top, table.north));
            let _ = writeln!(
                svg,
                "<rect x=\"{x:.2}\" y=\"{y:.2}\" width=\"{:.2}\" height=\"{:.2}\" {}><title>{} entries: {} to {}, {} to {}</title></rect>",
                ((table.east - table.west) * axes.scale).max(0.5),
                ((table.north - table.south) * axes.scale).max(0.5),
                mark.style(),
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

/// Draws the grid lines with their numbers.
fn lines(svg: &mut String, axes: &Axes, top: f64) {
    let (right, bottom) = (LEFT + axes.width(), top + axes.height());
    for at in round_numbers(axes.west, axes.east) {
        let x = axes.x(at);
        let _ = writeln!(
            svg,
            "<path d=\"M{x:.1} {top:.1}V{bottom:.1}\" stroke=\"#fff\"/>\
             <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\" font-size=\"11\" fill=\"#555\">{at}</text>",
            bottom + 13.0
        );
    }
    for at in round_numbers(axes.south, axes.north) {
        let y = axes.y(top, at);
        let _ = writeln!(
            svg,
            "<path d=\"M{LEFT} {y:.1}H{right:.1}\" stroke=\"#fff\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\" font-size=\"11\" fill=\"#555\">{at}</text>",
            LEFT - 6.0,
            y + 4.0
        );
    }
}

/// Round numbers between two bounds.
fn round_numbers(low: f64, high: f64) -> Vec<f64> {
    let span = high - low;
    if !(span > 0.0 && span.is_finite()) {
        return Vec::new();
    }
    let power = 10_f64.powf((span / LINES).log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * power);
    let step = steps.into_iter().find(|step| span / step <= LINES);
    let step = step.unwrap_or(10.0 * power);
    let first = (low / step).ceil();
    let count = ((high / step).floor() - first) as i64;
    // Rounded to the digits of the step, which hides errors of binary fractions.
    let digits = (-step.log10().floor()).max(0.0) as usize;
    let number = |nth: i64| {
        format!("{:.digits$}", (first + nth as f64) * step)
            .parse()
            .ok()
    };
    (0..=count.min(20)).filter_map(number).collect()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::round_numbers;

    #[test]
    fn axes_have_a_few_round_numbers() {
        assert_eq!(round_numbers(-170.3, 168.0).len(), 7);
        assert_eq!(round_numbers(2.31, 2.38)[..2], [2.31, 2.32]);
        assert!(round_numbers(0.0, 0.0).is_empty());
        assert!(round_numbers(f64::NEG_INFINITY, 1.0).is_empty());
        for (low, high) in [(1e-9, 3e-9), (-1e300, 1e300), (5.0, 5.1), (-0.001, 1e6)] {
            let found = round_numbers(low, high);
            assert!((1..=9).contains(&found.len()), "{low} to {high}: {found:?}");
            assert!(found.is_sorted());
        }
    }
}
