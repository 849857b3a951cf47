//! Changes of maps through etcd: every instance gets each change, also those that start later or had lost etcd.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use fleet::{
    ChangedEntry, EtcdCredentials, FollowedProxy, InstanceOptions, InstanceStanding, Location, MapBase,
    MapChange, MapOrder, MapState, MapWork, WrittenSecrets,
};
use tempfile::TempDir;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

use crate::fake_etcd::FakeEtcd;

/// Far longer than any step takes.
const PATIENCE: Duration = Duration::from_secs(60);
const MAP: &str = "banned";

/// A map as an instance has it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Known {
    generation: Option<String>,
    /// `None` for the entries of the configuration.
    text: Option<Vec<u8>>,
    changes: BTreeMap<String, ChangedEntry>,
    /// How often the base came from etcd.
    bases: usize,
}

#[derive(Default)]
struct Shared {
    known: Mutex<Known>,
    changed: Condvar,
}

impl Shared {
    fn locked(&self) -> MutexGuard<'_, Known> {
        self.known.lock().expect("no thread panics")
    }

    fn take(&self, changes: Vec<MapChange>) {
        let mut known = self.locked();
        for MapChange { key, entry } in changes {
            match entry {
                Some(entry) => known.changes.insert(key, entry),
                None => known.changes.remove(&key),
            };
        }
        drop(known);
        self.changed.notify_all();
    }
}

struct Proxy(Arc<Shared>);

impl FollowedProxy for Proxy {
    fn reload(&self) -> Result<(), String> {
        Ok(())
    }

    fn requests(&self) -> (u64, u64) {
        (0, 0)
    }

    fn peer_address(&self) -> Option<String> {
        None
    }

    fn take_peers(&self, _: &[String]) {}

    fn maps(&self) -> Vec<(String, Option<String>)> {
        vec![(MAP.to_owned(), self.0.locked().generation.clone())]
    }

    fn take_map(&self, name: &str, MapState { generation, base, changes }: MapState) {
        assert_eq!(name, MAP);
        let mut known = self.0.locked();
        known.generation = generation;
        known.changes.clear();
        match base {
            MapBase::Known => {}
            MapBase::Configuration => (known.text, known.bases) = (None, known.bases + 1),
            MapBase::Text(text) => (known.text, known.bases) = (Some(text), known.bases + 1),
        }
        drop(known);
        self.0.take(changes);
    }

    fn take_map_changes(&self, name: &str, changes: Vec<MapChange>) {
        assert_eq!(name, MAP);
        self.0.take(changes);
    }

    fn note_maps(&self, as_of: u64) {
        assert!(as_of > 0);
    }

    fn note(&self, _: &InstanceStanding) {}

    fn warn(&self, _: &str) {}

    fn inform(&self, _: &str) {}
}

struct Instance {
    shared: Arc<Shared>,
    orders: UnboundedSender<MapOrder>,
    /// Dropping it ends the instance.
    _end: oneshot::Sender<()>,
}

impl Instance {
    fn start(etcd: &FakeEtcd, name: &str, folder: PathBuf) -> Self {
        let options = InstanceOptions {
            location: Location::parse(&format!("etcd+http://{}/edge", etcd.address)).expect("is a URL"),
            access: EtcdCredentials::default(),
            name: name.to_owned(),
            folder,
            program: String::new(),
            secrets: WrittenSecrets::Refused,
        };
        let shared = Arc::new(Shared::default());
        let ((orders, ordered), (end, ended)) = (unbounded_channel(), oneshot::channel());
        let proxy = Proxy(Arc::clone(&shared));
        thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build_local(Default::default());
            runtime.expect("a runtime").block_on(async {
                let beginning = fleet::begin(options).await.expect("etcd has a configuration");
                beginning.follow(proxy, ordered, ended).await;
            });
        });
        Self { shared, orders, _end: end }
    }

    fn makes(&self, work: MapWork) -> Result<(), String> {
        let (reply, outcome) = oneshot::channel();
        self.orders.send(MapOrder { map: MAP.to_owned(), work, reply }).expect("it follows");
        outcome.blocking_recv().expect("it replies")
    }

    fn changes(&self, changes: &[(&str, Option<ChangedEntry>)]) -> Result<(), String> {
        let change = |(key, entry): &(&str, Option<ChangedEntry>)| MapChange {
            key: (*key).to_owned(),
            entry: entry.clone(),
        };
        self.makes(MapWork::Change(changes.iter().map(change).collect()))
    }

    fn keys(&self) -> Vec<String> {
        self.shared.locked().changes.keys().cloned().collect()
    }

    fn until(&self, what: &str, is_so: impl Fn(&Known) -> bool) {
        let waited =
            self.shared.changed.wait_timeout_while(self.shared.locked(), PATIENCE, |known| !is_so(known));
        let (known, timeout) = waited.expect("no thread panics");
        assert!(!timeout.timed_out(), "{what}: {known:?}");
    }
}

fn set(value: &str) -> Option<ChangedEntry> {
    Some(ChangedEntry { value: Some(value.to_owned()), ends_ms: None })
}

fn scene() -> (FakeEtcd, TempDir) {
    let etcd = FakeEtcd::start();
    let text = "[[listen]]\naddress = \"127.0.0.1:0\"\n[[route]]\nrespond = { status = 204 }\n";
    etcd.put("/edge/vanward.toml", text);
    (etcd, tempfile::tempdir().expect("a folder"))
}

#[test]
fn each_instance_gets_each_change() {
    let (etcd, folder) = scene();
    let start = |name: &str| Instance::start(&etcd, name, folder.path().join(name));
    let (one, two) = (start("one"), start("two"));
    let deleted = Some(ChangedEntry { value: None, ends_ms: None });
    let ending = Some(ChangedEntry { value: Some("x".to_owned()), ends_ms: Some(4_000_000_000_000) });
    one.changes(&[("a", set("1")), ("b", set("2")), ("c/d e\"ü", ending.clone())]).expect("etcd answers");
    assert_eq!(one.keys(), ["a", "b", "c/d e\"ü"], "the reply comes after the change");
    two.until("it has all entries", |known| known.changes.len() == 3);
    assert_eq!(two.shared.locked().changes.get("c/d e\"ü"), ending.as_ref());
    two.changes(&[("a", deleted.clone()), ("b", None)]).expect("etcd answers");
    one.until("it has the changes of the other one", |known| known.changes.len() == 2);
    assert_eq!(one.shared.locked().changes.get("a"), deleted.as_ref());
    let late = start("late");
    late.until("it has the state", |known| known.changes == one.shared.locked().changes);
    // A change of nothing is answered, too.
    one.changes(&[("none", None)]).expect("etcd answers");
}

#[test]
fn a_replacement_arrives_as_a_whole() {
    let (etcd, folder) = scene();
    let start = |name: &str| Instance::start(&etcd, name, folder.path().join(name));
    let (one, two) = (start("one"), start("two"));
    one.changes(&[("a", set("1"))]).expect("etcd answers");
    for length in [500_000, 0, 7] {
        let text: Vec<u8> = (0..length).map(|at: u32| b"abc\n"[at as usize % 4]).collect();
        one.makes(MapWork::Replace(text.clone())).expect("etcd answers");
        for instance in [&one, &two] {
            let has_it = |known: &Known| known.text.as_ref() == Some(&text) && known.changes.is_empty();
            instance.until("it has the replacement", has_it);
        }
        let pieces = etcd.keys("/edge.fleet/map-pieces/banned/");
        assert_eq!(pieces.len(), (length as usize).div_ceil(128 << 10).max(1), "the old ones are deleted");
    }
    two.changes(&[("b", set("2"))]).expect("etcd answers");
    let late = start("late");
    let state = two.shared.locked().clone();
    late.until("it has both", |known| {
        (&known.generation, &known.text, &known.changes) == (&state.generation, &state.text, &state.changes)
    });
    two.makes(MapWork::Reset).expect("etcd answers");
    for instance in [&one, &two, &late] {
        instance.until("it is reset", |known| known.text.is_none() && known.changes.is_empty());
    }
    assert!(etcd.keys("/edge.fleet/map-pieces/").is_empty());
    assert!(etcd.keys("/edge.fleet/maps/changes/").is_empty());
}

#[test]
fn a_long_list_takes_several_writes() {
    let (etcd, folder) = scene();
    let one = Instance::start(&etcd, "one", folder.path().join("one"));
    one.changes(&[("a", set("1"))]).expect("etcd answers");
    let before = etcd.writes();
    let keys: Vec<String> = (0..2500).map(|number| format!("key {number:04}")).collect();
    let changes: Vec<(&str, Option<ChangedEntry>)> =
        keys.iter().map(|key| (key.as_str(), set("x"))).collect();
    one.changes(&changes).expect("etcd answers");
    assert_eq!(one.keys().len(), 2501);
    // The instance reports itself, too.
    assert!((25..35).contains(&(etcd.writes() - before)), "{}", etcd.writes() - before);
    let late = Instance::start(&etcd, "late", folder.path().join("late"));
    late.until("it has all of them", |known| known.changes.len() == 2501);
}

#[test]
fn a_text_that_is_too_large_is_refused() {
    let (etcd, folder) = scene();
    let one = Instance::start(&etcd, "one", folder.path().join("one"));
    let refused = one.makes(MapWork::Replace(vec![b'a'; (32 << 20) + 1]));
    let expected = "its text has 33 MiB, and etcd takes 32: put it into a file of the map on each machine";
    assert_eq!(refused, Err(expected.to_owned()));
}

#[test]
fn without_etcd_a_change_is_refused_and_later_ones_arrive() {
    let (etcd, folder) = scene();
    let start = |name: &str| Instance::start(&etcd, name, folder.path().join(name));
    let (one, two) = (start("one"), start("two"));
    one.makes(MapWork::Replace(b"192.0.2.1".to_vec())).expect("etcd answers");
    two.until("it has the replacement", |known| known.text.is_some());
    etcd.set_down(true);
    let refused = one.changes(&[("a", set("1"))]).expect_err("etcd is down");
    assert!(refused.starts_with(&format!("etcd does not answer: {}: ", etcd.address)), "{refused}");
    assert!(one.keys().is_empty());
    // As another program would, or an instance that reaches etcd.
    etcd.put("/edge.fleet/maps/changes/banned/b", r#"{"value":"2","ends_ms":null}"#);
    etcd.put("/edge.fleet/maps/changes/banned/wrong", "nonsense");
    etcd.set_down(false);
    for instance in [&one, &two] {
        instance.until("it has what it missed", |known| known.changes.keys().eq(["b"]));
        assert_eq!(instance.shared.locked().bases, 1, "the replacement is not read again");
    }
    two.changes(&[("c", set("3"))]).expect("etcd answers");
    one.until("it follows again", |known| known.changes.len() == 2);
}
