//! The OpenAPI document: what the handlers say of themselves, with the answers that every route may
//! have, names, roles and examples.

use axum::http::StatusCode;
use serde_json::{Map, Value, json};
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;

use super::app::Shared;
use super::examples::{Examples, Sample};
use crate::problem::Problem;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Esker",
        description = "Datasets of JSON records with indexes, change streams and publish/subscribe."
    ),
    components(schemas(Problem)),
    tags(
        (name = "records", description = "Single records"),
        (name = "queries", description = "Records by conditions"),
        (name = "datasets", description = "Datasets and their definitions"),
        (name = "live", description = "Changes and topics as they happen"),
        (name = "jobs", description = "Long operations, with progress"),
        (name = "state", description = "Statistics, advice, snapshots"),
        (name = "system", description = "The server itself"),
        (name = "client", description = "For the client of Esker: binary frames, moments, feeds")
    )
)]
pub(super) struct Document;

/// The name of the security scheme.
const BEARER: &str = "bearer";

const PROBLEMS: &str = "application/problem+json";

/// Statuses that an answer may have wherever the request is not what its handler expects.
const EVERYWHERE: [(u16, &str); 7] = [
    (400, "The request is not valid"),
    (401, "A token is missing, or not known"),
    (403, "The token does not allow it"),
    (429, "Too many requests"),
    (500, "The store has failed"),
    (503, "There is too much to do, or the server ends"),
    (504, "It took longer than the server allows"),
];

/// Those of requests with a body.
const WITH_BODY: [(u16, &str); 4] = [
    (408, "The body was not sent in time"),
    (413, "The body is too large"),
    (415, "The body is of another type"),
    (422, "The document is another than expected"),
];

/// Those of requests for something with a name.
const WITH_NAME: [(u16, &str); 1] = [(404, "There is no such thing, or not for this token")];

/// Those of changes.
const OF_CHANGES: [(u16, &str); 2] = [
    (409, "It conflicts with the state of the store"),
    (507, "The disk is full"),
];

/// The texts of answers whose handlers have none.
const OTHERS: [(u16, &str); 7] = [
    (200, "The answer"),
    (201, "Created"),
    (202, "It has begun: the job says how far it is"),
    (204, "Done"),
    (304, "The client has it"),
    (410, "It has expired"),
    (412, "The record has another version than expected"),
];

/// The document of the routes. `has_tokens` is true if the server needs tokens.
///
/// # Errors
/// A sentence, if an operation has no examples.
pub(super) fn complete(routes: OpenApiRouter<Shared>, has_tokens: bool) -> Result<Value, String> {
    let (_, document) = routes.split_for_parts();
    let document = serde_json::to_value(document).map_err(|error| error.to_string())?;
    let examples = Examples::new()?;
    let Value::Object(mut document) = document else {
        return Err("the document is no object".to_string());
    };
    for (path, item) in object(&mut document, "paths").into_iter().flatten() {
        for (method, operation) in item.as_object_mut().into_iter().flatten() {
            let name = format!("{} {path}", method.to_uppercase());
            let Some(operation) = operation.as_object_mut() else {
                continue;
            };
            let sample = examples.of(&name);
            let sample = sample.ok_or_else(|| format!("{name} has no examples"))?;
            describe(operation, path, sample);
            add_examples(operation, path, &examples, sample);
            add_answers(operation, method != "get");
            if !sample.needs_token() {
                operation.insert("security".to_string(), json!([]));
            }
        }
    }
    let scheme = json!({
        "type": "http",
        "scheme": "bearer",
        "description": "A token that `esker token` made. A server without tokens needs none."
    });
    let schemes = json!({BEARER: scheme});
    if let Some(components) = object(&mut document, "components") {
        components.insert("securitySchemes".to_string(), schemes);
    }
    let security = if has_tokens {
        json!([{BEARER: []}])
    } else {
        json!([{}, {BEARER: []}])
    };
    document.insert("security".to_string(), security);
    let mut document = Value::Object(document);
    name_numbers(&mut document);
    Ok(document)
}

/// The member with this name, which is made where it is missing; `None` if it is no object.
fn object<'d>(of: &'d mut Map<String, Value>, name: &str) -> Option<&'d mut Map<String, Value>> {
    of.entry(name).or_insert_with(|| json!({})).as_object_mut()
}

/// The first sentence of a handler's text is its summary; its description is the rest, and what
/// its caller needs.
fn describe(operation: &mut Map<String, Value>, path: &str, sample: &Sample) {
    let text = |operation: &Map<String, Value>, name: &str| {
        let text = operation.get(name).and_then(Value::as_str);
        text.unwrap_or_default().replace('\n', " ")
    };
    let said = text(operation, "summary");
    let (first, rest) = said
        .split_once(". ")
        .unwrap_or((said.trim_end_matches('.'), ""));
    let rest = format!("{rest} {}", text(operation, "description"));
    let description = sample.description(path, rest.trim());
    for (name, text) in [
        ("operationId", sample.id.as_str()),
        ("summary", first),
        ("description", description.as_str()),
    ] {
        operation.insert(name.to_string(), text.into());
    }
}

fn add_examples(
    operation: &mut Map<String, Value>,
    path: &str,
    examples: &Examples,
    sample: &Sample,
) {
    let parameters = operation
        .get_mut("parameters")
        .and_then(Value::as_array_mut);
    for parameter in parameters.into_iter().flatten() {
        let Some(parameter) = parameter.as_object_mut() else {
            continue;
        };
        let name = parameter
            .get("name")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let usual = match name {
            "dataset" => Some("The name of a dataset"),
            "key" => Some("The key, as text; the parts of a key of several fields with commas"),
            "id" => Some("The number of the job"),
            "consumer" => Some("The name of a consumer"),
            "snapshot" => Some("The name of a snapshot"),
            "moment" => Some("The name of a moment"),
            _ => None,
        };
        let example = examples.parameter(sample, name);
        let is_list =
            parameter.get("schema").and_then(|of| of.get("type")) == Some(&json!("array"));
        if let Some(example) = example {
            let example = if is_list { json!([example]) } else { example };
            parameter.insert("example".to_string(), example);
        }
        if let Some(usual) = usual {
            parameter
                .entry("description")
                .or_insert_with(|| usual.into());
        }
    }
    if let Some(body) = operation
        .get_mut("requestBody")
        .and_then(Value::as_object_mut)
    {
        add_example(body, sample.body.as_ref());
    }
    let answer = sample.answer(path);
    for (status, response) in object(operation, "responses").into_iter().flatten() {
        if let (true, Some(response)) = (status.starts_with('2'), response.as_object_mut()) {
            add_example(response, answer.as_ref());
        }
    }
}

/// Adds an example to the content of a body or an answer; one that is text to content of another
/// type than JSON.
fn add_example(of: &mut Map<String, Value>, example: Option<&Value>) {
    let content = of.get_mut("content").and_then(Value::as_object_mut);
    for (media, content) in content.into_iter().flatten() {
        let (Some(content), Some(example)) = (content.as_object_mut(), example) else {
            continue;
        };
        if media.contains("json") != example.is_string() || media == "application/x-ndjson" {
            content.insert("example".to_string(), example.clone());
        }
    }
}

/// Adds the answers that every route may have.
fn add_answers(operation: &mut Map<String, Value>, changes: bool) {
    let has_name = |parameters: &Vec<Value>| {
        let places = parameters.iter().filter_map(|one| one.get("in"));
        places.into_iter().any(|place| place == "path")
    };
    let parameters = operation.get("parameters").and_then(Value::as_array);
    let mut all = EVERYWHERE.to_vec();
    if parameters.is_some_and(has_name) {
        all.extend(WITH_NAME);
    }
    if operation.contains_key("requestBody") {
        all.extend(WITH_BODY);
    }
    if changes {
        all.extend(OF_CHANGES);
    }
    let Some(responses) = object(operation, "responses") else {
        return;
    };
    for (status, _) in &all {
        responses
            .entry(status.to_string())
            .or_insert_with(|| json!({}));
    }
    for (status, response) in responses {
        let status = status.parse().unwrap_or(500);
        let known = all.iter().chain(&OTHERS).find(|(one, _)| *one == status);
        let Some(response) = response.as_object_mut() else {
            continue;
        };
        let has_text = response.get("description").is_some_and(|text| text != "");
        if let (false, Some((_, description))) = (has_text, known) {
            response.insert("description".to_string(), (*description).into());
        }
        if status < 400 {
            continue;
        }
        let detail = response.get("description").cloned().unwrap_or_default();
        let title = StatusCode::from_u16(status)
            .ok()
            .and_then(|of| of.canonical_reason());
        let example = json!({
            "type": kind(status), "status": status, "title": title.unwrap_or("Error"), "detail": detail
        });
        let content = json!({
            PROBLEMS: {"schema": {"$ref": "#/components/schemas/Problem"}, "example": example}
        });
        response.insert("content".to_string(), content);
    }
}

/// A kind of problem with this status.
fn kind(status: u16) -> &'static str {
    match status {
        400 | 422 => "bad-input",
        401 => "no-token",
        403 => "forbidden",
        404 => "not-found",
        408 | 504 => "too-slow",
        409 => "conflict",
        410 => "page-expired",
        412 => "precondition-failed",
        413 => "too-large",
        415 => "no-document",
        429 => "too-many",
        503 => "busy",
        507 => "disk-full",
        _ => "internal",
    }
}

/// Numbers without a sign go up to 2^64 - 1, which `int64` does not have.
fn name_numbers(of: &mut Value) {
    match of {
        Value::Array(all) => all.iter_mut().for_each(name_numbers),
        Value::Object(members) => {
            let is = |name: &str, value: Value| members.get(name) == Some(&value);
            if is("format", json!("int64")) && is("minimum", json!(0)) {
                members.insert("format".to_string(), json!("uint64"));
            }
            members.values_mut().for_each(name_numbers);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_example_is_of_an_operation() {
        let examples = Examples::new().unwrap();
        let document = super::super::routes::document(false).unwrap();
        let document: Value = serde_json::from_str(&document).unwrap();
        for name in examples.names() {
            let (method, path) = name.split_once(' ').unwrap();
            let operation = &document["paths"][path][method.to_lowercase()];
            assert!(operation.is_object(), "{name}");
        }
    }
}
