//! Facts of VCL: backends, lists of networks, conditions.

/// Conditions of `if`.
mod conditions;
/// Rewrites the configuration.
mod rewrite;

use adapt::statements::Statement;

use crate::OldProxy;
use crate::old::{OldCondition, OldConfiguration, OldDoor, OldRule, Site, StatementPlace};
pub(crate) use rewrite::original;

/// The default port of varnishd.
pub(crate) const PORT: u16 = 6081;

pub(crate) fn examine(statements: Vec<Statement>) -> OldConfiguration {
    let mut old = OldConfiguration::new(OldProxy::Varnish, statements);
    let statements = old.statements.clone();
    let door = OldDoor::plain(PORT);
    let door = old.door(door);
    let mut lists = Vec::new();
    for statement in &statements {
        match statement.name.as_str() {
            "backend" => match backend(statement) {
                Some(written) => old.server(&written, 80, Some(statement.word(0))),
                None => old.untested(statement, "only TCP servers have stand-ins"),
            },
            "acl" => {
                let networks: Vec<String> =
                    entries(statement).into_iter().map(|entry| entry.network).collect();
                networks.iter().for_each(|network| old.network(network));
                lists.push((statement.word(0).to_owned(), networks));
            }
            "import" if !matches!(statement.word(0), "std" | "directors") => {
                old.untested(statement, "the module may be missing");
            }
            _ => {}
        }
    }
    directors(&statements, &mut old);
    let mut rules = Vec::new();
    for sub in statements.iter().filter(|statement| statement.name == "sub") {
        if is_reached(sub) {
            block(sub, &[], &lists, &mut rules);
        }
    }
    old.sites = vec![Site { doors: vec![door], hosts: Vec::new(), rules }];
    old
}

/// The backends of a director are one group, of which any may answer. With `fallback`, each has its own place.
fn directors(statements: &[Statement], old: &mut OldConfiguration) {
    let of_start = statements.iter().filter(|sub| sub.name == "sub" && sub.word(0) == "vcl_init");
    let mut names: Vec<&str> = Vec::new();
    for statement in of_start.flat_map(Statement::inner) {
        if statement.name == "new" && !statement.words.iter().any(|word| word.ends_with(".fallback")) {
            names.push(statement.word(0));
        }
        let Some((director, "add_backend")) = statement.name.split_once('.') else { continue };
        let Some(backend) = statement.words.iter().find(|word| *word != "(") else { continue };
        for server in old.servers.iter_mut().filter(|_| names.contains(&director)) {
            if server.group == *backend {
                director.clone_into(&mut server.group);
            }
        }
    }
}

/// Whether requests reach a subroutine.
fn is_reached(sub: &Statement) -> bool {
    !matches!(sub.word(0), "vcl_init" | "vcl_fini")
}

/// Networks by the name of their list.
type Lists = Vec<(String, Vec<String>)>;

fn block(block_of: &Statement, base: &[OldCondition], lists: &Lists, rules: &mut Vec<OldRule>) {
    for statement in block_of.inner() {
        if matches!(statement.name.as_str(), "if" | "elseif" | "else") {
            let mut conditions = base.to_vec();
            conditions.extend(conditions::of_if(&statement.words, lists));
            rules.push(OldRule { place: StatementPlace::of(statement), conditions: conditions.clone() });
            block(statement, &conditions, lists, rules);
        }
    }
}

/// `HOST:PORT` of a backend.
fn backend(statement: &Statement) -> Option<String> {
    let field = |name: &str| {
        statement.inner().iter().find(|field| field.name == name).map(|field| unquoted(field.word(0)))
    };
    let host = field(".host")?;
    Some(format!("{host}:{}", field(".port").unwrap_or("80")))
}

/// An entry of a list of networks.
struct AclEntry {
    network: String,
    is_excluded: bool,
}

fn entries(acl: &Statement) -> Vec<AclEntry> {
    let mut all = Vec::new();
    let words = acl.words.get(1..).unwrap_or_default();
    for entry in words.split(|word| word == ";") {
        let is_excluded = entry.first().is_some_and(|word| word == "!");
        let text: String = entry
            .iter()
            .filter(|word| !matches!(word.as_str(), "!" | "(" | ")"))
            .map(|word| unquoted(word))
            .collect();
        if !text.is_empty() {
            let network = if text == "localhost" { "127.0.0.1".to_owned() } else { text };
            all.push(AclEntry { network, is_excluded });
        }
    }
    all
}

/// A text of VCL without its quotes.
fn unquoted(text: &str) -> &str {
    let inner = text.strip_prefix("{\"").and_then(|text| text.strip_suffix("\"}"));
    inner.or_else(|| text.strip_prefix('"')?.strip_suffix('"')).unwrap_or(text)
}

#[cfg(test)]
mod tests;
