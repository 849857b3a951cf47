//! Descriptions of listeners: URLs, protocols and certificates, for messages and the status.

use api::certificates::{CertificateSource, CertificateStatus};
use config::{ListenAddress, Listener};

/// Names of a listener's certificates that a line has room for.
const NAMES_MAX: usize = 4;

/// The protocols of a listener's clients.
pub(crate) fn protocols(listener: &Listener) -> Vec<String> {
    let words: &[&str] = match () {
        () if listener.tcp.is_some() => &["TCP"],
        // All other connections are refused.
        () if !listener.passthrough.is_empty() && listener.tls.is_none() => &["TLS that is passed on"],
        () if listener.http3 => &["HTTP/1.1", "HTTP/2", "HTTP/3"],
        () if listener.http2 => &["HTTP/1.1", "HTTP/2"],
        () => &["HTTP/1.1"],
    };
    // HTTP/3 does not need HTTP/2.
    words.iter().filter(|word| listener.http2 || **word != "HTTP/2").map(|word| (*word).to_owned()).collect()
}

/// A listener's address as a URL; `address` has the port that the kernel selected.
pub(crate) fn url(listener: &Listener, address: &ListenAddress) -> String {
    let scheme = match (address, &listener.tcp, &listener.tls) {
        // It has its scheme.
        (ListenAddress::Unix(_), ..) => return address.to_string(),
        (_, Some(_), _) => "tcp",
        (_, None, Some(_)) => "https",
        (_, None, None) if !listener.passthrough.is_empty() => "tcp",
        (_, None, None) => "http",
    };
    format!("{scheme}://{address}")
}

/// A listener as the start announces it: `https://0.0.0.0:443 (HTTP/1.1, HTTP/2), certificate of example.com`.
pub(crate) fn describe(
    listener: &Listener,
    address: &ListenAddress,
    certificates: &[CertificateStatus],
) -> String {
    let mut text = format!("{} ({})", url(listener, address), protocols(listener).join(", "));
    let own = || certificates.iter().filter(|certificate| certificate.listener == listener.name);
    let names: Vec<&str> = own().flat_map(|certificate| &certificate.names).map(String::as_str).collect();
    if let Some(more) = names.len().checked_sub(NAMES_MAX).filter(|more| *more > 0) {
        text += &format!(", certificates of {} and {more} more", names[..NAMES_MAX].join(", "));
    } else if !names.is_empty() {
        text += &format!(", certificate of {}", names.join(", "));
    } else if listener.tls.is_some() {
        text += ", no certificate yet";
    }
    if own().any(|certificate| certificate.source == CertificateSource::SelfSigned) {
        text += ", self-signed";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_is_a_url_with_protocols_and_names() {
        let at = |address: &str| -> ListenAddress { address.parse().expect("an address") };
        let named = |names: &[&str], source| CertificateStatus {
            listener: "web".to_owned(),
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            issuer: String::new(),
            serial: String::new(),
            valid_from_seconds: 0,
            valid_until_seconds: 0,
            valid_until: String::new(),
            days_left: 9,
            source,
            file: None,
            renewal: None,
            problems: Vec::new(),
        };
        let plain = Listener::at(at("127.0.0.1:80"));
        let old = Listener { http2: false, ..plain.clone() };
        let bytes = Listener { tcp: route::Split::new([(0, "", 1)]), ..plain.clone() };
        let quic = Listener { http3: true, name: "web".to_owned(), ..plain.clone() };
        let file = CertificateSource::File;
        for (listener, address, certificates, expected) in [
            (&plain, "127.0.0.1:80", &[][..], "http://127.0.0.1:80 (HTTP/1.1, HTTP/2)"),
            (&plain, "*:80", &[], "http://*:80 (HTTP/1.1, HTTP/2)"),
            (&old, "[::1]:80", &[], "http://[::1]:80 (HTTP/1.1)"),
            (&bytes, "127.0.0.1:5432", &[], "tcp://127.0.0.1:5432 (TCP)"),
            (&plain, "unix:/run/web.sock", &[], "unix:/run/web.sock (HTTP/1.1, HTTP/2)"),
            (
                &quic,
                "0.0.0.0:443",
                &[named(&["a.example", "*.b.example"], file)],
                "http://0.0.0.0:443 (HTTP/1.1, HTTP/2, HTTP/3), certificate of a.example, *.b.example",
            ),
            (
                &quic,
                "0.0.0.0:443",
                &[named(&["a", "b", "c"], file), named(&["d", "e"], CertificateSource::SelfSigned)],
                "http://0.0.0.0:443 (HTTP/1.1, HTTP/2, HTTP/3), certificates of a, b, c, d and 1 more, self-signed",
            ),
        ] {
            assert_eq!(describe(listener, &at(address), certificates), expected);
        }
    }
}
