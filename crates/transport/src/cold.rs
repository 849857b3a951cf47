//! What keeps the way of a request short: what is rare lies aside of it, and what need not wait is done at once.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// For what is rare, and large: in a box it is no part of every lane, and neither its code nor its locals are of what
/// every request goes through.
#[cold]
#[inline(never)]
pub fn aside<'a, Output, Rare: Future<Output = Output> + 'a>(
    begin: impl FnOnce() -> Rare,
) -> Pin<Box<dyn Future<Output = Output> + 'a>> {
    Box::pin(begin())
}

/// What a step comes to that does not have to wait. Whoever gets `None` has to poll the step and wait.
#[inline(always)]
pub fn at_once<T>(step: impl FnOnce(&mut Context<'_>) -> Poll<T>) -> Option<T> {
    match step(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => Some(outcome),
        Poll::Pending => None,
    }
}
