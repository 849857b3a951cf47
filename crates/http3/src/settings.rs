//! Settings (RFC 9114 §7.2.4, RFC 9204 §5, RFC 9220 §3, RFC 9297 §2.1.1).

use crate::connection::{H3Broken, H3Role};
use crate::{rules, varint};

/// Limits and features that one end announces to the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct H3Settings {
    /// Size of a field section, counted as in RFC 9114 §4.2.2.
    pub(crate) section_bytes: u64,
    /// Size of the dynamic table, counted as in RFC 9204 §3.2.1.
    pub(crate) table_bytes: u64,
    pub(crate) blocked_streams: u64,
    /// Whether requests may ask for other protocols (extended CONNECT).
    pub(crate) takes_upgrades: bool,
}

impl Default for H3Settings {
    /// Values before the peer's settings have arrived.
    fn default() -> Self {
        Self { section_bytes: varint::MAX, table_bytes: 0, blocked_streams: 0, takes_upgrades: false }
    }
}

const TABLE_BYTES: u64 = 0x1;
const SECTION_BYTES: u64 = 0x6;
const BLOCKED_STREAMS: u64 = 0x7;
const ENABLE_CONNECT_PROTOCOL: u64 = 0x8;
const DATAGRAMS: u64 = 0x33;
/// A reserved setting, sent so that peers keep ignoring unknown ones (RFC 9114 §7.2.4.1).
const RESERVED: u64 = 0x1f * 0x11 + 0x21;
/// Settings that are read at most. Each may occur once.
// Each setting is compared with all before it, so their number needs a limit.
const SETTINGS_MAX: usize = 64;

impl H3Settings {
    pub(crate) fn parse(payload: &[u8]) -> Result<Self, H3Broken> {
        let mut settings = Self::default();
        let mut seen = Vec::new();
        let mut rest = payload;
        while !rest.is_empty() {
            let mut number = || -> Result<u64, H3Broken> {
                let (number, len) = varint::read(rest).ok_or(rules::WRONG_SIZE)?;
                rest = &rest[len..];
                Ok(number)
            };
            let (setting, value) = (number()?, number()?);
            // RFC 9114 §7.2.4: a repeated setting is an error.
            if seen.len() == SETTINGS_MAX || seen.contains(&setting) {
                return Err(rules::BAD_SETTING);
            }
            seen.push(setting);
            match setting {
                TABLE_BYTES => settings.table_bytes = value,
                SECTION_BYTES => settings.section_bytes = value,
                BLOCKED_STREAMS => settings.blocked_streams = value,
                ENABLE_CONNECT_PROTOCOL | DATAGRAMS if value > 1 => return Err(rules::BAD_SETTING),
                ENABLE_CONNECT_PROTOCOL => settings.takes_upgrades = value == 1,
                // RFC 9114 §7.2.4.1, §11.2.2: HTTP/2 settings that HTTP/3 does not have.
                0x0 | 0x2..=0x5 => return Err(rules::BAD_SETTING),
                _ => {}
            }
        }
        Ok(settings)
    }

    pub(crate) fn push(&self, role: H3Role, out: &mut Vec<u8>) {
        let mut set = |setting, value| {
            varint::push(out, setting);
            varint::push(out, value);
        };
        set(SECTION_BYTES, self.section_bytes);
        // RFC 9204 §5: without a table, both have their default, 0.
        if self.table_bytes > 0 {
            set(TABLE_BYTES, self.table_bytes);
            set(BLOCKED_STREAMS, self.blocked_streams);
        }
        if role == H3Role::Server {
            // RFC 9220 §3.
            set(ENABLE_CONNECT_PROTOCOL, self.takes_upgrades.into());
        }
        set(RESERVED, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_as_they_are_written() {
        let settings = H3Settings {
            section_bytes: 70_000,
            table_bytes: 4096,
            blocked_streams: 16,
            takes_upgrades: true,
        };
        let mut payload = Vec::new();
        settings.push(H3Role::Server, &mut payload);
        assert_eq!(H3Settings::parse(&payload), Ok(settings));
        assert_eq!(H3Settings::parse(b""), Ok(H3Settings::default()));
    }

    #[test]
    fn invalid_settings_are_refused() {
        let many: Vec<u8> = (0..=SETTINGS_MAX as u8).flat_map(|at| [0x40, 0x40 + at, 0]).collect();
        for (payload, broken) in [
            (&b"\x01"[..], rules::WRONG_SIZE),
            (b"\x01\x40", rules::WRONG_SIZE),
            (b"\x01\x00\x01\x00", rules::BAD_SETTING),
            (b"\x21\x00\x21\x01", rules::BAD_SETTING),
            (b"\x00\x00", rules::BAD_SETTING),
            (b"\x02\x00", rules::BAD_SETTING),
            (b"\x03\x00", rules::BAD_SETTING),
            (b"\x04\x00", rules::BAD_SETTING),
            (b"\x05\x00", rules::BAD_SETTING),
            (b"\x08\x02", rules::BAD_SETTING),
            (b"\x33\x02", rules::BAD_SETTING),
            (&many, rules::BAD_SETTING),
        ] {
            assert_eq!(H3Settings::parse(payload), Err(broken), "{payload:x?}");
        }
    }
}
