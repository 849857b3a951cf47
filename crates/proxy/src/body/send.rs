//! Sends bytes to the client of an exchange, within the client's time-out.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll};

use crate::context::exchange::{ExchangeContext, RoutedRequest};
use crate::context::failure::Failure;
use crate::shaping::Pace;
use transport::cold::poll_once;
use transport::tcp::Follows;

/// Sends bytes to the client.
pub(crate) async fn send(ctx: &ExchangeContext<'_>, bytes: &[u8], follows: Follows) -> Result<(), Failure> {
    send_both(ctx, bytes, b"", follows).await
}

/// Sends a head with its body without copying, no faster than the body's pace permits.
pub(crate) async fn send_paced(
    ctx: &ExchangeContext<'_>,
    routed: &RoutedRequest,
    pace: &Pace,
    (mut head, mut body): (&[u8], &[u8]),
    follows: Follows,
) -> Result<(), Failure> {
    pace.pass(head.len());
    while !head.is_empty() || !body.is_empty() {
        let (place, wanted) = (routed.place(ctx), head.len() + body.len());
        let allowed = poll_fn(|context| pace.poll_allowance(context, &place, wanted)).await;
        // What is allowed is the head at least.
        let (part, rest) = body.split_at(allowed - head.len());
        let follows = if rest.is_empty() { follows } else { Follows::Nothing };
        send_both(ctx, head, part, follows).await?;
        pace.sent(allowed);
        (head, body) = (b"", rest);
    }
    Ok(())
}

/// Sends a head with its body without copying, as fast as the client reads.
pub(crate) async fn send_both(
    ctx: &ExchangeContext<'_>,
    head: &[u8],
    body: &[u8],
    follows: Follows,
) -> Result<(), Failure> {
    send_counted(ctx, (head, body), follows, &mut 0).await
}

/// Sends a head with its body, and adds the bytes sent to `sent`, also if it fails.
pub(crate) async fn send_counted(
    ctx: &ExchangeContext<'_>,
    (mut head, mut body): (&[u8], &[u8]),
    follows: Follows,
    sent: &mut usize,
) -> Result<(), Failure> {
    while !head.is_empty() || !body.is_empty() {
        let socket = &ctx.client.socket;
        let count = in_time(ctx, |context| socket.poll_write_both(context, head, body, follows)).await?;
        *sent += count;
        let of_head = count.min(head.len());
        head = &head[of_head..];
        body = &body[count - of_head..];
    }
    Ok(())
}

/// Runs a write to the client within the client's time-out.
pub(crate) async fn in_time(
    ctx: &ExchangeContext<'_>,
    mut write: impl FnMut(&mut Context<'_>) -> Poll<io::Result<usize>>,
) -> Result<usize, Failure> {
    let ExchangeContext { snapshot, client, .. } = *ctx;
    let written = match poll_once(&mut write) {
        Some(written) => written,
        None => {
            let written = client.deadline.within(snapshot.ticks.client_write, poll_fn(write)).await;
            written.map_err(|_| Failure::ClientStalled)?
        }
    };
    written.map_err(|_| Failure::ClientGone)
}
