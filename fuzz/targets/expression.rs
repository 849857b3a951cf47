//! Expressions are parsed, or rejected with a place in the text. A parsed expression has a value for any head, the same as
//! its explanation, and takes no more than its declared cost. The input up to the first zero byte is the expression; the
//! lines after it are texts that a client sends.

#![no_main]

use std::net::{IpAddr, Ipv6Addr};

use expression::{
    EvaluationScratch, ExchangeStage, Expression, ExpressionLimits, Fact, FactFamily, Facts, Key, Map,
    Schema, SchemaConstant, Value, ValueType,
};
use libfuzzer_sys::fuzz_target;

/// Every fact is made of the texts that were sent.
struct Sent<'a> {
    texts: Vec<&'a [u8]>,
}

impl Sent<'_> {
    /// A text that a number chooses; a few are absent.
    fn text(&self, number: usize) -> Option<&[u8]> {
        self.texts.get(number % (self.texts.len() + 1)).copied()
    }

    fn number(&self, number: usize) -> i64 {
        let mut bytes = [0; 8];
        for (byte, sent) in bytes.iter_mut().zip(self.text(number).unwrap_or_default()) {
            *byte = *sent;
        }
        i64::from_be_bytes(bytes)
    }

    fn address(&self) -> IpAddr {
        let bits = (self.number(0) as u128) << 64 | self.number(1) as u64 as u128;
        Ipv6Addr::from(bits).to_canonical()
    }
}

impl Facts for Sent<'_> {
    fn value(&self, fact: Fact) -> Option<Value<'_>> {
        let number = self.number(fact as usize);
        Some(match fact.value_type() {
            ValueType::Boolean => Value::Boolean(number > 0),
            ValueType::Integer => Value::Integer(number),
            ValueType::Duration => Value::Duration(number),
            ValueType::Time => Value::Time(number),
            ValueType::Address => Value::Address(self.address()),
            ValueType::Text => Value::Text(match self.text(fact as usize) {
                None if !fact.is_optional() => b"",
                text => text?,
            }),
        })
    }

    fn field(&self, family: FactFamily, key: &Key) -> Option<&[u8]> {
        self.text(family as usize + key.as_bytes().len())
    }

    fn any_field(&self, family: FactFamily, key: &Key, test: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        self.field(family, key).is_some() && self.texts.iter().any(|text| test(text))
    }

    fn lookup(&self, map: u16, key: Value<'_>) -> Option<Value<'_>> {
        match key {
            Value::Text(key) if map == 1 => self.text(key.len()).map(Value::Text),
            Value::Address(key) if key.is_loopback() => Some(Value::Boolean(true)),
            _ => None,
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    let (text, rest) = (&bytes[..end], bytes.get(end + 1..).unwrap_or_default());
    let Ok(text) = std::str::from_utf8(text) else { return };
    let limits = ExpressionLimits { value_bytes: 4096, ..ExpressionLimits::default() };
    if rest.len() > limits.value_bytes {
        return;
    }
    let schema = Schema::new(ExchangeStage::Response)
        .with_map("map.a", Map { number: 1, keys: ValueType::Text, values: ValueType::Text })
        .with_map("map.b", Map { number: 2, keys: ValueType::Address, values: ValueType::Boolean })
        .with_constant("values.a", SchemaConstant::List(vec!["10.0.0.0/8".to_owned(), "::1".to_owned()]));
    let expression = match Expression::new(text, &schema, &limits) {
        Ok(expression) => expression,
        Err(fault) => {
            assert!(text.get(fault.at.clone()).is_some(), "{fault:?}");
            assert!(!fault.in_text(text, "f").to_string().is_empty());
            return;
        }
    };
    let sent = Sent { texts: rest.split(|&byte| byte == b'\n').collect() };
    let mut scratch = EvaluationScratch::new();
    let value = expression.evaluate(&sent, &mut scratch).map(|value| {
        assert_eq!(value.value_type(), expression.kind().of);
        value.to_string()
    });
    assert!(value.is_some() || expression.kind().is_optional);
    let explanation = expression.explain(&sent);
    assert!(explanation.steps <= expression.cost(), "{} > {}", explanation.steps, expression.cost());
    if let (Some(whole), Some(value)) = (explanation.parts.first(), value)
        && value.len() < 200
    {
        assert_eq!(whole.outcome.to_string(), value);
    }
    assert!(scratch.len() as u64 <= expression.scratch_bytes());
    if expression.kind().of == ValueType::Boolean {
        assert!(expression.implies(&expression));
    }
});
