//! Annotations for certificates of clients.

use regex_syntax::parse;

use super::{Annotations, in_namespace};
use crate::written::{inline, literal, quoted, text};

/// Condition on requests of clients without a certificate.
pub(crate) const WITHOUT: &str = "!has(client.tls.fingerprint)";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClientTls {
    /// A Secret with CA certificates, in the namespace of the Ingress.
    pub(crate) secret: String,
    pub(crate) is_required: bool,
    /// Most intermediate certificates.
    pub(crate) depth: u8,
    /// The option `redirect` for clients without a certificate.
    pub(crate) page: Option<String>,
    /// A regular expression for the subject.
    subject: Option<String>,
    sends_certificate: bool,
}

impl Annotations<'_> {
    pub(super) fn client_tls(&mut self, namespace: &str) -> Option<ClientTls> {
        let others = ["verify-client", "error-page", "pass-certificate-to-upstream", "match-cn"];
        let others = others.map(|name| format!("auth-tls-{name}"));
        let is_off = self.values.get("auth-tls-verify-client") == Some(&"off");
        if !self.values.contains_key("auth-tls-secret")
            && !is_off
            && let Some(other) = others.iter().find(|name| self.values.contains_key(name.as_str()))
        {
            self.faults.push(format!("annotation {other}: it needs auth-tls-secret"));
        }
        let secret = self.value("auth-tls-secret", |secret| {
            in_namespace(secret, namespace).ok_or("a Secret in the namespace of the Ingress, with ca.crt")
        });
        let is_required = self.value("auth-tls-verify-client", |mode| match mode {
            "on" => Ok(true),
            "optional" | "off" => Ok(false),
            _ => Err("on, optional or off: a certificate that no CA in ca.crt has signed is always rejected"),
        });
        let depth = self.value("auth-tls-verify-depth", |depth| {
            depth.parse::<u8>().ok().filter(|depth| *depth <= 6).ok_or("1 to 6 intermediate certificates")
        });
        let page = self.value("auth-tls-error-page", |page| match page {
            page if page.contains('$')
                || !["http://", "https://"].iter().any(|scheme| page.starts_with(scheme)) =>
            {
                Err("a URL without variables")
            }
            page if page.contains('?') => Ok(literal(page)),
            page => Ok(literal(&format!("{page}?"))),
        });
        let subject = self.value("auth-tls-match-cn", |pattern| {
            let is_pattern = pattern.starts_with("CN=") && parse(pattern).is_ok();
            is_pattern.then(|| pattern.to_owned()).ok_or("CN= and a regular expression")
        });
        let sends_certificate = self.is_on("auth-tls-pass-certificate-to-upstream");
        let page = page.map(|page| inline([("to", page), ("status", "302".to_owned())]));
        let depth = depth.filter(|depth| *depth > 0).unwrap_or(1);
        let is_required = is_required.unwrap_or(true);
        // Without a certificate, `optional` admits clients.
        let page = page.filter(|_| is_required);
        let secret = secret.filter(|_| !is_off)?;
        Some(ClientTls { secret, is_required, depth, page, subject, sends_certificate })
    }
}

impl ClientTls {
    /// Whether handshakes fail without a certificate.
    pub(crate) fn is_required_by_handshake(&self) -> bool {
        self.is_required && self.page.is_none()
    }

    /// Returns conditions of the option `deny`.
    pub(crate) fn denied(&self) -> Vec<String> {
        let when = |condition: &str| inline([("when", text(condition))]);
        let subject = self
            .subject
            .as_ref()
            .map(|pattern| when(&format!("!(client.tls.subject ?? \"\").matches({})", quoted(pattern))));
        let page = self.page.as_ref().map(|_| when(WITHOUT));
        page.into_iter().chain(subject).collect()
    }

    /// Returns tables of the option `request_headers`.
    pub(crate) fn fields(&self) -> Vec<String> {
        let told =
            [("ssl-client-subject-dn", text("$tls.subject")), ("ssl-client-issuer-dn", text("$tls.issuer"))];
        let verified = |word| ("ssl-client-verify", text(word));
        let set = |fields: Vec<(&str, String)>| ("set", inline(fields));
        if self.is_required {
            let fields = told.into_iter().chain([verified("SUCCESS")]).collect();
            return vec![inline([set(fields)])];
        }
        let fields = told.into_iter().chain([verified("NONE")]).collect();
        let when = ("when", text(&format!("!({WITHOUT})")));
        vec![inline([set(fields)]), inline([set(vec![verified("SUCCESS")]), when])]
    }

    /// Returns the option `client_cert`.
    pub(crate) fn certificate(&self) -> Option<String> {
        self.sends_certificate.then(|| text("pem"))
    }
}
