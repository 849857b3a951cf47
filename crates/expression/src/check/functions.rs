//! Calls of functions. Arguments that have to be constants are compiled here.

use super::ExpressionChecker;
use crate::calendar::{self, CalendarPart, PARTS};
use crate::digest::{DIGESTS, FORMS};
use crate::duration;
use crate::facts::FactFamily;
use crate::fault::{ExpressionFault, Span};
use crate::node::{CaseMapping, Finder, Node, NodeOperation, TextSearch};
use crate::pattern::Pattern;
use crate::schema;
use crate::syntax::{SyntaxForm, SyntaxTree, SyntaxWord};
use crate::value::{ValueKind, ValueType};

/// Functions that are called on a value: `value.name(…)`.
pub(super) const METHODS: [&str; 22] = [
    "matches",
    "startsWith",
    "endsWith",
    "contains",
    "size",
    "lowerAscii",
    "upperAscii",
    "replaceFirst",
    "hash",
    "split",
    "orValue",
    "getFullYear",
    "getMonth",
    "getDate",
    "getDayOfMonth",
    "getDayOfWeek",
    "getDayOfYear",
    "getHours",
    "getMinutes",
    "getSeconds",
    "getMilliseconds",
    "getTimeOfDay",
];

/// Functions that stand alone: `name(…)`.
const FUNCTIONS: [&str; 6] = ["has", "size", "int", "string", "duration", "timestamp"];

/// Names of other languages, with the function here.
const OTHER_FUNCTIONS: [(&str, &str); 18] = [
    ("lower", "lowerAscii"),
    ("toLower", "lowerAscii"),
    ("toLowerCase", "lowerAscii"),
    ("to_lower", "lowerAscii"),
    ("upper", "upperAscii"),
    ("toUpperCase", "upperAscii"),
    ("length", "size"),
    ("len", "size"),
    ("hasPrefix", "startsWith"),
    ("hasSuffix", "endsWith"),
    ("includes", "contains"),
    ("test", "matches"),
    ("regex", "matches"),
    ("match", "matches"),
    ("replace", "replaceFirst"),
    ("regsub", "replaceFirst"),
    ("sub", "replaceFirst"),
    ("removePrefix", "replaceFirst"),
];

/// The largest number of a piece of `split`.
const PIECE_MAX: u64 = 1000;

pub(super) fn is_method(name: &str) -> bool {
    METHODS.contains(&name)
}

impl ExpressionChecker<'_> {
    pub(super) fn call(
        &mut self,
        tree: &SyntaxTree,
        target: Option<&SyntaxTree>,
        word: &SyntaxWord,
        arguments: &[SyntaxTree],
    ) -> Result<Node, ExpressionFault> {
        match target {
            Some(target) => self.method(tree.at, target, word, arguments),
            None => self.function(tree.at, word, arguments),
        }
    }

    fn function(
        &mut self,
        at: Span,
        word: &SyntaxWord,
        arguments: &[SyntaxTree],
    ) -> Result<Node, ExpressionFault> {
        match word.text.as_str() {
            "has" => self.has(at, one(at, word, arguments)?),
            "size" => self.size(at, one(at, word, arguments)?),
            "int" => {
                let text = self.node(one(at, word, arguments)?)?;
                if text.kind.of == ValueType::Time {
                    let time = self.always(text)?;
                    let seconds = NodeOperation::Divide(Box::new(time), 1_000_000_000);
                    return Ok(self.make(at, ValueKind::always(ValueType::Integer), seconds));
                }
                if text.kind.of != ValueType::Text {
                    return Err(ExpressionFault::new(
                        text.at,
                        format!("int(…) needs a text or a time; this is {}", text.kind.of),
                    ));
                }
                Ok(self.make(
                    at,
                    ValueKind::optional(ValueType::Integer),
                    NodeOperation::ParseInteger(Box::new(text)),
                ))
            }
            "string" => self.string(at, one(at, word, arguments)?),
            "duration" => {
                let text = constant(one(at, word, arguments)?, "duration(…)", "duration(\"5m\")")?;
                let Some(nanoseconds) = duration::parse(text) else {
                    let fault = ExpressionFault::new(arguments[0].at, format!("{text:?} is not a duration"));
                    return Err(fault.hinting("write numbers with h, m, s, ms, us or ns, such as \"1h30m\""));
                };
                Ok(self.make(at, ValueKind::always(ValueType::Duration), NodeOperation::Number(nanoseconds)))
            }
            "timestamp" => {
                const EXAMPLE: &str = "timestamp(\"2026-01-31T12:00:00Z\")";
                let text = constant(one(at, word, arguments)?, "timestamp(…)", EXAMPLE)?;
                let Some(nanoseconds) = calendar::parse(text) else {
                    let fault = ExpressionFault::new(arguments[0].at, format!("{text:?} is not a time"));
                    return Err(fault.hinting("write it as in RFC 3339, such as \"2026-01-31T12:00:00Z\""));
                };
                Ok(self.make(at, ValueKind::always(ValueType::Time), NodeOperation::Number(nanoseconds)))
            }
            "not" => {
                Err(ExpressionFault::new(word.at, "the function not does not exist").hinting("write !(…)"))
            }
            name if is_method(name) => {
                let target = arguments.first().map_or("VALUE", |first| self.written(first.at)).to_owned();
                let fault = ExpressionFault::new(word.at, format!("{name} is called on a value"));
                let rest = if arguments.len() > 1 { self.written(arguments[1].at) } else { "" };
                Err(fault.hinting(format!("write {target}.{name}({rest})")))
            }
            name => {
                let fault = unknown_function(word.at, name);
                let family = match name {
                    "header" | "headers" | "http_header" => FactFamily::RequestHeaders,
                    "cookie" | "cookies" => FactFamily::RequestCookies,
                    "query" | "param" | "arg" => FactFamily::RequestQuery,
                    "claim" | "claims" => FactFamily::JwtClaims,
                    _ => return Err(fault),
                };
                Err(self.member_in_brackets(fault, family, arguments))
            }
        }
    }

    /// A member of a family in round brackets.
    fn member_in_brackets(
        &self,
        fault: ExpressionFault,
        family: FactFamily,
        arguments: &[SyntaxTree],
    ) -> ExpressionFault {
        let key = arguments.first().map_or("\"name\"", |first| self.written(first.at));
        ExpressionFault { nearest: None, ..fault }.hinting(format!("write {}[{key}]", family.name()))
    }

    fn method(
        &mut self,
        at: Span,
        target: &SyntaxTree,
        word: &SyntaxWord,
        arguments: &[SyntaxTree],
    ) -> Result<Node, ExpressionFault> {
        let name = word.text.as_str();
        if matches!(name, "all" | "exists" | "exists_one" | "map" | "filter" | "existsOne") {
            let fault = ExpressionFault::new(word.at, "loops over lists are not supported");
            return Err(fault.hinting("to look for one value, write VALUE in LIST"));
        }
        if let Some((_, part)) = PARTS.iter().find(|(known, _)| *known == name) {
            return self.part_of_time(at, target, word, arguments, *part);
        }
        match name {
            "matches" => self.matches(at, target, one(at, word, arguments)?),
            "startsWith" => self.search(at, TextSearch::StartsWith, target, word, arguments),
            "endsWith" => self.search(at, TextSearch::EndsWith, target, word, arguments),
            "contains" => self.search(at, TextSearch::Contains, target, word, arguments),
            "size" => {
                none(word, arguments)?;
                self.size(at, target)
            }
            "lowerAscii" | "upperAscii" => {
                none(word, arguments)?;
                let case = if name == "lowerAscii" { CaseMapping::Lower } else { CaseMapping::Upper };
                let text = self.text_of(target, name)?;
                Ok(self.make(
                    at,
                    ValueKind::always(ValueType::Text),
                    NodeOperation::ChangeCase(case, Box::new(text)),
                ))
            }
            "hash" => self.hash(at, target, word, arguments),
            "replaceFirst" => self.replace_first(at, target, word, arguments),
            "split" => {
                let written = self.written(at);
                let fault = ExpressionFault::new(at, "split gives a list, which is not a value");
                Err(fault.hinting(format!("ask for one piece: {written}[0]")))
            }
            "orValue" => self.default(at, target, one(at, word, arguments)?),
            "has" => Err(ExpressionFault::new(word.at, "has is not called on a value")
                .hinting("write has(VALUE), such as has(request.headers[\"name\"])")),
            name if FUNCTIONS.contains(&name) => {
                let target = self.written(target.at);
                Err(ExpressionFault::new(word.at, format!("{name} is not called on a value"))
                    .hinting(format!("write {name}({target})")))
            }
            name => {
                let fault = unknown_function(word.at, name);
                let family = target.path().and_then(|path| schema::family(&format!("{path}.{name}")));
                Err(match family {
                    Some(family) => self.member_in_brackets(fault, family, arguments),
                    None => fault,
                })
            }
        }
    }

    /// `has(value)`: whether it is present.
    fn has(&mut self, at: Span, value: &SyntaxTree) -> Result<Node, ExpressionFault> {
        let value = self.node(value)?;
        if !value.may_be_absent() {
            let fault = ExpressionFault::new(value.at, format!("{} is never absent", self.written(value.at)));
            return Err(fault.hinting("omit has(…)"));
        }
        Ok(self.boolean(at, NodeOperation::Has(Box::new(value))))
    }

    fn size(&mut self, at: Span, text: &SyntaxTree) -> Result<Node, ExpressionFault> {
        let text = self.text_of(text, "size")?;
        Ok(self.integer(at, NodeOperation::Size(Box::new(text))))
    }

    fn string(&mut self, at: Span, value: &SyntaxTree) -> Result<Node, ExpressionFault> {
        let value = self.node(value)?;
        let value = self.always(value)?;
        match value.kind.of {
            ValueType::Integer | ValueType::Address => {
                Ok(self.make(at, ValueKind::always(ValueType::Text), NodeOperation::Write(Box::new(value))))
            }
            ValueType::Text => {
                Err(ExpressionFault::new(value.at, "this is a text already").hinting("omit string(…)"))
            }
            other => Err(ExpressionFault::new(
                value.at,
                format!("string(…) takes an integer or an address; this is {other}"),
            )),
        }
    }

    /// A text that a function is called on.
    fn text_of(&mut self, target: &SyntaxTree, name: &str) -> Result<Node, ExpressionFault> {
        let node = self.node(target)?;
        if node.kind.of != ValueType::Text {
            let fault =
                ExpressionFault::new(node.at, format!("{name} needs a text; this is {}", node.kind.of));
            let written = self.written(node.at);
            return Err(match node.kind.of {
                ValueType::Integer => {
                    fault.hinting(format!("compare the integer, or write string({written})"))
                }
                ValueType::Address => {
                    fault.hinting(format!("write {written} in \"10.0.0.0/8\", or string({written})"))
                }
                _ => fault,
            });
        }
        let written = self.written(node.at).to_owned();
        self.always(node).map_err(|fault| {
            let call = match name {
                "size" => format!("size({written} ?? \"\")"),
                "lowerAscii" | "upperAscii" => format!("({written} ?? \"\").{name}()"),
                _ => format!("({written} ?? \"\").{name}(…)"),
            };
            fault.hinting(format!("write {call}, or test it first: has({written}) && …"))
        })
    }

    fn matches(
        &mut self,
        at: Span,
        target: &SyntaxTree,
        pattern: &SyntaxTree,
    ) -> Result<Node, ExpressionFault> {
        let text = self.text_of(target, "matches")?;
        let pattern = self.pattern(pattern, "matches(…)", "matches(\"^/files/[0-9]+$\")")?;
        Ok(self.boolean(at, NodeOperation::Matches(Box::new(text), pattern)))
    }

    /// `text.replaceFirst("^www[.]", "")`
    fn replace_first(
        &mut self,
        at: Span,
        target: &SyntaxTree,
        word: &SyntaxWord,
        arguments: &[SyntaxTree],
    ) -> Result<Node, ExpressionFault> {
        const EXAMPLE: &str = "replaceFirst(\"^www[.]\", \"\")";
        let [pattern, by] = arguments else {
            let fault = ExpressionFault::new(at, format!("{} takes a pattern and a text", word.text));
            return Err(fault.hinting(format!("as in {EXAMPLE}")));
        };
        let text = self.text_of(target, &word.text)?;
        let pattern = self.pattern(pattern, "replaceFirst(…)", EXAMPLE)?;
        let by = constant(by, "replaceFirst(…)", EXAMPLE)?.as_bytes().into();
        let replaced = NodeOperation::ReplaceFirst(Box::new(text), pattern, by);
        Ok(self.make(at, ValueKind::always(ValueType::Text), replaced))
    }

    /// `text.hash("sha256", "hex")`
    fn hash(
        &mut self,
        at: Span,
        target: &SyntaxTree,
        word: &SyntaxWord,
        arguments: &[SyntaxTree],
    ) -> Result<Node, ExpressionFault> {
        const EXAMPLE: &str = "hash(\"sha256\", \"hex\")";
        let [kind, form] = arguments else {
            let fault = ExpressionFault::new(at, format!("{} takes a digest and its form", word.text));
            return Err(fault.hinting(format!("as in {EXAMPLE}")));
        };
        let kind = one_of("digest", &DIGESTS, kind, EXAMPLE)?;
        let form = one_of("form", &FORMS, form, EXAMPLE)?;
        let text = self.text_of(target, &word.text)?;
        let made = NodeOperation::Hash(Box::new(text), kind, form);
        Ok(self.make(at, ValueKind::always(ValueType::Text), made))
    }

    /// Compiles a constant regular expression.
    fn pattern(&self, pattern: &SyntaxTree, what: &str, example: &str) -> Result<Pattern, ExpressionFault> {
        let written = constant(pattern, what, example)?;
        match Pattern::new(written) {
            Ok(pattern) => Ok(pattern),
            Err(fault) => {
                // The place within the pattern, if it is written without escapes.
                let literal = self.text.get(pattern.at.range()).unwrap_or_default();
                let start = literal.find(written).map(|start| pattern.at.start as usize + start);
                let place = start.map(|start| start + fault.offset).filter(|_| fault.offset > 0);
                let span = place.map_or(pattern.at, |place| Span::new(place, place + 1));
                let span = if self.text.get(span.range()).is_some() { span } else { pattern.at };
                Err(ExpressionFault::new(span, format!("this regular expression is invalid: {}", fault.what)))
            }
        }
    }

    fn search(
        &mut self,
        at: Span,
        search: TextSearch,
        target: &SyntaxTree,
        word: &SyntaxWord,
        arguments: &[SyntaxTree],
    ) -> Result<Node, ExpressionFault> {
        let wanted = one(at, word, arguments)?;
        let text = self.text_of(target, &word.text)?;
        let wanted = self.text_of(wanted, &word.text)?;
        if matches!(&wanted.operation, NodeOperation::Text(text) if text.is_empty()) {
            let fault =
                ExpressionFault::new(wanted.at, format!("every text {} the empty text", verb(search)));
            return Err(fault.hinting("name a part of the text"));
        }
        let finder = Finder::new(search, &wanted);
        Ok(self.boolean(at, NodeOperation::Search(search, Box::new([text, wanted]), finder)))
    }

    /// `text.split(",")[1]`
    pub(super) fn piece(
        &mut self,
        at: Span,
        target: &SyntaxTree,
        word: &SyntaxWord,
        arguments: &[SyntaxTree],
        number: &SyntaxTree,
    ) -> Result<Node, ExpressionFault> {
        let separator = constant(one(at, word, arguments)?, "split(…)", "split(\",\")")?;
        if separator.is_empty() {
            return Err(ExpressionFault::new(arguments[0].at, "the separator is empty")
                .hinting("write one such as \",\""));
        }
        let text = self.text_of(target, "split")?;
        let SyntaxForm::Integer(index) = number.form else {
            let fault = ExpressionFault::new(number.at, "the number of a piece is a constant from 0");
            return Err(fault.hinting("write 0 for the first piece"));
        };
        if index > PIECE_MAX {
            return Err(ExpressionFault::new(
                number.at,
                format!("the number of a piece is at most {PIECE_MAX}"),
            ));
        }
        // Every text has a first piece.
        let kind = ValueKind { of: ValueType::Text, is_optional: index > 0 };
        let piece = NodeOperation::Piece(Box::new(text), separator.as_bytes().into(), index as u32);
        Ok(self.make(at, kind, piece))
    }

    fn part_of_time(
        &mut self,
        at: Span,
        target: &SyntaxTree,
        word: &SyntaxWord,
        arguments: &[SyntaxTree],
        part: CalendarPart,
    ) -> Result<Node, ExpressionFault> {
        let time = self.node(target)?;
        let time = self.for_node(time, ValueType::Time, &word.text)?;
        let offset = match arguments {
            [] => 0,
            [zone] => {
                let text = constant(zone, "a time zone", &format!("{}(\"+02:00\")", word.text))?;
                let offset = if text == "UTC" { Some(0) } else { calendar::parse_offset(text) };
                offset.ok_or_else(|| {
                    let fault = ExpressionFault::new(zone.at, format!("{text:?} is not an offset from UTC"));
                    fault.hinting(
                        "write \"UTC\", or a fixed offset such as \"+02:00\"; names of zones are unknown",
                    )
                })?
            }
            [_, more, ..] => {
                return Err(ExpressionFault::new(
                    more.at,
                    format!("{} takes one argument at most", word.text),
                ));
            }
        };
        let of = if part == CalendarPart::TimeOfDay { ValueType::Duration } else { ValueType::Integer };
        Ok(self.make(at, ValueKind::always(of), NodeOperation::PartOfTime(Box::new(time), offset, part)))
    }
}

/// The meaning of a constant word.
fn one_of<V: Copy>(
    what: &str,
    known: &[(&str, V)],
    argument: &SyntaxTree,
    example: &str,
) -> Result<V, ExpressionFault> {
    let word = constant(argument, "hash(…)", example)?;
    let found = known.iter().find(|(name, _)| *name == word).map(|(_, meaning)| *meaning);
    found.ok_or_else(|| {
        let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
        let fault = ExpressionFault::new(argument.at, format!("{word:?} is no {what}"));
        fault.hinting(format!("there are {}", names.join(" and ")))
    })
}

fn verb(search: TextSearch) -> &'static str {
    match search {
        TextSearch::StartsWith => "starts with",
        TextSearch::EndsWith => "ends with",
        TextSearch::Contains => "contains",
    }
}

/// The only argument.
fn one<'a>(
    at: Span,
    word: &SyntaxWord,
    arguments: &'a [SyntaxTree],
) -> Result<&'a SyntaxTree, ExpressionFault> {
    match arguments {
        [one] => Ok(one),
        [] => Err(ExpressionFault::new(at, format!("{} needs an argument", word.text))),
        [_, more, ..] => Err(ExpressionFault::new(more.at, format!("{} takes one argument", word.text))),
    }
}

fn none(word: &SyntaxWord, arguments: &[SyntaxTree]) -> Result<(), ExpressionFault> {
    match arguments {
        [] => Ok(()),
        [more, ..] => Err(ExpressionFault::new(more.at, format!("{} takes no argument", word.text))),
    }
}

/// The text of an argument that has to be a constant.
fn constant<'a>(argument: &'a SyntaxTree, what: &str, example: &str) -> Result<&'a str, ExpressionFault> {
    match &argument.form {
        SyntaxForm::Text(text) => Ok(text),
        _ => Err(ExpressionFault::new(argument.at, format!("{what} needs a constant text"))
            .hinting(format!("write it in quotes, as in {example}"))),
    }
}

fn unknown_function(at: Span, name: &str) -> ExpressionFault {
    let fault = ExpressionFault::new(at, format!("the function {name} does not exist"));
    let other = OTHER_FUNCTIONS.iter().find(|(other, _)| *other == name).map(|(_, name)| *name);
    let names = || METHODS.into_iter().chain(FUNCTIONS);
    let nearest = other.or_else(|| mistake::nearest(name, names()));
    match nearest {
        None => fault.hinting(format!("there are {}", names().collect::<Vec<_>>().join(", "))),
        nearest => fault.meaning(nearest),
    }
}
