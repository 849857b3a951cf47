//! Follows the objects of a kind: lists them, then watches from the list's version on.

use std::time::Duration;

use gateway::ObjectKind;
use serde_json::Value;
use tokio::sync::mpsc::Sender;
use tokio::time::Instant;

use crate::client::{ClusterClient, ClusterFailure, WatchEvent, version};

const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// Time between requests for a kind that is not installed. A kind that had objects must be missing this long,
/// because a starting server does not know all kinds at once.
const PAUSE_MISSING: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(crate) enum News {
    All(ObjectKind, Vec<Value>),
    Put(ObjectKind, Value),
    Gone(ObjectKind, Value),
    Missing(ObjectKind),
    /// The server stopped answering, or answers again.
    Trouble(ObjectKind, Option<ClusterFailure>),
}

/// Sends a kind's changes until the receiver is dropped.
pub(crate) async fn watch(client: ClusterClient, kind: ObjectKind, news: Sender<News>) {
    // The version up to which changes were sent; `None` before the first list, or if the version is too old.
    let mut known: Option<String> = None;
    let mut pause = PAUSE_MIN;
    let mut is_in_trouble = false;
    // When a kind that had been listed became missing.
    let mut missing: Option<Instant> = None;
    while !news.is_closed() {
        let before = known.clone();
        let failure = match follow(&client, kind, &mut known, &news, &mut is_in_trouble).await {
            Ok(()) => {
                (pause, missing) = (PAUSE_MIN, None);
                continue;
            }
            Err(failure) => failure,
        };
        if failure.is_gone() {
            known = None;
            continue_soon(&mut pause).await;
            continue;
        }
        let was_known = known.is_some();
        if !failure.is_missing() {
            missing = missing.filter(|_| !was_known);
        } else if was_known || missing.is_some() {
            known = None;
            missing.get_or_insert_with(Instant::now);
        }
        let is_confirmed = missing.is_none_or(|since| since.elapsed() >= PAUSE_MISSING);
        if failure.is_missing() && is_confirmed {
            (known, missing) = (None, None);
            let _ = news.send(News::Missing(kind)).await;
            tokio::time::sleep(PAUSE_MISSING).await;
            continue;
        }
        if known != before {
            // The server has answered in between.
            pause = PAUSE_MIN;
        }
        is_in_trouble = true;
        let _ = news.send(News::Trouble(kind, Some(failure))).await;
        continue_soon(&mut pause).await;
    }
}

async fn continue_soon(pause: &mut Duration) {
    tokio::time::sleep(*pause).await;
    *pause = (*pause * 2).min(PAUSE_MAX);
}

/// Lists if no version is known, then watches until the watch ends.
async fn follow(
    client: &ClusterClient,
    kind: ObjectKind,
    known: &mut Option<String>,
    news: &Sender<News>,
    is_in_trouble: &mut bool,
) -> Result<(), ClusterFailure> {
    let from = match known {
        Some(version) => version.clone(),
        None => {
            let (objects, version) = client.list(kind).await?;
            let _ = news.send(News::All(kind, objects)).await;
            known.insert(version).clone()
        }
    };
    let mut watch = client.watch(kind, &from).await?;
    if std::mem::take(is_in_trouble) {
        let _ = news.send(News::Trouble(kind, None)).await;
    }
    loop {
        let told = tokio::select! {
            told = watch.next() => told?,
            () = news.closed() => return Ok(()),
        };
        let (version, told) = match told {
            None => return Ok(()),
            Some(WatchEvent::Bookmark(version)) => (version, None),
            Some(WatchEvent::Put(object)) => (version(&object), Some(News::Put(kind, object))),
            Some(WatchEvent::Gone(object)) => (version(&object), Some(News::Gone(kind, object))),
        };
        if let Some(told) = told {
            let _ = news.send(told).await;
        }
        if !version.is_empty() {
            *known = Some(version);
        }
    }
}
