//! Sections of the page: an experiment's rows, its claims, and its pictures drawn.

use super::draw::{self, Bar, Group, Line};
use super::sheet::{Chart, Form, Sheet, label, number, plain};
use crate::failure::Result;
use crate::measure::{Claim, Row};

/// A picture and what it shows.
pub struct Picture {
    /// The caption.
    pub caption: String,
    /// The SVG, whose text has the colour of the page around it.
    pub svg: String,
}

/// What the page says of an experiment.
pub struct Section<'a> {
    /// The heading.
    pub title: String,
    /// Its question.
    pub asks: &'a str,
    /// What links point to; also the name of its files.
    pub anchor: String,
    /// The pictures.
    pub pictures: Vec<Picture>,
    /// The statements that it checks.
    pub claims: Vec<&'a Claim>,
    /// Its rows, medians of repeats.
    pub rows: Vec<&'a Row>,
    /// Whether all rows are shown.
    pub table: bool,
    /// Whether the summary has its table of operations by subjects.
    pub headline: bool,
}

impl Picture {
    /// The picture as a file of its own, on white.
    pub fn alone(&self) -> String {
        let style = r#"<svg style="background:#fff;color:#222;font-family:sans-serif" "#;
        self.svg.replacen("<svg ", style, 1)
    }
}

/// The sections, in the order of the sheets; experiments without a sheet behind them.
pub fn sections<'a>(
    medians: &'a [Row],
    claims: &'a [Claim],
    sheets: &'a [Sheet],
) -> Result<Vec<Section<'a>>> {
    let mut names: Vec<(&str, &str)> = Vec::new();
    let of_claims = claims
        .iter()
        .map(|c| (c.suite.as_str(), c.experiment.as_str()));
    let of_rows = medians
        .iter()
        .map(|r| (r.suite.as_str(), r.experiment.as_str()));
    for name in of_rows.chain(of_claims) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let place = |name: &(&str, &str)| sheets.iter().position(|s| (s.suite, s.experiment) == *name);
    names.sort_by_key(|name| place(name).unwrap_or(usize::MAX));
    let mut sections = Vec::new();
    for (suite, experiment) in names {
        let rows: Vec<&Row> = medians
            .iter()
            .filter(|row| row.suite == suite && row.experiment == experiment)
            .collect();
        let claims = claims
            .iter()
            .filter(|claim| claim.suite == suite && claim.experiment == experiment);
        let sheet = place(&(suite, experiment)).and_then(|at| sheets.get(at));
        let mut pictures = Vec::new();
        let plain = plain();
        for chart in sheet.map_or(&plain, |sheet| &sheet.charts) {
            pictures.extend(draw_all(chart, &rows)?);
        }
        sections.push(Section {
            title: sheet.map_or(experiment, |sheet| sheet.title).to_string(),
            asks: sheet.map_or("", |sheet| sheet.asks),
            anchor: anchor(suite, experiment),
            pictures,
            claims: claims.collect(),
            rows,
            table: sheet.is_none_or(|sheet| sheet.table),
            headline: sheet.is_none_or(|sheet| sheet.headline),
        });
    }
    Ok(sections)
}

/// Two names as one that a file or a link can have.
pub fn anchor(suite: &str, experiment: &str) -> String {
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() {
            c.to_ascii_lowercase()
        } else {
            '-'
        }
    };
    format!("{suite}-{experiment}").chars().map(plain).collect()
}

/// Keys in order of first appearance, each with its rows.
fn partition<'a>(rows: &[&'a Row], key: impl Fn(&Row) -> String) -> Vec<(String, Vec<&'a Row>)> {
    let mut parts: Vec<(String, Vec<&Row>)> = Vec::new();
    for row in rows {
        let key = key(row);
        match parts.iter_mut().find(|part| part.0 == key) {
            Some(part) => part.1.push(row),
            None => parts.push((key, vec![row])),
        }
    }
    parts
}

fn draw_all(chart: &Chart, rows: &[&Row]) -> Result<Vec<Picture>> {
    let rows: Vec<&Row> = rows
        .iter()
        .copied()
        .filter(|row| chart.takes(row))
        .collect();
    let mut pictures = Vec::new();
    for (name, rows) in partition(&rows, |row| label(row, chart.split)) {
        let captions = [chart.title, name.as_str()];
        let caption = captions.iter().filter(|part| !part.is_empty());
        let svg = match chart.form {
            Form::Bars => draw::bars(chart.measure.unit(), &groups(chart, &rows))?,
            Form::Lines(along, text) => {
                draw::lines(chart.measure.unit(), text, &lines(chart, along, &rows))?
            }
        };
        let caption = caption.copied().collect::<Vec<_>>().join(": ");
        pictures.push(Picture { caption, svg });
    }
    Ok(pictures)
}

fn groups(chart: &Chart, rows: &[&Row]) -> Vec<Group> {
    let parts = partition(rows, |row| label(row, chart.group));
    let group = |(name, rows): (String, Vec<&Row>)| Group {
        name,
        bars: rows
            .iter()
            .filter_map(|row| {
                let (subject, value) = (row.subject.clone(), chart.measure.of(row)?);
                Some(Bar { subject, value })
            })
            .collect(),
    };
    parts.into_iter().map(group).collect()
}

fn lines(chart: &Chart, along: &str, rows: &[&Row]) -> Vec<Line> {
    let line = |(subject, rows): (String, Vec<&Row>)| {
        let point = |row: &&Row| Some((number(row, along)?, chart.measure.of(row)?));
        let mut points: Vec<(f64, f64)> = rows.iter().filter_map(point).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        Line { subject, points }
    };
    let name = |row: &Row| match label(row, chart.group) {
        more if more.is_empty() => row.subject.clone(),
        more => format!("{}, {more}", row.subject),
    };
    partition(rows, name).into_iter().map(line).collect()
}
