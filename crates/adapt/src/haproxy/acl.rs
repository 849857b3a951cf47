//! Conditions of HAProxy: ACLs with their criteria, and the lines that combine them.

use std::collections::BTreeMap;

use super::syntax::{Line, Section};
use crate::draft::Origin;
use crate::rules::{Atom, HostIs, PathIs, Test, TextIs};
use crate::{Include, values};

/// What a criterion asks.
#[derive(Debug, Clone)]
pub(super) enum Term {
    /// Whether one of these holds.
    Any(Vec<Atom>),
    /// Whether the client uses TLS.
    Tls,
    /// Whether the client came to one of these ports.
    Port(Vec<u16>),
    /// Whether more requests than these came in the period of a counter.
    Rate {
        counter: String,
        most: u64,
    },
    /// Whether the user of a list has given the password.
    LoggedIn(String),
    Fixed(bool),
    /// What cannot be said, and why.
    Unsaid(String),
}

/// A criterion, and the line that has it.
#[derive(Debug, Clone)]
pub(super) struct Criterion {
    pub(super) term: Term,
    pub(super) number: usize,
}

/// One part of a condition: a list of criteria of which one has to hold, or none.
#[derive(Debug, Clone)]
pub(super) struct Literal {
    pub(super) negated: bool,
    pub(super) any: Vec<Criterion>,
}

/// A condition: alternatives, each a list of what has to hold together.
#[derive(Debug, Clone, Default)]
pub(super) struct Condition(pub(super) Vec<Vec<Literal>>);

/// The ACLs of a section by name.
pub(super) type Acls = BTreeMap<String, Vec<Criterion>>;

/// Reads the `acl` lines of a section.
pub(super) fn acls(section: &Section, include: Include<'_>) -> Acls {
    let mut acls = Acls::new();
    for line in section.lines.iter().filter(|line| line.word(0) == "acl") {
        let name = line.word(1).to_owned();
        let term = term(line.words.get(2..).unwrap_or_default(), include);
        acls.entry(name).or_default().push(Criterion { term, number: line.number });
    }
    acls
}

/// Reads the condition of a line behind `if` or `unless`, if it has one; also the place where it begins.
pub(super) fn condition(line: &Line, acls: &Acls, include: Include<'_>) -> (Option<Condition>, usize) {
    let place = line.words.iter().position(|word| word == "if" || word == "unless");
    let Some(place) = place else { return (None, line.words.len()) };
    let mut all = Vec::new();
    let mut alternative = Vec::new();
    let mut negated = false;
    let mut words = line.words[place + 1..].iter();
    while let Some(word) = words.next() {
        let mut word = word.as_str();
        while let Some(rest) = word.strip_prefix('!') {
            negated = !negated;
            word = rest;
        }
        match word {
            "" => continue,
            "or" | "||" => {
                all.push(std::mem::take(&mut alternative));
                continue;
            }
            _ => {}
        }
        let any = if word == "{" {
            let inner: Vec<String> = words.by_ref().take_while(|word| *word != "}").cloned().collect();
            vec![Criterion { term: term(&inner, include), number: line.number }]
        } else {
            named(word, acls, line.number)
        };
        alternative.push(Literal { negated: std::mem::take(&mut negated), any });
    }
    all.push(alternative);
    let condition = if line.word(place) == "unless" { inverse(&all) } else { all };
    (Some(Condition(condition)), place)
}

/// No alternative holds: of each, one part does not.
fn inverse(all: &[Vec<Literal>]) -> Vec<Vec<Literal>> {
    /// More are not written by hand.
    const ALTERNATIVES_MAX: usize = 64;
    let mut made: Vec<Vec<Literal>> = vec![Vec::new()];
    for alternative in all {
        let mut next = Vec::new();
        for begun in &made {
            for literal in alternative {
                let mut longer = begun.clone();
                longer.push(Literal { negated: !literal.negated, any: literal.any.clone() });
                next.push(longer);
            }
        }
        next.truncate(ALTERNATIVES_MAX);
        made = next;
    }
    made
}

/// A named ACL, or one that there is without a line.
fn named(name: &str, acls: &Acls, number: usize) -> Vec<Criterion> {
    if let Some(known) = acls.get(name) {
        return known.clone();
    }
    let method = |methods: &[&str]| {
        Term::Any(vec![Atom::Methods(methods.iter().map(|one| (*one).to_owned()).collect())])
    };
    let term = match name {
        "TRUE" | "HTTP" => Term::Fixed(true),
        "FALSE" => Term::Fixed(false),
        "LOCALHOST" => Term::Any(vec![Atom::Clients(vec!["127.0.0.0/8".to_owned(), "::1".to_owned()])]),
        "METH_GET" => method(&["GET", "HEAD"]),
        name if name.strip_prefix("METH_").is_some_and(|name| !name.is_empty()) => method(&[&name[5..]]),
        name => Term::Unsaid(format!("there is no ACL {name}")),
    };
    vec![Criterion { term, number }]
}

/// How values are compared.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    Exact,
    Begin,
    End,
    Within,
    Expression,
    Segment,
    Domain,
    Found,
}

const WAYS: [(&str, Way); 8] = [
    ("str", Way::Exact),
    ("beg", Way::Begin),
    ("end", Way::End),
    ("sub", Way::Within),
    ("reg", Way::Expression),
    ("dir", Way::Segment),
    ("dom", Way::Domain),
    ("found", Way::Found),
];

/// A criterion with its flags and values.
fn term(words: &[String], include: Include<'_>) -> Term {
    let Some(sample) = words.first() else { return Term::Unsaid("it asks for nothing".to_owned()) };
    // What converters leave of a host or a text is compared as it is here.
    let (fetch, converters) = if sample.contains('(') {
        sample.split_once("),").map_or((sample.clone(), ""), |(fetch, rest)| (format!("{fetch})"), rest))
    } else {
        sample.split_once(',').map_or((sample.clone(), ""), |(fetch, rest)| (fetch.to_owned(), rest))
    };
    let known =
        ["", "lower", "host_only", "lower,host_only", "host_only,lower", "field(1,:)", "lower,field(1,:)"];
    if !known.contains(&converters) {
        return Term::Unsaid(format!("{sample} is changed before it is compared"));
    }
    let (name, argument) =
        fetch.split_once('(').map_or((fetch.as_str(), ""), |(name, rest)| (name, rest.trim_end_matches(')')));
    let (base, mut way) = WAYS
        .iter()
        .find_map(|(suffix, way)| Some((name.strip_suffix(suffix)?.strip_suffix('_')?, *way)))
        .unwrap_or((name, Way::Exact));
    let mut values = Vec::new();
    let mut ignores_case = converters.contains("lower");
    let mut rest = words[1..].iter();
    while let Some(word) = rest.next() {
        match word.as_str() {
            "-i" => ignores_case = true,
            "-n" | "--" | "-u" => {}
            "-m" => {
                let wanted = rest.next().map_or("", String::as_str);
                match WAYS.iter().find(|(name, _)| *name == wanted) {
                    Some((_, found)) => way = *found,
                    None if wanted == "ip" || wanted == "int" => {}
                    None => return Term::Unsaid(format!("-m {wanted} is another comparison")),
                }
            }
            "-f" => match list(rest.next().map_or("", String::as_str), include) {
                Ok(more) => values.extend(more),
                Err(why) => return Term::Unsaid(format!("its file cannot be read: {why}")),
            },
            "-M" => return Term::Unsaid("it looks into a map".to_owned()),
            value => values.push(value.to_owned()),
        }
    }
    of_sample(base, argument, way, ignores_case, &values)
        .unwrap_or_else(|| Term::Unsaid(format!("no route goes by {sample}")))
}

/// The values of a file of patterns.
fn list(file: &str, include: Include<'_>) -> Result<Vec<String>, String> {
    let mut values = Vec::new();
    for (_, text) in include(file)? {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        values.extend(lines.map(str::to_owned));
    }
    Ok(values)
}

fn of_sample(base: &str, argument: &str, way: Way, ignores_case: bool, values: &[String]) -> Option<Term> {
    let each = |atom: &dyn Fn(&str) -> Option<Vec<Atom>>| {
        let atoms: Option<Vec<Vec<Atom>>> = values.iter().map(|value| atom(value)).collect();
        atoms.map(|atoms| Term::Any(atoms.concat())).filter(|_| !values.is_empty())
    };
    let one = |list: Option<Atom>| list.map(|atom| vec![atom]);
    match base {
        "path" | "url" | "pathq" => each(&|value| one(path(value, way, ignores_case).map(Atom::Path))),
        "hdr" | "req.hdr" | "req.fhdr" if argument.eq_ignore_ascii_case("host") => {
            each(&|value| hosts(value, way))
        }
        "ssl_fc_sni" | "req.ssl_sni" | "req_ssl_sni" => each(&|value| hosts(value, way)),
        "hdr" | "req.hdr" | "req.fhdr" | "cook" | "req.cook" | "url_param" | "urlp"
            if !argument.is_empty() =>
        {
            let name = argument.split(',').next()?.to_owned();
            let made = move |text: TextIs| match base {
                "cook" | "req.cook" => Atom::Cookie(name.clone(), text),
                "url_param" | "urlp" => Atom::Query(name.clone(), text),
                _ => Atom::Header(name.clone(), text),
            };
            if way == Way::Found {
                return Some(Term::Any(vec![made(TextIs::Present)]));
            }
            each(&|value| one(text(value, way, ignores_case).map(&made)))
        }
        "req.hdr_cnt" | "hdr_cnt" if !argument.is_empty() => match values {
            [gt, zero] if gt == "gt" && zero == "0" => {
                Some(Term::Any(vec![Atom::Header(argument.to_owned(), TextIs::Present)]))
            }
            _ => None,
        },
        "src" => {
            let are_networks = values.iter().all(|value| values::is_network(value));
            (are_networks && !values.is_empty()).then(|| Term::Any(vec![Atom::Clients(values.to_vec())]))
        }
        "method" => {
            let are_words = values
                .iter()
                .all(|value| value.bytes().all(|byte| byte.is_ascii_alphabetic()) && !value.is_empty());
            (are_words && !values.is_empty()).then(|| Term::Any(vec![Atom::Methods(values.to_vec())]))
        }
        "ssl_fc" => Some(Term::Tls),
        "dst_port" => {
            let ports: Option<Vec<u16>> =
                values.iter().filter(|word| *word != "eq").map(|port| port.parse().ok()).collect();
            ports.map(Term::Port)
        }
        "always_true" => Some(Term::Fixed(true)),
        "always_false" => Some(Term::Fixed(false)),
        "http_auth" => Some(Term::LoggedIn(argument.to_owned())),
        _ => rate(base, argument, values),
    }
}

/// `sc_http_req_rate(0) gt 100` and its older names.
fn rate(base: &str, argument: &str, values: &[String]) -> Option<Term> {
    let counter = match base {
        "sc_http_req_rate" => format!("sc{}", argument.split(',').next()?.trim()),
        "src_http_req_rate" => "src".to_owned(),
        _ => base.strip_suffix("_http_req_rate").filter(|name| name.starts_with("sc"))?.to_owned(),
    };
    let most = match values {
        [gt, most] if gt == "gt" => most.parse::<u64>().ok()?,
        [ge, most] if ge == "ge" => most.parse::<u64>().ok()?.checked_sub(1)?,
        _ => return None,
    };
    (1..=1_000_000).contains(&most).then_some(Term::Rate { counter, most })
}

fn path(value: &str, way: Way, ignores_case: bool) -> Option<PathIs> {
    let flag = if ignores_case { "(?i)" } else { "" };
    let escaped = values::escaped(value);
    let pattern = |text: String| Some(PathIs::Pattern(format!("{flag}{text}")));
    match way {
        Way::Exact if ignores_case => pattern(escaped),
        Way::Exact => Some(PathIs::exact(value)),
        Way::Begin if ignores_case => pattern(format!("{escaped}.*")),
        Way::Begin => Some(PathIs::prefix(value)),
        Way::End => pattern(format!(".*{escaped}")),
        Way::Within => pattern(format!(".*{escaped}.*")),
        Way::Segment => pattern(format!(".*/{}(/.*)?", values::escaped(value.trim_matches('/')))),
        Way::Expression => values::expression(value, ignores_case).ok().map(PathIs::Pattern),
        Way::Domain | Way::Found => None,
    }
}

fn hosts(value: &str, way: Way) -> Option<Vec<Atom>> {
    let bare = value
        .rsplit_once(':')
        .filter(|(_, port)| port.parse::<u16>().is_ok())
        .map_or(value, |(host, _)| host);
    let lower = bare.to_ascii_lowercase();
    let pattern = |text: String| Some(HostIs::Pattern(format!("(?i){text}")));
    let host = match way {
        Way::Exact => HostIs::named(&lower).filter(|host| matches!(host, HostIs::Exact(_))),
        Way::End => match lower.strip_prefix('.').and_then(HostIs::named) {
            Some(HostIs::Exact(domain)) => Some(HostIs::Below(domain)),
            _ => pattern(format!(".*{}", values::escaped(&lower))),
        },
        Way::Begin => pattern(format!("{}.*", values::escaped(&lower))),
        Way::Within => pattern(format!(".*{}.*", values::escaped(&lower))),
        Way::Expression => values::expression(value, true).ok().map(HostIs::Pattern),
        Way::Domain => {
            let exact = HostIs::named(&lower)?;
            return Some(vec![Atom::Host(exact), Atom::Host(HostIs::Below(lower))]);
        }
        Way::Segment | Way::Found => None,
    };
    host.map(|host| vec![Atom::Host(host)])
}

fn text(value: &str, way: Way, ignores_case: bool) -> Option<TextIs> {
    let flag = if ignores_case { "(?i)" } else { "" };
    let escaped = values::escaped(value);
    let pattern = |text: String| Some(TextIs::Pattern(format!("{flag}{text}")));
    match way {
        Way::Exact if ignores_case => pattern(escaped),
        Way::Exact => Some(TextIs::Exact(value.to_owned())),
        Way::Begin if ignores_case => pattern(format!("{escaped}.*")),
        Way::Begin => Some(TextIs::Prefix(value.to_owned())),
        Way::End => pattern(format!(".*{escaped}")),
        Way::Within => pattern(format!(".*{escaped}.*")),
        Way::Expression => values::expression(value, ignores_case).ok().map(TextIs::Pattern),
        _ => None,
    }
}

impl Condition {
    /// All conditions that routes can have, with where they came from.
    pub(super) fn tests(&self) -> Vec<Test> {
        let criteria = self.0.iter().flatten().flat_map(|literal| &literal.any);
        let atoms = criteria.filter_map(|criterion| match &criterion.term {
            Term::Any(atoms) => Some(
                atoms
                    .iter()
                    .map(|atom| Test { atom: atom.clone(), from: vec![Origin::Directive(criterion.number)] }),
            ),
            _ => None,
        });
        atoms.flatten().collect()
    }

    /// The lines of its ACLs.
    pub(super) fn numbers(&self) -> Vec<usize> {
        self.0.iter().flatten().flat_map(|literal| &literal.any).map(|criterion| criterion.number).collect()
    }

    /// The terms with their lines.
    pub(super) fn terms(&self) -> impl Iterator<Item = &Criterion> {
        self.0.iter().flatten().flat_map(|literal| &literal.any)
    }
}
