//! Verdicts on statements by name: which need nothing, and which are unsupported for what reason.
//!
//! Each peer has a table as text, `known.txt`. A row is a list of names, separated by commas (`*` stands for all
//! others), and a line with a sign and the reason. A line after `>` says what to do instead.

use crate::RemarkKind;
use crate::sheet::Said;

/// A table. After `-` the statement needs nothing, after `!` it is refused, and after `?` it is refused unless it is
/// `off`. After `~` as well, but because nothing here uses it.
pub(crate) struct KnownDirective(pub(crate) &'static str);

struct KnownRow {
    names: Vec<&'static str>,
    sign: char,
    why: &'static str,
    instead: &'static str,
}

impl KnownDirective {
    /// Returns the verdict on a statement by its name, or the one for all others.
    pub(crate) fn said(&self, name: &str, text: &str) -> Said {
        let said = self.find(name, text).or_else(|| self.find("*", text));
        said.unwrap_or_else(|| (RemarkKind::Refused, "it is not known".to_owned(), String::new()))
    }

    pub(crate) fn find(&self, name: &str, text: &str) -> Option<Said> {
        let row = self.rows().into_iter().find(|row| row.names.contains(&name))?;
        Some(match row.sign {
            '-' => (RemarkKind::NeedsNothing, row.why.to_owned(), String::new()),
            '?' | '~' if text.split_once(' ').is_some_and(|(_, value)| value == "off") => {
                (RemarkKind::NeedsNothing, "it is off by default".to_owned(), String::new())
            }
            '~' => (RemarkKind::Unused, row.why.to_owned(), row.instead.to_owned()),
            _ => (RemarkKind::Refused, row.why.to_owned(), row.instead.to_owned()),
        })
    }

    fn rows(&self) -> Vec<KnownRow> {
        let mut rows: Vec<KnownRow> = Vec::new();
        let mut names = Vec::new();
        for line in self.0.lines() {
            match (line.chars().next(), line.get(2..).unwrap_or_default()) {
                (None | Some('#'), _) => {}
                (Some(sign @ ('-' | '!' | '?' | '~')), why) => {
                    rows.push(KnownRow { names: std::mem::take(&mut names), sign, why, instead: "" });
                }
                (Some('>'), way_out) => {
                    if let Some(KnownRow { instead, .. }) = rows.last_mut() {
                        *instead = way_out;
                    }
                }
                _ => names.extend(line.split(',').map(str::trim).filter(|name| !name.is_empty())),
            }
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_name_has_one_row_and_each_refusal_a_remedy() {
        use crate::{caddy, haproxy, nginx, pound, squid, varnish};
        for known in
            [&nginx::KNOWN, &haproxy::KNOWN, &caddy::KNOWN, &squid::KNOWN, &varnish::KNOWN, &pound::KNOWN]
        {
            let mut names = BTreeSet::new();
            for KnownRow { names: of_row, sign, why, instead } in known.rows() {
                assert!(!why.is_empty() && (sign == '-') == instead.is_empty(), "{of_row:?}");
                assert!(!of_row.is_empty(), "{why}");
                for name in of_row {
                    assert!(names.insert(name), "{name} is said twice");
                }
            }
            assert!(names.contains("*"));
        }
    }
}
