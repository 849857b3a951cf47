//! Services behind Ingresses: those of paths, those that authenticate clients, and default backends.

use std::collections::BTreeSet;

use crate::annotations::{AuthServer, DefaultBackend, IngressOptions, error_fields};
use crate::backends::{Backends, Referring, Spoken};
use crate::filters::Options;
use crate::ingress::Around;
use crate::ingress_kinds::IngressBackend;
use crate::kinds::BackendRef;
use crate::object::{ObjectKind, Reference};
use crate::own_host::{self, Answerer};
use crate::written::{inline, text};

pub(crate) const NEEDS_POLICY: &str =
    "it needs a BackendTLSPolicy for the service, which names the trusted CAs";

/// Returns the option for an authentication server.
pub(crate) fn asked(AuthServer { path, copied, sign_in, .. }: &AuthServer, upstream: &str) -> String {
    let copied = copied.as_ref().map(|fields| ("copy_headers", fields.clone()));
    let asked = [("upstream", text(upstream)), ("path", text(path)), ("set_cookie", "true".to_owned())];
    let sign_in = sign_in.as_ref().map(|page| ("sign_in", text(page)));
    inline(asked.into_iter().chain(copied).chain(sign_in))
}

/// Returns the option for an authentication server at the request's host.
pub(crate) fn asked_at_host(
    wanted: &IngressOptions,
    host: Option<&str>,
    answerers: &[Answerer<'_>],
    around: &Around<'_, '_>,
    backends: &mut Backends<'_>,
) -> Result<Option<String>, String> {
    let Some(server @ AuthServer { service: None, path, .. }) = &wanted.auth_server else { return Ok(None) };
    let failed = |why| format!("annotation auth-url: {why}");
    let answerer = own_host::at_host(answerers, host, path).map_err(failed)?;
    let Answerer { backend, owner, wanted, .. } = answerer;
    let secret = around.options.cookie_secret.as_deref();
    let asking = PathService { wanted, owner, path: answerer.route_path(), secret };
    let upstream = upstream(backend, &asking, backends).map_err(failed)?;
    Ok(Some(asked(server, &upstream)))
}

/// An Ingress's path, for the upstream of its service.
pub(crate) struct PathService<'a> {
    pub(crate) wanted: &'a IngressOptions,
    pub(crate) owner: &'a Reference,
    /// As in the route's option.
    pub(crate) path: &'a str,
    /// The file with the secrets of cookies.
    pub(crate) secret: Option<&'a str>,
}

/// Returns the name of the upstream of a backend.
pub(crate) fn upstream(
    backend: &IngressBackend,
    &PathService { wanted, owner, path, secret }: &PathService<'_>,
    backends: &mut Backends<'_>,
) -> Result<String, String> {
    let Some(service) = &backend.service else {
        return Err("backends other than services are not supported".to_owned());
    };
    let none = BTreeSet::new();
    let spoken = wanted.spoken.map_or(Spoken::Http1, |servers| servers.spoken);
    let path = path.strip_prefix("= ").unwrap_or(path);
    let sticky = wanted.affinity.as_ref().map(|affinity| ("sticky", affinity.option(path, secret)));
    let own: Options = sticky.into_iter().chain(wanted.upstream.clone()).collect();
    let own = (!own.is_empty()).then_some((owner, own.as_slice()));
    let from = Referring {
        kind: ObjectKind::Ingress.name(),
        namespace: &owner.namespace,
        gateways: &none,
        spoken,
        client: None,
        own,
    };
    let by_name = service.port.name.as_deref();
    let port = service.port.number.or_else(|| backends.port_named(&owner.namespace, &service.name, by_name?));
    let upstream = backends.upstream(from, &BackendRef::to(&service.name, port)).map_err(|(_, why)| why)?;
    if wanted.spoken.is_some_and(|servers| servers.is_secure) && !backends.is_secure(&upstream) {
        return Err(format!("annotation backend-protocol: {NEEDS_POLICY}"));
    }
    Ok(upstream)
}

/// The part of a default backend.
pub(crate) enum DefaultAnswer {
    /// Its upstream gets all requests, with this table of request fields.
    Always(String, String),
    /// The option `on_status`.
    ForErrors(Option<String>),
}

/// Returns the part of the default backend for a path whose upstream is `stable`.
pub(crate) fn default_answer(
    default: &DefaultBackend,
    (owner, backend, stable): (&Reference, &IngressBackend, &str),
    backends: &mut Backends<'_>,
) -> Result<DefaultAnswer, String> {
    let none = BTreeSet::new();
    let (kind, namespace) = (ObjectKind::Ingress.name(), owner.namespace.as_str());
    let from = Referring { kind, namespace, gateways: &none, spoken: Spoken::Http1, client: None, own: None };
    let port = backends.first_port(namespace, &default.service);
    let upstream = backends
        .upstream(from, &BackendRef::to(&default.service, port))
        .map_err(|(_, why)| format!("annotation default-backend: {why}"))?;
    let service = backend.service.clone().unwrap_or_default();
    let number = service.port.number.map(|number| number.to_string());
    let port = service.port.name.or(number).unwrap_or_default();
    let fields = |code| error_fields(code, (namespace, &owner.name), (&service.name, &port));
    if !backends.has_servers(stable) && backends.has_servers(&upstream) {
        return Ok(DefaultAnswer::Always(upstream, inline([("set", inline(fields("503")))])));
    }
    Ok(DefaultAnswer::ForErrors(default.option(&upstream, fields("$status"))))
}
