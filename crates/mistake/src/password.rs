//! Masks the passwords of URLs in text for users: `redis://user:***@host`.

use std::ops::Range;

/// Replaces a password of any length.
const MASK: [char; 3] = ['*'; 3];

pub(crate) fn without(text: &str) -> String {
    // Most texts have no URL.
    if !text.contains("://") {
        return text.to_owned();
    }
    let characters: Vec<char> = text.chars().collect();
    masked(&characters, [0, 0]).0.into_iter().collect()
}

/// Masks the passwords in a text. Returns the marked range in the result too; a range that touches a password comes to
/// include the whole mask.
pub(crate) fn masked(text: &[char], [start, end]: [usize; 2]) -> (Vec<char>, [usize; 2]) {
    let (mut out, mut read) = (Vec::with_capacity(text.len()), 0);
    let mut marked = [start, end];
    for password in passwords(text) {
        out.extend_from_slice(&text[read..password.start]);
        let mask = out.len()..out.len() + MASK.len();
        out.extend_from_slice(&MASK);
        read = password.end;
        for (old, (new, within)) in
            [start, end].into_iter().zip(marked.iter_mut().zip([mask.start, mask.end]))
        {
            if old >= password.end {
                *new = old - password.end + mask.end;
            } else if old > password.start {
                *new = within;
            }
        }
    }
    out.extend_from_slice(&text[read..]);
    (out, marked)
}

/// The ranges of passwords, in order.
fn passwords(text: &[char]) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(scheme) =
        text.get(at..).and_then(|rest| rest.windows(3).position(|three| three == [':', '/', '/']))
    {
        let start = at + scheme + 3;
        let end = end(text, at + scheme, start);
        found.extend(password(text, start..end));
        at = end;
    }
    found
}

/// The end of a URL: the quote that also precedes it, or else a white space.
fn end(text: &[char], scheme: usize, start: usize) -> usize {
    let is_of_scheme = |character: &char| character.is_ascii_alphanumeric() || "+-.".contains(*character);
    let before = text[..scheme].iter().rev().find(|character| !is_of_scheme(character)).copied();
    let quote = before.filter(|before| matches!(before, '"' | '\'' | '`'));
    let until = |is_end: &dyn Fn(&char) -> bool| text[start..].iter().position(is_end);
    let quoted = quote.and_then(|quote| until(&|character| *character == quote));
    quoted
        .or_else(|| until(&|character| character.is_whitespace()))
        .map_or(text.len(), |length| start + length)
}

/// The range of the password in a URL without its scheme: from the first colon to the last `@` of the authority (RFC
/// 3986 §3.2.1).
fn password(text: &[char], url: Range<usize>) -> Option<Range<usize>> {
    // An IPv6 address has colons.
    if text.get(url.start) == Some(&'[') {
        return None;
    }
    let colon = url.start + text[url.clone()].iter().position(|character| *character == ':')?;
    let is_at = |character: &char| *character == '@';
    let authority = text[url.clone()].iter().position(|character| matches!(character, '/' | '?' | '#'));
    let authority = authority.map_or(url.end, |length| url.start + length);
    let last = |end: usize| text.get(colon + 1..end)?.iter().rposition(is_at);
    if let Some(length) = last(authority) {
        return Some(colon + 1..colon + 1 + length);
    }
    // A password may have a slash that is not escaped. If only digits follow the colon, they are a port, and the `@` is
    // in the path.
    let is_port = authority < colon || text[colon + 1..authority].iter().all(char::is_ascii_digit);
    last(url.end).filter(|_| !is_port).map(|length| colon + 1..colon + 1 + length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_passwords_are_masked() {
        for (text, expected) in [
            ("http://user:secret@host:80/", "http://user:***@host:80/"),
            ("\"redis://:secret@host\"", "\"redis://:***@host\""),
            ("http://a:b@c, \"https://d:e@f\" g", "http://a:***@c, \"https://d:***@f\" g"),
            ("http://user:se@cret@host/", "http://user:***@host/"),
            ("http://user:se/cr#et@host/", "http://user:***@host/"),
            ("http://user:@host/", "http://user:***@host/"),
            ("http://user@host/", "http://user@host/"),
            ("http://host:80/a@b", "http://host:80/a@b"),
            ("http://[::1]:80/a@b", "http://[::1]:80/a@b"),
            ("\"http://u:it's a, secret@host\" a@b", "\"http://u:***@host\" a@b"),
            ("'http://u:\"@host' \"a@b", "'http://u:***@host' \"a@b"),
            ("x=http://u:p@host a@b", "x=http://u:***@host a@b"),
            ("\"http://u:p@host a@b", "\"http://u:***@host a@b"),
            ("http://host/a:b@c", "http://host/a:b@c"),
            ("user:secret@host", "user:secret@host"),
            ("://", "://"),
            ("a://:", "a://:"),
            ("http://\u{e9}:\u{e8}\u{e8}\u{e8}\u{e8}@\u{e0}", "http://\u{e9}:***@\u{e0}"),
        ] {
            assert_eq!(without(text), expected);
        }
    }

    #[test]
    fn the_marked_range_stays_marked() {
        let text: Vec<char> = "a://u:secret@h:1".chars().collect();
        for (marked, expected) in [
            ([0, 1], [0, 1]),
            ([4, 5], [4, 5]),
            ([6, 12], [6, 9]),
            ([7, 8], [6, 9]),
            ([0, 16], [0, 13]),
            ([8, 14], [6, 11]),
            ([13, 14], [10, 11]),
        ] {
            assert_eq!(masked(&text, marked).1, expected, "{marked:?}");
        }
    }

    #[test]
    fn nothing_is_left_to_mask_and_marks_stay_within_whatever_the_text() {
        const LETTERS: [char; 6] = [':', '/', '@', '"', ' ', 'a'];
        for number in 0..LETTERS.len().pow(6) {
            let mut text: Vec<char> = "x://".chars().collect();
            text.extend((0..6).map(|place| LETTERS[number / LETTERS.len().pow(place) % LETTERS.len()]));
            let once = masked(&text, [0, 0]).0;
            assert_eq!(masked(&once, [0, 0]).0, once, "{text:?}");
            for marked in [[0, text.len()], [4, 7], [5, 5], [6, 9], [8, 10], [10, 10]] {
                let (shown, [start, end]) = masked(&text, marked);
                assert!(start <= end && end <= shown.len(), "{text:?} {marked:?}: {start} to {end}");
            }
        }
    }
}
