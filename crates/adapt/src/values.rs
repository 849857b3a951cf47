//! Values in the syntax of `vanward.toml`: durations, sizes, networks, expressions.

use ipnet::IpNet;

/// Parses a sum of numbers with units, such as `1h30m`. A number without a unit uses the empty one.
pub(crate) fn sum(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let (mut total, mut rest) = (None, text.trim());
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let number: u64 = rest.get(..digits)?.parse().ok()?;
        rest = &rest[digits..];
        let (unit, behind) = rest.split_at(rest.bytes().take_while(u8::is_ascii_alphabetic).count());
        let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
        total = Some(total.unwrap_or(0_u64).checked_add(number.checked_mul(*factor)?)?);
        rest = behind.trim_start();
    }
    total
}

pub(crate) fn measure(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let (number, unit) = text.split_at(text.bytes().take_while(u8::is_ascii_digit).count());
    let (_, factor) = units.iter().find(|(name, _)| *name == unit.trim_start())?;
    number.parse::<u64>().ok()?.checked_mul(*factor)
}

/// Writes milliseconds as a duration in the largest unit that divides them.
pub(crate) fn duration(milliseconds: u64) -> String {
    const UNITS: [(u64, &str); 4] = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1000, "s")];
    for (unit, name) in UNITS {
        if milliseconds >= unit && milliseconds.is_multiple_of(unit) {
            return format!("{}{name}", milliseconds / unit);
        }
    }
    if milliseconds == 0 { "0s".to_owned() } else { format!("{milliseconds}ms") }
}

/// Writes bytes in the largest unit that divides them.
pub(crate) fn size(bytes: u64) -> String {
    for (unit, name) in [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")] {
        if bytes >= unit && bytes.is_multiple_of(unit) {
            return format!("{}{name}", bytes / unit);
        }
    }
    bytes.to_string()
}

/// Whether a text is a network or an address, as in access lists.
pub(crate) fn is_network(text: &str) -> bool {
    let (address, length) = text.split_once('/').map_or((text, None), |(a, b)| (a, Some(b)));
    let Ok(address) = address.parse::<std::net::IpAddr>() else { return false };
    let bits = if address.is_ipv4() { 32 } else { 128 };
    length.is_none_or(|length| length.parse::<u8>().is_ok_and(|length| length <= bits))
}

/// Parses a network as IPv6 bits and prefix length.
fn network(text: &str) -> Option<(u128, u32)> {
    let (address, length) = text.split_once('/').map_or((text, None), |(a, b)| (a, b.parse::<u32>().ok()));
    let (bits, own) = match address.parse::<std::net::IpAddr>().ok()? {
        std::net::IpAddr::V4(four) => (four.to_ipv6_mapped().to_bits(), 96),
        std::net::IpAddr::V6(six) => (six.to_bits(), 0),
    };
    Some((bits, (own + length.unwrap_or(128 - own)).min(128)))
}

pub(crate) fn is_within(inner: &str, outer: &str) -> bool {
    let (Some((inner, long)), Some((outer, short))) = (network(inner), network(outer)) else { return false };
    let shift = 128 - short;
    short <= long && (shift == 128 || inner >> shift == outer >> shift)
}

/// Clears the host bits of a network: `10.1.2.3/8` is `10.0.0.0/8`. Other texts stay as they are.
pub(crate) fn masked(text: &str) -> String {
    text.parse::<IpNet>().map_or_else(|_| text.to_owned(), |network| network.trunc().to_string())
}

/// The number of host bits in a network's addresses.
pub(crate) fn host_bits(text: &str) -> usize {
    network(text).map_or(0, |(_, length)| 128 - length as usize)
}

/// Longer texts that an expression looks ahead for are not written.
const LOOKED_AHEAD_MAX: usize = 30;

/// Converts an expression that may match anywhere to one for the whole text; or returns why it is invalid.
pub(crate) fn expression(text: &str, ignores_case: bool) -> Result<String, String> {
    let text = &without_look_ahead(text);
    let mut body = text.as_str();
    let mut made = String::new();
    if ignores_case {
        made.push_str("(?i)");
    }
    let has_choice = has_bare_choice(text);
    if has_choice {
        made.push_str(".*(?:");
        made.push_str(text);
        made.push_str(").*");
    } else {
        match body.strip_prefix('^') {
            Some(rest) => body = rest,
            None => made.push_str(".*"),
        }
        match body.strip_suffix('$') {
            Some(rest) if !ends_escaped(rest) => made.push_str(rest),
            _ => {
                made.push_str(body);
                made.push_str(".*");
            }
        }
    }
    let made = made.replace(".*.*", ".*");
    valid(made, text)
}

/// Writes `(?!TEXT)` before the end or `.*` without looking ahead: what follows is shorter, or differs at some letter.
fn without_look_ahead(text: &str) -> String {
    let Some((before, rest)) = text.split_once("(?!") else { return text.to_owned() };
    let Some((word, behind)) = rest.split_once(')') else { return text.to_owned() };
    let letters: Vec<char> = word.replace('\\', "").chars().collect();
    let is_text = |letter: &char| letter.is_ascii_alphanumeric() || "-_/.".contains(*letter);
    let is_plain = word.matches('.').count() == word.matches("\\.").count();
    let is_free = matches!(behind, "" | "$" | ".*" | ".*$");
    if letters.is_empty()
        || letters.len() > LOOKED_AHEAD_MAX
        || !letters.iter().all(is_text)
        || !is_plain
        || !is_free
        || behind == "$"
    {
        return text.to_owned();
    }
    let mut other = String::new();
    for letter in letters.iter().rev() {
        let letter = escaped(&letter.to_string());
        let further = if other.is_empty() { String::new() } else { format!("|{letter}{other}") };
        other = format!("(?:$|[^{letter}]{further})");
    }
    format!("{before}{other}{behind}")
}

/// Removes what looks ahead or behind from an expression, so that an expression matches at least what it did.
pub fn without_assertions(text: &str) -> String {
    let mut made = String::new();
    let mut rest = text;
    while let Some(start) = ["(?!", "(?=", "(?<!", "(?<="].iter().filter_map(|sign| rest.find(sign)).min() {
        made += &rest[..start];
        let mut depth = 0;
        let length = rest[start..].char_indices().find_map(|(at, letter)| {
            match letter {
                '(' => depth += 1,
                ')' => depth -= 1,
                _ => {}
            }
            (depth == 0).then_some(at + 1)
        });
        rest = length.map_or("", |length| &rest[start + length..]);
    }
    made + rest
}

/// Converts an expression that may match anywhere to one that Vanward looks for anywhere; or returns why it is invalid.
pub(crate) fn search(text: &str, ignores_case: bool) -> Result<String, String> {
    let case = if ignores_case { "(?i)" } else { "" };
    valid(format!("{case}{}", without_look_ahead(text)), text)
}

/// Returns an expression made of `text`, if it is valid.
fn valid(made: String, text: &str) -> Result<String, String> {
    let mut parser = regex_syntax::ParserBuilder::new();
    parser.unicode(false).utf8(false).nest_limit(50);
    match parser.build().parse(&made) {
        Ok(_) if made.len() <= 4096 => Ok(made),
        Ok(_) => Err("the expression is longer than 4096 bytes".to_owned()),
        Err(_) if ["(?=", "(?!", "(?<=", "(?<!"].iter().any(|around| text.contains(around)) => {
            Err("expressions have no look-ahead or look-behind here".to_owned())
        }
        Err(_) => Err("the expression is invalid here (syntax of the Rust crate regex)".to_owned()),
    }
}

/// Whether a `|` is outside of groups and classes.
pub(crate) fn has_bare_choice(text: &str) -> bool {
    choice(text).is_some()
}

/// The place of the first `|` of an expression, outside of groups and classes.
pub(crate) fn choice(text: &str) -> Option<usize> {
    bare_letters(text).find(|(_, letter, depth)| (*letter, *depth) == ('|', 0)).map(|(at, ..)| at)
}

/// The place of the bracket that closes the group around a text.
pub(crate) fn closing(text: &str) -> Option<usize> {
    bare_letters(text).find(|(_, letter, depth)| (*letter, *depth) == (')', 0)).map(|(at, ..)| at)
}

/// The letters of an expression that are neither escaped nor in a class: place, letter, and the number of groups around it.
/// A closing bracket is within its group.
fn bare_letters(text: &str) -> impl Iterator<Item = (usize, char, usize)> {
    let (mut depth, mut in_class, mut escaped) = (0_usize, false, false);
    text.char_indices().filter_map(move |(at, letter)| {
        let around = depth;
        match letter {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ']' => in_class = false,
            '[' => in_class = true,
            _ if in_class => {}
            _ => {
                match letter {
                    '(' => depth += 1,
                    ')' => depth = depth.saturating_sub(1),
                    _ => {}
                }
                return Some((at, letter, around));
            }
        }
        None
    })
}

pub(crate) fn ends_escaped(text: &str) -> bool {
    text.bytes().rev().take_while(|byte| *byte == b'\\').count() % 2 == 1
}

/// Whether the target of a redirect is a path, or a URL whose host clients cannot choose. `is_host` knows values that are
/// made of the requested host alone, by their names.
pub(crate) fn is_location(to: &str, is_host: &dyn Fn(&str) -> bool) -> bool {
    let begins = ["/", "$path", "${path", "http://", "https://", "$scheme://", "${scheme}://"];
    let Some((scheme, rest)) = to.split_once("://").filter(|(scheme, _)| !scheme.contains(['/', '?'])) else {
        return begins.iter().any(|begin| to.starts_with(begin)) && !to.starts_with("//");
    };
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host =
        ["$path", "${path"].iter().find_map(|path| host.split_once(path)).map_or(host, |(host, _)| host);
    let value = host.strip_prefix('$').map(|name| name.trim_start_matches('{').trim_end_matches('}'));
    begins.contains(&format!("{scheme}://").as_str())
        && (!host.contains('$')
            || ["$host", "${host}", "$server", "$tls.sni"].contains(&host)
            || value.is_some_and(is_host))
}

/// Ends the target of a redirect with `?` if it has no query, so that the request's query is not appended.
pub(crate) fn without_query(to: String) -> String {
    let has_query = to.contains('?') || to.contains("$path_and_query") || to.contains("$query");
    if has_query { to } else { to + "?" }
}

/// Joins two expressions for a whole text to one for either; `None` if flags or names within them forbid that.
pub(crate) fn either(one: &str, other: &str) -> Option<String> {
    let flagged = |text: &str| text.strip_prefix("(?i)").map(str::to_owned);
    let is_plain =
        |text: &str| text.match_indices("(?").all(|(at, _)| text[at + 2..].starts_with([':', 'i']));
    let has_flag_within = |text: &str| text.contains("(?i)");
    let (flag, one, other) = match (flagged(one), flagged(other)) {
        (Some(one), Some(other)) => ("(?i)", one, other),
        (None, None) => ("", one.to_owned(), other.to_owned()),
        (one_bare, other_bare) => (
            "",
            one_bare.map_or_else(|| one.to_owned(), |bare| format!("(?i:{bare})")),
            other_bare.map_or_else(|| other.to_owned(), |bare| format!("(?i:{bare})")),
        ),
    };
    if [&one, &other].iter().any(|text| !is_plain(text) || has_flag_within(text)) {
        return None;
    }
    let have = |bytes_min: usize, has: &dyn Fn(&str) -> bool| {
        [&one, &other].iter().all(|text| has(text) && !has_bare_choice(text) && text.len() >= bytes_min)
    };
    let start = if have(3, &|text| text.starts_with(".*") && !text[2..].starts_with(['?', '*', '+', '{'])) {
        ".*"
    } else {
        ""
    };
    let end =
        if have(start.len() + 3, &|text| text.strip_suffix(".*").is_some_and(|rest| !ends_escaped(rest))) {
            ".*"
        } else {
            ""
        };
    let core = |text: &str| {
        let inner = text.get(start.len()..text.len() - end.len()).unwrap_or_default();
        group(inner).unwrap_or(inner).to_owned()
    };
    Some(format!("{flag}{start}(?:{}|{}){end}", core(&one), core(&other)))
}

/// The inside of an expression that is one group without a name.
fn group(text: &str) -> Option<&str> {
    let inner = text.strip_prefix("(?:")?.strip_suffix(')')?;
    let (mut depth, mut in_class, mut escaped) = (0_i32, false, false);
    for letter in inner.chars() {
        match letter {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ']' => in_class = false,
            '[' => in_class = true,
            '(' if !in_class => depth += 1,
            ')' if !in_class => depth -= 1,
            _ => {}
        }
        if depth < 0 {
            return None;
        }
    }
    (!escaped && !in_class).then_some(inner)
}

/// Removes the brackets around a whole expression.
pub(crate) fn bare(text: &str) -> &str {
    let Some(inner) = text.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')) else { return text };
    let (mut depth, mut is_quoted, mut is_escaped) = (0_i32, false, false);
    for letter in inner.chars() {
        match letter {
            _ if is_escaped => is_escaped = false,
            '\\' if is_quoted => is_escaped = true,
            '"' => is_quoted = !is_quoted,
            '(' if !is_quoted => depth += 1,
            ')' if !is_quoted => depth -= 1,
            _ => {}
        }
        if depth < 0 {
            return text;
        }
    }
    inner
}

/// Returns an expression that matches only this text.
pub(crate) fn escaped(text: &str) -> String {
    regex_syntax::escape(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_match_the_whole_path() {
        let cases = [
            (r"\.php$", false, Ok(r".*\.php")),
            (r"^/api/(v\d+)/", false, Ok(r"/api/(v\d+)/.*")),
            (r"\.(jpg|png)$", true, Ok(r"(?i).*\.(jpg|png)")),
            ("^/a|^/b", false, Ok(".*(?:^/a|^/b).*")),
            (r"^/a\$", false, Ok(r"/a\$.*")),
            ("^/a.*", false, Ok("/a.*")),
            ("^/(?=x)", false, Err("expressions have no look-ahead or look-behind here")),
            ("^/(?!x)y", false, Err("expressions have no look-ahead or look-behind here")),
            ("^/(?!ab)", false, Ok("/(?:$|[^a]|a(?:$|[^b])).*")),
        ];
        for (nginx, ignores_case, here) in cases {
            assert_eq!(expression(nginx, ignores_case).as_deref().map_err(String::as_str), here, "{nginx}");
        }
    }

    #[test]
    fn a_text_that_may_not_follow_is_written_without_looking_ahead() {
        let written = expression(r"/\.(?!well-known).*", false).expect("an expression");
        let pattern = regex::Regex::new(&format!("^(?:{written})$")).expect("an expression");
        for path in ["/.git", "/.", "/.well", "/.well-know", "/.well-Known/x", "/a/.x/b", "/.well-known/.x"] {
            assert!(pattern.is_match(path), "{path}");
        }
        for path in ["/", "/a.b", "/.well-known", "/.well-known/acme"] {
            assert!(!pattern.is_match(path), "{path}");
        }
        assert_eq!(without_assertions(r"^/(?!a(b|c))x(?<=y)z"), "^/xz");
    }

    #[test]
    fn either_of_two_expressions() {
        let cases = [
            ("a", "b", Some("(?:a|b)")),
            (".*a.*", ".*b.*", Some(".*(?:a|b).*")),
            (".*(?:a|b).*", ".*c.*", Some(".*(?:a|b|c).*")),
            ("(?i).*a", "(?i).*b", Some("(?i).*(?:a|b)")),
            ("(?i)a", "b.*", Some("(?:(?i:a)|b.*)")),
            ("(?:a|b)", "c", Some("(?:a|b|c)")),
            ("(?:a)(?:b)", "c", Some("(?:(?:a)(?:b)|c)")),
            (r".*a\.*", r".*b\.*", Some(r".*(?:a\.*|b\.*)")),
            ("a(?i)b", "c", None),
            ("(?P<x>a)", "c", None),
        ];
        for (one, other, both) in cases {
            assert_eq!(either(one, other).as_deref(), both, "{one} {other}");
        }
    }

    #[test]
    fn clients_do_not_choose_the_host_of_a_redirect() {
        let cases = [
            ("/a", true),
            ("//a", false),
            ("$path?x=://", true),
            ("https://a.b/$header.X", true),
            ("https://$host/x", true),
            ("$scheme://$host$path_and_query", true),
            ("https://$header.X/x", false),
            ("https://a$arg.b$path", false),
            ("https://$bare$path", true),
            ("https://${bare}/", true),
            ("https://a$bare/", false),
            ("ftp://a", false),
            ("$app/x", false),
        ];
        for (to, is) in cases {
            assert_eq!(is_location(to, &|name| name == "bare"), is, "{to}");
        }
    }

    #[test]
    fn host_bits_of_networks_are_cleared() {
        for (text, network) in [
            ("10.1.2.3/8", "10.0.0.0/8"),
            ("1.2.3.4/0", "0.0.0.0/0"),
            ("fd00::1/8", "fd00::/8"),
            ("::1", "::1"),
        ] {
            assert_eq!(masked(text), network, "{text}");
        }
    }

    #[test]
    fn networks_are_distinguished_from_words() {
        for (text, is) in
            [("10.0.0.0/8", true), ("::1", true), ("10.0.0.0/33", false), ("all", false), ("unix:", false)]
        {
            assert_eq!(is_network(text), is, "{text}");
        }
    }
}
