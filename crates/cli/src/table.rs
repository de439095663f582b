//! Rows of cells as a table for people: columns are aligned, and cut so that a line fits.
//!
//! Widths are those of a terminal's columns: wide characters take two, combining marks none. What
//! is cut ends with an ellipsis. Texts are cut before numbers, the widest first.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// The widest cell where no width is given.
const CELL: usize = 48;
/// A column is not made narrower than this for the sake of a line.
const LEAST: usize = 6;
/// Between two columns.
const GAP: &str = "  ";
/// The end of what was cut.
const ELLIPSIS: char = '\u{2026}';

/// The columns of a table.
pub(crate) struct Layout {
    /// Width of each column, and whether it is numeric and therefore right-aligned.
    columns: Vec<(usize, bool)>,
    /// The width of a line, if it is limited.
    width: Option<usize>,
}

impl Layout {
    /// The layout for these rows, of which the first is the heading.
    pub(crate) fn of(rows: &[Vec<String>], width: Option<usize>) -> Layout {
        let columns = rows.first().map_or(0, Vec::len);
        let cells = |column: usize| rows.iter().filter_map(move |row| row.get(column));
        let widest = width.map_or(CELL, |width| width.max(LEAST));
        let columns = (0..columns).map(|column| {
            let widths = cells(column).map(|cell| cell.width().min(widest));
            let mut values = cells(column).skip(1).filter(|cell| !cell.is_empty());
            let numeric = values.all(|cell| cell.parse::<f64>().is_ok());
            (widths.max().unwrap_or(0), numeric)
        });
        let mut layout = Layout {
            columns: columns.collect(),
            width,
        };
        if let Some(width) = width {
            layout.shrink(width, false);
            layout.shrink(width, true);
        }
        layout
    }

    /// Makes columns narrower until a line fits, the widest first: those of texts, or also those of
    /// numbers.
    fn shrink(&mut self, width: usize, numbers: bool) {
        let gaps = GAP.len() * self.columns.len().saturating_sub(1);
        loop {
            let line: usize = self.columns.iter().map(|(width, _)| width).sum();
            let over = (line + gaps).saturating_sub(width);
            let shrinks = |(width, numeric): &(usize, bool)| *width > LEAST && numeric <= &numbers;
            let columns = self.columns.iter_mut().filter(|column| shrinks(column));
            let Some(widest) = columns.max_by_key(|(width, _)| *width).filter(|_| over > 0) else {
                return;
            };
            widest.0 -= 1;
        }
    }

    /// A row as a line.
    pub(crate) fn line(&self, row: &[String]) -> String {
        let cells = row
            .iter()
            .zip(&self.columns)
            .map(|(cell, (width, numeric))| {
                // Control characters, line breaks above all, would break the table.
                let cell = cell.replace(char::is_control, " ");
                let most = self.width.map_or(CELL, |_| *width);
                let cell = cut(&cell, most);
                let fill = " ".repeat(width.saturating_sub(cell.width()));
                if *numeric { fill + &cell } else { cell + &fill }
            });
        let line = cells.collect::<Vec<_>>().join(GAP);
        let line = line.trim_end();
        match self.width {
            Some(width) => cut(line, width),
            None => line.to_string(),
        }
    }
}

/// A text of at most so many columns, with an ellipsis if it was cut.
pub(crate) fn cut(text: &str, most: usize) -> String {
    if text.width() <= most {
        return text.to_string();
    }
    let (mut cut, mut width) = (String::new(), 0);
    for c in text.chars() {
        width += c.width().unwrap_or(0);
        // The ellipsis takes a column.
        if width + 1 > most {
            break;
        }
        cut.push(c);
    }
    cut.truncate(cut.trim_end().len());
    cut.push(ELLIPSIS);
    cut
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(rows: &[&[&str]]) -> Vec<Vec<String>> {
        let row = |row: &&[&str]| row.iter().map(|cell| cell.to_string()).collect();
        rows.iter().map(row).collect()
    }

    fn lines(of: &[&[&str]], width: Option<usize>) -> Vec<String> {
        let rows = rows(of);
        let layout = Layout::of(&rows, width);
        rows.iter().map(|row| layout.line(row)).collect()
    }

    #[test]
    fn numbers_are_right_aligned_and_texts_left() {
        let table: &[&[&str]] = &[&["id", "name"], &["1", "ann"], &["200", ""]];
        assert_eq!(lines(table, None), [" id  name", "  1  ann", "200"]);
    }

    #[test]
    fn a_line_fits_the_width_and_texts_are_cut_before_numbers() {
        let text = "x".repeat(60);
        let table: &[&[&str]] = &[
            &["number", "text", "short"],
            &["12345678901234", &text, "abc"],
        ];
        for width in 10..120 {
            for line in lines(table, Some(width)) {
                assert!(line.width() <= width, "{width}: {line}");
            }
        }
        let at_40 = lines(table, Some(40));
        assert_eq!(
            at_40[1],
            format!("12345678901234  {}\u{2026}  abc", "x".repeat(16))
        );
        let at_90 = lines(table, Some(90));
        assert!(at_90[1].contains(&text), "{}", at_90[1]);
        // Without a width a cell is cut, and a line has any length.
        assert_eq!(lines(table, None)[1].width(), 14 + 2 + CELL + 2 + 5 - 2);
    }

    #[test]
    fn widths_are_those_of_a_terminal() {
        let table: &[&[&str]] = &[
            &["name", "n"],
            &["\u{65e5}\u{672c}", "1"],
            &["e\u{301}", "2"],
            &["line\nbreak", "3"],
        ];
        assert_eq!(
            lines(table, None),
            [
                "name        n",
                "\u{65e5}\u{672c}        1",
                "e\u{301}           2",
                "line break  3",
            ]
        );
        assert_eq!(
            cut("\u{65e5}\u{672c}\u{8a9e}", 5),
            "\u{65e5}\u{672c}\u{2026}"
        );
        assert_eq!(cut("\u{65e5}\u{672c}\u{8a9e}", 4), "\u{65e5}\u{2026}");
        assert_eq!(cut("abc", 3), "abc");
        assert_eq!(cut("abcd", 3), "ab\u{2026}");
    }
}
