//! Splits a Rust source into its code and its prose (comments and string literals), line by line,
//! for the tests that read sources.

/// A piece of prose: the text of one line of a comment or of a string literal.
pub(crate) struct Prose {
    /// The line in the file, from 1.
    pub(crate) line: usize,
    /// The text, without the delimiters.
    pub(crate) text: String,
}

/// A source, taken apart.
pub(crate) struct Source {
    /// The code: comments and the contents of string literals are blank, line breaks stay.
    pub(crate) code: String,
    /// Comments and string literals, in order.
    pub(crate) prose: Vec<Prose>,
}

/// Reads from the front of a source.
struct Scan<'a> {
    rest: &'a str,
    line: usize,
    out: Source,
    /// The last character of code, which tells a raw string from a name that ends in `r`.
    last: char,
}

impl Scan<'_> {
    /// Moves `bytes` bytes into the code.
    fn code(&mut self, bytes: usize) {
        let (text, rest) = self.rest.split_at(bytes);
        self.line += text.matches('\n').count();
        self.last = text.chars().next_back().unwrap_or(self.last);
        self.out.code += text;
        self.rest = rest;
    }

    /// Moves `bytes` bytes into the prose, and their line breaks into the code.
    fn prose(&mut self, bytes: usize) {
        let (text, rest) = self.rest.split_at(bytes);
        for (at, line) in text.split('\n').enumerate() {
            if at > 0 {
                self.line += 1;
                self.out.code.push('\n');
            }
            if !line.trim().is_empty() {
                let (line, text) = (self.line, line.to_string());
                self.out.prose.push(Prose { line, text });
            }
        }
        self.rest = rest;
    }
}

/// The length of a block comment at the front of `text`, the ones inside it included.
fn block_comment(text: &str) -> usize {
    let (mut at, mut depth) = (0, 0);
    while at < text.len() {
        if text[at..].starts_with("/*") {
            (at, depth) = (at + 2, depth + 1);
        } else if text[at..].starts_with("*/") {
            (at, depth) = (at + 2, depth - 1);
            if depth == 0 {
                return at;
            }
        } else {
            at += text[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    text.len()
}

/// The length of the contents of a string literal whose opening quote is in front of `text`.
fn string(text: &str) -> usize {
    let mut is_escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            '"' if !is_escaped => return at,
            _ => is_escaped = c == '\\' && !is_escaped,
        }
    }
    text.len()
}

/// The length of a character literal at the front of `text`; 0 if it is a lifetime.
fn character(text: &str) -> usize {
    let mut chars = text.char_indices().skip(1);
    match chars.next() {
        Some((_, '\\')) => text[3..].find('\'').map_or(0, |at| at + 4),
        Some((_, _)) => match chars.next() {
            Some((at, '\'')) => at + 1,
            _ => 0,
        },
        None => 0,
    }
}

/// How many `#` a raw string literal at the front of `text` has; `None` if it is none.
fn raw(text: &str) -> Option<usize> {
    let rest = text.strip_prefix('r')?;
    let hashes = rest.len() - rest.trim_start_matches('#').len();
    rest[hashes..].starts_with('"').then_some(hashes)
}

/// Takes a source apart.
pub(crate) fn split(text: &str) -> Source {
    let out = Source {
        code: String::new(),
        prose: Vec::new(),
    };
    let (line, last) = (1, ' ');
    let mut scan = Scan {
        rest: text,
        line,
        out,
        last,
    };
    while let Some(c) = scan.rest.chars().next() {
        let in_name = scan.last.is_alphanumeric() && scan.last != 'b' || scan.last == '_';
        let quoted = if c == '\'' { character(scan.rest) } else { 0 };
        if scan.rest.starts_with("//") {
            scan.prose(scan.rest.find('\n').unwrap_or(scan.rest.len()));
        } else if scan.rest.starts_with("/*") {
            scan.prose(block_comment(scan.rest));
        } else if c == '"' {
            scan.code(1);
            scan.prose(string(scan.rest));
            scan.code(1.min(scan.rest.len()));
        } else if let Some(hashes) = raw(scan.rest).filter(|_| !in_name) {
            scan.code(hashes + 2);
            let end = format!("\"{}", "#".repeat(hashes));
            scan.prose(scan.rest.find(&end).unwrap_or(scan.rest.len()));
            scan.code(end.len().min(scan.rest.len()));
        } else if quoted > 0 {
            scan.code(1);
            scan.rest = &scan.rest[quoted - 2..];
            scan.code(1);
        } else {
            scan.code(c.len_utf8());
        }
    }
    scan.out
}

/// True for files that contain only unit tests.
pub(crate) fn is_test(path: &std::path::Path) -> bool {
    let is_tests = |part: &std::ffi::OsStr| part == "tests";
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.iter().any(is_tests) || name == "tests.rs" || name.ends_with("_tests.rs")
}

/// The Rust files below `src`, with their paths in it, in order.
pub(crate) fn files(src: &std::path::Path) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut folders = vec![src.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path.strip_prefix(src).unwrap().to_str().unwrap();
                found.push((name.to_string(), std::fs::read_to_string(&path).unwrap()));
            }
        }
    }
    found.sort();
    found
}

#[test]
fn code_and_prose_are_told_apart() {
    let text = "//! One.\nlet a = \"two // \\\" \\\\\"; // three\nlet b = r#\"fo\nur\"#; /* five /* six */\n */\nlet c = ('\"', '\\'', 'x'); fn f<'a>() {}\nlet var = b\"7\"; for\"8\"";
    let source = split(text);
    let expected = "\nlet a = \"\"; \nlet b = r#\"\n\"#; \n\nlet c = ('', '', ''); fn f<'a>() {}\nlet var = b\"\"; for\"\"";
    assert_eq!(source.code, expected);
    let prose: Vec<(usize, &str)> = source
        .prose
        .iter()
        .map(|prose| (prose.line, prose.text.as_str()))
        .collect();
    let expected = [
        (1, "//! One."),
        (2, "two // \\\" \\\\"),
        (2, "// three"),
        (3, "fo"),
        (4, "ur"),
        (4, "/* five /* six */"),
        (5, " */"),
        (7, "7"),
        (7, "8"),
    ];
    assert_eq!(prose, expected);
}
