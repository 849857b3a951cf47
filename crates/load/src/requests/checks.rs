//! Checks of responses as they are written: `2xx`, `1KB..`.

/// Parses a status, a class or a range: `200`, `2xx`, `200..204`.
pub(super) fn status(text: &str) -> Result<(u16, u16), &'static str> {
    const EXPECTED: &str = "expected a status such as 200, a class such as 2xx or a range such as 200..204";
    let text = text.trim();
    let code = |text: &str| {
        let is_code = text.len() == 3 && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<u16>().ok().filter(|code| is_code && (100..600).contains(code)).ok_or(EXPECTED)
    };
    if let Some((first, last)) = text.split_once("..") {
        let (first, last) = (code(first)?, code(last)?);
        return if first <= last { Ok((first, last)) } else { Err(EXPECTED) };
    }
    match text.as_bytes() {
        [digit @ b'1'..=b'5', b'x' | b'X', b'x' | b'X'] => {
            let class = u16::from(digit - b'0') * 100;
            Ok((class, class + 99))
        }
        _ => code(text).map(|code| (code, code)),
    }
}

/// Parses a size or a range of sizes: `512`, `1KB..`, `..64KiB`, `1..100`.
pub(super) fn size(text: &str) -> Result<(u64, u64), &'static str> {
    const EXPECTED: &str =
        "expected a number of bytes such as 512, or a range such as 1..100, 1KB.. or ..64KiB";
    let bytes = |text: &str| {
        let text = text.trim();
        let unit_at = text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
        let (digits, unit) = text.split_at(unit_at);
        let factor = match unit.trim() {
            "" | "B" => 1,
            "KB" | "kB" => 1_000,
            "MB" => 1_000_000,
            "KiB" => 1 << 10,
            "MiB" => 1 << 20,
            _ => return Err(EXPECTED),
        };
        digits.parse::<u64>().ok().and_then(|number| number.checked_mul(factor)).ok_or(EXPECTED)
    };
    let (least, most) = match text.trim().split_once("..") {
        None => (bytes(text)?, bytes(text)?),
        Some(("", "")) => return Err(EXPECTED),
        Some((least, "")) => (bytes(least)?, u64::MAX),
        Some(("", most)) => (0, bytes(most)?),
        Some((least, most)) => (bytes(least)?, bytes(most)?),
    };
    if least <= most { Ok((least, most)) } else { Err(EXPECTED) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_and_sizes() {
        for (text, expected) in
            [("200", (200, 200)), ("2xx", (200, 299)), ("5XX", (500, 599)), ("200..204", (200, 204))]
        {
            assert_eq!(status(text), Ok(expected), "{text}");
        }
        for text in ["", "20", "2x", "6xx", "099", "600", "200..", "204..200", "+20", "200-204"] {
            assert!(status(text).is_err(), "{text}");
        }
        for (text, expected) in [
            ("512", (512, 512)),
            ("1KB..", (1_000, u64::MAX)),
            ("..64KiB", (0, 65_536)),
            ("1..100 B", (1, 100)),
            ("0", (0, 0)),
        ] {
            assert_eq!(size(text), Ok(expected), "{text}");
        }
        for text in ["", "..", "-1", "1.5KB", "9..1", "1 GB", "99999999999999999MB"] {
            assert!(size(text).is_err(), "{text}");
        }
    }
}
