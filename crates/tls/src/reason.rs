//! Explains why the TLS handshake with a server failed, with advice: a table of the most frequent errors.

use rustls::pki_types::UnixTime;
use rustls::{AlertDescription, CertificateError, Error, PeerIncompatible};

use crate::certificate::written_time;

/// Explains a handshake error to the operator. In the text, "it" is the server; `table` is the table of the options
/// that it names.
pub fn reason(error: &Error, table: &str) -> String {
    match error {
        Error::InvalidCertificate(error) => of_certificate(error, table),
        Error::AlertReceived(alert) => of_alert(*alert, table),
        Error::InvalidMessage(_) => {
            "it does not speak TLS on this port; write http:// in its URL, or the port that does".to_owned()
        }
        Error::PeerIncompatible(incompatible) => of_incompatible(incompatible),
        Error::NoApplicationProtocol => NO_PROTOCOL.to_owned(),
        Error::PeerMisbehaved(how) => format!("it breaks the rules of TLS: {}", words(&format!("{how:?}"))),
        other => other.to_string(),
    }
}

/// Explains a handshake error to the operator. In the text, "it" is the client.
pub fn reason_of_client(error: &Error) -> String {
    match error {
        Error::NoCertificatesPresented => "it has no certificate, and one is required".to_owned(),
        Error::InvalidCertificate(error) => match error {
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                "its certificate is signed by none of the CAs that are trusted for clients".to_owned()
            }
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "its certificate has expired".to_owned()
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                "its certificate is not valid yet".to_owned()
            }
            CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
                "its certificate is not for clients".to_owned()
            }
            CertificateError::Revoked => "its certificate is revoked".to_owned(),
            CertificateError::UnknownRevocationStatus => {
                "there is no revocation list of the CA that signed its certificate, or an intermediate one; add it \
                 to crls"
                    .to_owned()
            }
            CertificateError::ExpiredRevocationList
            | CertificateError::ExpiredRevocationListContext { .. } => {
                "the revocation list of its CA was to be replaced by now; renew it".to_owned()
            }
            other => format!("its certificate is not valid: {other}"),
        },
        Error::AlertReceived(
            AlertDescription::UnknownCA
            | AlertDescription::BadCertificate
            | AlertDescription::CertificateUnknown
            | AlertDescription::CertificateExpired
            | AlertDescription::DecryptError,
        ) => "it does not accept the certificate that it was shown".to_owned(),
        Error::NoApplicationProtocol => "it speaks none of the protocols of this listener (ALPN)".to_owned(),
        Error::InvalidMessage(_) => "what it sends is no TLS".to_owned(),
        // The certificate is selected by name.
        Error::General(_) => "there is no certificate for the name that it asks for".to_owned(),
        other => reason(other, "tls"),
    }
}

/// The part of a handshake that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HandshakeFault {
    /// The peer's certificate is missing or not valid.
    Certificate,
    /// The peer rejected the handshake with an alert.
    Alert,
    /// The two sides have no application protocol in common.
    Protocol,
    Other,
}

impl HandshakeFault {
    pub fn from_error(error: &Error) -> Self {
        match error {
            Error::NoCertificatesPresented | Error::InvalidCertificate(_) => Self::Certificate,
            Error::NoApplicationProtocol | Error::AlertReceived(AlertDescription::NoApplicationProtocol) => {
                Self::Protocol
            }
            Error::AlertReceived(_) => Self::Alert,
            _ => Self::Other,
        }
    }

    /// Classifies an alert that this side has sent (RFC 8446 §6.2).
    pub fn of_sent(alert: AlertDescription) -> Self {
        match alert {
            AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnknownCA
            | AlertDescription::DecryptError
            | AlertDescription::CertificateRequired => Self::Certificate,
            AlertDescription::NoApplicationProtocol => Self::Protocol,
            _ => Self::Other,
        }
    }
}

const NO_PROTOCOL: &str = "it does not speak the configured protocol; change protocol, or the server";
const NO_VERSION: &str = "it speaks neither TLS 1.2 nor TLS 1.3; older versions are not safe";
const NO_CIPHER: &str = "it has no cipher, group or signature in common with us; expected ECDHE with AES-GCM or \
                         ChaCha20-Poly1305";
const NO_PURPOSE: &str = "its certificate is not for servers; expected the extended key usage serverAuth";
const EXPIRED: &str = "its certificate has expired; it has to be renewed";
const NOT_YET: &str = "its certificate is not valid yet; is the clock of this machine right?";

fn of_certificate(error: &CertificateError, table: &str) -> String {
    let told = match error {
        CertificateError::UnknownIssuer => {
            return format!(
                "no trusted CA has signed its certificate; name the file of its CA in {table}.ca"
            );
        }
        CertificateError::NotValidForNameContext { expected, presented } if !presented.is_empty() => {
            let presented: Vec<&str> = presented.iter().map(|name| bare(name)).collect();
            let (expected, presented) = (expected.to_str(), presented.join(", "));
            return format!(
                "its certificate is not for {expected} but for {presented}; set {table}.name to that"
            );
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            return format!("its certificate is for another name; set {table}.name to one that it has");
        }
        CertificateError::ExpiredContext { not_after, .. } => {
            return format!(
                "its certificate has expired: it was valid until {}; it has to be renewed",
                time(*not_after)
            );
        }
        CertificateError::Expired => EXPIRED,
        CertificateError::NotValidYetContext { not_before, .. } => {
            return format!(
                "its certificate is not valid before {}; is the clock of this machine right?",
                time(*not_before)
            );
        }
        CertificateError::NotValidYet => NOT_YET,
        CertificateError::BadSignature => {
            "its certificate is not signed by the CA that it names, or its key is another; has one of them been renewed \
             without the other?"
        }
        CertificateError::UnsupportedSignatureAlgorithmContext { .. }
        // A signature that fits none of the roots.
        | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
            return format!(
                "no trusted CA has signed its certificate, or with an algorithm that is not accepted; name \
                 the file of its CA in {table}.ca"
            );
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => NO_PURPOSE,
        CertificateError::Revoked => "its certificate is revoked; it has to be replaced",
        CertificateError::BadEncoding => "its certificate can't be understood",
        // Errors of other libraries have no types that are known here.
        CertificateError::Other(other) if other.to_string().contains("CaUsedAsEndEntity") => {
            "its certificate is that of a CA, which is not for servers; expected one with basicConstraints CA:FALSE, \
             signed by that CA"
        }
        other => return format!("its certificate is not valid: {}", words(&format!("{other:?}"))),
    };
    told.to_owned()
}

fn of_alert(alert: AlertDescription, table: &str) -> String {
    let told = match alert {
        AlertDescription::HandshakeFailure => {
            return format!(
                "it refuses what we offer, TLS 1.3 and TLS 1.2 with ECDHE; or it wants a client certificate: \
                 {table}.cert and {table}.key"
            );
        }
        AlertDescription::ProtocolVersion => NO_VERSION,
        AlertDescription::CertificateRequired => {
            return format!("it wants a client certificate; name one in {table}.cert and {table}.key");
        }
        AlertDescription::BadCertificate
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::CertificateRevoked
        | AlertDescription::CertificateExpired
        | AlertDescription::CertificateUnknown
        | AlertDescription::UnknownCA
        | AlertDescription::AccessDenied => {
            return format!(
                "it refuses our client certificate (alert {}); is {table}.cert one that it accepts?",
                u8::from(alert)
            );
        }
        AlertDescription::UnrecognisedName => {
            return format!(
                "it has no certificate for the name that it is asked for; set {table}.name to one that it knows"
            );
        }
        AlertDescription::NoApplicationProtocol => NO_PROTOCOL,
        other => {
            return format!("it gave up with alert {} ({})", u8::from(other), words(&format!("{other:?}")));
        }
    };
    told.to_owned()
}

fn of_incompatible(incompatible: &PeerIncompatible) -> String {
    match incompatible {
        PeerIncompatible::ServerDoesNotSupportTls12Or13
        | PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig => NO_VERSION.to_owned(),
        PeerIncompatible::NoCipherSuitesInCommon
        | PeerIncompatible::NoKxGroupsInCommon
        | PeerIncompatible::NoSignatureSchemesInCommon => NO_CIPHER.to_owned(),
        other => format!("it cannot be agreed with: {}", words(&format!("{other:?}"))),
    }
}

/// The name of a rustls variant, as words and without its content: `BadMaxFragmentSize` is `bad max fragment size`.
fn words(variant: &str) -> String {
    let name = variant.split(|character: char| !character.is_alphanumeric()).next().unwrap_or_default();
    let mut words = String::with_capacity(name.len() + 8);
    let mut is_after_small = false;
    for character in name.chars() {
        if character.is_uppercase() && is_after_small {
            words.push(' ');
        }
        is_after_small = !character.is_uppercase();
        words.extend(character.to_lowercase());
    }
    words
}

fn time(time: UnixTime) -> String {
    written_time(i64::try_from(time.as_secs()).unwrap_or(i64::MAX))
}

/// The name in `DnsName("a.example")`.
fn bare(name: &str) -> &str {
    let inside = name.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')'));
    inside.unwrap_or(name).trim_matches('"')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequent_errors_have_a_remedy_and_no_type_names() {
        let certificate = Error::InvalidCertificate;
        let day = UnixTime::since_unix_epoch(std::time::Duration::from_secs(86_400));
        let named = |expected: &str, presented: &[&str]| {
            certificate(CertificateError::NotValidForNameContext {
                expected: expected.to_owned().try_into().unwrap(),
                presented: presented.iter().map(ToString::to_string).collect(),
            })
        };
        for (error, told) in [
            (certificate(CertificateError::UnknownIssuer), "tls.ca"),
            (
                named("a.example", &["DnsName(\"b.example\")", "IpAddress(127.0.0.1)"]),
                "not for a.example but for b.example, 127.0.0.1; set tls.name",
            ),
            (named("a.example", &[]), "set tls.name"),
            (
                certificate(CertificateError::ExpiredContext { time: day, not_after: day }),
                "until 1970-01-02 00:00:00 UTC",
            ),
            (
                certificate(CertificateError::NotValidYetContext { time: day, not_before: day }),
                "before 1970-01-02 00:00:00 UTC",
            ),
            (certificate(CertificateError::InvalidPurpose), "serverAuth"),
            (Error::AlertReceived(AlertDescription::CertificateRequired), "tls.key"),
            (Error::AlertReceived(AlertDescription::UnknownCA), "refuses our client certificate (alert 48)"),
            (Error::AlertReceived(AlertDescription::InternalError), "alert 80"),
            (Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType), "http://"),
            (Error::PeerIncompatible(PeerIncompatible::ServerDoesNotSupportTls12Or13), "TLS 1.2"),
            (Error::PeerIncompatible(PeerIncompatible::NoCipherSuitesInCommon), "ECDHE"),
            (Error::NoApplicationProtocol, "change protocol"),
        ] {
            let of_peers = reason(&error, "cache.peers");
            assert!(of_peers.contains(&told.replace("tls.", "cache.peers.")), "{error:?}: {of_peers}");
            let reason = reason(&error, "tls");
            assert!(reason.contains(told), "{error:?}: {reason}");
            assert!(!reason.contains("Context") && !reason.contains('{'), "{reason}");
        }
    }
}
