//! Authentication servers at the request's host (`auth-url: https://$host/oauth2/auth`): the servers of the Ingress
//! for that host, which clients reach themselves. No other server is used on behalf of an Ingress.

use crate::annotations::IngressOptions;
use crate::ingress::OwnIngress;
use crate::ingress_kinds::IngressBackend;
use crate::object::Reference;

/// A path of an Ingress with an exact host, and its backend.
pub(crate) struct Answerer<'c> {
    /// In lower case.
    host: String,
    path: &'c str,
    is_exact: bool,
    pub(crate) backend: &'c IngressBackend,
    pub(crate) owner: Reference,
    pub(crate) wanted: IngressOptions,
    /// Why it cannot authenticate requests.
    fault: Option<&'static str>,
}

/// Lists the paths by host, oldest Ingress first. Empty if no Ingress uses such a server.
pub(crate) fn answerers<'c>(all: &[OwnIngress<'c>]) -> Vec<Answerer<'c>> {
    let asks =
        |own: &OwnIngress<'_>| own.wanted.auth_server.as_ref().is_some_and(|server| server.service.is_none());
    if !all.iter().any(asks) {
        return Vec::new();
    }
    let mut answerers = Vec::new();
    for own in all {
        let fault = fault(own);
        for rule in &own.ingress.spec.rules {
            let Some(host) = rule.host.as_deref().filter(|host| is_one(host)) else { continue };
            for path in rule.http.iter().flat_map(|http| &http.paths) {
                answerers.push(Answerer {
                    host: host.to_ascii_lowercase(),
                    path: path.path.as_deref().filter(|path| !path.is_empty()).unwrap_or("/"),
                    is_exact: path.path_type == "Exact",
                    backend: &path.backend,
                    owner: own.owner.clone(),
                    wanted: own.wanted.clone(),
                    fault,
                });
            }
        }
    }
    answerers
}

/// Returns the backend for a URL's path at the host of a rule.
pub(crate) fn at_host<'a, 'c>(
    all: &'a [Answerer<'c>],
    host: Option<&str>,
    path: &str,
) -> Result<&'a Answerer<'c>, String> {
    let Some(host) = host.filter(|host| is_one(host)) else {
        return Err("$host needs a rule with a single host".to_owned());
    };
    let host = host.to_ascii_lowercase();
    let path = path.split('?').next().unwrap_or_default();
    let found = all
        .iter()
        .filter(|answerer| answerer.host == host && answerer.is_for(path))
        // `min_by_key` returns the first of equals, which is the oldest.
        .min_by_key(|answerer| (!answerer.is_exact, usize::MAX - answerer.path.trim_end_matches('/').len()));
    let found = found.ok_or_else(|| format!("no Ingress answers at {host}{path}"))?;
    match found.fault {
        None => Ok(found),
        Some(why) => Err(format!("{} answers at {host}{path}, which {why}", found.owner)),
    }
}

impl Answerer<'_> {
    /// The path in the route, without its type.
    pub(crate) fn route_path(&self) -> &str {
        match self.path.trim_end_matches('/') {
            _ if self.is_exact => self.path,
            "" => "/",
            prefix => prefix,
        }
    }

    fn is_for(&self, path: &str) -> bool {
        let prefix = self.path.trim_end_matches('/');
        let rest = path.strip_prefix(if self.is_exact { self.path } else { prefix });
        rest.is_some_and(|rest| rest.is_empty() || (!self.is_exact && rest.starts_with('/')))
    }
}

/// Whether the host is an exact name.
fn is_one(host: &str) -> bool {
    !host.is_empty() && !host.starts_with("*.")
}

/// Returns why requests to the Ingress's servers would differ from those of clients.
fn fault(own: &OwnIngress<'_>) -> Option<&'static str> {
    let wanted = &own.wanted;
    let is_limited = !wanted.denied.is_empty() || wanted.options.iter().any(|(name, _)| *name == "allow");
    if own.refused.is_some() || !own.faults.is_empty() {
        Some("is refused itself")
    } else if wanted.auth_server.is_some() || wanted.passwords.is_some() {
        Some("authenticates clients itself")
    } else if is_limited {
        Some("is limited to some networks")
    } else if wanted.redirect.is_some()
        || wanted.rewrite_target.is_some()
        || wanted.uses_expressions
        || wanted.upstream_host.is_some()
    {
        Some("has redirect, rewrite-target, use-regex or upstream-vhost")
    } else {
        None
    }
}
