//! Copies a request's body as it passes, up to a bound, for whoever waits for the whole of it.

use tokio::sync::oneshot;

/// A copy of a body.
#[derive(Debug)]
pub(crate) enum Copied {
    /// The body, decoded.
    Whole(Vec<u8>),
    /// It is larger than the bound.
    TooLarge,
}

/// What copies a body. If it is dropped before the end, the receiver gets an error.
pub(crate) struct Tee {
    body: Vec<u8>,
    bytes_max: usize,
    copied: oneshot::Sender<Copied>,
}

impl Tee {
    pub(crate) fn new(bytes_max: usize) -> (Box<Self>, oneshot::Receiver<Copied>) {
        let (copied, receiver) = oneshot::channel();
        (Box::new(Self { body: Vec::new(), bytes_max, copied }), receiver)
    }

    /// Copies the next bytes of the body. Returns itself if more may come.
    pub(crate) fn take(mut self: Box<Self>, bytes: &[u8], is_end: bool) -> Option<Box<Self>> {
        if self.body.len() + bytes.len() > self.bytes_max {
            // Who waited for it may have gone.
            let _ = self.copied.send(Copied::TooLarge);
            return None;
        }
        self.body.extend_from_slice(bytes);
        if !is_end {
            return Some(self);
        }
        let Self { body, copied, .. } = *self;
        let _ = copied.send(Copied::Whole(body));
        None
    }
}
