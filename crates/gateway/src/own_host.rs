//! Authentication servers at the host that a request came for (`auth-url: https://$host/oauth2/auth`): the servers of the Ingress that
//! answers there, which clients reach themselves. Nobody else is asked on behalf of an Ingress.

use crate::annotations::Wanted;
use crate::ingress::Own;
use crate::ingress_kinds::IngressBackend;
use crate::object::Reference;

/// A path of an Ingress at a host of its own, and who answers there.
pub(crate) struct Answerer<'c> {
    /// In small letters.
    host: String,
    path: &'c str,
    is_exact: bool,
    pub(crate) backend: &'c IngressBackend,
    pub(crate) owner: Reference,
    pub(crate) wanted: Wanted,
    /// Why it cannot be asked about requests.
    fault: Option<&'static str>,
}

/// Who answers at hosts, the oldest Ingress first. Nothing, if nobody asks for it.
pub(crate) fn answerers<'c>(all: &[Own<'c>]) -> Vec<Answerer<'c>> {
    let asks = |own: &Own<'_>| own.wanted.auth_server.as_ref().is_some_and(|server| server.service.is_none());
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

/// Who answers at the host of a rule, and at the path of a URL.
///
/// # Errors
/// Why nobody can be asked.
pub(crate) fn at_host<'a, 'c>(
    all: &'a [Answerer<'c>],
    host: Option<&str>,
    path: &str,
) -> Result<&'a Answerer<'c>, String> {
    let Some(host) = host.filter(|host| is_one(host)) else {
        return Err("$host is known of a rule with one host alone".to_owned());
    };
    let host = host.to_ascii_lowercase();
    let path = path.split('?').next().unwrap_or_default();
    let found = all
        .iter()
        .filter(|answerer| answerer.host == host && answerer.is_for(path))
        // Of equal ones the first one, which is the oldest.
        .min_by_key(|answerer| (!answerer.is_exact, usize::MAX - answerer.path.trim_end_matches('/').len()));
    let found = found.ok_or_else(|| format!("no Ingress answers at {host}{path}"))?;
    match found.fault {
        None => Ok(found),
        Some(why) => Err(format!("{} answers at {host}{path}, which {why}", found.owner)),
    }
}

impl Answerer<'_> {
    /// The path of its route, without its kind.
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

/// Whether a host of a rule is one, and no wildcard.
fn is_one(host: &str) -> bool {
    !host.is_empty() && !host.starts_with("*.")
}

/// Why the servers of an Ingress would be asked otherwise than clients ask them.
fn fault(own: &Own<'_>) -> Option<&'static str> {
    let wanted = &own.wanted;
    let has = |names: [&str; 2]| wanted.options.iter().any(|(name, _)| names.contains(name));
    if own.refused.is_some() || !own.faults.is_empty() {
        Some("is refused itself")
    } else if wanted.auth_server.is_some() || wanted.passwords.is_some() {
        Some("asks who clients are itself")
    } else if has(["allow", "deny"]) {
        Some("is not for all networks")
    } else if wanted.redirect.is_some() || wanted.rewrite_target.is_some() || wanted.uses_expressions {
        Some("has redirect, rewrite-target or use-regex")
    } else {
        None
    }
}
