//! Conditions as formulas over atoms, and as texts for `when` of a route.

use std::collections::BTreeSet;

use expression::{ExpressionLimits, Schema, ValueType};

use super::atom::{Atom, HostIs, PathIs, TextIs};
use crate::values;

/// A condition, or its truth where it is known.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Formula {
    Known(bool),
    Atom(Atom),
    Not(Box<Formula>),
    All(Vec<Formula>),
    Any(Vec<Formula>),
}

impl Formula {
    pub(crate) fn negated(self) -> Self {
        match self {
            Self::Known(is) => Self::Known(!is),
            Self::Not(inner) => *inner,
            other => Self::Not(Box::new(other)),
        }
    }

    pub(crate) fn all(parts: Vec<Self>) -> Self {
        Self::joined(parts, true)
    }

    pub(crate) fn any(parts: Vec<Self>) -> Self {
        Self::joined(parts, false)
    }

    /// Joins parts without repetitions. If all are negated, the negation is outside.
    fn joined(parts: Vec<Self>, is_all: bool) -> Self {
        let mut kept: Vec<Self> = Vec::new();
        let mut seen: BTreeSet<Self> = BTreeSet::new();
        let mut rest: Vec<Self> = parts.into_iter().rev().collect();
        while let Some(part) = rest.pop() {
            match part {
                Self::Known(is) if is == is_all => {}
                Self::Known(is) => return Self::Known(is),
                Self::All(inner) if is_all => rest.extend(inner.into_iter().rev()),
                Self::Any(inner) if !is_all => rest.extend(inner.into_iter().rev()),
                part => {
                    if seen.contains(&part.clone().negated()) {
                        return Self::Known(!is_all);
                    }
                    if seen.insert(part.clone()) {
                        kept.push(part);
                    }
                }
            }
        }
        if !is_all {
            kept = merged(kept);
        }
        if kept.len() > 1 && kept.iter().all(|part| matches!(part, Self::Not(_))) {
            return Self::joined(kept.into_iter().map(Self::negated).collect(), !is_all).negated();
        }
        match (kept.len(), is_all) {
            (0, is) => Self::Known(is),
            (1, _) => kept.remove(0),
            (_, true) => Self::All(kept),
            (_, false) => Self::Any(kept),
        }
    }

    /// The parts that must all hold.
    pub(super) fn conjuncts(self) -> Vec<Self> {
        match self {
            Self::All(parts) => parts,
            Self::Known(true) => Vec::new(),
            other => vec![other],
        }
    }

    pub(super) fn atoms<'f>(&'f self, into: &mut Vec<&'f Atom>) {
        match self {
            Self::Known(_) => {}
            Self::Atom(atom) => into.push(atom),
            Self::Not(inner) => inner.atoms(into),
            Self::All(parts) | Self::Any(parts) => parts.iter().for_each(|part| part.atoms(into)),
        }
    }

    /// Whether a condition on the path is in it. Options with a condition see one reading of a path only.
    pub(crate) fn asks_for_path(&self) -> bool {
        let mut atoms = Vec::new();
        self.atoms(&mut atoms);
        atoms.iter().any(|atom| match atom {
            Atom::Path(_) => true,
            Atom::When(text) => text.contains("request.path") || text.contains("request.raw_path"),
            _ => false,
        })
    }

    /// The condition as `when`; `None` if it exceeds a limit of expressions. `schema` has the names that it may use.
    pub(crate) fn written(&self, schema: &Schema) -> Option<String> {
        // Longer ones are not worth compiling.
        let text = self.text(TextPlace::Alone);
        let limits = ExpressionLimits::default();
        if text.len() > limits.text_bytes {
            return None;
        }
        let compiled = expression::Expression::of_type(ValueType::Boolean, &text, schema, &limits);
        compiled.is_ok().then_some(text)
    }

    fn text(&self, place: TextPlace) -> String {
        let bracketed = |text: String| if place == TextPlace::Alone { text } else { format!("({text})") };
        let joined = |parts: &[Self], sign: &str| {
            parts.iter().map(|part| part.text(TextPlace::Part)).collect::<Vec<_>>().join(sign)
        };
        match self {
            Self::Known(is) => is.to_string(),
            Self::Atom(atom) => match text_of(atom) {
                AtomText::Compound(text) => bracketed(text),
                AtomText::Call(text) => text,
                AtomText::Equal(left, right) if place == TextPlace::Negated => format!("{left} != {right}"),
                AtomText::Equal(left, right) => format!("{left} == {right}"),
                AtomText::Within(text) if place == TextPlace::Negated => format!("({text})"),
                AtomText::Within(text) => text,
            },
            Self::Not(inner) => match inner.as_ref() {
                Self::Atom(atom) if matches!(text_of(atom), AtomText::Equal(..)) => {
                    inner.text(TextPlace::Negated)
                }
                inner => format!("!{}", inner.text(TextPlace::Negated)),
            },
            Self::All(parts) => bracketed(joined(parts, " && ")),
            Self::Any(parts) => bracketed(joined(parts, " || ")),
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum TextPlace {
    Alone,
    Part,
    Negated,
}

/// The text of an atom, by its strongest operator.
enum AtomText {
    Call(String),
    Equal(String, String),
    Within(String),
    Compound(String),
}

/// Quotes a text for an expression.
pub(crate) fn literal(text: &str) -> String {
    let mut made = String::from("\"");
    for letter in text.chars() {
        match letter {
            '\\' => made.push_str("\\\\"),
            '"' => made.push_str("\\\""),
            '\n' => made.push_str("\\n"),
            '\r' => made.push_str("\\r"),
            '\t' => made.push_str("\\t"),
            control if control.is_control() => made.push_str(&format!("\\u{:04x}", u32::from(control))),
            other => made.push(other),
        }
    }
    made.push('"');
    made
}

fn list(values: &[String]) -> String {
    format!("[{}]", values.iter().map(|value| literal(value)).collect::<Vec<_>>().join(", "))
}

fn text_of(atom: &Atom) -> AtomText {
    let within = |name: &str, values: &[String]| match values {
        [one] => AtomText::Equal(name.to_owned(), literal(one)),
        _ => AtomText::Within(format!("{name} in {}", list(values))),
    };
    match atom {
        Atom::Host(HostIs::Exact(host)) => within("request.host", std::slice::from_ref(host)),
        Atom::Host(HostIs::Below(domain)) => {
            AtomText::Call(format!("request.host.endsWith({})", literal(&format!(".{domain}"))))
        }
        Atom::Host(HostIs::Pattern(pattern)) => AtomText::Call(matches("request.host", pattern)),
        Atom::Path(path) => of_path("request.path", path),
        Atom::Methods(methods) => within("request.method", methods),
        Atom::Header(name, text) => of_member("request.headers", &name.to_ascii_lowercase(), text),
        Atom::Cookie(name, text) => of_member("request.cookies", name, text),
        Atom::Query(name, text) => of_member("request.query", name, text),
        Atom::Clients(networks) => {
            let masked: Vec<String> = networks.iter().map(|network| values::masked(network)).collect();
            let list = if let [one] = masked.as_slice() { literal(one) } else { list(&masked) };
            AtomText::Within(format!("client.address in {list}"))
        }
        Atom::When(text) => AtomText::Compound(text.clone()),
    }
}

/// The text of a condition on a path, which has this name.
fn of_path(name: &str, path: &PathIs) -> AtomText {
    let starts = |name: &str, path: &str| format!("{name}.startsWith({})", literal(path));
    match path {
        PathIs::Exact(path) => AtomText::Equal(name.to_owned(), literal(path)),
        PathIs::ExactAnyCase(path) => AtomText::Equal(format!("{name}.lowerAscii()"), literal(path)),
        PathIs::Prefix(path) => AtomText::Call(starts(name, path)),
        PathIs::PrefixAnyCase(path) => AtomText::Call(starts(&format!("{name}.lowerAscii()"), path)),
        PathIs::Pattern(pattern) => AtomText::Call(matches(name, pattern)),
        PathIs::Both(prefix, pattern) => {
            AtomText::Compound(format!("{} && {}", starts(name, prefix), matches(name, pattern)))
        }
    }
}

/// A condition on the path as it was sent: with the escapes and repeated slashes that routes do not see.
pub(crate) fn spelled(path: &PathIs) -> Atom {
    Atom::When(match of_path("request.raw_path", path) {
        AtomText::Equal(left, right) => format!("{left} == {right}"),
        AtomText::Call(text) | AtomText::Within(text) | AtomText::Compound(text) => text,
    })
}

fn of_member(family: &str, name: &str, text: &TextIs) -> AtomText {
    let name = literal(name);
    let member = format!("{family}[{name}]");
    let value = format!("({member} ?? \"\")");
    match text {
        TextIs::Present => AtomText::Within(format!("{name} in {family}")),
        // Of several cookies with one name the first counts; of fields and parameters, any.
        TextIs::Exact(text) if family == "request.cookies" => AtomText::Equal(member, literal(text)),
        TextIs::Exact(text) => AtomText::Within(format!("{} in {member}", literal(text))),
        TextIs::Prefix(text) => AtomText::Call(format!("{value}.startsWith({})", literal(text))),
        TextIs::Pattern(pattern) if is_of_empty(pattern) => {
            AtomText::Compound(format!("{name} in {family} && {}", matches(&member, pattern)))
        }
        TextIs::Pattern(pattern) => AtomText::Call(matches(&value, pattern)),
    }
}

/// Converts an expression for a whole text to a search. Classes are ASCII, and a dot matches every byte, as in routes.
fn matches(value: &str, pattern: &str) -> String {
    let (flags, body) = match pattern.strip_prefix("(?i)") {
        Some(body) => ("i", body),
        None => ("", pattern),
    };
    // A bare choice would separate `.*` from the rest.
    let is_plain = !values::has_bare_choice(body);
    let (start, body) = match body.strip_prefix(".*") {
        Some(body) if is_plain && !body.starts_with(['?', '+', '*', '{']) => ("", body),
        _ => ("^", body),
    };
    let (body, end) = match body.strip_suffix(".*") {
        Some(body) if is_plain && !values::ends_escaped(body) => (body, ""),
        _ => (body, "$"),
    };
    let flags = if has_dot(body) { format!("{flags}s") } else { flags.to_owned() };
    let flags = if flags.is_empty() { flags } else { format!("(?{flags})") };
    let body = if is_plain { body.to_owned() } else { format!("(?:{body})") };
    format!("{value}.matches({})", literal(&format!("{flags}{start}{body}{end}")))
}

fn has_dot(pattern: &str) -> bool {
    let mut escaped = false;
    pattern.chars().any(|letter| {
        let is = letter == '.' && !escaped;
        escaped = letter == '\\' && !escaped;
        is
    })
}

/// Whether an expression may match the empty text. Invalid ones count as such.
fn is_of_empty(pattern: &str) -> bool {
    let mut parser = regex_syntax::ParserBuilder::new();
    let parsed = parser.unicode(false).utf8(false).nest_limit(50).build().parse(pattern);
    parsed.is_ok_and(|parsed| parsed.properties().minimum_len() == Some(0))
}

/// Merges alternatives on the same property: methods, networks, and expressions on a field.
fn merged(parts: Vec<Formula>) -> Vec<Formula> {
    /// The longest merged expression: that of Vanward is 4096 bytes.
    const PATTERN_BYTES_MAX: usize = 2000;
    let mut made: Vec<Formula> = Vec::new();
    // Lists may have thousands of others.
    let mut places: Vec<usize> = Vec::new();
    for part in parts {
        if let Formula::Atom(
            atom @ (Atom::Methods(_)
            | Atom::Clients(_)
            | Atom::Header(_, TextIs::Pattern(_))
            | Atom::Cookie(_, TextIs::Pattern(_))
            | Atom::Query(_, TextIs::Pattern(_))),
        ) = &part
        {
            let found = places.iter().find_map(|place| match &made[*place] {
                Formula::Atom(known) => Some((*place, merge(known, atom, PATTERN_BYTES_MAX)?)),
                _ => None,
            });
            if let Some((place, both)) = found {
                made[place] = Formula::Atom(both);
                continue;
            }
            places.push(made.len());
        }
        made.push(part);
    }
    made
}

fn merge(known: &Atom, more: &Atom, bytes_max: usize) -> Option<Atom> {
    let union = |one: &[String], other: &[String]| {
        let mut all = one.to_vec();
        all.extend(other.iter().filter(|value| !one.contains(value)).cloned());
        all
    };
    let either = |one: &TextIs, other: &TextIs| match (one, other) {
        (TextIs::Pattern(one), TextIs::Pattern(other)) if one.len() + other.len() < bytes_max => {
            values::either(one, other).map(TextIs::Pattern)
        }
        _ => None,
    };
    match (known, more) {
        (Atom::Methods(one), Atom::Methods(other)) => Some(Atom::Methods(union(one, other))),
        (Atom::Clients(one), Atom::Clients(other)) => Some(Atom::Clients(union(one, other))),
        (Atom::Header(name, one), Atom::Header(other_name, other))
            if name.eq_ignore_ascii_case(other_name) =>
        {
            either(one, other).map(|text| Atom::Header(name.clone(), text))
        }
        (Atom::Cookie(name, one), Atom::Cookie(other_name, other)) if name == other_name => {
            either(one, other).map(|text| Atom::Cookie(name.clone(), text))
        }
        (Atom::Query(name, one), Atom::Query(other_name, other)) if name == other_name => {
            either(one, other).map(|text| Atom::Query(name.clone(), text))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use expression::ExchangeStage;

    use super::*;

    fn written(formula: &Formula) -> Option<String> {
        formula.written(&Schema::new(ExchangeStage::Request))
    }

    #[test]
    fn conditions_are_written_as_expressions() {
        let header = |name: &str, text: TextIs| Formula::Atom(Atom::Header(name.to_owned(), text));
        let methods =
            |list: &[&str]| Formula::Atom(Atom::Methods(list.iter().map(|one| (*one).to_owned()).collect()));
        let path = |path: PathIs| Formula::Atom(Atom::Path(path));
        let exact = |text: &str| TextIs::Exact(text.to_owned());
        let pattern = |text: &str| TextIs::Pattern(text.to_owned());
        let clients =
            |list: &[&str]| Formula::Atom(Atom::Clients(list.iter().map(|one| (*one).to_owned()).collect()));
        let cases = [
            (methods(&["GET"]), r#"request.method == "GET""#),
            (methods(&["GET", "HEAD"]).negated(), r#"!(request.method in ["GET", "HEAD"])"#),
            (
                Formula::all(vec![methods(&["GET"]).negated(), header("X-A", TextIs::Present)]),
                r#"request.method != "GET" && "x-a" in request.headers"#,
            ),
            (
                Formula::any(vec![
                    Formula::all(vec![path(PathIs::prefix("/a")), header("X-A", exact("1"))]),
                    header("X-A", exact("2")).negated(),
                ]),
                r#"(request.path.startsWith("/a") && "1" in request.headers["x-a"]) || !("2" in request.headers["x-a"])"#,
            ),
            (
                header("User-Agent", pattern("(?i).*a\\.b.*")),
                r#"(request.headers["user-agent"] ?? "").matches("(?i)a\\.b")"#,
            ),
            (
                header("X-A", pattern(".*")),
                r#""x-a" in request.headers && request.headers["x-a"].matches("$")"#,
            ),
            (path(PathIs::Pattern("/a|/b.*".to_owned())), r#"request.path.matches("(?s)^(?:/a|/b.*)$")"#),
            (
                Formula::all(vec![clients(&["10.1.2.3/8"]).negated(), clients(&["::1"]).negated()]),
                r#"!(client.address in ["10.0.0.0/8", "::1"])"#,
            ),
            (
                Formula::Atom(Atom::Cookie("a".to_owned(), exact("\"\n"))).negated(),
                r#"request.cookies["a"] != "\"\n""#,
            ),
        ];
        for (formula, expected) in cases {
            assert_eq!(written(&formula).as_deref(), Some(expected), "{formula:?}");
        }
    }

    #[test]
    fn repetitions_and_contradictions_vanish() {
        let one = |name: &str| Formula::Atom(Atom::Header(name.to_owned(), TextIs::Present));
        assert_eq!(Formula::all(vec![one("a"), one("a")]), one("a"));
        assert_eq!(Formula::all(vec![one("a"), one("a").negated()]), Formula::Known(false));
        assert_eq!(Formula::any(vec![one("a"), one("a").negated()]), Formula::Known(true));
        assert_eq!(Formula::any(Vec::new()), Formula::Known(false));
        let both = Formula::all(vec![one("a").negated(), one("b").negated()]);
        assert_eq!(both, Formula::any(vec![one("a"), one("b")]).negated());
        let patterns = ["(?i).*a.*", ".*b.*"]
            .map(|pattern| Formula::Atom(Atom::Header("x".to_owned(), TextIs::Pattern(pattern.to_owned()))));
        let expected = "(request.headers[\"x\"] ?? \"\").matches(\"(?s)^(?:(?i:.*a.*)|.*b.*)$\")";
        assert_eq!(written(&Formula::any(patterns.to_vec())).as_deref(), Some(expected));
    }
}
