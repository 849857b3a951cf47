//! Passes purges on to the next process, during an upgrade.
//!
//! The old process still answers the last requests of its clients, some of which invalidate responses, while the new
//! one answers new clients. Each purge is a message, and so is its confirmation.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ::cache::{Force, Named, Space};
use rustix::io::retry_on_intr;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use tokio::sync::oneshot;

use super::Cache;
use telemetry::message;

use crate::context::exchange::ExchangeContext;
use crate::context::plan::Plan;
use transport::deadline::Ticks;

/// What is longer is purged with all else.
const MESSAGE_BYTES_MAX: usize = 64 << 10;

const DONE: &[u8] = b"purged";

/// A client waits for no longer until the other process knows as well.
const KNOWN_LIMIT: Ticks = Ticks(10);

/// The next process, once there is one.
#[derive(Debug, Default)]
pub(super) struct Successor {
    orders: Mutex<Option<Sender<Order>>>,
    /// It listens already: what is purged is known there before that is answered.
    listens: AtomicBool,
}

/// What it is to purge.
#[derive(Debug)]
struct Order {
    named: Vec<Named>,
    force: Force,
    done: oneshot::Sender<()>,
}

/// The purges for the next process, from its start on. If dropped, it is told none.
pub struct Orders {
    successor: Arc<Successor>,
    orders: Receiver<Order>,
}

impl Cache {
    /// From now on collects purges for the next process, which may store responses, too.
    pub fn hand_over_purges(&self) -> Orders {
        let (sender, orders) = channel();
        *self.successor.orders() = Some(sender);
        Orders { successor: Arc::clone(&self.successor), orders }
    }

    /// Purges what the process before this one has purged, or another instance. Blocks while the next process does so too.
    pub fn obey(&self, spaces: &[Space], message: &[u8]) {
        // Whatever it was, all may have been meant.
        let (named, force) = read(message).unwrap_or((Named::All, Force::Hard));
        let named = [named];
        let is_done =
            self.purge(spaces, &named, force).is_ok() || self.purge(spaces, &[Named::All], force).is_ok();
        if !is_done {
            message::warn("too many purges: some purged responses may be in the cache");
        }
        let [named] = named;
        if let Some(known) = self.successor.tell(vec![named], force) {
            // It is over with that process at the latest.
            let _ = known.blocking_recv();
        }
    }
}

impl Successor {
    /// Whether there is a next process to tell.
    pub(super) fn is_there(&self) -> bool {
        self.orders().is_some()
    }

    /// Passes a purge on. If the next process already listens, the receiver tells when it has done it.
    pub(super) fn tell(&self, named: Vec<Named>, force: Force) -> Option<oneshot::Receiver<()>> {
        let mut orders = self.orders();
        let (done, known) = oneshot::channel();
        if orders.as_ref()?.send(Order { named, force, done }).is_err() {
            // It never came to serve, or is gone.
            *orders = None;
            return None;
        }
        self.listens.load(Ordering::Acquire).then_some(known)
    }

    fn orders(&self) -> MutexGuard<'_, Option<Sender<Order>>> {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits until the next process has done a purge, for a limited time.
pub(crate) async fn known(ctx: &ExchangeContext<'_>, known: oneshot::Receiver<()>) {
    let deadline = ctx.worker.deadlines.deadline();
    // Late or never: what has been done here is answered.
    let _ = deadline.within(KNOWN_LIMIT, known).await;
}

impl Orders {
    /// Starts to send purges on this channel: the next process serves.
    pub fn begin(self, channel: OwnedFd) {
        let Self { successor, orders } = self;
        let work = move || {
            for Order { named, force, done } in orders {
                if let Err(error) = named.iter().try_for_each(|named| tell(&channel, named, force)) {
                    return message::warn(&format!("purges are not passed on to the next process: {error}"));
                }
                // Who asked may be gone.
                let _ = done.send(());
            }
        };
        if std::thread::Builder::new().name("successor".to_owned()).spawn(work).is_ok() {
            successor.listens.store(true, Ordering::Release);
        }
    }
}

fn tell(channel: &OwnedFd, named: &Named, force: Force) -> io::Result<()> {
    let message = written(named, force);
    // Signals to end sooner are meant for others.
    retry_on_intr(|| send(channel, &message, SendFlags::NOSIGNAL))?;
    let mut word = [0; DONE.len()];
    let (count, _) = retry_on_intr(|| recv(channel, &mut word[..], RecvFlags::empty()))?;
    if count == 0 { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
}

/// Applies the purges of the previous process, until it ends.
///
/// `plan` returns the plan in force, or `None` once the proxy has ended.
pub fn listen(channel: OwnedFd, plan: impl Fn() -> Option<Arc<Plan>> + Send + 'static) {
    // It may be long until something is purged.
    if set_socket_timeout(&channel, Timeout::Recv, None).is_err() {
        return;
    }
    let hear = move || {
        let mut buffer = vec![0; MESSAGE_BYTES_MAX];
        while let Ok((count @ 1.., _)) = retry_on_intr(|| recv(&channel, &mut buffer[..], RecvFlags::empty()))
        {
            let Some(plan) = plan() else { return };
            if let Some(cache) = &plan.cache {
                cache.obey(&plan.spaces, &buffer[..count]);
            }
            if send(&channel, DONE, SendFlags::NOSIGNAL).is_err() {
                return;
            }
        }
    };
    // Where there can be none, the other one finds the channel closed.
    let _ = std::thread::Builder::new().name("predecessor".to_owned()).spawn(hear);
}

const SOFT: u8 = 1;

pub(super) fn written(named: &Named, force: Force) -> Vec<u8> {
    let begin = |force| vec![if force == Force::Soft { SOFT } else { 0 }];
    let mut message = begin(force);
    named.write(&mut message);
    if message.len() > MESSAGE_BYTES_MAX {
        message = begin(force);
        Named::All.write(&mut message);
    }
    message
}

fn read(message: &[u8]) -> Option<(Named, Force)> {
    let (&first, named) = message.split_first()?;
    let force = match first {
        0 => Force::Hard,
        SOFT => Force::Soft,
        _ => return None,
    };
    Some((Named::read(named)?, force))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_read_as_they_were_written() {
        for force in [Force::Hard, Force::Soft] {
            let named = Named::Tag(b"news"[..].into());
            assert_eq!(read(&written(&named, force)), Some((named, force)));
            let long = Named::Tag(vec![b'x'; MESSAGE_BYTES_MAX].into());
            assert_eq!(read(&written(&long, force)), Some((Named::All, force)));
        }
        assert_eq!((read(b""), read(b"\x07"), read(b"\0\x63")), (None, None, None));
    }
}
