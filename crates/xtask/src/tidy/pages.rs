//! Each page of the documentation is in the table of contents, and links lead to existing files and headings.

use std::path::Path;

use super::Finding;
use crate::workspace::{TextFile, beside};

const CONTENTS: &str = "docs/SUMMARY.md";

pub(super) fn check(files: &[TextFile]) -> Vec<Finding> {
    let Some(contents) = files.iter().find(|file| file.path == CONTENTS) else { return Vec::new() };
    let is_page = |file: &&TextFile| {
        let name = file.path.strip_prefix("docs/").and_then(|name| name.strip_suffix(".md"));
        name.is_some_and(|name| !name.contains('/') && name != "SUMMARY")
    };
    let missing = files
        .iter()
        .filter(is_page)
        .filter(|file| !contents.text.contains(&format!("({})", &file.path[5..])));
    let mut findings: Vec<_> = missing
        .map(|file| Finding {
            path: file.path.clone(),
            line: 0,
            what: format!("the page is not in {CONTENTS}"),
            remedy: "add a line there",
        })
        .collect();
    for file in files.iter().filter(|file| file.path.ends_with(".md")) {
        for (line, text) in (1..).zip(file.text.lines()) {
            findings.extend(broken(file, files, text).map(|what| Finding {
                path: file.path.clone(),
                line,
                what,
                remedy: "link to a file or heading that is there",
            }));
        }
    }
    findings
}

fn broken(from: &TextFile, files: &[TextFile], line: &str) -> impl Iterator<Item = String> {
    links(line).filter_map(|link| {
        let (page, heading) =
            link.split_once('#').map_or((link, None), |(page, heading)| (page, Some(heading)));
        let path = if page.is_empty() {
            from.path.clone()
        } else {
            beside(Path::new(&from.path), page).display().to_string()
        };
        let found = files.iter().find(|file| file.path == path);
        match (found, heading) {
            (None, _) => {
                path.ends_with(".md").then(|| format!("the link leads to {path}, which is not there"))
            }
            (Some(page), Some(heading)) => {
                let is_there = page.text.lines().any(|line| line.starts_with('#') && anchor(line) == heading);
                (!is_there).then(|| format!("{path} has no heading #{heading}"))
            }
            (Some(_), None) => None,
        }
    })
}

fn links(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| rest.split(')').next()).filter(|link| !link.contains("://"))
}

fn anchor(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = text.chars().filter(|letter| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_'));
    kept.map(|letter| if letter == ' ' { '-' } else { letter }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_outside_of_the_book_and_broken_links_are_found() {
        let file = |path: &str, text: &str| TextFile { path: path.to_owned(), text: text.to_owned() };
        let files = |page: &str| {
            [
                file(CONTENTS, "- [a](a.md)"),
                file("docs/a.md", page),
                file("README.md", "# Top `x`\n## An `[upstream.NAME]`\n"),
                file("docs/results/b.md", ""),
            ]
        };
        let found =
            |page: &str| check(&files(page)).into_iter().map(|finding| finding.what).collect::<Vec<_>>();
        for (page, expected) in [
            (
                "[b](results/b.md), [top](../README.md#top-x), [site](https://a.example/c.md), [own](#here)\n# Here",
                None,
            ),
            ("[up](../README.md#an-upstreamname)", None),
            ("[b](b.md)", Some("the link leads to docs/b.md, which is not there")),
            ("[top](../README.md#bottom)", Some("README.md has no heading #bottom")),
            ("[own](#there)\n# Here", Some("docs/a.md has no heading #there")),
        ] {
            assert_eq!(found(page).first().map(String::as_str), expected, "{page}");
        }
        let [contents, page, ..] = files("");
        let lonely = file("docs/lonely.md", "");
        let findings = check(&[contents, page, lonely]);
        assert_eq!(
            findings.iter().map(|finding| finding.path.as_str()).collect::<Vec<_>>(),
            ["docs/lonely.md"]
        );
    }
}
