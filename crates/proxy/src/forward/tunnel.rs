//! Tunnels between a client and a server, for upgraded connections and layer 4. Each direction ends separately.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use http1::BodyFraming;

use crate::body::arrivals::StreamPieces;
use crate::body::ends::{Ends, PumpEnd};
use crate::body::pump::{Pump, Stop};
use crate::context::client::FrontConnection;
use crate::context::worker::Worker;
use crate::failure::Failure;
use crate::shaping::{Direction, LimitedRequest, Pace};
use transport::buffer::Buffer;
use transport::deadline::Ticks;
use transport::endpoint::MessageEndpoint;

/// A direction of a tunnel: its pump, and bytes that have already arrived.
pub(crate) struct Flow<'a> {
    pub(crate) body: &'a mut Pump,
    pub(crate) buffer: &'a mut Buffer,
}

/// The two sides of a tunnel, and the rates for its bytes.
pub(crate) struct Parties<'a> {
    pub(crate) worker: &'a Worker,
    pub(crate) client: &'a FrontConnection,
    pub(crate) server: &'a MessageEndpoint,
    pub(crate) place: LimitedRequest<'a>,
    /// Notes the arrival of the server's data.
    pub(crate) arrivals: Option<&'a StreamPieces<'a>>,
}

/// Moves bytes until both directions have ended.
///
/// # Errors
/// If one direction fails, or nothing moves in either for `limit`.
pub(crate) async fn run(
    Parties { worker, client, server, place, arrivals }: Parties<'_>,
    limit: Ticks,
    [upward, downward]: [Flow<'_>; 2],
) -> Result<(), Failure> {
    upward.body.begin(BodyFraming::UntilClose, false, None);
    downward.body.begin(BodyFraming::UntilClose, false, None);
    let activity = Cell::new(worker.deadlines.now());
    // The client's own deadline serves the other direction.
    let upward_deadline = worker.deadlines.deadline();
    let paces = [Pace::new(Direction::Up, &worker.shaper), Pace::new(Direction::Down, &worker.shaper)];
    let ends = |source, sink, deadline, pace, arrivals| Ends {
        buffers: &worker.buffers,
        pipes: &worker.pipes,
        deadlines: &worker.deadlines,
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

/// The sender of a direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Party {
    Client,
    Server,
}

/// Maps the reason why the direction from `source` stopped to a failure.
fn failure(stop: &Stop, source: Party) -> Failure {
    match (stop, source) {
        // Neither direction has moved, so neither side is at fault.
        (Stop::Source(PumpEnd::Stalled | PumpEnd::TooSlow), _) => Failure::TunnelIdle,
        (Stop::Sink(PumpEnd::Stalled | PumpEnd::TooSlow), Party::Server) => Failure::ClientStalled,
        (Stop::Sink(PumpEnd::Stalled | PumpEnd::TooSlow), Party::Client) => Failure::UpstreamStalled,
        (Stop::Sink(PumpEnd::Gone), Party::Server) | (Stop::Source(PumpEnd::Gone), Party::Client) => {
            Failure::ClientGone
        }
        (Stop::Sink(PumpEnd::Gone), Party::Client)
        | (Stop::Source(PumpEnd::Gone), Party::Server)
        | (
            Stop::Malformed(_) | Stop::BadText | Stop::TooLarge | Stop::Cut | Stop::Unreadable(_),
            Party::Client | Party::Server,
        ) => Failure::UpstreamReset,
    }
}

/// Runs both directions until both have ended, or one has failed.
async fn both<E>(
    upward: impl Future<Output = Result<(), E>>,
    downward: impl Future<Output = Result<(), E>>,
) -> Result<(), E> {
    let (mut upward, mut downward) = (pin!(upward), pin!(downward));
    // A direction that has ended must not be polled again.
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
