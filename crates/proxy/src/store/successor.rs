//! Passes purges on to the next process, during an upgrade.
//!
//! The old process still answers the last requests of its clients, some of which invalidate responses, while the new
//! one answers new clients. Each purge is a message, and so is its confirmation.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ::cache::{Force, PurgeTarget, Space};
use rustix::io::retry_on_intr;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use tokio::sync::oneshot;

use super::Cache;
use telemetry::message;

/// Longer names are replaced by a purge of everything.
pub(crate) const MESSAGE_BYTES_MAX: usize = 64 << 10;

pub(crate) const DONE: &[u8] = b"purged";

/// The next process, once there is one.
#[derive(Debug, Default)]
pub(crate) struct Successor {
    orders: Mutex<Option<Sender<SuccessorPurge>>>,
    /// Whether it already receives purges: then each is confirmed there before the client gets an answer.
    listens: AtomicBool,
}

/// A purge for the next process.
#[derive(Debug)]
struct SuccessorPurge {
    named: Vec<PurgeTarget>,
    force: Force,
    done: oneshot::Sender<()>,
}

/// The purges for the next process, from its start on. If dropped, it gets none.
pub struct Orders {
    successor: Arc<Successor>,
    orders: Receiver<SuccessorPurge>,
}

impl Cache {
    /// Starts to collect purges for the next process, which may store responses, too.
    pub fn hand_over_purges(&self) -> Orders {
        let (sender, orders) = channel();
        *self.successor.orders() = Some(sender);
        Orders { successor: Arc::clone(&self.successor), orders }
    }

    /// Applies a purge from the previous process or another instance. Blocks while the next process does so, too.
    pub fn obey(&self, spaces: &[Space], message: &[u8]) {
        // An unreadable message may have meant everything.
        let (named, force) = read(message).unwrap_or((PurgeTarget::All, Force::Hard));
        let named = [named];
        // If the rules are full, everything is purged rather than too little.
        let is_done = self.purge(spaces, &named, force).is_ok()
            || self.purge(spaces, &[PurgeTarget::All], force).is_ok();
        if !is_done {
            message::warn("too many purges: some purged responses may be in the cache");
        }
        let [named] = named;
        if let Some(known) = self.successor.tell(vec![named], force) {
            // The sender is dropped at the latest when that process ends.
            let _ = known.blocking_recv();
        }
    }
}

impl Successor {
    /// Whether there is a next process.
    pub(crate) fn is_there(&self) -> bool {
        self.orders().is_some()
    }

    /// Passes a purge on. If the next process already receives purges, the receiver reports when it is done.
    pub(crate) fn tell(&self, named: Vec<PurgeTarget>, force: Force) -> Option<oneshot::Receiver<()>> {
        let mut orders = self.orders();
        let (done, known) = oneshot::channel();
        if orders.as_ref()?.send(SuccessorPurge { named, force, done }).is_err() {
            // The next process never came up, or has ended.
            *orders = None;
            return None;
        }
        // Pairs with `begin`: the thread that confirms purges runs by then.
        self.listens.load(Ordering::Acquire).then_some(known)
    }

    fn orders(&self) -> MutexGuard<'_, Option<Sender<SuccessorPurge>>> {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Orders {
    /// Starts to send purges on this channel: the next process serves.
    pub fn begin(self, channel: OwnedFd) {
        let Self { successor, orders } = self;
        let work = move || {
            for SuccessorPurge { named, force, done } in orders {
                if let Err(error) = named.iter().try_for_each(|named| tell(&channel, named, force)) {
                    return message::warn(&format!("purges are not passed on to the next process: {error}"));
                }
                // The waiting request may be gone.
                let _ = done.send(());
            }
        };
        if std::thread::Builder::new().name("successor".to_owned()).spawn(work).is_ok() {
            successor.listens.store(true, Ordering::Release);
        }
    }
}

fn tell(channel: &OwnedFd, named: &PurgeTarget, force: Force) -> io::Result<()> {
    let message = written(named, force);
    // A signal must not interrupt the message.
    retry_on_intr(|| send(channel, &message, SendFlags::NOSIGNAL))?;
    let mut word = [0; DONE.len()];
    let (count, _) = retry_on_intr(|| recv(channel, &mut word[..], RecvFlags::empty()))?;
    if count == 0 { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
}

const SOFT: u8 = 1;

pub(crate) fn written(named: &PurgeTarget, force: Force) -> Vec<u8> {
    let begin = |force| vec![if force == Force::Soft { SOFT } else { 0 }];
    let mut message = begin(force);
    named.write(&mut message);
    if message.len() > MESSAGE_BYTES_MAX {
        message = begin(force);
        PurgeTarget::All.write(&mut message);
    }
    message
}

fn read(message: &[u8]) -> Option<(PurgeTarget, Force)> {
    let (&first, named) = message.split_first()?;
    let force = match first {
        0 => Force::Hard,
        SOFT => Force::Soft,
        _ => return None,
    };
    Some((PurgeTarget::read(named)?, force))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_read_as_they_were_written() {
        for force in [Force::Hard, Force::Soft] {
            let named = PurgeTarget::Tag(b"news"[..].into());
            assert_eq!(read(&written(&named, force)), Some((named, force)));
            let long = PurgeTarget::Tag(vec![b'x'; MESSAGE_BYTES_MAX].into());
            assert_eq!(read(&written(&long, force)), Some((PurgeTarget::All, force)));
        }
        assert_eq!((read(b""), read(b"\x07"), read(b"\0\x63")), (None, None, None));
    }
}
