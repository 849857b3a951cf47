//! Keeps rare code out of the request path (boxed cold futures), and polls a step once without waiting.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// Boxes a rare, large future. Its state then takes no memory in every exchange, and its code is not inlined into the
/// path of every request.
#[cold]
#[inline(never)]
pub fn cold<'a, Output, Rare: Future<Output = Output> + 'a>(
    begin: impl FnOnce() -> Rare,
) -> Pin<Box<dyn Future<Output = Output> + 'a>> {
    Box::pin(begin())
}

/// Polls a step once, without waiting. After `None`, the caller polls the step again and waits.
#[inline(always)]
pub fn poll_once<T>(step: impl FnOnce(&mut Context<'_>) -> Poll<T>) -> Option<T> {
    match step(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => Some(outcome),
        Poll::Pending => None,
    }
}
