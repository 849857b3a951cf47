//! External sources of servers and of the configuration: which of them fail, since when and why. While a source
//! fails, its last data stays in force.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use proxy::context::plan::Plan;
use telemetry::{ConfigurationSample, SourceSample};

/// Maximum number of sources followed by other programs. There are two.
const FOLLOWED_MAX: usize = 16;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceFailure {
    /// Start of the failure, in seconds since 1970.
    pub since_seconds: u64,
    /// A sentence, including what stays in force.
    pub why: String,
}

/// A configuration shared by several instances, as this one has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedConfiguration {
    pub version: String,
    /// When it came into force, in seconds since 1970.
    pub since_seconds: u64,
    /// The instance's state: `current`, `trying`, `waiting` or `refusing`.
    pub state: &'static str,
    pub failure: Option<SourceFailure>,
    /// How often the store became unreachable.
    pub losses: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Sources(Mutex<SourcesState>);

#[derive(Debug, Default)]
struct SourcesState {
    configuration: Option<SharedConfiguration>,
    /// Sources followed by other programs: Docker, Kubernetes.
    followed: BTreeMap<String, Option<SourceFailure>>,
}

impl Sources {
    pub(crate) fn note_configuration(&self, configuration: SharedConfiguration) {
        self.state().configuration = Some(configuration);
    }

    /// Records that a source fails or works. The start of an ongoing failure stays. Returns whether there was room.
    pub(crate) fn note(&self, source: &str, failure: Option<String>) -> bool {
        let mut state = self.state();
        if state.followed.len() >= FOLLOWED_MAX && !state.followed.contains_key(source) {
            return false;
        }
        let since = state.followed.get(source).and_then(Option::as_ref).map(|before| before.since_seconds);
        let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
        let failure = failure.map(|why| SourceFailure { since_seconds: since.unwrap_or_else(now), why });
        state.followed.insert(source.to_owned(), failure);
        true
    }

    /// Describes each source that fails, or whose data is incomplete.
    pub(crate) fn problems(&self, plan: &Plan) -> Vec<String> {
        let state = self.state();
        let lost = state.configuration.iter().filter_map(|configuration| configuration.failure.as_ref());
        let told = lost.chain(state.followed.values().flatten());
        let mut problems: Vec<String> =
            told.map(|SourceFailure { since_seconds, why }| sentence(why, *since_seconds)).collect();
        for troubles in plan.names.troubles().values() {
            // Most often all names of a source have the same trouble.
            let Some((first, others)) = troubles.split_first() else { continue };
            let more =
                if others.is_empty() { String::new() } else { format!(" (and {} more)", others.len()) };
            problems.push(sentence(&first.why, first.since) + &more);
        }
        problems
    }

    pub(crate) fn samples(&self, plan: &Plan) -> Vec<SourceSample> {
        let names = plan.names.troubles().into_iter().map(|(source, troubles)| {
            let since = troubles.iter().filter(|trouble| trouble.is_failure).map(|trouble| trouble.since);
            (source.word().to_owned(), since.collect::<Vec<_>>())
        });
        let state = self.state();
        let followed = state.followed.iter().map(|(source, failure)| {
            (source.clone(), failure.iter().map(|failure| failure.since_seconds).collect())
        });
        let sample = |(source, since): (String, Vec<u64>)| SourceSample {
            source,
            failing: since.len(),
            since_seconds: since.into_iter().min(),
        };
        names.chain(followed).map(sample).collect()
    }

    pub(crate) fn configuration(&self) -> Option<ConfigurationSample> {
        let state = self.state();
        let SharedConfiguration { version, since_seconds, state, failure, losses } =
            state.configuration.clone()?;
        Some(ConfigurationSample { version, since_seconds, state, is_up: failure.is_none(), losses })
    }

    /// No holder of the lock here can panic halfway through a change.
    fn state(&self) -> MutexGuard<'_, SourcesState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn sentence(why: &str, since_seconds: u64) -> String {
    let since = i64::try_from(since_seconds).unwrap_or(i64::MAX);
    format!("{why} (since {})", tls::written_time(since))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_that_goes_on_began_when_it_began() {
        let sources = Sources::default();
        let failure = || sources.state().followed["docker"].clone();
        sources.note("docker", None);
        assert_eq!(failure(), None);
        sources.note("docker", Some("one".to_owned()));
        sources
            .state()
            .followed
            .insert("docker".to_owned(), Some(SourceFailure { since_seconds: 60, why: "one".to_owned() }));
        sources.note("docker", Some("two".to_owned()));
        assert_eq!(failure(), Some(SourceFailure { since_seconds: 60, why: "two".to_owned() }));
        assert_eq!(sentence("two", 60), "two (since 1970-01-01 00:01:00 UTC)");
        sources.note("docker", None);
        sources.note("docker", Some("three".to_owned()));
        assert!(failure().is_some_and(|failure| failure.since_seconds > 60));
    }
}
