//! Values of named expressions that one exchange has computed, so that each is computed once.

use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::sync::Arc;

use crate::evaluate::{Bytes, Evaluation};
use crate::facts::Facts;
use crate::node::Definition;

/// Texts of one exchange that are kept. What does not fit is computed again, with the same result.
const BYTES_MAX: usize = 64 * 1024;
/// Memory for texts that stays for the next exchange.
const SPARE_BYTES_MAX: usize = 4096;

/// Values of named expressions that one exchange has computed, and its time.
///
/// The owner keeps it for the next exchange, so that it allocates only while it grows. An evaluation uses it if
/// [`Facts::memory`] gives it. Values that depend on the path are not kept, because routes compare several readings of
/// it, nor values that depend on facts which may change ([`Facts::settled`]). Constants and single facts are not kept
/// either: reading them takes fewer steps than finding them here.
#[derive(Debug, Default)]
pub struct ValueMemory {
    /// `None` until the first value, so that exchanges without values are small.
    kept: RefCell<Option<Box<KeptValues>>>,
    time_ns: Cell<Option<i64>>,
}

#[derive(Debug, Default)]
struct KeptValues {
    /// The address of each expression, and its value; `None` if that is absent.
    values: Vec<(usize, Option<KeptValue>)>,
    bytes: Vec<u8>,
}

#[derive(Debug, Clone, Copy)]
enum KeptValue {
    Boolean(bool),
    Number(i64),
    Address(IpAddr),
    /// A range of the bytes.
    Text(usize, usize),
}

impl ValueMemory {
    /// An empty memory.
    pub fn new() -> Self {
        Self::default()
    }

    /// Forgets everything: the next exchange begins.
    #[inline]
    pub fn clear(&self) {
        self.time_ns.set(None);
        let mut kept = self.kept.borrow_mut();
        if let Some(kept) = kept.as_mut().filter(|kept| !kept.values.is_empty()) {
            kept.values.clear();
            kept.bytes.clear();
            kept.bytes.shrink_to(SPARE_BYTES_MAX);
        }
    }

    /// Returns the time of the exchange for [`Fact::Time`](crate::Fact::Time): `now` when it is first asked.
    pub fn time_ns(&self, now: impl FnOnce() -> i64) -> i64 {
        let time = self.time_ns.get().unwrap_or_else(now);
        self.time_ns.set(Some(time));
        time
    }

    fn find(&self, definition: &Definition) -> Option<Option<KeptValue>> {
        let place = place(definition);
        let kept = self.kept.borrow();
        kept.as_ref()?.values.iter().find(|(known, _)| *known == place).map(|(_, value)| *value)
    }

    fn keep(&self, definition: &Definition, value: Option<KeptValue>) {
        self.kept.borrow_mut().get_or_insert_default().values.push((place(definition), value));
    }

    fn keep_text(&self, definition: &Definition, text: Option<&[u8]>) {
        let mut kept = self.kept.borrow_mut();
        let kept = kept.get_or_insert_default();
        let start = kept.bytes.len();
        let value = match text {
            Some(text) if start + text.len() > BYTES_MAX => return,
            Some(text) => {
                kept.bytes.extend_from_slice(text);
                Some(KeptValue::Text(start, start + text.len()))
            }
            None => None,
        };
        kept.values.push((place(definition), value));
    }
}

/// Identifies an expression while the exchange holds its configuration.
fn place(definition: &Definition) -> usize {
    Arc::as_ptr(&definition.0).addr()
}

/// Evaluation of named expressions: from the memory, else computed and kept there.
impl<'a, F: Facts + ?Sized> Evaluation<'a, '_, F> {
    fn memory_for(&self, definition: &Definition) -> Option<&'a ValueMemory> {
        let is_settled = definition.0.stage() <= self.facts.settled();
        self.facts.memory().filter(|_| is_settled && definition.0.is_worth_keeping())
    }

    pub(crate) fn test_definition(&mut self, definition: &'a Definition) -> bool {
        let Some(memory) = self.memory_for(definition) else { return self.test(&definition.0.root) };
        if let Some(known) = memory.find(definition) {
            return matches!(known, Some(KeptValue::Boolean(true)));
        }
        let value = self.test(&definition.0.root);
        memory.keep(definition, Some(KeptValue::Boolean(value)));
        value
    }

    pub(crate) fn number_of_definition(&mut self, definition: &'a Definition) -> Option<i64> {
        let Some(memory) = self.memory_for(definition) else { return self.number(&definition.0.root) };
        if let Some(known) = memory.find(definition) {
            return match known? {
                KeptValue::Number(value) => Some(value),
                _ => None,
            };
        }
        let value = self.number(&definition.0.root);
        memory.keep(definition, value.map(KeptValue::Number));
        value
    }

    pub(crate) fn address_of_definition(&mut self, definition: &'a Definition) -> Option<IpAddr> {
        let Some(memory) = self.memory_for(definition) else { return self.address(&definition.0.root) };
        if let Some(known) = memory.find(definition) {
            return match known? {
                KeptValue::Address(value) => Some(value),
                _ => None,
            };
        }
        let value = self.address(&definition.0.root);
        memory.keep(definition, value.map(KeptValue::Address));
        value
    }

    pub(crate) fn text_of_definition(&mut self, definition: &'a Definition) -> Option<Bytes<'a>> {
        let Some(memory) = self.memory_for(definition) else { return self.text(&definition.0.root) };
        if let Some(known) = memory.find(definition) {
            let KeptValue::Text(start, end) = known? else { return None };
            let written = self.scratch.len();
            self.scratch.extend_from_slice(memory.kept.borrow().as_ref()?.bytes.get(start..end)?);
            return Some(Bytes::Written(written, self.scratch.len()));
        }
        let text = self.text(&definition.0.root);
        memory.keep_text(definition, text.map(|text| text.for_scratch(self.scratch)));
        text
    }
}
