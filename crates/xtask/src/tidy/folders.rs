//! Order of the folders of `proxy`: a folder may use those below it. Exceptions are in a list, which is printed and can
//! only shrink: an unneeded entry is a finding.

use std::collections::BTreeSet;

use syn::visit::{self, Visit};
use syn::{ItemMod, ItemUse, Path};

use super::Finding;
use super::items::{flatten, is_test};
use crate::workspace::TextFile;

const ROOT: &str = "crates/proxy/src/";

/// The folders from top to bottom: the order of a request, and what it is based on.
const ORDER: &[&str] = &[
    "worker",
    "connection",
    "exchange",
    "cache",
    "files",
    "forward",
    "faults",
    "upstream",
    "body",
    "shaping",
    "context",
];

/// Exceptions: modules that use a folder above them, and that folder. Most are around the worker: it owns the state of
/// each stage, and stages reach it by reference.
const ALLOWED: &[(&str, &str)] = &[
    ("body/upload", "upstream"),
    ("context/client", "shaping"),
    ("context/client", "upstream"),
    ("context/exchange", "shaping"),
    ("context/exchange_slot", "body"),
    ("context/exchange_state", "faults"),
    ("context/explain", "body"),
    ("context/plan", "cache"),
    ("context/plan", "forward"),
    ("context/plan", "shaping"),
    ("context/plan/routes", "files"),
    ("context/plan/routes", "shaping"),
    ("context/plan/upstreams", "shaping"),
    ("context/snapshot", "upstream"),
    ("context/worker", "faults"),
    ("context/worker", "files"),
    ("context/worker", "shaping"),
    ("context/worker", "upstream"),
];

/// Prints the exceptions, for people who shorten the list.
pub(super) fn allowed() -> String {
    let of = |folder: &str| {
        let entries = ALLOWED.iter().filter(|(module, _)| module.split('/').next() == Some(folder));
        entries.map(|(module, above)| format!("{module} uses {above}")).collect::<Vec<_>>()
    };
    let lines: Vec<_> = ORDER
        .iter()
        .map(|folder| of(folder))
        .filter(|entries| !entries.is_empty())
        .map(|entries| format!("\n  {}", entries.join(", ")))
        .collect();
    format!("{} imports against the order of the folders are allowed:{}", ALLOWED.len(), lines.concat())
}

/// Checks all files at once, because the list is about all of them.
pub(super) fn check(files: &[TextFile]) -> Vec<Finding> {
    let mut needed = BTreeSet::new();
    let mut findings = Vec::new();
    for file in files {
        let Some(module) = file.path.strip_prefix(ROOT).and_then(|path| path.strip_suffix(".rs")) else {
            continue;
        };
        let Ok(parsed) = syn::parse_file(&file.text) else { continue };
        if module == "lib" || module.ends_with("/tests") {
            continue;
        }
        let folder = module.split('/').next().unwrap_or(module);
        let finding = |line, what, remedy| Finding { path: file.path.clone(), line, what, remedy };
        let Some(own) = rank(folder) else {
            let remedy = "give it a place in ORDER of crates/xtask/src/tidy/folders.rs";
            findings.push(finding(0, format!("the folder {folder} has no place in the order"), remedy));
            continue;
        };
        let mut uses = Uses::default();
        uses.visit_file(&parsed);
        for (line, used) in uses.0 {
            if rank(&used).is_none_or(|rank| rank >= own) {
                continue;
            }
            match ALLOWED.iter().find(|(from, above)| *from == module && *above == used) {
                Some(entry) => _ = needed.insert(entry),
                None => findings.push(finding(
                    line,
                    format!("{folder} uses {used}, which is above it"),
                    "move the data that both need to context, or pass it in as a value",
                )),
            }
        }
    }
    let has_product = files.iter().any(|file| file.path.starts_with(ROOT));
    for (module, above) in ALLOWED.iter().filter(|&entry| has_product && !needed.contains(entry)) {
        findings.push(Finding {
            path: "crates/xtask/src/tidy/folders.rs".to_owned(),
            line: 0,
            what: format!("{module} no longer uses {above}"),
            remedy: "remove the entry from ALLOWED",
        });
    }
    findings
}

fn rank(folder: &str) -> Option<usize> {
    ORDER.iter().position(|known| *known == folder)
}

/// Uses of `crate::…` paths outside of tests: line and folder.
#[derive(Default)]
struct Uses(Vec<(usize, String)>);

impl Uses {
    fn take(&mut self, line: usize, segments: &[String]) {
        if let [first, folder, ..] = segments
            && first == "crate"
        {
            self.0.push((line, folder.clone()));
        }
    }
}

impl<'ast> Visit<'ast> for Uses {
    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        if !module.attrs.iter().any(is_test) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if !item.attrs.iter().any(is_test) {
            visit::visit_item_impl(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        if item.attrs.iter().any(is_test) {
            return;
        }
        let mut paths = Vec::new();
        flatten(&item.tree, &mut Vec::new(), &mut paths);
        let line = item.use_token.span.start().line;
        paths.iter().for_each(|path| self.take(line, path));
    }

    fn visit_path(&mut self, path: &'ast Path) {
        let segments: Vec<_> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        let line = path.segments.first().map_or(0, |segment| segment.ident.span().start().line);
        self.take(line, &segments);
        visit::visit_path(self, path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(path: &str, text: &str) -> Vec<String> {
        let file = TextFile { path: format!("{ROOT}{path}"), text: text.to_owned() };
        let found = check(&[file]);
        // What the list says of other files is not the matter here.
        found.iter().filter(|finding| finding.path.starts_with(ROOT)).map(ToString::to_string).collect()
    }

    #[test]
    fn a_folder_uses_those_below_it() {
        for (path, text, expected) in [
            ("cache/hit.rs", "use crate::context::plan::Plan;\nuse crate::cache::tier;\n", 0),
            ("cache/hit.rs", "use crate::exchange::run;\n", 1),
            ("cache/hit.rs", "use crate::{exchange::run, context::plan};\n", 1),
            ("cache/hit.rs", "fn f() {\n    crate::connection::client::serve();\n}\n", 1),
            ("cache/hit.rs", "#[cfg(test)]\nmod tests {\n    use crate::exchange::run;\n}\n", 0),
            ("shaping.rs", "use transport::alarm;\nuse ::cache::Store;\n", 0),
            ("worker.rs", "use crate::connection::client;\n", 0),
            ("context/worker.rs", "use crate::upstream::Server;\n", 0),
            ("context/worker.rs", "use crate::exchange::run;\n", 1),
            ("elsewhere/file.rs", "", 1),
        ] {
            assert_eq!(findings(path, text).len(), expected, "{path}: {text}");
        }
        assert_eq!(
            findings("body/pump.rs", "\nuse crate::cache::hit;\n"),
            [
                "crates/proxy/src/body/pump.rs:2: body uses cache, which is above it; move the data that both need to context, or \
              pass it in as a value"
            ]
        );
    }

    #[test]
    fn what_is_allowed_and_not_needed_is_told() {
        let file = TextFile {
            path: format!("{ROOT}context/worker.rs"),
            text: "use crate::upstream::Server;\n".to_owned(),
        };
        let found: Vec<_> = check(&[file]).iter().map(ToString::to_string).collect();
        assert_eq!(found.len(), ALLOWED.len() - 1);
        assert!(
            found.iter().any(|line| line.contains("context/worker no longer uses faults; remove the entry")),
            "{found:?}"
        );
        assert!(
            !found.iter().any(|line| line.contains("context/worker no longer uses upstream")),
            "{found:?}"
        );
    }
}
