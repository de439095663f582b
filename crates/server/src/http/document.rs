//! The OpenAPI document: what the handlers say of themselves, and the answers that every route may
//! have.

use utoipa::OpenApi;
use utoipa::openapi::path::{Operation, ParameterIn};
use utoipa::openapi::{Content, ContentBuilder, Ref, RefOr, Response, ResponseBuilder};

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
        (name = "system", description = "The server itself")
    )
)]
pub(super) struct Document;

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

fn problem(description: &str) -> RefOr<Response> {
    let schema = Ref::from_schema_name("Problem");
    let content: Content = ContentBuilder::new().schema(Some(schema)).build();
    let response = ResponseBuilder::new()
        .description(description)
        .content("application/problem+json", content);
    RefOr::T(response.build())
}

/// Adds the answers that every route may have.
pub(super) fn complete(mut document: utoipa::openapi::OpenApi) -> utoipa::openapi::OpenApi {
    for item in document.paths.paths.values_mut() {
        for operation in [&mut item.get].into_iter().flatten() {
            add(operation, &EVERYWHERE);
        }
        let changes = [
            &mut item.put,
            &mut item.post,
            &mut item.patch,
            &mut item.delete,
        ];
        for operation in changes.into_iter().flatten() {
            add(operation, &EVERYWHERE);
            add(operation, &OF_CHANGES);
        }
    }
    document
}

fn add(operation: &mut Operation, statuses: &[(u16, &str)]) {
    let parameters = operation.parameters.iter().flatten();
    let has_name = parameters
        .clone()
        .any(|one| matches!(one, RefOr::T(one) if one.parameter_in == ParameterIn::Path));
    let mut all = statuses.to_vec();
    if has_name {
        all.extend(WITH_NAME);
    }
    if operation.request_body.is_some() {
        all.extend(WITH_BODY);
    }
    for (status, description) in all {
        let known = &mut operation.responses.responses;
        known
            .entry(status.to_string())
            .or_insert_with(|| problem(description));
    }
}
