//! Settings (RFC 9114 §7.2.4, RFC 9204 §5, RFC 9220 §3, RFC 9297 §2.1.1).

use crate::connection::{Broken, Role};
use crate::{rules, varint};

/// What an end allows the other one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Settings {
    /// The most bytes of a field section, counted as in RFC 9114 §4.2.2.
    pub(crate) section_bytes: u64,
    /// The most bytes of the dynamic table, counted as in RFC 9204 §3.2.1.
    pub(crate) table_bytes: u64,
    pub(crate) blocked_streams: u64,
    /// Whether requests may ask for other protocols (extended CONNECT).
    pub(crate) takes_upgrades: bool,
}

impl Default for Settings {
    /// What holds before the peer's settings have arrived.
    fn default() -> Self {
        Self { section_bytes: varint::MAX, table_bytes: 0, blocked_streams: 0, takes_upgrades: false }
    }
}

const TABLE_BYTES: u64 = 0x1;
const SECTION_BYTES: u64 = 0x6;
const BLOCKED_STREAMS: u64 = 0x7;
const ENABLE_CONNECT_PROTOCOL: u64 = 0x8;
const DATAGRAMS: u64 = 0x33;
/// One of those that mean nothing, so that peers keep ignoring what they do not know (RFC 9114 §7.2.4.1).
const RESERVED: u64 = 0x1f * 0x11 + 0x21;
/// The most settings that are looked at; each of them may come once.
const SETTINGS_MAX: usize = 64;

impl Settings {
    /// Parses the payload of a SETTINGS frame.
    pub(crate) fn parse(payload: &[u8]) -> Result<Self, Broken> {
        let mut settings = Self::default();
        let mut seen = Vec::new();
        let mut rest = payload;
        while !rest.is_empty() {
            let mut number = || -> Result<u64, Broken> {
                let (number, len) = varint::read(rest).ok_or(rules::WRONG_SIZE)?;
                rest = &rest[len..];
                Ok(number)
            };
            let (setting, value) = (number()?, number()?);
            // RFC 9114 §7.2.4: the same one must not come twice.
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
                // RFC 9114 §7.2.4.1, §11.2.2: those of HTTP/2 that HTTP/3 does not have.
                0x0 | 0x2..=0x5 => return Err(rules::BAD_SETTING),
                _ => {}
            }
        }
        Ok(settings)
    }

    /// Appends the payload of a SETTINGS frame.
    pub(crate) fn push(&self, role: Role, out: &mut Vec<u8>) {
        let mut set = |setting, value| {
            varint::push(out, setting);
            varint::push(out, value);
        };
        set(SECTION_BYTES, self.section_bytes);
        if self.table_bytes > 0 {
            set(TABLE_BYTES, self.table_bytes);
            set(BLOCKED_STREAMS, self.blocked_streams);
        }
        if role == Role::Server {
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
        let settings =
            Settings { section_bytes: 70_000, table_bytes: 4096, blocked_streams: 16, takes_upgrades: true };
        let mut payload = Vec::new();
        settings.push(Role::Server, &mut payload);
        assert_eq!(Settings::parse(&payload), Ok(settings));
        assert_eq!(Settings::parse(b""), Ok(Settings::default()));
    }

    #[test]
    fn what_no_setting_may_be_is_refused() {
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
            assert_eq!(Settings::parse(payload), Err(broken), "{payload:x?}");
        }
    }
}
