//! Converts gRPC routes to HTTP routes with paths of the form `/SERVICE/METHOD`.

use regex_syntax::escape;

use crate::kinds::{
    GrpcMatch, GrpcMethod, GrpcRoute, GrpcRule, HttpMatch, HttpRoute, HttpRouteSpec, HttpRule, PathMatch,
};

pub(crate) fn as_http(route: &GrpcRoute) -> HttpRoute {
    let spec = &route.spec;
    HttpRoute {
        api_version: route.api_version.clone(),
        metadata: route.metadata.clone(),
        spec: HttpRouteSpec {
            parent_refs: spec.parent_refs.clone(),
            hostnames: spec.hostnames.clone(),
            rules: spec.rules.iter().map(rule).collect(),
        },
        status: serde_json::Value::Null,
    }
}

fn rule(rule: &GrpcRule) -> HttpRule {
    HttpRule {
        name: rule.name.clone(),
        matches: rule.matches.iter().map(one).collect(),
        filters: rule.filters.clone(),
        backend_refs: rule.backend_refs.clone(),
        timeouts: None,
        other: rule.other.clone(),
    }
}

fn one(wanted: &GrpcMatch) -> HttpMatch {
    HttpMatch {
        path: wanted.method.as_ref().map(path),
        headers: wanted.headers.clone(),
        other: wanted.other.clone(),
        ..HttpMatch::default()
    }
}

fn path(wanted: &GrpcMethod) -> PathMatch {
    let given = |part: &Option<String>| part.clone().filter(|part| !part.is_empty());
    let (service, method) = (given(&wanted.service), given(&wanted.method));
    let (kind, value) = match (wanted.kind.as_deref().unwrap_or("Exact"), service, method) {
        (_, None, None) => ("PathPrefix", "/".to_owned()),
        ("Exact", Some(service), Some(method)) => ("Exact", format!("/{service}/{method}")),
        ("Exact", Some(service), None) => ("PathPrefix", format!("/{service}")),
        ("Exact", None, Some(method)) => ("RegularExpression", format!("/[^/]+/{}", escape(&method))),
        ("RegularExpression", service, method) => {
            let part =
                |part: Option<String>| part.map_or_else(|| "[^/]+".to_owned(), |part| format!("(?:{part})"));
            ("RegularExpression", format!("/{}/{}", part(service), part(method)))
        }
        // The HTTP translation reports unknown types.
        (other, ..) => (other, String::new()),
    };
    PathMatch { kind: Some(kind.to_owned()), value: Some(value) }
}
