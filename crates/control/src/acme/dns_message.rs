//! Messages of dynamic DNS updates (RFC 2136), signed with TSIG (RFC 8945). Bytes only; what is compressed in answers is
//! skipped.

use aws_lc_rs::hmac;
use config::TsigAlgorithm;

const TYPE_SOA: u16 = 6;
const TYPE_TXT: u16 = 16;
const TYPE_TSIG: u16 = 250;
const CLASS_IN: u16 = 1;
const CLASS_NONE: u16 = 254;
const CLASS_ANY: u16 = 255;
const OPCODE_UPDATE: u16 = 5 << 11;
const TTL_S: u32 = 60;
/// How far the clocks of both may be apart, in seconds (RFC 8945 §10).
const FUDGE_S: u16 = 300;
const HEADER_BYTES: usize = 12;
const ADDITIONAL_COUNT: usize = 10;

/// A name that DNS cannot have.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NotAName;

/// Whether a TXT record is added or deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Edit {
    Add,
    Delete,
}

/// Who signs.
pub(super) struct Signer<'a> {
    pub(super) name: &'a str,
    pub(super) secret: &'a [u8],
    pub(super) algorithm: TsigAlgorithm,
}

/// A question for the SOA record of a name.
pub(super) fn soa_query(id: u16, name: &str) -> Result<Vec<u8>, NotAName> {
    let mut message = header(id, 0, [1, 0, 0, 0]);
    push_name(&mut message, name)?;
    push_u16s(&mut message, &[TYPE_SOA, CLASS_IN]);
    Ok(message)
}

/// An update of a zone by one TXT record.
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

/// Signs a message, at a time in seconds since 1970 (RFC 8945 §4.3).
pub(super) fn sign(message: &mut Vec<u8>, signer: &Signer<'_>, now: u64) -> Result<(), NotAName> {
    let (algorithm, name) = match signer.algorithm {
        TsigAlgorithm::Sha256 => (hmac::HMAC_SHA256, "hmac-sha256"),
        TsigAlgorithm::Sha384 => (hmac::HMAC_SHA384, "hmac-sha384"),
        TsigAlgorithm::Sha512 => (hmac::HMAC_SHA512, "hmac-sha512"),
    };
    let (mut key_name, mut algorithm_name) = (Vec::new(), Vec::new());
    push_name(&mut key_name, &signer.name.to_ascii_lowercase())?;
    push_name(&mut algorithm_name, name)?;
    let time = &now.to_be_bytes()[2..];
    // The variables of the signature, in their order; no error and no other data.
    let mut signed = message.clone();
    signed.extend_from_slice(&key_name);
    push_u16s(&mut signed, &[CLASS_ANY, 0, 0]);
    signed.extend_from_slice(&algorithm_name);
    signed.extend_from_slice(time);
    push_u16s(&mut signed, &[FUDGE_S, 0, 0]);
    let mac = hmac::sign(&hmac::Key::new(algorithm, signer.secret), &signed);
    let mac = mac.as_ref();
    let mut data = algorithm_name;
    data.extend_from_slice(time);
    push_u16s(&mut data, &[FUDGE_S, mac.len() as u16]);
    data.extend_from_slice(mac);
    data.extend_from_slice(&message[..2]);
    push_u16s(&mut data, &[0, 0]);
    message.extend_from_slice(&key_name);
    push_u16s(message, &[TYPE_TSIG, CLASS_ANY, 0, 0, data.len() as u16]);
    message.extend_from_slice(&data);
    message[ADDITIONAL_COUNT + 1] += 1;
    Ok(())
}

/// What an answer says.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer {
    /// 0 is success (RFC 2136 §2.2).
    pub(super) code: u8,
    /// Whether it has the SOA record that was asked for.
    pub(super) is_zone: bool,
}

/// Reads the answer to a message with this number; `None` if it is not one.
pub(super) fn answer(bytes: &[u8], id: u16) -> Option<Answer> {
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
    Some(Answer { code: header[3] & 0x0f, is_zone })
}

/// The words of RFC 2136 §2.2 and RFC 8945 for an answer that is no success.
pub(super) fn reason(code: u8) -> &'static str {
    match code {
        1 => "FORMERR: it does not understand the update",
        2 => "SERVFAIL: it failed",
        3 => "NXDOMAIN: there is no such name",
        4 => "NOTIMP: it takes no updates",
        5 => "REFUSED: this key may not change the zone",
        9 => "NOTAUTH: the key is wrong, or the zone is not its own",
        10 => "NOTZONE: the record is outside of the zone",
        _ => "an error",
    }
}

/// Behind a name, whose end may be a pointer (RFC 1035 §4.1.4).
fn skip_name(bytes: &[u8], mut at: usize) -> Option<usize> {
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

fn push_u16s(message: &mut Vec<u8>, values: &[u16]) {
    message.extend(values.iter().flat_map(|value| value.to_be_bytes()));
}

fn push_name(message: &mut Vec<u8>, name: &str) -> Result<(), NotAName> {
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

    /// The signature is that of dnspython 2.9, over the same bytes at the same time with the same key.
    #[test]
    fn a_signature_is_the_one_of_another_implementation() {
        let mut message = update(0x1234, "a.example", (Edit::Add, "_x.a.example", "v")).expect("names");
        let signer =
            Signer { name: "Key.example", secret: b"0123456789abcdef", algorithm: TsigAlgorithm::Sha256 };
        let unsigned = hex(&message);
        sign(&mut message, &signer, 1_700_000_000).expect("names");
        let signature = "036b6579076578616d706c6500 00fa 00ff 00000000 003d 0b686d61632d73686132353600 00006553f100 012c \
                         0020 8fe387cf60fca7fa3b25e531eaf78daf0ad947227b2153c826bd72dcb02e14bf 1234 0000 0000";
        // One additional record more.
        let expected = format!("{}0001{}{}", &unsigned[..20], &unsigned[24..], signature.replace(' ', ""));
        assert_eq!(hex(&message), expected);
    }

    #[test]
    fn answers_are_read_and_others_are_not() {
        let soa = soa_query(7, "a.example").expect("a name");
        assert_eq!(answer(&soa, 7), None, "a question");
        let mut positive = soa.clone();
        positive[2] |= 0x80;
        positive[7] = 1;
        positive.extend_from_slice(&[0xc0, 12, 0, 6, 0, 1]);
        assert_eq!(answer(&positive, 7), Some(Answer { code: 0, is_zone: true }));
        assert_eq!(answer(&positive, 8), None, "another one's");
        for length in 0..positive.len() {
            // Any piece is refused or read, without a panic.
            let _ = answer(&positive[..length], 7);
        }
        let mut negative = soa;
        (negative[2], negative[3]) = (0x80, 5);
        assert_eq!(answer(&negative, 7), Some(Answer { code: 5, is_zone: false }));
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
