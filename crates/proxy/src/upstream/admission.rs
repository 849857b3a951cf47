//! Admission of requests, for load shedding.

use std::cell::RefCell;

use balance::{Shed, Time, Work};

/// An admitted request, until its outcome is known.
pub(crate) struct Admission<'a>(pub(super) Option<&'a RefCell<Shed>>);

impl Admission<'_> {
    pub(crate) fn end(mut self, work: Work, now: Time) {
        if let Some(shed) = self.0.take() {
            shed.borrow_mut().end(work, now);
        }
    }
}

impl Drop for Admission<'_> {
    fn drop(&mut self) {
        if let Some(shed) = self.0.take() {
            shed.borrow_mut().end(Work::Other, Time::START);
        }
    }
}
