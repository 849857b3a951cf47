//! Think time: pauses of connections between a response and the next request, in a closed loop.

use std::cell::RefCell;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use tokio::time::Sleep;

use crate::plan::ThinkTime;
use crate::random::Random;

/// Seed of the pauses, which are the same in every run.
const SEED: u64 = 1;

/// The pauses of one thread's connections.
#[derive(Debug)]
pub(crate) struct Thinking {
    time: ThinkTime,
    random: RefCell<Random>,
    pauses: Vec<RefCell<Pause>>,
}

#[derive(Debug)]
enum Pause {
    /// The connection has sent nothing yet.
    Unbegun,
    /// The connection has sent its last request.
    Awake,
    Thinking(Pin<Box<Sleep>>),
}

impl Thinking {
    pub(crate) fn new(time: ThinkTime, connections: usize, thread: usize) -> Self {
        Self {
            time,
            random: RefCell::new(Random::of_thread(SEED, thread)),
            pauses: (0..connections).map(|_| RefCell::new(Pause::Unbegun)).collect(),
        }
    }

    /// End of the pause of a connection that has been free since `free`.
    pub(crate) fn poll(&self, connection: usize, free: Instant, context: &mut Context<'_>) -> Poll<Instant> {
        let mut pause = self.pauses[connection].borrow_mut();
        let sleep = match &mut *pause {
            Pause::Thinking(sleep) => sleep,
            // The first pause is shortened at random, so that connections do not move in step.
            Pause::Unbegun => {
                let part = self.random.borrow_mut().between(0.0, 1.0);
                self.begin(&mut pause, free, part)
            }
            Pause::Awake => self.begin(&mut pause, free, 1.0),
        };
        ready!(sleep.as_mut().poll(context));
        *pause = Pause::Awake;
        Poll::Ready(Instant::now())
    }

    fn begin<'p>(&self, pause: &'p mut Pause, free: Instant, part: f64) -> &'p mut Pin<Box<Sleep>> {
        let ThinkTime { least_seconds, most_seconds } = self.time;
        let seconds = part * self.random.borrow_mut().between(least_seconds, most_seconds);
        let sleep = Box::pin(tokio::time::sleep_until((free + Duration::from_secs_f64(seconds)).into()));
        *pause = Pause::Thinking(sleep);
        match pause {
            Pause::Thinking(sleep) => sleep,
            Pause::Unbegun | Pause::Awake => unreachable!("it has just begun"),
        }
    }
}
