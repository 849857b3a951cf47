//! Conditions of HAProxy: ACLs with criteria, and the lines that combine them.

use std::collections::BTreeMap;

use expression::Schema;

use super::expressions::SampleReader;
use super::samples;
use super::syntax::{HaproxyLine, HaproxySection};
use crate::draft::StatementOrigin;
use crate::rules::{self, Atom, Expression, Formula, Test};

/// The requests that a counter has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CountedRequests {
    /// Requests within its period.
    Rate,
    UnderWay,
}

#[derive(Debug, Clone)]
pub(super) enum Term {
    /// At least one of these holds.
    Any(Vec<Atom>),
    /// None of these holds.
    None(Vec<Atom>),
    /// Whether the connection has TLS.
    Tls(bool),
    /// The client connected to a port that meets a comparison.
    Port(Vec<String>),
    /// A counter has more requests than this.
    Rate {
        counter: String,
        most: u64,
        what: CountedRequests,
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

/// The requests that a rule lets past what protects others. HAProxy compares paths as they are sent, so only that
/// spelling of a path may let them past.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Exempted {
    #[default]
    None,
    /// Requests that meet the condition.
    Meeting,
    /// Requests that do not.
    Missing,
}

/// The condition of a line.
#[derive(Debug, Clone, Default)]
pub(super) struct AclCondition {
    /// Alternatives, each a list of parts that must all hold.
    pub(super) alternatives: Vec<Vec<Literal>>,
    /// After `unless`, none of the alternatives may hold.
    pub(super) is_unless: bool,
    pub(super) exempted: Exempted,
}

/// Facts on requests besides the conditions of routes.
#[derive(Clone, Copy)]
pub(super) struct KnownFacts {
    pub(super) has_tls: bool,
    pub(super) port: Option<u16>,
    pub(super) is_logged_in: bool,
    /// Whether the client is above the rate that the condition names.
    pub(super) is_above: bool,
}

/// The lines of each ACL. They are read where a rule names them, because variables depend on the rules before it.
pub(super) type Acls<'s> = BTreeMap<&'s str, Vec<&'s HaproxyLine>>;

pub(super) fn acls(section: &HaproxySection) -> Acls<'_> {
    let mut acls = Acls::new();
    for line in section.lines.iter().filter(|line| line.word(0) == "acl") {
        acls.entry(line.word(1)).or_default().push(line);
    }
    acls
}

/// Parses the condition after `if` or `unless`. Also returns the index where it begins.
pub(super) fn condition(
    line: &HaproxyLine,
    acls: &Acls<'_>,
    reader: &mut SampleReader<'_, '_>,
) -> (Option<AclCondition>, usize) {
    let place = line.words.iter().position(|word| word == "if" || word == "unless");
    let Some(place) = place else { return (None, line.words.len()) };
    let mut alternatives = Vec::new();
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
                alternatives.push(std::mem::take(&mut alternative));
                continue;
            }
            _ => {}
        }
        let any = if word == "{" {
            let inner: Vec<String> = words.by_ref().take_while(|word| *word != "}").cloned().collect();
            vec![Criterion { term: samples::term(&inner, reader), number: line.number }]
        } else {
            named(word, acls, line.number, reader)
        };
        alternative.push(Literal { negated: std::mem::take(&mut negated), any });
    }
    alternatives.push(alternative);
    let is_unless = line.word(place) == "unless";
    (Some(AclCondition { alternatives, is_unless, exempted: Exempted::None }), place)
}

/// Returns a named or predefined ACL.
fn named(name: &str, acls: &Acls<'_>, number: usize, reader: &mut SampleReader<'_, '_>) -> Vec<Criterion> {
    if let Some(lines) = acls.get(name) {
        let criterion = |line: &&HaproxyLine| {
            reader.number = line.number;
            let term = samples::term(line.words.get(2..).unwrap_or_default(), reader);
            Criterion { term, number: line.number }
        };
        let made = lines.iter().map(criterion).collect();
        reader.number = number;
        return made;
    }
    let method = |methods: &[&str]| {
        Term::Any(vec![Atom::Methods(methods.iter().map(|one| (*one).to_owned()).collect())])
    };
    let when = |text: &str| Term::Any(vec![Atom::When(text.to_owned())]);
    let term = match name {
        "TRUE" | "HTTP" | "WAIT_END" | "REQ_CONTENT" => Term::Fixed(true),
        "FALSE" => Term::Fixed(false),
        "LOCALHOST" => Term::Any(vec![Atom::Clients(vec!["127.0.0.0/8".to_owned(), "::1".to_owned()])]),
        "HTTP_1.0" => Term::Any(vec![samples::version("1.0")]),
        "HTTP_1.1" => Term::Any(vec![samples::version("1.1")]),
        "HTTP_2.0" => Term::Any(vec![samples::version("2")]),
        // A body of unknown length does not count there either.
        "HTTP_CONTENT" => when("(request.size ?? 0) > 0"),
        "HTTP_URL_STAR" => when("request.raw_path == \"*\""),
        "HTTP_URL_SLASH" => when("request.raw_path != \"*\""),
        "METH_GET" => method(&["GET", "HEAD"]),
        name if name.strip_prefix("METH_").is_some_and(|name| !name.is_empty()) => method(&[&name[5..]]),
        name => Term::Unsaid(format!("there is no ACL {name}")),
    };
    vec![Criterion { term, number }]
}

impl Criterion {
    fn expression(&self, facts: KnownFacts) -> Expression {
        match &self.term {
            Term::Any(atoms) => Expression::Any(atoms.clone(), self.number),
            Term::None(atoms) => Expression::Any(atoms.clone(), self.number).not(),
            Term::Tls(is) => Expression::fixed(facts.has_tls == *is),
            Term::Port(wanted) => {
                let is = facts.port.is_some_and(|port| samples::is_within(wanted, port.into()));
                Expression::fixed(is)
            }
            Term::LoggedIn(_) => Expression::fixed(facts.is_logged_in),
            Term::Fixed(is) => Expression::fixed(*is),
            Term::Rate { .. } => Expression::fixed(facts.is_above),
            Term::Unsaid(why) => Expression::Unsaid(why.clone()),
        }
    }

    /// As [`Criterion::expression`]; conditions on the path hold only for a path that is sent as they are written.
    fn spelled(&self, facts: KnownFacts) -> Expression {
        let Term::Any(atoms) = &self.term else { return self.expression(facts) };
        let one = |atom: &Atom| {
            let is = Expression::Any(vec![atom.clone()], self.number);
            match atom {
                Atom::Path(path) => {
                    Expression::all(vec![is, Expression::Any(vec![rules::spelled(path)], self.number)])
                }
                _ => is,
            }
        };
        Expression::either(atoms.iter().map(one).collect())
    }

    fn formula(&self) -> Result<Formula, String> {
        let any = |atoms: &Vec<Atom>| Formula::any(atoms.iter().cloned().map(Formula::Atom).collect());
        match &self.term {
            Term::Any(atoms) => Ok(any(atoms)),
            Term::None(atoms) => Ok(any(atoms).negated()),
            Term::Tls(is) => {
                let has_tls = Formula::Atom(Atom::When("has(client.tls.version)".to_owned()));
                Ok(if *is { has_tls } else { has_tls.negated() })
            }
            Term::Fixed(is) => Ok(Formula::Known(*is)),
            Term::Unsaid(why) => Err(why.clone()),
            Term::Port(_) | Term::Rate { .. } | Term::LoggedIn(_) => {
                Err("its condition is not one of the request alone".to_owned())
            }
        }
    }
}

impl AclCondition {
    pub(super) fn expression(&self, facts: KnownFacts) -> Expression {
        let literal = |literal: &Literal| {
            let is_spelled = self.spells(literal);
            let one = |criterion: &Criterion| match is_spelled {
                true => criterion.spelled(facts),
                false => criterion.expression(facts),
            };
            let any = Expression::either(literal.any.iter().map(one).collect());
            if literal.negated { any.not() } else { any }
        };
        let all = |alternative: &Vec<Literal>| Expression::all(alternative.iter().map(literal).collect());
        let any = Expression::either(self.alternatives.iter().map(all).collect());
        if self.is_unless { any.not() } else { any }
    }

    /// Whether a part lets requests past what protects others.
    fn spells(&self, literal: &Literal) -> bool {
        match self.exempted {
            Exempted::None => false,
            Exempted::Meeting => literal.negated == self.is_unless,
            Exempted::Missing => literal.negated != self.is_unless,
        }
    }

    /// The condition as an expression; `None` if it always holds.
    ///
    /// # Errors
    /// Why it has no translation.
    pub(super) fn written(&self, schema: &Schema) -> Result<Option<String>, String> {
        let literal = |literal: &Literal| {
            let any: Result<Vec<Formula>, String> = literal.any.iter().map(Criterion::formula).collect();
            any.map(Formula::any).map(|any| if literal.negated { any.negated() } else { any })
        };
        let all = |alternative: &Vec<Literal>| {
            let all: Result<Vec<Formula>, String> = alternative.iter().map(literal).collect();
            all.map(Formula::all)
        };
        let any: Result<Vec<Formula>, String> = self.alternatives.iter().map(all).collect();
        let any = Formula::any(any?);
        match if self.is_unless { any.negated() } else { any } {
            Formula::Known(true) => Ok(None),
            formula => {
                formula.written(schema).map(Some).ok_or_else(|| "its condition is too long".to_owned())
            }
        }
    }

    /// The limit in the condition: counter, number, and what it counts.
    pub(super) fn rate(&self) -> Option<(&str, u64, CountedRequests)> {
        self.terms().find_map(|criterion| match &criterion.term {
            Term::Rate { counter, most, what } => Some((counter.as_str(), *most, *what)),
            _ => None,
        })
    }

    /// Collects the conditions that routes support, with their origins.
    pub(super) fn tests(&self) -> Vec<Test> {
        let mut made = Vec::new();
        for literal in self.alternatives.iter().flatten() {
            for criterion in &literal.any {
                let (Term::Any(atoms) | Term::None(atoms)) = &criterion.term else { continue };
                let from = || vec![StatementOrigin::Directive(criterion.number)];
                made.extend(atoms.iter().map(|atom| Test { atom: atom.clone(), from: from() }));
                let paths = atoms.iter().filter(|_| self.spells(literal)).filter_map(|atom| match atom {
                    Atom::Path(path) => Some(rules::spelled(path)),
                    _ => None,
                });
                made.extend(paths.map(|atom| Test { atom, from: from() }));
            }
        }
        made
    }

    pub(super) fn numbers(&self) -> Vec<usize> {
        self.terms().map(|criterion| criterion.number).collect()
    }

    pub(super) fn terms(&self) -> impl Iterator<Item = &Criterion> {
        self.alternatives.iter().flatten().flat_map(|literal| &literal.any)
    }
}
