//! Maps that instances share: a change goes to what shares it, and is in force once it comes back.

use std::sync::{Arc, Mutex, OnceLock};

use control::{Handle, Running, Setup, SharedBase, SharedMapOrder, SharedState};
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::admin;
use testkit::scene::read;

const TEXT: &str = "admin = \"{dir}/admin\"\n[[listen]]\naddress = \"127.0.0.1:0\"\n\
                    [map.tenant]\nkey = 'request.host'\nentries = { a = \"file\" }\n\
                    [[route]]\nrespond = { status = 204 }\n";

/// A proxy whose changes of maps go to a store, which can be unreachable.
struct Shared {
    running: Running,
    directory: TempDir,
    is_reachable: Arc<Mutex<bool>>,
}

impl Shared {
    fn start() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let text = TEXT.replace("{dir}", &directory.path().display().to_string());
        let (handle, is_reachable) = (Arc::new(OnceLock::<Handle>::new()), Arc::new(Mutex::new(true)));
        let (own, reachable) = (Arc::clone(&handle), Arc::clone(&is_reachable));
        let share = move |name: &str, order: SharedMapOrder| {
            if !*reachable.lock().expect("no thread panics") {
                return Err("etcd does not answer".to_owned());
            }
            let own = own.get().expect("it has started");
            let replaced = |base| {
                let generation = Some("1".to_owned());
                own.take_map(name, SharedState { generation, base, changes: Vec::new() });
            };
            match order {
                SharedMapOrder::Change(changes) => own.take_map_changes(name, &changes),
                SharedMapOrder::Replace(text) => replaced(SharedBase::Text(text)),
                SharedMapOrder::Reset => replaced(SharedBase::Configuration),
            }
            Ok(())
        };
        let setup = Setup { share_map: Some(Box::new(share)), ..Setup::default() };
        let running = control::start_with(read(&text), setup).unwrap_or_else(|error| panic!("{error}"));
        assert!(handle.set(running.handle()).is_ok());
        Self { running, directory, is_reachable }
    }

    fn post(&self, place: &str, body: &str) -> (u16, Value) {
        let (status, told) = admin::asks(&self.directory.path().join("admin"), "POST", place, body);
        (status, serde_json::from_str(&told).expect("it is JSON"))
    }

    fn lookup(&self, key: &str) -> Value {
        self.post("/maps/tenant/lookup", &json!({ "key": key }).to_string()).1
    }
}

#[test]
fn a_change_is_for_all_or_refused() {
    let shared = Shared::start();
    let set = |value: &str| json!({ "set": [{ "key": "a", "value": value }] }).to_string();
    let changed =
        |told: &Value| (told["changes"].as_u64().expect("a number"), told["is_shared"] == json!(true));
    for (place, body, changes, value) in [
        ("/maps/tenant/change", set("all"), 1, json!("all")),
        ("/maps/tenant/replace", "b text\n".to_owned(), 1, Value::Null),
        ("/maps/tenant/reset", String::new(), 1, json!("file")),
    ] {
        let (status, told) = shared.post(place, &body);
        assert_eq!((status, changed(&told)), (200, (changes, true)), "{place}: {told}");
        assert_eq!(shared.lookup("a")["value"], value, "{place}");
    }
    *shared.is_reachable.lock().expect("no thread panics") = false;
    for (place, body) in [
        ("/maps/tenant/change", set("refused")),
        ("/maps/tenant/replace", "b refused\n".to_owned()),
        ("/maps/tenant/reset", String::new()),
    ] {
        let (status, told) = shared.post(place, &body);
        assert_eq!(status, 503, "{place}: {told}");
        let error = told["error"].as_str().expect("a text");
        let expected = "map.tenant is shared with other instances, and nothing has changed here: etcd does not answer; \
                        `--here` changes this instance alone";
        assert_eq!(error, expected);
        assert_eq!(shared.lookup("a")["value"], "file", "{place}");
    }
    // A mistake is one before anything is shared.
    let (status, told) = shared.post("/maps/tenant/change", &json!({ "set": [{ "key": "a" }] }).to_string());
    assert_eq!(status, 422, "{told}");
    for (place, body, value) in [
        ("/maps/tenant/change?here", set("here"), json!("here")),
        ("/maps/tenant/replace?here", "b text\n".to_owned(), Value::Null),
        ("/maps/tenant/reset?here", String::new(), json!("file")),
    ] {
        let (status, told) = shared.post(place, &body);
        assert_eq!((status, changed(&told)), (200, (1, false)), "{place}: {told}");
        assert_eq!(shared.lookup("a")["value"], value, "{place}");
    }
    let (status, told) = shared.post("/maps/tenant/reset?everywhere", "");
    assert_eq!(status, 400);
    assert_eq!(told["error"], "the query may be ?here, not ?everywhere");
}

#[test]
fn a_map_says_how_current_it_is() {
    let shared = Shared::start();
    let status = || {
        let (_, told) = admin::asks(&shared.directory.path().join("admin"), "GET", "/maps", "");
        serde_json::from_str::<Value>(&told).expect("it is JSON")[0]["shared"].clone()
    };
    assert_eq!(status(), json!({ "as_of": null }));
    shared.running.handle().note_maps(1_764_482_400);
    assert_eq!(status(), json!({ "as_of": 1_764_482_400 }));
    assert_eq!(shared.lookup("a")["shared"], status());
}
