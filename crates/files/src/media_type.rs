//! Media types by the extension of a file's name.

/// Returns the media type for a file name's extension, and the charset parameter: text is UTF-8.
#[must_use]
pub fn media_type(name: &[u8]) -> (&'static str, &'static str) {
    const UNKNOWN: &str = "application/octet-stream";
    let file = name.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    let Some(dot) = file.iter().rposition(|&byte| byte == b'.') else { return (UNKNOWN, "") };
    let extension = str::from_utf8(&file[dot + 1..]).unwrap_or_default();
    let known = match_newer(extension).or_else(|| mime_guess::from_ext(extension).first_raw());
    let media_type = known.unwrap_or(UNKNOWN);
    (media_type, if media_type.starts_with("text/") { "; charset=utf-8" } else { "" })
}

/// Types that the library lacks, or has in a form that is out of date.
fn match_newer(extension: &str) -> Option<&'static str> {
    const NEWER: [(&str, &str); 6] = [
        ("mjs", "text/javascript"),
        // Stream segments (RFC 8216 §3.2), as on most servers; TypeScript has no registered type.
        ("ts", "video/mp2t"),
        ("m2ts", "video/mp2t"),
        ("webmanifest", "application/manifest+json"),
        // A download: a client that decoded it would store another file.
        ("gz", "application/gzip"),
        ("map", "application/json"),
    ];
    NEWER.iter().find(|(known, _)| extension.eq_ignore_ascii_case(known)).map(|(_, media_type)| *media_type)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_extension_tells_the_type() {
        for (name, expected) in [
            ("index.html", "text/html; charset=utf-8"),
            ("a/b.HTM", "text/html; charset=utf-8"),
            ("app.js", "text/javascript; charset=utf-8"),
            ("app.mjs", "text/javascript; charset=utf-8"),
            ("app.css", "text/css; charset=utf-8"),
            ("notes.txt", "text/plain; charset=utf-8"),
            ("data.json", "application/json"),
            ("app.js.map", "application/json"),
            ("site.webmanifest", "application/manifest+json"),
            ("app.wasm", "application/wasm"),
            ("font.woff2", "font/woff2"),
            ("image.svg", "image/svg+xml"),
            ("image.png", "image/png"),
            ("image.jpg", "image/jpeg"),
            ("image.webp", "image/webp"),
            ("image.avif", "image/avif"),
            ("film.mp4", "video/mp4"),
            ("live/segment-1.ts", "video/mp2t"),
            ("paper.pdf", "application/pdf"),
            ("old.tar.gz", "application/gzip"),
            ("README", "application/octet-stream"),
            ("a.d/README", "application/octet-stream"),
            ("strange.qqq", "application/octet-stream"),
            ("ends.", "application/octet-stream"),
        ] {
            let (media_type, charset) = media_type(name.as_bytes());
            assert_eq!(format!("{media_type}{charset}"), expected, "{name}");
        }
    }
}
