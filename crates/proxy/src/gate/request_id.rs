//! Makes request IDs in the configured form.

use config::IdForm;
use telemetry::hexadecimal;

/// Appends a new ID. `now_ms` is Unix time in milliseconds; `trace` is the request's trace ID, if it has one.
pub(crate) fn make(form: IdForm, trace: Option<u128>, now_ms: u64, out: &mut Vec<u8>) {
    let random = fastrand::u128(..);
    match form {
        IdForm::Hex => out.extend_from_slice(&hexadecimal::wide_digits(random)),
        IdForm::Trace => out.extend_from_slice(&hexadecimal::wide_digits(trace.unwrap_or(random))),
        IdForm::Uuid => uuid(4, random, out),
        // RFC 9562 §5.7: 48 bits of time come first.
        IdForm::Uuid7 => uuid(7, u128::from(now_ms) << 80 | random >> 48, out),
    }
}

/// Appends a UUID (RFC 9562 §4): version and variant bits have fixed places, and the digits form five groups.
fn uuid(version: u128, bits: u128, out: &mut Vec<u8>) {
    let bits = bits & !(0xf << 76) & !(0x3 << 62) | version << 76 | 0x2 << 62;
    let digits = hexadecimal::wide_digits(bits);
    for (group, (from, to)) in [(0, 8), (8, 12), (12, 16), (16, 20), (20, 32)].into_iter().enumerate() {
        if group > 0 {
            out.push(b'-');
        }
        out.extend_from_slice(&digits[from..to]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(form: IdForm, trace: Option<u128>, now_ms: u64) -> String {
        let mut out = Vec::new();
        make(form, trace, now_ms, &mut out);
        String::from_utf8(out).expect("it is ASCII")
    }

    #[test]
    fn ids_have_the_form_that_is_asked_for() {
        let is_hex = |text: &str| text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        assert!(is_hex(&made(IdForm::Hex, Some(1), 0)));
        assert_eq!(made(IdForm::Trace, Some(0xab), 0), format!("{:032x}", 0xab));
        assert!(is_hex(&made(IdForm::Trace, None, 0)));
        for (form, version) in [(IdForm::Uuid, '4'), (IdForm::Uuid7, '7')] {
            for _ in 0..100 {
                let id = made(form, None, 0x0123_4567_89ab);
                let lengths: Vec<usize> = id.split('-').map(str::len).collect();
                assert_eq!(lengths, [8, 4, 4, 4, 12], "{id}");
                assert!(id.chars().nth(14) == Some(version), "{id}");
                assert!(matches!(id.chars().nth(19), Some('8' | '9' | 'a' | 'b')), "{id}");
                assert!(form == IdForm::Uuid || id.starts_with("01234567-89ab-7"), "{id}");
            }
        }
    }
}
