//! The dashboard's files as a browser gets them, and what they may not have.

use std::fs;
use std::path::Path;

use esker_server::{Config, hash_of};
use serde_json::json;

use crate::common::Served;

/// What a browser may load and do: nothing but the page's own files and requests to the server.
const POLICY: [&str; 8] = [
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "connect-src 'self'",
    "img-src 'self' data:",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
];

/// The namespaces of drawings are names, not addresses.
const NAMESPACE: &str = "http://www.w3.org/2000/svg";

/// The text of each file below the folder of the sources, by its name there.
fn sources() -> Vec<(String, String)> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/dashboard");
    let mut files = Vec::new();
    for folder in [top.clone(), top.join("vendor")] {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() && path.extension().is_none_or(|ext| ext != "rs") {
                let name = path.strip_prefix(&top).unwrap().to_str().unwrap();
                files.push((name.to_string(), fs::read_to_string(&path).unwrap()));
            }
        }
    }
    assert!(files.len() > 10, "{files:?}");
    files
}

/// The paths behind `begin` in a text, each up to the next quote.
fn quoted<'t>(text: &'t str, begin: &'t str) -> impl Iterator<Item = &'t str> {
    let parts = text.split(begin).skip(1);
    parts.filter_map(|rest| rest.split('"').next())
}

#[test]
fn each_file_is_served_with_its_type_and_a_strict_policy() {
    let served = Served::new();
    for (name, text) in sources() {
        let path = match name.as_str() {
            "index.html" => "/".to_string(),
            "reference.html" => "/api".to_string(),
            other => format!("/dashboard/{other}"),
        };
        let reply = served.ask(&format!("GET {path}"));
        assert_eq!(reply.status, 200, "{name}");
        assert!(reply.text() == text, "{name} is not as in its folder");
        let expected = match name.rsplit_once('.').unwrap().1 {
            "html" => "text/html; charset=utf-8",
            "css" => "text/css; charset=utf-8",
            "js" => "text/javascript; charset=utf-8",
            _ => "text/plain; charset=utf-8",
        };
        assert_eq!(reply.header("content-type"), Some(expected), "{name}");
        assert_eq!(reply.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(reply.header("cache-control"), Some("no-cache"));
        let policy = reply.header("content-security-policy").unwrap();
        assert_eq!(policy.split("; ").collect::<Vec<_>>(), POLICY, "{name}");
    }
    let none = served.ask("GET /dashboard/nothing.js");
    assert_eq!((none.status, none.problem().as_str()), (404, "not-found"));
    for outside in ["/dashboard/mod.rs", "/dashboard/../lib.rs", "/dashboard/"] {
        assert_eq!(
            served.ask(&format!("GET {outside}")).status,
            404,
            "{outside}"
        );
    }
}

#[test]
fn a_file_that_a_browser_has_is_not_sent_again() {
    let served = Served::new();
    for path in ["/", "/dashboard/app.js", "/dashboard/vendor/uPlot.js"] {
        let get = format!("GET {path}");
        let first = served.ask(&get);
        let etag = first.header("etag").unwrap().to_string();
        assert!(etag.starts_with('"') && etag.ends_with('"'), "{etag}");
        for known in [
            etag.clone(),
            format!("\"other\", W/{etag}"),
            "*".to_string(),
        ] {
            let again = served.send(&get, &[("if-none-match", &known)], b"");
            assert_eq!((again.status, again.body.len()), (304, 0), "{known}");
            assert_eq!(again.header("etag"), Some(etag.as_str()));
            assert!(again.header("content-security-policy").is_some());
        }
        let changed = served.send(&get, &[("if-none-match", "\"other\"")], b"");
        assert_eq!((changed.status, changed.body), (200, first.body));
    }
    let (page, script) = (served.ask("GET /"), served.ask("GET /dashboard/app.js"));
    assert_ne!(page.header("etag"), script.header("etag"));
}

#[test]
fn the_page_needs_no_token_and_tells_nothing_without_one() {
    let hash = hash_of("root");
    let token = format!("[[tokens]]\nname = \"root\"\nsha256 = \"{hash}\"\nrole = \"admin\"\n");
    let served = Served::with(Config::parse(&token).unwrap());
    for path in ["/", "/api", "/dashboard/app.js", "/dashboard/style.css"] {
        assert_eq!(served.ask(&format!("GET {path}")).status, 200, "{path}");
    }
    for path in [
        "/v1/stat",
        "/metrics",
        "/v1/datasets",
        "/v1/datasets/a/levels",
        "/dashboards",
    ] {
        assert_eq!(served.ask(&format!("GET {path}")).status, 401, "{path}");
    }
}

#[test]
fn the_page_is_opened_by_links_from_elsewhere_that_read_nothing() {
    let served = Served::new();
    let linked = [("sec-fetch-site", "cross-site")];
    for (path, status) in [("/", 200), ("/dashboard/app.js", 200), ("/v1/stat", 403)] {
        let reply = served.send(&format!("GET {path}"), &linked, b"");
        assert_eq!(reply.status, status, "{path}");
    }
}

#[test]
fn every_file_that_is_named_exists() {
    let served = Served::new();
    let mut named = Vec::new();
    for (name, text) in sources() {
        if name.starts_with("vendor/") {
            continue;
        }
        for begin in ["href=\"/", "src=\"/"] {
            named.extend(quoted(&text, begin).map(|path| format!("/{path}")));
        }
        for begin in ["from \"./", "import \"./"] {
            named.extend(quoted(&text, begin).map(|path| format!("/dashboard/{path}")));
        }
    }
    assert!(named.len() > 20, "{named:?}");
    for path in &named {
        assert_eq!(served.ask(&format!("GET {path}")).status, 200, "{path}");
    }
    // What no other file names is not part of the page.
    for (name, _) in sources() {
        let path = format!("/dashboard/{name}");
        let is_read_by_people = name.ends_with("LICENSE.txt") || name.ends_with(".html");
        assert!(is_read_by_people || named.contains(&path), "{name}");
    }
}

#[test]
fn nothing_is_inline_and_nothing_comes_from_elsewhere() {
    for (name, text) in sources() {
        // The first line of a library and its licence say where it comes from.
        let own = match name.strip_prefix("vendor/") {
            Some(vendored) if vendored.ends_with("LICENSE.txt") => continue,
            Some(_) => text
                .split_once("*/")
                .map_or(text.as_str(), |(_, code)| code),
            None => text.as_str(),
        };
        let addresses = own.replace(NAMESPACE, "");
        for scheme in ["http://", "https://", "ws://", "wss://", "src=\"//", "url("] {
            assert!(!addresses.contains(scheme), "{name} has {scheme}");
        }
        if name.ends_with(".html") {
            assert!(
                !text.contains("<style") && !text.contains(" style="),
                "{name}"
            );
            let attributes = text
                .split_whitespace()
                .filter_map(|word| word.split_once('='));
            let handlers = attributes.filter(|(attribute, _)| attribute.starts_with("on"));
            assert_eq!(handlers.collect::<Vec<_>>(), Vec::new(), "{name}");
            for script in text.split("<script").skip(1) {
                assert!(script.trim_start().starts_with("src="), "{script}");
            }
        } else if !name.starts_with("vendor/") {
            for inline in [
                "innerHTML = ",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
            ] {
                assert!(!text.contains(inline), "{name} has {inline}");
            }
            assert!(text.lines().count() < 400, "{name} is too long");
        }
    }
}

#[test]
fn levels_name_each_table_with_its_size_age_and_bounds() {
    let served = Served::new();
    served.create(
        "stops",
        json!({"key": "id:int", "indexes": ["at:spatial", "line:composite:int"]}),
    );
    let lines: Vec<String> = (0..500)
        .map(|id| {
            format!(
                "{{\"id\":{id},\"line\":{},\"at\":[{},5.5]}}",
                id % 7,
                id % 100
            )
        })
        .collect();
    let of_lines = [("content-type", "application/x-ndjson")];
    let path = "/v1/datasets/stops";
    let loaded = served.send(
        &format!("POST {path}/records"),
        &of_lines,
        lines.join("\n").as_bytes(),
    );
    assert_eq!(loaded.status, 200, "{}", loaded.text());
    let begun = served.ask(&format!("POST {path}/compact"));
    assert_eq!(begun.status, 202, "{}", begun.text());
    let job = format!("GET {}", begun.header("location").unwrap());
    while served.ask(&job).value()["state"] == "running" {
        std::thread::yield_now();
    }

    let levels = served.ask(&format!("GET {path}/levels")).value();
    let trees = levels["trees"].as_array().unwrap();
    let tree = |name: &str| trees.iter().find(|tree| tree["name"] == name).unwrap();
    for (name, first, last) in [("data", "0", "499"), ("composite index of line", "0", "6")] {
        let table = &tree(name)["tables"][0];
        assert_eq!(
            (&table["first"], &table["last"]),
            (&json!(first), &json!(last)),
            "{table}"
        );
        assert_eq!(table["entries"], 500, "{table}");
        assert!(
            table["bytes"].as_u64().unwrap() > 0 && table["number"].is_u64(),
            "{table}"
        );
        assert!(
            table["min_seq"].as_u64() < table["max_seq"].as_u64(),
            "{table}"
        );
        let age = table["seconds_ago"].as_f64().unwrap();
        assert!((0.0..3600.0).contains(&age), "{table}");
        let sum: u64 = (tree(name)["tables"].as_array().unwrap().iter())
            .map(|table| table["bytes"].as_u64().unwrap())
            .sum();
        assert_eq!(tree(name)["bytes"], sum);
    }
    let boxes = served.ask(&format!("GET {path}/boxes?field=at")).value();
    let one = &boxes["boxes"][0];
    let sides = ["west", "south", "east", "north"].map(|side| one[side].as_f64().unwrap());
    let exact = [0.0, 5.5, 99.0, 5.5];
    for (side, exact) in sides.into_iter().zip(exact) {
        assert!((side - exact).abs() < 1e-4, "{one}");
    }
    let refused = served.ask(&format!("GET {path}/boxes?field=line"));
    assert_eq!(
        (refused.status, refused.problem().as_str()),
        (400, "bad-input")
    );
    let refused = served.ask("GET /v1/datasets/nothing/levels");
    assert_eq!(
        (refused.status, refused.problem().as_str()),
        (404, "unknown-dataset")
    );
}
