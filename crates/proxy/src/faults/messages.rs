//! Injects faults into HTTP messages: into a request before a server is asked, and into the response to its client,
//! wherever that comes from. Stored responses, and other clients that wait for the same response, are not affected.
//!
//! A fault of a response is a filter of its plan. Requests without a fault never get here.

use std::rc::Rc;
use std::time::Duration;

use http1::{ClientConnection, Framing, Method, Version};
use shape::Fault;

use crate::body::filters::Filter;
use crate::body::response_plan::ResponsePlan;
use crate::context::exchange::{Exchange, ExchangeContext, RoutedRequest};
use crate::context::exchange_state::ExchangeState;
use crate::context::failure::Failure;

/// An injected response in place of a server's.
pub(crate) struct InjectedAnswer {
    pub(crate) status: u16,
}

/// Draws a fault for a request, and injects it if it comes before a server is asked. `None` means that the request goes
/// on.
pub(crate) async fn request(exchange: &mut Exchange<'_, '_>) -> Result<Option<InjectedAnswer>, Failure> {
    let Exchange { ctx, routed, .. } = *exchange;
    let Some(drawn) =
        ctx.worker.faults.draw(ctx, routed, exchange.state.route(), &exchange.memory.request)?
    else {
        return Ok(None);
    };
    let drawn = Rc::new(drawn);
    exchange.state.drawn(Rc::clone(&drawn));
    match &drawn.fault {
        Fault::Answer { status } => {
            exchange.state.injected();
            return Ok(Some(InjectedAnswer { status: *status }));
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
        // Done to the response, or to the connection before.
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

/// The properties of a response that decide which faults fit it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outline {
    pub(crate) version: Version,
    pub(crate) status: u16,
    /// The framing of the body that is sent.
    pub(crate) framing: Framing,
    /// Whether trailers may follow the body.
    pub(crate) may_have_trailers: bool,
    /// Whether the body leaves in frames (HTTP/2).
    pub(crate) is_framed: bool,
}

/// Adds the drawn fault to the plan of a response to a routed request, from a server or from the cache.
#[cold]
pub(crate) fn add_to_routed(
    ctx: &ExchangeContext<'_>,
    routed: &RoutedRequest,
    plan: &mut ResponsePlan,
    (status, may_have_trailers): (u16, bool),
    state: &mut ExchangeState<'_>,
) {
    // A response to HEAD has no body, whatever its head says.
    let framing = if routed.method == Method::Head { Framing::None } else { plan.framing };
    let (version, is_framed) = (routed.version, ctx.client.socket.frames_itself());
    add_to(plan, Outline { version, status, framing, may_have_trailers, is_framed }, state);
}

/// Adds the drawn fault to the filters of a response, if it fits. Tells the client of it, if clients are told.
#[cold]
pub(crate) fn add_to(plan: &mut ResponsePlan, outline: Outline, state: &mut ExchangeState<'_>) {
    let Some(drawn) = state.fault().filter(|drawn| fits(&drawn.fault, outline)) else { return };
    state.injected();
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
        // Injected before: what was left is to tell of them.
        Fault::Delay(_) | Fault::Answer { .. } | Fault::Reset | Fault::Connection(_) => return,
    });
}

/// Whether a fault can be injected into a response.
fn fits(fault: &Fault, outline: Outline) -> bool {
    let Outline { version, status, framing, may_have_trailers, is_framed } = outline;
    let has_body = !matches!(framing, Framing::None | Framing::Length(0));
    match fault {
        // What follows a switch of protocols is no body, and on HTTP/1 no connection of HTTP.
        Fault::Cut { .. } | Fault::Length { .. } | Fault::BadChunk | Fault::NoTrailers if status == 101 => {
            false
        }
        Fault::GoAway => status != 101 || is_framed,
        Fault::Cut { bytes } => match framing {
            Framing::Length(length) => length > *bytes,
            _ => has_body,
        },
        Fault::Length { .. } => matches!(framing, Framing::Length(_)),
        // RFC 9112 §7.1: HTTP/1.0 knows no chunks.
        Fault::BadChunk => has_body && version != Version::Http10,
        Fault::NoTrailers => may_have_trailers,
        // Some were injected before: what is left is to tell of them.
        Fault::Drip { .. } | Fault::Delay(_) | Fault::Answer { .. } | Fault::Reset | Fault::Connection(_) => {
            true
        }
    }
}

/// Whether what follows on the connection could not be told from what is wrong.
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
