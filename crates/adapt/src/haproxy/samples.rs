//! Criteria of ACLs: samples of a request, and how they are compared.

use super::acl::{CountedRequests, Term};
use super::expressions::{Sample, SampleReader, SampleType};
use crate::draft::StatementOrigin;
use crate::environment;
use crate::rules::{Atom, HostIs, PathIs, TextIs, literal};
use crate::values::{self, bare};

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

/// Fields whose values are lists: HAProxy compares each element.
const LISTS: [&str; 8] =
    ["accept", "accept-encoding", "accept-language", "connection", "te", "upgrade", "via", "x-forwarded-for"];

/// The path and query as one text, as `url` and `pathq` are.
pub(super) const URL: &str = "(request.path + (has(request.query) ? \"?\" + request.query : \"\"))";

/// A criterion: how a sample is compared, and with what.
struct Criteria {
    way: CompareWay,
    /// The type behind `-m`, if it is one: `int`, `bool`, `ip`.
    of: Option<SampleType>,
    ignores_case: bool,
    values: Vec<String>,
    /// Maps with more networks.
    networks: Vec<String>,
}

impl Criteria {
    fn read(
        words: &[String],
        way: CompareWay,
        base: &str,
        reader: &mut SampleReader<'_, '_>,
    ) -> Result<Self, String> {
        let mut made = Self { way, of: None, ignores_case: false, values: Vec::new(), networks: Vec::new() };
        let mut is_map = false;
        let mut rest = words.iter();
        while let Some(word) = rest.next() {
            match word.as_str() {
                "-i" => made.ignores_case = true,
                "-n" | "--" | "-u" => {}
                "-m" => {
                    let wanted = rest.next().map_or("", String::as_str);
                    match (WAYS.iter().find(|(name, _)| *name == wanted), wanted) {
                        (Some((_, found)), _) => made.way = *found,
                        (None, "ip") => made.of = Some(SampleType::Address),
                        (None, "int") => made.of = Some(SampleType::Number),
                        (None, "bool") => made.of = Some(SampleType::Truth),
                        (None, _) => return Err(format!("-m {wanted} is another comparison")),
                    }
                }
                "-M" => is_map = true,
                "-f" => made.file(rest.next().map_or("", String::as_str), is_map, base, reader)?,
                value => made.values.push(value.to_owned()),
            }
        }
        Ok(made)
    }

    /// Adds the lines of a file. Networks stay in it.
    fn file(
        &mut self,
        file: &str,
        is_map: bool,
        base: &str,
        reader: &mut SampleReader<'_, '_>,
    ) -> Result<(), String> {
        let lines = reader.files.list(file).map_err(|why| format!("its file cannot be read: {why}"))?;
        if base == "src" {
            let origin = StatementOrigin::Directive(reader.number);
            if let Ok(map) = reader.files.networks(file, is_map, reader.definitions, origin) {
                self.networks.push(map);
                return Ok(());
            }
        }
        let key = |line: String| match is_map {
            true => line.split_whitespace().next().unwrap_or_default().to_owned(),
            false => line,
        };
        self.values.extend(lines.into_iter().map(key));
        Ok(())
    }
}

/// Parses a criterion: a sample, flags and values.
pub(super) fn term(words: &[String], reader: &mut SampleReader<'_, '_>) -> Term {
    let Some(sample) = words.first() else { return Term::Unsaid("it asks for nothing".to_owned()) };
    // Converters that only normalize a host or text are dropped: Vanward compares the same way.
    let is_call = sample.find(['(', ',']).is_some_and(|at| sample[at..].starts_with('('));
    let (fetch, converters) = sample.split_once(if is_call { ")," } else { "," }).unwrap_or((sample, ""));
    let (name, argument) =
        fetch.split_once('(').map_or((fetch, ""), |(name, rest)| (name, rest.trim_end_matches(')')));
    // A request has one Host here: others get 400.
    if matches!(name, "hdr_cnt" | "req.hdr_cnt") && argument.eq_ignore_ascii_case("host") {
        match words.get(1..).unwrap_or_default() {
            [one] | [.., _, one] if one == "1" && words.len() <= 3 => {
                return Term::Fixed(words.len() == 2 || words[1] == "eq");
            }
            _ => {}
        }
    }
    if name == "nbsrv"
        && matches!(words.get(1..), Some([one, two]) if matches!((one.as_str(), two.as_str()), ("lt", "1") | ("eq", "0")))
    {
        return Term::Unsaid(of_servers(argument));
    }
    let (base, way) = WAYS
        .iter()
        .find_map(|(suffix, way)| Some((name.strip_suffix(suffix)?.strip_suffix('_')?, *way)))
        .unwrap_or((name, CompareWay::Exact));
    let normalizes = |converter: &str| match converter {
        "" | "lower" | "host_only" | "field(1" | ":)" => true,
        // Paths are compared decoded.
        "url_dec" => matches!(base, "path" | "urlp" | "url_param"),
        _ => false,
    };
    let mut criteria = match Criteria::read(&words[1..], way, base, reader) {
        Ok(criteria) => criteria,
        Err(why) => return Term::Unsaid(why),
    };
    if criteria.values.iter().any(|value| environment::is_in(value)) {
        return Term::Unsaid("its value comes from the environment".to_owned());
    }
    if base != "date" && !converters.split(',').all(normalizes) || base == "var" {
        return match reader.sample(sample) {
            Ok(found) => criteria.of_sample(&found).unwrap_or_else(|| unsaid(sample)),
            Err(why) => Term::Unsaid(why),
        };
    }
    // Texts are read as numbers only where there is an expression for that.
    const TEXTS: [&str; 10] =
        ["path", "url", "query", "method", "url_param", "urlp", "cook", "req.cook", "base", "host"];
    let base = match criteria.of {
        Some(SampleType::Number) if matches!(base, "hdr" | "req.hdr" | "req.fhdr") => "hdr_val",
        Some(SampleType::Number | SampleType::Truth) if base.ends_with("hdr") || TEXTS.contains(&base) => {
            return unsaid(sample);
        }
        _ => base,
    };
    criteria.ignores_case |= converters.contains("lower");
    let Criteria { way, ignores_case, ref values, ref networks, .. } = criteria;
    let in_maps = networks.iter().map(|map| Atom::When(format!("client.address in {map}")));
    let comparison = Comparison { way, ignores_case, values };
    match comparison.sample(base, argument, converters) {
        Some(Term::Any(atoms)) => Term::Any(atoms.into_iter().chain(in_maps).collect()),
        None if !networks.is_empty() && values.is_empty() => Term::Any(in_maps.collect()),
        found => found.unwrap_or_else(|| unsaid(sample)),
    }
}

/// Why a condition on the servers of a backend has no translation.
pub(super) fn of_servers(backend: &str) -> String {
    format!("routes cannot tell whether a server of {backend} is up")
}

fn unsaid(sample: &str) -> Term {
    Term::Unsaid(format!("routes cannot match on {sample}"))
}

impl Criteria {
    /// Compares a sample that is an expression.
    fn of_sample(&self, sample: &Sample) -> Option<Term> {
        let Self { way, ignores_case, values, .. } = self;
        let comparison = Comparison { way: *way, ignores_case: *ignores_case, values };
        if *way == CompareWay::Found {
            return Some(match (&sample.alternatives, sample.found()) {
                (Some(all), _) => Term::Any(all.iter().map(|(atom, _)| atom.clone()).collect()),
                (None, Some(found)) => said(found),
                (None, None) => Term::Fixed(true),
            });
        }
        let has_signs = values.iter().any(|word| word.parse::<i64>().is_err()) && numbers(values).is_some();
        let own = if has_signs { SampleType::Number } else { sample.of };
        match (self.of.unwrap_or(own), sample.of) {
            (SampleType::Address, SampleType::Address) => {
                let are_networks = !values.is_empty() && values.iter().all(|value| values::is_network(value));
                are_networks.then(|| Term::Any(vec![clients(values)]))
            }
            (SampleType::Address, _) => None,
            (SampleType::Truth, _) => is_true(values).then(|| is_set(sample)),
            (SampleType::Number, _) => {
                let compared = comparison_of(values, &number(sample))?;
                Some(match sample.found() {
                    Some(found) => said(&format!("{found} && ({compared})")),
                    None => said(&compared),
                })
            }
            (SampleType::Text, _) if *way == CompareWay::Exact && !ignores_case => {
                let is_said = !values.is_empty() && !values.iter().any(String::is_empty);
                is_said.then(|| match sample.atoms_of(values) {
                    Some(atoms) => Term::Any(atoms),
                    None => said(&sample.is_one_of(values)),
                })
            }
            (SampleType::Text, _) => comparison.text(&sample.total()),
        }
    }
}

/// Clients in networks, which HAProxy takes with bits beyond their length.
fn clients(networks: &[String]) -> Atom {
    Atom::Clients(networks.iter().map(|network| values::masked(network)).collect())
}

/// A sample as a number. Other texts are 0.
fn number(sample: &Sample) -> String {
    match sample.of {
        SampleType::Number => sample.text.clone(),
        _ => format!("(int({}) ?? 0)", bare(&sample.total())),
    }
}

/// Whether a sample is a number other than 0.
fn is_set(sample: &Sample) -> Term {
    let is_set = |text: &String| text.parse::<i64>().is_ok_and(|number| number != 0);
    match &sample.possible {
        _ if sample.of == SampleType::Truth => said(&sample.text),
        Some(possible) => match possible.iter().filter(|text| is_set(text)).cloned().collect::<Vec<_>>() {
            set if set.is_empty() => Term::Fixed(false),
            set => said(&sample.is_one_of(&set)),
        },
        None => said(&format!("{} != 0", number(sample))),
    }
}

struct Comparison<'v> {
    way: CompareWay,
    ignores_case: bool,
    values: &'v [String],
}

impl Comparison<'_> {
    fn sample(&self, base: &str, argument: &str, converters: &str) -> Option<Term> {
        let Self { way, ignores_case, values } = *self;
        match base {
            "path" | "url" | "pathq" | "query" | "ssl_fc_protocol" if way == CompareWay::Found => None,
            "path" => self.each(&|value| path(value, way, ignores_case).map(|path| vec![Atom::Path(path)])),
            "url" | "pathq" => self.each(&|value| self.url(value).map(|atom| vec![atom])),
            "query" => self.text("(request.query ?? \"\")"),
            "hdr" | "req.hdr" | "req.fhdr" if argument.eq_ignore_ascii_case("host") => match way {
                CompareWay::Found => Some(Term::Fixed(true)),
                _ => self.each(&|value| hosts(value, way)),
            },
            "req.ssl_sni" | "req_ssl_sni" => self.each(&|value| hosts(value, way)),
            "ssl_fc_sni" if way == CompareWay::Found => Some(said("has(client.tls.sni)")),
            "ssl_fc_sni" => self.text("(client.tls.sni ?? \"\")"),
            "ssl_fc_protocol" => self.text("(client.tls.version ?? \"\")"),
            "ssl_c_used" | "ssl_fc_has_crt" if is_true(values) => Some(said("has(client.tls.fingerprint)")),
            "hdr" | "req.hdr" | "req.fhdr" | "cook" | "req.cook" | "url_param" | "urlp"
                if !argument.is_empty() =>
            {
                self.member(base, argument)
            }
            "req.hdr_cnt" | "hdr_cnt" | "req.fhdr_cnt" if !argument.is_empty() => {
                let present = vec![Atom::Header(argument.to_owned(), TextIs::Present)];
                match values.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
                    ["gt", "0"] | ["ge", "1"] => Some(Term::Any(present)),
                    ["eq", "0"] | ["lt", "1"] | ["le", "0"] | ["0"] => Some(Term::None(present)),
                    _ => None,
                }
            }
            "hdr_val" | "req.hdr_val" if !argument.is_empty() => {
                let name = literal(&argument.to_ascii_lowercase());
                self.number(&format!("(int(request.headers[{name}] ?? \"\") ?? 0)"))
            }
            "req.body_size" | "req.body_len" => self.number("(request.size ?? 0)"),
            "src_port" => self.number("client.port"),
            "src" => {
                let are_networks = values.iter().all(|value| values::is_network(value));
                (are_networks && !values.is_empty()).then(|| Term::Any(vec![clients(values)]))
            }
            "method" => self.method(),
            "ssl_fc" if is_true(values) => Some(Term::Tls(true)),
            "ssl_fc" => (values == ["0"] || values == ["false"]).then_some(Term::Tls(false)),
            "req.ver" | "req_ver" if way == CompareWay::Exact => {
                const VERSIONS: [(&str, &str); 4] =
                    [("1.0", "1.0"), ("1.1", "1.1"), ("2.0", "2"), ("3.0", "3")];
                self.each(&|value| {
                    let found = VERSIONS.iter().find(|(known, _)| *known == value);
                    found.map(|(_, here)| vec![version(here)])
                })
            }
            "dst_port" => {
                let wanted: Vec<String> = values.to_vec();
                comparison_of(&wanted, "x").map(|_| Term::Port(wanted))
            }
            "date" => time(argument, converters).and_then(|hour| self.number(&hour)),
            "always_true" | "wait_end" => Some(Term::Fixed(true)),
            "always_false" => Some(Term::Fixed(false)),
            "http_auth" => Some(Term::LoggedIn(argument.to_owned())),
            _ => rate(base, argument, values),
        }
    }

    fn each(&self, atoms: &dyn Fn(&str) -> Option<Vec<Atom>>) -> Option<Term> {
        let atoms: Option<Vec<Vec<Atom>>> = self.values.iter().map(|value| atoms(value)).collect();
        atoms.map(|atoms| Term::Any(atoms.concat())).filter(|_| !self.values.is_empty())
    }

    /// A text of the request that has no option in routes.
    fn text(&self, text: &str) -> Option<Term> {
        self.each(&|value| self.compared(text, value).map(|said| vec![Atom::When(said)]))
    }

    fn number(&self, text: &str) -> Option<Term> {
        comparison_of(self.values, text).map(|said| Term::Any(vec![Atom::When(said)]))
    }

    fn compared(&self, text: &str, value: &str) -> Option<String> {
        let (text, value) = match self.way {
            CompareWay::Expression => (text.to_owned(), values::search(value, self.ignores_case).ok()?),
            _ if self.ignores_case => (format!("{text}.lowerAscii()"), value.to_ascii_lowercase()),
            _ => (text.to_owned(), value.to_owned()),
        };
        let value = literal(&value);
        match self.way {
            CompareWay::Exact => Some(format!("{text} == {value}")),
            _ if value == "\"\"" => None,
            CompareWay::Begin => Some(format!("{text}.startsWith({value})")),
            CompareWay::End => Some(format!("{text}.endsWith({value})")),
            CompareWay::Within => Some(format!("{text}.contains({value})")),
            CompareWay::Expression => Some(format!("{text}.matches({value})")),
            _ => None,
        }
    }

    /// A URL is a path and a query. Without a `?`, the beginning of both is that of the path.
    fn url(&self, value: &str) -> Option<Atom> {
        match self.way {
            CompareWay::Begin | CompareWay::Exact if !value.contains('?') => {
                path(value, self.way, self.ignores_case).map(Atom::Path)
            }
            // Escapes of the path are decoded here, those of the query are not.
            _ if value.contains('%') => None,
            _ => self.compared(URL, value).map(Atom::When),
        }
    }

    fn member(&self, base: &str, argument: &str) -> Option<Term> {
        let name = argument.split(',').next()?.to_owned();
        let splits = matches!(base, "hdr" | "req.hdr") && LISTS.contains(&name.to_ascii_lowercase().as_str());
        let made = move |text: TextIs| match base {
            "cook" | "req.cook" => Atom::Cookie(name.clone(), text),
            "url_param" | "urlp" => Atom::Query(name.clone(), text),
            _ => Atom::Header(name.clone(), text),
        };
        if self.way == CompareWay::Found {
            // A cookie without a value is not found.
            let text =
                if base.ends_with("cook") { TextIs::Pattern(".+".to_owned()) } else { TextIs::Present };
            return Some(Term::Any(vec![made(text)]));
        }
        self.each(&|value| {
            let text = text(value, self.way, self.ignores_case)?;
            let text = if splits { element(text, self.way, self.ignores_case, value) } else { text };
            Some(vec![made(text)])
        })
    }

    fn method(&self) -> Option<Term> {
        let is_word =
            |value: &String| value.bytes().all(|byte| byte.is_ascii_alphabetic()) && !value.is_empty();
        let are_words = self.values.iter().all(is_word) && !self.values.is_empty();
        if self.way == CompareWay::Exact && are_words && !self.ignores_case {
            return Some(Term::Any(vec![Atom::Methods(self.values.to_vec())]));
        }
        self.text("request.method")
    }
}

fn said(text: &str) -> Term {
    Term::Any(vec![Atom::When(text.to_owned())])
}

/// A condition on the version of HTTP, as it is written here.
pub(super) fn version(text: &str) -> Atom {
    Atom::When(format!("request.version == {}", literal(text)))
}

/// Whether a criterion without values, or with one of these, asks for truth.
fn is_true(values: &[String]) -> bool {
    values.is_empty() || matches!(values, [one] if one == "1" || one == "true")
}

/// Numbers, ranges and operators: `eq 1`, `ge 8 le 9` (either), `1024:65535`.
fn numbers(values: &[String]) -> Option<Vec<(&'static str, i64, i64)>> {
    const SIGNS: [(&str, &str); 5] = [("eq", "=="), ("ge", ">="), ("gt", ">"), ("le", "<="), ("lt", "<")];
    let mut sign = "==";
    let mut made = Vec::new();
    for word in values {
        if let Some((_, found)) = SIGNS.iter().find(|(name, _)| *name == word.as_str()) {
            sign = *found;
        } else if let Some((from, to)) = word.split_once(':') {
            made.push(("in", from.parse().ok()?, to.parse().ok()?));
        } else {
            let number: i64 = word.parse().ok()?;
            made.push((sign, number, number));
        }
    }
    (!made.is_empty() && made.iter().all(|(_, from, to)| *from >= 0 && *to >= 0)).then_some(made)
}

fn comparison_of(values: &[String], text: &str) -> Option<String> {
    let one = |(sign, from, to): &(&str, i64, i64)| match *sign {
        "in" => format!("({text} >= {from} && {text} <= {to})"),
        sign => format!("{text} {sign} {from}"),
    };
    Some(numbers(values)?.iter().map(one).collect::<Vec<_>>().join(" || "))
}

/// Whether a number meets a comparison.
pub(super) fn is_within(values: &[String], number: i64) -> bool {
    numbers(values).unwrap_or_default().iter().any(|(sign, from, to)| match *sign {
        "in" => (*from..=*to).contains(&number),
        ">=" => number >= *from,
        ">" => number > *from,
        "<=" => number <= *from,
        "<" => number < *from,
        _ => number == *from,
    })
}

/// Parses `date,utime(%H)`: a number of the time in UTC.
fn time(argument: &str, converters: &str) -> Option<String> {
    let format = converters.strip_prefix("utime(").and_then(|rest| rest.strip_suffix(')'))?;
    let format = format.split(',').next()?.trim_matches('"');
    let made = match format {
        "%H" => "time.getHours()",
        "%M" => "time.getMinutes()",
        "%w" => "time.getDayOfWeek()",
        "%d" => "time.getDate()",
        "%H%M" => "(time.getHours() * 100 + time.getMinutes())",
        _ => return None,
    };
    argument.is_empty().then(|| made.to_owned())
}

/// Parses `sc_http_req_rate(0) gt 100`, `sc_conn_cur(0) gt 10`, and their older names.
fn rate(base: &str, argument: &str, values: &[String]) -> Option<Term> {
    let counted = |what: &str| base.strip_suffix(what).and_then(|base| base.strip_suffix('_'));
    let (base, what) = match (counted("http_req_rate"), counted("conn_cur")) {
        (Some(base), _) => (base, CountedRequests::Rate),
        (None, Some(base)) => (base, CountedRequests::UnderWay),
        (None, None) => return None,
    };
    let counter = match base {
        "sc" => format!("sc{}", argument.split(',').next()?.trim()),
        "src" => "src".to_owned(),
        _ => base.starts_with("sc").then(|| base.to_owned())?,
    };
    let most = match values {
        [gt, most] if gt == "gt" => most.parse::<u64>().ok()?,
        [ge, most] if ge == "ge" => most.parse::<u64>().ok()?.checked_sub(1)?,
        _ => return None,
    };
    (1..=1_000_000).contains(&most).then_some(Term::Rate { counter, most, what })
}

fn path(value: &str, way: CompareWay, ignores_case: bool) -> Option<PathIs> {
    let flag = if ignores_case { "(?i)" } else { "" };
    let value = if way == CompareWay::Expression { value.to_owned() } else { decoded(value)? };
    let value = value.as_str();
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
        // Escapes are decoded here.
        CompareWay::Expression if value.contains('%') => None,
        CompareWay::Expression => values::expression(value, ignores_case).ok().map(PathIs::Pattern),
        CompareWay::Domain | CompareWay::Found => None,
    }
}

/// Decodes the escapes of a path; `None` if one is invalid, or no printable character.
fn decoded(path: &str) -> Option<String> {
    let mut made = String::new();
    let mut rest = path;
    while let Some((before, behind)) = rest.split_once('%') {
        made.push_str(before);
        let byte =
            u8::from_str_radix(behind.get(..2)?, 16).ok().filter(|byte| (0x20..0x7f).contains(byte))?;
        made.push(char::from(byte));
        rest = &behind[2..];
    }
    made.push_str(rest);
    Some(made)
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

/// Extends a comparison to the elements of a list.
fn element(text: TextIs, way: CompareWay, ignores_case: bool, value: &str) -> TextIs {
    let flag = if ignores_case { "(?i)" } else { "" };
    let escaped = values::escaped(value);
    match way {
        CompareWay::Exact => TextIs::Pattern(format!("{flag}(.*,)?[ \\t]*{escaped}[ \\t]*(,.*)?")),
        CompareWay::Begin => TextIs::Pattern(format!("{flag}(.*,)?[ \\t]*{escaped}.*")),
        CompareWay::End => TextIs::Pattern(format!("{flag}.*{escaped}[ \\t]*(,.*)?")),
        _ => text,
    }
}
