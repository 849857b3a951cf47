//! Keys of remembered decisions about clients: the parts of a request that a decision depends on.

use std::net::IpAddr;

use crate::network::network_of;
use crate::request::{FieldLookup, RequestParts, parameters};

/// A part of a request that a decision depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuthKeyPart {
    /// The client's network: the first bits of its address.
    ClientNetwork {
        bits_v4: u8,
        bits_v6: u8,
    },
    /// The values of a header field, from all its lines.
    Header(String),
    Cookie(String),
    /// The values of all query parameters with this name, as sent.
    Query(String),
    Method,
    /// Ignoring case.
    Host,
    /// As sent.
    Path,
}

impl AuthKeyPart {
    /// Whether the part can distinguish clients.
    pub fn is_of_client(&self) -> bool {
        !matches!(self, Self::Method | Self::Host | Self::Path)
    }
}

/// Appends the key of a request: equal keys mean that all parts are equal. Returns whether any part identifies the
/// client; decisions about requests without one must not be remembered.
pub fn write_auth_key<F: FieldLookup + ?Sized>(
    parts: &[AuthKeyPart],
    request: &RequestParts<'_, F>,
    out: &mut Vec<u8>,
) -> bool {
    let mut names_client = false;
    for part in parts {
        let start = out.len();
        let mut put = |value: &[u8]| {
            // With its length, so that `a`, `bc` and `ab`, `c` are two keys.
            out.extend_from_slice(&(value.len() as u32).to_le_bytes());
            out.extend_from_slice(value);
        };
        match part {
            AuthKeyPart::ClientNetwork { bits_v4, bits_v6 } => {
                match network_of(request.client, *bits_v4, *bits_v6) {
                    IpAddr::V4(address) => put(&address.octets()),
                    IpAddr::V6(address) => put(&address.octets()),
                }
            }
            AuthKeyPart::Header(name) => request.fields.values(name.as_bytes()).for_each(&mut put),
            AuthKeyPart::Cookie(name) => {
                // All cookies with this name, because it is unknown which one the server uses.
                let lines =
                    request.fields.values(b"cookie").flat_map(|value| value.split(|&byte| byte == b';'));
                let pairs = lines.map(<[u8]>::trim_ascii);
                let has_name = |pair: &&[u8]| {
                    pair.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.first() == Some(&b'='))
                };
                pairs.filter(has_name).for_each(&mut put);
            }
            AuthKeyPart::Query(name) => {
                let all = parameters(request.query.unwrap_or_default());
                all.filter(|(known, _)| *known == name.as_bytes()).for_each(|(_, value)| put(value));
            }
            AuthKeyPart::Method => put(request.method),
            AuthKeyPart::Host => put(&crate::host::without_dot(request.host).to_ascii_lowercase()),
            AuthKeyPart::Path => put(request.path),
        }
        names_client |= part.is_of_client() && out.len() > start;
        // Marks the end: no value has this length.
        out.extend_from_slice(&u32::MAX.to_le_bytes());
    }
    names_client
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(parts: &[AuthKeyPart], fields: &[(&str, &str)], path: &str) -> (bool, Vec<u8>) {
        let request = RequestParts {
            listener: 0,
            host: b"A.example.".as_slice(),
            path: path.as_bytes(),
            query: Some(b"t=1&u=2&t=3"),
            method: b"GET",
            client: "192.0.2.7".parse().unwrap(),
            fields,
            conditions: &crate::NoConditions,
        };
        let mut out = Vec::new();
        (write_auth_key(parts, &request, &mut out), out)
    }

    #[test]
    fn a_key_is_of_all_parts_and_knows_whether_it_names_a_client() {
        let cookie = || AuthKeyPart::Cookie("id".to_owned());
        let header = || AuthKeyPart::Header("X-Token".to_owned());
        let one = [("cookie", "a=1; id=7"), ("x-token", "t")];
        let both = [cookie(), header()];
        assert!(key(&both, &one, "/").0);
        assert_eq!(key(&both, &one, "/"), key(&both, &one, "/other"));
        for other in [
            vec![("cookie", "id=8"), ("x-token", "t")],
            vec![("cookie", "id=7")],
            vec![("cookie", "id=7; id=8"), ("x-token", "t")],
            vec![("cookie", "id=7"), ("x-token", "t"), ("x-token", "u")],
            vec![("cookie", "idx=7"), ("x-token", "t")],
            vec![("x-token", "id=7t")],
        ] {
            assert_ne!(key(&both, &one, "/").1, key(&both, &other, "/").1, "{other:?}");
        }
        let nobody: [(&str, &str); 0] = [];
        assert!(!key(&both, &nobody, "/").0);
        assert!(!key(&[AuthKeyPart::Path, AuthKeyPart::Host, AuthKeyPart::Method], &one, "/").0);
        assert_ne!(key(&[AuthKeyPart::Path], &one, "/a").1, key(&[AuthKeyPart::Path], &one, "/b").1);
        assert!(key(&[AuthKeyPart::Query("t".to_owned())], &nobody, "/").0);
        assert!(!key(&[AuthKeyPart::Query("x".to_owned())], &nobody, "/").0);
        assert!(key(&[AuthKeyPart::ClientNetwork { bits_v4: 24, bits_v6: 64 }], &nobody, "/").0);
    }
}
