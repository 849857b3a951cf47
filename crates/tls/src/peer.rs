//! The identity of a client, from its certificate: for headers that servers read.

use std::fmt::Write;

use aws_lc_rs::digest::{SHA256, digest};
use rustls::pki_types::CertificateDer;
use x509_parser::asn1_rs::ToDer;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::parse_x509_certificate;
use x509_parser::x509::{AttributeTypeAndValue, RelativeDistinguishedName, X509Name};

use crate::certificate::address;

/// The longest subject, issuer, or list of names that is passed on. A longer one is omitted completely, because a part
/// of it could name another client.
const LONGEST_SUBJECT: usize = 2048;

/// A client whose certificate was verified.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct VerifiedClient {
    /// The certificate's subject (RFC 4514), in visible ASCII with inner spaces: `CN=alice,O=Example`.
    pub subject: String,
    /// The certificate's issuer, in the same form.
    pub issuer: String,
    /// In hexadecimal digits in lower case.
    pub serial: String,
    /// The certificate's alternative names: `DNS:a.example,email:a@example.com,URI:spiffe://a,IP:192.0.2.1`. Other
    /// types are omitted, and commas inside of a name are escaped as in a subject.
    pub names: String,
    /// SHA-256 fingerprint of the certificate: 64 hexadecimal digits in lower case.
    pub fingerprint: String,
}

impl VerifiedClient {
    /// Reads the identity from the client's own certificate, the first of its chain.
    pub fn from_certificate(certificate: &CertificateDer<'_>) -> Self {
        let mut fingerprint = String::with_capacity(64);
        write_hex(&mut fingerprint, digest(&SHA256, certificate).as_ref());
        let Ok((_, parsed)) = parse_x509_certificate(certificate) else {
            return Self { fingerprint, ..Self::default() };
        };
        Self {
            subject: distinguished_name(parsed.subject()).unwrap_or_default(),
            issuer: distinguished_name(parsed.issuer()).unwrap_or_default(),
            serial: serial(parsed.raw_serial()),
            names: names(&parsed).unwrap_or_default(),
            fingerprint,
        }
    }
}

impl VerifiedClient {
    /// Whether the certificate has this alternative name (a host or an address).
    pub fn is_named(&self, name: &str) -> bool {
        let is_it = |known: &str| {
            let of_host = known.strip_prefix("DNS:").is_some_and(|known| known.eq_ignore_ascii_case(name));
            of_host || known.strip_prefix("IP:") == Some(name)
        };
        let (mut from, mut is_escaped) = (0, false);
        for (at, byte) in self.names.bytes().enumerate() {
            // A comma inside of a name is escaped.
            if byte == b',' && !is_escaped {
                if is_it(&self.names[from..at]) {
                    return true;
                }
                from = at + 1;
            }
            is_escaped = byte == b'\\' && !is_escaped;
        }
        is_it(&self.names[from..])
    }
}

/// RFC 5280 §4.1.2.2: a positive number of up to 20 bytes, without leading zeros.
fn serial(bytes: &[u8]) -> String {
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    let mut text = String::with_capacity(40);
    write_hex(&mut text, &bytes[zeros.min(bytes.len().saturating_sub(1))..]);
    text
}

/// RFC 5280 §4.2.1.6.
fn names(certificate: &X509Certificate<'_>) -> Option<String> {
    let alternatives = certificate.subject_alternative_name().ok()??;
    let mut text = String::new();
    for name in &alternatives.value.general_names {
        let (kind, value) = match name {
            GeneralName::DNSName(name) => ("DNS:", (*name).to_owned()),
            GeneralName::RFC822Name(name) => ("email:", (*name).to_owned()),
            GeneralName::URI(uri) => ("URI:", (*uri).to_owned()),
            GeneralName::IPAddress(bytes) => ("IP:", address(bytes)?.to_string()),
            _ => continue,
        };
        if !text.is_empty() {
            text.push(',');
        }
        text.push_str(kind);
        write_value(&mut text, &value);
        if text.len() > LONGEST_SUBJECT {
            return None;
        }
    }
    Some(text)
}

/// RFC 4514 §2.1: the last part of the name comes first.
fn distinguished_name(name: &X509Name<'_>) -> Option<String> {
    let names: Vec<&RelativeDistinguishedName<'_>> = name.iter().collect();
    let mut text = String::new();
    for name in names.into_iter().rev() {
        // RFC 4514 §2.2.
        let mut separator = if text.is_empty() { "" } else { "," };
        for attribute in name.iter() {
            text.push_str(separator);
            write_attribute(&mut text, attribute);
            separator = "+";
        }
        if text.len() > LONGEST_SUBJECT {
            return None;
        }
    }
    Some(text)
}

/// RFC 4514 §3: the attribute names that every implementation must know, and that of mail addresses.
const NAMES: &[(&str, &str)] = &[
    ("2.5.4.3", "CN"),
    ("2.5.4.7", "L"),
    ("2.5.4.8", "ST"),
    ("2.5.4.10", "O"),
    ("2.5.4.11", "OU"),
    ("2.5.4.6", "C"),
    ("2.5.4.9", "STREET"),
    ("0.9.2342.19200300.100.1.25", "DC"),
    ("0.9.2342.19200300.100.1.1", "UID"),
    ("1.2.840.113549.1.9.1", "emailAddress"),
];

fn write_attribute(text: &mut String, attribute: &AttributeTypeAndValue<'_>) {
    let identifier = attribute.attr_type().to_id_string();
    let name = NAMES.iter().find(|(known, _)| *known == identifier).map(|(_, name)| *name);
    text.push_str(name.unwrap_or(&identifier));
    text.push('=');
    match attribute.as_str() {
        Ok(value) if name.is_some() => write_value(text, value),
        // RFC 4514 §2.4: an attribute without a name, or a value that is no string, is written in its encoding.
        _ => {
            text.push('#');
            write_hex(text, &attribute.attr_value().to_der_vec().unwrap_or_default());
        }
    }
}

/// RFC 4514 §2.4. Escapes everything except visible ASCII, because the text becomes a part of a header.
fn write_value(text: &mut String, value: &str) {
    let last = value.len().saturating_sub(1);
    for (index, byte) in value.bytes().enumerate() {
        match byte {
            b'"' | b'+' | b',' | b';' | b'<' | b'>' | b'\\' => text.extend(['\\', char::from(byte)]),
            b'#' if index == 0 => text.push_str("\\#"),
            b' ' if index == 0 || index == last => text.push_str("\\ "),
            b' '..=b'~' => text.push(char::from(byte)),
            other => {
                text.push('\\');
                write_hex(text, &[other]);
            }
        }
    }
}

fn write_hex(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DistinguishedName, DnType, DnValue, KeyPair};

    fn peer(parts: Vec<(DnType, DnValue)>) -> VerifiedClient {
        let mut parameters = CertificateParams::new(Vec::new()).unwrap();
        parameters.distinguished_name = DistinguishedName::new();
        for (kind, value) in parts {
            parameters.distinguished_name.push(kind, value);
        }
        let key = KeyPair::generate().unwrap();
        VerifiedClient::from_certificate(parameters.self_signed(&key).unwrap().der())
    }

    #[test]
    fn subjects_are_as_in_rfc_4514_and_fit_into_a_header() {
        let text = |kind: DnType, value: &str| (kind, DnValue::Utf8String(value.to_owned()));
        let name = DnType::CommonName;
        for (parts, subject) in [
            (vec![], ""),
            (
                vec![
                    text(DnType::CountryName, "NL"),
                    text(DnType::OrganizationName, "Example, Inc."),
                    text(name.clone(), "alice"),
                ],
                "CN=alice,O=Example\\, Inc.,C=NL",
            ),
            (vec![text(name.clone(), "a+b\"c\\d<e>f;g=h")], "CN=a\\+b\\\"c\\\\d\\<e\\>f\\;g=h"),
            (vec![text(name.clone(), " #a ")], "CN=\\ #a\\ "),
            (vec![text(name.clone(), "#a")], "CN=\\#a"),
            (vec![text(name.clone(), "\r\nX-Admin: 1\0\u{7f}")], "CN=\\0d\\0aX-Admin: 1\\00\\7f"),
            (vec![text(name.clone(), "Lu\u{10d}i\u{107}")], "CN=Lu\\c4\\8di\\c4\\87"),
            // 1.3.6.1.4.1.311.20.2.3 has no well-known name.
            (vec![text(DnType::from_oid(&[1, 3, 6, 1]), "ab")], "1.3.6.1=#0c026162"),
            (vec![text(name.clone(), &"x".repeat(LONGEST_SUBJECT))], ""),
        ] {
            assert_eq!(peer(parts).subject, subject);
        }
    }

    #[test]
    fn serials_and_names_are_those_of_the_certificate() {
        use rcgen::SanType;
        let text = |name: &str| name.try_into().unwrap();
        for (serial, names, expected) in [
            (&[0x0a, 0xff][..], vec![], ("0aff", "")),
            (
                &[0xff],
                vec![
                    SanType::DnsName(text("a.example")),
                    SanType::Rfc822Name(text("a@example.com")),
                    SanType::URI(text("spiffe://example.com/a,DNS:root")),
                    SanType::IpAddress("192.0.2.1".parse().unwrap()),
                    SanType::IpAddress("2001:db8::1".parse().unwrap()),
                    SanType::OtherName((vec![1, 3, 6, 1], "x".into())),
                ],
                (
                    "ff",
                    "DNS:a.example,email:a@example.com,URI:spiffe://example.com/a\\,DNS:root,IP:192.0.2.1,\
                     IP:2001:db8::1",
                ),
            ),
            (&[0], vec![SanType::DnsName(text(&"x".repeat(LONGEST_SUBJECT)))], ("00", "")),
        ] {
            let mut parameters = CertificateParams::new(Vec::new()).unwrap();
            parameters.subject_alt_names = names;
            parameters.serial_number = Some(rcgen::SerialNumber::from_slice(serial));
            parameters.distinguished_name = DistinguishedName::new();
            parameters.distinguished_name.push(DnType::CommonName, "issuer");
            let key = KeyPair::generate().unwrap();
            let peer = VerifiedClient::from_certificate(parameters.self_signed(&key).unwrap().der());
            assert_eq!((peer.serial.as_str(), peer.names.as_str(), peer.issuer.as_str()), {
                let (serial, names) = expected;
                (serial, names, "CN=issuer")
            });
        }
    }

    #[test]
    fn a_name_is_a_whole_one() {
        let names = "DNS:a.example,URI:spiffe://x\\,DNS:root,IP:192.0.2.1,email:b@example.com\\\\,DNS:last";
        let peer = VerifiedClient { names: names.to_owned(), ..VerifiedClient::default() };
        for (name, expected) in [
            ("a.example", true),
            ("A.EXAMPLE", true),
            ("192.0.2.1", true),
            ("last", true),
            ("root", false),
            ("example", false),
            ("b@example.com", false),
            ("", false),
        ] {
            assert_eq!(peer.is_named(name), expected, "{name}");
        }
    }

    #[test]
    fn a_fingerprint_is_of_the_whole_certificate() {
        // SHA-256 of nothing; an invalid certificate has no subject.
        let nothing = VerifiedClient::from_certificate(&CertificateDer::from(Vec::new()));
        let expected = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(nothing, VerifiedClient { fingerprint: expected.to_owned(), ..VerifiedClient::default() });
    }

    proptest::proptest! {
        #[test]
        fn any_subject_fits_into_a_header(value in proptest::prelude::any::<String>()) {
            let subject = peer(vec![(DnType::CommonName, DnValue::Utf8String(value))]).subject;
            proptest::prop_assert!(subject.bytes().all(|byte| matches!(byte, b' '..=b'~')), "{:?}", subject);
        }
    }
}
