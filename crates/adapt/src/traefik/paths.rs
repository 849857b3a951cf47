//! Path changes of several middlewares, combined to one expression for the whole path and its replacement.

use crate::draft::{DraftTable, StatementOrigin};
use crate::values;

/// A rewritten path under construction. Without a pattern the path is unchanged.
#[derive(Default)]
pub(super) struct Rewrite {
    pattern: Option<String>,
    to: String,
    from: Vec<StatementOrigin>,
}

impl Rewrite {
    /// Strips a prefix. Returns `false` if that is not expressible.
    pub(super) fn strip(&mut self, prefix: &str, from: Vec<StatementOrigin>) -> bool {
        let bare = prefix.trim_end_matches('/');
        if self.pattern.is_none() {
            *self = Self {
                pattern: Some(format!("{}/?(.*)", values::escaped(bare))),
                to: "/$1".to_owned(),
                from,
            };
            return true;
        }
        // The prefix that was added before is known.
        let Some(rest) = self.to.strip_prefix(bare).filter(|rest| rest.starts_with('/')) else {
            return false;
        };
        self.to = rest.to_owned();
        self.from.extend(from);
        true
    }

    pub(super) fn add(&mut self, prefix: &str, from: Vec<StatementOrigin>) {
        let prefix = escaped(prefix.trim_end_matches('/'));
        if self.pattern.is_none() {
            *self = Self { pattern: Some("(.*)".to_owned()), to: format!("{prefix}$1"), from };
            return;
        }
        self.to = format!("{prefix}{}", self.to);
        self.from.extend(from);
    }

    pub(super) fn replace(&mut self, path: &str, from: Vec<StatementOrigin>) {
        *self = Self { pattern: Some(".*".to_owned()), to: escaped(path), from };
    }

    /// Replaces the match of a Go expression. Returns `false` if that is not expressible.
    pub(super) fn replace_pattern(
        &mut self,
        pattern: &str,
        replacement: &str,
        from: Vec<StatementOrigin>,
    ) -> bool {
        let Some((pattern, rest)) = whole(pattern).filter(|_| self.pattern.is_none()) else { return false };
        let to = format!("{}{rest}", groups(replacement));
        if !to.starts_with('/') {
            return false;
        }
        *self = Self { pattern: Some(pattern), to, from };
        true
    }

    /// Writes the `rewrite` of a route, if anything changed.
    pub(super) fn write(self, options: &mut DraftTable) {
        let Some(pattern) = self.pattern else { return };
        options.extend("rewrite", ("pattern", pattern.into()), self.from);
        options.extend("rewrite", ("path", self.to.into()), Vec::new());
        // Traefik does not change Location and cookies of servers.
        options.set("location", false, Vec::new());
    }
}

/// Extends an expression to the whole path, and returns the placeholder for the part that Traefik's does not match;
/// `None` if it may match anywhere.
pub(super) fn whole(pattern: &str) -> Option<(String, &'static str)> {
    let body = pattern.strip_prefix('^').or_else(|| pattern.starts_with('/').then_some(pattern))?;
    let made = match body.strip_suffix('$') {
        Some(rest) if !rest.ends_with('\\') => (rest.to_owned(), ""),
        _ if body.ends_with("(.*)") || body.ends_with("(.+)") || body.ends_with(".*") => {
            (body.to_owned(), "")
        }
        _ => (format!("{body}(?P<rest>.*)"), "${capture.rest}"),
    };
    // Invalid expressions have no meaning here.
    values::expression(&format!("^{}$", made.0), false).ok().map(|pattern| (pattern, made.1))
}

/// Converts a Go replacement: `${1}` and `$1` are groups, `${name}` is a named one.
pub(super) fn groups(replacement: &str) -> String {
    let mut made = String::new();
    let mut letters = replacement.chars().peekable();
    while let Some(letter) = letters.next() {
        if letter != '$' {
            made.push(letter);
            continue;
        }
        let has_brace = letters.next_if_eq(&'{').is_some();
        let mut name = String::new();
        while let Some(next) = letters.next_if(|next| next.is_ascii_alphanumeric() || *next == '_') {
            name.push(next);
        }
        if has_brace {
            letters.next_if_eq(&'}');
        }
        made += &match name.parse::<u8>() {
            Ok(number) => format!("${{{number}}}"),
            Err(_) if name.is_empty() => "$$".to_owned(),
            Err(_) => format!("${{capture.{name}}}"),
        };
    }
    made
}

/// Escapes dollars.
pub(super) fn escaped(text: &str) -> String {
    text.replace('$', "$$")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(rewrite: Rewrite) -> String {
        let mut options = DraftTable::default();
        rewrite.write(&mut options);
        options.place()
    }

    #[test]
    fn prefixes_are_cut_off_and_put_in_front_in_order() {
        let mut both = Rewrite::default();
        assert!(both.strip("/api", Vec::new()));
        both.add("/v1/", Vec::new());
        both.add("/app", Vec::new());
        let expected = "rewrite = { pattern = \"/api/?(.*)\", path = \"/app/v1/$1\" }, location = false";
        assert_eq!(written(both), expected);
        let mut back = Rewrite::default();
        back.add("/v1", Vec::new());
        assert!(!back.strip("/v1", Vec::new()), "the path behind it may be anything");
        let mut constant = Rewrite::default();
        constant.replace("/a/$b", Vec::new());
        assert!(constant.strip("/a", Vec::new()));
        assert_eq!(written(constant), "rewrite = { pattern = \".*\", path = \"/$$b\" }, location = false");
        assert_eq!(written(Rewrite::default()), "");
    }

    #[test]
    fn expressions_of_go_match_the_whole_path() {
        let cases = [
            ("^/a/(.*)", "/b/$1", Some(("/a/(.*)", "/b/${1}"))),
            ("^/a/(.*)$", "/b/${1}", Some(("/a/(.*)", "/b/${1}"))),
            (
                "^/api/(?P<v>v[0-9])",
                "/${v}",
                Some(("/api/(?P<v>v[0-9])(?P<rest>.*)", "/${capture.v}${capture.rest}")),
            ),
            ("/a/(.*)", "/b/$1", Some(("/a/(.*)", "/b/${1}"))),
            ("b", "/c", None),
            ("^/(?!x)", "/c", None),
            ("^/a", "x", None),
        ];
        for (pattern, replacement, expected) in cases {
            let mut made = Rewrite::default();
            let is_said = made.replace_pattern(pattern, replacement, Vec::new());
            let found = is_said.then(|| (made.pattern.unwrap_or_default(), made.to));
            let expected = expected.map(|(pattern, to)| (pattern.to_owned(), to.to_owned()));
            assert_eq!(found, expected, "{pattern}");
        }
    }
}
