//! The fleet's state in etcd beside its configuration: the policy, verdicts, stored versions, and which instance
//! runs which version.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::etcd::{EtcdClient, EtcdFailure, EtcdKeys, KeyValue, Write};
use crate::location::Location;
use crate::rollout::{KnownVersion, RolloutPolicy, Trial, TrialVerdict};
use crate::tree::{FIRST, Tree};

/// The number of versions stored for rollbacks.
pub const VERSIONS_MAX: usize = 20;
const TRIAL: &str = "rollout/trial";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum InstanceState {
    Current,
    Trying,
    /// Waits until another instance has tried the version.
    Waiting,
    /// Refuses the version because of its mistakes, or because another instance found it bad.
    Refusing,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreMember {
    pub name: String,
    pub version: String,
    pub state: InstanceState,
    pub why: String,
    /// When the state began, in seconds since 1970.
    pub since: u64,
    pub program: String,
    pub process: u32,
    /// In the last seconds, with failed ones.
    pub requests_per_second: u64,
    /// Responses with 5xx per second.
    pub failures_per_second: u64,
}

impl InstanceState {
    pub fn word(self) -> &'static str {
        match self {
            Self::Current => "current",
            Self::Trying => "trying",
            Self::Waiting => "waiting",
            Self::Refusing => "refusing",
        }
    }
}

/// Whether at least one instance runs, and all run the version for good. A version on trial may be given up.
pub fn runs_everywhere(version: &str, members: &[StoreMember]) -> bool {
    let runs = |member: &StoreMember| member.state == InstanceState::Current && member.version == version;
    !version.is_empty() && !members.is_empty() && members.iter().all(runs)
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstanceStanding {
    pub version: String,
    /// When the version came into force here, in seconds since 1970.
    pub version_since: u64,
    pub state: InstanceState,
    /// Since when etcd does not answer, in seconds since 1970, and why; `None` while it answers.
    pub lost: Option<(u64, String)>,
    /// How often etcd became unreachable.
    pub losses: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredVersion {
    /// The digest of its files.
    pub version: String,
    /// When it was written to etcd, in seconds since 1970.
    pub at: u64,
    pub tree: Tree,
}

#[derive(Debug, Clone, PartialEq)]
pub struct SeenState {
    pub revision: i64,
    /// The configuration, or why there is none: etcd is empty, or its content is no configuration.
    pub tree: Result<Tree, String>,
    /// Empty if there is none.
    pub version: String,
    /// The revision of the configuration's last write.
    pub pushed: i64,
    pub policy: RolloutPolicy,
    pub verdict: Option<TrialVerdict>,
    /// The running trial, of any version.
    pub trial: Option<Trial>,
    /// The revision at which the trial was written; 0 if there is none.
    pub trial_written: i64,
    pub running: Vec<String>,
    pub peers: Vec<String>,
}

impl SeenState {
    pub(crate) fn known(&self) -> KnownVersion<'_> {
        let trial = self.trial.as_ref().filter(|trial| trial.version == self.version);
        KnownVersion {
            policy: &self.policy,
            wanted: self.tree.is_ok().then_some(&self.version),
            pushed: self.pushed,
            verdict: self.verdict.as_ref(),
            trial_by: trial.map(|trial| trial.by.as_str()),
            running: &self.running,
        }
    }
}

pub struct EtcdStore {
    pub client: EtcdClient,
}

impl EtcdStore {
    pub(crate) fn location(&self) -> &Location {
        self.client.location()
    }

    /// Keys with the policy, trials and verdicts.
    pub fn rollout(&self) -> EtcdKeys {
        EtcdKeys::Below(self.location().own("rollout/"))
    }

    /// Keys with the addresses of instances that share a cache.
    pub fn peers(&self) -> EtcdKeys {
        EtcdKeys::Below(self.location().own("peers/"))
    }

    /// Reads all inputs of an instance's decisions. An invalid policy is an error.
    pub async fn look(&self) -> Result<SeenState, EtcdFailure> {
        let location = self.location();
        let (revision, found) = self.client.read(&[location.keys(), self.rollout(), self.peers()]).await?;
        let [files, rollout, peers] = &found[..] else {
            return Err(EtcdFailure::Refused("it answers something else than was asked".to_owned()));
        };
        let tree = Tree::new(location, files).and_then(|tree| match tree.files.is_empty() {
            true => {
                Err(format!("etcd has no configuration at {location}: `vanward fleet push` puts one there"))
            }
            false => Ok(tree),
        });
        let named = |name: &str| rollout.iter().find(|entry| entry.key == location.own(name));
        let policy: RolloutPolicy = named("rollout/policy").map(read).transpose()?.unwrap_or_default();
        let version = tree.as_ref().map(Tree::version).unwrap_or_default();
        let verdict = named(&format!("rollout/verdicts/{version}")).map(read).transpose()?;
        let trial = named(TRIAL);
        // Only a canary needs the running instances, and the list may be long.
        let running = if policy.canary_seconds > 0 { self.running().await? } else { Vec::new() };
        Ok(SeenState {
            revision,
            tree,
            version,
            pushed: files.iter().map(|entry| entry.modified).max().unwrap_or(0),
            policy,
            verdict,
            // An unreadable trial counts as none: the next trial replaces it.
            trial: trial.and_then(|entry| read(entry).ok()),
            trial_written: trial.map_or(0, |entry| entry.modified),
            running,
            peers: peers.iter().filter_map(|entry| read(entry).ok()).collect(),
        })
    }

    /// Lists the running instances, sorted.
    pub(crate) async fn running(&self) -> Result<Vec<String>, EtcdFailure> {
        self.names("instances/").await
    }

    /// Claims a trial for an instance, bound to its lease. Returns `false` if another instance was first.
    pub(crate) async fn claim(
        &self,
        seen: &SeenState,
        trial: &Trial,
        lease: i64,
    ) -> Result<bool, EtcdFailure> {
        let key = self.location().own(TRIAL);
        let written =
            self.client.write(&[(&key, seen.trial_written)], &[self.put(TRIAL, trial, lease)]).await?;
        Ok(written.is_some())
    }

    async fn names(&self, beginning: &str) -> Result<Vec<String>, EtcdFailure> {
        let beginning = self.location().own(beginning);
        let (_, found) = self.client.read(&[EtcdKeys::NamesBelow(beginning.clone())]).await?;
        let names = found.iter().flatten().filter_map(|entry| entry.key.strip_prefix(&beginning));
        // etcd sorts by key.
        Ok(names.map(str::to_owned).collect())
    }

    /// Writes an instance's report, bound to its lease.
    pub async fn tell(&self, member: &StoreMember, lease: i64) -> Result<(), EtcdFailure> {
        let put = self.put(&format!("instances/{}", member.name), member, lease);
        self.client.write(&[], &[put]).await.map(drop)
    }

    /// Writes an instance's address for its peers, bound to its lease; `None` deletes it.
    pub async fn tell_peer(&self, name: &str, address: Option<&str>, lease: i64) -> Result<(), EtcdFailure> {
        let key = format!("peers/{name}");
        let write = match address {
            Some(address) => self.put(&key, &address, lease),
            None => Write::Delete(EtcdKeys::One(self.location().own(&key))),
        };
        self.client.write(&[], &[write]).await.map(drop)
    }

    /// Lists the reports of the running instances.
    pub async fn members(&self) -> Result<Vec<StoreMember>, EtcdFailure> {
        let (_, found) = self.client.read(&[EtcdKeys::Below(self.location().own("instances/"))]).await?;
        Ok(found.iter().flatten().filter_map(|entry| read(entry).ok()).collect())
    }

    /// Writes the verdict on a version, unless another instance already wrote one. Ends its trial.
    pub async fn judge(&self, version: &str, verdict: &TrialVerdict) -> Result<(), EtcdFailure> {
        let name = format!("rollout/verdicts/{version}");
        let key = self.location().own(&name);
        let writes = [self.put(&name, verdict, 0), self.no_trial()];
        self.client.write(&[(&key, 0)], &writes).await.map(drop)
    }

    fn no_trial(&self) -> Write {
        Write::Delete(EtcdKeys::One(self.location().own(TRIAL)))
    }

    pub async fn set_policy(&self, policy: &RolloutPolicy) -> Result<(), EtcdFailure> {
        self.client.write(&[], &[self.put("rollout/policy", policy, 0)]).await.map(drop)
    }

    /// Stores a version for rollbacks, and deletes the oldest.
    pub async fn keep(&self, tree: &Tree) -> Result<(), EtcdFailure> {
        let version = tree.version();
        let name = format!("versions/{version}");
        // Every instance calls this for a new version, so it reads names only; contents are read for a rollback.
        let beginning = self.location().own("versions/");
        let (_, found) = self.client.read(&[EtcdKeys::NamesBelow(beginning.clone())]).await?;
        let mut kept: Vec<&KeyValue> = found.iter().flatten().collect();
        kept.sort_by_key(|entry| std::cmp::Reverse(entry.modified));
        let kept: Vec<&str> = kept.iter().filter_map(|entry| entry.key.strip_prefix(&beginning)).collect();
        if kept.contains(&&*version) {
            return Ok(());
        }
        let mut writes = vec![self.put(&name, &StoredVersion { version, at: now(), tree: tree.clone() }, 0)];
        for old in kept.iter().skip(VERSIONS_MAX - 1) {
            let own = |name: &str| EtcdKeys::One(self.location().own(&format!("{name}/{old}")));
            writes.extend([Write::Delete(own("versions")), Write::Delete(own("rollout/verdicts"))]);
        }
        self.client.write(&[], &writes).await.map(drop)
    }

    /// Lists the stored versions, newest first.
    pub async fn versions(&self) -> Result<Vec<StoredVersion>, EtcdFailure> {
        let (_, found) = self.client.read(&[EtcdKeys::Below(self.location().own("versions/"))]).await?;
        let mut entries: Vec<&KeyValue> = found.iter().flatten().collect();
        // Several versions may have the same second, and clocks differ; revisions do not.
        entries.sort_by_key(|entry| std::cmp::Reverse(entry.modified));
        Ok(entries.into_iter().filter_map(|entry| read(entry).ok()).collect())
    }

    pub async fn verdicts(&self) -> Result<Vec<(String, TrialVerdict)>, EtcdFailure> {
        let beginning = self.location().own("rollout/verdicts/");
        let (_, found) = self.client.read(&[EtcdKeys::Below(beginning.clone())]).await?;
        let verdicts = found
            .iter()
            .flatten()
            .filter_map(|entry| Some((entry.key.strip_prefix(&beginning)?.to_owned(), read(entry).ok()?)));
        Ok(verdicts.collect())
    }

    /// Replaces the configuration in one transaction, unless it has changed since it was read. Deletes the verdict on
    /// the new version, so pushing the same version again starts a new trial. Returns whether it wrote.
    pub async fn replace(&self, tree: &Tree, now_there: &[KeyValue]) -> Result<bool, EtcdFailure> {
        let location = self.location();
        let key = |name: &str| match location.is_one_file() {
            true => location.prefix.clone(),
            false => format!("{}/{name}", location.prefix),
        };
        let conditions: Vec<(&str, i64)> =
            now_there.iter().map(|entry| (entry.key.as_str(), entry.modified)).collect();
        let gone = now_there.iter().filter(|entry| !tree.files.keys().any(|name| key(name) == entry.key));
        let mut writes: Vec<Write> =
            gone.map(|entry| Write::Delete(EtcdKeys::One(entry.key.clone()))).collect();
        for (name, text) in &tree.files {
            let is_there = |entry: &KeyValue| entry.key == key(name) && entry.value == text.as_bytes();
            // The revision of the first file shows instances that the version was pushed again.
            if name == FIRST || !now_there.iter().any(is_there) {
                writes.push(Write::Put { key: key(name), value: text.clone().into_bytes(), lease: 0 });
            }
        }
        writes.push(Write::Delete(EtcdKeys::One(
            location.own(&format!("rollout/verdicts/{}", tree.version())),
        )));
        writes.push(self.no_trial());
        Ok(self.client.write(&conditions, &writes).await?.is_some())
    }

    pub(crate) fn put(&self, name: &str, value: &impl Serialize, lease: i64) -> Write {
        // These types have only string keys, so serialization cannot fail.
        let value = serde_json::to_vec(value).unwrap_or_default();
        Write::Put { key: self.location().own(name), value, lease }
    }
}

pub(crate) fn read<T: DeserializeOwned>(entry: &KeyValue) -> Result<T, EtcdFailure> {
    serde_json::from_slice(&entry.value)
        .map_err(|error| EtcdFailure::Refused(format!("what is at {} cannot be read: {error}", entry.key)))
}

/// In seconds since 1970.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(version: &str, state: InstanceState) -> StoreMember {
        StoreMember {
            name: "edge-1".to_owned(),
            version: version.to_owned(),
            state,
            why: String::new(),
            since: 0,
            program: String::new(),
            process: 1,
            requests_per_second: 0,
            failures_per_second: 0,
        }
    }

    /// Exit code 0 lets a release continue, so a version must be known to run everywhere.
    #[test]
    fn a_version_runs_everywhere_if_every_instance_says_that_it_does() {
        use InstanceState::{Current, Refusing, Trying, Waiting};
        for (version, members, expected) in [
            ("2", &[("2", Current), ("2", Current)][..], true),
            ("2", &[("2", Current), ("1", Current)], false),
            ("2", &[("1", Current)], false),
            ("2", &[("2", Current), ("2", Trying)], false),
            ("2", &[("2", Trying), ("1", Waiting)], false),
            ("2", &[("2", Current), ("1", Refusing)], false),
            // No instance runs, or etcd is empty.
            ("2", &[], false),
            ("", &[("", Current)], false),
        ] {
            let members: Vec<StoreMember> =
                members.iter().map(|(version, state)| member(version, *state)).collect();
            assert_eq!(runs_everywhere(version, &members), expected, "{version} {members:?}");
        }
    }
}
