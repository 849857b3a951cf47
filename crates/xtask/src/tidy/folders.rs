//! Order of the folders of `proxy` and `config`, which only use those below them, and the size of cycles between modules.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::{self, Visit};
use syn::{ItemMod, ItemUse, Path};

use super::Finding;
use super::items::{flatten, is_test};
use crate::workspace::TextFile;

/// A crate whose folders have an order.
struct OrderedFolders {
    root: &'static str,
    /// The folders from top to bottom.
    order: &'static [&'static str],
    /// The most modules that may use each other in a circle.
    cycle_max: usize,
}

const CRATES: &[OrderedFolders] = &[
    OrderedFolders { root: "crates/proxy/src/", order: PROXY, cycle_max: 20 },
    OrderedFolders { root: "crates/config/src/", order: CONFIG, cycle_max: 10 },
];

/// A configuration, its checks, its tables, the kinds of options in them, and the text that they are read from.
const CONFIG: &[&str] = &["printed", "read", "config", "checks", "tables", "option", "document"];

/// The order of a request, and what it is based on.
const PROXY: &[&str] = &[
    "worker",
    "connection",
    "path",
    "gate",
    "cache",
    "files",
    "subrequest",
    "forward",
    "answer",
    "outgoing",
    "exchange",
    "record",
    "context",
    "owned",
    "faults",
    "open_files",
    "upstream",
    "body",
    "shaping",
    "listening",
    "context/plan",
    "store",
    "shared",
    "failure",
];

/// Checks all files at once, because a cycle goes through several.
pub(super) fn check(files: &[TextFile]) -> Vec<Finding> {
    CRATES.iter().flat_map(|ordered| ordered.check(files)).collect()
}

/// The lines and paths that each module uses.
type Modules<'f> = BTreeMap<&'f str, Vec<(usize, String)>>;

impl OrderedFolders {
    fn check(&self, files: &[TextFile]) -> Vec<Finding> {
        let mut modules = BTreeMap::new();
        for file in files {
            let Some(module) = file.path.strip_prefix(self.root).and_then(|path| path.strip_suffix(".rs"))
            else {
                continue;
            };
            let Ok(parsed) = syn::parse_file(&file.text) else { continue };
            if module != "lib" && !module.ends_with("/tests") {
                let mut uses = Uses { module, found: Vec::new() };
                uses.visit_file(&parsed);
                modules.insert(module, uses.found);
            }
        }
        let mut findings = self.against_order(&modules);
        findings.extend(self.large_cycles(&modules));
        findings
    }

    fn against_order(&self, modules: &Modules<'_>) -> Vec<Finding> {
        let mut findings = Vec::new();
        for (module, uses) in modules {
            let path = format!("{}{module}.rs", self.root);
            let finding = |line, what, remedy| Finding { path: path.clone(), line, what, remedy };
            let folder = self.folder(module);
            let Some(own) = self.rank(folder) else {
                let remedy = "give it a place in the order of crates/xtask/src/tidy/folders.rs";
                findings.push(finding(0, format!("the folder {folder} has no place in the order"), remedy));
                continue;
            };
            for (line, used) in uses {
                let used = self.folder(used);
                if self.rank(used).is_some_and(|rank| rank < own) {
                    let remedy = "move what both need to a folder below, or pass it in as a value";
                    findings.push(finding(*line, format!("{folder} uses {used}, which is above it"), remedy));
                }
            }
        }
        findings
    }

    /// The folder of a module: the longest that has a place, else the first part of its path.
    fn folder<'m>(&self, module: &'m str) -> &'m str {
        let is_in = |folder: &&&str| {
            module.strip_prefix(**folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let known = self.order.iter().filter(is_in).max_by_key(|folder| folder.len());
        known.copied().unwrap_or_else(|| module.split('/').next().unwrap_or(module))
    }

    fn rank(&self, folder: &str) -> Option<usize> {
        self.order.iter().position(|known| *known == folder)
    }

    fn large_cycles(&self, modules: &Modules<'_>) -> Vec<Finding> {
        let reached: BTreeMap<&str, BTreeSet<&str>> =
            modules.keys().map(|module| (*module, reached_from(module, modules))).collect();
        let mut seen = BTreeSet::new();
        let mut findings = Vec::new();
        for (module, others) in &reached {
            let cycle: Vec<_> =
                others.iter().copied().filter(|other| reached[other].contains(module)).collect();
            if cycle.len() > self.cycle_max && seen.insert(cycle.clone()) {
                findings.push(Finding {
                    path: format!("{}{module}.rs", self.root),
                    line: 0,
                    what: format!("{} modules use each other in a circle: {}", cycle.len(), cycle.join(", ")),
                    remedy: "move what they share to a module below",
                });
            }
        }
        findings
    }
}

/// Returns the modules that a module uses, directly or through others.
fn reached_from<'f>(module: &str, modules: &Modules<'f>) -> BTreeSet<&'f str> {
    let mut reached = BTreeSet::new();
    let mut next = vec![module];
    while let Some(module) = next.pop() {
        for (_, used) in &modules[module] {
            if let Some(used) = module_of(used, modules)
                && used != module
                && reached.insert(used)
            {
                next.push(used);
            }
        }
    }
    reached
}

/// Returns the module in a path that may continue to an item.
fn module_of<'f>(path: &str, modules: &Modules<'f>) -> Option<&'f str> {
    let mut rest = path;
    loop {
        if let Some((module, _)) = modules.get_key_value(rest) {
            return Some(module);
        }
        rest = rest.rsplit_once('/')?.0;
    }
}

/// Paths that a module uses outside of tests, from the root of the crate: line and path.
struct Uses<'f> {
    module: &'f str,
    found: Vec<(usize, String)>,
}

impl Uses<'_> {
    fn take(&mut self, line: usize, segments: &[String]) {
        let Some((first, rest)) = segments.split_first() else { return };
        let mut base: Vec<&str> = self.module.split('/').collect();
        let mut rest = rest;
        match first.as_str() {
            "crate" => base.clear(),
            "super" => {
                base.pop();
                while let Some(("super", more)) = rest.split_first().map(|(next, more)| (next.as_str(), more))
                {
                    base.pop();
                    rest = more;
                }
            }
            // A child, or another crate, whose path matches no module.
            child => base.extend((child != "self").then_some(child)),
        }
        let path: Vec<&str> = base.into_iter().chain(rest.iter().map(String::as_str)).collect();
        self.found.push((line, path.join("/")));
    }
}

impl<'ast> Visit<'ast> for Uses<'_> {
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
        if segments.len() > 1 {
            self.take(line, &segments);
        }
        visit::visit_path(self, path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> TextFile {
        TextFile { path: format!("{}{path}", CRATES[0].root), text: text.to_owned() }
    }

    fn findings(path: &str, text: &str) -> Vec<String> {
        check(&[file(path, text)]).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_folder_uses_those_below_it() {
        for (path, text, expected) in [
            ("cache/hit.rs", "use crate::context::plan::Plan;\nuse crate::cache::tier;\n", 0),
            ("cache/hit.rs", "use crate::path::run;\n", 1),
            ("cache/hit.rs", "use crate::{path::run, context::plan};\n", 1),
            ("cache/hit.rs", "fn f() {\n    crate::connection::client::serve();\n}\n", 1),
            ("cache/hit.rs", "fn f() {\n    super::super::connection::client::serve();\n}\n", 1),
            ("cache/hit.rs", "#[cfg(test)]\nmod tests {\n    use crate::path::run;\n}\n", 0),
            ("shaping.rs", "use transport::alarm;\nuse ::cache::Store;\n", 0),
            ("worker.rs", "use crate::connection::client;\n", 0),
            ("context/worker.rs", "use crate::upstream::Server;\n", 0),
            ("context/worker.rs", "use crate::exchange::run;\n", 1),
            ("context/plan/routes.rs", "use crate::context::worker::Worker;\n", 1),
            ("context/worker.rs", "use crate::context::plan::Plan;\n", 0),
            ("elsewhere/file.rs", "", 1),
        ] {
            assert_eq!(findings(path, text).len(), expected, "{path}: {text}");
        }
        assert_eq!(
            findings("body/pump.rs", "\nuse crate::cache::hit;\n"),
            [
                "crates/proxy/src/body/pump.rs:2: body uses cache, which is above it; move what both need to a folder below, \
              or pass it in as a value"
            ]
        );
    }

    #[test]
    fn a_circle_of_modules_has_a_limit() {
        let circle = |count: usize| -> Vec<TextFile> {
            let next = |number| format!("use crate::cache::m{}::Item;\n", (number + 1) % count);
            (0..count).map(|number| file(&format!("cache/m{number}.rs"), &next(number))).collect()
        };
        assert_eq!(check(&circle(CRATES[0].cycle_max)), []);
        let found = check(&circle(CRATES[0].cycle_max + 1));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].what.starts_with("21 modules use each other in a circle: cache/m0, "), "{found:?}");
        // Through a parent, a child and a path in code, too.
        let mut files = circle(CRATES[0].cycle_max);
        files[0].text = "fn f() {\n    super::outer::f();\n}\n".to_owned();
        files.push(file("cache/outer.rs", "pub use inner::g;\n"));
        files.push(file("cache/outer/inner.rs", "use crate::cache::m1::Item;\n"));
        assert_eq!(check(&files).len(), 1);
    }
}
