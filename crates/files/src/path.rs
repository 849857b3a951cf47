//! Turns the path of a request into a file path: decoded once, relative to the root, and unambiguous.
//!
//! Dot segments are rejected, not resolved: browsers resolve them before they send a request, and routing has already
//! compared the path unchanged.

/// PATH_MAX of Linux.
const PATH_BYTES_MAX: usize = 4095;
/// The only name with a leading dot that is not hidden (RFC 8615).
const WELL_KNOWN: &[u8] = b".well-known";

/// The kind of file that a path can name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathForm {
    /// No slash at the end: a file, or a directory to redirect to.
    File,
    Directory,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathError {
    /// Parsers could disagree: a dot segment, an escaped slash, a backslash, NUL, a broken escape.
    Ambiguous,
    /// A segment begins with a dot.
    Hidden,
    TooLong,
}

/// Writes the file path for a request's path to `out`, without a leading slash; `.` is the root. Slashes are merged.
///
/// # Errors
/// If the path names no file.
pub fn file_path(path: &[u8], out: &mut Vec<u8>) -> Result<PathForm, PathError> {
    out.clear();
    let mut rest = path;
    let form = loop {
        let end = rest.iter().position(|&byte| byte == b'/').unwrap_or(rest.len());
        if end > 0 {
            push_segment(&rest[..end], out)?;
        }
        match rest.get(end + 1..) {
            Some(behind) => rest = behind,
            None => break if end > 0 { PathForm::File } else { PathForm::Directory },
        }
    };
    match out.len() {
        0 => out.push(b'.'),
        1..=PATH_BYTES_MAX => {}
        _ => return Err(PathError::TooLong),
    }
    Ok(form)
}

fn push_segment(mut segment: &[u8], out: &mut Vec<u8>) -> Result<(), PathError> {
    if !out.is_empty() {
        out.push(b'/');
    }
    let start = out.len();
    while let [first, rest @ ..] = segment {
        let (byte, behind) = match first {
            b'%' => escaped(rest)?,
            _ => (*first, rest),
        };
        // Parsers disagree whether an escaped slash, or a backslash, is a separator or a part of the name.
        if matches!(byte, b'/' | b'\\' | 0) {
            return Err(PathError::Ambiguous);
        }
        out.push(byte);
        segment = behind;
    }
    match &out[start..] {
        b"." | b".." => Err(PathError::Ambiguous),
        name if name.starts_with(b".") && name != WELL_KNOWN => Err(PathError::Hidden),
        _ => Ok(()),
    }
}

/// Decodes the two digits behind a percent sign, and returns the rest.
fn escaped(text: &[u8]) -> Result<(u8, &[u8]), PathError> {
    let [high, low, rest @ ..] = text else { return Err(PathError::Ambiguous) };
    let digit = |byte: u8| (byte as char).to_digit(16).map(|digit| digit as u8);
    let (Some(high), Some(low)) = (digit(*high), digit(*low)) else { return Err(PathError::Ambiguous) };
    Ok((high << 4 | low, rest))
}

/// Writes the redirect target for a directory: its path with a slash at the end. It stays on this host, because
/// `//name` would be another one (RFC 3986 §4.2).
pub fn local_redirect(path: &[u8], query: Option<&[u8]>, out: &mut Vec<u8>) {
    let start = path.iter().position(|&byte| byte != b'/').unwrap_or(path.len());
    out.push(b'/');
    out.extend_from_slice(&path[start..]);
    out.push(b'/');
    if let Some(query) = query {
        out.push(b'?');
        out.extend_from_slice(query);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(path: &[u8]) -> Result<(Vec<u8>, PathForm), PathError> {
        let mut out = b"left over".to_vec();
        file_path(path, &mut out).map(|form| (out, form))
    }

    #[test]
    fn paths_name_files_and_directories() {
        for (path, file, form) in [
            ("/", ".", PathForm::Directory),
            ("", ".", PathForm::Directory),
            ("//", ".", PathForm::Directory),
            ("/a", "a", PathForm::File),
            ("/a/", "a", PathForm::Directory),
            ("//a///b//", "a/b", PathForm::Directory),
            ("/a/b.html", "a/b.html", PathForm::File),
            ("/a%20b", "a b", PathForm::File),
            ("/%61", "a", PathForm::File),
            ("/a...b", "a...b", PathForm::File),
            ("/a.", "a.", PathForm::File),
            ("/a;v=1", "a;v=1", PathForm::File),
            ("/.well-known/acme-challenge/x", ".well-known/acme-challenge/x", PathForm::File),
            // Decoded once: the result is a file name.
            ("/%252e%252e/x", "%2e%2e/x", PathForm::File),
            ("/%252fetc", "%2fetc", PathForm::File),
        ] {
            assert_eq!(parse(path.as_bytes()), Ok((file.as_bytes().to_vec(), form)), "{path}");
        }
        // Overlong UTF-8 is passed on unchanged: no file system takes it for dots or slashes.
        assert_eq!(parse(b"/%c0%ae%c0%ae/x"), Ok((b"\xc0\xae\xc0\xae/x".to_vec(), PathForm::File)));
        assert_eq!(parse(b"/%c0%af"), Ok((b"\xc0\xaf".to_vec(), PathForm::File)));
    }

    #[test]
    fn what_could_lead_out_of_the_root_or_be_read_in_two_ways_names_nothing() {
        use PathError::{Ambiguous, Hidden, TooLong};
        let long = format!("/{}", "abc/".repeat(1025));
        for (path, error) in [
            ("/..", Ambiguous),
            ("/../etc/passwd", Ambiguous),
            ("/a/../b", Ambiguous),
            ("/a/..", Ambiguous),
            ("/./a", Ambiguous),
            ("/%2e%2e/etc", Ambiguous),
            ("/%2E./etc", Ambiguous),
            ("/.%2e", Ambiguous),
            ("/..%2fetc", Ambiguous),
            ("/a%2fb", Ambiguous),
            ("/a%2Fb", Ambiguous),
            ("/a%5cb", Ambiguous),
            ("/..\\etc", Ambiguous),
            ("/\\\\host\\share", Ambiguous),
            ("/a%00.html", Ambiguous),
            ("/%", Ambiguous),
            ("/%2", Ambiguous),
            ("/%zz", Ambiguous),
            ("/%+1", Ambiguous),
            ("/.git/config", Hidden),
            ("/%2egit/config", Hidden),
            ("/a/.htaccess", Hidden),
            ("/...", Hidden),
            ("/.well-known2", Hidden),
            ("/.WELL-KNOWN", Hidden),
            (&long, TooLong),
        ] {
            assert_eq!(parse(path.as_bytes()).map(|(_, form)| form), Err(error), "{path}");
        }
    }

    #[test]
    fn a_redirect_stays_on_its_host() {
        for (path, query, location) in [
            ("/a", None, "/a/"),
            ("//evil.example", None, "/evil.example/"),
            ("///a/b", Some("x=1"), "/a/b/?x=1"),
            ("/a", Some(""), "/a/?"),
        ] {
            let mut out = Vec::new();
            local_redirect(path.as_bytes(), query.map(str::as_bytes), &mut out);
            assert_eq!(String::from_utf8_lossy(&out), location, "{path}");
        }
    }

    proptest! {
        #[test]
        fn whatever_is_sent_names_something_below_the_root(path in proptest::collection::vec(
            prop_oneof![Just(b'/'), Just(b'.'), Just(b'%'), Just(b'2'), Just(b'e'), Just(b'f'), Just(b'\\'), any::<u8>()],
            0..24,
        )) {
            if let Ok((file, _)) = parse(&path) {
                prop_assert!(!file.starts_with(b"/") && !file.contains(&0));
                let is_plain = |name: &[u8]| !name.is_empty() && name != b"..";
                prop_assert!(file.split(|&byte| byte == b'/').all(is_plain));
                prop_assert!(file == b"." || file.split(|&byte| byte == b'/').all(|name| name != b"."));
            }
        }
    }
}
