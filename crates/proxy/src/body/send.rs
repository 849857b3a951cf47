//! Sends bytes to the client of an exchange, within the client's time-out.

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::task::{Context, Poll};

use crate::context::exchange::{ExchangeContext, RoutedRequest};
use crate::context::failure::Failure;
use crate::context::minimum_rate::Progress;
use crate::shaping::Pace;
use transport::cold::poll_once;
use transport::deadline::Ticks;
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

/// Runs a write of a routed request's response within the limits of its route: the client's time-out, and its minimum rate
/// over all writes with the same `progress`.
pub(crate) async fn within_limits(
    ctx: &ExchangeContext<'_>,
    routed: &RoutedRequest,
    progress: &mut Progress,
    mut write: impl FnMut(&mut Context<'_>) -> Poll<io::Result<usize>>,
) -> Result<usize, Failure> {
    if let Some(written) = poll_once(&mut write) {
        let count = written.map_err(|_| Failure::ClientGone)?;
        progress.moved += count as u64;
        return Ok(count);
    }
    let limit = routed.ticks(ctx).client_write;
    let rate = routed.client_limits(ctx).minimum_rate;
    let deadlines = &ctx.worker.deadlines;
    let began = deadlines.now();
    let mut judged = began;
    let mut write = pin!(poll_fn(write));
    loop {
        // The next to be looked at is what comes first: the end of the window, or of the wait.
        let left = Ticks(limit.0.saturating_sub(judged - began));
        let slice = rate.map_or(left, |rate| left.min(rate.left(progress)));
        let outcome = ctx.client.deadline.within(slice, write.as_mut()).await;
        let now = deadlines.now();
        progress.waited_ticks += now - judged;
        judged = now;
        let written = match outcome {
            Ok(written) => Some(written.map_err(|_| Failure::ClientGone)?),
            Err(_) => None,
        };
        progress.moved += written.unwrap_or(0) as u64;
        if let Some(rate) = rate {
            rate.judge(progress).map_err(|_| Failure::ClientStalled)?;
        }
        if let Some(count) = written {
            return Ok(count);
        }
        if now - began >= limit.0 {
            return Err(Failure::ClientStalled);
        }
    }
}
