//! What a fleet keeps in etcd beside its configuration: how new versions reach the instances, what was found about
//! versions, the versions themselves, and which instance runs which.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::etcd::{Client, Entry, Failure, Keys, Write};
use crate::location::Location;
use crate::rollout::{Policy, Verdict};
use crate::tree::Tree;

/// How many versions are kept for a rollback.
pub const VERSIONS_MAX: usize = 20;

/// What an instance does with the configuration in etcd.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It runs the version that is in etcd.
    Current,
    /// It tries the version that is in etcd, before the others.
    Trying,
    /// It waits until another instance has tried that version.
    Waiting,
    /// It refuses that version, for its mistakes, or because another instance found it bad.
    Refusing,
}

/// An instance, as it tells it itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// The version in force.
    pub version: String,
    /// What it does with the one in etcd.
    pub state: State,
    /// Why, where it is not obvious.
    pub why: String,
    /// When that began, in seconds since 1970.
    pub since: u64,
    /// The version of the program.
    pub program: String,
    /// Its process.
    pub process: u32,
    /// Requests per second, and those of them that failed, in the last seconds.
    pub requests_per_second: u64,
    /// Failed requests per second: those that got a 5xx.
    pub failures_per_second: u64,
}

/// A version that is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    /// What it is called.
    pub version: String,
    /// When it came to etcd, in seconds since 1970.
    pub at: u64,
    /// Its files.
    pub tree: Tree,
}

/// All that an instance goes by, at one revision.
#[derive(Debug, Clone, PartialEq)]
pub struct Seen {
    /// The revision of the store.
    pub revision: i64,
    /// The configuration, or what is wrong with it.
    pub tree: Result<Tree, String>,
    /// How new versions reach the instances.
    pub policy: Policy,
    /// What was found about the version.
    pub verdict: Option<Verdict>,
    /// The names of the instances that run, sorted; empty without a canary.
    pub running: Vec<String>,
    /// Where instances that share what they store reach each other.
    pub peers: Vec<String>,
}

impl Seen {
    /// The version in etcd; empty if it cannot be read.
    pub fn wanted(&self) -> String {
        self.tree.as_ref().map(Tree::version).unwrap_or_default()
    }
}

/// The store.
pub struct Store {
    /// Reads and writes.
    pub client: Client,
}

impl Store {
    fn location(&self) -> &Location {
        self.client.location()
    }

    /// The keys that say how new versions reach the instances.
    pub fn rollout(&self) -> Keys {
        Keys::Below(self.location().own("rollout/"))
    }

    /// The keys that say where instances reach each other.
    pub fn peers(&self) -> Keys {
        Keys::Below(self.location().own("peers/"))
    }

    /// Reads what an instance goes by.
    ///
    /// # Errors
    /// Why there is no answer, or what is wrong with the policy.
    pub async fn look(&self) -> Result<Seen, Failure> {
        let location = self.location();
        let (revision, found) = self.client.read(&[location.keys(), self.rollout(), self.peers()]).await?;
        let [files, rollout, peers] = &found[..] else {
            return Err(Failure::Refused("it answers something else than was asked".to_owned()));
        };
        let tree = Tree::of(location, files);
        let named = |name: &str| rollout.iter().find(|entry| entry.key == location.own(name));
        let policy: Policy = named("rollout/policy").map(read).transpose()?.unwrap_or_default();
        let version = tree.as_ref().map(Tree::version).unwrap_or_default();
        let verdict = named(&format!("rollout/verdicts/{version}")).map(read).transpose()?;
        // Who runs matters to a canary alone, and is long where there are many.
        let running = if policy.canary_seconds > 0 { self.names("instances/").await? } else { Vec::new() };
        let peers = peers.iter().filter_map(|entry| read(entry).ok()).collect();
        Ok(Seen { revision, tree, policy, verdict, running, peers })
    }

    /// What keys with this beginning are called, sorted.
    async fn names(&self, beginning: &str) -> Result<Vec<String>, Failure> {
        let beginning = self.location().own(beginning);
        let (_, found) = self.client.read(&[Keys::NamesBelow(beginning.clone())]).await?;
        let names = found.iter().flatten().filter_map(|entry| entry.key.strip_prefix(&beginning));
        // etcd sorts by key.
        Ok(names.map(str::to_owned).collect())
    }

    /// Says what an instance does, for as long as its lease lives.
    ///
    /// # Errors
    /// Why there is no answer.
    pub async fn tell(&self, member: &Member, lease: i64) -> Result<(), Failure> {
        let put = self.put(&format!("instances/{}", member.name), member, lease);
        self.client.write(&[], &[put]).await.map(drop)
    }

    /// Says where the others reach an instance, for as long as its lease lives; `None` takes it back.
    ///
    /// # Errors
    /// Why there is no answer.
    pub async fn tell_peer(&self, name: &str, address: Option<&str>, lease: i64) -> Result<(), Failure> {
        let key = format!("peers/{name}");
        let write = match address {
            Some(address) => self.put(&key, &address, lease),
            None => Write::Delete(Keys::One(self.location().own(&key))),
        };
        self.client.write(&[], &[write]).await.map(drop)
    }

    /// The instances that run.
    ///
    /// # Errors
    /// Why there is no answer.
    pub async fn members(&self) -> Result<Vec<Member>, Failure> {
        let (_, found) = self.client.read(&[Keys::Below(self.location().own("instances/"))]).await?;
        Ok(found.iter().flatten().filter_map(|entry| read(entry).ok()).collect())
    }

    /// Says what was found about a version, unless somebody has said so before.
    ///
    /// # Errors
    /// Why there is no answer.
    pub async fn judge(&self, version: &str, verdict: &Verdict) -> Result<(), Failure> {
        let name = format!("rollout/verdicts/{version}");
        let key = self.location().own(&name);
        self.client.write(&[(&key, 0)], &[self.put(&name, verdict, 0)]).await.map(drop)
    }

    /// Sets how new versions reach the instances.
    ///
    /// # Errors
    /// Why there is no answer.
    pub async fn set_policy(&self, policy: &Policy) -> Result<(), Failure> {
        self.client.write(&[], &[self.put("rollout/policy", policy, 0)]).await.map(drop)
    }

    /// Keeps a version for rollbacks, and forgets the oldest.
    ///
    /// # Errors
    /// Why there is no answer.
    pub async fn keep(&self, tree: &Tree) -> Result<(), Failure> {
        let version = tree.version();
        let name = format!("versions/{version}");
        // Each instance asks when it takes up a version: what is kept is read by whoever goes back to it.
        let beginning = self.location().own("versions/");
        let (_, found) = self.client.read(&[Keys::NamesBelow(beginning.clone())]).await?;
        let mut kept: Vec<&Entry> = found.iter().flatten().collect();
        kept.sort_by_key(|entry| std::cmp::Reverse(entry.modified));
        let kept: Vec<&str> = kept.iter().filter_map(|entry| entry.key.strip_prefix(&beginning)).collect();
        if kept.contains(&&*version) {
            return Ok(());
        }
        let mut writes = vec![self.put(&name, &Version { version, at: now(), tree: tree.clone() }, 0)];
        for old in kept.iter().skip(VERSIONS_MAX - 1) {
            let own = |name: &str| Keys::One(self.location().own(&format!("{name}/{old}")));
            writes.extend([Write::Delete(own("versions")), Write::Delete(own("rollout/verdicts"))]);
        }
        self.client.write(&[], &writes).await.map(drop)
    }

    /// The versions that are kept, the newest first.
    ///
    /// # Errors
    /// Why there is no answer.
    pub async fn versions(&self) -> Result<Vec<Version>, Failure> {
        let (_, found) = self.client.read(&[Keys::Below(self.location().own("versions/"))]).await?;
        let mut entries: Vec<&Entry> = found.iter().flatten().collect();
        // Several may come within a second, and clocks differ; revisions do not.
        entries.sort_by_key(|entry| std::cmp::Reverse(entry.modified));
        Ok(entries.into_iter().filter_map(|entry| read(entry).ok()).collect())
    }

    /// What was found about each version.
    ///
    /// # Errors
    /// Why there is no answer.
    pub async fn verdicts(&self) -> Result<Vec<(String, Verdict)>, Failure> {
        let beginning = self.location().own("rollout/verdicts/");
        let (_, found) = self.client.read(&[Keys::Below(beginning.clone())]).await?;
        let verdicts = found
            .iter()
            .flatten()
            .filter_map(|entry| Some((entry.key.strip_prefix(&beginning)?.to_owned(), read(entry).ok()?)));
        Ok(verdicts.collect())
    }

    /// Replaces the configuration by another version, all of it at once, unless it has changed since this revision.
    /// Takes back what was said of that version. Returns whether it did.
    ///
    /// # Errors
    /// Why there is no answer.
    pub async fn replace(&self, tree: &Tree, now_there: &[Entry]) -> Result<bool, Failure> {
        let location = self.location();
        let key = |name: &str| match location.is_one_file() {
            true => location.prefix.clone(),
            false => format!("{}/{name}", location.prefix),
        };
        let conditions: Vec<(&str, i64)> =
            now_there.iter().map(|entry| (entry.key.as_str(), entry.modified)).collect();
        let gone = now_there.iter().filter(|entry| !tree.files.keys().any(|name| key(name) == entry.key));
        let mut writes: Vec<Write> = gone.map(|entry| Write::Delete(Keys::One(entry.key.clone()))).collect();
        for (name, text) in &tree.files {
            let is_there = |entry: &Entry| entry.key == key(name) && entry.value == text.as_bytes();
            if !now_there.iter().any(is_there) {
                writes.push(Write::Put { key: key(name), value: text.clone().into_bytes(), lease: 0 });
            }
        }
        writes.push(Write::Delete(Keys::One(location.own(&format!("rollout/verdicts/{}", tree.version())))));
        self.client.write(&conditions, &writes).await
    }

    fn put(&self, name: &str, value: &impl Serialize, lease: i64) -> Write {
        // These types have no keys but texts, so this cannot fail.
        let value = serde_json::to_vec(value).unwrap_or_default();
        Write::Put { key: self.location().own(name), value, lease }
    }
}

fn read<T: DeserializeOwned>(entry: &Entry) -> Result<T, Failure> {
    serde_json::from_slice(&entry.value)
        .map_err(|error| Failure::Refused(format!("what is at {} cannot be read: {error}", entry.key)))
}

/// In seconds since 1970.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs()
}
