//! Classifies failed requests by what they say about the load of servers, for the adaptive limit.

use balance::Work;

use crate::failure::Failure;

/// Returns the failure of a request for which no server could be asked, and its work. A failure of a server that was
/// asked before tells more, unless the request itself is at fault.
#[cold]
pub(super) fn without_server(failure: Failure, last: Option<(usize, Failure)>) -> (Failure, Work) {
    let of_server = last.filter(|_| !failure.is_of_request()).map(|(_, failure)| failure);
    let failure = of_server.unwrap_or(failure);
    (failure, work_of(failure))
}

/// Returns the failure of the last attempt, and its work. A time-out while the client sends says nothing about servers.
#[cold]
pub(super) fn given_up(failure: Failure, waits_for_server: bool) -> (Failure, Work) {
    let is_client = failure == Failure::RequestTimeout && !waits_for_server;
    (failure, if is_client { Work::Other } else { work_of(failure) })
}

/// Returns what a failure says about the response time of servers, for the adaptive limit.
pub(super) fn work_of(failure: Failure) -> Work {
    use Failure::{QueueTimeout, RequestTimeout, UpstreamTimeout};
    let is_overrun = matches!(failure, UpstreamTimeout | QueueTimeout | RequestTimeout);
    if is_overrun { Work::Overrun } else { Work::Other }
}
