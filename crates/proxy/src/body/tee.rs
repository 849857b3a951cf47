//! Copies a request's body as it passes, up to a bound: for whoever waits for the whole of it, and for the next attempt.

use std::rc::Rc;

use tokio::sync::oneshot;

use crate::body::kept::KeptBody;

/// A copy of a body.
pub(crate) enum Copied {
    /// The body.
    Whole(Rc<KeptBody>),
    /// It is larger than the bound.
    TooLarge,
}

/// What copies a body.
#[derive(Default)]
pub(crate) struct Tee {
    awaited: Option<Awaited>,
    kept: Option<Kept>,
}

/// A copy that somebody waits for. If it is dropped before the end, the receiver gets an error.
struct Awaited {
    body: Vec<u8>,
    bytes_max: usize,
    /// Whether the copy is sent in chunks, as its body came.
    is_chunked: bool,
    copied: oneshot::Sender<Copied>,
}

/// What has passed so far.
struct Kept {
    body: Vec<u8>,
    bytes_max: usize,
}

impl Tee {
    /// Copies the whole of the body, if it is no longer than that. `is_chunked` says whether the copy is sent in chunks.
    pub(crate) fn new(bytes_max: usize, is_chunked: bool) -> (Box<Self>, oneshot::Receiver<Copied>) {
        let (copied, receiver) = oneshot::channel();
        let awaited = Awaited { body: Vec::new(), bytes_max, is_chunked, copied };
        (Box::new(Self { awaited: Some(awaited), kept: None }), receiver)
    }

    /// Also keeps what passes, as long as that is no longer than that.
    pub(crate) fn keep(&mut self, bytes_max: usize) {
        self.kept = Some(Kept { body: Vec::new(), bytes_max });
    }

    /// Shares a body that is kept already, which needs no copy.
    pub(crate) fn share(self, body: &Rc<KeptBody>) {
        let Some(Awaited { bytes_max, copied, .. }) = self.awaited else { return };
        let fits = body.bytes <= bytes_max as u64;
        // Who waited for it may have gone.
        let _ = copied.send(if fits { Copied::Whole(Rc::clone(body)) } else { Copied::TooLarge });
    }

    /// All that has passed, if it is kept.
    pub(crate) fn kept(&self) -> Option<&[u8]> {
        self.kept.as_ref().map(|kept| kept.body.as_slice())
    }

    /// Keeps no more. Returns itself if somebody waits for the whole.
    pub(crate) fn forget(mut self: Box<Self>) -> Option<Box<Self>> {
        self.kept = None;
        self.awaited.is_some().then_some(self)
    }

    /// Copies the next bytes of the body. Returns itself if it is of any more use.
    pub(crate) fn take(mut self: Box<Self>, bytes: &[u8], is_end: bool) -> Option<Box<Self>> {
        self.awaited = self.awaited.take().and_then(|awaited| awaited.take(bytes, is_end));
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
    fn take(mut self, bytes: &[u8], is_end: bool) -> Option<Self> {
        if self.body.len() + bytes.len() > self.bytes_max {
            // Who waited for it may have gone.
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
