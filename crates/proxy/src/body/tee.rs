//! Copies a request's body in transit, up to a limit: for a receiver of the complete body, and for the next attempt.

use std::rc::Rc;

use tokio::sync::oneshot;

use crate::body::kept::KeptBody;

pub(crate) enum Copied {
    Whole(Rc<KeptBody>),
    /// The body exceeds the limit.
    TooLarge,
}

#[derive(Default)]
pub(crate) struct Tee {
    awaited: Option<Awaited>,
    kept: Option<TeeContent>,
}

/// A copy for a receiver. If the copy is dropped before its end, the receiver gets an error.
struct Awaited {
    body: Vec<u8>,
    bytes_max: usize,
    /// Whether the copy is sent in chunks.
    is_chunked: bool,
    copied: oneshot::Sender<Copied>,
}

/// The body so far, for the next attempt.
struct TeeContent {
    body: Vec<u8>,
    bytes_max: usize,
}

impl Tee {
    /// Copies the complete body, up to `bytes_max`. `is_chunked`: the copy is sent in chunks.
    pub(crate) fn new(bytes_max: usize, is_chunked: bool) -> (Box<Self>, oneshot::Receiver<Copied>) {
        let (copied, receiver) = oneshot::channel();
        let awaited = Awaited { body: Vec::new(), bytes_max, is_chunked, copied };
        (Box::new(Self { awaited: Some(awaited), kept: None }), receiver)
    }

    /// Also keeps the body so far, up to `bytes_max`, for the next attempt.
    pub(crate) fn keep(&mut self, bytes_max: usize) {
        self.kept = Some(TeeContent { body: Vec::new(), bytes_max });
    }

    /// Sends a body that is already kept, without a copy.
    pub(crate) fn share(self, body: &Rc<KeptBody>) {
        let Some(Awaited { bytes_max, copied, .. }) = self.awaited else { return };
        let fits = body.bytes <= bytes_max as u64;
        // The receiver may be gone.
        let _ = copied.send(if fits { Copied::Whole(Rc::clone(body)) } else { Copied::TooLarge });
    }

    /// All bytes so far, if they are kept.
    pub(crate) fn kept(&self) -> Option<&[u8]> {
        self.kept.as_ref().map(|kept| kept.body.as_slice())
    }

    /// Stops keeping the body. Returns the tee if a receiver still waits for its copy.
    pub(crate) fn forget(mut self: Box<Self>) -> Option<Box<Self>> {
        self.kept = None;
        self.awaited.is_some().then_some(self)
    }

    /// Copies the next bytes of the body. Returns the tee if it is still needed.
    pub(crate) fn take(mut self: Box<Self>, bytes: &[u8], is_end: bool) -> Option<Box<Self>> {
        self.awaited = self.awaited.take().and_then(|awaited| awaited.take(bytes, is_end));
        // Beyond the limit nothing is kept any more: a retry with a partial copy would send a truncated body.
        if let Some(mut kept) = self.kept.take()
            && kept.body.len() + bytes.len() <= kept.bytes_max
        {
            kept.body.extend_from_slice(bytes);
            self.kept = Some(kept);
        }
        (self.awaited.is_some() || self.kept.is_some()).then_some(self)
    }
}

impl Awaited {
    /// Copies the next bytes. Returns `None` once the copy is complete or has become too large.
    fn take(mut self, bytes: &[u8], is_end: bool) -> Option<Self> {
        if self.body.len() + bytes.len() > self.bytes_max {
            // The receiver may be gone.
            let _ = self.copied.send(Copied::TooLarge);
            return None;
        }
        self.body.extend_from_slice(bytes);
        if !is_end {
            return Some(self);
        }
        let _ = self.copied.send(Copied::Whole(Rc::new(KeptBody::in_memory(self.body, self.is_chunked))));
        None
    }
}
