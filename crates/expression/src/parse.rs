//! Parses tokens to a syntax tree. From loose to tight: `?:`, `||`, `&&`, comparisons and `in`, `??`, `+ -`, `* / %`,
//! `! -`, members. All as in CEL, which has no `??`.

use crate::fault::{ExpressionFault, Span};
use crate::limits::ExpressionLimits;
use crate::syntax::{Operator, SyntaxForm, SyntaxTree, SyntaxWord};
use crate::token::{Token, tokens};

/// Parses an expression.
pub(crate) fn parse(text: &str, limits: &ExpressionLimits) -> Result<SyntaxTree, ExpressionFault> {
    if text.len() > limits.text_bytes {
        let what =
            format!("the expression has {} bytes; at most {} are allowed", text.len(), limits.text_bytes);
        return Err(ExpressionFault::new(Span::new(0, 0), what).hinting("split it into named values"));
    }
    let mut parser = ExpressionParser { tokens: tokens(text)?, at: 0, nodes: 0, open: 0, limits };
    if parser.token() == &Token::End {
        let fault = ExpressionFault::new(Span::new(0, text.len()), "the expression is empty");
        return Err(fault.hinting("write a condition, such as request.method == \"GET\""));
    }
    let tree = parser.expression()?;
    match parser.token() {
        Token::End => Ok(tree),
        _ => Err(parser.unexpected("an operator or the end")),
    }
}

struct ExpressionParser<'t> {
    tokens: Vec<(Token<'t>, Span)>,
    at: usize,
    nodes: usize,
    /// The number of rules under way: bounds recursion before trees exist.
    open: usize,
    limits: &'t ExpressionLimits,
}

const COMPARISONS: [(&str, Operator); 6] = [
    ("==", Operator::Equal),
    ("!=", Operator::NotEqual),
    ("<", Operator::Less),
    ("<=", Operator::LessOrEqual),
    (">", Operator::Greater),
    (">=", Operator::GreaterOrEqual),
];
const SUMS: [(&str, Operator); 2] = [("+", Operator::Add), ("-", Operator::Subtract)];
const PRODUCTS: [(&str, Operator); 3] =
    [("*", Operator::Multiply), ("/", Operator::Divide), ("%", Operator::Remainder)];

/// A rule for operators of one precedence.
type Rule<'t> = fn(&mut ExpressionParser<'t>) -> Result<SyntaxTree, ExpressionFault>;

impl<'t> ExpressionParser<'t> {
    fn token(&self) -> &Token<'t> {
        &self.tokens[self.at].0
    }

    fn span(&self) -> Span {
        self.tokens[self.at].1
    }

    /// Takes the token; the end stays.
    fn advance(&mut self) -> Span {
        let span = self.span();
        self.at = (self.at + 1).min(self.tokens.len() - 1);
        span
    }

    fn take(&mut self, sign: &str) -> Option<Span> {
        (matches!(self.token(), Token::Sign(known) if *known == sign)).then(|| self.advance())
    }

    fn expect(&mut self, sign: &str, opened: Span, what: &str) -> Result<Span, ExpressionFault> {
        match self.take(sign) {
            Some(span) => Ok(span),
            None if self.token() == &Token::End => {
                Err(ExpressionFault::new(opened, format!("this {what} is not closed"))
                    .hinting(format!("add {sign:?}")))
            }
            None => Err(self.unexpected(&format!("{sign:?}"))),
        }
    }

    fn too_deep(&self, at: Span) -> ExpressionFault {
        ExpressionFault::new(at, format!("the expression is nested deeper than {} levels", self.limits.depth))
            .hinting("split it into named values")
    }

    /// Makes a node, within the limits.
    fn node(&mut self, at: Span, form: SyntaxForm) -> Result<SyntaxTree, ExpressionFault> {
        self.nodes += 1;
        if self.nodes > self.limits.nodes {
            let what = format!("the expression has more than {} parts", self.limits.nodes);
            return Err(ExpressionFault::new(at, what).hinting("split it into named values"));
        }
        let below = match &form {
            SyntaxForm::Boolean(_) | SyntaxForm::Integer(_) | SyntaxForm::Text(_) | SyntaxForm::Name(_) => 0,
            SyntaxForm::Select(one, _) | SyntaxForm::Not(one) | SyntaxForm::Negate(one) => one.depth,
            SyntaxForm::Index(base, key) => base.depth.max(key.depth),
            SyntaxForm::Call(target, _, list) => {
                let list = list.iter().map(|part| part.depth).max().unwrap_or(0);
                list.max(target.as_ref().map_or(0, |target| target.depth))
            }
            SyntaxForm::List(list) | SyntaxForm::All(list) | SyntaxForm::Any(list) => {
                list.iter().map(|part| part.depth).max().unwrap_or(0)
            }
            SyntaxForm::Choose(parts) => parts.iter().map(|part| part.depth).max().unwrap_or(0),
            SyntaxForm::Binary(_, _, parts) => parts[0].depth.max(parts[1].depth),
        };
        if below >= self.limits.depth {
            return Err(self.too_deep(at));
        }
        Ok(SyntaxTree { at, form, depth: below + 1 })
    }

    fn expression(&mut self) -> Result<SyntaxTree, ExpressionFault> {
        self.open += 1;
        if self.open > self.limits.depth {
            return Err(self.too_deep(self.span()));
        }
        let condition = self.any()?;
        let tree = if self.take("?").is_some() {
            let then = self.expression()?;
            if self.take(":").is_none() {
                return Err(self.unexpected("\":\"").hinting("write CONDITION ? VALUE : OTHER"));
            }
            let otherwise = self.expression()?;
            let at = condition.at.to(otherwise.at);
            self.node(at, SyntaxForm::Choose(Box::new([condition, then, otherwise])))?
        } else {
            condition
        };
        self.open -= 1;
        Ok(tree)
    }

    fn any(&mut self) -> Result<SyntaxTree, ExpressionFault> {
        self.joined("||", Self::all, SyntaxForm::Any)
    }

    fn all(&mut self) -> Result<SyntaxTree, ExpressionFault> {
        self.joined("&&", Self::comparison, SyntaxForm::All)
    }

    fn joined(
        &mut self,
        sign: &str,
        part: Rule<'t>,
        form: fn(Vec<SyntaxTree>) -> SyntaxForm,
    ) -> Result<SyntaxTree, ExpressionFault> {
        let first = part(self)?;
        let mut list = vec![first];
        while self.take(sign).is_some() {
            list.push(part(self)?);
        }
        let at = list[0].at.to(list[list.len() - 1].at);
        match list.len() {
            1 => Ok(list.swap_remove(0)),
            _ => self.node(at, form(list)),
        }
    }

    fn comparison(&mut self) -> Result<SyntaxTree, ExpressionFault> {
        let left = self.default()?;
        let Some((operator, sign)) = self.comparison_sign() else { return Ok(left) };
        let right = self.default()?;
        let at = left.at.to(right.at);
        let tree = self.node(at, SyntaxForm::Binary(operator, sign, Box::new([left, right])))?;
        match self.comparison_sign() {
            Some((_, second)) => {
                let fault = ExpressionFault::new(second, "comparisons cannot be chained");
                Err(fault.hinting("join two with &&, as in 1 < x && x < 5"))
            }
            None => Ok(tree),
        }
    }

    fn comparison_sign(&mut self) -> Option<(Operator, Span)> {
        if self.token() == &Token::Name("in") {
            return Some((Operator::In, self.advance()));
        }
        self.take_any(&COMPARISONS)
    }

    fn take_any(&mut self, operators: &[(&str, Operator)]) -> Option<(Operator, Span)> {
        operators.iter().find_map(|(sign, operator)| Some((*operator, self.take(sign)?)))
    }

    /// `a ?? b ?? c` is `a ?? (b ?? c)`.
    fn default(&mut self) -> Result<SyntaxTree, ExpressionFault> {
        let first = self.sum()?;
        let mut list = vec![first];
        let mut signs = Vec::new();
        while let Some(sign) = self.take("??") {
            signs.push(sign);
            list.push(self.sum()?);
        }
        let mut tree = list.swap_remove(list.len() - 1);
        while let (Some(left), Some(sign)) = (list.pop(), signs.pop()) {
            let at = left.at.to(tree.at);
            tree = self.node(at, SyntaxForm::Binary(Operator::Default, sign, Box::new([left, tree])))?;
        }
        Ok(tree)
    }

    fn sum(&mut self) -> Result<SyntaxTree, ExpressionFault> {
        self.chain(&SUMS, Self::product)
    }

    fn product(&mut self) -> Result<SyntaxTree, ExpressionFault> {
        self.chain(&PRODUCTS, Self::unary)
    }

    fn chain(
        &mut self,
        operators: &[(&str, Operator)],
        part: Rule<'t>,
    ) -> Result<SyntaxTree, ExpressionFault> {
        let mut tree = part(self)?;
        while let Some((operator, sign)) = self.take_any(operators) {
            let right = part(self)?;
            let at = tree.at.to(right.at);
            tree = self.node(at, SyntaxForm::Binary(operator, sign, Box::new([tree, right])))?;
        }
        Ok(tree)
    }

    fn unary(&mut self) -> Result<SyntaxTree, ExpressionFault> {
        let mut signs = Vec::new();
        loop {
            if let Some(sign) = self.take("!") {
                signs.push((sign, true));
            } else if let Some(sign) = self.take("-") {
                signs.push((sign, false));
            } else {
                break;
            }
        }
        let mut tree = self.member()?;
        while let Some((sign, is_not)) = signs.pop() {
            let at = sign.to(tree.at);
            let part = Box::new(tree);
            tree = self.node(at, if is_not { SyntaxForm::Not(part) } else { SyntaxForm::Negate(part) })?;
        }
        Ok(tree)
    }

    fn member(&mut self) -> Result<SyntaxTree, ExpressionFault> {
        let mut tree = self.primary()?;
        loop {
            if self.take(".").is_some() {
                let Token::Name(name) = *self.token() else {
                    return Err(self.unexpected("a name after the dot"));
                };
                let word = SyntaxWord { text: name.to_owned(), at: self.advance() };
                tree = match self.take("(") {
                    Some(opened) => {
                        let (list, end) = self.list(")", opened, "bracket")?;
                        let at = tree.at.to(end);
                        self.node(at, SyntaxForm::Call(Some(Box::new(tree)), word, list))?
                    }
                    None => {
                        let at = tree.at.to(word.at);
                        self.node(at, SyntaxForm::Select(Box::new(tree), word))?
                    }
                };
            } else if let Some(opened) = self.take("[") {
                let key = self.expression()?;
                let end = self.expect("]", opened, "bracket")?;
                let at = tree.at.to(end);
                tree = self.node(at, SyntaxForm::Index(Box::new(tree), Box::new(key)))?;
            } else {
                return Ok(tree);
            }
        }
    }

    fn primary(&mut self) -> Result<SyntaxTree, ExpressionFault> {
        let token = self.token().clone();
        match token {
            Token::Integer(value) => {
                let at = self.advance();
                self.node(at, SyntaxForm::Integer(value))
            }
            Token::Text(text) => {
                let at = self.advance();
                self.node(at, SyntaxForm::Text(text))
            }
            Token::Name(word @ ("true" | "false")) => {
                let at = self.advance();
                self.node(at, SyntaxForm::Boolean(word == "true"))
            }
            Token::Name("null") => Err(ExpressionFault::new(self.span(), "null does not exist")
                .hinting("to ask whether a value is absent, write !has(…)")),
            Token::Name("in") => Err(self.unexpected("a value")),
            Token::Name(name) => {
                let word = SyntaxWord { text: name.to_owned(), at: self.advance() };
                match self.take("(") {
                    Some(opened) => {
                        let (list, end) = self.list(")", opened, "bracket")?;
                        let at = word.at.to(end);
                        self.node(at, SyntaxForm::Call(None, word, list))
                    }
                    None => self.node(word.at, SyntaxForm::Name(word.text)),
                }
            }
            Token::Sign("(") => {
                let opened = self.advance();
                let tree = self.expression()?;
                let end = self.expect(")", opened, "bracket")?;
                Ok(SyntaxTree { at: opened.to(end), ..tree })
            }
            Token::Sign("[") => {
                let opened = self.advance();
                let (list, end) = self.list("]", opened, "list")?;
                let at = opened.to(end);
                self.node(at, SyntaxForm::List(list))
            }
            Token::Sign("{") => {
                Err(ExpressionFault::new(self.span(), "maps cannot be written in an expression")
                    .hinting("declare the map in the configuration, and ask map.NAME[key]"))
            }
            _ => Err(self.unexpected("a value")),
        }
    }

    /// Values between commas, up to a closing bracket. A comma before it is allowed.
    fn list(
        &mut self,
        close: &str,
        opened: Span,
        what: &str,
    ) -> Result<(Vec<SyntaxTree>, Span), ExpressionFault> {
        let mut list = Vec::new();
        loop {
            if let Some(end) = self.take(close) {
                return Ok((list, end));
            }
            if self.token() == &Token::End {
                return self.expect(close, opened, what).map(|end| (list, end));
            }
            list.push(self.expression()?);
            if self.take(",").is_none() {
                return self.expect(close, opened, what).map(|end| (list, end));
            }
        }
    }

    /// A token that is not possible here.
    fn unexpected(&self, wanted: &str) -> ExpressionFault {
        let at = self.span();
        let before = self.at.checked_sub(1).map(|before| &self.tokens[before].0);
        let fault = match self.token() {
            Token::End => ExpressionFault::new(at, format!("the expression ends where {wanted} is expected")),
            Token::Name(name) => {
                ExpressionFault::new(at, format!("{name:?} stands where {wanted} is expected"))
            }
            Token::Integer(value) => {
                ExpressionFault::new(at, format!("{value} stands where {wanted} is expected"))
            }
            Token::Text(_) => ExpressionFault::new(at, format!("a text stands where {wanted} is expected")),
            Token::Sign(sign) => {
                ExpressionFault::new(at, format!("{sign:?} stands where {wanted} is expected"))
            }
        };
        match (self.token(), before) {
            (Token::Name("and" | "AND"), _) => fault.hinting("write &&"),
            (Token::Name("or" | "OR"), _) => fault.hinting("write ||"),
            (Token::Name("eq" | "is"), _) => fault.hinting("write =="),
            (Token::Name("ne"), _) => fault.hinting("write !="),
            (Token::Name("not"), _) => fault.hinting("write !(a in b)"),
            (_, Some(Token::Name("not"))) => fault.hinting("write ! for \"not\""),
            (Token::Name(function @ ("matches" | "contains" | "startsWith" | "endsWith")), _) => {
                fault.hinting(format!("write TEXT.{function}(\"…\")"))
            }
            (Token::Sign(","), _) => fault.hinting("write lists as VALUE in [\"a\", \"b\"]"),
            (Token::Text(_), Some(Token::Name("contains" | "matches" | "startsWith" | "endsWith"))) => {
                fault.hinting("put the argument in brackets")
            }
            _ => fault,
        }
    }
}
