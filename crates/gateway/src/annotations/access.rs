//! Annotations for client authentication: passwords in a Secret, and a server that authenticates each request.

use super::{Annotations, in_namespace, words};

/// Passwords in a Secret of the Ingress's namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Passwords {
    pub(crate) secret: String,
    pub(crate) form: UserListForm,
    /// Shown in the client's password prompt.
    pub(crate) realm: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UserListForm {
    File,
    /// Each key is a user.
    Map,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AuthServer {
    /// `None` means the servers at the request's host.
    pub(crate) service: Option<ServicePortName>,
    /// Includes the query, if there is one.
    pub(crate) path: String,
    /// Response fields that are copied to the request, as a TOML value.
    pub(crate) copied: Option<String>,
    /// Redirect target for unauthenticated clients, as a TOML value.
    pub(crate) sign_in: Option<String>,
}

/// A port of a service, named in the cluster's DNS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServicePortName {
    pub(crate) name: String,
    pub(crate) namespace: String,
    pub(crate) port: u16,
    /// Whether the server must prove its identity (TLS).
    pub(crate) is_secure: bool,
}

const AUTH_URL: &str = "http://NAME.NAMESPACE.svc.cluster.local:8080/verify, the URL of a service, or https://$host/oauth2/auth, both without other variables";

const SIGN_IN: &str =
    "a URL or a path, with no variables but $host, $scheme, $request_uri and $escaped_request_uri";

impl Annotations<'_> {
    pub(super) fn passwords(&mut self, namespace: &str) -> Option<Passwords> {
        let is_there = |annotations: &Self, name: &str| annotations.values.contains_key(name);
        let [has_type, has_secret] = ["auth-type", "auth-secret"].map(|name| is_there(self, name));
        if has_type != has_secret {
            self.faults
                .push("annotation auth-type: it needs auth-secret, and auth-secret needs it".to_owned());
        }
        let kind = self.value("auth-type", |kind| if kind == "basic" { Ok(()) } else { Err("basic") });
        let secret = self.value("auth-secret", |secret| {
            in_namespace(secret, namespace).ok_or("the name of a Secret in the namespace of the Ingress")
        });
        let form = self.value("auth-secret-type", |form| match form {
            "auth-file" => Ok(UserListForm::File),
            "auth-map" => Ok(UserListForm::Map),
            _ => Err("auth-file or auth-map"),
        });
        let realm = self.value("auth-realm", |realm| match realm {
            _ if realm.chars().any(char::is_control) => Err("a text without control characters"),
            realm => Ok(realm.to_owned()),
        });
        let realm = realm.filter(|realm| !realm.is_empty());
        kind.zip(secret).map(|((), secret)| Passwords {
            secret,
            form: form.unwrap_or(UserListForm::File),
            realm,
        })
    }

    pub(super) fn auth_server(&mut self) -> Option<AuthServer> {
        let copied = self.value("auth-response-headers", words);
        if self.values.contains_key("auth-signin") && !self.values.contains_key("auth-url") {
            self.faults.push("annotation auth-signin: it needs auth-url".to_owned());
        }
        let sign_in = self.value("auth-signin", |page| sign_in(page).ok_or(SIGN_IN));
        let (service, path) = self.value("auth-url", |url| {
            let service = service(url).map(|(service, path)| (Some(service), path));
            service.or_else(|| Some((None, at_own_host(url)?))).ok_or(AUTH_URL)
        })?;
        Some(AuthServer { service, path, copied, sign_in })
    }
}

/// Converts the URL of a sign-in page with nginx's variables to a TOML value.
fn sign_in(page: &str) -> Option<String> {
    const VARIABLES: [(&str, &str); 7] = [
        ("http_host", "host"),
        ("best_http_host", "host"),
        ("host", "host"),
        ("scheme", "scheme"),
        ("pass_access_scheme", "scheme"),
        ("request_uri", "path_and_query"),
        ("escaped_request_uri", "path_and_query"),
    ];
    let page = page.replace("${", "$").replace('}', "");
    let mut parts = page.split('$');
    let mut written = parts.next()?.to_owned();
    for part in parts {
        let end = part.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
        let (name, rest) = part.split_at(end.unwrap_or(part.len()));
        let (_, ours) = VARIABLES.iter().find(|(theirs, _)| *theirs == name)?;
        written += "${";
        written += ours;
        written += "}";
        written += rest;
    }
    Some(written)
}

/// Parses the URL of a service to port and path. Other hosts are refused: only the proxy may reach internal ones.
fn service(url: &str) -> Option<(ServicePortName, String)> {
    let (scheme, rest) = url.split_once("://")?;
    let (is_secure, usual) = match scheme {
        "http" => (false, 80),
        "https" => (true, 443),
        _ => return None,
    };
    let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let (host, port) = match authority.split_once(':') {
        Some((host, port)) => (host, port.parse().ok()?),
        None => (authority, usual),
    };
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    let host = host.strip_suffix(".cluster.local").unwrap_or(&host);
    let (name, namespace) = host.strip_suffix(".svc")?.split_once('.')?;
    if url.contains(['$', '#']) || [name, namespace].iter().any(|part| part.is_empty() || part.contains('.'))
    {
        return None;
    }
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    let (name, namespace) = (name.to_owned(), namespace.to_owned());
    Some((ServicePortName { name, namespace, port, is_secure }, path))
}

/// Returns the path of a URL at the request's host.
fn at_own_host(url: &str) -> Option<String> {
    const HOSTS: [&str; 4] = ["$host", "${host}", "$http_host", "${http_host}"];
    let rest = ["https://", "http://", "$scheme://"].iter().find_map(|scheme| url.strip_prefix(scheme))?;
    let (host, path) = rest.split_at(rest.find('/')?);
    (HOSTS.contains(&host) && !path.contains(['$', '#'])).then(|| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sign_in_pages_have_variables_of_ours() {
        for (page, expected) in [
            ("https://login.example/start", Some("https://login.example/start")),
            (
                "https://$host/oauth2/start?rd=$escaped_request_uri",
                Some("https://${host}/oauth2/start?rd=${path_and_query}"),
            ),
            (
                "https://auth.$host/start?rd=$scheme://$best_http_host$request_uri&x=1",
                Some("https://auth.${host}/start?rd=${scheme}://${host}${path_and_query}&x=1"),
            ),
            ("$scheme://${http_host}/start", Some("${scheme}://${host}/start")),
            ("https://$http_x_evil/", None),
            ("https://$host_x/", None),
            ("/a$", None),
        ] {
            assert_eq!(sign_in(page).as_deref(), expected, "{page}");
        }
    }

    #[test]
    fn urls_may_be_those_of_the_own_host() {
        for (url, expected) in [
            ("https://$host/oauth2/auth", Some("/oauth2/auth")),
            ("http://${http_host}/auth?x=1", Some("/auth?x=1")),
            ("$scheme://$host/auth", Some("/auth")),
            ("https://$host", None),
            ("https://$host:8443/auth", None),
            ("https://auth.$host/auth", None),
            ("https://$hostname/auth", None),
            ("https://$host/$request_uri", None),
            ("https://auth.example.com/auth", None),
        ] {
            assert_eq!(at_own_host(url).as_deref(), expected, "{url}");
        }
    }

    #[test]
    fn urls_are_those_of_services() {
        for (url, expected) in [
            ("http://auth.sso.svc.cluster.local/verify", Some("auth.sso:80 /verify")),
            ("http://auth.sso.svc:4180/oauth2/auth?x=1", Some("auth.sso:4180 /oauth2/auth?x=1")),
            ("https://auth.sso.svc.cluster.local.", Some("auth.sso:443 s /")),
            ("http://AUTH.sso.svc?x", Some("auth.sso:80 /?x")),
            ("http://auth.example.com/verify", None),
            ("http://169.254.169.254/latest", None),
            ("https://$host/oauth2/auth", None),
            ("http://auth.sso.svc/$request_uri", None),
            ("http://a.b.c.svc/", None),
            ("http://.sso.svc/", None),
            ("http://auth.sso.svc:x/", None),
            ("http://user@auth.sso.svc.example/", None),
            ("auth.sso.svc", None),
        ] {
            let told = service(url).map(|(service, path)| {
                let ServicePortName { name, namespace, port, is_secure } = service;
                let mark = if is_secure { " s" } else { "" };
                format!("{name}.{namespace}:{port}{mark} {path}")
            });
            assert_eq!(told.as_deref(), expected, "{url}");
        }
    }
}
