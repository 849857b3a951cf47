//! The identity of a client, from its certificate: for headers that servers read.

use std::fmt::Write;

use aws_lc_rs::digest::{SHA256, digest};
use rustls::pki_types::CertificateDer;
use x509_parser::asn1_rs::ToDer;
use x509_parser::parse_x509_certificate;
use x509_parser::x509::{AttributeTypeAndValue, RelativeDistinguishedName};

/// The longest subject that is passed on. A longer one is left out as a whole: a part of it could name somebody else.
const LONGEST_SUBJECT: usize = 2048;

/// A client whose certificate was verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// The certificate's subject (RFC 4514), in visible ASCII with inner spaces: `CN=alice,O=Example`.
    pub subject: String,
    /// SHA-256 fingerprint of the certificate: 64 hexadecimal digits in lower case.
    pub fingerprint: String,
}

impl Peer {
    /// Reads the identity from the client's own certificate, the first of its chain.
    pub fn of(certificate: &CertificateDer<'_>) -> Self {
        let mut fingerprint = String::with_capacity(64);
        write_hex(&mut fingerprint, digest(&SHA256, certificate).as_ref());
        Self { subject: subject(certificate).unwrap_or_default(), fingerprint }
    }
}

/// RFC 4514 §2.1: the last part of the name first.
fn subject(certificate: &CertificateDer<'_>) -> Option<String> {
    let (_, parsed) = parse_x509_certificate(certificate).ok()?;
    let names: Vec<&RelativeDistinguishedName<'_>> = parsed.subject().iter().collect();
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

/// RFC 4514 §3: the names of attributes that everybody has to know, and that of mail addresses.
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
        // RFC 4514 §2.4: what has no name, or is no string, is written as its encoding.
        _ => {
            text.push('#');
            write_hex(text, &attribute.attr_value().to_der_vec().unwrap_or_default());
        }
    }
}

/// RFC 4514 §2.4, with everything escaped that is not visible ASCII: the text becomes a part of a header.
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

    fn peer(parts: Vec<(DnType, DnValue)>) -> Peer {
        let mut parameters = CertificateParams::new(Vec::new()).unwrap();
        parameters.distinguished_name = DistinguishedName::new();
        for (kind, value) in parts {
            parameters.distinguished_name.push(kind, value);
        }
        let key = KeyPair::generate().unwrap();
        Peer::of(parameters.self_signed(&key).unwrap().der())
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
            // 1.3.6.1.4.1.311.20.2.3 has no name that everybody knows.
            (vec![text(DnType::from_oid(&[1, 3, 6, 1]), "ab")], "1.3.6.1=#0c026162"),
            (vec![text(name.clone(), &"x".repeat(LONGEST_SUBJECT))], ""),
        ] {
            assert_eq!(peer(parts).subject, subject);
        }
    }

    #[test]
    fn a_fingerprint_is_of_the_whole_certificate() {
        // SHA-256 of nothing; what can't be understood has no subject.
        let nothing = Peer::of(&CertificateDer::from(Vec::new()));
        let expected = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(nothing, Peer { subject: String::new(), fingerprint: expected.to_owned() });
    }

    proptest::proptest! {
        #[test]
        fn any_subject_fits_into_a_header(value in proptest::prelude::any::<String>()) {
            let subject = peer(vec![(DnType::CommonName, DnValue::Utf8String(value))]).subject;
            proptest::prop_assert!(subject.bytes().all(|byte| matches!(byte, b' '..=b'~')), "{:?}", subject);
        }
    }
}
