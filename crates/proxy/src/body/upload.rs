//! The state of a request body's upload.

use std::cell::Cell;
use std::time::Instant;

use crate::shaping::Pace;
use transport::deadline::Deadline;

/// The upload of a request's body, while the response may already arrive.
pub(crate) struct Upload {
    pub(crate) state: Cell<UploadState>,
    /// `None` if the whole body left with the head.
    pub(crate) rest: Option<Box<UploadRest>>,
}

/// State of an upload that continues after the head.
pub(crate) struct UploadRest {
    /// Separate from the deadline of the response.
    pub(crate) deadline: Deadline,
    pub(crate) pace: Pace,
    /// The tick at which either direction last moved.
    pub(crate) activity: Cell<u32>,
    /// When the body was sent completely, if before the response.
    pub(crate) ended_at: Cell<Option<Instant>>,
    /// Whether the body was received completely before, so that the client sends no more.
    is_kept: bool,
}

/// How long an upload continues beside another step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Until {
    /// Until the final head. If the client stops sending while its server waits, the exchange fails.
    Head,
    /// Until the end of the response. RFC 9110 §10.1.1: a client that has the final status need not send its body, and
    /// may pause while it reads the response. Neither cuts the response.
    End,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UploadState {
    /// The client may wait for 100 (Continue, RFC 9110 §10.1.1), and no byte of the body has arrived.
    Held,
    Under,
    Done,
    /// The server accepts no more of the body; its response may still come.
    Refused,
}

impl UploadRest {
    fn new(deadline: Deadline, pace: Pace, is_kept: bool) -> Self {
        Self { deadline, pace, activity: Cell::new(0), ended_at: Cell::new(None), is_kept }
    }
}

impl Upload {
    pub(crate) fn done() -> Self {
        Self { state: Cell::new(UploadState::Done), rest: None }
    }

    /// An upload whose rest is neither read nor sent.
    pub(crate) fn refused() -> Self {
        Self { state: Cell::new(UploadState::Refused), rest: None }
    }

    /// An upload with bytes to send. `is_held`: the client may wait for 100 (Continue).
    pub(crate) fn going_on(deadline: Deadline, pace: Pace, is_held: bool) -> Self {
        let state = if is_held { UploadState::Held } else { UploadState::Under };
        Self { state: Cell::new(state), rest: Some(Box::new(UploadRest::new(deadline, pace, false))) }
    }

    pub(crate) fn of_kept(deadline: Deadline, pace: Pace) -> Self {
        let rest = UploadRest::new(deadline, pace, true);
        Self { state: Cell::new(UploadState::Under), rest: Some(Box::new(rest)) }
    }

    /// Whether the client sends no more of the body, so that the next request follows.
    pub(crate) fn has_left_client(&self) -> bool {
        // A buffered body has left its client before a server was chosen, however much of it the server reads.
        self.is_done() || self.rest.as_ref().is_some_and(|rest| rest.is_kept)
    }

    /// The tick at which either direction last moved; `None` if the body left with its head.
    pub(crate) fn activity(&self) -> Option<&Cell<u32>> {
        self.rest.as_ref().map(|rest| &rest.activity)
    }

    pub(crate) fn is_done(&self) -> bool {
        self.state.get() == UploadState::Done
    }

    /// The time since when only the server's response is awaited, in an attempt that began at `begun`: the time for the
    /// body is the client's. `None` while part of the body is unsent.
    pub(crate) fn waits_for_server_since(&self, begun: Instant) -> Option<Instant> {
        match &self.rest {
            None => Some(begun),
            // The body may have ended in an earlier attempt. Then the wait began with this attempt.
            Some(rest) => rest.ended_at.get().map(|ended_at| ended_at.max(begun)),
        }
    }

    pub(crate) fn is_under_way(&self) -> bool {
        self.state.get() == UploadState::Under
    }

    /// Whether more of the body may come.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.state.get(), UploadState::Held | UploadState::Under)
    }

    /// Starts the upload: the client sends its body, or is asked to.
    pub(crate) fn begin(&self) {
        if self.state.get() == UploadState::Held {
            self.state.set(UploadState::Under);
        }
    }
}
