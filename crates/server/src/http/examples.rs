//! What the OpenAPI document says of an operation beside its handler: its name, the role that it
//! needs, and examples. A test sends each example to a server.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value, json};

/// The examples of all operations.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Examples {
    /// By the name of a parameter.
    parameters: BTreeMap<String, Value>,
    /// By method and path: `GET /v1/datasets`.
    operations: BTreeMap<String, Sample>,
}

/// What is said of an operation.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Sample {
    /// Its name, which no other operation has.
    pub(super) id: String,
    /// The role that a caller needs; none for what is open to all.
    role: Option<String>,
    /// The role is needed for the whole store.
    #[serde(default)]
    whole: bool,
    /// Sentences behind those of the handler.
    more: Option<String>,
    /// Examples of parameters that differ from the usual ones of their names.
    #[serde(default)]
    parameters: BTreeMap<String, Value>,
    /// An example of the body.
    pub(super) body: Option<Value>,
    /// An example of the answer.
    answer: Option<Value>,
    /// The kind of the job that is begun or shown, whose document is the answer.
    job: Option<String>,
}

impl Examples {
    /// Those of the program.
    ///
    /// # Errors
    /// A sentence, if their file is not valid.
    pub(super) fn new() -> Result<Examples, String> {
        serde_json::from_str(include_str!("examples.json"))
            .map_err(|error| format!("the examples of the interface: {error}"))
    }

    pub(super) fn of(&self, operation: &str) -> Option<&Sample> {
        self.operations.get(operation)
    }

    /// The example of a parameter of an operation.
    pub(super) fn parameter(&self, of: &Sample, name: &str) -> Option<Value> {
        let own = of.parameters.get(name);
        own.or_else(|| self.parameters.get(name)).cloned()
    }

    /// All operations that have examples.
    #[cfg(test)]
    pub(super) fn names(&self) -> impl Iterator<Item = &String> {
        self.operations.keys()
    }
}

impl Sample {
    /// True if it needs a token where the server has tokens.
    pub(super) fn needs_token(&self) -> bool {
        self.role.is_some()
    }

    /// The description, behind what its handler says.
    pub(super) fn description(&self, path: &str, said: &str) -> String {
        let needs = match &self.role {
            None => "Needs no token.".to_string(),
            Some(role) if self.whole => format!("Needs the role `{role}` for the whole store."),
            Some(role) if path.contains("{dataset}") => {
                format!("Needs the role `{role}` for the dataset.")
            }
            Some(role) if path.contains("{topic}") => {
                format!("Needs the role `{role}` for the topic.")
            }
            Some(role) => format!("Needs the role `{role}`."),
        };
        let more = self.more.as_deref().unwrap_or_default();
        let parts = [said, needs.as_str(), more];
        let parts = parts.iter().filter(|part| !part.is_empty());
        parts.copied().collect::<Vec<_>>().join(" ")
    }

    /// An example of the answer.
    pub(super) fn answer(&self, path: &str) -> Option<Value> {
        let job = self.job.as_ref().map(|job| job_example(job, path));
        self.answer.clone().or(job)
    }
}

fn job_example(job: &str, path: &str) -> Value {
    let mut example = Map::new();
    example.insert("id".to_string(), json!(1));
    example.insert("job".to_string(), json!(job));
    if path.contains("{dataset}") {
        example.insert("dataset".to_string(), json!("visits"));
    }
    example.insert("state".to_string(), json!("running"));
    example.insert("began".to_string(), json!(1_769_817_600_000_u64));
    example.insert("millis".to_string(), json!(0));
    Value::Object(example)
}
