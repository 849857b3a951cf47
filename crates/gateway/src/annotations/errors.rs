//! Annotations for the answers of another service in place of errors.

use super::Annotations;
use crate::written::{inline, template, text};

/// The service that answers in place of others, and when it does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DefaultBackend {
    /// A service in the Ingress's namespace. Its first port is used.
    pub(crate) service: String,
    /// Sorted. Empty means only in place of services without endpoints.
    statuses: Vec<u16>,
    /// Whether responses of servers are forwarded, whatever their status.
    only_failures: bool,
}

/// A field of requests and its value in TOML.
pub(crate) type RequestField = (&'static str, String);

/// Returns fields that tell the service where the error comes from, as ingress-nginx writes them.
pub(crate) fn error_fields(code: &str, ingress: (&str, &str), service: (&str, &str)) -> Vec<RequestField> {
    vec![
        ("X-Code", template(code)),
        ("X-Format", template("$header.accept")),
        ("X-Original-URI", template("$path_and_query")),
        ("X-Namespace", text(ingress.0)),
        ("X-Ingress-Name", text(ingress.1)),
        ("X-Service-Name", text(service.0)),
        ("X-Service-Port", text(service.1)),
    ]
}

impl Annotations<'_> {
    pub(super) fn default_backend(&mut self) -> Option<DefaultBackend> {
        if self.values.contains_key("custom-http-errors") && !self.values.contains_key("default-backend") {
            let why = "it needs default-backend, because there is no default for all Ingresses";
            self.faults.push(format!("annotation custom-http-errors: {why}"));
        }
        let service = self.value("default-backend", |name| match name {
            name if name.is_empty() || name.contains(['/', '.', ' ']) => {
                Err("the name of a service in the namespace of the Ingress")
            }
            name => Ok(name.to_owned()),
        });
        let statuses = self.value("custom-http-errors", statuses).unwrap_or_default();
        let only_failures = self.is_on("disable-proxy-intercept-errors");
        service.map(|service| DefaultBackend { service, statuses, only_failures })
    }
}

impl DefaultBackend {
    /// Returns the option `on_status`; `None` without statuses.
    pub(crate) fn option(&self, upstream: &str, fields: Vec<RequestField>) -> Option<String> {
        let answer = [("upstream", text(upstream)), ("path", text("/")), ("fields", inline(fields))];
        let only_failures = self.only_failures.then(|| ("only_failures", "true".to_owned()));
        let answer = inline(answer.into_iter().chain(only_failures));
        let entries: Vec<String> = self.statuses.iter().map(u16::to_string).collect();
        let entries = entries.iter().map(|status| (status.as_str(), answer.clone()));
        (!self.statuses.is_empty()).then(|| inline(entries))
    }
}

fn statuses(value: &str) -> Result<Vec<u16>, &'static str> {
    const EXPECTED: &str = "statuses from 400 to 599 with commas";
    let words = value.split(',').map(str::trim).filter(|word| !word.is_empty());
    let status = |word: &str| word.parse().ok().filter(|status| (400..=599).contains(status));
    let mut statuses: Vec<u16> = words.map(status).collect::<Option<_>>().ok_or(EXPECTED)?;
    statuses.sort_unstable();
    statuses.dedup();
    if statuses.is_empty() { Err(EXPECTED) } else { Ok(statuses) }
}
