//! Names, fields of families, and look-ups in maps.

use super::ExpressionChecker;
use super::functions::{METHODS, is_method};
use crate::facts::{ExchangeStage, FactFamily};
use crate::fault::{ExpressionFault, Span};
use crate::node::{Definition, Node, NodeOperation};
use crate::schema::{self, Map, Meaning, SchemaAddition, SchemaConstant};
use crate::syntax::{SyntaxForm, SyntaxTree};
use crate::value::{ValueKind, ValueType};

/// Names of other languages and of habit, with the name here.
const OTHER_NAMES: [(&str, &str); 18] = [
    ("remote_addr", "client.address"),
    ("ip", "client.address"),
    ("src", "client.address"),
    ("client.ip", "client.address"),
    ("request.ip", "client.address"),
    ("request.client", "client.address"),
    ("source.address", "client.address"),
    ("uri", "request.path"),
    ("url", "request.path"),
    ("request.uri", "request.path"),
    ("request.url", "request.path"),
    ("request.url_path", "request.path"),
    ("request.args", "request.query"),
    ("request.params", "request.query"),
    ("request.time", "time"),
    ("now", "time"),
    ("response.code", "response.status"),
    ("jwt.payload", "jwt.claims"),
];

impl ExpressionChecker<'_> {
    /// A name such as `request.path`, or a member of a family such as `jwt.claims.sub`.
    pub(super) fn name(&mut self, tree: &SyntaxTree) -> Result<Node, ExpressionFault> {
        let Some(path) = tree.path() else {
            let SyntaxForm::Select(_, word) = &tree.form else {
                return Err(ExpressionFault::new(tree.at, "this is not a name"));
            };
            let fault = ExpressionFault::new(word.at, format!("a value has no member {:?}", word.text));
            return Err(if is_method(&word.text) {
                fault.hinting(format!("functions need brackets: .{}(…)", word.text))
            } else {
                fault
            });
        };
        // A copy of the reference: names live as long as the schema, not as this borrow.
        let schema = self.schema;
        match schema.meaning(&path) {
            Some(Meaning::Fact(fact)) => {
                self.needs(tree.at, &path, fact.stage())?;
                let kind = ValueKind { of: fact.value_type(), is_optional: fact.is_optional() };
                return Ok(self.make(tree.at, kind, NodeOperation::Fact(fact)));
            }
            Some(Meaning::Added(added)) => return self.added(tree.at, &path, added),
            None => {}
        }
        if let Some(family) = schema::family(&path) {
            self.needs(tree.at, &path, family.stage())?;
            let fault = ExpressionFault::new(tree.at, format!("{path} is a group of texts, not a value"));
            return Err(fault.hinting(format!("ask for one: {path}[\"name\"]")));
        }
        let member = path.match_indices('.').find_map(|(dot, _)| {
            let family = schema::family(&path[..dot])?;
            // Claims nest; names of fields have no dots.
            let is_one = family == FactFamily::JwtClaims || !path[dot + 1..].contains('.');
            is_one.then(|| (family, &path[dot + 1..]))
        });
        match member {
            Some((family, key)) => self.field(tree.at, family, key, tree.at),
            None => Err(self.unknown_name(tree, &path)),
        }
    }

    fn unknown_name(&self, tree: &SyntaxTree, path: &str) -> ExpressionFault {
        let names = || self.schema.names();
        if let Some((base, member)) = path.rsplit_once('.')
            && names().any(|name| name == base)
        {
            let fault = ExpressionFault::new(tree.at, format!("{base} has no member {member:?}"));
            return match is_method(member) {
                true => fault.hinting(format!("functions need brackets: {base}.{member}(…)")),
                false => fault.meaning(mistake::nearest(member, METHODS)),
            };
        }
        let within: Vec<&str> = names()
            .filter(|name| name.strip_prefix(path).is_some_and(|rest| rest.starts_with('.')))
            .collect();
        if !within.is_empty() {
            let fault = ExpressionFault::new(tree.at, format!("{path} is not a value"));
            return fault.hinting(format!("ask for one of {}", within.join(", ")));
        }
        let fault = ExpressionFault::new(tree.at, format!("the name {path} does not exist"));
        if path == "request.body" || path == "response.body" {
            return fault.hinting("bodies cannot be asked: conditions are evaluated before they arrive");
        }
        if matches!(path, "True" | "TRUE" | "yes" | "on") {
            return fault.hinting("write true");
        }
        if matches!(path, "False" | "FALSE" | "no" | "off") {
            return fault.hinting("write false");
        }
        if path == "not" {
            return fault.hinting("write ! for \"not\"");
        }
        let other = OTHER_NAMES.iter().find(|(other, _)| *other == path).map(|(_, name)| *name);
        let last = || names().find(|name| name.rsplit_once('.').is_some_and(|(_, last)| last == path));
        let nearest = other.or_else(last).or_else(|| mistake::nearest(path, names()));
        match nearest {
            None if path.split_once('.').is_none() => {
                fault.hinting(format!("a text needs quotes: \"{path}\""))
            }
            None => {
                let (first, _) = path.split_once('.').unwrap_or((path, ""));
                let alike: Vec<&str> =
                    names().filter(|name| name.split('.').next() == Some(first)).take(12).collect();
                if alike.is_empty() {
                    fault
                } else {
                    fault.hinting(format!("there are {}", alike.join(", ")))
                }
            }
            nearest => fault.meaning(nearest),
        }
    }

    /// Requires that names of a stage are known where the expression is evaluated.
    fn needs(&mut self, at: Span, name: &str, stage: ExchangeStage) -> Result<(), ExpressionFault> {
        self.stage = self.stage.max(stage);
        if stage <= self.schema.stage() {
            return Ok(());
        }
        let what = format!("{name} is known only {}", stage.since());
        Err(ExpressionFault::new(at, what)
            .hinting(format!("this expression is evaluated {}", self.schema.stage().since()))
            .known_from(stage))
    }

    fn added(&mut self, at: Span, name: &str, added: &SchemaAddition) -> Result<Node, ExpressionFault> {
        let constant = |of, operation| Ok(Node { at, kind: ValueKind::always(of), operation });
        match added {
            SchemaAddition::Map(_) => Err(ExpressionFault::new(at, format!("{name} is a map, not a value"))
                .hinting(format!("ask {name}[KEY], or KEY in {name}"))),
            SchemaAddition::Definition(expression) => {
                self.needs(at, name, expression.stage()).map_err(|fault| fault.caused_by(expression))?;
                let definition = NodeOperation::Definition(Definition(expression.clone()));
                Ok(self.make(at, expression.kind(), definition))
            }
            SchemaAddition::Constant(SchemaConstant::List(_)) => {
                Err(ExpressionFault::new(at, format!("{name} is a list, not a value"))
                    .hinting(format!("write VALUE in {name}")))
            }
            SchemaAddition::Constant(SchemaConstant::Boolean(value)) => {
                constant(ValueType::Boolean, NodeOperation::Boolean(*value))
            }
            SchemaAddition::Constant(SchemaConstant::Integer(value)) => {
                constant(ValueType::Integer, NodeOperation::Number(*value))
            }
            SchemaAddition::Constant(SchemaConstant::Duration(value)) => {
                constant(ValueType::Duration, NodeOperation::Number(*value))
            }
            SchemaAddition::Constant(SchemaConstant::Text(text)) => {
                constant(ValueType::Text, NodeOperation::Text(text.as_bytes().into()))
            }
        }
    }

    /// `base[key]`
    pub(super) fn index(
        &mut self,
        tree: &SyntaxTree,
        base: &SyntaxTree,
        key: &SyntaxTree,
    ) -> Result<Node, ExpressionFault> {
        if let SyntaxForm::Call(Some(target), word, arguments) = &base.form
            && word.text == "split"
        {
            return self.piece(tree.at, target, word, arguments, key);
        }
        let Some(path) = base.path() else {
            let fault = ExpressionFault::new(key.at, "only groups of texts, maps and split(…) have members");
            return Err(fault.hinting("such as request.headers[\"name\"]"));
        };
        if let Some(family) = schema::family(&path) {
            let SyntaxForm::Text(text) = &key.form else {
                let fault = ExpressionFault::new(key.at, format!("{path}[…] needs a constant name"));
                return Err(fault.hinting(format!("write {path}[\"name\"]")));
            };
            return self.field(tree.at, family, text, key.at);
        }
        if let Some(Meaning::Added(SchemaAddition::Map(map))) = self.schema.meaning(&path) {
            let map = *map;
            let Some(values) = map.values else {
                let fault = ExpressionFault::new(tree.at, format!("the keys of {path} have no values"));
                return Err(fault.hinting(format!("write {} in {path}", self.written(key.at))));
            };
            let key = self.key_of_map(map, key, &path)?;
            let lookup = NodeOperation::Lookup(map.number, Box::new(key));
            let kind = ValueKind { of: values, is_optional: values != ValueType::Boolean };
            return Ok(self.make(tree.at, kind, lookup));
        }
        let fault = match self.schema.meaning(&path) {
            Some(_) => ExpressionFault::new(tree.at, format!("{path} has no members")),
            None => return Err(self.unknown_name(base, &path)),
        };
        Err(fault.hinting("only groups of texts such as request.headers, and maps, have members"))
    }

    pub(super) fn key_of_map(
        &mut self,
        map: Map,
        key: &SyntaxTree,
        name: &str,
    ) -> Result<Node, ExpressionFault> {
        let key = self.node(key)?;
        let what = format!("the key of {name}");
        let key = match (&key.operation, map.keys) {
            (NodeOperation::Text(text), ValueType::Address) => {
                let written = String::from_utf8_lossy(text).into_owned();
                match written.parse() {
                    Ok(address) => Node {
                        kind: ValueKind::always(ValueType::Address),
                        operation: NodeOperation::Address(address),
                        ..key
                    },
                    Err(_) => {
                        let fault = ExpressionFault::new(key.at, format!("{written:?} is not an address"));
                        return Err(
                            fault.hinting("write an address such as \"192.0.2.1\" or \"2001:db8::1\"")
                        );
                    }
                }
            }
            _ => key,
        };
        // An absent key is in no map.
        if key.kind.of == map.keys { Ok(key) } else { self.for_node(key, map.keys, &what) }
    }

    /// A text of a family.
    pub(super) fn field(
        &mut self,
        at: Span,
        family: FactFamily,
        key: &str,
        key_at: Span,
    ) -> Result<Node, ExpressionFault> {
        self.needs(at, family.name(), family.stage())?;
        let operation = NodeOperation::Field(family, self.key(family, key, key_at)?);
        Ok(self.make(at, ValueKind::optional(ValueType::Text), operation))
    }

    /// The name of a text in a family: in lower case for fields.
    pub(super) fn key(
        &self,
        family: FactFamily,
        key: &str,
        at: Span,
    ) -> Result<crate::facts::Key, ExpressionFault> {
        if key.is_empty() {
            return Err(ExpressionFault::new(at, "the name is empty"));
        }
        if !family.ignores_case() {
            return Ok(self.schema.key(family, key));
        }
        // RFC 9110 §5.6.2: the characters of a token.
        let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        match key.bytes().all(is_token) {
            true => Ok(self.schema.key(family, &key.to_ascii_lowercase())),
            false => {
                let fault = ExpressionFault::new(at, format!("{key:?} is not a name of a field"));
                let name = key.trim_end_matches(':').trim();
                Err(match !name.is_empty() && name.bytes().all(is_token) {
                    true => fault.hinting(format!("write \"{name}\"")),
                    false => fault.hinting("names have letters, digits and hyphens"),
                })
            }
        }
    }
}
