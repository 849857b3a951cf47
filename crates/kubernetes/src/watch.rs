//! Keeps up with the objects of a kind: lists them, then watches them from the version of the list on.

use std::time::Duration;

use gateway::Kind;
use serde_json::Value;
use tokio::sync::mpsc::Sender;

use crate::client::{Client, Failure, Told, version};

/// Pauses between attempts while the server does not answer.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// How long until a kind is asked for again that is not installed.
const PAUSE_MISSING: Duration = Duration::from_secs(30);

/// What is new about a kind.
#[derive(Debug)]
pub(crate) enum News {
    /// These are all objects.
    All(Kind, Vec<Value>),
    /// An object is there or has changed.
    Put(Kind, Value),
    /// An object is gone.
    Gone(Kind, Value),
    /// The kind is not known to the server.
    Missing(Kind),
    /// The server does not answer, or answers again.
    Trouble(Kind, Option<Failure>),
}

/// Tells what is new about a kind until nobody listens any more.
pub(crate) async fn watch(client: Client, kind: Kind, news: Sender<News>) {
    // The version up to which everything was told; `None` if nothing was, or if it is too old.
    let mut known: Option<String> = None;
    let mut pause = PAUSE_MIN;
    let mut is_in_trouble = false;
    while !news.is_closed() {
        let before = known.clone();
        let failure = match follow(&client, kind, &mut known, &news, &mut is_in_trouble).await {
            Ok(()) => {
                pause = PAUSE_MIN;
                continue;
            }
            Err(failure) => failure,
        };
        if failure.is_gone() {
            known = None;
            continue_soon(&mut pause).await;
            continue;
        }
        if failure.is_missing() {
            known = None;
            let _ = news.send(News::Missing(kind)).await;
            tokio::time::sleep(PAUSE_MISSING).await;
            continue;
        }
        if known != before {
            // It has answered meanwhile.
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

/// Lists if nothing is known, then watches until the watch ends.
async fn follow(
    client: &Client,
    kind: Kind,
    known: &mut Option<String>,
    news: &Sender<News>,
    is_in_trouble: &mut bool,
) -> Result<(), Failure> {
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
            Some(Told::Bookmark(version)) => (version, None),
            Some(Told::Put(object)) => (version(&object), Some(News::Put(kind, object))),
            Some(Told::Gone(object)) => (version(&object), Some(News::Gone(kind, object))),
        };
        if let Some(told) = told {
            let _ = news.send(told).await;
        }
        if !version.is_empty() {
            *known = Some(version);
        }
    }
}
