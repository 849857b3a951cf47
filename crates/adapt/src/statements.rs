//! Statements of another proxy's configuration as a tree, with their places. Tools beside the translation read it.
//!
//! Includes are resolved: their statements stand behind the statement that includes them.

use mistake::Mistake;

use crate::haproxy::{HaproxyLine, HaproxySection};
use crate::source::{Directive, SourceFiles};
use crate::varnish::{Declaration, VclToken};
use crate::{Include, environment};

/// A statement with its words, and its block if it has one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statement {
    /// As named by the caller.
    pub file: String,
    /// Counted from 1.
    pub line: usize,
    pub name: String,
    /// Without quotes. Environment variables are `${NAME}` or `${NAME:-default}`.
    pub words: Vec<String>,
    pub block: Option<Vec<Statement>>,
}

impl Statement {
    /// A word; empty if there is none.
    pub fn word(&self, index: usize) -> &str {
        self.words.get(index).map_or("", String::as_str)
    }

    pub fn inner(&self) -> &[Statement] {
        self.block.as_deref().unwrap_or_default()
    }

    /// Name and words, on one line.
    pub fn text(&self) -> String {
        crate::source::joined(&self.name, &self.words)
    }
}

/// Blocks of nginx whose content is a table.
const TABLES: [&str; 5] = ["types", "map", "geo", "split_clients", "match"];

/// Reads a configuration of nginx. Blocks in Lua are empty.
pub fn nginx(text: &str, file: &str, include: Include<'_>) -> Result<Vec<Statement>, Box<Mistake>> {
    let (tree, source) = crate::nginx::read(text, file, include)?;
    Ok(tree.into_iter().map(|directive| of_directive(directive, &source, None)).collect())
}

/// Reads a configuration of Caddy. The definitions of snippets have no block.
pub fn caddy(text: &str, file: &str, include: Include<'_>) -> Result<Vec<Statement>, Box<Mistake>> {
    let (tree, source) = crate::caddy::read(text, file, include)?;
    Ok(tree.into_iter().map(|directive| of_directive(directive, &source, None)).collect())
}

/// Reads a configuration of HAProxy: a statement for each section, with its lines as a block.
pub fn haproxy(text: &str, file: &str, _: Include<'_>) -> Result<Vec<Statement>, Box<Mistake>> {
    let (sections, source) = crate::haproxy::read(text, file)?;
    let of_line = |line: HaproxyLine, block| {
        let mut words = line.words.iter().map(|word| environment::written(word));
        let name = words.next().unwrap_or_default();
        Statement { block, ..placed(&source, line.number, name, words.collect()) }
    };
    let of_section = |section: HaproxySection| {
        let lines = section.lines.into_iter().map(|line| of_line(line, None)).collect();
        of_line(section.head, Some(lines))
    };
    Ok(sections.into_iter().map(of_section).collect())
}

/// Reads files of Traefik, in YAML or TOML: the blocks of all files in order. Items of lists have the name `-`, unless all
/// are texts: then these are the words of the list.
pub fn traefik(text: &str, file: &str, include: Include<'_>) -> Result<Vec<Statement>, Box<Mistake>> {
    let (tree, source) = crate::traefik::read(text, file, include)?;
    Ok(tree.into_iter().map(|node| of_node(node, &source)).collect())
}

/// Reads files of Apache. Names are in lower case, and those of sections in angle brackets.
pub fn apache(text: &str, file: &str, include: Include<'_>) -> Result<Vec<Statement>, Box<Mistake>> {
    let (tree, source) = crate::apache::read(text, file, include)?;
    Ok(tree.into_iter().map(|node| of_node(node, &source)).collect())
}

/// A statement whose words have no environment variables.
fn of_node(node: Directive, source: &SourceFiles) -> Statement {
    let block = node.block.map(|block| block.into_iter().map(|inner| of_node(inner, source)).collect());
    Statement { block, ..placed(source, node.number, node.name, node.words) }
}

/// Reads VCL. Texts keep their quotes. The arms of a condition are `if`, `elseif` and `else`, each with a block.
pub fn varnish(text: &str, file: &str, include: Include<'_>) -> Result<Vec<Statement>, Box<Mistake>> {
    let (declarations, source) = crate::varnish::read(text, file, include)?;
    let of_declaration = |declaration: Declaration| match declaration {
        Declaration::Block { number, kind, name, fields } => {
            let field = |(number, name, value): (usize, String, Vec<VclToken>)| {
                placed(&source, number, name, value.iter().map(written).collect())
            };
            let block = Some(fields.into_iter().map(field).collect());
            Statement { block, ..placed(&source, number, kind, vec![name]) }
        }
        Declaration::Acl { number, name, entries } => {
            let words = std::iter::once(name).chain(entries.iter().map(written)).collect();
            placed(&source, number, "acl".to_owned(), words)
        }
        Declaration::Sub { number, name, body } => {
            let block = Some(of_body(body, &source));
            Statement { block, ..placed(&source, number, "sub".to_owned(), vec![name]) }
        }
    };
    Ok(declarations.into_iter().map(of_declaration).collect())
}

fn of_body(body: Vec<crate::varnish::Statement>, source: &SourceFiles) -> Vec<Statement> {
    let mut all = Vec::new();
    for statement in body {
        match statement {
            crate::varnish::Statement::Plain { number, name, tokens } => {
                all.push(placed(source, number, name, tokens.iter().map(written).collect()));
            }
            crate::varnish::Statement::If(arms) => {
                let last = arms.len() - 1;
                for (index, (number, condition, body)) in arms.into_iter().enumerate() {
                    let name = match index {
                        0 => "if",
                        _ if index == last && condition.is_empty() => "else",
                        _ => "elseif",
                    };
                    let words = condition.iter().map(written).collect();
                    let block = Some(of_body(body, source));
                    all.push(Statement { block, ..placed(source, number, name.to_owned(), words) });
                }
            }
        }
    }
    all
}

/// Writes a token as VCL.
fn written(token: &VclToken) -> String {
    match token {
        VclToken::Word(word) => word.clone(),
        VclToken::Text(text) if text.contains(['"', '\n']) => format!("{{\"{text}\"}}"),
        VclToken::Text(text) => format!("\"{text}\""),
        VclToken::Sign(sign) => (*sign).to_owned(),
    }
}

fn of_directive(directive: Directive, source: &SourceFiles, table: Option<usize>) -> Statement {
    let Directive { number, name, words, block } = directive;
    // The numbers within tables belong to statements after them.
    let number = table.unwrap_or(number);
    let inner = table.or(TABLES.contains(&name.as_str()).then_some(number));
    let words = words.iter().map(|word| environment::written(word)).collect();
    let block =
        block.map(|block| block.into_iter().map(|inside| of_directive(inside, source, inner)).collect());
    Statement { block, ..placed(source, number, environment::written(&name), words) }
}

fn placed(source: &SourceFiles, number: usize, name: String, words: Vec<String>) -> Statement {
    let line = source.places.get(number).map_or(0, |place| place.line);
    Statement { file: source.file_of(number).to_owned(), line, name, words, block: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::told::nothing;

    /// Each statement on a line: its place, its depth, its text.
    fn shown(statements: &[Statement], depth: usize, all: &mut Vec<String>) {
        for statement in statements {
            all.push(format!("{} {depth} {}", statement.line, statement.text()));
            shown(statement.inner(), depth + 1, all);
        }
    }

    type ReadStatements = fn(&str, &str, Include<'_>) -> Result<Vec<Statement>, Box<Mistake>>;

    #[test]
    fn trees_have_places_and_words_without_quotes() {
        let cases: [(ReadStatements, &str, &[&str]); 5] = [
            (
                nginx,
                "map $uri $x {\n  ~^/a \"b c\";\n}\nserver {\n  location / { return 200 'a b'; }\n}\n",
                &["1 0 map $uri $x", "1 1 ~^/a b c", "4 0 server", "5 1 location /", "5 2 return 200 a b"],
            ),
            (
                haproxy,
                "frontend f\n  bind :80\n  use_backend \"$X\" if { path / }\n",
                &["1 0 frontend f", "2 1 bind :80", "3 1 use_backend ${X} if { path / }"],
            ),
            (
                caddy,
                "a.example.com {\n  @x path /a\n  respond @x \"no\" 403\n}\n",
                &["1 0 a.example.com", "2 1 @x path /a", "3 1 respond @x no 403"],
            ),
            (
                traefik,
                "http:\n  routers:\n    map:\n      rule: Path(`/a`)\n  services:\n    s:\n      loadBalancer:\n        servers:\n        - url: b\n",
                &[
                    "3 0 http",
                    "3 1 routers",
                    "3 2 map",
                    "4 3 rule Path(`/a`)",
                    "6 1 services",
                    "6 2 s",
                    "9 3 loadBalancer",
                    "9 4 servers",
                    "9 5 -",
                    "9 6 url b",
                ],
            ),
            (
                varnish,
                "vcl 4.1;\nbackend b { .host = \"a\"; }\nsub vcl_recv {\n  if (req.url ~ \"^/a\") {\n    return (pass);\n  }\n}\n",
                &[
                    "1 0 vcl 4.1",
                    "2 0 backend b",
                    "2 1 .host \"a\"",
                    "3 0 sub vcl_recv",
                    "4 1 if req.url ~ \"^/a\"",
                    "5 2 return ( pass )",
                ],
            ),
        ];
        for (read, text, lines) in cases {
            let mut all = Vec::new();
            shown(&read(text, "f", &mut nothing).expect("it is right"), 0, &mut all);
            assert_eq!(all, lines, "{text}");
        }
    }
}
