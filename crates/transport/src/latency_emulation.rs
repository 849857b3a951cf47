//! Latency emulation: delays the bytes of a connection in both directions, in order, without limiting the rate.
//!
//! A separate task reads arriving bytes, notes the time, and forwards bytes that are due. It continues after the
//! connection is dropped, until the last bytes have left.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use shape::{DelayLine, LinkLatency};

use crate::alarm::{Alarm, Alarms};
use crate::connection::Connection;
use crate::delay::Delayed;
use crate::quic_path::Passage;
use crate::tcp::Follows;

/// Bytes in transit per direction of a connection: 1 Gbit/s for an eighth of a second.
const LINE_BYTES_MAX: usize = 16 << 20;
/// Bytes that are read at once.
const READ_MAX: usize = 16 * 1024;
/// How long a peer may accept no bytes after the connection was dropped.
const FLUSH_MAX_NS: u64 = 30_000_000_000;

/// A configured network link with emulated latency. All workers share it.
pub struct EmulatedLink {
    settings: config::Link,
    /// Delay of each new connection.
    connect_delay: Option<Arc<Delayed>>,
    /// Number of datagrams so far; the index into a recorded trace.
    datagrams: AtomicU64,
    /// The current delay of bytes. After a reload, the replacing link shares it.
    pub latency: Arc<InForce>,
}

/// The delay in force, for existing connections too. `None` means no delay.
type InForce = ArcSwapOption<LinkLatency>;

impl EmulatedLink {
    /// Creates the link of a new plan. It shares the delay with the link `before`, so that existing connections change
    /// too. `None` if neither link delays anything.
    pub fn new(settings: &config::Link, before: Option<&Arc<Self>>) -> Option<Arc<Self>> {
        // Without a link, a connection pays one branch.
        if before.is_none() && *settings == config::Link::default() {
            return None;
        }
        let fresh = || Arc::new(InForce::new(settings.lateness().map(Arc::new)));
        // Shared before it is enforced: a plan that never takes effect must change nothing.
        let latency = before.map_or_else(fresh, |before| Arc::clone(&before.latency));
        let connects = before.and_then(|before| before.connect_delay.as_ref());
        let connect_delay = Delayed::new(settings.connect_delay.as_ref(), connects);
        Some(Arc::new(Self {
            settings: settings.clone(),
            connect_delay,
            datagrams: AtomicU64::new(0),
            latency,
        }))
    }

    /// Applies the configured delay. Called when the link's plan takes effect.
    pub fn enforce(&self) {
        self.latency.store(self.settings.lateness().map(Arc::new));
    }

    /// Whether the link delays bytes.
    pub fn is_delayed(&self) -> bool {
        self.latency.load().is_some()
    }

    /// Whether the link affects datagrams.
    pub fn is_felt(&self) -> bool {
        self.connect_delay.is_some() || self.is_delayed()
    }

    /// Decides about a datagram. `begins` marks the first one of a connection.
    pub fn passage(&self, bytes: usize, begins: bool) -> Passage {
        let connects = self.connect_delay.as_ref().filter(|_| begins);
        let alone = connects.map_or(Duration::ZERO, |delay| Duration::from_nanos(delay.draw_ns()));
        let Some(latency) = &*self.latency.load() else { return Passage { alone, ..Passage::default() } };
        // Relaxed: each datagram needs another place in a recorded trace, and no order with other memory.
        let index = self.datagrams.fetch_add(1, Ordering::Relaxed);
        let (is_lost, delay_ns) = latency.draw_datagram(index, bytes, [fastrand::u64(..), fastrand::u64(..)]);
        Passage { is_lost, is_twice: false, delay: Duration::from_nanos(delay_ns), alone }
    }

    /// Waits for the configured delay of a new connection.
    pub async fn connect(&self, alarms: &Rc<Alarms>) {
        if let Some(delay) = &self.connect_delay {
            alarms.wait(delay).await;
        }
    }

    /// Wraps the connection to a server, if the link delays bytes.
    pub fn over(&self, connection: Connection, alarms: &Rc<Alarms>) -> Connection {
        if self.is_delayed() {
            // Chosen once per connection: one that began without a delay stays without.
            DelayedConnection::over(connection, &self.latency, alarms, || None)
        } else {
            connection
        }
    }
}

pub struct DelayedConnection {
    shared: Rc<LinkShared>,
    on_release: Option<OnRelease>,
}

struct LinkShared {
    connection: Undelayed,
    latency: Arc<InForce>,
    alarms: Rc<Alarms>,
    /// From the peer.
    inward: RefCell<Half>,
    /// To the peer.
    outward: RefCell<Half>,
    driver: Cell<Option<Waker>>,
    /// When the connection was dropped.
    left_ns: Cell<Option<u64>>,
    resets: Cell<bool>,
    hold: Cell<Option<Hold>>,
}

/// A guard that lives until the last delayed bytes have left. For example, it keeps the worker from ending.
pub type Hold = Box<dyn Any>;
/// Creates the guard when the owner of the connection drops it.
pub type OnRelease = Box<dyn FnOnce() -> Hold>;

/// Bytes in transit in a direction.
struct Half {
    line: DelayLine,
    /// Number of pieces so far; the index into a recorded trace.
    pieces: u64,
    /// The error that broke it, if any.
    broken: Option<ErrorKind>,
    /// Whether the end was sent to the peer.
    has_told_end: bool,
    /// The task that waits at our end.
    user: Option<Waker>,
}

impl Half {
    fn new() -> Self {
        Self {
            line: DelayLine::new(LINE_BYTES_MAX),
            pieces: 0,
            broken: None,
            has_told_end: false,
            user: None,
        }
    }

    fn put(&mut self, bytes: Vec<u8>, latency: &InForce, now_ns: u64) {
        let delay_ns = self.draw_ns(bytes.len(), latency);
        self.line.put(bytes, now_ns, delay_ns);
    }

    fn end(&mut self, latency: &InForce, now_ns: u64) {
        // The end takes as long as a byte, so that it arrives in order.
        let delay_ns = self.draw_ns(1, latency);
        self.line.end(now_ns, delay_ns);
    }

    /// The delay of the next piece.
    fn draw_ns(&mut self, bytes: usize, latency: &InForce) -> u64 {
        let random = [fastrand::u64(..), fastrand::u64(..)];
        let index = self.pieces;
        self.pieces += 1;
        latency.load().as_ref().map_or(0, |latency| latency.draw_ns(index, bytes, random))
    }

    fn wake(&mut self) {
        if let Some(user) = self.user.take() {
            user.wake();
        }
    }

    fn wait(&mut self, context: &Context<'_>) {
        match &mut self.user {
            Some(user) => user.clone_from(context.waker()),
            none => *none = Some(context.waker().clone()),
        }
    }
}

/// TCP or TLS, never an already delayed connection.
struct Undelayed(Connection);

impl Undelayed {
    fn new(connection: Connection) -> Result<Self, Box<DelayedConnection>> {
        match connection {
            Connection::Tcp(_) | Connection::Tls(_) => Ok(Self(connection)),
            Connection::Delayed(delayed) => Err(delayed),
        }
    }
}

impl DelayedConnection {
    /// Delays the bytes of a connection from now on. An already delayed connection stays unchanged.
    pub fn over(
        connection: Connection,
        latency: &Arc<InForce>,
        alarms: &Rc<Alarms>,
        on_release: impl FnOnce() -> Option<OnRelease>,
    ) -> Connection {
        let connection = match Undelayed::new(connection) {
            Ok(undelayed) => undelayed,
            Err(delayed) => return Connection::Delayed(delayed),
        };
        let shared = Rc::new(LinkShared {
            connection,
            latency: Arc::clone(latency),
            alarms: Rc::clone(alarms),
            inward: RefCell::new(Half::new()),
            outward: RefCell::new(Half::new()),
            driver: Cell::new(None),
            left_ns: Cell::new(None),
            resets: Cell::new(false),
            hold: Cell::new(None),
        });
        let driver =
            LinkDriver { shared: Rc::clone(&shared), arrival: alarms.alarm(), departure: alarms.alarm() };
        // A separate task: bytes have to arrive and leave while the owner does something else.
        tokio::task::spawn_local(driver.run());
        Connection::Delayed(Box::new(Self { shared, on_release: on_release() }))
    }

    /// The underlying connection, without the delay.
    pub fn connection(&self) -> &Connection {
        &self.shared.connection.0
    }

    /// Ready when bytes are due to be read, or the end.
    pub fn poll_readable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let half = &mut *self.shared.inward.borrow_mut();
        let now_ns = self.shared.alarms.now_ns();
        if !half.line.due(now_ns).is_empty() || half.line.is_over(now_ns) {
            return Poll::Ready(Ok(()));
        }
        half.wait(context);
        Poll::Pending
    }

    /// Reads bytes that are due into `buffer`; 0 is the end.
    pub fn poll_read(&self, context: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let half = &mut *self.shared.inward.borrow_mut();
        let now_ns = self.shared.alarms.now_ns();
        let mut count = 0;
        // Pieces on the line are short, and a read should fill the buffer.
        while count < buffer.len() {
            let due = half.line.due(now_ns);
            let len = due.len().min(buffer.len() - count);
            if len == 0 {
                break;
            }
            buffer[count..count + len].copy_from_slice(&due[..len]);
            half.line.sent(len);
            count += len;
        }
        if count > 0 {
            // There may be room again.
            self.shared.stir();
            return Poll::Ready(Ok(count));
        }
        if half.line.is_over(now_ns) {
            return Poll::Ready(half.broken.map_or(Ok(0), |broken| Err(broken.into())));
        }
        half.wait(context);
        Poll::Pending
    }

    /// Accepts the start of `bytes`, to be sent after the delay.
    pub fn poll_write(&self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let half = &mut *self.shared.outward.borrow_mut();
        if let Some(broken) = half.broken {
            return Poll::Ready(Err(broken.into()));
        }
        let count = half.line.room().min(bytes.len());
        // A full line is the sender's backpressure.
        if count == 0 {
            half.wait(context);
            return Poll::Pending;
        }
        half.put(bytes[..count].to_vec(), &self.shared.latency, self.shared.alarms.now_ns());
        self.shared.stir();
        Poll::Ready(Ok(count))
    }

    /// Sends the end of the stream behind the bytes that are still delayed.
    pub fn shutdown_write(&self) {
        self.shared.outward.borrow_mut().end(&self.shared.latency, self.shared.alarms.now_ns());
        self.shared.stir();
    }

    /// Whether unread bytes have arrived, due or not.
    pub fn has_unread(&self) -> bool {
        !self.shared.inward.borrow().line.is_empty() || self.shared.connection.0.has_unread()
    }

    /// Whether no bytes have arrived, due or not, as far as the runtime knows.
    pub fn is_quiet(&self) -> bool {
        self.shared.inward.borrow().line.is_empty() && self.shared.connection.0.is_quiet()
    }

    /// Whether no bytes have arrived, due or not, as far as the kernel knows. Costs a system call.
    pub fn is_quiet_still(&self) -> bool {
        self.shared.inward.borrow().line.is_empty() && self.shared.connection.0.is_quiet_still()
    }

    /// Makes the close a reset, which the peer sees behind the bytes that are still delayed.
    pub fn reset_on_drop(&self) {
        // Not at once: delayed bytes leave before the reset.
        self.shared.resets.set(true);
    }
}

impl Drop for DelayedConnection {
    fn drop(&mut self) {
        let now_ns = self.shared.alarms.now_ns();
        self.shared.left_ns.set(Some(now_ns));
        // The worker must not end while bytes are still on the line.
        self.shared.hold.set(self.on_release.take().map(|hold| hold()));
        // The end of the stream is delayed, too.
        self.shared.outward.borrow_mut().end(&self.shared.latency, now_ns);
        self.shared.stir();
    }
}

impl LinkShared {
    fn stir(&self) {
        if let Some(driver) = self.driver.take() {
            driver.wake();
        }
    }
}

/// The task that reads arriving bytes and forwards those that are due.
struct LinkDriver {
    shared: Rc<LinkShared>,
    arrival: Alarm,
    departure: Alarm,
}

impl LinkDriver {
    async fn run(self) {
        poll_fn(|context| self.poll(context)).await;
        if self.shared.resets.get() {
            self.shared.connection.0.reset_on_drop();
        }
    }

    /// Ready when nothing is left to do.
    fn poll(&self, context: &mut Context<'_>) -> Poll<()> {
        self.shared.driver.set(Some(context.waker().clone()));
        let has_left = self.shared.left_ns.get().is_some();
        // Bytes for an owner that is gone would only fill the line.
        if !has_left {
            self.take_in(context);
            self.wake_reader(context);
        }
        let is_over = self.pass_on(context);
        if has_left && is_over { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Reads the bytes that have arrived.
    fn take_in(&self, context: &mut Context<'_>) {
        let LinkShared { connection: Undelayed(connection), latency, alarms, inward, .. } = &*self.shared;
        let half = &mut *inward.borrow_mut();
        let mut scratch = [0; READ_MAX];
        while half.line.room() > 0 {
            let room = READ_MAX.min(half.line.room());
            match connection.poll_read(context, &mut scratch[..room]) {
                Poll::Pending => break,
                Poll::Ready(Ok(count)) if count > 0 => {
                    half.put(scratch[..count].to_vec(), latency, alarms.now_ns());
                }
                Poll::Ready(outcome) => {
                    // The reader sees the error behind the bytes that came before it.
                    half.broken = outcome.err().map(|error| error.kind());
                    half.end(latency, alarms.now_ns());
                }
            }
        }
    }

    /// Wakes the reading task once bytes are due.
    fn wake_reader(&self, context: &mut Context<'_>) {
        let half = &mut *self.shared.inward.borrow_mut();
        let is_due = half.line.due_ns().is_some_and(|due_ns| self.arrival.poll(context, due_ns).is_ready());
        if is_due {
            half.wake();
        }
    }

    /// Writes bytes that are due. Returns whether everything has left.
    fn pass_on(&self, context: &mut Context<'_>) -> bool {
        let LinkShared { connection: Undelayed(connection), alarms, outward, left_ns, .. } = &*self.shared;
        let half = &mut *outward.borrow_mut();
        if half.broken.is_some() || half.has_told_end {
            return true;
        }
        while let Some(due_ns) = half.line.due_ns() {
            if self.departure.poll(context, due_ns).is_pending() {
                return false;
            }
            let now_ns = alarms.now_ns();
            let bytes = half.line.due(now_ns);
            if bytes.is_empty() {
                half.has_told_end = half.line.is_over(now_ns);
                if half.has_told_end {
                    // Fails if the connection is already gone, which does no harm.
                    let _ = connection.shutdown_write();
                }
                return half.has_told_end;
            }
            match connection.poll_write(context, bytes, Follows::Nothing) {
                Poll::Ready(Ok(count)) => {
                    half.line.sent(count);
                    half.wake();
                }
                Poll::Ready(Err(error)) => {
                    half.broken = Some(error.kind());
                    half.wake();
                    return true;
                }
                Poll::Pending => {
                    let give_up_ns =
                        // From the later of both: a long delay must not count as a peer that accepts nothing.
                        left_ns.get().map(|left_ns| left_ns.max(due_ns).saturating_add(FLUSH_MAX_NS));
                    return give_up_ns.is_some_and(|due_ns| self.departure.poll(context, due_ns).is_ready());
                }
            }
        }
        false
    }
}
