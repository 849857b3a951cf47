//! Splits a long text into its routes and the rest, so that a few routes are parsed at a time.
//!
//! The syntax tree of a route takes three times the memory of the route, and parsing takes twice that. A text that is not
//! certain to mean the same in pieces is not split. One with a mistake in its syntax is parsed as a whole afterwards, so
//! that mistakes and their places do not depend on the pieces.

use std::ops::Range;

/// A piece ends with the route that reaches this length. Shorter texts are parsed as a whole.
const PIECE_BYTES: usize = 64 << 10;

/// A text in pieces.
pub(crate) struct Pieces {
    /// The text with spaces in place of the routes, so that positions in it are those of the text.
    pub(crate) rest: String,
    /// The pieces of the text with the routes, each a whole number of `[[route]]` with their tables.
    pub(crate) routes: Vec<Range<usize>>,
    /// The number of `[[route]]`.
    pub(crate) route_count: usize,
}

/// Splits the texts of all files, or none of them: routes keep their order.
pub(crate) fn of_files<'t>(texts: impl Iterator<Item = &'t str> + Clone) -> Option<Vec<Pieces>> {
    let bytes: usize = texts.clone().map(str::len).sum();
    if bytes <= PIECE_BYTES { None } else { texts.map(|text| Pieces::parse(text, PIECE_BYTES)).collect() }
}

impl Pieces {
    /// Splits a text; `None` where a line that looks like a header may be part of a value, or where a table of a route
    /// does not follow its `[[route]]`.
    pub(crate) fn parse(text: &str, piece_bytes: usize) -> Option<Self> {
        let mut pieces = Self { rest: String::with_capacity(text.len()), routes: Vec::new(), route_count: 0 };
        let (mut at, mut depth, mut is_route) = (0, 0, false);
        for line in text.split_inclusive('\n') {
            let written = line.trim_start();
            if depth > 0 || !written.starts_with('[') {
                depth = depth_after(written, depth)?;
            } else if written.starts_with("[[route]]") {
                match pieces.routes.last_mut().filter(|piece| is_route && piece.len() < piece_bytes) {
                    Some(_) => {}
                    None => pieces.routes.push(at..at),
                }
                pieces.route_count += 1;
                is_route = true;
            } else if !is_table_of_route(written) {
                is_route = false;
            } else if !is_route {
                return None;
            }
            at += line.len();
            match pieces.routes.last_mut().filter(|_| is_route) {
                Some(piece) => {
                    piece.end = at;
                    pieces.rest.extend(std::iter::repeat_n(' ', line.len()));
                }
                None => pieces.rest += line,
            }
        }
        (depth == 0).then_some(pieces)
    }
}

fn is_table_of_route(header: &str) -> bool {
    header.trim_start_matches('[').starts_with("route.")
}

/// The number of open brackets after a line without a header. `None` for strings of several lines, and for what is not
/// TOML.
fn depth_after(line: &str, mut depth: usize) -> Option<usize> {
    let mut rest = line.as_bytes().iter().copied();
    while let Some(byte) = rest.next() {
        match byte {
            b'#' => break,
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.checked_sub(1)?,
            b'"' | b'\'' => {
                if rest.clone().take(2).eq([byte, byte]) {
                    return None;
                }
                // An escaped quote does not end a basic string.
                while let Some(inside) = rest.next().filter(|inside| *inside != byte) {
                    if inside == b'\\' && byte == b'"' {
                        rest.next();
                    }
                }
            }
            _ => {}
        }
    }
    Some(depth)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_are_taken_out_with_their_tables() {
        let head = "a = [ # ]\n  [\"\\\"]\"],\n  ['[']\n]\n[[listen]]\nb = 1\n";
        let one = "[[route]] # first\nhost = \"[x]\"\n[route.headers]\nc = ']'\n";
        let two = "  [[route]]\nd = {\n e = [1]\n}\n[[route.fault]]\n";
        let tail = "[upstream.a]\nf = 1";
        let text = [head, one, two, tail].concat();
        let blank = " ".repeat(one.len() + two.len());
        for (piece_bytes, routes) in [(1, &[one, two][..]), (1000, &[&*format!("{one}{two}")])] {
            let pieces = Pieces::parse(&text, piece_bytes).expect("it can be split");
            assert_eq!(pieces.rest, [head, &blank, tail].concat());
            let found: Vec<_> = pieces.routes.iter().map(|piece| &text[piece.clone()]).collect();
            assert_eq!((found, pieces.route_count), (routes.to_vec(), 2));
        }
    }

    #[test]
    fn what_may_mean_something_else_is_not_split() {
        for text in [
            "a = \"\"\"\n[[route]]\n\"\"\"",
            "a = '''\n[[route]]\n'''",
            "a = [\n[[route]]\n",
            "a = ]\n[[route]]\n",
            "[[route]]\n[upstream.a]\n[route.headers]\n",
        ] {
            assert!(Pieces::parse(text, 1).is_none(), "{text}");
        }
        // Headers in other forms stay in the rest, where they are found.
        for text in ["[ [route] ]\n", "[[\"route\"]]\n", "[route]\n", "route = []\n", "[[routes]]\n"] {
            let pieces = Pieces::parse(text, 1).expect("it can be split");
            assert_eq!((&*pieces.rest, pieces.route_count), (text, 0));
        }
    }
}
