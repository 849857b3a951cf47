//! Where a response from the store leaves, no faster than bodies may pass, and with the fault that was drawn for it.

use http1::{ClientConnection, Framing, Method};

use crate::context::exchange::{ExchangeContext, RoutedRequest};
use crate::context::exchange_state::ExchangeState;
use crate::context::failure::Failure;
use crate::faults::messages::Injection;
use crate::forward::respond::send_paced;
use crate::shaping::{Direction, Pace};
use transport::tcp::Follows;

/// The way to the client.
pub(super) struct Outlet<'a> {
    ctx: &'a ExchangeContext<'a>,
    routed: &'a RoutedRequest,
    pace: Pace,
    injection: Option<Injection>,
}

impl<'a> Outlet<'a> {
    /// For a response whose head is written, and is altered by a fault, as what becomes of the connection is.
    pub(super) fn new(
        ctx: &'a ExchangeContext<'a>,
        routed: &'a RoutedRequest,
        framing: Framing,
        (head, connection): (&mut Vec<u8>, &mut ClientConnection),
        state: &mut ExchangeState<'_>,
    ) -> Self {
        let framing = if routed.method == Method::Head { Framing::None } else { framing };
        let injection = Injection::of(ctx, routed.version, framing, head, state);
        if injection.as_ref().is_some_and(Injection::ends_connection) {
            *connection = ClientConnection::Close;
        }
        state.record.head_bytes_sent = head.len() as u64;
        Self { ctx, routed, pace: Pace::new(Direction::Down, ctx.worker), injection }
    }

    /// Comes before all else is sent: what of the head is to leave by itself is taken out of it.
    pub(super) async fn begin(&self, head: &mut Vec<u8>) -> Result<(), Failure> {
        match &self.injection {
            Some(injection) => injection.begin(self.ctx, head).await,
            None => Ok(()),
        }
    }

    /// So much is sent of the body's next piece.
    pub(super) fn takes(&self, len: usize) -> usize {
        self.injection.as_ref().map_or(len, |injection| injection.takes(len))
    }

    /// Sends a head, which is not counted, and what of the body is there.
    pub(super) async fn send(&self, head: &[u8], body: &[u8], follows: Follows) -> Result<(), Failure> {
        let Some(injection) = self.injection.as_ref().filter(|injection| injection.is_cut()) else {
            return send_paced(self.ctx, self.routed, &self.pace, (head, body), follows).await;
        };
        send_paced(self.ctx, self.routed, &self.pace, (head, body), Follows::Nothing).await?;
        Err(injection.break_off(self.ctx).await)
    }
}
