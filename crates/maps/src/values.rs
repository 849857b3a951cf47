//! Values of entries, each kept once.

use std::hash::BuildHasher;

use expression::{Value, ValueType};
use hashbrown::{DefaultHashBuilder, HashTable};

use crate::fault::EntryFault;
use crate::shape::MapValue;
use crate::texts::Texts;

/// The distinct values of a table, and which of them each entry has.
#[derive(Debug, Clone)]
pub(crate) struct Values {
    of: Option<ValueType>,
    texts: Texts,
    numbers: Vec<i64>,
    /// The place of each entry's value. Empty if all entries have the first one.
    places: Vec<u32>,
    entry_count: usize,
}

/// Values while entries are added.
#[derive(Debug)]
pub(crate) struct ValuesBuilder {
    values: Values,
    hasher: DefaultHashBuilder,
    known: HashTable<u32>,
}

impl ValuesBuilder {
    pub(crate) fn new(of: Option<ValueType>) -> Self {
        let values =
            Values { of, texts: Texts::default(), numbers: Vec::new(), places: Vec::new(), entry_count: 0 };
        Self { values, hasher: DefaultHashBuilder::default(), known: HashTable::new() }
    }

    pub(crate) fn push(&mut self, value: &MapValue) -> Result<(), EntryFault> {
        let place = match value {
            MapValue::Present => 0,
            MapValue::Text(text) => self.place_of_text(text.as_bytes()).ok_or(EntryFault::TooLarge)?,
            MapValue::Boolean(value) => self.place_of_number(i64::from(*value)),
            MapValue::Integer(number) | MapValue::Duration(number) => self.place_of_number(*number),
        };
        let values = &mut self.values;
        if place != 0 && values.places.is_empty() {
            values.places.resize(values.entry_count, 0);
        }
        if place != 0 || !values.places.is_empty() {
            values.places.push(place);
        }
        values.entry_count += 1;
        Ok(())
    }

    fn place_of_text(&mut self, text: &[u8]) -> Option<u32> {
        let Self { values: Values { texts, .. }, hasher, known } = self;
        let hash = hasher.hash_one(text);
        if let Some(place) = known.find(hash, |place| texts.text(*place) == text) {
            return Some(*place);
        }
        let place = u32::try_from(texts.len()).ok()?;
        texts.push(text)?;
        known.insert_unique(hash, place, |place| hasher.hash_one(texts.text(*place)));
        Some(place)
    }

    fn place_of_number(&mut self, number: i64) -> u32 {
        let Self { values: Values { numbers, .. }, hasher, known } = self;
        let at = |place: &u32| numbers.get(*place as usize).copied();
        let hash = hasher.hash_one(number);
        if let Some(place) = known.find(hash, |place| at(place) == Some(number)) {
            return *place;
        }
        let place = numbers.len() as u32;
        numbers.push(number);
        let hash_of = |place: &u32| hasher.hash_one(numbers.get(*place as usize).copied().unwrap_or(0));
        known.insert_unique(hash, place, hash_of);
        place
    }

    /// The values so far.
    pub(crate) fn values(&self) -> &Values {
        &self.values
    }

    pub(crate) fn build(self) -> Values {
        let mut values = self.values;
        values.texts.shrink();
        values.numbers.shrink_to_fit();
        values.places.shrink_to_fit();
        values
    }
}

impl Values {
    /// The value of an entry.
    #[inline]
    pub(crate) fn value(&self, entry: u32) -> Value<'_> {
        self.at(self.places.get(entry as usize).copied().unwrap_or(0))
    }

    #[inline]
    fn at(&self, place: u32) -> Value<'_> {
        let number = || self.numbers.get(place as usize).copied().unwrap_or(0);
        match self.of {
            None => Value::Boolean(true),
            Some(ValueType::Boolean) => Value::Boolean(number() != 0),
            Some(ValueType::Integer) => Value::Integer(number()),
            Some(ValueType::Duration) => Value::Duration(number()),
            Some(_) => Value::Text(self.texts.text(place)),
        }
    }

    /// The values of all entries, each once.
    pub(crate) fn distinct(&self) -> impl Iterator<Item = Value<'_>> {
        let count = self.texts.len().max(self.numbers.len()).max(usize::from(self.entry_count > 0));
        (0..count as u32).map(|place| self.at(place))
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.texts.memory_bytes() + 8 * self.numbers.capacity() + 4 * self.places.capacity()
    }
}
