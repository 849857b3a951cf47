//! The coded forms of an open file.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use coding::Coding;

/// Memory for coded forms of all files of a worker.
const KEPT_BYTES_MAX: usize = 16 << 20;

thread_local! {
    /// Bytes of all coded forms of this worker.
    // A worker is one thread, so this needs no lock.
    static KEPT_BYTES: Cell<usize> = const { Cell::new(0) };
}

#[derive(Default)]
pub(crate) struct KeptForms(RefCell<Vec<KeptForm>>);

/// Coding, level, and coded file.
type KeptForm = (Coding, u8, Rc<[u8]>);

impl KeptForms {
    pub(crate) fn get(&self, coding: Coding, level: u8) -> Option<Rc<[u8]>> {
        let forms = self.0.borrow();
        let known = forms.iter().find(|(known, at, _)| (*known, *at) == (coding, level));
        known.map(|(.., form)| Rc::clone(form))
    }

    pub(crate) fn keep(&self, coding: Coding, level: u8, form: &Rc<[u8]>) {
        let bytes = KEPT_BYTES.get() + form.len();
        if bytes <= KEPT_BYTES_MAX {
            KEPT_BYTES.set(bytes);
            self.0.borrow_mut().push((coding, level, Rc::clone(form)));
        }
    }
}

impl Drop for KeptForms {
    fn drop(&mut self) {
        let bytes: usize = self.0.borrow().iter().map(|(.., form)| form.len()).sum();
        KEPT_BYTES.set(KEPT_BYTES.get() - bytes);
    }
}
