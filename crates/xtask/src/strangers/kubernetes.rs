//! Gateways and Ingresses with the API server of Kubernetes and etcd: their responses, and the statuses of objects.

/// The cluster.
mod cluster;
/// Listeners for bytes, and of other objects.
mod listeners;
/// The conformance suite of the Gateway API.
mod conformance;

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::process::{Process, free_address};
use super::programs::{self, CURL};
use crate::say;
use crate::scratch::Scratch;
use crate::workspace::Workspace;
use cluster::{Cluster, answer, until};

/// Programs that it needs on the system, besides the API server, which is built.
pub(super) const NEEDED: [programs::Needed; 4] = [programs::GO, programs::ETCD, CURL, programs::OPENSSL];

/// The group of the Gateway API, with a version.
const GATEWAY: &str = "gateway.networking.k8s.io/v1";

/// Flags of `kubernetes`.
#[derive(Default, clap::Args)]
pub(crate) struct ClusterStrangerArgs {
    /// Run the conformance suite of the Gateway API instead; takes minutes, and uses the ports 80, 443 and 8080
    #[arg(long)]
    conformance: bool,
}

pub(super) fn check(
    workspace: &Workspace,
    scratch: &Scratch,
    arguments: &ClusterStrangerArgs,
) -> Result<(), String> {
    let program = programs::build_apiserver(workspace)?;
    let vanward = programs::build_vanward(workspace)?;
    let cluster = Cluster::start(program, scratch.path())?;
    cluster.install(workspace)?;
    for object in include_str!("../../../../contrib/kubernetes/vanward.yaml").split("\n---\n") {
        if object.contains("kind: DaemonSet") {
            // Nothing here runs pods.
            cluster.dry_run(object)?;
        } else {
            cluster.apply_text(object)?;
        }
    }
    accepts_agents(&cluster)?;
    if arguments.conformance {
        return conformance::run(workspace, &cluster, &vanward, scratch.path());
    }
    let mut scene = KubernetesScene::start(cluster, vanward.as_path(), scratch.path())?;
    scene.gateway_over_http_and_https()?;
    scene.tls_to_servers()?;
    scene.tls_that_is_passed_on()?;
    scene.bytes_of_connections()?;
    scene.listeners_of_a_set()?;
    scene.certificate_for_servers()?;
    scene.ingress()?;
    scene.endpoints_move()?;
    scene.without_the_api_server()
}

/// The manifest of load agents: the API server accepts the Job, admits its pods under the strictest pod security
/// standard, and lets only users with the role attach to them.
fn accepts_agents(cluster: &Cluster<'_>) -> Result<(), String> {
    let mut template = None;
    for object in include_str!("../../../../contrib/kubernetes/load.yaml").split("\n---\n") {
        let taken = cluster.dry_run(object)?;
        match taken["kind"].as_str() {
            Some("Job") => template = Some(taken["spec"]["template"].clone()),
            _ => cluster.apply_text(object)?,
        }
    }
    let template = template.ok_or("load.yaml has no Job")?;
    let labels = json!({ "pod-security.kubernetes.io/enforce": "restricted" });
    cluster.apply(&json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "strict", "labels": labels } }))?;
    let mut pod = json!({ "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": "agent", "namespace": "strict" }, "spec": template["spec"] });
    cluster.dry_run(&pod.to_string())?;
    pod["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = json!(true);
    if cluster.dry_run(&pod.to_string()).is_ok() {
        return Err("the namespace for restricted pods takes others".to_owned());
    }
    cluster.apply(&json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": { "name": "load", "namespace": "default" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "vanward-load" },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "ann" }] }))?;
    for (user, verb, kind, expected) in [
        ("ann", "list", ("pods", ""), true),
        ("ann", "create", ("pods", "attach"), true),
        ("ann", "create", ("pods", "exec"), false),
        ("ben", "create", ("pods", "attach"), false),
    ] {
        if cluster.may(user, verb, kind)? != expected {
            return Err(format!("{user} may {verb} {kind:?}: expected {expected}"));
        }
    }
    say(
        "the Job of load agents is accepted, its pods also in restricted namespaces; its role limits who may attach",
    );
    Ok(())
}

/// A cluster with a gateway, served by Vanward.
struct KubernetesScene<'s> {
    cluster: Cluster<'s>,
    folder: &'s Path,
    vanward: &'s Path,
    http: SocketAddr,
    https: SocketAddr,
    passed_on: SocketAddr,
    bytes: SocketAddr,
    /// For a ListenerSet.
    more: SocketAddr,
    ingress: [SocketAddr; 2],
    gateway: Process,
    servers: Vec<Process>,
}

impl<'s> KubernetesScene<'s> {
    fn start(cluster: Cluster<'s>, vanward: &'s Path, folder: &'s Path) -> Result<Self, String> {
        let [http, https, passed_on] = [free_address()?, free_address()?, free_address()?];
        let [bytes, more] = [free_address()?, free_address()?];
        let ingress = [free_address()?, free_address()?];
        let ready = free_address()?;
        let mut command = Command::new(vanward);
        command.args(["run", "--config", &format!("kubernetes://localhost:{}", cluster.api.port())]);
        command.arg("--kubernetes-ca").arg(&cluster.pair.cert);
        command.arg("--kubernetes-token-file").arg(cluster.token_file()?);
        command.args(["--gateway-address", "192.0.2.9", "--gateway-lease", "vanward/vanward-gateway"]);
        command.args(["--gateway-ready", &ready.to_string()]);
        command.args(["--ingress-ports", &format!("{},{}", ingress[0].port(), ingress[1].port())]);
        let gateway = Process::start("gateway", &mut command, folder)?.listening_on(ready)?;
        let servers = Vec::new();
        let scene =
            Self { cluster, folder, vanward, http, https, passed_on, bytes, more, ingress, gateway, servers };
        for name in ["infra", "shop"] {
            scene.apply(&json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } }))?;
        }
        Ok(scene)
    }

    fn apply(&self, object: &Value) -> Result<(), String> {
        self.cluster.apply(object)
    }

    /// Starts a server, and makes it the only endpoint of a service.
    fn serve(&mut self, service: &str, more: &[&str]) -> Result<(), String> {
        let name = format!("{service}-{}", self.servers.len());
        let mut command = Command::new(self.vanward);
        command.args(["origin", "--listen", &format!("{}:0", self.cluster.address)]).args(more);
        let mut process = Process::start(&name, &mut command, self.folder)?;
        let address = process.addresses()?.first().copied().ok_or("the origin listens nowhere")?;
        self.servers.push(process);
        self.service(service, address)
    }

    /// Makes a service with one endpoint.
    fn service(&self, service: &str, address: SocketAddr) -> Result<(), String> {
        self.apply(&json!({ "apiVersion": "v1", "kind": "Service", "metadata": named(service),
            "spec": { "clusterIP": "None", "ports": [{ "name": "web", "port": 80 }] } }))?;
        let mut metadata = named(&format!("{service}-1"));
        metadata["labels"] = json!({ "kubernetes.io/service-name": service });
        self.apply(
            &json!({ "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": metadata,
            "addressType": "IPv4", "endpoints": [{ "addresses": [address.ip()] }],
            "ports": [{ "name": "web", "port": address.port() }] }),
        )
    }

    fn route(&self, name: &str, service: &str) -> Result<(), String> {
        self.apply(&json!({ "apiVersion": GATEWAY, "kind": "HTTPRoute", "metadata": named(name),
            "spec": { "parentRefs": [{ "name": "edge", "namespace": "infra" }], "hostnames": [host(name)],
                "rules": [{ "backendRefs": [{ "name": service, "port": 80 }] }] } }))
    }

    fn gets(&self, url: &str, at: SocketAddr, expected: u16) -> Result<(), String> {
        let (scheme, rest) = url.split_once("://").unwrap_or(("http", url));
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        let url = format!("{scheme}://{host}:{}/{path}", at.port());
        let mut last = 0;
        let found = until(&format!("{url} gets {expected}"), || {
            let mut command = Command::new(CURL.find()?);
            command.args(["--silent", "--max-time", "10", "--output", "/dev/null", "--cacert"]);
            command.arg(&self.cluster.pair.cert);
            let name = host.rsplit('@').next().unwrap_or(host);
            command.args(["--resolve", &format!("{name}:{}:127.0.0.1", at.port()), &url]);
            last = answer(&mut command)?.0;
            Ok((last == expected).then_some(()))
        });
        found.map_err(|why| format!("{why}, but {last}; the gateway said:\n{}", self.gateway.said()))
    }

    fn says(&self, path: &str, conditions: &str, kind: &str, reason: &str) -> Result<(), String> {
        let mut last = Value::Null;
        let found = until(&format!("{path}: {kind} is {reason}"), || {
            last = self.cluster.object(path)?["status"].clone();
            let conditions = last.pointer(conditions).and_then(Value::as_array).into_iter().flatten();
            let found = conditions.filter(|one| one["type"] == kind).any(|one| one["reason"] == reason);
            Ok(found.then_some(()))
        });
        found.map_err(|why| format!("{why}, but {last}"))
    }
}

fn named(name: &str) -> Value {
    json!({ "name": name, "namespace": "shop" })
}

fn host(name: &str) -> String {
    format!("{name}.example")
}

fn of_shop(group: &str, plural: &str, name: &str) -> String {
    format!("/apis/{group}/namespaces/shop/{plural}/{name}")
}

impl KubernetesScene<'_> {
    fn gateway_over_http_and_https(&mut self) -> Result<(), String> {
        let secret = |cert: &str, key: &str| {
            json!({ "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
                "metadata": { "name": "web", "namespace": "infra" }, "stringData": { "tls.crt": cert, "tls.key": key } })
        };
        let read = |path: &Path| std::fs::read_to_string(path).map_err(|error| error.to_string());
        self.apply(&secret(&read(&self.cluster.pair.cert)?, &read(&self.cluster.pair.key)?))?;
        self.apply_edge(None)?;
        self.serve("cart", &[])?;
        self.route("cart", "cart")?;
        self.gets("http://cart.example/", self.http, 200)?;
        let edge = format!("/apis/{GATEWAY}/namespaces/infra/gateways/edge");
        self.says(&edge, "/conditions", "Programmed", "Programmed")?;
        self.says(&of_shop(GATEWAY, "httproutes", "cart"), "/parents/0/conditions", "Accepted", "Accepted")?;
        self.apply(&json!({ "apiVersion": GATEWAY, "kind": "HTTPRoute", "metadata": named("secure"),
            "spec": { "parentRefs": [{ "name": "edge", "namespace": "infra", "sectionName": "https" }],
                "rules": [{ "backendRefs": [{ "name": "cart", "port": 80 }] }] } }))?;
        self.gets("https://localhost/", self.https, 200)?;
        say(format_args!("a gateway: over http, and over https with the certificate of its listener"));
        self.route("lost", "gone")?;
        let conditions = "/parents/0/conditions";
        self.says(&of_shop(GATEWAY, "httproutes", "lost"), conditions, "ResolvedRefs", "BackendNotFound")?;
        self.gets("http://lost.example/", self.http, 500)
    }

    fn tls_to_servers(&mut self) -> Result<(), String> {
        let (cert, key) = (self.cluster.pair.cert.clone(), self.cluster.pair.key.clone());
        let pair = ["--cert", &cert.display().to_string(), "--key", &key.display().to_string()];
        self.serve("secret", &pair)?;
        self.route("secret", "secret")?;
        // Without a policy the proxy sends plain HTTP, which the TLS server rejects.
        self.gets("http://secret.example/", self.http, 502)?;
        let pem = std::fs::read_to_string(&cert).map_err(|error| error.to_string())?;
        self.apply(&json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": named("ca"), "data": { "ca.crt": pem } }))?;
        let policy = |hostname: &str, map: &str| {
            json!({ "apiVersion": GATEWAY, "kind": "BackendTLSPolicy", "metadata": named("secret"),
                "spec": { "targetRefs": [{ "group": "", "kind": "Service", "name": "secret" }],
                    "validation": { "hostname": hostname,
                        "caCertificateRefs": [{ "group": "", "kind": "ConfigMap", "name": map }] } } })
        };
        self.apply(&policy("localhost", "ca"))?;
        self.gets("http://secret.example/", self.http, 200)?;
        let place = of_shop(GATEWAY, "backendtlspolicies", "secret");
        self.says(&place, "/ancestors/0/conditions", "Accepted", "Accepted")?;
        self.apply(&policy("somebody.else", "ca"))?;
        self.gets("http://secret.example/", self.http, 502)?;
        self.apply(&policy("localhost", "gone"))?;
        self.gets("http://secret.example/", self.http, 500)?;
        self.says(&place, "/ancestors/0/conditions", "Accepted", "NoValidCACertificate")?;
        say(format_args!(
            "a server that proves its name is asked over TLS; one that does not, or cannot be checked, is not"
        ));
        Ok(())
    }

    fn tls_that_is_passed_on(&mut self) -> Result<(), String> {
        let version = "gateway.networking.k8s.io/v1alpha2";
        self.apply(&json!({ "apiVersion": version, "kind": "TLSRoute", "metadata": named("passed"),
            "spec": { "parentRefs": [{ "name": "edge", "namespace": "infra", "sectionName": "tls" }], "hostnames": ["localhost"],
                "rules": [{ "backendRefs": [{ "name": "secret", "port": 80 }] }] } }))?;
        self.gets("https://localhost/", self.passed_on, 200)?;
        self.says(&of_shop(version, "tlsroutes", "passed"), "/parents/0/conditions", "Accepted", "Accepted")?;
        // No route has that name, so the connection is reset.
        self.gets("https://other.example/", self.passed_on, 0)?;
        say(format_args!("TLS is passed on by the name that clients ask for"));
        Ok(())
    }

    fn ingress(&mut self) -> Result<(), String> {
        let ingress = |name: &str, annotations: Value| {
            let mut metadata = named(name);
            metadata["annotations"] = annotations;
            let backend = json!({ "service": { "name": "cart", "port": { "name": "web" } } });
            let paths = json!([{ "path": "/", "pathType": "Prefix", "backend": backend }]);
            json!({ "apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": metadata,
                "spec": { "ingressClassName": "vanward", "rules": [{ "host": host(name), "http": { "paths": paths } }] } })
        };
        let [http, _] = self.ingress;
        self.apply(&ingress("old", json!({})))?;
        self.gets("http://old.example/", http, 200)?;
        self.gets("http://nobody.example/", http, 404)?;
        let annotations = json!({ "nginx.ingress.kubernetes.io/auth-type": "digest" });
        self.apply(&ingress("locked", annotations))?;
        self.gets("http://locked.example/", http, 500)?;
        let place = of_shop("networking.k8s.io/v1", "ingresses", "old");
        until("the Ingress has its address", || {
            let object = self.cluster.object(&place)?;
            let address = object.pointer("/status/loadBalancer/ingress/0/ip").and_then(Value::as_str);
            Ok((address == Some("192.0.2.9")).then_some(()))
        })?;
        let told = "annotation auth-type: \"digest\" is not supported";
        if !self.gateway.said().contains(told) {
            return Err(format!("no message says {told:?}:\n{}", self.gateway.said()));
        }
        until("the Ingress has an Event", || {
            let events = self.cluster.object("/api/v1/namespaces/shop/events")?;
            let is_it = |event: &Value| {
                event["involvedObject"]["name"] == "locked"
                    && event["message"].as_str().is_some_and(|message| message.contains(told))
            };
            Ok(events["items"].as_array().is_some_and(|events| events.iter().any(is_it)).then_some(()))
        })?;
        say(format_args!(
            "an Ingress is served; one with an annotation that is not supported gets 500, a message and an Event"
        ));
        self.passwords(&ingress)?;
        self.errors_and_fields(&ingress)
    }

    /// Another service answers in place of errors, and responses have the fields of a ConfigMap.
    fn errors_and_fields(&mut self, ingress: &impl Fn(&str, Value) -> Value) -> Result<(), String> {
        self.serve("errors", &[])?;
        self.apply(&json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": named("fields"),
            "data": { "X-Shop": "open" } }))?;
        let annotations = json!({ "nginx.ingress.kubernetes.io/custom-http-errors": "404",
            "nginx.ingress.kubernetes.io/default-backend": "errors",
            "nginx.ingress.kubernetes.io/custom-headers": "fields" });
        self.apply(&ingress("errors", annotations))?;
        let [http, _] = self.ingress;
        self.gets("http://errors.example/status/404", http, 200)?;
        self.gets("http://errors.example/status/410", http, 410)?;
        let mut command = Command::new(CURL.find()?);
        command.args(["--silent", "--max-time", "10", "--include", "--header", "Host: errors.example"]);
        let (_, said) = answer(command.arg(format!("http://{http}/")))?;
        if !said.contains("X-Shop: open\r\n") {
            return Err(format!("the response has no field of the ConfigMap:\n{said}"));
        }
        say("another service answers in place of errors, and responses have the fields of a ConfigMap");
        Ok(())
    }

    /// The Ingress uses the Secret's users, also after a change.
    fn passwords(&self, ingress: &impl Fn(&str, Value) -> Value) -> Result<(), String> {
        let secret = |user: &str| {
            json!({ "apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": named("users"),
                "stringData": { "auth": format!("{user}:$apr1$abcdefgh$h9FWgUz3n9YxylKLlR5SQ/\n") } })
        };
        let annotations = json!({ "nginx.ingress.kubernetes.io/auth-type": "basic",
            "nginx.ingress.kubernetes.io/auth-secret": "users" });
        self.apply(&secret("ann"))?;
        self.apply(&ingress("users", annotations))?;
        let [http, _] = self.ingress;
        self.gets("http://users.example/", http, 401)?;
        self.gets("http://ann:secret@users.example/", http, 200)?;
        self.gets("http://ben:secret@users.example/", http, 401)?;
        self.apply(&secret("ben"))?;
        self.gets("http://ben:secret@users.example/", http, 200)?;
        say(format_args!("passwords come from a Secret, also after it changes"));
        Ok(())
    }

    fn endpoints_move(&mut self) -> Result<(), String> {
        self.serve("cart", &[])?;
        // The remaining server is the new one.
        self.servers.remove(0);
        self.gets("http://cart.example/", self.http, 200)?;
        say(format_args!("an endpoint moves"));
        Ok(())
    }

    fn without_the_api_server(&mut self) -> Result<(), String> {
        self.cluster.kill();
        until("the gateway reports that the cluster is not watched", || {
            Ok(self.gateway.said().contains("the cluster is not watched").then_some(()))
        })?;
        self.gets("http://cart.example/", self.http, 200)?;
        self.cluster.serve()?;
        self.route("late", "cart")?;
        self.gets("http://late.example/", self.http, 200)?;
        say(format_args!(
            "without the API server all routes still work; when it is back, changes are applied"
        ));
        Ok(())
    }
}
