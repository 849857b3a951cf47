//! The field that describes the client of a request, when an instance passes the request on to the instance that owns
//! its key.

use std::net::IpAddr;

/// The name of the field, which is used only between instances.
pub const PEER_FIELD: &str = "vanward-peer";

/// The client of a passed-on request, and the request's destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerRequest {
    /// The number of the route and upstream.
    pub number: u128,
    /// The client, as that instance sees its connection.
    pub address: IpAddr,
    pub port: u16,
    pub is_secure: bool,
}

impl PeerRequest {
    /// Appends the field with CRLF.
    pub fn write(&self, out: &mut Vec<u8>) {
        let Self { number, address, port, is_secure } = *self;
        let scheme = if is_secure { "https" } else { "http" };
        out.extend_from_slice(
            format!("{PEER_FIELD}: {number:032x} {address} {port} {scheme}\r\n").as_bytes(),
        );
    }

    /// Reads the value of the field. `None` if it is not in the form that `write` writes.
    pub fn parse(value: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(value).ok()?;
        let mut words = text.split(' ');
        let number = words.next().filter(|digits| digits.len() == 32)?;
        if !number.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
            return None;
        }
        let number = u128::from_str_radix(number, 16).ok()?;
        let address = words.next()?.parse().ok()?;
        let port = words.next()?;
        if !port.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let port = port.parse().ok()?;
        let is_secure = match words.next()? {
            "https" => true,
            "http" => false,
            _ => return None,
        };
        words.next().is_none().then_some(Self { number, address, port, is_secure })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reading_inverts_writing() {
        for address in ["192.0.2.1", "2001:db8::1"] {
            let address = address.parse().unwrap();
            let request = PeerRequest { number: u128::MAX - 1, address, port: 65535, is_secure: true };
            let mut out = Vec::new();
            request.write(&mut out);
            let value = out.strip_prefix(b"vanward-peer: ").unwrap().strip_suffix(b"\r\n").unwrap();
            assert_eq!(PeerRequest::parse(value), Some(request));
        }
    }

    #[test]
    fn anything_else_is_not() {
        let number = "0123456789abcdef0123456789abcdef";
        assert!(PeerRequest::parse(format!("{number} 192.0.2.1 80 http").as_bytes()).is_some());
        for value in [
            String::new(),
            "1 192.0.2.1 80 http".to_owned(),
            number.to_owned(),
            format!("{} 192.0.2.1 80 http", number.to_ascii_uppercase()),
            format!("+{} 192.0.2.1 80 http", &number[1..]),
            format!("{number} 192.0.2 80 http"),
            format!("{number} 192.0.2.1 +80 http"),
            format!("{number} 192.0.2.1 65536 http"),
            format!("{number} 192.0.2.1 80 ftp"),
            format!("{number} 192.0.2.1 80 http more"),
            format!("{number}  192.0.2.1 80 http"),
        ] {
            assert_eq!(PeerRequest::parse(value.as_bytes()), None, "{value:?}");
        }
    }
}
