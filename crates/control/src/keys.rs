//! Keys of tokens and of bots (JWKS): fetched, kept, and fetched again before they expire. A task for each URL, on
//! the control thread.
//!
//! After a failed fetch, the last keys stay in use.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::time::Duration;

use config::{KeySource, KeyUrl, Scheme, UpstreamTls};
use jwt::KeySet;
use proxy::context::plan::{LiveTokenKeys, Plan, RemoteKeys};
use telemetry::message;
use tokio::task::AbortHandle;

use crate::change::Control;
use crate::outbound::Outbound;
use crate::probe::{self, ProbeRequest, ProbeResponse};

/// The largest key set: dozens of keys with their certificates.
const KEYS_BYTES_MAX: usize = 256 * 1024;
/// Maximum time of a fetch, from the name look-up to the last byte.
const FETCH_MAX: Duration = Duration::from_secs(10);
/// Delay after the first failure; each further one doubles it.
const RETRY_MIN: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(60);
/// Bounds for the lifetime that a response has.
const FRESH: std::ops::RangeInclusive<Duration> = Duration::from_secs(60)..=Duration::from_secs(24 * 60 * 60);

pub(crate) async fn run(control: Weak<Control>, outbound: Rc<Outbound>) {
    let Some(mut changes) = control.upgrade().map(|control| control.changes.subscribe()) else { return };
    let mut tasks: HashMap<KeySource, KeysTask> = HashMap::new();
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
                KeysTask { keys: Arc::clone(keys), handle }
            });
            tasks.insert(source.clone(), task);
        }
        drop((plan, before));
        if changes.changed().await.is_err() {
            return;
        }
    }
}

fn fetched_keys(plan: &Plan) -> impl Iterator<Item = &Arc<LiveTokenKeys>> {
    plan.routes.iter().flat_map(|route| route.fetched_keys())
}

struct KeysTask {
    keys: Arc<LiveTokenKeys>,
    handle: AbortHandle,
}

impl Drop for KeysTask {
    fn drop(&mut self) {
        self.handle.abort();
    }
}

struct Fetcher {
    control: Weak<Control>,
    outbound: Rc<Outbound>,
}

impl Fetcher {
    async fn follow(self, keys: Arc<LiveTokenKeys>) {
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
                        None => "until a fetch succeeds, requests that need keys get 503",
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

    /// Fetches the keys. Returns them with the lifetime in the response, if there is one.
    async fn fetch(&self, source: &KeySource) -> Result<(KeySet, Option<Duration>), String> {
        let response = match &source.issuer {
            None => self.get(source, &source.url).await?,
            Some(issuer) => {
                let document = self.get(source, &source.url).await?;
                let url = keys_of_provider(&document.body, issuer, &source.url)?;
                self.get(source, &url).await.map_err(|reason| format!("{url}: {reason}"))?
            }
        };
        let set = KeySet::jwks(&response.body).map_err(|fault| fault.to_string())?;
        Ok((set, fresh_for(&response)))
    }

    async fn get(&self, source: &KeySource, url: &KeyUrl) -> Result<ProbeResponse, String> {
        let KeyUrl { server, path } = url;
        let connection =
            self.outbound.connect("jwks", server, UpstreamTls::trusting(source.ca.clone())).await?;
        let authority = server.authority();
        let question = ProbeRequest {
            host: &authority,
            path,
            agent: concat!("vanward/", env!("CARGO_PKG_VERSION")),
            // One byte more shows that the body is too large.
            body_bytes_max: KEYS_BYTES_MAX + 1,
        };
        let response = probe::get(&connection.into(), &question).await?;
        if response.status != 200 {
            return Err(format!("status {}", response.status));
        }
        if response.body.len() > KEYS_BYTES_MAX {
            return Err(format!("its answer is larger than {} KiB", KEYS_BYTES_MAX >> 10));
        }
        Ok(response)
    }
}

/// Returns the URL of an issuer's keys from its provider configuration (OpenID Connect Discovery 1.0 §4.2, §4.3).
fn keys_of_provider(document: &[u8], issuer: &str, asked: &KeyUrl) -> Result<KeyUrl, String> {
    #[derive(serde::Deserialize)]
    struct Provider {
        issuer: String,
        jwks_uri: String,
    }
    let provider: Provider =
        serde_json::from_slice(document).map_err(|error| mistake::json_error(&error.to_string()))?;
    // §4.3: otherwise another issuer's document could name its own keys.
    if provider.issuer != issuer {
        return Err(format!("its issuer is {:?}, but {issuer:?} is configured", provider.issuer));
    }
    let url = config::key_url(&provider.jwks_uri).map_err(|error| format!("jwks_uri: {}", error.fault))?;
    let is_plain = |url: &KeyUrl| url.server.scheme == Scheme::Http;
    if is_plain(&url) && !is_plain(asked) {
        return Err(format!("jwks_uri: {url} is not https: anyone on the path can replace the keys"));
    }
    Ok(url)
}

/// RFC 9111 §4.2.1 and §4.2.3: the lifetime of a response, within bounds; `None` if it has none.
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
    fn the_keys_of_a_provider_are_where_its_own_document_says() {
        const ISSUER: &str = "https://id.example/realms/shop";
        let asked = config::key_url(ISSUER).expect("is a URL");
        let document =
            |issuer: &str, uri: &str| format!(r#"{{"issuer":"{issuer}","jwks_uri":"{uri}","x":1}}"#);
        let keys = "https://keys.example:8443/certs?a=b";
        let found = keys_of_provider(document(ISSUER, keys).as_bytes(), ISSUER, &asked);
        assert_eq!(found.map(|url| url.to_string()).as_deref(), Ok(keys));
        for (document, expected) in [
            (document("https://id.example/realms/shop/", keys), "its issuer is"),
            (document(ISSUER, "http://keys.example/certs"), "is not https"),
            (document(ISSUER, "certs"), "jwks_uri: \"certs\" has no scheme"),
            (format!(r#"{{"issuer":"{ISSUER}"}}"#), "missing field `jwks_uri`"),
            ("[]".to_owned(), "expected an object"),
            (String::new(), "the text ends too early"),
        ] {
            let refused = keys_of_provider(document.as_bytes(), ISSUER, &asked).expect_err(&document);
            assert!(refused.contains(expected), "{document}: {refused}");
        }
    }

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
