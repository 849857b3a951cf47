//! Samples (`hdr(x),lower,map(FILE)`) and log formats as expressions of Vanward.

use std::collections::BTreeSet;
use std::rc::Rc;

use expression::{ExchangeStage, Expression, ExpressionLimits, Fact, Schema};

use super::format;
use super::maps::{FoundMap, PatternFiles};
use super::variables::HaproxyVariables;
use crate::definitions::Definitions;
use crate::draft::StatementOrigin;
use crate::rules::{Atom, HostIs, PathIs, literal};

/// The most keys of a map that become conditions on paths or hosts.
const ALTERNATIVES_MAX: usize = 200;
/// The most texts that a value is known to be one of.
const POSSIBLE_MAX: usize = 1000;
/// The longest expression, as in Vanward.
const EXPRESSION_BYTES_MAX: usize = 8192;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum SampleType {
    Text,
    Number,
    Truth,
    Address,
}

/// A value of a request.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Sample {
    /// The expression.
    pub(super) text: String,
    pub(super) of: SampleType,
    /// Whether the expression may be absent.
    is_optional: bool,
    /// The condition under which HAProxy has a value; `None`: always.
    found: Option<String>,
    /// Whether the expression is absent or empty outside of that condition.
    is_empty_otherwise: bool,
    /// All texts that it can be.
    pub(super) possible: Option<BTreeSet<String>>,
    /// Conditions on paths or hosts, each with the value under it. The first that holds counts.
    pub(super) alternatives: Option<Rc<[(Atom, String)]>>,
}

/// Reads samples, with the files and variables that they may name.
pub(super) struct SampleReader<'r, 'i> {
    pub(super) files: &'r mut PatternFiles<'i>,
    pub(super) definitions: &'r mut Definitions,
    pub(super) variables: &'r HaproxyVariables,
    /// The number of the line.
    pub(super) number: usize,
}

impl Sample {
    pub(super) fn constant(text: &str) -> Self {
        Self {
            possible: Some(BTreeSet::from([text.to_owned()])),
            ..Self::always(literal(text), SampleType::Text)
        }
    }

    fn always(text: String, of: SampleType) -> Self {
        Self {
            text,
            of,
            is_optional: false,
            found: None,
            is_empty_otherwise: true,
            possible: None,
            alternatives: None,
        }
    }

    /// A text that may be absent.
    fn optional(text: String) -> Self {
        let found = Some(format!("has({text})"));
        Self { is_optional: true, found, ..Self::always(text, SampleType::Text) }
    }

    /// A text that is empty where HAProxy has none.
    pub(super) fn named(text: String, found: Option<String>, possible: Option<BTreeSet<String>>) -> Self {
        Self { found, possible, ..Self::always(text, SampleType::Text) }
    }

    /// The only text that it can be.
    pub(super) fn only(&self) -> Option<&str> {
        let possible =
            self.possible.as_ref().filter(|possible| possible.len() == 1 && self.found.is_none())?;
        possible.first().map(String::as_str)
    }

    pub(super) fn found(&self) -> Option<&str> {
        self.found.as_deref()
    }

    /// Whether it is made of the requested host alone.
    pub(super) fn is_of_host(&self) -> bool {
        let schema = Schema::new(ExchangeStage::Request);
        let made = Expression::new(&self.total(), &schema, &ExpressionLimits::default());
        made.is_ok_and(|made| made.asks_only_for(Fact::RequestHost))
    }

    /// The expression as a text that is never absent.
    pub(super) fn total(&self) -> String {
        let text = match self.of {
            SampleType::Text => self.text.clone(),
            SampleType::Number | SampleType::Address => format!("string({})", self.text),
            SampleType::Truth => format!("({} ? \"1\" : \"0\")", self.text),
        };
        match &self.found {
            _ if self.is_optional => format!("({text} ?? \"\")"),
            Some(found) if !self.is_empty_otherwise => format!("({found} ? {text} : \"\")"),
            _ => text,
        }
    }

    /// The texts that it can be, also where HAProxy has none.
    pub(super) fn possible_in_all(&self) -> Option<BTreeSet<String>> {
        let mut possible = self.possible.clone()?;
        possible.extend(self.found.as_ref().map(|_| String::new()));
        Some(possible)
    }

    /// The condition that it is one of these texts.
    pub(super) fn is_one_of(&self, texts: &[String]) -> String {
        let is_plain = self.of == SampleType::Text && (self.is_optional || self.found.is_none());
        let text = if is_plain { self.text.clone() } else { self.total() };
        match texts {
            [one] => format!("{text} == {}", literal(one)),
            _ => {
                let list: Vec<String> = texts.iter().map(|text| literal(text)).collect();
                format!("{text} in [{}]", list.join(", "))
            }
        }
    }

    /// The alternatives under which it is one of these texts, if no other alternative comes before them.
    pub(super) fn atoms_of(&self, texts: &[String]) -> Option<Vec<Atom>> {
        let all = self.alternatives.as_ref()?;
        let are_apart = all
            .iter()
            .all(|(atom, _)| matches!(atom, Atom::Path(PathIs::Exact(_)) | Atom::Host(HostIs::Exact(_))));
        let found = all.iter().filter(|(_, value)| texts.contains(value)).map(|(atom, _)| atom.clone());
        are_apart.then(|| found.collect())
    }

    /// Replaces the expression by one that is made of its text.
    fn changed(&self, made: String) -> Self {
        Self {
            text: made,
            of: SampleType::Text,
            is_optional: false,
            possible: None,
            alternatives: None,
            ..self.clone()
        }
    }
}

/// A fetch or a converter with its arguments.
#[derive(Debug, PartialEq)]
struct SampleCall {
    name: String,
    arguments: Vec<String>,
}

impl SampleCall {
    fn argument(&self, place: usize) -> &str {
        self.arguments.get(place).map_or("", String::as_str)
    }
}

/// Parses `hdr(x),lower,map(FILE,y)`.
fn calls(text: &str) -> Option<Vec<SampleCall>> {
    let mut made = Vec::new();
    let mut rest = text;
    loop {
        let length = rest.find(['(', ',']).unwrap_or(rest.len());
        let (name, behind) = rest.split_at(length);
        let mut call = SampleCall { name: name.trim().to_owned(), arguments: Vec::new() };
        rest = match behind.strip_prefix('(') {
            None => behind,
            Some(inner) => {
                let (arguments, behind) = arguments(inner)?;
                call.arguments = arguments;
                behind
            }
        };
        if call.name.is_empty() {
            return None;
        }
        made.push(call);
        match rest.strip_prefix(',') {
            Some(behind) => rest = behind,
            None => return rest.is_empty().then_some(made),
        }
    }
}

/// Reads arguments up to the closing bracket. Also returns the text behind it.
fn arguments(text: &str) -> Option<(Vec<String>, &str)> {
    let mut made = vec![String::new()];
    let mut quote = None;
    for (at, letter) in text.char_indices() {
        match letter {
            _ if quote == Some(letter) => quote = None,
            '"' | '\'' if quote.is_none() => quote = Some(letter),
            ',' if quote.is_none() => made.push(String::new()),
            ')' if quote.is_none() => {
                let made = if made == [""] { Vec::new() } else { made };
                return Some((made, &text[at + 1..]));
            }
            other => made.last_mut()?.push(other),
        }
    }
    None
}

impl SampleReader<'_, '_> {
    /// Reads a sample with its converters.
    ///
    /// # Errors
    /// Why it has no translation.
    pub(super) fn sample(&mut self, text: &str) -> Result<Sample, String> {
        let unknown = || format!("{text} has no equivalent");
        let calls = calls(text.trim()).ok_or_else(unknown)?;
        let (fetch, converters) = calls.split_first().ok_or_else(unknown)?;
        let mut made = self.fetch(fetch)?.ok_or_else(unknown)?;
        for converter in converters {
            made = self.converted(made, converter)?.ok_or_else(unknown)?;
            if made.text.len() > EXPRESSION_BYTES_MAX {
                return Err(format!("the expression would be longer than {EXPRESSION_BYTES_MAX} bytes"));
            }
        }
        Ok(made)
    }

    /// Reads a log format as one text.
    ///
    /// # Errors
    /// The part without a translation.
    pub(super) fn format(&mut self, text: &str) -> Result<Sample, String> {
        let mut parts: Vec<Sample> = Vec::new();
        for piece in format::pieces(text)? {
            parts.push(match piece {
                format::Piece::Text(text) => Sample::constant(&text),
                format::Piece::Sample(sample) => self.sample(&sample)?,
                format::Piece::Alias(name) => return Err(format!("%{name} has no equivalent")),
            });
        }
        if let [one] = parts.as_slice() {
            return Ok(one.clone());
        }
        let possible = parts.iter().map(Sample::possible_in_all).reduce(combined).flatten();
        let texts: Vec<String> = parts.iter().map(Sample::total).collect();
        if texts.is_empty() {
            return Ok(Sample::constant(""));
        }
        let text = format!("({})", texts.join(" + "));
        if text.len() > EXPRESSION_BYTES_MAX {
            return Err(format!("the expression would be longer than {EXPRESSION_BYTES_MAX} bytes"));
        }
        Ok(Sample::named(text, None, possible))
    }

    fn fetch(&mut self, call: &SampleCall) -> Result<Option<Sample>, String> {
        let argument = call.argument(0);
        let always = |text: &str| Some(Sample::always(text.to_owned(), SampleType::Text));
        let member = |family: &str, name: &str| {
            (!name.is_empty()).then(|| Sample::optional(format!("{family}[{}]", literal(name))))
        };
        Ok(match call.name.as_str() {
            "str" => Some(Sample::constant(argument)),
            "int" => argument.parse::<i64>().ok().map(|number| Sample::constant(&number.to_string())),
            "bool" => match argument {
                "1" | "true" | "yes" => Some(Sample::constant("1")),
                "0" | "false" | "no" => Some(Sample::constant("0")),
                _ => None,
            },
            "always_true" => Some(Sample::constant("1")),
            "always_false" => Some(Sample::constant("0")),
            "var" => return self.variables.sample(argument, self.definitions).map(Some),
            "path" if argument.is_empty() => always("request.path"),
            "url" | "pathq" | "capture.req.uri" => always(super::samples::URL),
            "base" => always("(request.host + request.path)"),
            "query" => Some(Sample::optional("request.query".to_owned())),
            "method" | "capture.req.method" => always("request.method"),
            "hdr" | "req.hdr" | "req.fhdr" if argument.eq_ignore_ascii_case("host") => always("request.host"),
            "hdr" | "req.hdr" | "req.fhdr" => member("request.headers", &argument.to_ascii_lowercase()),
            "cook" | "req.cook" => member("request.cookies", argument),
            "url_param" | "urlp" => member("request.query", argument),
            "src" => Some(Sample::always("client.address".to_owned(), SampleType::Address)),
            "src_port" => Some(Sample::always("client.port".to_owned(), SampleType::Number)),
            "ssl_fc" => Some(Sample::always("has(client.tls.version)".to_owned(), SampleType::Truth)),
            "ssl_fc_sni" => Some(Sample::optional("client.tls.sni".to_owned())),
            "ssl_fc_protocol" => Some(Sample::optional("client.tls.version".to_owned())),
            _ => None,
        })
    }

    fn converted(&mut self, sample: Sample, call: &SampleCall) -> Result<Option<Sample>, String> {
        let is_host = sample.text == "request.host";
        Ok(match call.name.as_str() {
            // Hosts are in lower case and without a port.
            "lower" | "host_only" if is_host => Some(sample),
            "field" if is_host && call.arguments == ["1", ":"] => Some(sample),
            "lower" => Some(sample.changed(format!("{}.lowerAscii()", sample.total()))),
            "upper" => Some(sample.changed(format!("{}.upperAscii()", sample.total()))),
            // Paths and parameters are decoded.
            "url_dec"
                if ["request.path", "request.query["].iter().any(|text| sample.text.starts_with(text)) =>
            {
                Some(sample)
            }
            "regsub" => replaced(&sample, call),
            "field" | "word" => piece(&sample, call),
            "iif" if sample.of == SampleType::Truth && call.arguments.len() == 2 => {
                let texts = [call.argument(0), call.argument(1)];
                let made = format!("({} ? {} : {})", sample.text, literal(texts[0]), literal(texts[1]));
                Some(Sample { possible: Some(texts.map(str::to_owned).into()), ..sample.changed(made) })
            }
            "not" if sample.of == SampleType::Truth => {
                Some(Sample { text: format!("!{}", sample.text), ..sample })
            }
            "concat" => {
                let mut text = literal(call.argument(0));
                if let Some(name) = Some(call.argument(1)).filter(|name| !name.is_empty()) {
                    let middle = self.variables.sample(name, self.definitions)?;
                    text = format!("{text} + {}", middle.total());
                }
                let made = format!("({} + {text} + {})", sample.total(), literal(call.argument(2)));
                let is_empty_otherwise = sample.found.is_none();
                Some(Sample { is_empty_otherwise, ..sample.changed(made.replace(" + \"\"", "")) })
            }
            name if name == "map" || name.starts_with("map_") => return self.mapped(&sample, call).map(Some),
            _ => None,
        })
    }

    /// Looks a value up in a file: `map_beg(FILE,DEFAULT)`, `map_str_int(FILE)`.
    fn mapped(&mut self, sample: &Sample, call: &SampleCall) -> Result<Sample, String> {
        let way = call.name.strip_prefix("map").unwrap_or_default().trim_start_matches('_');
        let way = way.strip_suffix("_int").or_else(|| way.strip_suffix("_str")).unwrap_or(way);
        let origin = StatementOrigin::Directive(self.number);
        let map = self.files.map(call.argument(0), way, self.definitions, origin)?;
        if (way == "ip") != (sample.of == SampleType::Address) {
            return Err(format!(
                "{} compares {}",
                call.name,
                if way == "ip" { "addresses" } else { "texts" }
            ));
        }
        let is_bare = sample.of == SampleType::Address || sample.is_optional;
        let key = if is_bare { sample.text.clone() } else { sample.total() };
        let value = format!("{}[{key}]", map.name);
        let mut made = Sample { possible: map.values(), ..Sample::optional(value.clone()) };
        match call.arguments.get(1) {
            Some(default) => {
                let possible = map.values().map(|mut possible| {
                    possible.insert(default.clone());
                    possible
                });
                made = Sample {
                    found: sample.found.clone(),
                    is_empty_otherwise: sample.found.is_none(),
                    possible,
                    ..Sample::always(format!("({value} ?? {})", literal(default)), SampleType::Text)
                };
            }
            None => made.alternatives = alternatives(&sample.text, &map),
        }
        Ok(made)
    }
}

/// A text with another one in place of the first match of an expression.
fn replaced(sample: &Sample, call: &SampleCall) -> Option<Sample> {
    let [pattern, by, flags @ ..] = call.arguments.as_slice() else { return None };
    // A group in the text, and all matches, would need more.
    let is_plain = !by.contains('\\') && flags.iter().all(|flags| matches!(flags.as_str(), "" | "i"));
    let ignores_case = flags.iter().any(|flags| flags == "i");
    let pattern = crate::values::search(pattern, ignores_case).ok().filter(|_| is_plain)?;
    let text = format!("{}.replaceFirst({}, {})", sample.total(), literal(&pattern), literal(by));
    Some(sample.changed(text))
}

/// A part of a text between separators, counted from 1.
fn piece(sample: &Sample, call: &SampleCall) -> Option<Sample> {
    let (number, separator) = (call.argument(0).parse::<usize>().ok()?, call.argument(1));
    let number = match call.name.as_str() {
        // Words leave out empty parts: that before the first slash of a path.
        "word" => (sample.text == "request.path" && separator == "/").then_some(number)?,
        _ => number.checked_sub(1)?,
    };
    let is_one = separator.chars().count() == 1 && call.arguments.len() == 2;
    let text = format!("{}.split({})[{number}]", sample.total(), literal(separator));
    is_one.then(|| match number {
        0 => sample.changed(text),
        _ => Sample::optional(text),
    })
}

/// The keys of a map as conditions on the path or host.
fn alternatives(key: &str, map: &FoundMap) -> Option<Rc<[(Atom, String)]>> {
    if map.entries.len() > ALTERNATIVES_MAX {
        return None;
    }
    let atom = |text: &str| match (key, map.kind) {
        ("request.path", maps::MapKind::Exact) => {
            text.starts_with('/').then(|| Atom::Path(PathIs::exact(text)))
        }
        ("request.path", maps::MapKind::Prefix) => {
            text.starts_with('/').then(|| Atom::Path(PathIs::prefix(text)))
        }
        ("request.host", maps::MapKind::Exact) => {
            HostIs::named(text).filter(|host| matches!(host, HostIs::Exact(_))).map(Atom::Host)
        }
        _ => None,
    };
    let made = map.entries.iter().map(|(key, value)| Some((key.len(), atom(key)?, value.clone())));
    let mut made: Vec<(usize, Atom, String)> = made.collect::<Option<_>>()?;
    // The longest prefix counts.
    made.sort_by_key(|(length, ..)| std::cmp::Reverse(*length));
    Some(made.into_iter().map(|(_, atom, value)| (atom, value)).collect())
}

/// All texts of two parts, one after the other.
fn combined(one: Option<BTreeSet<String>>, other: Option<BTreeSet<String>>) -> Option<BTreeSet<String>> {
    let (one, other) = (one?, other?);
    let is_few = one.len().saturating_mul(other.len()) <= POSSIBLE_MAX;
    is_few.then(|| {
        one.iter().flat_map(|first| other.iter().map(move |last| format!("{first}{last}"))).collect()
    })
}
