//! Conditions and values on requests: a total subset of CEL, the Common Expression Language.
//!
//! An expression is compiled once, against a schema of names, and evaluated per request on borrowed data. It has one
//! type, cannot fail, and has a known cost. There are no loops. No sockets, clocks, threads or files.

#![forbid(unsafe_code)]

/// Types, values, and the buffer for built texts.
mod value;
/// Facts: what expressions can ask.
mod facts;
/// The names that one place of the configuration knows.
mod schema;
/// Limits of expressions.
mod limits;
/// Mistakes with their places.
mod fault;
/// Text to tokens.
mod token;
/// The syntax tree.
mod syntax;
/// Tokens to the syntax tree.
mod parse;
/// Durations as texts.
mod duration;
/// Points in time: dates, times of day, texts.
mod calendar;
/// Sets of networks.
mod networks;
/// Regular expressions.
mod pattern;
/// Digests of texts.
mod digest;
/// The checked tree.
mod node;
/// Names and types: syntax to the checked tree.
mod check;
/// The names that an expression asks for.
mod asked;
/// The worst case of an evaluation.
mod cost;
/// Evaluation.
mod evaluate;
/// Values of named expressions, computed once.
mod memory;
/// Evaluation with the value of each part.
mod explain;
/// Conditions that follow from others.
mod imply;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

pub use duration::{parse as parse_duration, written as written_duration};
pub use explain::{ExplainedPart, ExpressionTrace, Outcome};
pub use facts::{ExchangeStage, Fact, FactFamily, Facts, Key};
pub use fault::ExpressionFault;
pub use limits::ExpressionLimits;
pub use memory::ValueMemory;
pub use schema::{Map, Schema, SchemaConstant};
pub use value::{EvaluationScratch, Value, ValueKind, ValueType};

use asked::AskedNames;
use cost::Cost;
use evaluate::Evaluation;
use fault::Span;
use node::{Definition, Node, NodeOperation};

/// The texts that a value can be, whatever a request has.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PossibleTexts<'e> {
    /// Constants, in the order of the expression.
    pub constants: Vec<Cow<'e, [u8]>>,
    /// Maps whose values it can be, by their numbers ([`Map::number`]).
    pub maps: Vec<u16>,
}

/// A compiled expression.
///
/// A clone has its own scratch space for regular expressions: give each thread a clone, because threads that share one
/// sometimes wait for each other. Clones share the expressions behind names ([`Schema::with_definition`]).
///
/// # Examples
/// ```
/// use expression::{Expression, Fact, Facts, FactFamily, Key, ExpressionLimits, Schema, EvaluationScratch, ExchangeStage, ValueType, Value};
///
/// struct Request {
///     method: &'static str,
///     fields: Vec<(&'static str, &'static str)>,
/// }
///
/// impl Facts for Request {
///     fn value(&self, fact: Fact) -> Option<Value<'_>> {
///         match fact {
///             Fact::RequestMethod => Some(Value::Text(self.method.as_bytes())),
///             _ => None,
///         }
///     }
///
///     fn field(&self, family: FactFamily, key: &Key) -> Option<&[u8]> {
///         let fields = self.fields.iter().filter(|_| family == FactFamily::RequestHeaders);
///         let mut named = fields.filter(|(name, _)| name.as_bytes() == key.as_bytes());
///         named.next().map(|(_, value)| value.as_bytes())
///     }
/// }
///
/// let text = r#"request.method == "GET" && (request.headers["user-agent"] ?? "").contains("bot")"#;
/// let schema = Schema::new(ExchangeStage::Request);
/// let is_bot = Expression::of_type(ValueType::Boolean, text, &schema, &ExpressionLimits::default())?;
///
/// let mut scratch = EvaluationScratch::new();
/// let request = Request { method: "GET", fields: vec![("user-agent", "a bot")] };
/// assert!(is_bot.holds(&request, &mut scratch));
/// assert!(!is_bot.holds(&Request { fields: vec![], ..request }, &mut scratch));
///
/// let fault = Expression::new("request.methud == 'GET'", &schema, &ExpressionLimits::default()).unwrap_err();
/// assert_eq!(fault.at, 0..14);
/// assert_eq!(fault.to_string(), "the name request.methud does not exist; did you mean \"request.method\"?");
/// # Ok::<(), expression::ExpressionFault>(())
/// ```
#[derive(Clone)]
pub struct Expression {
    text: Box<str>,
    root: Node,
    stage: ExchangeStage,
    cost: Cost,
    asked: AskedNames,
}

impl Expression {
    /// Compiles an expression of any type.
    ///
    /// # Errors
    /// The first mistake in the text, or the limit that it exceeds.
    pub fn new(text: &str, schema: &Schema, limits: &ExpressionLimits) -> Result<Self, ExpressionFault> {
        Self::compile(text, schema, limits, None)
    }

    /// Compiles an expression of one type: [`ValueType::Boolean`] for a condition. The value may be absent: see
    /// [`Expression::kind`].
    ///
    /// # Errors
    /// The first mistake in the text, or the limit that it exceeds.
    pub fn of_type(
        wanted: ValueType,
        text: &str,
        schema: &Schema,
        limits: &ExpressionLimits,
    ) -> Result<Self, ExpressionFault> {
        Self::compile(text, schema, limits, Some(wanted))
    }

    fn compile(
        text: &str,
        schema: &Schema,
        limits: &ExpressionLimits,
        wanted: Option<ValueType>,
    ) -> Result<Self, ExpressionFault> {
        let tree = parse::parse(text, limits)?;
        let checked = check::check(text, &tree, schema, wanted)?;
        let cost = cost::measure(&checked.root, limits)?;
        let asked = AskedNames::from_node(&checked.root);
        Ok(Self { text: text.into(), root: checked.root, stage: checked.stage, cost, asked })
    }

    /// An expression that is the name of another one, as [`Schema::with_definition`] adds it.
    pub fn from_name(name: &str, meaning: &Arc<Self>) -> Self {
        let root = Node {
            at: Span::new(0, name.len()),
            kind: meaning.kind(),
            operation: NodeOperation::Definition(Definition(Arc::clone(meaning))),
        };
        let cost = cost::cost(&root, 0);
        Self { text: name.into(), root, stage: meaning.stage, cost, asked: meaning.asked }
    }

    /// The text, as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The type of the value, and whether it may be absent.
    pub fn kind(&self) -> ValueKind {
        self.root.kind
    }

    /// The first stage at which all names in the expression are known.
    pub fn stage(&self) -> ExchangeStage {
        self.stage
    }

    /// A name that is first known at the expression's stage, such as `response.status`: the reason for that stage. `None`
    /// if it asks for no fact.
    pub fn latest_name(&self) -> Option<&'static str> {
        let mut facts = Fact::ALL.iter().filter(|fact| fact.stage() == self.stage && self.asks_for(**fact));
        let families = FactFamily::ALL.into_iter().filter(|family| family.stage() == self.stage);
        let mut families = families.filter(|family| self.asks_for_family(*family));
        facts.next().map(|fact| fact.name()).or_else(|| families.next().map(FactFamily::name))
    }

    /// Whether the value may depend on this fact.
    pub fn asks_for(&self, fact: Fact) -> bool {
        self.asked.has_fact(fact)
    }

    /// Whether the value depends on this fact and on nothing else but constants.
    pub fn asks_only_for(&self, fact: Fact) -> bool {
        self.asked.has_only(fact)
    }

    /// Whether the value may depend on a text of this family.
    pub fn asks_for_family(&self, family: FactFamily) -> bool {
        self.asked.has_family(family)
    }

    /// The names of a family that the expression asks for, sorted, each once.
    pub fn keys(&self, family: FactFamily) -> Vec<&str> {
        let mut names = Vec::new();
        asked::keys(&self.root, family, &mut |name| names.push(name));
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Whether an evaluation uses a regular expression, so that each thread should have a clone.
    pub fn has_pattern(&self) -> bool {
        self.asked.has_pattern
    }

    /// Whether an evaluation looks up keys in maps.
    pub fn has_map(&self) -> bool {
        self.asked.has_map
    }

    /// Returns the worst case of an evaluation in steps. A name, an operator or a function is one step. So are 64 bytes
    /// of text that are read or written, and 8 bytes that a small regular expression reads. Larger regular expressions
    /// cost up to 32 times as much.
    pub fn cost(&self) -> u64 {
        self.cost.steps
    }

    /// The most bytes that an evaluation writes into the [`EvaluationScratch`].
    pub fn scratch_bytes(&self) -> u64 {
        self.cost.scratch_peak
    }

    /// The texts that a text or an integer can be; `None` if they depend on more than constants and maps. The value may also
    /// be absent: see [`Expression::kind`].
    pub fn possible_texts(&self) -> Option<PossibleTexts<'_>> {
        let mut found = PossibleTexts::default();
        self.root.possible_texts(&mut found).map(|()| found)
    }

    /// Whether finding a kept value takes fewer steps than computing it, and gives the same.
    fn is_worth_keeping(&self) -> bool {
        let is_read_at_once = match &self.root.operation {
            NodeOperation::Fact(_) => true,
            _ => self.root.is_constant(),
        };
        !is_read_at_once && !self.asks_for(Fact::RequestPath) && !self.asks_for(Fact::RequestRawPath)
    }

    /// Evaluates a condition. False if the expression is not one.
    #[inline]
    pub fn holds<F: Facts + ?Sized>(&self, facts: &F, scratch: &mut EvaluationScratch) -> bool {
        Evaluation::new(facts, &mut scratch.bytes).test(&self.root)
    }

    /// Evaluates an expression of any type; `None` if the value is absent.
    pub fn evaluate<'r, F: Facts + ?Sized>(
        &'r self,
        facts: &'r F,
        scratch: &'r mut EvaluationScratch,
    ) -> Option<Value<'r>> {
        let mut evaluation = Evaluation::new(facts, &mut scratch.bytes);
        let root = &self.root;
        let text = match root.kind.of {
            ValueType::Boolean => return Some(Value::Boolean(evaluation.test(root))),
            ValueType::Integer => return evaluation.number(root).map(Value::Integer),
            ValueType::Duration => return evaluation.number(root).map(Value::Duration),
            ValueType::Time => return evaluation.number(root).map(Value::Time),
            ValueType::Address => return evaluation.address(root).map(Value::Address),
            ValueType::Text => evaluation.text(root)?,
        };
        Some(Value::Text(text.for_scratch(&scratch.bytes)))
    }

    /// Evaluates with the value of each part, for people.
    pub fn explain<F: Facts + ?Sized>(&self, facts: &F) -> ExpressionTrace {
        explain::explain(&self.text, &self.root, facts)
    }

    /// Whether `other` is certainly true whenever this condition is, such as `request.path == "/a"` for
    /// `request.path.startsWith("/")`. False if that cannot be shown.
    pub fn implies(&self, other: &Self) -> bool {
        let are_conditions = [self, other].iter().all(|one| one.kind().of == ValueType::Boolean);
        are_conditions && imply::implies(&self.root, &other.root)
    }
}

/// Equal if they have the same value for all facts, as far as their forms show: places and white space do not matter.
impl PartialEq for Expression {
    fn eq(&self, other: &Self) -> bool {
        self.root == other.root
    }
}

impl Eq for Expression {}

impl fmt::Debug for Expression {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Expression({:?})", self.text)
    }
}

impl fmt::Display for Expression {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}
