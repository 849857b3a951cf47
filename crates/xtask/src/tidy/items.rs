//! Rules for the items of a Rust file, from its syntax tree: function lengths, names, docs of modules, reasons for
//! `unsafe`, and purity. Tokens of macros are checked only for some rules.

use proc_macro2::{Span, TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, Block, Ident, ImplItemFn, ItemFn, ItemImpl, ItemMod, Signature, TraitItemFn, UseTree};

use super::files::VAGUE_NAMES;
use super::{Finding, arrows};
use crate::workspace::TextFile;

const FUNCTION_LINES_MAX: usize = 70;

/// Vague endings of type names, which fit any type.
const VAGUE_ENDINGS: &[&str] = &["Manager", "Helper", "Util", "Utils", "Info"];

pub(super) fn check(file: &TextFile, findings: &mut Vec<Finding>) {
    let lines: Vec<&str> = file.text.lines().collect();
    let mut items = Items {
        path: &file.path,
        lines: &lines,
        findings,
        in_tests: is_test_file(&file.path),
        in_trait_impl: false,
        is_pure: crate_of(&file.path).is_some_and(arrows::is_pure),
    };
    let parsed = file.text.parse::<TokenStream>().map_err(syn::Error::from);
    match parsed.and_then(|tokens| syn::parse2::<syn::File>(tokens.clone()).map(|tree| (tokens, tree))) {
        Ok((tokens, tree)) => {
            items.visit_file(&tree);
            items.check_unsafe(tokens, &lines);
        }
        Err(error) => {
            items.find(error.span(), format!("this is not valid Rust: {error}"), "make it compile first");
        }
    }
}

/// Whether a line is a comment other than documentation.
pub(super) fn is_reason(line: &str) -> bool {
    let line = line.trim_start();
    line.starts_with("//") && !line.starts_with("///") && !line.starts_with("//!")
}

fn is_test_file(path: &str) -> bool {
    path.contains("/tests/") || path.contains("/benches/") || path.ends_with("/tests.rs")
}

/// Crate of a path: `http1` of `crates/http1/src/…`.
fn crate_of(path: &str) -> Option<&str> {
    let (name, rest) = path.strip_prefix("crates/")?.split_once('/')?;
    rest.starts_with("src/").then_some(name)
}

struct Items<'c> {
    path: &'c str,
    /// The lines of the file.
    lines: &'c [&'c str],
    findings: &'c mut Vec<Finding>,
    in_tests: bool,
    in_trait_impl: bool,
    is_pure: bool,
}

impl Items<'_> {
    fn find(&mut self, at: Span, what: String, remedy: &'static str) {
        self.findings.push(Finding { path: self.path.to_owned(), line: at.start().line, what, remedy });
    }

    fn check_function(&mut self, attributes: &[Attribute], signature: &Signature, body: &Block) {
        let name = signature.ident.to_string();
        if name.starts_with("get_") && !self.in_trait_impl {
            let what = format!("`{name}` starts with `get_`");
            self.find(signature.span(), what, "name it after what it returns");
        }

        let start = signature.span().start().line;
        let mut lines = lines_of(start, body.span());
        // Reasons are wanted, so they take no room.
        let of_function = &self.lines[start - 1..body.span().end().line];
        lines -= of_function.iter().filter(|line| is_reason(line)).count();
        if self.in_tests || attributes.iter().any(is_test) {
            let mut tables = Tables { lines: 0 };
            tables.visit_block(body);
            lines -= tables.lines;
        }
        if lines > FUNCTION_LINES_MAX {
            let what = format!("`{name}` has {lines} lines, more than {FUNCTION_LINES_MAX}");
            let remedy =
                "split it where its steps have names of their own (tables of test cases don't count)";
            self.find(signature.span(), what, remedy);
        }
    }

    fn check_type_name(&mut self, name: &Ident) {
        let text = name.to_string();
        if let Some(ending) = VAGUE_ENDINGS.iter().find(|ending| text.ends_with(**ending)) {
            self.find(
                name.span(),
                format!("`{ending}` in `{text}` says nothing"),
                "name it after what it is",
            );
        }
    }

    /// Checks that a pure crate uses no clock, thread, file or socket.
    fn check_purity(&mut self, at: Span, segments: &[String]) {
        if self.is_pure && !self.in_tests && is_impure(segments) {
            let what = format!("a pure crate uses `{}`", segments.join("::"));
            self.find(at, what, "take what it yields as an argument");
        }
    }

    /// Checks tokens, to find an `unsafe` inside a macro too.
    fn check_unsafe(&mut self, tokens: TokenStream, lines: &[&str]) {
        for token in tokens {
            match token {
                TokenTree::Group(group) => self.check_unsafe(group.stream(), lines),
                TokenTree::Ident(ident) if ident == "unsafe" && !has_reason(ident.span(), lines) => {
                    let remedy = "say above it why it is sound";
                    self.find(ident.span(), "`unsafe` without a `// SAFETY:` comment".to_owned(), remedy);
                }
                _ => {}
            }
        }
    }

    /// Calls `visit` with these flags, then restores the previous ones.
    fn within(&mut self, in_tests: bool, in_trait_impl: bool, visit: impl FnOnce(&mut Self)) {
        let before = (self.in_tests, self.in_trait_impl);
        (self.in_tests, self.in_trait_impl) = (in_tests, in_trait_impl);
        visit(self);
        (self.in_tests, self.in_trait_impl) = before;
    }
}

impl<'ast> Visit<'ast> for Items<'_> {
    fn visit_item_fn(&mut self, function: &'ast ItemFn) {
        self.check_function(&function.attrs, &function.sig, &function.block);
        let in_tests = self.in_tests || function.attrs.iter().any(is_test);
        self.within(in_tests, false, |items| visit::visit_item_fn(items, function));
    }

    fn visit_impl_item_fn(&mut self, function: &'ast ImplItemFn) {
        self.check_function(&function.attrs, &function.sig, &function.block);
        visit::visit_impl_item_fn(self, function);
    }

    fn visit_trait_item_fn(&mut self, function: &'ast TraitItemFn) {
        if let Some(body) = &function.default {
            self.check_function(&function.attrs, &function.sig, body);
        }
        visit::visit_trait_item_fn(self, function);
    }

    fn visit_item_impl(&mut self, item: &'ast ItemImpl) {
        self.within(self.in_tests, item.trait_.is_some(), |items| visit::visit_item_impl(items, item));
    }

    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        let is_for_tests = module.attrs.iter().any(is_test);
        let name = module.ident.to_string();
        if VAGUE_NAMES.contains(&name.as_str()) {
            let what = format!("`mod {name}` says nothing about what is inside");
            self.find(module.ident.span(), what, "name it after what it holds");
        }
        if !is_for_tests && !module.attrs.iter().any(|attribute| attribute.path().is_ident("doc")) {
            let what = format!("`mod {name}` has no `///` line");
            self.find(
                module.ident.span(),
                what,
                "say in one what it is for: the list of modules is the contents",
            );
        }
        self.within(self.in_tests || is_for_tests, false, |items| visit::visit_item_mod(items, module));
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        self.check_type_name(&item.ident);
        visit::visit_item_struct(self, item);
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        self.check_type_name(&item.ident);
        visit::visit_item_enum(self, item);
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.check_type_name(&item.ident);
        visit::visit_item_trait(self, item);
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        let mut paths = Vec::new();
        flatten(&item.tree, &mut Vec::new(), &mut paths);
        for path in paths {
            self.check_purity(item.span(), &path);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments: Vec<_> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        self.check_purity(path.span(), &segments);
        visit::visit_path(self, path);
    }
}

/// Counts the lines of tables in a test: arrays, `vec!`, `json!`, and multi-line texts. Each table counts as one line.
struct Tables {
    lines: usize,
}

impl<'ast> Visit<'ast> for Tables {
    fn visit_expr_array(&mut self, array: &'ast syn::ExprArray) {
        self.lines += inner_lines(array.span());
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        if call.path.is_ident("vec") || call.path.is_ident("json") {
            self.lines += inner_lines(call.span());
        }
    }

    fn visit_lit(&mut self, literal: &'ast syn::Lit) {
        self.lines += inner_lines(literal.span());
    }
}

fn lines_of(start: usize, span: Span) -> usize {
    span.end().line - start + 1
}

fn inner_lines(span: Span) -> usize {
    span.end().line - span.start().line
}

/// Whether an attribute is `#[test]`, `#[tokio::test]` or `#[cfg(test)]`.
pub(super) fn is_test(attribute: &Attribute) -> bool {
    if attribute.path().is_ident("cfg") {
        return attribute.meta.require_list().is_ok_and(|list| list.tokens.to_string() == "test");
    }
    attribute.path().segments.last().is_some_and(|last| last.ident == "test")
}

/// Whether a comment with the reason is directly above, also above attributes or the statement that contains `unsafe`.
fn has_reason(at: Span, lines: &[&str]) -> bool {
    let mut code_lines_left = 2;
    for line in lines[..at.start().line].iter().rev() {
        if line.contains("SAFETY:") || line.contains("# Safety") {
            return true;
        }
        let line = line.trim_start();
        if !line.starts_with("//") && !line.starts_with("#[") {
            if code_lines_left == 0 {
                return false;
            }
            code_lines_left -= 1;
        }
    }
    false
}

fn is_impure(segments: &[String]) -> bool {
    const MODULES: &[&str] = &["thread", "fs", "process", "env", "os"];
    const SOCKETS: &[&str] =
        &["TcpStream", "TcpListener", "UdpSocket", "UnixStream", "UnixListener", "UnixDatagram"];
    let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
    match segments[..] {
        [.., "Instant" | "SystemTime", "now"] => true,
        ["std", module, ..] if MODULES.contains(&module) => true,
        _ => segments.iter().any(|segment| SOCKETS.contains(segment)),
    }
}

pub(super) fn flatten(tree: &UseTree, before: &mut Vec<String>, paths: &mut Vec<Vec<String>>) {
    let mut leaf = |name: Option<&Ident>| {
        paths.push(before.iter().cloned().chain(name.map(Ident::to_string)).collect());
    };
    match tree {
        UseTree::Name(name) => leaf(Some(&name.ident)),
        UseTree::Rename(rename) => leaf(Some(&rename.ident)),
        UseTree::Glob(_) => leaf(None),
        UseTree::Path(path) => {
            before.push(path.ident.to_string());
            flatten(&path.tree, before, paths);
            before.pop();
        }
        UseTree::Group(group) => group.items.iter().for_each(|tree| flatten(tree, before, paths)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(path: &str, text: &str) -> Vec<String> {
        let mut findings = Vec::new();
        check(&TextFile { path: path.to_owned(), text: text.to_owned() }, &mut findings);
        findings.into_iter().map(|finding| format!("{}: {}", finding.line, finding.what)).collect()
    }

    fn body(lines: usize) -> String {
        "    work();\n".repeat(lines)
    }

    fn table(lines: usize) -> String {
        format!("    for case in [\n{}    ] {{ work(case); }}\n", "        1,\n".repeat(lines))
    }

    #[test]
    fn functions_are_at_most_70_lines() {
        let long =
            |head: &str, body: String| findings("crates/proxy/src/x.rs", &format!("{head}\n{body}}}\n"));
        assert_eq!(long("fn f() {", body(68)), Vec::<String>::new());
        assert_eq!(long("fn f() {", body(69)), ["1: `f` has 71 lines, more than 70"]);
        assert_eq!(long("/// Docs\n/// don't count.\nfn f() {", body(68)), Vec::<String>::new());
        assert_eq!(long("impl T { fn f() {", body(69) + "}"), ["1: `f` has 71 lines, more than 70"]);
    }

    #[test]
    fn tables_of_test_cases_don_t_count() {
        let text = |attribute: &str, body: String| format!("{attribute}\nfn f() {{\n{body}}}\n");
        let path = "crates/proxy/src/x.rs";
        assert_eq!(findings(path, &text("#[test]", table(200))), Vec::<String>::new());
        assert_eq!(findings(path, &text("#[tokio::test]", table(200))), Vec::<String>::new());
        assert_eq!(findings(path, &text("", table(200))).len(), 1);
        assert_eq!(findings("crates/proxy/tests/x.rs", &text("", table(200))), Vec::<String>::new());
        assert_eq!(findings(path, &text("#[test]", table(200) + &body(70))).len(), 1);
        let inside = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", text("", table(200)));
        assert_eq!(findings(path, &inside), Vec::<String>::new());
    }

    #[test]
    fn unsafe_has_a_reason() {
        for (text, found) in [
            ("fn f() {\n    // SAFETY: it is.\n    unsafe { g() }\n}\n", 0),
            (
                "fn f() {\n    // SAFETY: it is,\n    // over two lines.\n    let x =\n        unsafe { g() };\n}\n",
                0,
            ),
            ("// SAFETY: it is.\n#[allow(unsafe_code)]\nunsafe impl Send for T {}\n", 0),
            ("/// # Safety\n/// The caller knows.\nunsafe fn f() {}\n", 0),
            ("fn f() {\n    unsafe { g() }\n}\n", 1),
            ("fn f() {\n    m!(unsafe { g() });\n}\n", 1),
            ("// SAFETY: far away.\n\n\n\nunsafe impl Send for T {}\n", 1),
            ("#[allow(unsafe_code)]\nfn f() { let text = \"unsafe\"; }\n", 0),
        ] {
            assert_eq!(findings("crates/proxy/src/x.rs", text).len(), found, "{text}");
        }
    }

    #[test]
    fn pure_crates_touch_nothing() {
        for (text, found) in [
            ("use std::time::Instant;\nfn f(now: Instant) {}\n", 0),
            ("use std::net::IpAddr;\n", 0),
            ("#[cfg(test)]\nmod tests { fn f() { Instant::now(); } }\n", 0),
            ("fn f() { let now = Instant::now(); }\n", 1),
            ("fn f() { let now = std::time::SystemTime::now(); }\n", 1),
            ("use std::thread;\n", 1),
            ("use std::{fmt, fs::File};\n", 1),
            ("fn f(stream: &std::net::TcpStream) {}\n", 1),
        ] {
            assert_eq!(findings("crates/http1/src/x.rs", text).len(), found, "{text}");
            assert_eq!(findings("crates/proxy/src/x.rs", text).len(), 0, "{text}");
            assert_eq!(findings("crates/http1/tests/x.rs", text).len(), 0, "{text}");
        }
    }

    #[test]
    fn names_and_modules_say_what_they_are() {
        for (text, found) in [
            ("/// Parses.\nmod parse;\n", vec![]),
            ("mod parse;\n", vec!["1: `mod parse` has no `///` line"]),
            ("#[cfg(test)]\nmod tests;\n", vec![]),
            ("/// Things.\nmod util {}\n", vec!["2: `mod util` says nothing about what is inside"]),
            ("struct PoolManager;\n", vec!["1: `Manager` in `PoolManager` says nothing"]),
            ("struct Managed;\n", vec![]),
            ("fn get_name() {}\n", vec!["1: `get_name` starts with `get_`"]),
            ("impl T { fn get_name() {} }\n", vec!["1: `get_name` starts with `get_`"]),
            ("impl Foreign for T { fn get_name() {} }\n", vec![]),
            ("fn target() {}\n", vec![]),
        ] {
            assert_eq!(findings("crates/proxy/src/x.rs", text), found, "{text}");
        }
    }
}
