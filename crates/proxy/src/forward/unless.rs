//! Waits that end early: when the client cancels its request, or when the time of the request is over.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use crate::context::client::FrontConnection;
use crate::failure::Failure;

/// Error: the client has cancelled its request.
pub(crate) struct RequestGivenUp;

/// Runs a wait, unless the client cancels its request (HTTP/2 and HTTP/3). Takes the future by reference, because a
/// moved future occupies its memory twice.
pub(crate) async fn unless_gone<T>(
    client: &FrontConnection,
    mut wait: Pin<&mut impl Future<Output = T>>,
) -> Result<T, RequestGivenUp> {
    poll_fn(|context| match wait.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Ok(output)),
        Poll::Pending => client.socket.poll_gone(context).map(|()| Err(RequestGivenUp)),
    })
    .await
}

/// Waits for the server, until the time of the request is over.
pub(super) async fn unless_overdue<T>(
    client: &FrontConnection,
    mut wait: Pin<&mut impl Future<Output = Result<T, Failure>>>,
) -> Result<T, Failure> {
    poll_fn(|context| match wait.as_mut().poll(context) {
        Poll::Pending if client.is_overdue.get() => Poll::Ready(Err(Failure::RequestTimeout)),
        polled => polled,
    })
    .await
}
