//! The admin API of the cache: explain and purge.

use std::sync::Weak;
use telemetry::message;

use ::cache::{Force, NotNamed, PurgeTarget, RulesFull};
use api::cache::{ExplainOrder, PurgeOrder, PurgedElsewhere};
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use tokio::sync::oneshot;

use super::{AdminOrder, elsewhere, ending, json, refused};
use crate::change::Control;
use proxy::cache::{ExplainRequest, Purging};

fn named(order: &PurgeOrder) -> Result<Vec<PurgeTarget>, NotNamed> {
    let urls = order.urls.iter().map(|url| PurgeTarget::url(url));
    let prefixes = order.prefixes.iter().map(|prefix| PurgeTarget::prefix(prefix));
    let hosts = order.hosts.iter().map(|host| PurgeTarget::host(host));
    let tags = order.tags.iter().map(|tag| PurgeTarget::tag(tag));
    let all = order.all.then_some(Ok(PurgeTarget::All));
    urls.chain(prefixes).chain(hosts).chain(tags).chain(all).collect()
}

/// Explains how the cache would answer a GET, and why the last one was a miss.
pub(super) async fn explain(
    State(control): State<Weak<Control>>,
    AdminOrder(ExplainOrder { url, headers }): AdminOrder<ExplainOrder>,
) -> Response {
    let Some(control) = control.upgrade() else { return ending() };
    let plan = control.plan();
    match ExplainRequest::new(&plan, &url, &headers).and_then(|question| question.answer(&plan)) {
        Ok(explained) => json(StatusCode::OK, &explained),
        Err(error) => refused(StatusCode::BAD_REQUEST, &error.to_string()),
    }
}

/// Purges the named responses. If a name is invalid, nothing is purged.
pub(super) async fn purge(
    State(control): State<Weak<Control>>,
    AdminOrder(order): AdminOrder<PurgeOrder>,
) -> Response {
    let named = match named(&order) {
        Ok(named) if named.is_empty() => {
            return refused(
                StatusCode::BAD_REQUEST,
                "the purge names nothing: expected urls, prefixes, hosts, tags or all",
            );
        }
        Ok(named) => named,
        Err(error) => return refused(StatusCode::BAD_REQUEST, &error.to_string()),
    };
    let force = if order.soft { Force::Soft } else { Force::Hard };
    let purged = elsewhere(control, move |control| {
        let plan = control.plan();
        plan.cache.as_ref().map(|cache| {
            let mut purged = cache.purge(&plan.spaces, &named, force).map(Purging::count)?;
            let elsewhere = cache.publish(&named, force);
            // This thread serves no requests, so it may block.
            cache.hand_on(named, force).map(oneshot::Receiver::blocking_recv);
            let known = |known: oneshot::Receiver<PurgedElsewhere>| known.blocking_recv();
            purged.elsewhere =
                elsewhere.map(|told| known(told).unwrap_or_else(|_| PurgedElsewhere::unknown()));
            Ok::<_, RulesFull>(purged)
        })
    });
    match purged.await {
        None => ending(),
        Some(None) => refused(StatusCode::CONFLICT, NOTHING_STORED),
        Some(Some(Err(error))) => refused(StatusCode::SERVICE_UNAVAILABLE, &error.to_string()),
        Some(Some(Ok(purged))) => {
            if order.all {
                message::info("the whole cache was purged, by the admin API");
            }
            json(StatusCode::OK, &purged)
        }
    }
}

const NOTHING_STORED: &str = "the configuration has no [cache]";
