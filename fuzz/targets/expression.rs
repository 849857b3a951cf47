//! Expressions are parsed, or rejected with a place in the text. A parsed expression has a value for any head, the same as
//! its explanation, and takes no more than its declared cost. The input up to the first zero byte is the expression; the
//! lines after it are texts that a client sends.

#![no_main]

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use expression::{
    EvaluationScratch, ExchangeStage, Expression, ExpressionLimits, Fact, FactFamily, Facts, Key, Map,
    Schema, SchemaConstant, Value, ValueMemory, ValueType,
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

/// Facts with a memory for named expressions.
struct Remembering<'a>(&'a Sent<'a>, &'a ValueMemory);

impl Facts for Remembering<'_> {
    fn value(&self, fact: Fact) -> Option<Value<'_>> {
        self.0.value(fact)
    }

    fn field(&self, family: FactFamily, key: &Key) -> Option<&[u8]> {
        self.0.field(family, key)
    }

    fn any_field(&self, family: FactFamily, key: &Key, test: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        self.0.any_field(family, key, test)
    }

    fn lookup(&self, map: u16, key: Value<'_>) -> Option<Value<'_>> {
        self.0.lookup(map, key)
    }

    fn memory(&self) -> Option<&ValueMemory> {
        Some(self.1)
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
        .with_map("map.a", Map { number: 1, keys: ValueType::Text, values: Some(ValueType::Text) })
        .with_map("map.b", Map { number: 2, keys: ValueType::Address, values: None })
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
    // A name for the expression has its value, whether that was computed before or not.
    let named = Expression::from_name("values.b", &Arc::new(expression));
    let memory = ValueMemory::new();
    let plain = |facts: &Remembering<'_>, scratch: &mut EvaluationScratch| {
        named.evaluate(facts, scratch).map(|value| value.with_plain(<[u8]>::to_vec))
    };
    let remembering = Remembering(&sent, &memory);
    let first = plain(&remembering, &mut scratch);
    assert_eq!(plain(&remembering, &mut scratch), first);
    assert!(scratch.len() as u64 <= named.scratch_bytes());
    assert_eq!(named.evaluate(&sent, &mut scratch).map(|value| value.with_plain(<[u8]>::to_vec)), first);
    if let (Some(texts), Some(value)) = (named.possible_texts(), &first) {
        assert!(!texts.maps.is_empty() || texts.constants.iter().any(|text| **text == **value));
    }
});
