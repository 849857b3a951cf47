//! Priorities (RFC 9218) that clients send in the Priority field or in PRIORITY_UPDATE.

/// The order of a response among others of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Priority {
    /// From 0, the most urgent, to 7.
    pub urgency: u8,
    /// Whether the client can use parts of the response, so that it shares bandwidth with others of its urgency.
    pub is_incremental: bool,
}

impl Default for Priority {
    /// RFC 9218 §4.
    fn default() -> Self {
        Self { urgency: 3, is_incremental: false }
    }
}

impl Priority {
    /// Parses a Priority field (RFC 9218 §4), which is a dictionary (RFC 9651 §3.2). Unknown members, and values of
    /// another type or range, are ignored.
    pub fn parse(value: &[u8]) -> Self {
        let mut priority = Self::default();
        for member in value.split(|&byte| byte == b',') {
            // RFC 9218 defines no parameters.
            let member = member.split(|&byte| byte == b';').next().unwrap_or_default().trim_ascii();
            match member {
                [b'u', b'=', digit @ b'0'..=b'7'] => priority.urgency = digit - b'0',
                b"i" | b"i=?1" => priority.is_incremental = true,
                b"i=?0" => priority.is_incremental = false,
                _ => {}
            }
        }
        priority
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_parameters_are_ignored() {
        for (value, urgency, is_incremental) in [
            ("", 3, false),
            ("u=5, i", 5, true),
            ("i;a=b , u=0;x", 0, true),
            ("i=?1,i=?0", 3, false),
            ("u=8, i=1, u=-1, a=b", 3, false),
            ("u=1, u=2", 2, false),
            ("U=1, I, u = 1, \"u=1\"", 3, false),
        ] {
            assert_eq!(Priority::parse(value.as_bytes()), Priority { urgency, is_incremental }, "{value}");
        }
    }
}
