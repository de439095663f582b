//! Checks that the files of a crate do not use each other in a cycle, inside a module either.
//!
//! File A uses file B if a path in A (`use`, `crate::`, `super::`, or one that begins with a module
//! in scope) names an item that B defines. Re-exports are followed to the file that defines the
//! item, and are no use themselves: a `mod.rs` that only declares and re-exports is in no cycle.
//! Calls of methods need no path, so they are not seen.
//!
//! Cycles that exist are listed in `cycles.txt` of the crate, which may only shrink. A line is a
//! `mod.rs` and a file below it that use each other, or, apart from these pairs, all files of
//! cycles that have a file in common. `ESKER_BLESS=1` writes the list anew.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::source::{files, is_test, split};

/// A path in the code, segment by segment.
type Names = Vec<String>;

/// One name that a `use` brings into scope.
struct Import {
    /// The path as written.
    path: Names,
    /// The name in scope; `*` for a glob.
    name: String,
    /// Whether other files may go through it.
    is_public: bool,
}

/// What a file says of itself.
struct File {
    module: Names,
    /// The items that it defines.
    items: BTreeSet<String>,
    imports: Vec<Import>,
    /// Paths in the code outside of `use`.
    paths: Vec<Names>,
    /// All words of the code outside of `use`.
    words: BTreeSet<String>,
}

/// Words, `::` and single characters of the code.
fn tokens(code: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = code;
    while let Some(c) = rest.chars().next() {
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let len = match c {
            _ if is_word(c) => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
            ':' if rest.starts_with("::") => 2,
            _ => c.len_utf8(),
        };
        if !c.is_whitespace() {
            tokens.push(&rest[..len]);
        }
        rest = &rest[len..];
    }
    tokens
}

fn is_word(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Reads the tree of a `use` from `at` on, with `prefix` in front; returns where it ends.
fn tree(
    tokens: &[&str],
    mut at: usize,
    prefix: &[String],
    into: &mut Vec<(Names, String)>,
) -> usize {
    let mut path = prefix.to_vec();
    loop {
        match tokens.get(at).copied() {
            Some("::") => at += 1,
            Some("{") => {
                at += 1;
                while tokens.get(at).is_some_and(|token| *token != "}") {
                    at = tree(tokens, at, &path, into);
                    at += usize::from(tokens.get(at) == Some(&","));
                }
                return at + 1;
            }
            Some("*") => {
                into.push((path, "*".to_string()));
                return at + 1;
            }
            Some(word) if is_word(word) => {
                if word != "self" || path.is_empty() {
                    path.push(word.to_string());
                }
                at += 1;
                if tokens.get(at) == Some(&"as") {
                    let name = tokens.get(at + 1).copied().unwrap_or_default();
                    into.push((path, name.to_string()));
                    return at + 2;
                }
                if tokens.get(at) != Some(&"::") {
                    let name = path.last().cloned().unwrap_or_default();
                    into.push((path, name));
                    return at;
                }
            }
            _ => return at + 1,
        }
    }
}

/// Takes out what is compiled for tests alone: each item behind `#[cfg(test)]`.
fn without_tests(tokens: Vec<&str>) -> Vec<&str> {
    let test = ["#", "[", "cfg", "(", "test", ")", "]"];
    let mut kept = Vec::new();
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        if !tokens[at..].starts_with(&test) {
            kept.push(*token);
            at += 1;
            continue;
        }
        // To the end of the item: a `;` or a closing brace outside of all brackets.
        let mut depth = 0;
        at += test.len();
        while let Some(token) = tokens.get(at) {
            at += 1;
            match *token {
                "{" | "(" | "[" => depth += 1,
                "}" | ")" | "]" => depth -= 1,
                _ => {}
            }
            let ends = match *token {
                ";" | "," => depth == 0,
                "}" => depth <= 0,
                _ => false,
            };
            if ends {
                break;
            }
        }
    }
    kept
}

/// Reads a file.
fn read(name: &str, text: &str) -> File {
    let mut module: Names = Path::new(name)
        .with_extension("")
        .iter()
        .map(|part| part.to_string_lossy().into_owned())
        .collect();
    if ["mod", "lib", "main"]
        .map(Some)
        .contains(&module.last().map(String::as_str))
    {
        module.pop();
    }
    let mut file = File {
        module,
        items: BTreeSet::new(),
        imports: Vec::new(),
        paths: Vec::new(),
        words: BTreeSet::new(),
    };
    let code = split(text).code;
    let tokens = without_tests(tokens(&code));
    let (mut at, mut depth, mut is_public) = (0, 0, false);
    while let Some(token) = tokens.get(at).copied() {
        let next = tokens.get(at + 1).copied().unwrap_or_default();
        match token {
            "{" => depth += 1,
            "}" => depth -= 1,
            "pub" => is_public = true,
            "use" => {
                let mut found = Vec::new();
                at = tree(&tokens, at + 1, &[], &mut found);
                let import = |(path, name)| Import {
                    path,
                    name,
                    is_public,
                };
                file.imports.extend(found.into_iter().map(import));
                is_public = false;
                continue;
            }
            "mod" if tokens.get(at + 2) == Some(&";") => {
                at += 3;
                is_public = false;
                continue;
            }
            "fn" | "struct" | "enum" | "trait" | "type" | "const" | "static" | "mod" | "union"
            | "rules"
                if depth == 0 && is_word(next) =>
            {
                let name = if next == "mut" {
                    tokens.get(at + 2).copied().unwrap_or_default()
                } else {
                    next
                };
                file.items.insert(name.to_string());
                is_public = false;
            }
            "macro_rules" => {
                file.items
                    .insert(tokens.get(at + 2).copied().unwrap_or_default().to_string());
            }
            _ => {}
        }
        if is_word(token) {
            file.words.insert(token.to_string());
            let begins = at == 0 || !["::", "."].contains(&tokens[at - 1]);
            if begins && next == "::" {
                let mut path = vec![token.to_string()];
                while tokens.get(at + 1) == Some(&"::")
                    && tokens.get(at + 2).is_some_and(|token| is_word(token))
                {
                    at += 2;
                    path.push(tokens[at].to_string());
                    file.words.insert(tokens[at].to_string());
                }
                file.paths.push(path);
            }
        }
        at += 1;
    }
    file
}

/// The files of a crate, by name, and their names by module.
struct Crate {
    files: BTreeMap<String, File>,
    modules: BTreeMap<Names, String>,
}

impl Crate {
    fn new(sources: &[(String, String)]) -> Crate {
        let mut files = BTreeMap::new();
        let mut modules = BTreeMap::new();
        for (name, text) in sources {
            if !is_test(Path::new(name)) {
                let file = read(name, text);
                modules.insert(file.module.clone(), name.clone());
                files.insert(name.clone(), file);
            }
        }
        Crate { files, modules }
    }

    /// The file that defines what `path` names for the code of `module`; `None` if it is a module,
    /// or of another crate.
    fn resolve(&self, module: &[String], path: &[String], depth: usize) -> Option<&String> {
        let (first, mut rest) = path.split_first()?;
        if depth > 16 {
            return None;
        }
        let mut at = module.to_vec();
        match first.as_str() {
            "crate" => at.clear(),
            "self" => {}
            "super" => {
                at.pop();
                while let Some((_, behind)) =
                    rest.split_first().filter(|(next, _)| *next == "super")
                {
                    at.pop();
                    rest = behind;
                }
            }
            _ => return self.in_scope(module, path, depth),
        }
        if rest.is_empty() {
            None
        } else {
            self.item(&at, rest, depth)
        }
    }

    /// As `resolve`, for a path that begins with a name in the scope of `module`.
    fn in_scope(&self, module: &[String], path: &[String], depth: usize) -> Option<&String> {
        let (first, rest) = path.split_first()?;
        let child = [module, std::slice::from_ref(first)].concat();
        if self.modules.contains_key(&child) {
            return if rest.is_empty() {
                None
            } else {
                self.item(&child, rest, depth)
            };
        }
        let file = &self.files[self.modules.get(module)?];
        if file.items.contains(first) {
            return self.modules.get(module);
        }
        let import = file
            .imports
            .iter()
            .find(|import| import.name == *first && import.path != path)?;
        self.resolve(module, &[&import.path, rest].concat(), depth + 1)
    }

    /// The file that defines `path`, which begins in the scope of module `at` as others see it.
    fn item(&self, at: &[String], path: &[String], depth: usize) -> Option<&String> {
        let name = self.modules.get(at)?;
        let first = path.first()?;
        let file = &self.files[name];
        let child = [at, std::slice::from_ref(first)].concat();
        if self.modules.contains_key(&child)
            || file.imports.iter().any(|import| import.name == *first)
        {
            return self.in_scope(at, path, depth + 1);
        }
        let globs = file
            .imports
            .iter()
            .filter(|import| import.name == "*" && import.is_public);
        for glob in globs.filter(|_| !file.items.contains(first)) {
            let found = self.resolve(at, &[&glob.path, path].concat(), depth + 1);
            if found.is_some_and(|found| self.files[found].items.contains(first)) {
                return found;
            }
        }
        Some(name)
    }

    /// Whether `face` is the file of a module that `child` is inside of.
    fn is_face_of(&self, face: &str, child: &str) -> bool {
        let (face, child) = (&self.files[face].module, &self.files[child].module);
        face.len() < child.len() && child.starts_with(face)
    }

    fn uses(&self) -> Uses<'_> {
        let mut uses = BTreeMap::new();
        for (name, file) in &self.files {
            let its: &mut BTreeMap<_, BTreeSet<_>> = uses.entry(name).or_default();
            let imported = file
                .imports
                .iter()
                .filter(|import| !import.is_public || file.words.contains(&import.name))
                .map(|import| &import.path);
            for path in imported.chain(&file.paths) {
                let used = self
                    .resolve(&file.module, path, 0)
                    .filter(|used| *used != name);
                if let (Some(used), Some(last)) = (used, path.last()) {
                    its.entry(used).or_default().insert(last);
                }
            }
        }
        uses
    }
}

/// Which file uses which, and by which names.
type Uses<'a> = BTreeMap<&'a String, BTreeMap<&'a String, BTreeSet<&'a String>>>;

/// The files that each file reaches by its uses.
fn reached<'a>(uses: &Uses<'a>) -> BTreeMap<&'a String, BTreeSet<&'a String>> {
    let mut reaches = BTreeMap::new();
    for from in uses.keys() {
        let mut reached: BTreeSet<&'a String> = BTreeSet::new();
        let mut next: Vec<&'a String> = vec![from];
        while let Some(at) = next.pop() {
            for to in uses[at].keys() {
                if reached.insert(to) {
                    next.push(to);
                }
            }
        }
        reaches.insert(*from, reached);
    }
    reaches
}

/// The cycles of files, each with the uses inside it.
fn cycles(sources: &[(String, String)]) -> BTreeMap<Vec<String>, Vec<String>> {
    let whole = Crate::new(sources);
    let mut uses = whole.uses();
    let mut cycles = BTreeMap::new();
    let arrows = |uses: &Uses<'_>, ring: &[String]| {
        let mut arrows = Vec::new();
        for from in ring {
            for (to, names) in uses[from].iter().filter(|(to, _)| ring.contains(to)) {
                let names: Vec<&str> = names.iter().map(|name| name.as_str()).collect();
                arrows.push(format!("{from} -> {to} ({})", names.join(", ")));
            }
        }
        arrows
    };
    // Pairs of a face and a child.
    let reaches = reached(&uses);
    let mut pairs = Vec::new();
    for (child, used) in &uses {
        for face in used.keys().filter(|face| reaches[*face].contains(child)) {
            if whole.is_face_of(face, child) {
                let pair = vec![(*face).clone(), (*child).clone()];
                cycles.insert(pair.clone(), arrows(&uses, &pair));
                pairs.push((*child, *face));
            }
        }
    }
    // Other cycles.
    for (child, face) in pairs {
        uses.entry(child).or_default().remove(face);
    }
    let reaches = reached(&uses);
    for (file, its) in &reaches {
        let of_ring = |other: &&&String| reaches[**other].contains(file);
        let ring: Vec<String> = its
            .iter()
            .filter(of_ring)
            .map(|file| (*file).clone())
            .collect();
        if ring.len() > 1 {
            let arrows = arrows(&uses, &ring);
            cycles.insert(ring, arrows);
        }
    }
    cycles
}

/// Checks that the files of the crate in `here` use each other in the cycles of its `cycles.txt`
/// and in no others. Returns what is wrong.
pub(crate) fn wrong_cycles(here: &Path) -> Vec<String> {
    let found = cycles(&files(&here.join("src")));
    let list = here.join("cycles.txt");
    if std::env::var_os("ESKER_BLESS").is_some() {
        let text: String = found.keys().map(|ring| ring.join(" ") + "\n").collect();
        if !text.is_empty() {
            std::fs::write(&list, text).unwrap();
        } else if list.exists() {
            std::fs::remove_file(&list).unwrap();
        }
    }
    let text = std::fs::read_to_string(&list).unwrap_or_default();
    let listed: BTreeSet<Vec<String>> = text
        .lines()
        .map(|line| line.split_whitespace().map(String::from).collect())
        .collect();
    let name = list.display();
    let new = found.iter().filter(|(ring, _)| !listed.contains(*ring));
    let new = new.map(|(ring, arrows)| {
        format!(
            "{name} lacks the cycle\n  {}\nof the uses\n  {}",
            ring.join(" "),
            arrows.join("\n  ")
        )
    });
    let gone = listed.iter().filter(|ring| !found.contains_key(*ring));
    let gone = gone.map(|ring| {
        format!(
            "{name} lists a cycle that is not there (any more):\n  {}",
            ring.join(" ")
        )
    });
    new.chain(gone).collect()
}

#[cfg(test)]
fn sources(texts: &[(&str, &str)]) -> Vec<(String, String)> {
    texts
        .iter()
        .map(|(name, text)| (name.to_string(), text.to_string()))
        .collect()
}

#[test]
fn a_cycle_is_found_through_any_path() {
    let found = cycles(&sources(&[
        ("lib.rs", "mod a; mod b;"),
        (
            "a/mod.rs",
            "mod one; mod two; mod three; pub(crate) use one::{One, self as other};",
        ),
        (
            "a/one.rs",
            "use super::two; pub struct One; fn f() { two::g(); }",
        ),
        ("a/two.rs", "pub fn g() -> super::three::Three {}"),
        ("a/three.rs", "use crate::{a::One, b}; pub struct Three;"),
        (
            "b.rs",
            "// crate::a::One\n#[cfg(test)]\nuse crate::a::One;\nfn f(_: &str) { f(\"crate::a::One\") }",
        ),
    ]));
    let rings: Vec<String> = found.keys().map(|ring| ring.join(" ")).collect();
    assert_eq!(rings, ["a/one.rs a/three.rs a/two.rs"]);
    let arrows = &found.values().next().unwrap()[..];
    assert_eq!(
        arrows,
        [
            "a/one.rs -> a/two.rs (g)",
            "a/three.rs -> a/one.rs (One)",
            "a/two.rs -> a/three.rs (Three)"
        ]
    );
}

#[test]
fn a_mod_rs_that_only_declares_is_in_no_cycle() {
    let child = "use super::{Two, Face}; pub struct One;";
    let face = "mod one; mod two; pub use one::One; pub use two::*; pub struct Face;";
    let two = "pub struct Two;";
    let all = |face: &str| {
        cycles(&sources(&[
            ("m/mod.rs", face),
            ("m/one.rs", child),
            ("m/two.rs", two),
            ("main.rs", "mod m;"),
        ]))
    };
    assert!(all(face).is_empty());
    let found = all(&format!("{face} fn f() -> One {{}}"));
    assert_eq!(found.keys().next().unwrap(), &["m/mod.rs", "m/one.rs"]);
}
