//! Messages of dynamic DNS updates (RFC 2136), without I/O and signatures. Compressed names in answers are skipped.

const TYPE_SOA: u16 = 6;
const TYPE_TXT: u16 = 16;
const CLASS_IN: u16 = 1;
const CLASS_NONE: u16 = 254;
const OPCODE_UPDATE: u16 = 5 << 11;
const TTL_S: u32 = 60;
pub(super) const HEADER_BYTES: usize = 12;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NotAName;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Edit {
    Add,
    Delete,
}

pub(super) fn soa_query(id: u16, name: &str) -> Result<Vec<u8>, NotAName> {
    let mut message = header(id, 0, [1, 0, 0, 0]);
    push_name(&mut message, name)?;
    push_u16s(&mut message, &[TYPE_SOA, CLASS_IN]);
    Ok(message)
}

pub(super) fn update(
    id: u16,
    zone: &str,
    (edit, name, value): (Edit, &str, &str),
) -> Result<Vec<u8>, NotAName> {
    let mut message = header(id, OPCODE_UPDATE, [1, 0, 1, 0]);
    push_name(&mut message, zone)?;
    push_u16s(&mut message, &[TYPE_SOA, CLASS_IN]);
    push_name(&mut message, name)?;
    // RFC 2136 §2.5.1, §2.5.4.
    let (class, ttl) = match edit {
        Edit::Add => (CLASS_IN, TTL_S),
        Edit::Delete => (CLASS_NONE, 0),
    };
    push_u16s(&mut message, &[TYPE_TXT, class]);
    message.extend_from_slice(&ttl.to_be_bytes());
    let value = value.as_bytes();
    let length = u8::try_from(value.len()).map_err(|_| NotAName)?;
    push_u16s(&mut message, &[u16::from(length) + 1]);
    message.push(length);
    message.extend_from_slice(value);
    Ok(message)
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct DnsAnswer {
    /// 0 is success (RFC 2136 §2.2).
    pub(super) code: u8,
    pub(super) is_zone: bool,
}

/// Parses the answer to a message with this ID; `None` if it is no such answer.
pub(super) fn answer(bytes: &[u8], id: u16) -> Option<DnsAnswer> {
    let header = bytes.get(..HEADER_BYTES)?;
    let is_answer = header[2] & 0x80 != 0;
    if header[..2] != id.to_be_bytes() || !is_answer {
        return None;
    }
    let count = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    let is_zone = count(4) == 1 && count(6) > 0 && {
        let after_question = skip_name(bytes, HEADER_BYTES)? + 4;
        let at = skip_name(bytes, after_question)?;
        bytes.get(at..at + 2)? == TYPE_SOA.to_be_bytes()
    };
    Some(DnsAnswer { code: header[3] & 0x0f, is_zone })
}

/// Describes a failure as in RFC 2136 §2.2, with the remedy.
pub(super) fn reason(code: u8) -> &'static str {
    match code {
        1 => "FORMERR: the server does not understand the update",
        2 => "SERVFAIL: the server failed; its log says why, such as a zone file that it may not write",
        3 => "NXDOMAIN: the name does not exist",
        4 => "NOTIMP: the server takes no updates; set server to the primary of the zone",
        5 => "REFUSED: permit this key there to change TXT records of this name",
        6..=8 => "the server has other records than the update expects",
        9 => {
            "NOTAUTH: the server is not the primary of this zone; set server to the one that is, or zone to one of its own"
        }
        10 => "NOTZONE: the record is outside of this zone; set zone to the one that has it, or leave it out",
        _ => "an unknown error",
    }
}

/// Returns the position after a name, which may end in a pointer (RFC 1035 §4.1.4).
pub(super) fn skip_name(bytes: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match *bytes.get(at)? {
            0 => return Some(at + 1),
            length if length & 0xc0 == 0xc0 => return Some(at + 2),
            length => at += usize::from(length) + 1,
        }
    }
}

fn header(id: u16, flags: u16, counts: [u16; 4]) -> Vec<u8> {
    let mut message = Vec::with_capacity(512);
    push_u16s(&mut message, &[id, flags]);
    push_u16s(&mut message, &counts);
    message
}

pub(super) fn push_u16s(message: &mut Vec<u8>, values: &[u16]) {
    message.extend(values.iter().flat_map(|value| value.to_be_bytes()));
}

pub(super) fn push_name(message: &mut Vec<u8>, name: &str) -> Result<(), NotAName> {
    let name = name.trim_end_matches('.');
    if name.len() > 253 {
        return Err(NotAName);
    }
    for label in name.split('.').filter(|_| !name.is_empty()) {
        let length = u8::try_from(label.len()).ok().filter(|length| (1..64).contains(length));
        message.push(length.ok_or(NotAName)?);
        message.extend_from_slice(label.as_bytes());
    }
    message.push(0);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn an_update_is_as_in_rfc_2136() {
        let added = update(0x1234, "a.example", (Edit::Add, "_x.a.example", "v")).expect("names");
        assert_eq!(
            hex(&added),
            "123428000001000000010000\
             01610765 78616d706c6500 0006 0001\
             025f78016107657861 6d706c6500 0010 0001 0000003c 0002 0176"
                .replace(' ', "")
        );
        let deleted = update(0x1234, "a.example.", (Edit::Delete, "_x.a.example", "v")).expect("names");
        assert!(hex(&deleted).ends_with("001000fe0000000000020176"), "{}", hex(&deleted));
    }

    #[test]
    fn answers_are_read_and_others_are_not() {
        let soa = soa_query(7, "a.example").expect("a name");
        assert_eq!(answer(&soa, 7), None, "a question");
        let mut positive = soa.clone();
        positive[2] |= 0x80;
        positive[7] = 1;
        positive.extend_from_slice(&[0xc0, 12, 0, 6, 0, 1]);
        assert_eq!(answer(&positive, 7), Some(DnsAnswer { code: 0, is_zone: true }));
        assert_eq!(answer(&positive, 8), None, "another one's");
        for length in 0..positive.len() {
            // Any prefix is parsed or rejected without a panic.
            let _ = answer(&positive[..length], 7);
        }
        let mut negative = soa;
        (negative[2], negative[3]) = (0x80, 5);
        assert_eq!(answer(&negative, 7), Some(DnsAnswer { code: 5, is_zone: false }));
        assert!(reason(5).starts_with("REFUSED"));
    }

    #[test]
    fn names_that_dns_cannot_have_are_refused() {
        let long = format!("{}.example", "a".repeat(64));
        let longer = format!("{}example", "abc.".repeat(70));
        for name in [long.as_str(), &longer, "a..b"] {
            assert_eq!(soa_query(1, name), Err(NotAName), "{name}");
        }
    }
}
