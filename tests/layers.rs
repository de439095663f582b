//! Compares the modules of a crate with its `layers.txt`, its locks with its `locks.txt`, and
//! checks the form of each file: for the test `architecture` of each crate.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Modules, and those that each uses.
pub(crate) type Uses = BTreeMap<String, BTreeSet<String>>;

/// The code of a file: without comments, and without the unit tests at its end.
pub(crate) fn code(text: &str) -> String {
    let lines = text.lines().map(|line| match line.trim_start() {
        comment if comment.starts_with("//") => "",
        _ => line,
    });
    let code: Vec<&str> = lines.collect();
    let code = code.join("\n");
    let tests = code.find("#[cfg(test)]\nmod tests {");
    code[..tests.unwrap_or(code.len())].to_string()
}

/// The names behind each `crate::`, the ones in braces, too.
pub(crate) fn named(code: &str) -> BTreeSet<String> {
    let word = |text: &str| -> String {
        text.chars()
            .take_while(|c| c.is_alphanumeric() || *c == '_')
            .collect()
    };
    let mut names = BTreeSet::new();
    for (at, _) in code.match_indices("crate::") {
        let rest = &code[at + "crate::".len()..];
        let Some(list) = rest.strip_prefix('{') else {
            names.insert(word(rest));
            continue;
        };
        let (mut depth, mut begins) = (0, true);
        for (at, c) in list.char_indices() {
            match c {
                '{' => depth += 1,
                '}' if depth == 0 => break,
                '}' => depth -= 1,
                ',' if depth == 0 => begins = true,
                _ if begins && !c.is_whitespace() => {
                    names.insert(word(&list[at..]));
                    begins = false;
                }
                _ => {}
            }
        }
    }
    names
}

/// What the names that the root exports stand for: `pub use module::{A, B};`.
pub(crate) fn exported(root: &str) -> BTreeMap<String, String> {
    let mut modules = BTreeMap::new();
    for statement in code(root).split(';') {
        let Some((_, path)) = statement.split_once("pub use ") else {
            continue;
        };
        let path = path.trim_start_matches("crate::");
        let (module, names) = path.split_once("::").unwrap();
        let names = match names.find('{') {
            Some(list) => &names[list..],
            None => names.rsplit("::").next().unwrap(),
        };
        for name in names.split(|c: char| !c.is_alphanumeric() && c != '_') {
            modules.insert(name.to_string(), module.to_string());
        }
    }
    modules
}

/// The longest that a source file may become.
const LINES: usize = 700;

/// A source file is ASCII, but for its unit tests (which may be about other characters), and not
/// too long to be read at once.
fn assert_form(path: &Path, text: &str) {
    let tests = text.find("#[cfg(test)]\nmod tests {");
    let other = text[..tests.unwrap_or(text.len())]
        .lines()
        .find(|line| !line.is_ascii());
    assert_eq!(other, None, "{}: not ASCII", path.display());
    let lines = text.lines().count();
    assert!(lines <= LINES, "{}: {lines} lines", path.display());
}

/// Which modules of `src` use which, by the first part of their paths.
fn uses(src: &Path) -> Uses {
    let roots = ["lib.rs", "main.rs"].map(|root| src.join(root));
    let root = roots.iter().find(|root| root.exists()).unwrap();
    let exported = exported(&std::fs::read_to_string(root).unwrap());
    let mut found = Uses::new();
    let mut folders = vec![src.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_string();
            if path.is_dir() {
                if name != "tests" {
                    folders.push(path);
                }
                continue;
            }
            let is_test = name == "tests.rs" || name.ends_with("_tests.rs");
            if is_test || !name.ends_with(".rs") || path == *root {
                continue;
            }
            let first = path.strip_prefix(src).unwrap().iter().next().unwrap();
            let module = Path::new(first).file_stem().unwrap().to_str().unwrap();
            let uses = found.entry(module.to_string()).or_default();
            let text = std::fs::read_to_string(&path).unwrap();
            assert_form(&path, &text);
            for name in named(&code(&text)) {
                uses.insert(exported.get(&name).cloned().unwrap_or(name));
            }
            uses.remove(module);
        }
    }
    found
}

/// The sources below a folder, without tests, with their paths in it.
fn sources(src: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut folders = vec![src.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path
                .strip_prefix(src)
                .unwrap()
                .to_str()
                .unwrap()
                .to_string();
            if path.is_dir() {
                folders.push(path);
            } else if name.ends_with(".rs") && !name.contains("tests") {
                found.insert(name, code(&std::fs::read_to_string(&path).unwrap()));
            }
        }
    }
    found
}

/// The locks among the fields and statics of a source.
pub(crate) fn locks(code: &str) -> BTreeSet<String> {
    let declares = |line: &str| {
        let (head, ty) = line.trim().split_once(": ")?;
        let name = head.rsplit(' ').next()?;
        let is_name = name.chars().all(|c| c.is_alphanumeric() || c == '_');
        let is_borrowed = ty.starts_with('&');
        let is_lock = !is_borrowed && (ty.contains("Mutex<") || ty.contains("RwLock<"));
        let is_declared = line.trim_end().ends_with(',') || head.contains("static ");
        (is_name && is_lock && is_declared).then(|| name.to_string())
    };
    code.lines().filter_map(declares).collect()
}

/// Checks that `locks.txt` of the crate in `here` has each lock of its sources, and no other.
/// A line is `file: lock: what it guards`.
pub(crate) fn assert_locks(here: &Path) {
    let sources = sources(&here.join("src"));
    let of = |(file, code): (&String, &String)| -> Vec<String> {
        let locks = locks(code);
        locks.iter().map(|lock| format!("{file}: {lock}")).collect()
    };
    let found: BTreeSet<String> = sources.iter().flat_map(of).collect();
    let list = std::fs::read_to_string(here.join("locks.txt")).unwrap();
    let listed: BTreeSet<String> = list
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty())
        .map(|line| line.split(": ").take(2).collect::<Vec<_>>().join(": "))
        .collect();
    let missing: Vec<_> = found.difference(&listed).collect();
    let gone: Vec<_> = listed.difference(&found).collect();
    assert!(
        missing.is_empty() && gone.is_empty(),
        "locks.txt lacks {missing:?}; not in the sources (any more) are {gone:?}"
    );
}

/// Modules by layer, 0 at the top: a line that is not indented is `name: module, module, ...`.
pub(crate) fn layers(list: &str) -> BTreeMap<String, usize> {
    let rows = list
        .lines()
        .filter(|line| !line.starts_with([' ', '#']) && !line.is_empty());
    let mut layers = BTreeMap::new();
    for (layer, row) in rows.enumerate() {
        let (_, modules) = row.split_once(": ").unwrap_or_else(|| panic!("{row}"));
        for module in modules.split(", ") {
            layers.insert(module.to_string(), layer);
        }
    }
    layers
}

/// A ring of modules that use each other, if there is one.
pub(crate) fn ring(uses: &Uses) -> Option<Vec<String>> {
    fn visit(at: &str, uses: &Uses, path: &mut Vec<String>, done: &mut BTreeSet<String>) -> bool {
        if let Some(from) = path.iter().position(|module| module == at) {
            path.drain(..from);
            return true;
        }
        if done.contains(at) {
            return false;
        }
        path.push(at.to_string());
        for next in uses.get(at).into_iter().flatten() {
            if visit(next, uses, path, done) {
                return true;
            }
        }
        path.pop();
        done.insert(at.to_string());
        false
    }
    let mut done = BTreeSet::new();
    uses.keys().find_map(|module| {
        let mut path = Vec::new();
        visit(module, uses, &mut path, &mut done).then_some(path)
    })
}

/// Every module of the crate in `here` is in its `layers.txt`, uses only modules of its own layer
/// and of those below, and none of them uses itself in a ring. Returns who uses whom.
pub(crate) fn assert_layers(here: &Path) -> Uses {
    let uses = uses(&here.join("src"));
    assert_eq!(ring(&uses), None, "modules that use each other in a ring");
    let layers = layers(&std::fs::read_to_string(here.join("layers.txt")).unwrap());
    let of = |module: &String| {
        *layers
            .get(module)
            .unwrap_or_else(|| panic!("layers.txt lacks {module}"))
    };
    for (module, used) in &uses {
        for below in used {
            assert!(
                of(module) <= of(below),
                "{module} uses {below}, which is above it"
            );
        }
    }
    let gone = layers.keys().find(|module| !uses.contains_key(*module));
    assert_eq!(gone, None, "in layers.txt only");
    uses
}
