//! Signatures of DNS updates and their answers with a shared key (TSIG, RFC 8945), without I/O. The caller supplies
//! the time.

use aws_lc_rs::hmac;
use config::TsigAlgorithm;

use super::dns_message::{HEADER_BYTES, NotAName, push_name, push_u16s, skip_name};

const TYPE_TSIG: u16 = 250;
const CLASS_ANY: u16 = 255;
/// Maximum difference of the clocks in seconds (RFC 8945 §10).
const FUDGE_S: u16 = 300;
const ADDITIONAL_COUNT: usize = 10;
/// Errors of RFC 8945 §3.
const BADSIG: u16 = 16;
const BADKEY: u16 = 17;
const BADTIME: u16 = 18;
const BADTRUNC: u16 = 22;

pub(super) struct Signer<'a> {
    pub(super) name: &'a str,
    pub(super) secret: &'a [u8],
    pub(super) algorithm: TsigAlgorithm,
}

/// The signature of a request. Signatures of answers include it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mac(Vec<u8>);

/// Why an answer is not trusted, or why the server rejects the request's signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unverified {
    #[error("the server does not have this key: set key_name and algorithm to those of a key there (BADKEY)")]
    UnknownKey,
    #[error("the secret differs from the server's: key_file must have the secret of key_name (BADSIG)")]
    WrongSecret,
    #[error("the server requires a longer signature: use the algorithm that it has for the key (BADTRUNC)")]
    TooShort,
    /// The server's clock is ahead by this number of seconds.
    #[error("the server's clock is {} s {} this machine's: synchronize both by NTP (BADTIME)", .0.unsigned_abs(), if *.0 < 0 { "behind" } else { "ahead of" })]
    Clock(i64),
    #[error("the server reports another error in the signature ({0})")]
    Other(u16),
    #[error("its answer is not signed, so it may be forged")]
    Unsigned,
    #[error("its answer is not signed with this key, so it may be forged")]
    Forged,
}

/// Signs a message at a time in seconds since 1970 (RFC 8945 §4.3).
pub(super) fn sign(message: &mut Vec<u8>, signer: &Signer<'_>, now: u64) -> Result<Mac, NotAName> {
    let stamp = TsigStamp { time: now, fudge: FUDGE_S, error: 0, other: &[] };
    sign_with(message, signer, &stamp, None)
}

/// Verifies the answer to a signed request (RFC 8945 §5.3), at a time in seconds since 1970.
pub(super) fn verify(answer: &[u8], signer: &Signer<'_>, request: &Mac, now: u64) -> Result<(), Unverified> {
    let Some(Signature { at, name, algorithm, stamp, mac, id }) = Signature::find(answer) else {
        return Err(Unverified::Unsigned);
    };
    let Ok((own_name, own_algorithm)) = names(signer) else { return Err(Unverified::Forged) };
    // RFC 8945 §5.3.2: such an answer is unsigned. It is only reported, and changes nothing else.
    match stamp.error {
        BADKEY => return Err(Unverified::UnknownKey),
        BADSIG => return Err(Unverified::WrongSecret),
        BADTRUNC => return Err(Unverified::TooShort),
        _ => {}
    }
    if !name.eq_ignore_ascii_case(&own_name) || !algorithm.eq_ignore_ascii_case(&own_algorithm) {
        return Err(Unverified::Forged);
    }
    // RFC 8945 §4.3.2: the message before signing.
    let mut unsigned = answer[..at].to_vec();
    unsigned[..2].copy_from_slice(&id);
    let additional = u16::from_be_bytes([unsigned[ADDITIONAL_COUNT], unsigned[ADDITIONAL_COUNT + 1]]);
    let additional = additional.checked_sub(1).ok_or(Unverified::Unsigned)?;
    unsigned[ADDITIONAL_COUNT..HEADER_BYTES].copy_from_slice(&additional.to_be_bytes());
    let signed = signed(&unsigned, &own_name, &own_algorithm, &stamp, Some(request));
    // Truncated signatures are rejected, because none was requested.
    hmac::verify(&key(signer), &signed, mac).map_err(|_| Unverified::Forged)?;
    let apart = |time: u64| i64::try_from(time).unwrap_or(i64::MAX).saturating_sub_unsigned(now);
    match (stamp.error, stamp.other) {
        // RFC 8945 §5.2.3: with the server's time.
        (BADTIME, &[a, b, c, d, e, f]) => {
            Err(Unverified::Clock(apart(u64::from_be_bytes([0, 0, a, b, c, d, e, f]))))
        }
        (BADTIME, _) => Err(Unverified::Clock(apart(stamp.time))),
        (0, _) if apart(stamp.time).unsigned_abs() > u64::from(stamp.fudge) => {
            Err(Unverified::Clock(apart(stamp.time)))
        }
        (0, _) => Ok(()),
        (other, _) => Err(Unverified::Other(other)),
    }
}

/// The variables of a signature, except for key and signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct TsigStamp<'a> {
    /// In seconds since 1970.
    time: u64,
    fudge: u16,
    error: u16,
    other: &'a [u8],
}

struct Signature<'a> {
    at: usize,
    name: &'a [u8],
    algorithm: &'a [u8],
    stamp: TsigStamp<'a>,
    mac: &'a [u8],
    /// The message's ID when it was signed.
    id: [u8; 2],
}

impl<'a> Signature<'a> {
    /// RFC 8945 §5.1: the last record of the message. `None` if that is another record, or the message is invalid.
    fn find(bytes: &'a [u8]) -> Option<Self> {
        let count = |at: usize| Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]));
        let mut at = HEADER_BYTES;
        for _ in 0..count(4)? {
            at = skip_name(bytes, at)? + 4;
        }
        let records = u32::from(count(6)?) + u32::from(count(8)?) + u32::from(count(ADDITIONAL_COUNT)?);
        if count(ADDITIONAL_COUNT)? == 0 {
            return None;
        }
        for _ in 1..records {
            let fields = skip_name(bytes, at)?;
            at = fields + 10 + usize::from(count(fields + 8)?);
        }
        // RFC 8945 §4.2: names of these records are not compressed.
        let fields = skip_name(bytes, at)?;
        let (name, data) = (bytes.get(at..fields)?, fields + 10);
        let end = data + usize::from(count(fields + 8)?);
        let has_no_ttl = bytes.get(fields + 4..fields + 8)? == [0; 4];
        if count(fields)? != TYPE_TSIG || count(fields + 2)? != CLASS_ANY || !has_no_ttl || end != bytes.len()
        {
            return None;
        }
        let after = skip_name(bytes, data)?;
        let algorithm = bytes.get(data..after)?;
        let &[a, b, c, d, e, f] = bytes.get(after..after + 6)? else { return None };
        let fudge = count(after + 6)?;
        let mac_end = after + 10 + usize::from(count(after + 8)?);
        let mac = bytes.get(after + 10..mac_end)?;
        let &[x, y] = bytes.get(mac_end..mac_end + 2)? else { return None };
        let error = count(mac_end + 2)?;
        let other = bytes.get(mac_end + 6..end)?;
        if other.len() != usize::from(count(mac_end + 4)?) {
            return None;
        }
        let time = u64::from_be_bytes([0, 0, a, b, c, d, e, f]);
        Some(Self { at, name, algorithm, stamp: TsigStamp { time, fudge, error, other }, mac, id: [x, y] })
    }
}

fn sign_with(
    message: &mut Vec<u8>,
    signer: &Signer<'_>,
    stamp: &TsigStamp<'_>,
    request: Option<&Mac>,
) -> Result<Mac, NotAName> {
    let (name, algorithm) = names(signer)?;
    let mac = hmac::sign(&key(signer), &signed(message, &name, &algorithm, stamp, request));
    let mac = mac.as_ref().to_vec();
    let mut data = algorithm;
    data.extend_from_slice(&stamp.time.to_be_bytes()[2..]);
    push_u16s(&mut data, &[stamp.fudge, mac.len() as u16]);
    data.extend_from_slice(&mac);
    data.extend_from_slice(&message[..2]);
    push_u16s(&mut data, &[stamp.error, stamp.other.len() as u16]);
    data.extend_from_slice(stamp.other);
    message.extend_from_slice(&name);
    push_u16s(message, &[TYPE_TSIG, CLASS_ANY, 0, 0, data.len() as u16]);
    message.extend_from_slice(&data);
    message[ADDITIONAL_COUNT + 1] += 1;
    Ok(Mac(mac))
}

/// Returns the input of a signature (RFC 8945 §4.3.3, §5.3.1): the request's signature, the message, and the variables.
fn signed(
    message: &[u8],
    name: &[u8],
    algorithm: &[u8],
    stamp: &TsigStamp<'_>,
    request: Option<&Mac>,
) -> Vec<u8> {
    let mut signed = Vec::with_capacity(message.len() + 256);
    if let Some(Mac(mac)) = request {
        push_u16s(&mut signed, &[mac.len() as u16]);
        signed.extend_from_slice(mac);
    }
    signed.extend_from_slice(message);
    signed.extend_from_slice(name);
    push_u16s(&mut signed, &[CLASS_ANY, 0, 0]);
    signed.extend_from_slice(algorithm);
    signed.extend_from_slice(&stamp.time.to_be_bytes()[2..]);
    push_u16s(&mut signed, &[stamp.fudge, stamp.error, stamp.other.len() as u16]);
    signed.extend_from_slice(stamp.other);
    signed
}

/// Returns the encoded names of the key and its algorithm (RFC 8945 §4.3.3: in lower case).
fn names(signer: &Signer<'_>) -> Result<(Vec<u8>, Vec<u8>), NotAName> {
    let (mut name, mut algorithm) = (Vec::new(), Vec::new());
    push_name(&mut name, &signer.name.to_ascii_lowercase())?;
    push_name(
        &mut algorithm,
        match signer.algorithm {
            TsigAlgorithm::Sha256 => "hmac-sha256",
            TsigAlgorithm::Sha384 => "hmac-sha384",
            TsigAlgorithm::Sha512 => "hmac-sha512",
        },
    )?;
    Ok((name, algorithm))
}

fn key(signer: &Signer<'_>) -> hmac::Key {
    let algorithm = match signer.algorithm {
        TsigAlgorithm::Sha256 => hmac::HMAC_SHA256,
        TsigAlgorithm::Sha384 => hmac::HMAC_SHA384,
        TsigAlgorithm::Sha512 => hmac::HMAC_SHA512,
    };
    hmac::Key::new(algorithm, signer.secret)
}

#[cfg(test)]
mod tests {
    use super::super::dns_message::{Edit, update};
    use super::*;

    const NOW: u64 = 1_700_000_000;
    const SIGNER: Signer<'_> =
        Signer { name: "Key.example", secret: b"0123456789abcdef", algorithm: TsigAlgorithm::Sha256 };

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn stamp(time: u64, error: u16, other: &[u8]) -> TsigStamp<'_> {
        TsigStamp { time, fudge: FUDGE_S, error, other }
    }

    /// The expected signature comes from dnspython 2.9, with the same bytes, time and key.
    #[test]
    fn a_signature_is_the_one_of_another_implementation() {
        let mut message = update(0x1234, "a.example", (Edit::Add, "_x.a.example", "v")).expect("names");
        let unsigned = hex(&message);
        sign(&mut message, &SIGNER, NOW).expect("names");
        let signature = "036b6579076578616d706c6500 00fa 00ff 00000000 003d 0b686d61632d73686132353600 00006553f100 012c \
                         0020 8fe387cf60fca7fa3b25e531eaf78daf0ad947227b2153c826bd72dcb02e14bf 1234 0000 0000";
        // One additional record more.
        let expected = format!("{}0001{}{}", &unsigned[..20], &unsigned[24..], signature.replace(' ', ""));
        assert_eq!(hex(&message), expected);
    }

    fn request() -> (Mac, Vec<u8>) {
        let mut request = update(7, "a.example", (Edit::Add, "_x.a.example", "v")).expect("names");
        let mac = sign(&mut request, &SIGNER, NOW).expect("names");
        let mut answer = request[..HEADER_BYTES].to_vec();
        answer[2] |= 0x80;
        answer[4..].fill(0);
        (mac, answer)
    }

    #[test]
    fn an_answer_is_believed_if_its_key_has_signed_it() {
        let (mac, unsigned) = request();
        assert_eq!(verify(&unsigned, &SIGNER, &mac, NOW), Err(Unverified::Unsigned));
        let answer = |signer: &Signer<'_>, stamp: &TsigStamp<'_>, request: Option<&Mac>| {
            let mut answer = unsigned.clone();
            sign_with(&mut answer, signer, stamp, request).expect("names");
            answer
        };
        let good = answer(&SIGNER, &stamp(NOW, 0, &[]), Some(&mac));
        assert_eq!(verify(&good, &SIGNER, &mac, NOW), Ok(()));
        assert_eq!(verify(&good, &SIGNER, &mac, NOW + 300), Ok(()));
        let other_key = Signer { secret: b"another", ..SIGNER };
        let other_name = Signer { name: "other.example", ..SIGNER };
        let other_algorithm = Signer { algorithm: TsigAlgorithm::Sha512, ..SIGNER };
        let other_request = Mac(vec![0; 32]);
        for (answer, expected) in [
            (answer(&other_key, &stamp(NOW, 0, &[]), Some(&mac)), Unverified::Forged),
            (answer(&other_name, &stamp(NOW, 0, &[]), Some(&mac)), Unverified::Forged),
            (answer(&other_algorithm, &stamp(NOW, 0, &[]), Some(&mac)), Unverified::Forged),
            (answer(&SIGNER, &stamp(NOW, 0, &[]), Some(&other_request)), Unverified::Forged),
            (answer(&SIGNER, &stamp(NOW, 0, &[]), None), Unverified::Forged),
            // A replayed old answer.
            (answer(&SIGNER, &stamp(NOW - 301, 0, &[]), Some(&mac)), Unverified::Clock(-301)),
            (answer(&SIGNER, &stamp(NOW, 21, &[]), Some(&mac)), Unverified::Other(21)),
        ] {
            assert_eq!(verify(&answer, &SIGNER, &mac, NOW), Err(expected));
        }
        // Each byte counts, except for the message ID, which may change on the way.
        for at in 2..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0x01;
            assert!(verify(&bad, &SIGNER, &mac, NOW).is_err(), "byte {at}");
            assert!(verify(&good[..at], &SIGNER, &mac, NOW).is_err(), "{at} bytes");
        }
    }

    #[test]
    fn errors_name_why_a_server_rejects_a_signature() {
        let (mac, unsigned) = request();
        let server_time = (NOW - 3600).to_be_bytes();
        let mut late = unsigned.clone();
        sign_with(&mut late, &SIGNER, &stamp(NOW, BADTIME, &server_time[2..]), Some(&mac)).expect("names");
        let told = verify(&late, &SIGNER, &mac, NOW).expect_err("the clocks differ");
        assert_eq!(told, Unverified::Clock(-3600));
        assert_eq!(
            told.to_string(),
            "the server's clock is 3600 s behind this machine's: synchronize both by NTP (BADTIME)"
        );
        // RFC 8945 §5.2.1, §5.2.2: without a signature.
        for (error, expected) in [
            (BADSIG, Unverified::WrongSecret),
            (BADKEY, Unverified::UnknownKey),
            (BADTRUNC, Unverified::TooShort),
        ] {
            let mut answer = unsigned.clone();
            let (name, algorithm) = names(&SIGNER).expect("names");
            let mut data = algorithm;
            data.extend_from_slice(&NOW.to_be_bytes()[2..]);
            push_u16s(&mut data, &[FUDGE_S, 0, 7, error, 0]);
            answer.extend_from_slice(&name);
            push_u16s(&mut answer, &[TYPE_TSIG, CLASS_ANY, 0, 0, data.len() as u16]);
            answer.extend_from_slice(&data);
            answer[ADDITIONAL_COUNT + 1] = 1;
            assert_eq!(verify(&answer, &SIGNER, &mac, NOW), Err(expected));
        }
    }

    /// The parser reads untrusted bytes from the network.
    #[test]
    fn no_answer_makes_it_panic() {
        let (mac, unsigned) = request();
        let mut good = unsigned;
        sign_with(&mut good, &SIGNER, &stamp(NOW, 0, &[]), Some(&mac)).expect("names");
        proptest::proptest!(proptest::test_runner::Config::with_cases(20_000), |(
            bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..96),
            at in 0..200_usize,
            from in 0..200_usize,
        )| {
            let _ = verify(&bytes, &SIGNER, &mac, NOW);
            let mut changed = good[..from.min(good.len())].to_vec();
            let end = (at + bytes.len()).min(changed.len());
            if at < end {
                changed[at..end].copy_from_slice(&bytes[..end - at]);
            }
            let _ = verify(&changed, &SIGNER, &mac, NOW);
        });
    }
}
