//! Lists a directory as HTML: directories first, then files, by name.

use std::io::Write;
use std::time::{Duration, UNIX_EPOCH};

use rustix::fs::{AtFlags, Dir, FileType, statat};

use crate::root::{OpenError, Root};

/// Longer listings are cut.
pub const ENTRIES_MAX: usize = 10_000;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListingEntry {
    pub is_directory: bool,
    pub name: Vec<u8>,
    pub bytes: u64,
    pub modified_unix_seconds: u64,
}

/// Reads the visible entries of a directory: regular files and directories that are not hidden. Blocks on the disk.
///
/// # Errors
/// If the directory cannot be read.
pub fn entries(root: &Root, path: &[u8], links: bool) -> Result<Vec<ListingEntry>, OpenError> {
    let directory = root.directory(path, links)?;
    let mut entries = Vec::new();
    for read in Dir::read_from(&directory)? {
        let read = read?;
        let name = read.file_name().to_bytes();
        if name.starts_with(b".") {
            continue;
        }
        // Where symbolic links may be followed, the target counts.
        let stat = match statat(&directory, read.file_name(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink && links => {
                root.stat(&[path, b"/", name].concat(), links)
            }
            stat => stat.map_err(OpenError::from),
        };
        let Ok(stat) = stat else { continue };
        let is_directory = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => true,
            FileType::RegularFile => false,
            _ => continue,
        };
        if entries.len() == ENTRIES_MAX {
            break;
        }
        entries.push(ListingEntry {
            is_directory,
            name: name.to_vec(),
            bytes: u64::try_from(stat.st_size).unwrap_or(0),
            modified_unix_seconds: u64::try_from(stat.st_mtime).unwrap_or(0),
        });
    }
    entries.sort_unstable_by(|one, other| {
        other.is_directory.cmp(&one.is_directory).then_with(|| one.name.cmp(&other.name))
    });
    Ok(entries)
}

/// Writes the HTML page of a directory. `path` is decoded and relative to the root; `.` is the root.
pub fn page(path: &[u8], entries: &[ListingEntry], out: &mut Vec<u8>) {
    let title = if path == b"." { b"/".to_vec() } else { [b"/", path, b"/"].concat() };
    out.extend_from_slice(b"<!DOCTYPE html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>Index of ");
    push_escaped(out, &title);
    out.extend_from_slice(
        b"</title>\n<style>td{padding-right:2em}td:nth-child(2){text-align:right}</style>\n<h1>Index of ",
    );
    push_escaped(out, &title);
    out.extend_from_slice(b"</h1>\n<table>\n");
    if path != b"." {
        out.extend_from_slice(b"<tr><td><a href=\"../\">../</a></td></tr>\n");
    }
    for ListingEntry { is_directory, name, bytes, modified_unix_seconds } in entries {
        let slash = if *is_directory { "/" } else { "" };
        // With `./` in front, text before a colon is not a scheme (RFC 3986 §4.2).
        out.extend_from_slice(b"<tr><td><a href=\"./");
        push_percent_encoded(out, name);
        let _ = write!(out, "{slash}\">");
        push_escaped(out, name);
        let length = if *is_directory { "-".to_owned() } else { bytes.to_string() };
        // The last second of the year 9999: HTTP dates end there.
        let seconds = (*modified_unix_seconds).min(253_402_300_799);
        let date = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(seconds));
        let _ = writeln!(out, "{slash}</a></td><td>{length}</td><td>{date}</td></tr>");
    }
    out.extend_from_slice(b"</table>\n");
    if entries.len() == ENTRIES_MAX {
        let _ = writeln!(out, "<p>Only the first {ENTRIES_MAX} entries are listed.</p>");
    }
}

/// Appends escaped HTML text. Bytes that are not UTF-8 become replacement characters.
fn push_escaped(out: &mut Vec<u8>, text: &[u8]) {
    for character in String::from_utf8_lossy(text).chars() {
        match character {
            '&' => out.extend_from_slice(b"&amp;"),
            '<' => out.extend_from_slice(b"&lt;"),
            '>' => out.extend_from_slice(b"&gt;"),
            '"' => out.extend_from_slice(b"&quot;"),
            '\'' => out.extend_from_slice(b"&#39;"),
            character => out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
}

/// Appends one path segment (RFC 3986 §3.3), with everything but unreserved characters percent-encoded.
fn push_percent_encoded(out: &mut Vec<u8>, segment: &[u8]) {
    for byte in segment {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(byte) {
            out.push(*byte);
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::root::MayBlock;

    #[test]
    fn a_listing_is_sorted_and_has_what_clients_may_have() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        for name in ["in/b", "in/A dir", "in/.hidden"] {
            fs::create_dir_all(at(name)).unwrap();
        }
        for name in ["in/z", "in/a", "in/.secret", "out"] {
            fs::write(at(name), "text").unwrap();
        }
        symlink("a", at("in/link")).unwrap();
        symlink("../../../../etc/passwd", at("in/leads-out")).unwrap();
        let root = Root::open(directory.path(), MayBlock::Maybe).unwrap();
        let names = |links| -> Vec<String> {
            let entries = entries(&root, b"in", links).unwrap();
            let name = |entry: &ListingEntry| {
                format!(
                    "{}{}",
                    String::from_utf8_lossy(&entry.name),
                    if entry.is_directory { "/" } else { "" }
                )
            };
            entries.iter().map(name).collect()
        };
        assert_eq!(names(false), ["A dir/", "b/", "a", "z"]);
        assert_eq!(names(true), ["A dir/", "b/", "a", "link", "z"]);
        assert!(matches!(entries(&root, b"gone", false), Err(OpenError::NotFound)));
    }

    #[test]
    fn names_are_escaped_in_text_and_in_links() {
        let entry = |name: &[u8], is_directory| ListingEntry {
            is_directory,
            name: name.to_vec(),
            bytes: 7,
            modified_unix_seconds: 1_727_776_800,
        };
        let entries = [
            entry(b"a&b", true),
            entry(b"<script>alert('x')</script>", false),
            entry(b"\" onclick=\"x", false),
            entry(b"javascript:x", false),
            entry(b"50%?#.txt", false),
            entry(b"\xff\xfe", false),
        ];
        let mut out = Vec::new();
        page(b"<in>", &entries, &mut out);
        let page_text = String::from_utf8(out).unwrap();
        assert!(page_text.contains("<title>Index of /&lt;in&gt;/</title>"));
        let lines: Vec<&str> = page_text.lines().filter(|line| line.starts_with("<tr>")).collect();
        let row = |href: &str, text: &str, length: &str| {
            format!(
                "<tr><td><a href=\"./{href}\">{text}</a></td><td>{length}</td>\
                 <td>Tue, 01 Oct 2024 10:00:00 GMT</td></tr>"
            )
        };
        assert_eq!(lines[0], "<tr><td><a href=\"../\">../</a></td></tr>");
        let expected = [
            row("a%26b/", "a&amp;b/", "-"),
            row(
                "%3Cscript%3Ealert%28%27x%27%29%3C%2Fscript%3E",
                "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;",
                "7",
            ),
            row("%22%20onclick%3D%22x", "&quot; onclick=&quot;x", "7"),
            row("javascript%3Ax", "javascript:x", "7"),
            row("50%25%3F%23.txt", "50%?#.txt", "7"),
            row("%FF%FE", "\u{fffd}\u{fffd}", "7"),
        ];
        assert_eq!(lines[1..], expected);
        let mut root = Vec::new();
        page(b".", &[], &mut root);
        assert!(!String::from_utf8(root).unwrap().contains("../"));
    }
}
