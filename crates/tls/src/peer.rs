//! Who a client is, by the certificate that it showed: for headers that servers read.

use std::fmt::Write;

use aws_lc_rs::digest::{SHA256, digest};
use rustls::pki_types::CertificateDer;
use x509_parser::parse_x509_certificate;
use x509_parser::x509::{AttributeTypeAndValue, RelativeDistinguishedName};

/// The longest subject that is passed on. A longer one is left out as a whole: a part of it could name somebody else.
const LONGEST_SUBJECT: usize = 2048;

/// A client whose certificate was verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// Its subject as in RFC 4514, visible ASCII and inner spaces only: `CN=alice,O=Example`.
    pub subject: String,
    /// SHA-256 of the certificate, 64 hexadecimal digits, lower case.
    pub fingerprint: String,
}

impl Peer {
    /// From the first certificate of the client's chain.
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
            let header = attribute.attr_value();
            write_hex(text, header.data);
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
