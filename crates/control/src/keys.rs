//! Keys of tokens and of bots (JWKS): fetched, kept, and fetched again before they grow old. A task for each URL, on the control
//! thread.
//!
//! A fetch that fails changes nothing: the last keys stay in use.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::time::Duration;

use config::{KeySource, KeyUrl, UpstreamTls};
use jwt::KeySet;
use proxy::context::plan::{Keys, Plan, RemoteKeys, Route};
use telemetry::message;
use tokio::task::AbortHandle;

use crate::change::Control;
use crate::outbound::Outbound;
use crate::probe::{self, ProbeResponse, Question};

/// The largest key set: dozens of keys with their certificates.
const KEYS_BYTES_MAX: usize = 256 * 1024;
/// A whole fetch, from the look-up of the name to the last byte.
const FETCH_MAX: Duration = Duration::from_secs(10);
/// After a failure the next attempt comes after this, then twice that, and so on.
const RETRY_MIN: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(60);
/// What a server may say about how long its keys are fresh.
const FRESH: std::ops::RangeInclusive<Duration> = Duration::from_secs(60)..=Duration::from_secs(24 * 60 * 60);

/// Fetches the keys of the plan in force, until the proxy ends.
pub(crate) async fn run(control: Weak<Control>, outbound: Rc<Outbound>) {
    let Some(mut changes) = control.upgrade().map(|control| control.changes.subscribe()) else { return };
    let mut tasks: HashMap<KeySource, Task> = HashMap::new();
    loop {
        changes.mark_unchanged();
        let Some(plan) = control.upgrade().map(|control| control.plan()) else { return };
        let mut before = std::mem::take(&mut tasks);
        for keys in fetched_keys(&plan) {
            let Some(RemoteKeys { source, .. }) = &keys.remote else { continue };
            // Several routes may use the same.
            if tasks.contains_key(source) {
                continue;
            }
            let same = before.remove(source).filter(|task| Arc::ptr_eq(&task.keys, keys));
            let task = same.unwrap_or_else(|| {
                let fetcher = Fetcher { control: Weak::clone(&control), outbound: Rc::clone(&outbound) };
                let handle = tokio::task::spawn_local(fetcher.follow(Arc::clone(keys))).abort_handle();
                Task { keys: Arc::clone(keys), handle }
            });
            tasks.insert(source.clone(), task);
        }
        drop((plan, before));
        if changes.changed().await.is_err() {
            return;
        }
    }
}

fn fetched_keys(plan: &Plan) -> impl Iterator<Item = &Arc<Keys>> {
    plan.routes.iter().flat_map(Route::fetched_keys)
}

struct Task {
    keys: Arc<Keys>,
    handle: AbortHandle,
}

impl Drop for Task {
    fn drop(&mut self) {
        self.handle.abort();
    }
}

/// What a fetch needs.
struct Fetcher {
    control: Weak<Control>,
    outbound: Rc<Outbound>,
}

impl Fetcher {
    async fn follow(self, keys: Arc<Keys>) {
        let Some(remote) = &keys.remote else { return };
        let url = &remote.source.url;
        let mut retry = RETRY_MIN;
        loop {
            let fetched = tokio::time::timeout(FETCH_MAX, self.fetch(&remote.source)).await;
            let fetched = fetched.unwrap_or_else(|_| Err("no answer in time".to_owned()));
            self.count(fetched.is_ok());
            let wait = match fetched {
                Ok((set, fresh_for)) => {
                    let (count, skipped) = (set.len(), set.skipped().join("; "));
                    if keys.fetched(Some(set)) {
                        message::info(&format!("{url}: fetched {count} keys"));
                        if !skipped.is_empty() {
                            message::warn(&format!("{url}: not all of its keys can be used: {skipped}"));
                        }
                    }
                    retry = RETRY_MIN;
                    fresh_for.unwrap_or(remote.source.refresh)
                }
                Err(reason) => {
                    keys.fetched(None);
                    let consequence = match keys.current().as_ref() {
                        Some(_) => "the last ones stay in use",
                        None => "until there are some, requests that need them get 503",
                    };
                    message::warn(&format!("cannot fetch keys from {url}: {reason}; {consequence}"));
                    let wait = retry;
                    retry = (retry * 2).min(RETRY_MAX);
                    wait
                }
            };
            let _ = tokio::time::timeout(wait, remote.wanted.notified()).await;
        }
    }

    fn count(&self, is_success: bool) {
        if let Some(control) = self.control.upgrade() {
            control.metrics.fetched_keys(is_success);
        }
    }

    /// The keys, and how long they are fresh if the response says so.
    async fn fetch(&self, source: &KeySource) -> Result<(KeySet, Option<Duration>), String> {
        let KeyUrl { server, path } = &source.url;
        let connection =
            self.outbound.connect("jwks", server, UpstreamTls::trusting(source.ca.clone())).await?;
        let authority = server.authority();
        let question = Question {
            host: &authority,
            path,
            agent: concat!("vanward/", env!("CARGO_PKG_VERSION")),
            // One more, to tell what is too large.
            body_bytes_max: KEYS_BYTES_MAX + 1,
        };
        let response = probe::get(&connection.into(), &question).await?;
        if response.status != 200 {
            return Err(format!("status {}", response.status));
        }
        if response.body.len() > KEYS_BYTES_MAX {
            return Err(format!("its answer is larger than {} KiB", KEYS_BYTES_MAX >> 10));
        }
        let set = KeySet::jwks(&response.body).map_err(|fault| fault.to_string())?;
        Ok((set, fresh_for(&response)))
    }
}

/// RFC 9111 §4.2.1 and §4.2.3: how long a response is fresh, within bounds; `None` if it does not say so.
fn fresh_for(response: &ProbeResponse) -> Option<Duration> {
    let values = |name: &'static str| {
        let of_name = response.headers.iter().filter(move |(known, _)| known == name);
        of_name.filter_map(|(_, value)| std::str::from_utf8(value).ok())
    };
    let seconds = |text: &str| text.trim().trim_matches('"').parse::<u64>().ok();
    let mut directives = values("cache-control").flat_map(|value| value.split(','));
    let max_age = directives.find_map(|directive| {
        let (name, value) = directive.trim().split_once('=')?;
        if name.eq_ignore_ascii_case("max-age") { seconds(value) } else { None }
    })?;
    let age = values("age").find_map(seconds).unwrap_or(0);
    Some(Duration::from_secs(max_age.saturating_sub(age)).clamp(*FRESH.start(), *FRESH.end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_says_how_long_its_keys_are_fresh_within_bounds() {
        for (headers, expected) in [
            (&[][..], None),
            (&[("cache-control", "public, max-age=300")], Some(300)),
            (&[("cache-control", "Max-Age=\"300\", public")], Some(300)),
            (&[("cache-control", "no-store"), ("cache-control", "max-age=600")], Some(600)),
            (&[("cache-control", "max-age=600"), ("age", "100")], Some(500)),
            (&[("cache-control", "max-age=0")], Some(60)),
            (&[("cache-control", "max-age=600"), ("age", "9999")], Some(60)),
            (&[("cache-control", "max-age=99999999999")], Some(86_400)),
            (&[("cache-control", "s-maxage=300, max-age=x")], None),
            (&[("expires", "tomorrow")], None),
        ] {
            let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), value.as_bytes().to_vec()));
            let response = ProbeResponse { headers: headers.collect(), ..ProbeResponse::default() };
            let expected = expected.map(Duration::from_secs);
            assert_eq!(fresh_for(&response), expected, "{:?}", response.headers);
        }
    }
}
