//! Keys for counting requests: the parts of a request that assign it to a group.

use std::hash::Hasher;
use std::net::IpAddr;
use std::sync::Arc;

use expression::{ExchangeStage, Expression};

use crate::form::FormReading;
use crate::network::network_of;
use crate::request::{FieldLookup, RequestParts, cookie, parameters};

/// The parts of a request that it is counted by. Without parts, all requests are counted together.
///
/// A missing part counts as a separate value: all requests without it are counted together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RateKey(pub Vec<RateKeyPart>);

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RateKeyPart {
    /// The client's network: the first bits of its address. An IPv6 client usually has at least 64 bits for itself.
    ClientNetwork {
        /// 32 counts each address separately.
        bits_v4: u8,
        /// Usually 64.
        bits_v6: u8,
    },
    /// The values of a header field, from all its lines.
    Header(String),
    Cookie(String),
    /// The value of the first query parameter with this name. Both are decoded.
    Argument(String),
    /// Ignoring case.
    Host,
    Listener,
    /// The authenticated user.
    User,
    /// A named expression. All requests without a value are counted together.
    Value(Arc<Expression>),
}

impl RateKey {
    /// Whether requests are counted by who the client is: by the user, or by a value that is known once the client is
    /// authenticated.
    pub fn has_user(&self) -> bool {
        self.0.iter().any(|part| match part {
            RateKeyPart::User => true,
            RateKeyPart::Value(value) => value.stage() > ExchangeStage::Request,
            _ => false,
        })
    }

    pub(super) fn hash<F: FieldLookup + ?Sized>(
        &self,
        request: &RequestParts<'_, F>,
        user: &str,
        hasher: &mut impl Hasher,
    ) {
        for part in &self.0 {
            part.hash(request, user, hasher);
        }
    }
}

impl RateKeyPart {
    fn hash<F: FieldLookup + ?Sized>(
        &self,
        request: &RequestParts<'_, F>,
        user: &str,
        hasher: &mut impl Hasher,
    ) {
        match self {
            Self::ClientNetwork { bits_v4, bits_v6 } => {
                Self::hash_client(request.client, (*bits_v4, *bits_v6), hasher);
            }
            Self::Header(name) => {
                request.fields.values(name.as_bytes()).for_each(|value| put(Some(value), hasher));
                put(None, hasher);
            }
            Self::Cookie(name) => put(cookie(request.fields, name.as_bytes()), hasher),
            Self::Argument(name) => {
                // Decoded, so that there is one key for all spellings of a value.
                let mut all = parameters(request.query.unwrap_or_default());
                let same = |written: &[u8]| FormReading::from_written(written).eq(name.bytes());
                let found = all.find(|(written, _)| same(written)).map(|(_, value)| value);
                match found.filter(|value| !FormReading::is_as_it_stands(value)) {
                    None => put(found, hasher),
                    Some(value) => {
                        hasher.write_usize(FormReading::from_written(value).count());
                        FormReading::from_written(value).for_each(|byte| hasher.write_u8(byte));
                    }
                }
            }
            Self::Host => {
                let host = crate::host::without_dot(request.host);
                host.iter().for_each(|byte| hasher.write_u8(byte.to_ascii_lowercase()));
                hasher.write_usize(host.len());
            }
            Self::Listener => hasher.write_usize(request.listener),
            Self::User => put(Some(user.as_bytes()), hasher),
            Self::Value(value) => {
                let mut is_absent = true;
                request.conditions.value(value, request.path, &mut |text| {
                    is_absent = false;
                    put(Some(text), hasher);
                });
                if is_absent {
                    put(None, hasher);
                }
            }
        }
    }

    /// Hashes the first bits of an address.
    pub(super) fn hash_client(client: IpAddr, (bits_v4, bits_v6): (u8, u8), hasher: &mut impl Hasher) {
        match network_of(client, bits_v4, bits_v6) {
            IpAddr::V4(address) => put(Some(&address.octets()), hasher),
            IpAddr::V6(address) => put(Some(&address.octets()), hasher),
        }
    }
}

/// With its length, so that `a`, `bc` and `ab`, `c` are two keys. A missing value differs from an empty one.
fn put(value: Option<&[u8]>, hasher: &mut impl Hasher) {
    match value {
        None => hasher.write_usize(usize::MAX),
        Some(value) => {
            hasher.write_usize(value.len());
            hasher.write(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use siphasher::sip::SipHasher13;

    use super::*;

    #[test]
    fn requests_are_distinguished_by_the_parts() {
        let header = |name: &str| RateKeyPart::Header(name.to_owned());
        let network = RateKeyPart::ClientNetwork { bits_v4: 32, bits_v6: 64 };
        let none: &[(&str, &str)] = &[];
        let base = ("192.0.2.1", "a.example", "k=1", none);
        for (key, one, other, is_same) in [
            (vec![], base, ("192.0.2.2", "b", "", none), true),
            (vec![network.clone()], base, ("192.0.2.2", "a.example", "k=1", none), false),
            (vec![network.clone()], base, ("::ffff:192.0.2.1", "b", "", none), true),
            (vec![network.clone()], ("2001:db8::1", "", "", none), ("2001:db8::2", "", "", none), true),
            (vec![network.clone()], ("2001:db8::1", "", "", none), ("2001:db8:0:1::1", "", "", none), false),
            (vec![RateKeyPart::Host], base, ("::1", "A.Example.", "", none), true),
            (vec![RateKeyPart::Host], base, ("192.0.2.1", "b.example", "k=1", none), false),
            (vec![RateKeyPart::Argument("k".into())], base, ("::1", "", "j=1&k=1&k=2", none), true),
            (vec![RateKeyPart::Argument("k".into())], base, ("::1", "", "k=2", none), false),
            (vec![RateKeyPart::Argument("k".into())], base, ("::1", "", "%6b=%31&k=2", none), true),
            (
                vec![RateKeyPart::Argument("k".into())],
                ("::1", "", "k=a+b%7E", none),
                ("::1", "", "k=%61%20b~", none),
                true,
            ),
            (vec![RateKeyPart::Argument("k".into())], ("::1", "", "", none), ("::1", "", "k=", none), false),
            (
                vec![header("X-Key")],
                ("::1", "", "", &[("x-key", "a")]),
                ("::1", "", "", &[("X-KEY", "a")]),
                true,
            ),
            (
                vec![header("X-Key")],
                ("::1", "", "", &[("x-key", "a")]),
                ("::1", "", "", &[("X-Key", "A")]),
                false,
            ),
            (vec![header("X-Key")], ("::1", "", "", &[("x-key", "")]), ("::1", "", "", none), false),
            (
                vec![header("a"), header("b")],
                ("::1", "", "", &[("a", "x"), ("a", "y")]),
                ("::1", "", "", &[("a", "x"), ("b", "y")]),
                false,
            ),
            (
                vec![RateKeyPart::Cookie("c".into())],
                ("::1", "", "", &[("cookie", "c=1; d=2")]),
                ("::1", "", "", &[("Cookie", "d=3; c=1")]),
                true,
            ),
        ] {
            let key = RateKey(key);
            let [one, other] = [one, other].map(|(client, host, query, fields)| {
                let request = RequestParts {
                    listener: 0,
                    host: host.as_bytes(),
                    path: b"/",
                    query: Some(query.as_bytes()),
                    method: b"GET",
                    client: client.parse().unwrap(),
                    fields,
                    conditions: &crate::NoConditions,
                };
                let mut hasher = SipHasher13::new();
                key.hash(&request, "", &mut hasher);
                hasher.finish()
            });
            assert_eq!(one == other, is_same, "{key:?}");
        }
    }

    #[test]
    fn users_are_distinguished() {
        let key = RateKey(vec![RateKeyPart::User]);
        assert!(key.has_user() && !RateKey(vec![RateKeyPart::Host]).has_user());
        let request = RequestParts {
            listener: 0,
            host: b"a",
            path: b"/",
            query: None,
            method: b"GET",
            client: [127, 0, 0, 1].into(),
            fields: &crate::request::NoFields,
            conditions: &crate::NoConditions,
        };
        let hash = |user| {
            let mut hasher = SipHasher13::new();
            key.hash(&request, user, &mut hasher);
            hasher.finish()
        };
        assert_ne!(hash("ada"), hash("bob"));
        assert_eq!(hash("ada"), hash("ada"));
    }
}
