//! Conditions of HAProxy: ACLs with criteria, and the lines that combine them.

use std::collections::BTreeMap;

use super::syntax::{HaproxyLine, HaproxySection};
use crate::draft::StatementOrigin;
use crate::rules::{Atom, HostIs, PathIs, Test, TextIs};
use crate::{Include, values};

#[derive(Debug, Clone)]
pub(super) enum Term {
    /// At least one of these holds.
    Any(Vec<Atom>),
    Tls,
    /// The client connected to one of these ports.
    Port(Vec<u16>),
    /// More requests than this arrived in the period of a counter.
    Rate {
        counter: String,
        most: u64,
    },
    /// The client gave the password of a user in this list.
    LoggedIn(String),
    Fixed(bool),
    /// Cannot be translated, for this reason.
    Unsaid(String),
}

#[derive(Debug, Clone)]
pub(super) struct Criterion {
    pub(super) term: Term,
    pub(super) number: usize,
}

/// A part of a condition: at least one criterion of a list holds, or none.
#[derive(Debug, Clone)]
pub(super) struct Literal {
    pub(super) negated: bool,
    pub(super) any: Vec<Criterion>,
}

/// Alternatives, each a list of parts that must all hold.
#[derive(Debug, Clone, Default)]
pub(super) struct AclCondition(pub(super) Vec<Vec<Literal>>);

pub(super) type Acls = BTreeMap<String, Vec<Criterion>>;

pub(super) fn acls(section: &HaproxySection, include: Include<'_>) -> Acls {
    let mut acls = Acls::new();
    for line in section.lines.iter().filter(|line| line.word(0) == "acl") {
        let name = line.word(1).to_owned();
        let term = term(line.words.get(2..).unwrap_or_default(), include);
        acls.entry(name).or_default().push(Criterion { term, number: line.number });
    }
    acls
}

/// Parses the condition after `if` or `unless`. Also returns the index where it begins.
pub(super) fn condition(
    line: &HaproxyLine,
    acls: &Acls,
    include: Include<'_>,
) -> (Option<AclCondition>, usize) {
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
    (Some(AclCondition(condition)), place)
}

/// Negates a condition: in each alternative, one part must not hold.
fn inverse(all: &[Vec<Literal>]) -> Vec<Vec<Literal>> {
    /// Larger conditions are hardly written by hand.
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

/// Returns a named or predefined ACL.
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

#[derive(Clone, Copy, PartialEq)]
enum CompareWay {
    Exact,
    Begin,
    End,
    Within,
    Expression,
    Segment,
    Domain,
    Found,
}

const WAYS: [(&str, CompareWay); 8] = [
    ("str", CompareWay::Exact),
    ("beg", CompareWay::Begin),
    ("end", CompareWay::End),
    ("sub", CompareWay::Within),
    ("reg", CompareWay::Expression),
    ("dir", CompareWay::Segment),
    ("dom", CompareWay::Domain),
    ("found", CompareWay::Found),
];

fn term(words: &[String], include: Include<'_>) -> Term {
    let Some(sample) = words.first() else { return Term::Unsaid("it asks for nothing".to_owned()) };
    // Converters that only normalize a host or text are dropped: Vanward compares the same way.
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
        .unwrap_or((name, CompareWay::Exact));
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
            "-M" => return Term::Unsaid("it uses a map".to_owned()),
            value => values.push(value.to_owned()),
        }
    }
    of_sample(base, argument, way, ignores_case, &values)
        .unwrap_or_else(|| Term::Unsaid(format!("routes cannot match on {sample}")))
}

fn list(file: &str, include: Include<'_>) -> Result<Vec<String>, String> {
    let mut values = Vec::new();
    for (_, text) in include(file)? {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        values.extend(lines.map(str::to_owned));
    }
    Ok(values)
}

fn of_sample(
    base: &str,
    argument: &str,
    way: CompareWay,
    ignores_case: bool,
    values: &[String],
) -> Option<Term> {
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
            if way == CompareWay::Found {
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

/// Parses `sc_http_req_rate(0) gt 100` and its older names.
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

fn path(value: &str, way: CompareWay, ignores_case: bool) -> Option<PathIs> {
    let flag = if ignores_case { "(?i)" } else { "" };
    let escaped = values::escaped(value);
    let pattern = |text: String| Some(PathIs::Pattern(format!("{flag}{text}")));
    match way {
        CompareWay::Exact if ignores_case => pattern(escaped),
        CompareWay::Exact => Some(PathIs::exact(value)),
        CompareWay::Begin if ignores_case => pattern(format!("{escaped}.*")),
        CompareWay::Begin => Some(PathIs::prefix(value)),
        CompareWay::End => pattern(format!(".*{escaped}")),
        CompareWay::Within => pattern(format!(".*{escaped}.*")),
        CompareWay::Segment => pattern(format!(".*/{}(/.*)?", values::escaped(value.trim_matches('/')))),
        CompareWay::Expression => values::expression(value, ignores_case).ok().map(PathIs::Pattern),
        CompareWay::Domain | CompareWay::Found => None,
    }
}

fn hosts(value: &str, way: CompareWay) -> Option<Vec<Atom>> {
    let bare = value
        .rsplit_once(':')
        .filter(|(_, port)| port.parse::<u16>().is_ok())
        .map_or(value, |(host, _)| host);
    let lower = bare.to_ascii_lowercase();
    let pattern = |text: String| Some(HostIs::Pattern(format!("(?i){text}")));
    let host = match way {
        CompareWay::Exact => HostIs::named(&lower).filter(|host| matches!(host, HostIs::Exact(_))),
        CompareWay::End => match lower.strip_prefix('.').and_then(HostIs::named) {
            Some(HostIs::Exact(domain)) => Some(HostIs::Below(domain)),
            _ => pattern(format!(".*{}", values::escaped(&lower))),
        },
        CompareWay::Begin => pattern(format!("{}.*", values::escaped(&lower))),
        CompareWay::Within => pattern(format!(".*{}.*", values::escaped(&lower))),
        CompareWay::Expression => values::expression(value, true).ok().map(HostIs::Pattern),
        CompareWay::Domain => {
            let exact = HostIs::named(&lower)?;
            return Some(vec![Atom::Host(exact), Atom::Host(HostIs::Below(lower))]);
        }
        CompareWay::Segment | CompareWay::Found => None,
    };
    host.map(|host| vec![Atom::Host(host)])
}

fn text(value: &str, way: CompareWay, ignores_case: bool) -> Option<TextIs> {
    let flag = if ignores_case { "(?i)" } else { "" };
    let escaped = values::escaped(value);
    let pattern = |text: String| Some(TextIs::Pattern(format!("{flag}{text}")));
    match way {
        CompareWay::Exact if ignores_case => pattern(escaped),
        CompareWay::Exact => Some(TextIs::Exact(value.to_owned())),
        CompareWay::Begin if ignores_case => pattern(format!("{escaped}.*")),
        CompareWay::Begin => Some(TextIs::Prefix(value.to_owned())),
        CompareWay::End => pattern(format!(".*{escaped}")),
        CompareWay::Within => pattern(format!(".*{escaped}.*")),
        CompareWay::Expression => values::expression(value, ignores_case).ok().map(TextIs::Pattern),
        _ => None,
    }
}

impl AclCondition {
    /// Collects the conditions that routes support, with their origins.
    pub(super) fn tests(&self) -> Vec<Test> {
        let criteria = self.0.iter().flatten().flat_map(|literal| &literal.any);
        let atoms = criteria.filter_map(|criterion| match &criterion.term {
            Term::Any(atoms) => Some(atoms.iter().map(|atom| Test {
                atom: atom.clone(),
                from: vec![StatementOrigin::Directive(criterion.number)],
            })),
            _ => None,
        });
        atoms.flatten().collect()
    }

    pub(super) fn numbers(&self) -> Vec<usize> {
        self.0.iter().flatten().flat_map(|literal| &literal.any).map(|criterion| criterion.number).collect()
    }

    pub(super) fn terms(&self) -> impl Iterator<Item = &Criterion> {
        self.0.iter().flatten().flat_map(|literal| &literal.any)
    }
}
