//! Tunnels: bytes both ways between a client and a server, each way with its own end. For upgraded connections and for
//! layer 4.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use http1::Framing;

use crate::body::arrivals::Arrivals;
use crate::body::ends::{End, Ends};
use crate::body::pump::{Pump, Stop};
use crate::context::failure::Failure;
use crate::shaping::{Direction, Pace, Place};
use transport::buffer::Buffer;
use transport::deadline::Ticks;
use transport::endpoint::Endpoint;

/// One direction of a tunnel: its pump, and the bytes that have already arrived.
pub(crate) struct Flow<'a> {
    pub(crate) body: &'a mut Pump,
    pub(crate) buffer: &'a mut Buffer,
}

/// Moves bytes until both ways have ended, or one has failed, which is an error. If nothing moves either way for
/// `limit`, that is an error, too. `arrivals` notes what comes from the server.
pub(crate) async fn run(
    place: Place<'_>,
    server: &Endpoint,
    limit: Ticks,
    arrivals: Option<&Arrivals<'_>>,
    [upward, downward]: [Flow<'_>; 2],
) -> Result<(), Failure> {
    let Place { worker, client, .. } = place;
    upward.body.begin(Framing::UntilClose, false, None);
    downward.body.begin(Framing::UntilClose, false, None);
    let activity = Cell::new(worker.deadlines.now());
    let upward_deadline = worker.deadlines.deadline();
    let paces = [Pace::new(Direction::Up, worker), Pace::new(Direction::Down, worker)];
    let ends = |source, sink, deadline, pace, arrivals| Ends {
        worker,
        minimum_rate: None,
        source,
        sink,
        deadline,
        source_limit: limit,
        sink_limit: limit,
        paced: None,
        closes_sink: false,
        pace,
        place,
        activity: Some(&activity),
        arrivals,
        is_tunnel: true,
    };
    let upward = async {
        let ends = ends(&client.socket, server, &upward_deadline, &paces[0], None);
        upward.body.run(&ends, upward.buffer).await.map_err(|stop| failure(&stop, Party::Client))?;
        // Half-close: the other direction goes on.
        server.shutdown_write().map_err(|_| Failure::UpstreamReset)
    };
    let downward = async {
        let ends = ends(server, &client.socket, &client.deadline, &paces[1], arrivals);
        downward.body.run(&ends, downward.buffer).await.map_err(|stop| failure(&stop, Party::Server))?;
        client.socket.shutdown_write().map_err(|_| Failure::ClientGone)
    };
    both(upward, downward).await
}

/// Who is at the beginning of a way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Party {
    Client,
    Server,
}

/// Why the way from `source` stopped.
fn failure(stop: &Stop, source: Party) -> Failure {
    match (stop, source) {
        // Neither way has moved: nobody is late.
        (Stop::Source(End::Stalled | End::TooSlow), _) => Failure::TunnelIdle,
        (Stop::Sink(End::Stalled | End::TooSlow), Party::Server) => Failure::ClientStalled,
        (Stop::Sink(End::Stalled | End::TooSlow), Party::Client) => Failure::UpstreamStalled,
        (Stop::Sink(End::Gone), Party::Server) | (Stop::Source(End::Gone), Party::Client) => {
            Failure::ClientGone
        }
        _ => Failure::UpstreamReset,
    }
}

/// Runs both directions until both have ended, or one has failed.
async fn both<E>(
    upward: impl Future<Output = Result<(), E>>,
    downward: impl Future<Output = Result<(), E>>,
) -> Result<(), E> {
    let (mut upward, mut downward) = (pin!(upward), pin!(downward));
    let mut left = [true, true];
    poll_fn(|context| {
        if left[0]
            && let Poll::Ready(outcome) = upward.as_mut().poll(context)
        {
            outcome?;
            left[0] = false;
        }
        if left[1]
            && let Poll::Ready(outcome) = downward.as_mut().poll(context)
        {
            outcome?;
            left[1] = false;
        }
        if left == [false, false] { Poll::Ready(Ok(())) } else { Poll::Pending }
    })
    .await
}
