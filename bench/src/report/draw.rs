//! Pictures as SVG. Text and grid take the colours of the page, so that they are readable on light
//! and on dark.

use plotters::coord::Shift;
use plotters::element::{Drawable, PointCollection};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::colours::{self, GRID, INK};
use super::scale::{Scale, short};
use crate::failure::{Failure, Result};

const WIDTH: i32 = 440;
const ROW: i32 = 19;
const HEADING: i32 = 26;
const FOOT: i32 = 42;
/// Width of a character of 13 pixels, about; the backend has no font to measure.
const CHARACTER: f64 = 7.0;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// A row of a bar chart.
pub struct Bar {
    /// Whose it is.
    pub subject: String,
    /// Its length.
    pub value: f64,
}

/// Bars under a heading of their own.
pub struct Group {
    /// The heading; may be empty.
    pub name: String,
    /// The bars, in order.
    pub bars: Vec<Bar>,
}

/// A line.
pub struct Line {
    /// Whose it is.
    pub subject: String,
    /// Its points, x ascending.
    pub points: Vec<(f64, f64)>,
}

/// Horizontal bars, each with its name and its value. Where a linear scale would hide the small ones
/// the scale is logarithmic, and there are dots: the length of a bar would say nothing.
pub fn bars(unit: &str, groups: &[Group]) -> Result<String> {
    let all = groups.iter().flat_map(|group| &group.bars);
    let scale = Scale::of(all.clone().map(|bar| bar.value));
    let longest = all
        .clone()
        .map(|bar| bar.subject.chars().count())
        .max()
        .unwrap_or(0);
    let left = (longest as f64 * CHARACTER) as i32 + 16;
    let right = WIDTH - 58;
    let headings = groups.iter().filter(|group| !group.name.is_empty()).count() as i32;
    let bottom = 8 + all.count() as i32 * ROW + headings * HEADING;
    picture(WIDTH, bottom + FOOT, |area| {
        let x = |value: f64| left + (scale.place(value) * f64::from(right - left)) as i32;
        for tick in scale.ticks(5) {
            grid(area, (x(tick), 4), (x(tick), bottom))?;
            text(
                area,
                &short(tick),
                (x(tick), bottom + 6),
                12,
                HPos::Center,
                INK,
            )?;
        }
        let axis = if scale.log {
            format!("{unit} (logarithmic)")
        } else {
            unit.to_string()
        };
        text(
            area,
            &axis,
            ((left + right) / 2, bottom + 22),
            13,
            HPos::Center,
            INK,
        )?;
        let mut y = 6;
        for group in groups {
            if !group.name.is_empty() {
                text(area, &group.name, (4, y + 8), 13, HPos::Left, INK)?;
                y += HEADING;
            }
            for bar in &group.bars {
                let colour = colours::of(&bar.subject);
                let (end, middle) = (x(bar.value), y + ROW / 2);
                text(
                    area,
                    &bar.subject,
                    (left - 8, middle - 6),
                    13,
                    HPos::Right,
                    INK,
                )?;
                if scale.log {
                    grid(area, (left, middle), (end, middle))?;
                    draw(area, Circle::new((end, middle), 5, colour.filled()))?;
                } else {
                    let corners = [(left, y + 3), (end.max(left + 1), y + ROW - 3)];
                    draw(area, Rectangle::new(corners, colour.filled()))?;
                }
                text(
                    area,
                    &short(bar.value),
                    (end + 9, middle - 6),
                    12,
                    HPos::Left,
                    INK,
                )?;
                y += ROW;
            }
        }
        Ok(())
    })
}

/// Lines over a common axis, with a legend above.
pub fn lines(unit: &str, along: &str, lines: &[Line]) -> Result<String> {
    let points = lines.iter().flat_map(|line| &line.points);
    let across = Scale::span(points.clone().map(|point| point.0));
    let up = Scale::of(points.map(|point| point.1));
    let (left, right, height) = (50, WIDTH - 16, 300);
    let rows = legend(lines, left, right);
    let top = 42 + rows.last().map_or(0, |place| place.1);
    let bottom = top + height - 100;
    picture(WIDTH, bottom + FOOT, |area| {
        let x = |value: f64| left + (across.place(value) * f64::from(right - left)) as i32;
        let y = |value: f64| bottom - (up.place(value) * f64::from(bottom - top)) as i32;
        for tick in up.ticks(5) {
            grid(area, (left, y(tick)), (right, y(tick)))?;
            text(
                area,
                &short(tick),
                (left - 7, y(tick) - 6),
                12,
                HPos::Right,
                INK,
            )?;
        }
        for tick in across.ticks(6) {
            grid(area, (x(tick), bottom), (x(tick), bottom + 4))?;
            text(
                area,
                &short(tick),
                (x(tick), bottom + 7),
                12,
                HPos::Center,
                INK,
            )?;
        }
        let axis = if up.log {
            format!("{unit} (logarithmic)")
        } else {
            unit.to_string()
        };
        text(area, &axis, (4, top - 18), 13, HPos::Left, INK)?;
        text(
            area,
            along,
            ((left + right) / 2, bottom + 23),
            13,
            HPos::Center,
            INK,
        )?;
        for (line, (at, row)) in lines.iter().zip(rows) {
            let colour = colours::of(&line.subject);
            draw(
                area,
                Rectangle::new([(at, row + 4), (at + 14, row + 8)], colour.filled()),
            )?;
            text(area, &line.subject, (at + 19, row), 13, HPos::Left, INK)?;
            let path: Vec<(i32, i32)> = line.points.iter().map(|p| (x(p.0), y(p.1))).collect();
            for point in path.iter().filter(|_| path.len() <= 12) {
                draw(area, Circle::new(*point, 3, colour.filled()))?;
            }
            draw(area, PathElement::new(path, colour.stroke_width(2)))?;
        }
        Ok(())
    })
}

/// Where the entries of a legend go: left to right, in as many rows as needed.
fn legend(lines: &[Line], left: i32, right: i32) -> Vec<(i32, i32)> {
    let (mut at, mut row) = (left, 4);
    let mut places = Vec::new();
    for line in lines {
        let width = (line.subject.chars().count() as f64 * CHARACTER) as i32 + 36;
        if at + width > right && at > left {
            (at, row) = (left, row + 18);
        }
        places.push((at, row));
        at += width;
    }
    places
}

fn picture(width: i32, height: i32, fill: impl FnOnce(&Area<'_>) -> Result<()>) -> Result<String> {
    let mut svg = String::new();
    {
        let size = (width as u32, height as u32);
        let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        fill(&area)?;
        area.present().map_err(|e| Failure::new(e.to_string()))?;
    }
    Ok(on_any_page(&svg))
}

/// Replaces the two stand-in colours by the page's text colour.
fn on_any_page(svg: &str) -> String {
    let grid = r##"stroke="#020202""##;
    svg.replace(r##"fill="#010101""##, r#"fill="currentColor""#)
        .replace(
            grid,
            r#"stroke="currentColor" class="grid" stroke-opacity="0.18""#,
        )
}

fn draw<'a, E>(area: &Area<'a>, element: E) -> Result<()>
where
    for<'e> &'e E: PointCollection<'e, (i32, i32)>,
    E: Drawable<SVGBackend<'a>>,
{
    area.draw(&element).map_err(|e| Failure::new(e.to_string()))
}

fn grid(area: &Area<'_>, from: (i32, i32), to: (i32, i32)) -> Result<()> {
    draw(area, PathElement::new(vec![from, to], GRID.stroke_width(1)))
}

fn text(
    area: &Area<'_>,
    what: &str,
    at: (i32, i32),
    size: i32,
    side: HPos,
    colour: RGBColor,
) -> Result<()> {
    let style = TextStyle::from(("sans-serif", size).into_font())
        .color(&colour)
        .pos(Pos::new(side, VPos::Top));
    draw(area, Text::new(what.to_string(), at, style))
}
