//! What the cache asks of a server in the place of its client: for all, or whether what is stored is still good.

use ::cache::is_replaced_condition;
use wire::Edits;

/// Takes the client's preconditions and ranges out of a request, and puts lines of the cache in their place.
pub(crate) struct Asking<'a> {
    pub(crate) lines: &'a [u8],
    /// What the route wants besides.
    pub(crate) edits: Option<&'a dyn Edits>,
}

impl Edits for Asking<'_> {
    fn touches(&self, name: &[u8]) -> bool {
        is_replaced_condition(name) || self.edits.is_some_and(|edits| edits.touches(name))
    }

    fn removes(&self, name: &[u8]) -> bool {
        is_replaced_condition(name) || self.edits.is_some_and(|edits| edits.removes(name))
    }

    fn replace(&self, name: &[u8], value: &[u8], out: &mut Vec<u8>) {
        if let Some(edits) = self.edits.filter(|_| !is_replaced_condition(name)) {
            edits.replace(name, value, out);
        }
    }

    fn add(&self, out: &mut Vec<u8>) {
        if let Some(edits) = self.edits {
            edits.add(out);
        }
        out.extend_from_slice(self.lines);
    }
}
