//! The page: one file, without scripts, that needs nothing from anywhere else.

use std::fmt::Write;

use super::figures::Section;
use super::matrix;
use super::scale::{short, thousands};
use super::sheet::{MIB, distinct, facet, parameters};
use crate::failure::Result;
use crate::measure::{Claim, Results, Row};

const STYLE: &str = include_str!("style.css");

/// Escapes text for HTML.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

/// The page of a run.
pub fn html(results: &Results, medians: &[Row], sections: &[Section<'_>]) -> Result<String> {
    let mut page = String::new();
    write!(
        page,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>Esker, measured</title>\n<style>\n{STYLE}</style></head>\n<body>\n"
    )?;
    header(&mut page, results, medians)?;
    page.push_str("<main>\n");
    summary(&mut page, results, sections)?;
    for section in sections {
        write_section(&mut page, section)?;
    }
    settings(&mut page, results)?;
    page.push_str("</main>\n</body></html>\n");
    Ok(page)
}

fn header(page: &mut String, results: &Results, medians: &[Row]) -> Result<()> {
    let setting = |name: &str| {
        let found = results.settings.iter().find(|s| s.name == name);
        found.map(|s| escape(&s.value))
    };
    let mut suites: Vec<&str> = medians.iter().map(|row| row.suite.as_str()).collect();
    suites.dedup();
    let told: Vec<String> = ["commit", "machine", "cpu", "scale", "date"]
        .into_iter()
        .filter_map(|name| Some(format!("{name}: {}", setting(name)?)))
        .collect();
    writeln!(
        page,
        "<header><h1>Esker, measured</h1><p>Suites: {}. {} measurements of {} operations. \
         {}</p></header>",
        escape(&suites.join(", ")),
        thousands(results.rows.len() as u64),
        thousands(results.rows.iter().map(|row| row.ops).sum()),
        told.join(" · "),
    )?;
    Ok(())
}

fn summary(page: &mut String, results: &Results, sections: &[Section<'_>]) -> Result<()> {
    let (all, held) = (results.claims.len(), count_held(results.claims.iter()));
    page.push_str("<section id=\"summary\"><h2>Summary</h2>\n");
    if all > 0 {
        writeln!(
            page,
            "<p class=\"score\"><b>{held}</b> of <b>{all}</b> claims held.</p>\
             <div class=\"meter\" role=\"img\" aria-label=\"{held} of {all} held\">\
             <i style=\"width:{:.1}%\"></i></div>",
            held as f64 * 100.0 / all as f64
        )?;
    }
    page.push_str("<ul class=\"contents\">\n");
    for section in sections {
        let (all, held) = (
            section.claims.len(),
            count_held(section.claims.iter().copied()),
        );
        let score = match all {
            0 => String::new(),
            _ if all == held => format!("<span class=\"held\">{held}/{all}</span>"),
            _ => format!("<span class=\"missed\">{held}/{all}</span>"),
        };
        let (anchor, title) = (&section.anchor, escape(&section.title));
        writeln!(page, "<li><a href=\"#{anchor}\">{title}</a> {score}</li>")?;
    }
    page.push_str("</ul>\n");
    let missed: Vec<&Claim> = results.claims.iter().filter(|claim| !claim.held).collect();
    if !missed.is_empty() {
        writeln!(
            page,
            "<details><summary>The {} missed</summary><ul class=\"claims\">",
            missed.len()
        )?;
        for claim in missed {
            write_claim(page, claim)?;
        }
        page.push_str("</ul></details>\n");
    }
    for section in sections.iter().filter(|section| section.headline) {
        if let Some(table) = matrix::of(&section.rows)? {
            writeln!(page, "<h3>{}</h3>\n{table}", escape(&section.title))?;
        }
    }
    page.push_str("</section>\n");
    Ok(())
}

fn count_held<'a>(claims: impl Iterator<Item = &'a Claim>) -> usize {
    claims.filter(|claim| claim.held).count()
}

fn write_section(page: &mut String, section: &Section<'_>) -> Result<()> {
    let (anchor, title) = (&section.anchor, escape(&section.title));
    writeln!(page, "<section id=\"{anchor}\"><h2>{title}</h2>")?;
    if !section.asks.is_empty() {
        writeln!(page, "<p class=\"asks\">{}</p>", escape(section.asks))?;
    }
    let beside = if section.claims.is_empty() || section.pictures.is_empty() {
        ""
    } else {
        " beside"
    };
    writeln!(
        page,
        "<div class=\"answer{beside}\"><div class=\"pictures\">"
    )?;
    for picture in &section.pictures {
        let caption = escape(&picture.caption);
        writeln!(
            page,
            "<figure>{}<figcaption>{caption}</figcaption></figure>",
            picture.svg.replacen(
                "<svg ",
                &format!("<svg role=\"img\" aria-label=\"{caption}\" "),
                1
            )
        )?;
    }
    page.push_str("</div>\n");
    if !section.claims.is_empty() {
        page.push_str("<ul class=\"claims\">\n");
        for claim in &section.claims {
            write_claim(page, claim)?;
        }
        page.push_str("</ul>\n");
    }
    page.push_str("</div>\n");
    if section.table && !section.rows.is_empty() {
        page.push_str("<details><summary>All figures</summary>\n");
        figures(page, &section.rows)?;
        page.push_str("</details>\n");
    }
    page.push_str("</section>\n");
    Ok(())
}

fn write_claim(page: &mut String, claim: &Claim) -> Result<()> {
    let (class, mark) = if claim.held {
        ("held", "✓ held")
    } else {
        ("missed", "✗ missed")
    };
    write!(
        page,
        "<li class=\"{class}\"><span class=\"mark\">{mark}</span> <b>{}</b> <cite>{}</cite>\
         <p>expected {}; measured {}</p>",
        escape(&claim.text),
        escape(&claim.source),
        escape(&claim.expected),
        escape(&claim.measured),
    )?;
    if !claim.why.is_empty() {
        write!(page, "<p class=\"why\">{}</p>", escape(&claim.why))?;
    }
    page.push_str("</li>\n");
    Ok(())
}

/// A table of all rows of an experiment.
fn figures(page: &mut String, rows: &[&Row]) -> Result<()> {
    let parameters = parameters(rows);
    let figures = distinct(
        rows.iter()
            .flat_map(|row| row.figures.keys().map(String::as_str)),
    );
    page.push_str("<div class=\"wide\"><table><thead><tr><th>subject<th>operation");
    for name in &parameters {
        write!(page, "<th>{}", escape(name))?;
    }
    page.push_str(
        "<th>operations<th>per second<th>CPU µs<th>median µs<th>99 % µs<th>99.9 % µs<th>most µs",
    );
    for name in &figures {
        let (name, unit) = match name.strip_suffix("_bytes") {
            Some(name) => (name, ", MiB"),
            None => (*name, ""),
        };
        write!(page, "<th>{}{unit}", escape(&name.replace('_', " ")))?;
    }
    page.push_str("</thead><tbody>\n");
    for row in rows {
        write!(
            page,
            "<tr><th>{}<td class=\"text\">{}",
            escape(&row.subject),
            escape(&row.operation)
        )?;
        for name in &parameters {
            write!(page, "<td>{}", escape(&facet(row, name)))?;
        }
        write!(
            page,
            "<td>{}<td>{}",
            thousands(row.ops),
            known(row.ops_per_second(), row.seconds)
        )?;
        for value in [row.cpu_us, row.p50_us, row.p99_us, row.p999_us, row.max_us] {
            write!(page, "<td>{}", known(value, value))?;
        }
        for name in &figures {
            let value = row
                .figures
                .get(*name)
                .map(|value| match name.ends_with("_bytes") {
                    true => value / MIB,
                    false => *value,
                });
            write!(page, "<td>{}", value.map_or(String::new(), short))?;
        }
        page.push('\n');
    }
    page.push_str("</tbody></table></div>\n");
    Ok(())
}

/// A value, or nothing where none was measured.
fn known(value: f64, by: f64) -> String {
    if by > 0.0 {
        short(value)
    } else {
        String::new()
    }
}

fn settings(page: &mut String, results: &Results) -> Result<()> {
    page.push_str("<section id=\"settings\"><h2>Settings</h2><div class=\"wide\"><table><tbody>\n");
    for setting in &results.settings {
        let (name, value) = (escape(&setting.name), escape(&setting.value));
        writeln!(page, "<tr><th>{name}<td class=\"text\">{value}")?;
    }
    page.push_str(
        "</tbody></table></div>\n<p class=\"note\">CPU time is that of the whole process, background \
         work included, and steadier than wall time. Bars begin at zero; where the values differ \
         by more than forty times the scale is logarithmic and has dots, because the length of a bar would \
         mean nothing there. Every figure is in results.csv, the pictures are in charts/.</p></section>\n",
    );
    Ok(())
}
