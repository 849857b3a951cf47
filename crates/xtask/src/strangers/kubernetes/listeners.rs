//! TCPRoutes, listeners of ListenerSets, and the certificate that a gateway presents to servers.
//!
//! The kinds are those of the installed CRDs, which are older than v1 of both.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::super::process::Process;
use super::super::programs::OPENSSL;
use super::{GATEWAY, KubernetesScene, named, of_shop};
use crate::say;

const TCP: &str = "gateway.networking.k8s.io/v1alpha2";
const EXPERIMENTAL: &str = "gateway.networking.x-k8s.io/v1alpha1";

impl KubernetesScene<'_> {
    /// Applies the gateway, with settings for TLS.
    pub(super) fn apply_edge(&self, tls: Option<Value>) -> Result<(), String> {
        let from_all = json!({ "namespaces": { "from": "All" } });
        let mut edge = json!({ "apiVersion": GATEWAY, "kind": "Gateway", "metadata": { "name": "edge", "namespace": "infra" },
            "spec": { "gatewayClassName": "vanward", "allowedListeners": from_all, "listeners": [
                { "name": "http", "port": self.http.port(), "protocol": "HTTP", "allowedRoutes": from_all },
                { "name": "https", "port": self.https.port(), "protocol": "HTTPS", "hostname": "localhost",
                    "tls": { "certificateRefs": [{ "name": "web" }] }, "allowedRoutes": from_all },
                { "name": "tls", "port": self.passed_on.port(), "protocol": "TLS", "tls": { "mode": "Passthrough" },
                    "allowedRoutes": from_all },
                { "name": "bytes", "port": self.bytes.port(), "protocol": "TCP", "allowedRoutes": from_all },
            ] } });
        if let Some(tls) = tls {
            edge["spec"]["tls"] = tls;
        }
        self.apply(&edge)
    }

    /// Connections go to a service without a look at their bytes; those for a missing one are reset.
    pub(super) fn bytes_of_connections(&self) -> Result<(), String> {
        let route = |service: &str| {
            json!({ "apiVersion": TCP, "kind": "TCPRoute", "metadata": named("bytes"),
                "spec": { "parentRefs": [{ "name": "edge", "namespace": "infra", "sectionName": "bytes" }],
                    "rules": [{ "backendRefs": [{ "name": service, "port": 80 }] }] } })
        };
        let place = of_shop(TCP, "tcproutes", "bytes");
        self.apply(&route("cart"))?;
        self.gets("http://any.example/", self.bytes, 200)?;
        self.says(&place, "/parents/0/conditions", "Accepted", "Accepted")?;
        self.apply(&route("gone"))?;
        self.gets("http://any.example/", self.bytes, 0)?;
        self.says(&place, "/parents/0/conditions", "ResolvedRefs", "BackendNotFound")?;
        say("a TCPRoute forwards the connections of a port");
        Ok(())
    }

    /// A set adds a listener to the gateway; one that conflicts with the gateway's own is not served.
    pub(super) fn listeners_of_a_set(&self) -> Result<(), String> {
        let set = |name: &str, port: u16, protocol: &str| {
            json!({ "apiVersion": EXPERIMENTAL, "kind": "XListenerSet", "metadata": named(name),
                "spec": { "parentRef": { "name": "edge", "namespace": "infra" },
                    "listeners": [{ "name": "web", "port": port, "protocol": protocol }] } })
        };
        let place = |name: &str| of_shop(EXPERIMENTAL, "xlistenersets", name);
        self.apply(&set("more", self.more.port(), "HTTP"))?;
        self.apply(&set("conflicting", self.http.port(), "TCP"))?;
        let parent =
            json!({ "group": "gateway.networking.x-k8s.io", "kind": "XListenerSet", "name": "more" });
        self.apply(&json!({ "apiVersion": GATEWAY, "kind": "HTTPRoute", "metadata": named("by-set"),
            "spec": { "parentRefs": [parent], "rules": [{ "backendRefs": [{ "name": "cart", "port": 80 }] }] } }))?;
        self.gets("http://any.example/", self.more, 200)?;
        self.says(&place("more"), "/conditions", "Programmed", "Programmed")?;
        let conflicting = place("conflicting");
        self.says(&conflicting, "/conditions", "Accepted", "ListenersNotValid")?;
        self.says(&conflicting, "/listeners/0/conditions", "Conflicted", "ProtocolConflict")?;
        say("a ListenerSet adds a listener to a gateway, unless it conflicts with another one");
        Ok(())
    }

    /// A server that demands a certificate of clients gets the gateway's.
    pub(super) fn certificate_for_servers(&mut self) -> Result<(), String> {
        let address = super::free_address()?;
        let address = std::net::SocketAddr::new(self.cluster.address, address.port());
        let (cert, key) = (self.cluster.pair.cert.clone(), self.cluster.pair.key.clone());
        let file = |path: &Path| path.display().to_string();
        let mut command = Command::new(OPENSSL.find()?);
        command.args(["s_server", "-accept", &address.to_string(), "-www", "-quiet", "-Verify", "1"]);
        command.args(["-verify_return_error", "-partial_chain", "-CAfile", &file(&cert)]);
        command.args(["-cert", &file(&cert), "-key", &file(&key)]);
        let server = Process::start("demanding", &mut command, self.folder)?.listening_on(address)?;
        self.servers.push(server);
        self.service("demanding", address)?;
        self.route("demanding", "demanding")?;
        let targets = json!([{ "group": "", "kind": "Service", "name": "demanding" }]);
        let authority = json!({ "group": "", "kind": "ConfigMap", "name": "ca" });
        self.apply(&json!({ "apiVersion": GATEWAY, "kind": "BackendTLSPolicy", "metadata": named("demanding"),
            "spec": { "targetRefs": targets, "validation": { "hostname": "localhost", "caCertificateRefs": [authority] } } }))?;
        self.gets("http://demanding.example/", self.http, 502)?;
        let edge = format!("/apis/{GATEWAY}/namespaces/infra/gateways/edge");
        let own = |name: &str| Some(json!({ "backend": { "clientCertificateRef": { "name": name } } }));
        self.apply_edge(own("web"))?;
        self.gets("http://demanding.example/", self.http, 200)?;
        self.says(&edge, "/conditions", "ResolvedRefs", "ResolvedRefs")?;
        self.apply_edge(own("gone"))?;
        self.gets("http://demanding.example/", self.http, 500)?;
        self.says(&edge, "/conditions", "ResolvedRefs", "InvalidClientCertificateRef")?;
        self.apply_edge(None)?;
        say("a server that demands a certificate gets that of the gateway");
        Ok(())
    }
}
