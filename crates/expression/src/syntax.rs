//! The syntax tree: an expression as it is written, before names and types are known.

use crate::fault::Span;

/// A part of an expression, with its place.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SyntaxTree {
    pub(crate) at: Span,
    pub(crate) form: SyntaxForm,
    /// The depth of the tree below, from 1.
    pub(crate) depth: usize,
}

/// Kinds of nodes in the tree, with their children.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum SyntaxForm {
    Boolean(bool),
    /// The digits of an integer; only a negated one may be 2^63.
    Integer(u64),
    Text(String),
    List(Vec<SyntaxTree>),
    /// A name without a dot.
    Name(String),
    /// `base.name`
    Select(Box<SyntaxTree>, SyntaxWord),
    /// `base[key]`
    Index(Box<SyntaxTree>, Box<SyntaxTree>),
    /// `name(…)`, or `target.name(…)`.
    Call(Option<Box<SyntaxTree>>, SyntaxWord, Vec<SyntaxTree>),
    Not(Box<SyntaxTree>),
    Negate(Box<SyntaxTree>),
    /// Two or more, joined by `&&`.
    All(Vec<SyntaxTree>),
    /// Two or more, joined by `||`.
    Any(Vec<SyntaxTree>),
    /// `a ? b : c`
    Choose(Box<[SyntaxTree; 3]>),
    /// An operator between two values, with its own place.
    Binary(Operator, Span, Box<[SyntaxTree; 2]>),
}

/// A name after a dot, or of a function.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SyntaxWord {
    pub(crate) at: Span,
    pub(crate) text: String,
}

/// Operators between two values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operator {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    In,
    /// `??`
    Default,
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

impl Operator {
    pub(crate) fn sign(self) -> &'static str {
        match self {
            Self::Equal => "==",
            Self::NotEqual => "!=",
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Greater => ">",
            Self::GreaterOrEqual => ">=",
            Self::In => "in",
            Self::Default => "??",
            Self::Add => "+",
            Self::Subtract => "-",
            Self::Multiply => "*",
            Self::Divide => "/",
            Self::Remainder => "%",
        }
    }
}

impl SyntaxTree {
    /// The dotted name that this is: `request.headers`.
    pub(crate) fn path(&self) -> Option<String> {
        match &self.form {
            SyntaxForm::Name(name) => Some(name.clone()),
            SyntaxForm::Select(base, word) => Some(format!("{}.{}", base.path()?, word.text)),
            _ => None,
        }
    }
}
