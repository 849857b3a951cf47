//! Conditions in Vanward's language, simplified while they are joined.

use crate::rules::literal;

/// A condition, or its truth where it is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NginxCondition {
    Known(bool),
    Equal { left: String, right: String, is_not: bool },
    Text(String, Binding),
    Not(Box<NginxCondition>),
}

/// The loosest operator of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Binding {
    Choice,
    Or,
    And,
    Comparison,
    Unary,
}

impl NginxCondition {
    pub(super) fn equal(left: &str, right: &str) -> Self {
        Self::Equal { left: left.to_owned(), right: literal(right), is_not: false }
    }

    /// Whether an expression is one of several texts.
    pub(super) fn among(left: &str, texts: &[&str]) -> Self {
        match texts {
            [one] => Self::equal(left, one),
            _ => {
                let texts: Vec<String> = texts.iter().map(|text| literal(text)).collect();
                Self::Text(format!("{left} in [{}]", texts.join(", ")), Binding::Comparison)
            }
        }
    }

    /// A call, or a name.
    pub(super) fn call(text: String) -> Self {
        Self::Text(text, Binding::Unary)
    }

    pub(super) fn negated(self) -> Self {
        match self {
            Self::Known(is) => Self::Known(!is),
            Self::Equal { left, right, is_not } => Self::Equal { left, right, is_not: !is_not },
            Self::Not(inner) => *inner,
            text => Self::Not(Box::new(text)),
        }
    }

    pub(super) fn negated_if(self, is_not: bool) -> Self {
        if is_not { self.negated() } else { self }
    }

    pub(super) fn all(parts: Vec<Self>) -> Self {
        Self::joined(parts, true)
    }

    pub(super) fn any(parts: Vec<Self>) -> Self {
        Self::joined(parts, false)
    }

    fn joined(parts: Vec<Self>, is_all: bool) -> Self {
        let mut kept: Vec<Self> = Vec::new();
        for part in parts {
            match part {
                Self::Known(is) if is == is_all => {}
                Self::Known(is) => return Self::Known(is),
                part if kept.contains(&part) => {}
                part => kept.push(part),
            }
        }
        if kept.len() < 2 {
            return kept.pop().unwrap_or(Self::Known(is_all));
        }
        let (own, sign) = if is_all { (Binding::And, " && ") } else { (Binding::Or, " || ") };
        let text = |part: Self| {
            let (text, binding) = part.parts();
            // Mixed operators have brackets, for readers.
            if binding == own || binding >= Binding::Comparison { text } else { format!("({text})") }
        };
        Self::Text(kept.into_iter().map(text).collect::<Vec<_>>().join(sign), own)
    }

    /// `then` if this condition holds, else `otherwise`.
    pub(super) fn choose(self, then: Self, otherwise: Self) -> Self {
        match (then, otherwise) {
            (then, otherwise) if then == otherwise => then,
            (Self::Known(true), otherwise) => Self::any(vec![self, otherwise]),
            (Self::Known(false), otherwise) => Self::all(vec![self.negated(), otherwise]),
            (then, Self::Known(false)) => Self::all(vec![self, then]),
            (then, Self::Known(true)) => Self::any(vec![self.negated(), then]),
            (then, otherwise) => match self {
                Self::Known(true) => then,
                Self::Known(false) => otherwise,
                test => {
                    let text = format!("{} ? {} : {}", test.operand(), then.operand(), otherwise.operand());
                    Self::Text(text, Binding::Choice)
                }
            },
        }
    }

    pub(super) fn written(&self) -> String {
        self.clone().parts().0
    }

    /// The text as a part of a choice.
    pub(super) fn operand(&self) -> String {
        let (text, binding) = self.clone().parts();
        if binding == Binding::Choice { format!("({text})") } else { text }
    }

    fn parts(self) -> (String, Binding) {
        match self {
            Self::Known(is) => (is.to_string(), Binding::Unary),
            Self::Equal { left, right, is_not } => {
                (format!("{left} {} {right}", if is_not { "!=" } else { "==" }), Binding::Comparison)
            }
            Self::Text(text, binding) => (text, binding),
            Self::Not(inner) => match inner.parts() {
                (text, Binding::Unary) => (format!("!{text}"), Binding::Unary),
                (text, _) => (format!("!({text})"), Binding::Unary),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_simplified_while_they_are_joined() {
        let is = |name: &str| NginxCondition::equal(name, "1");
        let call = |text: &str| NginxCondition::call(text.to_owned());
        let known = NginxCondition::Known;
        for (condition, expected) in [
            (NginxCondition::all(vec![is("a"), known(true), is("b"), is("a")]), "a == \"1\" && b == \"1\""),
            (NginxCondition::all(vec![is("a"), known(false)]), "false"),
            (NginxCondition::any(Vec::new()), "false"),
            (
                NginxCondition::any(vec![NginxCondition::all(vec![is("a"), is("b")]), call("c")]),
                "(a == \"1\" && b == \"1\") || c",
            ),
            (is("a").negated(), "a != \"1\""),
            (call("f(a)").negated(), "!f(a)"),
            (call("f(a)").negated().negated(), "f(a)"),
            (NginxCondition::among("a", &["1", "2"]).negated(), "!(a in [\"1\", \"2\"])"),
            (NginxCondition::any(vec![call("a"), call("b")]).negated(), "!(a || b)"),
            (is("a").choose(known(true), known(false)), "a == \"1\""),
            (is("a").choose(known(false), is("b")), "a != \"1\" && b == \"1\""),
            (is("a").choose(is("b"), known(true)), "a != \"1\" || b == \"1\""),
            (is("a").choose(call("b"), call("c")), "a == \"1\" ? b : c"),
            (is("a").choose(call("b"), call("b")), "b"),
            (
                is("a").choose(call("b"), is("a").choose(call("b"), call("c"))),
                "a == \"1\" ? b : (a == \"1\" ? b : c)",
            ),
        ] {
            assert_eq!(condition.written(), expected);
        }
    }
}
