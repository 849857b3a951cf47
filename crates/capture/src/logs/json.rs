//! Lines that are JSON objects: of Caddy, Traefik and Vanward.

use serde_json::{Map, Value};

use super::LogSource;
use crate::{
    CapturedRequest, CapturedResponse, CapturedScheme, is_field_name, is_method, set_target, time, version_of,
};

/// Names of the values in one program's objects.
struct JsonNames {
    method: &'static str,
    target: &'static str,
    host: &'static [&'static str],
    client: &'static [&'static str],
    version: &'static str,
    scheme: &'static str,
    status: &'static str,
    body_bytes: &'static str,
    field: &'static str,
    response_field: &'static str,
}

const CADDY: JsonNames = JsonNames {
    method: "method",
    target: "uri",
    host: &["host"],
    client: &["client_ip", "remote_ip"],
    version: "proto",
    scheme: "",
    status: "status",
    body_bytes: "size",
    field: "",
    response_field: "",
};
const TRAEFIK: JsonNames = JsonNames {
    method: "RequestMethod",
    target: "RequestPath",
    host: &["RequestAddr", "RequestHost"],
    client: &["ClientHost"],
    version: "RequestProtocol",
    scheme: "RequestScheme",
    status: "DownstreamStatus",
    body_bytes: "DownstreamContentSize",
    field: "request_",
    response_field: "downstream_",
};
const VANWARD: JsonNames = JsonNames {
    method: "method",
    target: "target",
    host: &["host"],
    client: &["client"],
    version: "version",
    scheme: "scheme",
    status: "status",
    body_bytes: "body_bytes_sent",
    field: "header.",
    response_field: "response_header.",
};

pub(super) fn line(source: LogSource, line: &str) -> Result<CapturedRequest, String> {
    let object: Map<String, Value> =
        serde_json::from_str(line).map_err(|error| format!("the line is no JSON object: {error}"))?;
    let mut request = match source {
        LogSource::Caddy => {
            let inner = object.get("request").and_then(Value::as_object);
            let inner = inner.ok_or("the object has no `request`")?;
            let mut request = common(&CADDY, inner, &object)?;
            let is_tls = inner.contains_key("tls");
            request.scheme = Some(if is_tls { CapturedScheme::Https } else { CapturedScheme::Http });
            request.time_ms = time_of(object.get("ts"));
            lists(inner.get("headers"), &mut request.fields);
            if let Some(response) = &mut request.response {
                lists(object.get("resp_headers"), &mut response.fields);
            }
            request
        }
        LogSource::Traefik => {
            let mut request = common(&TRAEFIK, &object, &object)?;
            request.time_ms = time_of(object.get("StartUTC"));
            request
        }
        LogSource::Vanward => {
            let mut request = common(&VANWARD, &object, &object)?;
            request.time_ms = time_of(object.get("time"));
            for (key, name) in [("referer", "Referer"), ("user_agent", "User-Agent")] {
                if let (Some(value), None) = (text(&object, key), request.field(name)) {
                    request.fields.push((name.to_owned(), value.to_owned()));
                }
            }
            request
        }
        LogSource::Nginx | LogSource::Apache | LogSource::Haproxy => {
            return Err("JSON of other programs has no fixed names; give the format of the log".to_owned());
        }
    };
    request.fields.retain(|(name, _)| is_field_name(name) && !name.eq_ignore_ascii_case("host"));
    Ok(request)
}

/// Reads what all have: `object` is about the request, `outer` about its response.
fn common(
    names: &JsonNames,
    object: &Map<String, Value>,
    outer: &Map<String, Value>,
) -> Result<CapturedRequest, String> {
    let mut request = CapturedRequest::default();
    let method = text(object, names.method).filter(|method| is_method(method));
    method.ok_or_else(|| format!("the object has no `{}`", names.method))?.clone_into(&mut request.method);
    let target = text(object, names.target).ok_or_else(|| format!("the object has no `{}`", names.target))?;
    set_target(target, &mut request)?;
    let first = |keys: &[&str]| keys.iter().find_map(|key| text(object, key));
    request.host = first(names.host).map(str::to_owned).or(request.host);
    request.client = first(names.client).and_then(|client| client.parse().ok());
    request.version = text(object, names.version).and_then(version_of);
    request.scheme = text(object, names.scheme).and_then(CapturedScheme::parse).or(request.scheme);
    let status =
        outer.get(names.status).and_then(Value::as_u64).and_then(|status| u16::try_from(status).ok());
    let mut response = CapturedResponse {
        status: status.unwrap_or(0),
        body_bytes: outer.get(names.body_bytes).and_then(Value::as_u64),
        ..Default::default()
    };
    for (key, value) in object.iter().filter(|_| !names.field.is_empty()) {
        let Some(value) = value.as_str() else { continue };
        let name = |prefix: &str| key.strip_prefix(prefix).map(str::to_owned);
        if let Some(name) = name(names.response_field) {
            response.fields.push((name, value.to_owned()));
        } else if let Some(name) = name(names.field) {
            request.fields.push((name, value.to_owned()));
        }
    }
    request.response = (response.status != 0).then_some(response);
    Ok(request)
}

fn text<'o>(object: &'o Map<String, Value>, key: &str) -> Option<&'o str> {
    object.get(key).and_then(Value::as_str)
}

/// A number of seconds since 1970, or a text of ISO 8601.
fn time_of(value: Option<&Value>) -> Option<u64> {
    match value? {
        Value::Number(number) => time::seconds(&number.to_string()),
        Value::String(text) => time::iso(text),
        _ => None,
    }
}

/// Reads `{"User-Agent":["curl/8.14"]}`.
fn lists(object: Option<&Value>, fields: &mut Vec<(String, String)>) {
    for (name, values) in object.and_then(Value::as_object).into_iter().flatten() {
        for value in values.as_array().into_iter().flatten().filter_map(Value::as_str) {
            fields.push((name.clone(), value.to_owned()));
        }
    }
}
