//! Formats the figures of streams as text. No I/O.

use std::fmt::{Result, Write};

use super::plan::{Call, Workload};
use super::tally::{StreamCounts, StreamFigures};
use crate::outcome::{Distribution, RunOutcome};
use crate::text::{bytes, row, seconds, time};

/// Describes the streams, for the settings.
pub(crate) fn workload(figures: &StreamFigures) -> String {
    match figures.plan.workload {
        Workload::Events => "server-sent events".to_owned(),
        Workload::Echo => "WebSockets, echo".to_owned(),
        Workload::FanOut { senders } => format!("WebSockets, fan-out from {senders}"),
        Workload::Grpc { call, messages } => {
            let kind = match call {
                Call::Unary => "unary",
                Call::ServerStream => "server-streaming",
                Call::ClientStream => "client-streaming",
                Call::Bidi => "bidirectional",
            };
            let each = messages.map(|messages| format!(", {messages} messages each")).unwrap_or_default();
            format!("{kind} gRPC calls{each}")
        }
    }
}

/// Rows of times beside those of the schedule.
pub(crate) fn write_times(text: &mut String, outcome: &RunOutcome, figures: &StreamFigures) -> Result {
    let is_closed = outcome.schedule.is_none();
    match figures.plan.workload {
        Workload::Events | Workload::Grpc { call: Call::ServerStream, .. } => {
            row(text, "delay", &outcome.latency)?;
        }
        Workload::FanOut { .. } => row(text, "due to there", &outcome.latency)?,
        _ if is_closed => row(text, "sent to back", &outcome.latency)?,
        _ => {
            row(text, "due to back", &outcome.latency)?;
            row(text, "sent to back", &outcome.service)?;
        }
    }
    if let Some(kept) = &outcome.schedule {
        row(text, "due to sent", &kept.lateness)?;
        row(text, "own lateness", &kept.own_lateness)?;
    }
    // A call with one response has no gaps between messages.
    if !matches!(figures.plan.workload, Workload::Grpc { call: Call::Unary | Call::ClientStream, .. }) {
        row(text, "gaps", &figures.gaps)?;
    }
    let of_opening = [("open", &figures.open), ("connect", &outcome.connect)];
    of_opening
        .into_iter()
        .filter(|(_, times)| times.count > 0)
        .try_for_each(|(name, times)| row(text, name, times))?;
    if let Some(tls) = outcome.tls.as_ref().filter(|tls| tls.handshake.count > 0) {
        row(text, "TLS handshake", &tls.handshake)?;
    }
    if outcome.latency.count == 0 && outcome.requests > 0 {
        writeln!(
            text,
            "  No message had a time ({}=NANOSECONDS, see --time-field), so there are no delays.",
            figures.plan.fields.time
        )?;
    }
    writeln!(text)
}

pub(crate) fn write_counts(text: &mut String, figures: &StreamFigures) -> Result {
    let StreamCounts { opened, failed, closed_early, reconnected, calls, sent, received, .. } =
        figures.counts;
    let StreamCounts { sent_bytes, received_bytes, lost, duplicates, out_of_order, from_future, .. } =
        figures.counts;
    let kind = if matches!(figures.plan.workload, Workload::Grpc { .. }) { "Calls" } else { "Streams" };
    let again = if kind == "Calls" { String::new() } else { format!(", {reconnected} opened again") };
    writeln!(
        text,
        "  {kind:<10} {opened} opened, {failed} failed to open, {closed_early} ended early{again}"
    )?;
    if calls > 0 {
        let named = figures.grpc_statuses.iter().map(|(name, count)| format!("{name} {count}"));
        writeln!(text, "  Statuses   {}", named.collect::<Vec<_>>().join(", "))?;
    }
    let (rate, size) = (figures.received_per_second, bytes(received_bytes as f64));
    writeln!(text, "  Received   {received} messages, {rate:.2}/s, {size} without framing")?;
    if sent > 0 {
        let (rate, size) = (figures.sent_per_second, bytes(sent_bytes as f64));
        writeln!(text, "  Sent       {sent} messages, {rate:.2}/s, {size}")?;
    }
    writeln!(text, "  Missing    {lost} lost, {duplicates} duplicates, {out_of_order} out of order")?;
    if figures.gaps.count > 0 || figures.longest_gap_us > 0 {
        writeln!(text, "  Silence    {} at most on a stream", time(figures.longest_gap_us as f64))?;
    }
    if from_future > 0 {
        writeln!(
            text,
            "             {from_future} messages arrived before their send time: the clocks differ, delays are wrong"
        )?;
    }
    Ok(())
}

/// Whether there are times to show.
pub(crate) fn has_times(outcome: &RunOutcome, figures: &StreamFigures) -> bool {
    let all: [&Distribution; 3] = [&outcome.latency, &figures.gaps, &figures.open];
    all.iter().any(|times| times.count > 0)
}

/// Writes the number of messages, and the duration.
pub(crate) fn write_total(text: &mut String, outcome: &RunOutcome, interrupted: &str) -> Result {
    let (received, measured) = (bytes(outcome.bytes_received as f64), seconds(outcome.measured_seconds));
    writeln!(text, "  {} messages in {measured}{interrupted}, {received} received", outcome.requests)?;
    if outcome.unfinished > 0 {
        let oldest = seconds(outcome.oldest_unfinished_us as f64 / 1e6);
        let unfinished = outcome.unfinished;
        writeln!(
            text,
            "  {unfinished} more had no answer at the end, the oldest for {oldest}: their age counts as their time \
             (≥: at least)"
        )?;
    }
    Ok(())
}
