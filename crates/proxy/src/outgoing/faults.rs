//! Injects faults into HTTP messages: into a request before a server is asked, and into any response to its client.
//! Stored responses, and other clients that wait for the same response, are not affected.
//!
//! A fault of a response is a filter in its plan. Requests without a fault do not reach this module.

use std::rc::Rc;
use std::time::Duration;

use http1::{BodyFraming, ClientConnection, HttpVersion, Method};
use shape::Fault;

use crate::body::filters::Filter;
use crate::context::exchange_slot::CurrentRequest;
use crate::context::routed::{ExchangeContext, RoutedRequest};
use crate::context::seen::{self, RequestFields, SeenConditions};
use crate::exchange::{Exchange, ExchangeState};
use crate::failure::Failure;
use crate::faults::DrawnFault;
use crate::outgoing::response_plan::ResponsePlan;

pub(crate) struct InjectedAnswer {
    pub(crate) status: u16,
    pub(crate) drawn: Rc<DrawnFault>,
}

/// Draws a fault for a request, and injects it if it applies before a server is asked. `None` means that the request
/// goes on. Called after admission, before policies.
pub(crate) async fn request(exchange: &mut Exchange<'_, '_>) -> Result<Option<InjectedAnswer>, Failure> {
    let ctx = exchange.ctx;
    let Some(drawn) = draw(exchange)? else { return Ok(None) };
    let drawn = Rc::new(drawn);
    exchange.state.drawn(Rc::clone(&drawn));
    match &drawn.fault {
        Fault::Answer { status } => {
            exchange.state.injected();
            return Ok(Some(InjectedAnswer { status: *status, drawn: Rc::clone(&drawn) }));
        }
        Fault::Reset => {
            exchange.state.injected();
            ctx.client.socket.reset_on_drop();
            return Err(Failure::FaultInjected);
        }
        Fault::Delay(delay) => {
            exchange.state.injected();
            let late_ns = delay.draw_ns(drawn.number, drawn.extent());
            exchange.memory.park(ctx.worker);
            let late = ctx.worker.alarms.sleep(Duration::from_nanos(late_ns));
            ctx.worker.holding.during(late).await;
            exchange.memory.unpark(ctx.worker);
        }
        // Applied to the response, or earlier to the connection.
        Fault::Connection(_)
        | Fault::Cut { .. }
        | Fault::Length { .. }
        | Fault::BadChunk
        | Fault::Drip { .. }
        | Fault::NoTrailers
        | Fault::GoAway => {}
    }
    Ok(None)
}

/// Draws a fault for the request, which may have no route.
fn draw(exchange: &Exchange<'_, '_>) -> Result<Option<DrawnFault>, Failure> {
    let Exchange { ctx, routed, .. } = *exchange;
    let CurrentRequest { head, .. } = &exchange.memory.request;
    let bytes = exchange.memory.request.head_bytes();
    let fields = RequestFields::new(head, bytes);
    let conditions = &SeenConditions::new(ctx, routed, head, bytes);
    let seen = seen::request(ctx, &routed.target, bytes, routed.client, &fields, head);
    let seen = route::RequestParts { conditions, ..seen };
    let route = exchange.state.route().map_or("", |route| &ctx.snapshot.plan.routes[route].label);
    ctx.worker.faults.draw(&seen, route, ctx.worker.time_ns())
}

/// Properties of a response that decide which faults are possible.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outline {
    pub(crate) version: HttpVersion,
    pub(crate) status: u16,
    /// The framing of the body for the client.
    pub(crate) framing: BodyFraming,
    pub(crate) may_have_trailers: bool,
    /// Whether the body is sent in frames (HTTP/2, HTTP/3).
    pub(crate) is_framed: bool,
}

/// Adds the drawn fault to the plan of a response to a routed request, from a server or from the cache.
#[cold]
pub(crate) fn add_to_routed(
    ctx: &ExchangeContext<'_>,
    routed: &RoutedRequest,
    plan: &mut ResponsePlan,
    status: u16,
    may_have_trailers: bool,
    state: &mut ExchangeState<'_>,
) {
    // A response to HEAD has no body, whatever its head says.
    let framing = if routed.method == Method::Head { BodyFraming::None } else { plan.framing };
    let (version, is_framed) = (routed.version, ctx.client.socket.frames_itself());
    add_to(plan, Outline { version, status, framing, may_have_trailers, is_framed }, state);
}

/// Adds the drawn fault to a response's filters, if possible, and the field that reports it, if configured.
#[cold]
pub(crate) fn add_to(plan: &mut ResponsePlan, outline: Outline, state: &mut ExchangeState<'_>) {
    let Some(drawn) = state.fault().filter(|drawn| fits(&drawn.fault, outline)) else { return };
    // The body may end before the cut. So the cut is counted when it happens, in `ExchangeState::failed`.
    if !matches!(drawn.fault, Fault::Cut { .. }) {
        state.injected();
    }
    let mut line = Vec::new();
    drawn.push_line(&mut line);
    if !line.is_empty() {
        plan.filters.push(Filter::AddLine(line));
    }
    if ends_connection(&drawn.fault) && outline.status != 101 {
        plan.client_connection = ClientConnection::Close;
    }
    plan.filters.push(match drawn.fault {
        Fault::Cut { bytes } => Filter::Cut { after: bytes },
        Fault::Length { by } => Filter::WrongLength { by },
        Fault::BadChunk => Filter::BadChunk,
        Fault::NoTrailers => Filter::NoTrailers,
        Fault::Drip { pause } => Filter::Drip { pause },
        Fault::GoAway => Filter::GoAway,
        // Injected earlier; only the field that reports it is added here.
        Fault::Delay(_) | Fault::Answer { .. } | Fault::Reset | Fault::Connection(_) => return,
    });
}

/// Whether a response of this kind can show the fault.
fn fits(fault: &Fault, outline: Outline) -> bool {
    let Outline { version, status, framing, may_have_trailers, is_framed } = outline;
    let has_body = !matches!(framing, BodyFraming::None | BodyFraming::Length(0));
    match fault {
        // Bytes after a protocol switch are not a body, and over HTTP/1 no longer an HTTP connection.
        Fault::Cut { .. } | Fault::Length { .. } | Fault::BadChunk | Fault::NoTrailers if status == 101 => {
            false
        }
        Fault::GoAway => status != 101 || is_framed,
        Fault::Cut { bytes } => match framing {
            BodyFraming::Length(length) => length > *bytes,
            _ => has_body,
        },
        Fault::Length { .. } => matches!(framing, BodyFraming::Length(_)),
        // RFC 9112 §7.1: HTTP/1.0 has no chunks.
        Fault::BadChunk => has_body && version != HttpVersion::Http10,
        Fault::NoTrailers => may_have_trailers,
        // Some were injected earlier; only the field that reports them remains.
        Fault::Drip { .. } | Fault::Delay(_) | Fault::Answer { .. } | Fault::Reset | Fault::Connection(_) => {
            true
        }
    }
}

/// Whether the connection must end, because the client could not find the next response after this fault.
fn ends_connection(fault: &Fault) -> bool {
    match fault {
        Fault::Cut { .. } | Fault::Length { .. } | Fault::BadChunk | Fault::GoAway => true,
        Fault::Drip { .. }
        | Fault::NoTrailers
        | Fault::Delay(_)
        | Fault::Answer { .. }
        | Fault::Reset
        | Fault::Connection(_) => false,
    }
}
