//! Random expressions, written as text and compiled, agree with a naive evaluator that walks its own tree. Explanations
//! agree with both, and no evaluation takes more than its cost.

use expression::{ExchangeStage, Expression, ExpressionLimits, FactFamily};
use proptest::prelude::*;

use crate::exchange::{Exchange, compiled, schema, value_of};

/// Random expression of type boolean.
#[derive(Debug, Clone)]
enum Condition {
    Constant(bool),
    Not(Box<Condition>),
    All(Vec<Condition>),
    Any(Vec<Condition>),
    Choose(Box<[Condition; 3]>),
    Same(Box<[Condition; 2]>),
    Numbers(&'static str, Box<[Number; 2]>),
    Texts(&'static str, Box<[Text; 2]>),
    /// A field, which may be absent, beside a text.
    Field(&'static str, &'static str, Text),
    Has(&'static str),
    Among(Text, Vec<&'static str>),
    AnyField(Text, &'static str),
    Search(&'static str, Box<[Text; 2]>),
    Matches(Text),
}

/// An integer.
#[derive(Debug, Clone)]
enum Number {
    Constant(i64),
    Negate(Box<Number>),
    Binary(char, Box<[Number; 2]>),
    ByConstant(char, Box<Number>, i64),
    Size(Text),
    Parse(Text, Box<Number>),
    Choose(Box<Condition>, Box<[Number; 2]>),
}

/// Random expression of type text.
#[derive(Debug, Clone)]
enum Text {
    Constant(&'static str),
    Path,
    Field(&'static str, Box<Text>),
    Query(&'static str, Box<Text>),
    Join(Vec<Text>),
    Lower(Box<Text>),
    Upper(Box<Text>),
    /// With two dots in place of its first letter or digit.
    Replaced(Box<Text>),
    Piece(Box<Text>, u32, Box<Text>),
    Write(Box<Number>),
    Choose(Box<Condition>, Box<[Text; 2]>),
}

const WORDS: [&str; 9] = ["", "a", "A", "ab", "a,b", "-1", "7", ",", "Bot"];
const NAMES: [&str; 4] = ["x-beta", "x-list", "x-none", "user-agent"];
const COMPARISONS: [&str; 6] = ["==", "!=", "<", "<=", ">", ">="];
/// Regular expression of `Matches`.
const PATTERN: &str = "^[a-z],|B";

impl Condition {
    fn written(&self) -> String {
        let joined = |parts: &[Self], sign| {
            let parts: Vec<String> = parts.iter().map(Self::written).collect();
            format!("({})", parts.join(sign))
        };
        match self {
            Self::Constant(value) => value.to_string(),
            Self::Not(part) => format!("!{}", part.written()),
            Self::All(parts) => joined(parts, " && "),
            Self::Any(parts) => joined(parts, " || "),
            Self::Choose(parts) => {
                format!("({} ? {} : {})", parts[0].written(), parts[1].written(), parts[2].written())
            }
            Self::Same(parts) => format!("({} == {})", parts[0].written(), parts[1].written()),
            Self::Numbers(sign, parts) => format!("({} {sign} {})", parts[0].written(), parts[1].written()),
            Self::Texts(sign, parts) => format!("({} {sign} {})", parts[0].written(), parts[1].written()),
            Self::Field(name, sign, text) => {
                format!("(request.headers[\"{name}\"] {sign} {})", text.written())
            }
            Self::Has(name) => format!("has(request.headers[\"{name}\"])"),
            Self::Among(text, list) => format!("({} in {list:?})", text.written()),
            Self::AnyField(text, name) => format!("({} in request.query[\"{name}\"])", text.written()),
            Self::Search(function, parts) => {
                format!("{}.{function}({} + \"b\")", parts[0].written(), parts[1].written())
            }
            Self::Matches(text) => format!("{}.matches(\"{PATTERN}\")", text.written()),
        }
    }

    fn value(&self, exchange: &Exchange) -> bool {
        match self {
            Self::Constant(value) => *value,
            Self::Not(part) => !part.value(exchange),
            Self::All(parts) => parts.iter().all(|part| part.value(exchange)),
            Self::Any(parts) => parts.iter().any(|part| part.value(exchange)),
            Self::Choose(parts) => parts[if parts[0].value(exchange) { 1 } else { 2 }].value(exchange),
            Self::Same(parts) => parts[0].value(exchange) == parts[1].value(exchange),
            Self::Numbers(sign, parts) => {
                holds(sign, parts[0].value(exchange).cmp(&parts[1].value(exchange)))
            }
            Self::Texts(sign, parts) => holds(sign, parts[0].value(exchange).cmp(&parts[1].value(exchange))),
            Self::Field(name, sign, text) => {
                let field = first(exchange, FactFamily::RequestHeaders, name);
                (field == Some(text.value(exchange))) == (*sign == "==")
            }
            Self::Has(name) => first(exchange, FactFamily::RequestHeaders, name).is_some(),
            Self::Among(text, list) => list.iter().any(|word| word.as_bytes() == text.value(exchange)),
            Self::AnyField(text, name) => {
                let values = exchange
                    .fields
                    .iter()
                    .filter(|(of, known, _)| *of == FactFamily::RequestQuery && known == name);
                values.into_iter().any(|(_, _, value)| unescaped(value) == text.value(exchange))
            }
            Self::Search(function, parts) => {
                let (text, mut wanted) = (parts[0].value(exchange), parts[1].value(exchange));
                wanted.push(b'b');
                match *function {
                    "startsWith" => text.starts_with(&wanted),
                    "endsWith" => text.ends_with(&wanted),
                    _ => text.windows(wanted.len()).any(|part| part == wanted),
                }
            }
            Self::Matches(text) => {
                let text = text.value(exchange);
                matches!(text[..], [b'a'..=b'z', b',', ..]) || text.contains(&b'B')
            }
        }
    }
}

impl Number {
    fn written(&self) -> String {
        match self {
            Self::Constant(value) => format!("({value})"),
            Self::Negate(part) => format!("-{}", part.written()),
            Self::Binary(sign, parts) => format!("({} {sign} {})", parts[0].written(), parts[1].written()),
            Self::ByConstant(sign, part, divisor) => format!("({} {sign} {divisor})", part.written()),
            Self::Size(text) => format!("size({})", text.written()),
            Self::Parse(text, default) => format!("(int({}) ?? {})", text.written(), default.written()),
            Self::Choose(condition, parts) => {
                format!("({} ? {} : {})", condition.written(), parts[0].written(), parts[1].written())
            }
        }
    }

    fn value(&self, exchange: &Exchange) -> i64 {
        let clamped = |value: i128| value.clamp(i64::MIN.into(), i64::MAX.into()) as i64;
        match self {
            Self::Constant(value) => *value,
            Self::Negate(part) => clamped(-i128::from(part.value(exchange))),
            Self::Binary(sign, parts) => {
                let (one, other) = (parts[0].value(exchange).into(), parts[1].value(exchange).into());
                let (one, other): (i128, i128) = (one, other);
                clamped(match sign {
                    '+' => one + other,
                    '-' => one - other,
                    _ => one * other,
                })
            }
            Self::ByConstant(sign, part, divisor) => {
                let (value, divisor) = (i128::from(part.value(exchange)), i128::from(*divisor));
                clamped(if *sign == '/' { value / divisor } else { value % divisor })
            }
            Self::Size(text) => text.value(exchange).len() as i64,
            Self::Parse(text, default) => {
                let text = String::from_utf8(text.value(exchange)).unwrap_or_default();
                let is_plain = text.len() <= 20 && !text.starts_with('+');
                text.parse().ok().filter(|_| is_plain).unwrap_or_else(|| default.value(exchange))
            }
            Self::Choose(condition, parts) => parts[usize::from(!condition.value(exchange))].value(exchange),
        }
    }
}

impl Text {
    fn written(&self) -> String {
        match self {
            Self::Constant(text) => format!("{text:?}"),
            Self::Path => "request.path".to_owned(),
            Self::Field(name, default) => {
                format!("(request.headers[\"{name}\"] ?? {})", default.written())
            }
            Self::Query(name, default) => format!("(request.query[\"{name}\"] ?? {})", default.written()),
            Self::Join(parts) => {
                let parts: Vec<String> = parts.iter().map(Self::written).collect();
                format!("({})", parts.join(" + "))
            }
            Self::Lower(part) => format!("{}.lowerAscii()", part.written()),
            Self::Upper(part) => format!("{}.upperAscii()", part.written()),
            Self::Replaced(part) => format!("{}.replaceFirst(\"[a-zA-Z0-9]\", \"..\")", part.written()),
            Self::Piece(part, 0, _) => format!("{}.split(\",\")[0]", part.written()),
            Self::Piece(part, number, default) => {
                format!("({}.split(\",\")[{number}] ?? {})", part.written(), default.written())
            }
            Self::Write(number) => format!("string({})", number.written()),
            Self::Choose(condition, parts) => {
                format!("({} ? {} : {})", condition.written(), parts[0].written(), parts[1].written())
            }
        }
    }

    fn value(&self, exchange: &Exchange) -> Vec<u8> {
        match self {
            Self::Constant(text) => text.as_bytes().to_vec(),
            Self::Path => exchange.path.clone(),
            Self::Field(name, default) => {
                first(exchange, FactFamily::RequestHeaders, name).unwrap_or_else(|| default.value(exchange))
            }
            Self::Query(name, default) => {
                let found = first(exchange, FactFamily::RequestQuery, name).map(|text| unescaped(&text));
                found.unwrap_or_else(|| default.value(exchange))
            }
            Self::Join(parts) => parts.iter().flat_map(|part| part.value(exchange)).collect(),
            Self::Lower(part) => part.value(exchange).to_ascii_lowercase(),
            Self::Upper(part) => part.value(exchange).to_ascii_uppercase(),
            Self::Replaced(part) => {
                let mut text = part.value(exchange);
                if let Some(place) = text.iter().position(u8::is_ascii_alphanumeric) {
                    text.splice(place..=place, *b"..");
                }
                text
            }
            Self::Piece(part, number, default) => {
                let text = part.value(exchange);
                let piece = text.split(|byte| *byte == b',').nth(*number as usize).map(<[u8]>::to_vec);
                piece.unwrap_or_else(|| default.value(exchange))
            }
            Self::Write(number) => number.value(exchange).to_string().into_bytes(),
            Self::Choose(condition, parts) => parts[usize::from(!condition.value(exchange))].value(exchange),
        }
    }
}

fn holds(sign: &str, order: std::cmp::Ordering) -> bool {
    match sign {
        "==" => order.is_eq(),
        "!=" => order.is_ne(),
        "<" => order.is_lt(),
        "<=" => order.is_le(),
        ">" => order.is_gt(),
        _ => order.is_ge(),
    }
}

fn first(exchange: &Exchange, family: FactFamily, name: &str) -> Option<Vec<u8>> {
    let mut found = exchange.fields.iter().filter(|(of, known, _)| *of == family && *known == name);
    found.next().map(|(_, _, value)| value.clone())
}

/// The only escapes of the parameters below.
fn unescaped(text: &[u8]) -> Vec<u8> {
    let text = String::from_utf8(text.to_vec()).unwrap();
    text.replace('+', " ").replace("%20", " ").replace("%26", "&").replace("%2c", ",").into_bytes()
}

fn word() -> impl Strategy<Value = &'static str> {
    prop::sample::select(&WORDS[..])
}

fn name() -> impl Strategy<Value = &'static str> {
    prop::sample::select(&NAMES[..])
}

fn parameter() -> impl Strategy<Value = &'static str> {
    prop::sample::select(&["name", "tag", "page", "none"][..])
}

fn text(depth: u32) -> BoxedStrategy<Text> {
    let leaf = prop_oneof![word().prop_map(Text::Constant), Just(Text::Path)];
    if depth == 0 {
        return leaf.boxed();
    }
    let inner = || text(depth - 1).prop_map(Box::new);
    prop_oneof![
        2 => leaf,
        2 => (name(), inner()).prop_map(|(name, text)| Text::Field(name, text)),
        2 => (parameter(), inner()).prop_map(|(name, text)| Text::Query(name, text)),
        2 => prop::collection::vec(text(depth - 1), 2..4).prop_map(Text::Join),
        1 => inner().prop_map(Text::Lower),
        1 => inner().prop_map(Text::Upper),
        1 => inner().prop_map(Text::Replaced),
        1 => (inner(), 0..3_u32, inner()).prop_map(|(text, number, default)| Text::Piece(text, number, default)),
        1 => number(depth - 1).prop_map(|number| Text::Write(Box::new(number))),
        1 => (condition(depth - 1), text(depth - 1), text(depth - 1))
            .prop_map(|(condition, one, other)| Text::Choose(Box::new(condition), Box::new([one, other]))),
    ]
    .boxed()
}

fn number(depth: u32) -> BoxedStrategy<Number> {
    let leaf = prop_oneof![
        (-3..10_i64).prop_map(Number::Constant),
        prop::sample::select(&[i64::MIN, i64::MAX][..]).prop_map(Number::Constant),
    ];
    if depth == 0 {
        return leaf.boxed();
    }
    let inner = || number(depth - 1);
    let divisor = prop::sample::select(&[1, 3, 10, i64::MAX][..]);
    prop_oneof![
        2 => leaf,
        1 => inner().prop_map(|part| Number::Negate(Box::new(part))),
        2 => (prop::sample::select(&['+', '-', '*'][..]), inner(), inner())
            .prop_map(|(sign, one, other)| Number::Binary(sign, Box::new([one, other]))),
        1 => (prop::sample::select(&['/', '%'][..]), inner(), divisor)
            .prop_map(|(sign, part, divisor)| Number::ByConstant(sign, Box::new(part), divisor)),
        1 => text(depth - 1).prop_map(Number::Size),
        1 => (text(depth - 1), inner()).prop_map(|(text, default)| Number::Parse(text, Box::new(default))),
        1 => (condition(depth - 1), inner(), inner())
            .prop_map(|(condition, one, other)| Number::Choose(Box::new(condition), Box::new([one, other]))),
    ]
    .boxed()
}

fn condition(depth: u32) -> BoxedStrategy<Condition> {
    let leaf = prop_oneof![any::<bool>().prop_map(Condition::Constant), name().prop_map(Condition::Has)];
    if depth == 0 {
        return leaf.boxed();
    }
    let inner = || condition(depth - 1);
    let comparison = || prop::sample::select(&COMPARISONS[..]);
    let two_texts = || (text(depth - 1), text(depth - 1)).prop_map(|(one, other)| Box::new([one, other]));
    prop_oneof![
        1 => leaf,
        1 => inner().prop_map(|part| Condition::Not(Box::new(part))),
        2 => prop::collection::vec(inner(), 2..4).prop_map(Condition::All),
        2 => prop::collection::vec(inner(), 2..4).prop_map(Condition::Any),
        1 => (inner(), inner(), inner()).prop_map(|(a, b, c)| Condition::Choose(Box::new([a, b, c]))),
        1 => (inner(), inner()).prop_map(|(one, other)| Condition::Same(Box::new([one, other]))),
        2 => (comparison(), number(depth - 1), number(depth - 1))
            .prop_map(|(sign, one, other)| Condition::Numbers(sign, Box::new([one, other]))),
        2 => (comparison(), two_texts()).prop_map(|(sign, texts)| Condition::Texts(sign, texts)),
        1 => (name(), prop::sample::select(&["==", "!="][..]), text(depth - 1))
            .prop_map(|(name, sign, text)| Condition::Field(name, sign, text)),
        1 => (text(depth - 1), prop::collection::vec(word(), 1..5))
            .prop_map(|(text, list)| Condition::Among(text, list)),
        1 => (text(depth - 1), parameter()).prop_map(|(text, name)| Condition::AnyField(text, name)),
        2 => (prop::sample::select(&["startsWith", "endsWith", "contains"][..]), two_texts())
            .prop_map(|(function, texts)| Condition::Search(function, texts)),
        1 => text(depth - 1).prop_map(Condition::Matches),
    ]
    .boxed()
}

fn exchange() -> impl Strategy<Value = Exchange> {
    let fields = prop::collection::vec((name(), word()), 0..4);
    let values = prop::sample::select(&["a+b", "%26", "x%2cB", "", "a"][..]);
    let parameters = prop::collection::vec((parameter(), values), 0..4);
    (word(), fields, parameters).prop_map(|(path, fields, parameters)| {
        let fields = fields.into_iter().map(|(name, value)| (FactFamily::RequestHeaders, name, value.into()));
        let parameters =
            parameters.into_iter().map(|(name, value)| (FactFamily::RequestQuery, name, value.into()));
        Exchange { path: path.into(), fields: fields.chain(parameters).collect(), ..Exchange::default() }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn conditions_agree_with_a_naive_evaluator(condition in condition(3), exchange in exchange()) {
        let written = condition.written();
        let compiled = Expression::new(&written, &schema(ExchangeStage::Request), &ExpressionLimits::default());
        // A few are too long for the limits.
        if let Err(fault) = &compiled {
            prop_assert!(fault.to_string().contains("at most") || fault.to_string().contains("more than"), "{fault}: {written}");
        }
        prop_assume!(compiled.is_ok());
        let compiled = compiled.unwrap();
        let value = condition.value(&exchange).to_string();
        prop_assert_eq!(value_of(&compiled, &exchange), value.clone(), "{}", &written);
        let explanation = compiled.explain(&exchange);
        if let Some(whole) = explanation.parts.first() {
            prop_assert_eq!(whole.outcome.to_string(), value, "{}", &explanation);
        }
        prop_assert!(explanation.steps <= compiled.cost());
    }

    #[test]
    fn texts_agree_with_a_naive_evaluator(text in text(3), exchange in exchange()) {
        let written = text.written();
        let compiled = Expression::new(&written, &schema(ExchangeStage::Request), &ExpressionLimits::default());
        prop_assume!(compiled.is_ok());
        let value = expression::Value::Text(&text.value(&exchange)).to_string();
        prop_assert_eq!(value_of(&compiled.unwrap(), &exchange), value, "{}", &written);
    }

    /// A proven implication holds for every exchange.
    #[test]
    fn implied_conditions_hold(one in condition(2), other in condition(2), exchange in exchange()) {
        let both = Condition::All(vec![one.clone(), other.clone()]);
        let either = Condition::Any(vec![one.clone(), other.clone()]);
        let [one, other, both, either] = [&one, &other, &both, &either].map(|part| compiled(&part.written()));
        prop_assert!(both.implies(&one) && both.implies(&other) && both.implies(&either));
        prop_assert!(one.implies(&either) && other.implies(&either) && one.implies(&one));
        for (given, then) in [(&one, &other), (&other, &one), (&either, &one), (&one, &both)] {
            let holds = |condition| value_of(condition, &exchange) == "true";
            prop_assert!(!given.implies(then) || !holds(given) || holds(then), "{} => {}", given, then);
        }
    }

    #[test]
    fn any_text_is_read_or_refused_with_a_place(text in "\\PC{0,40}", tokens in prop::collection::vec(
        prop::sample::select(&[
            "request.path", "request.headers[\"a\"]", "(", ")", "[", "]", "&&", "||", "??", "!", "-", "+", "?", ":",
            "==", "in", "1", "\"a\"", ".", ",", "size", "has(", ".split(\",\")", ".lowerAscii()", "time", "true",
        ][..]), 0..14,
    )) {
        for text in [text, tokens.concat(), tokens.join(" ")] {
            match Expression::new(&text, &schema(ExchangeStage::Response), &ExpressionLimits::default()) {
                Ok(expression) => {
                    let exchange = Exchange::default();
                    let explanation = expression.explain(&exchange);
                    prop_assert!(explanation.steps <= expression.cost());
                    let value = value_of(&expression, &exchange);
                    if let Some(whole) = explanation.parts.first() {
                        prop_assert_eq!(whole.outcome.to_string(), value);
                    }
                }
                Err(fault) => prop_assert!(text.get(fault.at.clone()).is_some(), "{:?}", fault),
            }
        }
    }
}
