//! Parses checks of responses: `status 2xx`, `size 1KB..`.

use crate::listed::Check;

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum CheckMistake {
    #[error("unknown check {0:?}; expected status, header, contains, size or digest, such as 'status 200'")]
    Unknown(String),
    #[error("{0}")]
    Value(String),
}

/// Adds a check on one line: its kind and its value.
pub(super) fn add(text: &str, check: &mut Check) -> Result<(), CheckMistake> {
    let (what, value) = text.trim().split_once(char::is_whitespace).unwrap_or((text.trim(), ""));
    let value = value.trim();
    let wrong = |expected: &str| CheckMistake::Value(format!("{what} is not understood; {expected}"));
    match what {
        "status" => {
            let words = value.split([' ', ',']).filter(|word| !word.is_empty());
            let ranges: Vec<_> = words.map(status).collect::<Result<_, _>>().map_err(wrong)?;
            if ranges.is_empty() {
                return Err(wrong("expected a status such as 200"));
            }
            check.status.extend(ranges);
        }
        "size" => check.size = Some(size(value).map_err(wrong)?),
        "digest" => check.digest = Some(digest(value).map_err(wrong)?),
        "contains" if value.is_empty() => {
            return Err(CheckMistake::Value("every body contains an empty text".to_owned()));
        }
        "contains" => check.contains.push(value.to_owned()),
        "header" => match value.split_once([' ', ':']) {
            Some((name, pattern)) if crate::form::is_token(name) => {
                let pattern = pattern.trim_start_matches(':').trim().to_owned();
                check.header.push((name.to_owned(), pattern));
            }
            _ => return Err(wrong("expected a name and a value, such as header Content-Type text/*")),
        },
        _ => return Err(CheckMistake::Unknown(what.to_owned())),
    }
    Ok(())
}

/// Parses a digest of a body: `crc32:0d4a1185`.
pub(super) fn digest(text: &str) -> Result<u32, &'static str> {
    const EXPECTED: &str = "expected crc32: and eight hexadecimal digits, such as crc32:0d4a1185";
    let digits = text.trim().strip_prefix("crc32:").ok_or(EXPECTED)?;
    let is_whole = digits.len() == 8 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    u32::from_str_radix(digits, 16).ok().filter(|_| is_whole).ok_or(EXPECTED)
}

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
    fn a_check_is_its_kind_and_its_value() {
        let mut check = Check::default();
        let lines = [
            "status 200, 3xx",
            "size 5..",
            "digest crc32:0d4A1185",
            "contains a b",
            "header A: x*",
            "header B y",
        ];
        for line in lines {
            add(line, &mut check).expect(line);
        }
        let expected = Check {
            status: vec![(200, 200), (300, 399)],
            header: vec![("A".into(), "x*".into()), ("B".into(), "y".into())],
            contains: vec!["a b".into()],
            size: Some((5, u64::MAX)),
            digest: Some(0x0d4a_1185),
        };
        assert_eq!(check, expected);
        for (line, expected) in [
            ("", "unknown check \"\""),
            ("stauts 200", "unknown check \"stauts\""),
            ("status", "status is not understood; expected a status"),
            ("status 2000", "status is not understood"),
            ("size 9..1", "size is not understood"),
            ("digest md5:00", "digest is not understood; expected crc32:"),
            ("digest crc32:+0000001", "digest is not understood"),
            ("contains", "every body contains an empty text"),
            ("header A", "header is not understood"),
        ] {
            let wrong = add(line, &mut Check::default()).expect_err(line).to_string();
            assert!(wrong.starts_with(expected), "{line}: {wrong}");
        }
    }

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
