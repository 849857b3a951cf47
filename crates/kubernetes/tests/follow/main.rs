//! An instance follows a cluster whose API server the test plays.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use kubernetes::{
    ClusterCredentials, CurrentConfig, Following, FollowingProxy, LocationFlags, OperatorOptions,
};
use serde_json::{Value, json};

use api::{Api, Asked};

/// A fake API server.
mod api;

const PATIENCE: Duration = Duration::from_secs(60);

struct Instance {
    told: Receiver<Told>,
    end: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, PartialEq)]
enum Told {
    Routes(Vec<String>),
    Users(usize),
    Failure(Option<String>),
    Message(String),
}

struct Test {
    current: CurrentConfig,
    told: Sender<Told>,
}

impl FollowingProxy for Test {
    fn reload(&self) -> Result<(), String> {
        let _ = self.told.send(Told::Users(users(&self.current)));
        let _ = self.told.send(Told::Routes(routes(&self.current)));
        Ok(())
    }

    fn note(&self, failure: Option<String>) {
        let _ = self.told.send(Told::Failure(failure));
    }

    fn warn(&self, message: &str) {
        let _ = self.told.send(Told::Message(message.to_owned()));
    }

    fn inform(&self, message: &str) {
        self.warn(message);
    }
}

/// Names of the routes without ports, except the readiness route.
fn routes(current: &CurrentConfig) -> Vec<String> {
    let config = current.examine().config.expect("it is valid");
    let names = config.routes.iter().skip(1).map(|route| route.name.split(' ').next().unwrap_or_default());
    names.map(str::to_owned).collect()
}

fn users(current: &CurrentConfig) -> usize {
    let config = current.examine().config.expect("it is valid");
    let auth = config.routes.iter().filter_map(|route| route.policies.auth.as_ref());
    auth.map(|auth| auth.users.len()).sum()
}

impl Instance {
    fn new(api: &Api, token: Option<PathBuf>) -> Self {
        let mut access = ClusterCredentials::parse(
            &format!("kubernetes+http://{}", api.address),
            LocationFlags::default(),
            |_| None,
        )
        .expect("a URL");
        access.token = token;
        let following = Following {
            access,
            options: OperatorOptions {
                controller: "vanward.dev/gateway".to_owned(),
                addresses: vec!["192.0.2.1".to_owned()],
                base: None,
                ready: "127.0.0.1:9000".parse().expect("an address"),
                ingress_ports: [api.port(), 443],
                cookie_secret: None,
            },
            instance: "one".to_owned(),
            lease: ("infra".to_owned(), "vanward-gateway".to_owned()),
            takes_over: false,
        };
        let (sender, told) = channel();
        let (end, ended) = tokio::sync::oneshot::channel();
        let thread = std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build_local(Default::default());
            runtime.expect("a runtime").block_on(async {
                let tell = sender.clone();
                let tell = move |message: &str| drop(tell.send(Told::Message(message.to_owned())));
                let beginning = kubernetes::begin(following, tell).await.expect("a cluster");
                let current = beginning.current.clone();
                let _ = sender.send(Told::Users(users(&current)));
                let _ = sender.send(Told::Routes(routes(&current)));
                beginning.follow(Test { current, told: sender }, ended).await;
            });
        });
        Self { told, end: Some(end), thread: Some(thread) }
    }

    fn serves(&self, expected: &[&str]) {
        let mut seen = Vec::new();
        loop {
            match self.told.recv_timeout(PATIENCE) {
                Ok(Told::Routes(routes)) if routes == expected => return,
                Ok(told) => seen.push(told),
                Err(_) => panic!("{expected:?} are awaited, not {seen:?}"),
            }
        }
    }

    fn lets_in(&self, expected: usize) {
        let mut seen = Vec::new();
        loop {
            match self.told.recv_timeout(PATIENCE) {
                Ok(Told::Users(users)) if users == expected => return,
                Ok(told) => seen.push(told),
                Err(_) => panic!("{expected} users are awaited, not {seen:?}"),
            }
        }
    }

    fn says(&self, expected: &str) {
        let mut seen = Vec::new();
        loop {
            match self.told.recv_timeout(PATIENCE) {
                Ok(Told::Message(message)) if message.contains(expected) => return,
                Ok(told) => seen.push(told),
                Err(_) => panic!("{expected:?} is awaited, not {seen:?}"),
            }
        }
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
            && !std::thread::panicking()
        {
            panic!("the instance panicked");
        }
    }
}

fn object(namespace: &str, name: &str, version: u64, spec: Value) -> Value {
    json!({ "metadata": { "namespace": namespace, "name": name, "resourceVersion": version.to_string(),
        "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z" }, "spec": spec })
}

fn route(name: &str, version: u64) -> Value {
    let spec = json!({ "parentRefs": [{ "name": "edge", "namespace": "infra" }], "hostnames": [format!("{name}.example")],
        "rules": [{ "filters": [{ "type": "RequestRedirect", "requestRedirect": { "hostname": "x.example" } }] }] });
    object("infra", name, version, spec)
}

fn cluster(routes: &[&str]) -> Api {
    let api = Api::new();
    api.has("gatewayclasses", object("", "vanward", 1, json!({ "controllerName": "vanward.dev/gateway" })));
    let listener = json!({ "name": "http", "port": api.port(), "protocol": "HTTP" });
    api.has(
        "gateways",
        object("infra", "edge", 2, json!({ "gatewayClassName": "vanward", "listeners": [listener] })),
    );
    routes.iter().for_each(|name| api.has("httproutes", route(name, 3)));
    api
}

fn watches(plural: &'static str) -> impl Fn(&Asked) -> bool {
    move |asked: &Asked| asked.path.contains(&format!("/{plural}?watch=1"))
}

fn lists(plural: &'static str) -> impl Fn(&Asked) -> bool {
    move |asked: &Asked| asked.path.contains(&format!("/{plural}?limit="))
}

const A: &str = "infra/a/0/0";
const B: &str = "infra/b/0/0";

#[test]
fn changes_from_a_watch_are_applied() {
    let api = cluster(&["a"]);
    let instance = Instance::new(&api, None);
    instance.serves(&[A]);
    api.waits_for(1, watches("httproutes"));
    api.tells("httproutes", "ADDED", &route("b", 11));
    instance.serves(&[A, B]);
    api.tells("httproutes", "DELETED", &route("a", 12));
    instance.serves(&[B]);
    assert_eq!(api.count(lists("httproutes")), 1);
    for of_type in ["fieldSelector=type%3Dkubernetes.io%2Ftls", "fieldSelector=type%3DOpaque"] {
        api.waits_for(1, |asked| watches("secrets")(asked) && asked.path.contains(of_type));
    }
}

#[test]
fn a_lost_watch_goes_on_where_it_was_and_bookmarks_count() {
    let api = cluster(&["a"]);
    let instance = Instance::new(&api, None);
    instance.serves(&[A]);
    assert!(api.waits_for(1, watches("httproutes")).path.contains("resourceVersion=10"));
    api.tells("httproutes", "ADDED", &route("b", 11));
    instance.serves(&[A, B]);
    api.loses("httproutes");
    assert!(api.waits_for(2, watches("httproutes")).path.contains("resourceVersion=11"));
    api.tells("httproutes", "BOOKMARK", &json!({ "metadata": { "resourceVersion": "40" } }));
    api.tells("httproutes", "DELETED", &route("a", 41));
    instance.serves(&[B]);
    api.tells("httproutes", "BOOKMARK", &json!({ "metadata": { "resourceVersion": "50" } }));
    api.tells("httproutes", "ADDED", &route("a", 49));
    instance.serves(&[A, B]);
    api.loses("httproutes");
    assert!(api.waits_for(3, watches("httproutes")).path.contains("resourceVersion=49"));
    assert_eq!(api.count(lists("httproutes")), 1, "nothing was missed");
}

/// The server has forgotten the changes after a version: in its response, or in the middle of a watch.
#[test]
fn a_version_that_is_too_old_means_another_list() {
    let api = cluster(&["a"]);
    let instance = Instance::new(&api, None);
    instance.serves(&[A]);
    api.waits_for(1, watches("httproutes"));
    api.is("httproutes", vec![route("b", 20)], 30);
    api.tells("httproutes", "ERROR", &json!({ "code": 410, "message": "too old resource version" }));
    instance.serves(&[B]);
    assert!(api.waits_for(2, watches("httproutes")).path.contains("resourceVersion=30"));
    api.is("httproutes", vec![route("a", 40)], 50);
    api.refuses_watch("httproutes", 410);
    api.loses("httproutes");
    instance.serves(&[A]);
    assert!(api.waits_for(4, watches("httproutes")).path.contains("resourceVersion=50"));
    assert_eq!(api.count(lists("httproutes")), 3);
}

#[test]
fn while_the_server_is_unreachable_the_configuration_stays_with_one_message() {
    let api = cluster(&["a"]);
    let instance = Instance::new(&api, None);
    instance.serves(&[A]);
    api.waits_for(1, watches("httproutes"));
    api.refuses_watch("httproutes", 503);
    api.loses("httproutes");
    instance.says("the cluster is not watched, the configuration in force stays");
    instance.says("the cluster is watched again, after 0 s");
    api.tells("httproutes", "ADDED", &route("b", 11));
    instance.serves(&[A, B]);
}

/// A starting server may not know a kind yet, or may send another body. Neither means that no object exists.
#[test]
fn only_a_list_without_objects_says_that_there_are_none() {
    let api = cluster(&["a"]);
    let instance = Instance::new(&api, None);
    instance.serves(&[A]);
    api.waits_for(1, watches("httproutes"));
    api.answers_list("httproutes", json!({ "kind": "Status", "metadata": {} }));
    api.answers_list("httproutes", json!({ "items": "a" }));
    api.refuses_watch("httproutes", 404);
    api.loses("httproutes");
    let mut seen = Vec::new();
    // The watch resumes after the first valid list.
    while seen.last() != Some(&Told::Failure(None)) || seen.len() < 4 {
        let told = instance.told.recv_timeout(PATIENCE).expect("it is watched again");
        assert!(!matches!(told, Told::Routes(_)), "the routes have changed: {told:?} after {seen:?}");
        seen.push(told);
    }
    assert!(
        seen.iter()
            .any(|told| matches!(told, Told::Failure(Some(why)) if why.contains("not a list of objects")))
    );
    let said =
        seen.iter().filter(|told| matches!(told, Told::Message(said) if said.contains("is not watched")));
    assert_eq!(said.count(), 1, "{seen:?}");
    api.tells("httproutes", "DELETED", &route("a", 11));
    instance.serves(&[]);
}

/// CRDs before 1.6 have TCPRoutes as v1alpha2 alone, and some clusters have no CRD of them.
#[test]
fn a_kind_is_read_in_the_version_that_the_cluster_knows() {
    let tcp_routes = |version: &str| format!("/apis/gateway.networking.k8s.io/{version}/tcproutes");
    let route = || {
        let spec = json!({ "parentRefs": [{ "name": "edge", "namespace": "infra" }],
            "rules": [{ "backendRefs": [{ "name": "db", "port": 80 }] }] });
        object("infra", "bytes", 3, spec)
    };
    for (unknown, expected) in
        [(&[][..], Some("v1")), (&["v1"][..], Some("v1alpha2")), (&["v1", "v1alpha2"][..], None)]
    {
        let api = cluster(&["a"]);
        api.has("tcproutes", route());
        unknown.iter().for_each(|version| api.does_not_know(&tcp_routes(version)));
        let instance = Instance::new(&api, None);
        if expected.is_none() {
            instance.says("the cluster does not know tcproutes");
        }
        instance.serves(&["infra/a/0/0"]);
        let Some(version) = expected else { continue };
        api.waits_for(1, |asked| asked.path.starts_with(&format!("{}?watch=1", tcp_routes(version))));
        let status =
            format!("/apis/gateway.networking.k8s.io/{version}/namespaces/infra/tcproutes/bytes/status");
        api.waits_for(1, |asked| asked.method == "PATCH" && asked.path == status);
    }
}

#[test]
fn a_token_that_is_replaced_is_used_from_then_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let token = folder.path().join("token");
    std::fs::write(&token, "first\n").expect("it is written");
    let api = cluster(&["a"]);
    let instance = Instance::new(&api, Some(token.clone()));
    instance.serves(&[A]);
    assert_eq!(api.waits_for(1, watches("httproutes")).token, "Bearer first");
    std::fs::write(&token, "second\n").expect("it is written");
    api.loses("httproutes");
    assert_eq!(api.waits_for(2, watches("httproutes")).token, "Bearer second");
}

fn writes(asked: &Asked) -> bool {
    asked.method == "PATCH"
}

#[test]
fn the_holder_of_the_lease_writes_statuses() {
    let api = cluster(&["a"]);
    let instance = Instance::new(&api, None);
    instance.serves(&[A]);
    let lease = api.waits_for(1, |asked| asked.method == "POST");
    assert_eq!(lease.body["spec"]["holderIdentity"], "one");
    let of_route = |asked: &Asked| writes(asked) && asked.path.contains("/httproutes/");
    let written = api.waits_for(1, of_route);
    assert!(written.path.ends_with("/namespaces/infra/httproutes/a/status"), "{}", written.path);
    assert_eq!(written.body["metadata"]["resourceVersion"], "3");
    let conditions = &written.body["status"]["parents"][0]["conditions"];
    assert_eq!((&conditions[0]["type"], &conditions[0]["status"]), (&json!("Accepted"), &json!("True")));
    api.waits_for(1, |asked| writes(asked) && asked.path.ends_with("/gatewayclasses/vanward/status"));
    api.waits_for(1, |asked| writes(asked) && asked.path.ends_with("/gateways/edge/status"));
    drop(instance);
    let given_up =
        api.waits_for(1, |asked| asked.method == "PUT" && asked.body["spec"]["holderIdentity"] == "");
    assert_eq!(given_up.body["spec"]["leaseDurationSeconds"], 1);
}

fn events(asked: &Asked) -> bool {
    asked.path.starts_with("/apis/events.k8s.io/v1/")
}

/// An Ingress of our class with a refused annotation.
fn refused_ingress(version: u64) -> Value {
    let mut ingress = object("infra", "locked", version, json!({ "ingressClassName": "vanward" }));
    ingress["metadata"]["uid"] = json!("u-1");
    ingress["metadata"]["annotations"] = json!({ "nginx.ingress.kubernetes.io/auth-type": "basic" });
    ingress
}

#[test]
fn a_refused_part_of_an_ingress_is_one_event() {
    let api = cluster(&["a"]);
    api.has("ingressclasses", object("", "vanward", 4, json!({ "controller": "vanward.dev/gateway" })));
    api.has("ingresses", refused_ingress(5));
    let instance = Instance::new(&api, None);
    instance.serves(&[A]);
    let written = api.waits_for(1, |asked| asked.method == "POST" && events(asked));
    assert_eq!(written.path, "/apis/events.k8s.io/v1/namespaces/infra/events");
    let of = |key: &str| written.body[key].clone();
    assert_eq!(
        (of("type"), of("reason"), of("reportingInstance")),
        (json!("Warning"), json!("Refused"), json!("one"))
    );
    assert_eq!(
        of("regarding"),
        json!({ "apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "namespace": "infra", "name": "locked", "uid": "u-1" })
    );
    assert!(
        of("note").as_str().is_some_and(|note| note.contains("annotation auth-type: ")),
        "{}",
        written.body
    );
    // Changes of other objects cause no second Event.
    api.waits_for(1, watches("httproutes"));
    api.tells("httproutes", "ADDED", &route("b", 11));
    instance.serves(&[A, B]);
    api.waits_for(2, |asked| asked.path.contains("/httproutes/b/status") || asked.path.contains("/leases/"));
    drop(instance);
    assert_eq!(api.count(events), 1);
    // The next instance finds the Event, and updates its series.
    let instance = Instance::new(&api, None);
    instance.serves(&[A]);
    let again = api.waits_for(1, |asked| writes(asked) && events(asked));
    let name = written.body["metadata"]["name"].as_str().expect("a name");
    assert!(again.path.ends_with(name), "{}", again.path);
    assert_eq!(again.body["series"]["count"], 2);
}

#[test]
fn users_of_a_secret_are_read_from_memory_and_taken_up_when_they_change() {
    const HASH: &str = "JGFwcjEkYWJjZGVmZ2gkaDlGV2dVejNuOVl4eWxLTGxSNVNRLw==";
    let secret = |version: u64, users: &[&str]| {
        let data: serde_json::Map<String, Value> =
            users.iter().map(|user| ((*user).to_owned(), json!(HASH))).collect();
        json!({ "metadata": { "namespace": "infra", "name": "users", "resourceVersion": version.to_string() },
            "type": "Opaque", "data": data })
    };
    let api = cluster(&[]);
    let mut ingress = refused_ingress(5);
    let annotations = &mut ingress["metadata"]["annotations"];
    annotations["nginx.ingress.kubernetes.io/auth-secret"] = json!("users");
    annotations["nginx.ingress.kubernetes.io/auth-secret-type"] = json!("auth-map");
    annotations["nginx.ingress.kubernetes.io/permanent-redirect"] = json!("https://x.example/");
    ingress["spec"]["defaultBackend"] = json!({ "service": { "name": "x", "port": { "number": 80 } } });
    api.has("ingressclasses", object("", "vanward", 4, json!({ "controller": "vanward.dev/gateway" })));
    api.has("ingresses", ingress);
    api.is("secrets", vec![secret(6, &["ann"])], 10);
    let instance = Instance::new(&api, None);
    let is_opaque = |asked: &Asked| watches("secrets")(asked) && asked.path.contains("Opaque");
    api.waits_for(1, is_opaque);
    instance.lets_in(1);
    api.tells("secrets", "MODIFIED", &secret(11, &["ann", "ben"]));
    instance.lets_in(2);
}

#[test]
fn others_write_none() {
    let api = cluster(&["a"]);
    api.has("ingressclasses", object("", "vanward", 4, json!({ "controller": "vanward.dev/gateway" })));
    api.leases(json!({ "metadata": { "resourceVersion": "5" }, "spec": { "holderIdentity": "two", "leaseDurationSeconds": 3600 } }));
    let instance = Instance::new(&api, None);
    instance.serves(&[A]);
    api.waits_for(1, |asked| asked.path.contains("/leases/"));
    api.waits_for(1, watches("httproutes"));
    api.tells("httproutes", "ADDED", &route("b", 11));
    instance.serves(&[A, B]);
    api.waits_for(1, watches("ingresses"));
    api.tells("ingresses", "ADDED", &refused_ingress(12));
    instance.says("Ingress infra/locked: annotation auth-type");
    api.waits_for(2, |asked| asked.path.contains("/leases/"));
    assert_eq!(api.count(|asked| writes(asked) || events(asked)), 0);
}

#[test]
fn a_rejected_object_affects_no_other() {
    let api = cluster(&["a"]);
    let instance = Instance::new(&api, None);
    instance.serves(&[A]);
    api.waits_for(1, watches("httproutes"));
    let mut bad = route("bad", 12);
    bad["spec"]["rules"][0]["matches"] = json!([{ "path": { "type": "RegularExpression", "value": "/(" } }]);
    api.tells("httproutes", "ADDED", &bad);
    let told = api.waits_for(1, |asked| writes(asked) && asked.path.contains("/httproutes/bad/"));
    let condition = &told.body["status"]["parents"][0]["conditions"][0];
    assert_eq!((&condition["status"], &condition["reason"]), (&json!("False"), &json!("UnsupportedValue")));
    assert!(
        condition["message"].as_str().is_some_and(|message| message.contains("unclosed group")),
        "{condition}"
    );
    api.tells("httproutes", "ADDED", &route("b", 13));
    instance.serves(&[A, B]);
}
