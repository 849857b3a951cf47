//! `docs/admin-api.json`, generated from the types, with every path of the API. `UPDATE=1 cargo test -p api` writes it.

use std::collections::BTreeSet;
use std::path::Path;

use schemars::generate::{SchemaGenerator, SchemaSettings};
use schemars::{JsonSchema, Schema};
use serde_json::{Map, Value, json};

use crate::cache::{ExplainOrder, Explained, PurgeOrder, Purged};
use crate::capture::{CaptureEnd, CaptureOrder};
use crate::certificates::{CertificateStatus, RenewalOrder};
use crate::live::{HourStatus, LiveStatus};
use crate::maintenance::{MaintenanceOrder, MaintenanceStatus, MaintenanceSwitched};
use crate::maps::{MapChanged, MapEntries, MapLookupOrder, MapLookupResult, MapOrder, MapStatus};
use crate::route::RouteOrder;
use crate::shaping::{PlaceNamed, ShapingCleared, ShapingOrder, ShapingStatus};
use crate::status::{
    Changed, FaultStatus, FaultsAdded, FaultsRemoved, RefusedOrder, ReloadResult, ServerOrder, SourceReport,
    StatusReport,
};

/// The document, and the source with the paths of the API.
const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/admin-api.json");
const PLACES: &str = include_str!("../../control/src/admin.rs");

/// The body of a request or response.
enum ApiContent {
    Nothing,
    Json(Schema),
    Text,
    Toml,
}

struct Document {
    generator: SchemaGenerator,
    paths: Map<String, Value>,
}

impl Document {
    fn content_of<T: JsonSchema>(&mut self) -> ApiContent {
        ApiContent::Json(self.generator.subschema_for::<T>())
    }

    fn add(&mut self, method: &str, path: &str, summary: &str, order: ApiContent, answer: ApiContent) {
        let refused = self.generator.subschema_for::<RefusedOrder>();
        let mut operation = json!({
            "summary": summary,
            "responses": {
                "200": { "description": "Done.", "content": content(answer) },
                "default": {
                    "description": "Refused: nothing has changed.",
                    "content": { "application/json": { "schema": refused } },
                },
            },
        });
        if !matches!(order, ApiContent::Nothing) {
            operation["requestBody"] = json!({ "required": true, "content": content(order) });
        }
        let parameters: Vec<Value> = path.split(['{', '}']).skip(1).step_by(2).map(parameter).collect();
        if !parameters.is_empty() {
            operation["parameters"] = parameters.into();
        }
        let place = self.paths.entry(path).or_insert_with(|| json!({}));
        place[method] = operation;
    }

    /// Documents a word in the query of a POST that has parameters in its path.
    fn permit(&mut self, path: &str, word: &str, summary: &str) {
        let parameter = json!({
            "name": word, "in": "query", "description": summary, "allowEmptyValue": true, "schema": { "type": "string" },
        });
        if let Some(parameters) = self.paths[path]["post"]["parameters"].as_array_mut() {
            parameters.push(parameter);
        }
    }

    fn finish(mut self) -> String {
        let document = json!({
            "openapi": "3.0.3",
            "info": {
                "title": "Admin API of Vanward",
                "version": "1",
                "description": "JSON over HTTP at the Unix socket that `admin` of the configuration names. Only the user of the process may open it.",
            },
            "servers": [{ "url": "http://localhost", "description": "any host: the socket decides" }],
            "paths": self.paths,
            "components": { "schemas": self.generator.take_definitions(true) },
        });
        format!("{document:#}\n")
    }
}

fn content(content: ApiContent) -> Value {
    match content {
        ApiContent::Nothing => json!({}),
        ApiContent::Json(schema) => json!({ "application/json": { "schema": schema } }),
        ApiContent::Text => json!({ "text/plain": { "schema": { "type": "string" } } }),
        ApiContent::Toml => json!({ "application/toml": { "schema": { "type": "string" } } }),
    }
}

fn parameter(name: &str) -> Value {
    let schema = match name {
        "amendment" => json!({ "type": "string", "enum": ["drain", "restore", "weigh", "add", "remove"] }),
        "place" => json!({ "type": "string", "enum": ["listener", "route", "upstream"] }),
        _ => json!({ "type": "string" }),
    };
    json!({ "name": name, "in": "path", "required": true, "schema": schema })
}

fn document() -> String {
    let mut made = Document { generator: SchemaSettings::openapi3().into_generator(), paths: Map::new() };
    let document = &mut made;
    read(document);
    change(document);
    made.finish()
}

/// Documents the queries.
fn read(document: &mut Document) {
    let answer = document.content_of::<StatusReport>();
    document.add("get", "/status", "The status of the proxy.", ApiContent::Nothing, answer);
    let answer = document.content_of::<LiveStatus>();
    document.add("get", "/live", "Requests under way, and who sends most.", ApiContent::Nothing, answer);
    let answer = document.content_of::<HourStatus>();
    document.add("get", "/hour", "The last hour.", ApiContent::Nothing, answer);
    let told = "The configuration in force: the files as one, as they were written, with all changes.";
    document.add("get", "/configuration", told, ApiContent::Nothing, ApiContent::Toml);
    let answer = document.content_of::<Vec<CertificateStatus>>();
    document.add("get", "/certificates", "The certificates of all listeners.", ApiContent::Nothing, answer);
    let answer = document.content_of::<Vec<FaultStatus>>();
    document.add("get", "/faults", "The faults that are injected.", ApiContent::Nothing, answer);
    let answer = document.content_of::<Vec<MaintenanceStatus>>();
    document.add("get", "/maintenance", "The routes under maintenance.", ApiContent::Nothing, answer);
    let answer = document.content_of::<Vec<MapStatus>>();
    document.add("get", "/maps", "The maps of the configuration.", ApiContent::Nothing, answer);
    let answer = document.content_of::<MapEntries>();
    document.add("get", "/maps/{name}", "Entries of a map.", ApiContent::Nothing, answer);
    let (order, answer) = (document.content_of::<MapLookupOrder>(), document.content_of::<MapLookupResult>());
    document.add("post", "/maps/{name}/lookup", "The value of a key.", order, answer);
    let answer = document.content_of::<Vec<ShapingStatus>>();
    document.add("get", "/shaping", "Rates and delays of all places.", ApiContent::Nothing, answer);
    let (order, answer) = (document.content_of::<ExplainOrder>(), document.content_of::<Explained>());
    document.add("post", "/cache/explain", "How the cache would answer a GET.", order, answer);
    let order = document.content_of::<CaptureOrder>();
    let answer = document.content_of::<CaptureEnd>();
    let told =
        "The next requests, with their secrets: lines of JSON as in a capture file. The last one is the end.";
    document.add("post", "/capture", told, order, answer);
    let (order, answer) = (document.content_of::<RouteOrder>(), document.content_of::<Map<String, Value>>());
    document.add("post", "/routes/explain", "Which route a request takes, and why.", order, answer);
}

/// Documents the orders, which change the proxy.
fn change(document: &mut Document) {
    let answer = document.content_of::<ReloadResult>();
    document.add("post", "/reload", "Reads the configuration again.", ApiContent::Nothing, answer);
    let (order, answer) = (document.content_of::<ServerOrder>(), document.content_of::<Changed>());
    document.add("post", "/servers/{amendment}", "Changes a server.", order, answer);
    let (order, answer) = (document.content_of::<SourceReport>(), document.content_of::<SourceReport>());
    document.add("post", "/sources", "Reports how a source of servers stands.", order, answer);
    let (order, answer) = (document.content_of::<PurgeOrder>(), document.content_of::<Purged>());
    document.add("post", "/cache/purge", "Deletes stored responses.", order, answer);
    let (order, answer) = (document.content_of::<RenewalOrder>(), document.content_of::<RenewalOrder>());
    document.add("post", "/certificates/renew", "Renews an automatic certificate.", order, answer);
    let answer = document.content_of::<FaultsAdded>();
    document.add("post", "/faults", "Injects the faults of [[fault]] tables.", ApiContent::Toml, answer);
    let answer = document.content_of::<FaultsRemoved>();
    document.add("delete", "/faults", "Ends all faults and shaping orders.", ApiContent::Nothing, answer);
    let answer = document.content_of::<FaultsRemoved>();
    document.add("delete", "/faults/{name}", "Ends a fault.", ApiContent::Nothing, answer);
    for (path, summary) in [
        ("/maintenance/on", "Puts routes under maintenance."),
        ("/maintenance/off", "Ends the maintenance of routes."),
    ] {
        let (order, answer) =
            (document.content_of::<MaintenanceOrder>(), document.content_of::<MaintenanceSwitched>());
        document.add("post", path, summary, order, answer);
    }
    let (order, answer) = (document.content_of::<MapOrder>(), document.content_of::<MapChanged>());
    document.add("post", "/maps/{name}/change", "Sets and deletes entries of a map.", order, answer);
    let answer = document.content_of::<MapChanged>();
    let told = "Replaces all entries of a map: lines of a key and a value, or of a key for a set.";
    document.add("post", "/maps/{name}/replace", told, ApiContent::Text, answer);
    let answer = document.content_of::<MapChanged>();
    document.add("post", "/maps/{name}/reset", "Drops all changes of a map.", ApiContent::Nothing, answer);
    for path in ["/maps/{name}/change", "/maps/{name}/replace", "/maps/{name}/reset"] {
        document.permit(path, "here", "Changes this instance alone, if instances share their maps.");
    }
    let (order, answer) = (document.content_of::<ShapingOrder>(), document.content_of::<PlaceNamed>());
    document.add("post", "/shaping", "Changes rates and delays of a place.", order, answer);
    let answer = document.content_of::<ShapingCleared>();
    document.add("delete", "/shaping", "Ends all such changes.", ApiContent::Nothing, answer);
    let answer = document.content_of::<ShapingCleared>();
    document.add("delete", "/shaping/{place}/{name}", "Ends those of a place.", ApiContent::Nothing, answer);
}

#[test]
fn the_reference_is_what_the_types_say() {
    let made = document();
    let path = Path::new(DOCUMENT);
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path, &made).expect("it is writable");
    }
    let known = std::fs::read_to_string(path).unwrap_or_default();
    assert!(known == made, "docs/admin-api.json is not what the types say: UPDATE=1 cargo test -p api");
}

#[test]
fn every_place_of_the_api_is_in_the_reference() {
    let mut served = BTreeSet::new();
    for line in PLACES.lines().filter_map(|line| line.trim().strip_prefix(".route(\"")) {
        let (path, handlers) = line.split_once('"').expect("the path ends");
        for method in ["get", "post", "delete"] {
            if handlers.contains(&format!("{method}(")) {
                served.insert((path.to_owned(), method.to_owned()));
            }
        }
    }
    let document: Value = serde_json::from_str(&document()).expect("it is JSON");
    let mut told = BTreeSet::new();
    for (path, methods) in document["paths"].as_object().expect("there are paths") {
        told.extend(
            methods.as_object().expect("methods").keys().map(|method| (path.clone(), method.clone())),
        );
    }
    assert_eq!(told, served);
    assert!(served.len() > 20, "{served:?}");
}
