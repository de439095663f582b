//! The OpenAPI document: each operation is described as a whole, and its examples are true.

use std::io::Write;
use std::sync::{Arc, LazyLock, Mutex};

use esker_server::{Config, Role, TokenSettings, hash_of};
use serde_json::{Value, json};
use ureq::Agent;
use ureq::http::Request;

use crate::common::{Served, encoded};

/// An operation of the document.
struct Operation {
    method: String,
    path: String,
    says: Value,
}

impl Operation {
    fn name(&self) -> String {
        format!("{} {}", self.method, self.path)
    }

    fn parameters(&self) -> Vec<Value> {
        let parameters = self.says["parameters"].as_array();
        parameters.cloned().unwrap_or_default()
    }

    /// The address with the examples of its parameters that are needed. `known` are values that
    /// the server has given.
    fn address(&self, known: &[(&str, String)]) -> String {
        let (mut path, mut query) = (self.path.clone(), Vec::new());
        for parameter in self.parameters() {
            let name = parameter["name"].as_str().unwrap();
            // The example of groups has a group.
            if parameter["required"] != true && name != "by" {
                continue;
            }
            let known = known.iter().find(|(one, _)| *one == name);
            let example = match (known, &parameter["example"]) {
                (Some((_, value)), _) => value.clone(),
                (None, Value::String(text)) => text.clone(),
                (None, other) => other.to_string(),
            };
            match parameter["in"].as_str().unwrap() {
                "path" => path = path.replace(&format!("{{{name}}}"), &encoded(&example)),
                _ => query.push(format!("{name}={}", encoded(&example))),
            }
        }
        if query.is_empty() {
            return path;
        }
        format!("{path}?{}", query.join("&"))
    }

    /// The example of its body, and the type.
    fn body(&self) -> Option<(String, Vec<u8>)> {
        let (media, content) = self.says["requestBody"]["content"]
            .as_object()?
            .iter()
            .next()?;
        let body = match &content["example"] {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        Some((media.clone(), body.into_bytes()))
    }

    fn is_stream(&self) -> bool {
        self.says["responses"]["200"]["content"]["text/event-stream"].is_object()
    }
}

fn operations(served: &Served) -> Vec<Operation> {
    let document = served.ask("GET /v1/openapi.json").value();
    let mut all = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, says) in item.as_object().unwrap() {
            let (method, says) = (method.to_uppercase(), says.clone());
            let path = path.clone();
            all.push(Operation { method, path, says });
        }
    }
    assert!(all.len() > 60, "{}", all.len());
    all
}

fn is_text(of: &Value) -> bool {
    of.as_str().is_some_and(|text| !text.trim().is_empty())
}

#[test]
fn each_operation_is_described_as_a_whole() {
    let served = Served::new();
    let document = served.ask("GET /v1/openapi.json").value();
    let scheme = &document["components"]["securitySchemes"]["bearer"];
    assert_eq!(
        (&scheme["type"], &scheme["scheme"]),
        (&json!("http"), &json!("bearer"))
    );
    assert_eq!(document["security"], json!([{}, {"bearer": []}]));
    let tags = document["tags"].as_array().unwrap();
    let mut names = Vec::new();
    for operation in operations(&served) {
        let (name, says) = (operation.name(), &operation.says);
        assert!(
            is_text(&says["summary"]) && is_text(&says["description"]),
            "{name}"
        );
        let summary = says["summary"].as_str().unwrap();
        assert!(
            summary.len() <= 120 && !summary.contains('\n'),
            "{name}: {summary}"
        );
        let tag = &says["tags"][0];
        assert!(tags.iter().any(|one| one["name"] == *tag), "{name}: {tag}");
        names.push(says["operationId"].as_str().unwrap().to_string());
        for parameter in operation.parameters() {
            assert!(is_text(&parameter["description"]), "{name}: {parameter}");
            assert!(!parameter["example"].is_null(), "{name}: {parameter}");
        }
        if let Some((media, body)) = operation.body() {
            assert_ne!(body, b"null", "{name}: {media} has no example");
        }
        let mut statuses = Vec::new();
        for (status, answer) in says["responses"].as_object().unwrap() {
            assert!(is_text(&answer["description"]), "{name}: {status}");
            let contents = answer["content"].as_object();
            for (media, content) in contents.into_iter().flatten() {
                assert!(content["schema"].is_object(), "{name}: {status} {media}");
                let is_framed =
                    media == "application/x-esker-rows" || media == "application/x-ndjson";
                let has_example = !content["example"].is_null();
                assert!(has_example || is_framed, "{name}: {status} {media}");
                assert_eq!(
                    status.as_str() >= "400",
                    media == "application/problem+json"
                );
            }
            statuses.push(status.as_str());
        }
        for error in ["400", "401", "403", "429", "500", "503", "504"] {
            assert!(statuses.contains(&error), "{name}: {error}");
        }
    }
    let count = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), count, "names are given twice");
}

/// The members of an example are in the answer.
fn check_members(example: &Value, answer: &Value, name: &str) {
    if let (Value::Object(example), Value::Object(answer)) = (example, answer) {
        for (member, value) in example {
            let Some(real) = answer.get(member) else {
                // Absent if there is no next page.
                assert!(
                    member == "next" || value.is_null(),
                    "{name}: {member} in {answer:?}"
                );
                continue;
            };
            check_members(value, real, name);
        }
    }
    if let (Value::Array(example), Value::Array(answer)) = (example, answer)
        && let (Some(example), Some(answer)) = (example.first(), answer.first())
    {
        check_members(example, answer, name);
    }
}

/// Operations in an order in which each finds what it needs: makers first, removers last.
fn in_order(mut all: Vec<Operation>) -> Vec<Operation> {
    let rank = |operation: &Operation| match operation.name().as_str() {
        "PUT /v1/datasets/{dataset}" => 0,
        "POST /v1/datasets/{dataset}/records" => 1,
        "PUT /v1/snapshots/{snapshot}" | "POST /v1/compact" => 2,
        "POST /v1/datasets/{dataset}/feed/consumers" => 3,
        "POST /v1/datasets/{dataset}/moments" => 4,
        "DELETE /v1/datasets/{dataset}/indexes/{path}" => 6,
        "DELETE /v1/datasets/{dataset}/records/{key}" => 7,
        name if name.starts_with("DELETE") && name != "DELETE /v1/datasets/{dataset}" => 8,
        "POST /v1/datasets/{dataset}/rename" => 9,
        "DELETE /v1/datasets/{dataset}" => 10,
        _ => 5,
    };
    all.sort_by_key(rank);
    all
}

/// Waits for the end of a job.
fn wait_for(served: &Served, job: &str) {
    let of_root = [("authorization", "Bearer root")];
    loop {
        let reply = served.send(&format!("GET {job}"), &of_root, b"");
        let state = reply.value()["state"].clone();
        if state != "running" {
            assert_eq!(state, "done", "{job}");
            return;
        }
        std::thread::yield_now();
    }
}

/// The caller of the examples: no other test has it, so that its lines in the log are known.
const AUDITED: &str = "audited-caller";

/// The lines of the log that name the caller of the examples.
#[derive(Clone, Default)]
struct Audit(Arc<Mutex<usize>>);

impl Write for Audit {
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        if String::from_utf8_lossy(line).contains(AUDITED) {
            *self.0.lock().unwrap() += 1;
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

static AUDIT: LazyLock<Audit> = LazyLock::new(|| {
    let audit = Audit::default();
    let writer = audit.clone();
    let lines = tracing_subscriber::fmt().with_writer(move || writer.clone());
    lines.with_ansi(false).init();
    audit
});

fn audited() -> usize {
    *AUDIT.0.lock().unwrap()
}

/// The server of the examples, and a folder for its backups.
fn served_for_examples() -> (Served, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let token = TokenSettings {
        name: AUDITED.to_string(),
        sha256: hash_of("root"),
        role: Role::Admin,
        datasets: None,
        topics: None,
    };
    let served = Served::with(Config {
        backups: Some(folder.path().to_path_buf()),
        tokens: vec![token],
        ..Config::default()
    });
    (served, folder)
}

#[test]
fn the_examples_are_true_and_administration_is_audited() {
    let (served, _folder) = served_for_examples();
    let of_root = ("authorization", "Bearer root");
    let agent: Agent = Agent::config_builder()
        .http_status_as_error(false)
        .build()
        .into();
    let mut moment = String::new();
    for operation in in_order(operations(&served)) {
        let name = operation.name();
        let address = operation.address(&[("moment", moment.clone())]);
        let address = match name.as_str() {
            // The dataset has another name by now.
            "DELETE /v1/datasets/{dataset}" => "/v1/datasets/visits-2026",
            _ => address.as_str(),
        };
        if operation.is_stream() {
            let request = Request::get(served.url(address)).header(of_root.0, of_root.1);
            let request = request.body(()).unwrap();
            // It does not end: its status is enough.
            assert_eq!(agent.run(request).unwrap().status(), 200, "{name}");
            continue;
        }
        let body = operation.body();
        let (media, body) = body.unwrap_or_default();
        let mut headers = vec![of_root];
        if !media.is_empty() {
            headers.push(("content-type", media.as_str()));
        }
        let before = audited();
        let reply = served.send(&format!("{} {address}", operation.method), &headers, &body);
        let says = operation.says["description"].as_str().unwrap();
        if says.contains("the role `admin`") || name.contains("consumers/{consumer}") {
            assert!(audited() > before || name.ends_with("/ack"), "{name}");
        }
        let status = reply.status.to_string();
        let known = &operation.says["responses"][&status];
        assert!(known.is_object(), "{name}: {status} {}", reply.text());
        match name.as_str() {
            // There is a consumer of this name only where one reads.
            "POST /v1/datasets/{dataset}/consumers/{consumer}/ack" => {
                assert!(
                    ["404", "409"].contains(&status.as_str()),
                    "{name}: {status}"
                );
            }
            "DELETE /v1/datasets/{dataset}/consumers/{consumer}" => assert_eq!(status, "404"),
            _ => assert!(status.starts_with('2'), "{name}: {status} {}", reply.text()),
        }
        if let Some(job) = reply.header("location") {
            wait_for(&served, job);
        }
        let of_json = &known["content"]["application/json"];
        if of_json.is_object() {
            let answer = reply.value();
            if let Some(name) = answer["moment"].as_str() {
                moment = name.to_string();
            }
            check_members(&of_json["example"], &answer, &name);
        }
    }
}

#[test]
fn an_operation_needs_the_role_that_it_names() {
    let tokens =
        [("root", "admin"), ("writer", "write"), ("reader", "read")].map(|(name, role)| {
            let hash = hash_of(name);
            format!("[[tokens]]\nname = \"{name}\"\nsha256 = \"{hash}\"\nrole = \"{role}\"\n")
        });
    let served = Served::with(Config::parse(&tokens.concat()).unwrap());
    let document = served.ask("GET /v1/openapi.json").value();
    assert_eq!(document["security"], json!([{"bearer": []}]));
    let of_root = [
        ("authorization", "Bearer root"),
        ("content-type", "application/json"),
    ];
    let made = served.send(
        "PUT /v1/datasets/visits",
        &of_root,
        b"{\"key\": \"id:int\"}",
    );
    assert_eq!(made.status, 201, "{}", made.text());
    for operation in in_order(operations(&served)) {
        let (name, address) = (operation.name(), operation.address(&[]));
        let (media, body) = operation.body().unwrap_or_default();
        let ask = format!("{} {address}", operation.method);
        let send = |token: &str| {
            let token = format!("Bearer {token}");
            let headers = [
                ("authorization", token.as_str()),
                ("content-type", media.as_str()),
            ];
            served.send(&ask, &headers, &body)
        };
        if operation.says["security"] == json!([]) {
            assert_eq!(served.ask(&ask).status, 200, "{name}");
            continue;
        }
        let without = served.send(&ask, &[("content-type", media.as_str())], &body);
        assert_eq!(without.status, 401, "{name}");
        let says = operation.says["description"].as_str().unwrap();
        if says.contains("the role `admin`") && !name.contains("/jobs/") {
            assert_eq!(send("writer").status, 403, "{name}");
        } else if says.contains("the role `write`") {
            assert_eq!(send("reader").status, 403, "{name}");
        } else if !operation.is_stream() {
            assert!(says.contains("the role `"), "{name}");
            assert_ne!(send("reader").status, 403, "{name}");
        }
    }
}
