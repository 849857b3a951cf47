//! ACLs as conditions of routes.

use std::collections::BTreeMap;

use super::syntax::SquidLine;
use crate::rules::{Atom, Expression, HostIs, PathIs, TextIs};
use crate::values;

/// Parses all ACLs. Lines with the same name are one list.
pub(super) fn all(lines: &[SquidLine]) -> BTreeMap<String, Expression> {
    let mut acls: BTreeMap<String, Expression> = BTreeMap::new();
    acls.insert("all".to_owned(), Expression::all(Vec::new()));
    acls.insert(
        "localhost".to_owned(),
        Expression::Any(vec![Atom::Clients(vec!["127.0.0.0/8".to_owned(), "::1".to_owned()])], usize::MAX),
    );
    for line in lines.iter().filter(|line| line.word(0) == "acl") {
        let made = one(line);
        let known = acls.remove(line.word(1));
        let joined = match known {
            Some(known) if line.word(1) != "all" => Expression::Either(vec![known, made]),
            _ => made,
        };
        acls.insert(line.word(1).to_owned(), joined);
    }
    acls
}

fn one(line: &SquidLine) -> Expression {
    let kind = line.word(2);
    let unsaid = || Expression::Unsaid(format!("routes cannot match on an ACL of the kind {kind}"));
    let all: Vec<&str> = line.words.iter().skip(3).map(String::as_str).collect();
    let ignores_case = all.contains(&"-i");
    let values: Vec<&str> =
        all.into_iter().filter(|word| !matches!(*word, "-i" | "-n" | "+i" | "--")).collect();
    let each = |made: &dyn Fn(&str) -> Option<Vec<Atom>>| {
        let atoms: Option<Vec<Vec<Atom>>> = values.iter().map(|value| made(value)).collect();
        let atoms = atoms.map(|atoms| atoms.concat()).filter(|atoms| !atoms.is_empty());
        atoms.map_or_else(unsaid, |atoms| Expression::Any(atoms, line.number))
    };
    let pattern = |text: &str| values::expression(text, ignores_case).ok();
    match kind {
        "dstdomain" => each(&|name| domain(name)),
        "dstdom_regex" => {
            each(&|text| Some(vec![Atom::Host(HostIs::Pattern(values::expression(text, true).ok()?))]))
        }
        "urlpath_regex" => each(&|text| path(text, ignores_case).map(|path| vec![Atom::Path(path)])),
        "url_regex" => each(&|text| {
            // The part after scheme and host.
            let rest = text.strip_prefix("^http://").or_else(|| text.strip_prefix("^https?://"))?;
            let (host, path_text) = rest.split_at(rest.find('/')?);
            let host = HostIs::named(&host.replace("\\.", "."))?;
            (path_text == "/" || path_text == "/.*").then(|| vec![Atom::Host(host)])
        }),
        "src" => {
            let networks: Vec<String> = values.iter().map(|network| (*network).to_owned()).collect();
            let are_networks =
                !networks.is_empty() && networks.iter().all(|network| values::is_network(network));
            if are_networks { Expression::Any(vec![Atom::Clients(networks)], line.number) } else { unsaid() }
        }
        "method" => {
            let methods = values.iter().map(|method| (*method).to_owned()).collect();
            Expression::Any(vec![Atom::Methods(methods)], line.number)
        }
        "browser" => {
            each(&|text| Some(vec![Atom::Header("User-Agent".to_owned(), TextIs::Pattern(pattern(text)?))]))
        }
        "referer_regex" => {
            each(&|text| Some(vec![Atom::Header("Referer".to_owned(), TextIs::Pattern(pattern(text)?))]))
        }
        "req_header" => match values.split_first() {
            Some((name, texts)) if !texts.is_empty() => {
                let atoms: Option<Vec<Atom>> = texts
                    .iter()
                    .map(|text| Some(Atom::Header((*name).to_owned(), TextIs::Pattern(pattern(text)?))))
                    .collect();
                atoms.map_or_else(unsaid, |atoms| Expression::Any(atoms, line.number))
            }
            _ => unsaid(),
        },
        "proto" if values == ["HTTPS"] => Expression::Tls,
        "proto" if values == ["HTTP"] => Expression::Tls.not(),
        _ => unsaid(),
    }
}

/// `.example.com` is the domain and all names below it.
fn domain(name: &str) -> Option<Vec<Atom>> {
    let bare = name.strip_prefix('.').unwrap_or(name);
    let exact = HostIs::named(bare)?;
    let mut hosts = vec![Atom::Host(exact)];
    if name.starts_with('.') {
        hosts.push(Atom::Host(HostIs::Below(bare.to_ascii_lowercase())));
    }
    Some(hosts)
}

/// `^/literal` is a prefix, `^/literal$` an exact path.
fn path(text: &str, ignores_case: bool) -> Option<PathIs> {
    let literal = text.strip_prefix('^').unwrap_or_default();
    let (literal, is_whole) = literal.strip_suffix('$').map_or((literal, false), |literal| (literal, true));
    let is_plain = literal.starts_with('/')
        && literal.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/_-".contains(&byte));
    if is_plain && !ignores_case {
        return Some(if is_whole { PathIs::exact(literal) } else { PathIs::prefix(literal) });
    }
    if text.contains("\\?") {
        return None;
    }
    values::expression(text, ignores_case).ok().map(PathIs::Pattern)
}
