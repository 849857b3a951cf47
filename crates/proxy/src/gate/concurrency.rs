//! Counts requests under way against the limits of their route, after authentication. A request beyond a limit waits in
//! the queue of its key, or is refused.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Instant;

use route::Concurrency;

use crate::context::client::FrontConnection;
use crate::context::exchange_slot::{CurrentRequest, SlotMemory};
use crate::context::later;
use crate::context::plan::{ConcurrencyLimit, RoutePolicies};
use crate::context::request_values::RequestValues;
use crate::context::routed::{ExchangeContext, RoutedRequest};
use crate::context::seen::{self, RequestFields};
use crate::exchange::ExchangeState;
use crate::failure::Failure;
use crate::shared::concurrency::{Counted, Entered, WaitingPlace};
use transport::deadline::Ticks;

/// A request that waits for one of the limits of its route.
pub(crate) struct WaitingRequest {
    /// The index of the limit.
    limit: usize,
    place: WaitingPlace,
}

/// When a request is refused.
enum Refused {
    AtOnce {
        /// Whether the instances refuse all, because they cannot reach each other.
        is_closed: bool,
    },
    AfterWait,
}

/// Counts a request against the limits of its route, from the one at index `first`. Returns `Some` if it must wait,
/// for [`in_time`].
pub(crate) fn enter(
    ctx: &ExchangeContext<'_>,
    policies: &RoutePolicies,
    routed: &RoutedRequest,
    request: &mut CurrentRequest,
    state: &mut ExchangeState<'_>,
    first: usize,
) -> Result<Option<WaitingRequest>, Failure> {
    let mut counted = std::mem::take(&mut request.counted);
    let bytes = request.head_bytes();
    let fields = RequestFields::new(&request.head, bytes);
    let conditions = &RequestValues::from_routed(ctx, routed, request);
    let seen = seen::request(ctx, &routed.target, bytes, routed.client, &fields, &request.head);
    let seen = route::RequestParts { conditions, ..seen };
    let user = policies.user(routed.user, request.texts.user());
    let mut outcome = Ok(None);
    for (index, ConcurrencyLimit { settings, limiter, .. }) in
        policies.concurrency.iter().enumerate().skip(first)
    {
        if !later::holds(ctx, routed, request, settings.when.as_deref()) {
            continue;
        }
        let key = limiter.counts().key_of(&settings.key, &seen, user);
        match limiter.enter(key, settings.limit) {
            Entered::UnderWay(one) => counted.push(one),
            Entered::Waits(place) => {
                outcome = Ok(Some(WaitingRequest { limit: index, place }));
                break;
            }
            Entered::Full => {
                outcome =
                    Err(refuse(state, settings, Refused::AtOnce { is_closed: limiter.counts().is_closed() }));
                break;
            }
        }
    }
    request.counted = counted;
    outcome
}

/// Waits in the queue of a limit, then counts the request against the remaining limits. Called if `enter` found no room.
pub(crate) async fn in_time(
    ctx: &ExchangeContext<'_>,
    policies: &RoutePolicies,
    routed: &RoutedRequest,
    memory: &mut SlotMemory,
    state: &mut ExchangeState<'_>,
    mut waiting: WaitingRequest,
) -> Result<(), Failure> {
    loop {
        ctx.worker.counters.requests_queued.increment();
        let WaitingRequest { limit, place } = waiting;
        let settings = &policies.concurrency[limit].settings;
        let began = Instant::now();
        memory.park(ctx.worker);
        let turn = turn(ctx.client, Ticks::from(settings.wait), place);
        let outcome = ctx.worker.holding.during(turn).await;
        memory.unpark(ctx.worker);
        *state.record.detours.held_back.get_or_insert_default() += began.elapsed();
        match outcome {
            Ok(Some(counted)) => memory.request.counted.push(counted),
            Ok(None) => {
                let is_closed = policies.concurrency[limit].limiter.counts().is_closed();
                return Err(refuse(state, settings, Refused::AtOnce { is_closed }));
            }
            Err(Failure::ClientGone) => return Err(Failure::ClientGone),
            Err(_) => return Err(refuse(state, settings, Refused::AfterWait)),
        }
        match enter(ctx, policies, routed, &mut memory.request, state, limit + 1)? {
            Some(next) => waiting = next,
            None => return Ok(()),
        }
    }
}

/// Waits for the turn of a request, for as long as its client is there. Returns `None` if other instances leave no room.
async fn turn(
    client: &FrontConnection,
    wait: Ticks,
    place: WaitingPlace,
) -> Result<Option<Counted>, Failure> {
    let mut turn = pin!(place.turn());
    let turn = poll_fn(|context| match turn.as_mut().poll(context) {
        Poll::Ready(counted) => Poll::Ready(Ok(counted)),
        Poll::Pending => client.socket.poll_closed(context).map(|()| Err(Failure::ClientGone)),
    });
    let counted = client.deadline.within(wait, turn).await.map_err(|_| Failure::ConcurrencyLimited)??;
    // A half-closed client counts as gone while others wait, as in the queue for servers.
    if client.socket.has_peer_closed() { Err(Failure::ClientGone) } else { Ok(counted) }
}

/// Notes why a request is refused.
#[cold]
fn refuse(state: &mut ExchangeState<'_>, settings: &config::ConcurrencyLimit, refused: Refused) -> Failure {
    let Concurrency { max, waiting_max } = settings.limit;
    let reason = match (refused, waiting_max) {
        (Refused::AtOnce { is_closed: true }, _) => {
            state.is_limited("shared is \"closed\", and Redis cannot be reached".to_owned());
            return Failure::ConcurrencyLimited;
        }
        (Refused::AfterWait, _) => {
            format!("no room within wait, {}", config::written_duration(settings.wait))
        }
        (Refused::AtOnce { .. }, 0) => "there is no queue".to_owned(),
        (Refused::AtOnce { .. }, waiting) => format!("the queue is full: queue, {waiting}"),
    };
    state.is_limited(format!("as many requests are under way as max, {max}; {reason}"));
    Failure::ConcurrencyLimited
}
