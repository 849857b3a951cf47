//! A cluster without nodes: etcd, the API server of Kubernetes, and its objects.

use std::fs;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::super::process::{Process, free_address};
use super::super::programs::{self, CURL, ETCD};
use super::super::subject::PairFiles;
use crate::step;
use crate::workspace::Workspace;

pub(super) const LIMIT: Duration = Duration::from_secs(60);
const BETWEEN_LOOKS: Duration = Duration::from_millis(50);
/// Tokens of the API server: for this test, and for Vanward with the permissions of its manifests.
const TOKENS: &str =
    "of-the-test,test,1,\"system:masters\"\nof-vanward,system:serviceaccount:vanward:vanward,2,\"\"\n";

pub(super) struct Cluster<'s> {
    folder: &'s Path,
    program: PathBuf,
    pub(super) api: SocketAddr,
    etcd: SocketAddr,
    /// For the API server, and for a server of the test.
    pub(super) pair: PairFiles,
    /// An address of this machine for endpoints: the API rejects loopback addresses.
    pub(super) address: IpAddr,
    server: Option<Process>,
    _etcd: Process,
}

impl<'s> Cluster<'s> {
    pub(super) fn start(program: PathBuf, folder: &'s Path) -> Result<Self, String> {
        let (api, etcd, peer) = (free_address()?, free_address()?, free_address()?);
        let (client, peer) = (format!("http://{etcd}"), format!("http://{peer}"));
        let mut command = Command::new(ETCD.find()?);
        command.arg("--data-dir").arg(folder.join("etcd")).args(["--logger", "zap", "--unsafe-no-fsync"]);
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.args(["--initial-cluster", &format!("default={peer}")]);
        let process = Process::start("etcd", &mut command, folder)?.listening_on(etcd)?;
        fs::write(folder.join("tokens"), TOKENS).map_err(|error| error.to_string())?;
        let pair = PairFiles::of_no_authority(folder)?;
        let address = own_address()?;
        let mut cluster = Self { folder, program, api, etcd, pair, address, server: None, _etcd: process };
        cluster.serve()?;
        Ok(cluster)
    }

    pub(super) fn serve(&mut self) -> Result<(), String> {
        let PairFiles { cert, key } = &self.pair;
        let mut command = Command::new(&self.program);
        command.args(["--etcd-servers", &format!("http://{}", self.etcd), "--bind-address", "127.0.0.1"]);
        command.args([
            "--secure-port",
            &self.api.port().to_string(),
            "--service-cluster-ip-range",
            "10.0.0.0/24",
        ]);
        command.arg("--tls-cert-file").arg(cert).arg("--tls-private-key-file").arg(key);
        command
            .arg("--service-account-key-file")
            .arg(cert)
            .arg("--service-account-signing-key-file")
            .arg(key);
        command.args(["--service-account-issuer", "https://kubernetes.default.svc"]);
        command.arg("--token-auth-file").arg(self.folder.join("tokens"));
        command.args(["--authorization-mode", "RBAC", "--disable-admission-plugins", "ServiceAccount"]);
        command.args(["--endpoint-reconciler-type", "none", "--etcd-compaction-interval", "0"]);
        command.arg("--cert-dir").arg(self.folder.join("apiserver"));
        self.server = Some(Process::start("apiserver", &mut command, self.folder)?.listening_on(self.api)?);
        until("the API server is ready", || {
            let is_ready = self.ask("GET", "/readyz", None)?.0 == 200;
            Ok(is_ready.then_some(()))
        })
    }

    pub(super) fn kill(&mut self) {
        self.server = None;
    }

    pub(super) fn token_file(&self) -> Result<PathBuf, String> {
        let file = self.folder.join("token");
        fs::write(&file, "of-vanward").map_err(|error| error.to_string())?;
        Ok(file)
    }

    /// Installs the kinds of the Gateway API, from its module.
    pub(super) fn install(&self, workspace: &Workspace) -> Result<(), String> {
        let folder = programs::gateway_api(workspace)?.join("config/crd/experimental");
        let files = fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        for file in files.filter_map(Result::ok).map(|entry| entry.path()) {
            let text = fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
            if text.contains("kind: CustomResourceDefinition") {
                self.apply_text(&text)?;
            }
        }
        until("the API server knows the kinds", || {
            let known = [
                "k8s.io/v1/gateways",
                "k8s.io/v1/httproutes",
                "k8s.io/v1/backendtlspolicies",
                "k8s.io/v1alpha2/tlsroutes",
                "k8s.io/v1alpha2/tcproutes",
                "x-k8s.io/v1alpha1/xlistenersets",
            ];
            let ask = |kind: &&str| self.ask("GET", &format!("/apis/gateway.networking.{kind}"), None);
            let all: Result<Vec<_>, _> = known.iter().map(ask).collect();
            Ok(all?.iter().all(|(status, _)| *status == 200).then_some(()))
        })
    }

    pub(super) fn apply(&self, object: &Value) -> Result<(), String> {
        self.apply_text(&object.to_string())
    }

    pub(super) fn apply_text(&self, text: &str) -> Result<(), String> {
        let place = place(text).ok_or_else(|| format!("an object without kind or name:\n{text}"))?;
        let path = format!("{place}?fieldManager=test&force=true");
        let (status, said) = self.ask("PATCH", &path, Some(("application/apply-patch+yaml", text)))?;
        if matches!(status, 200 | 201) { Ok(()) } else { Err(format!("{place}: {status}: {said}")) }
    }

    /// Returns the API server's result for an object in YAML or JSON, and rejects unknown fields.
    pub(super) fn dry_run(&self, text: &str) -> Result<Value, String> {
        let place = place(text).ok_or_else(|| format!("an object without kind or name:\n{text}"))?;
        let path = format!("{place}?fieldManager=test&force=true&dryRun=All&fieldValidation=Strict");
        let (status, said) = self.ask("PATCH", &path, Some(("application/apply-patch+yaml", text)))?;
        match serde_json::from_str(&said) {
            Ok(object) if matches!(status, 200 | 201) => Ok(object),
            _ => Err(format!("{place}: {status}: {said}")),
        }
    }

    /// Whether a user may do something with a kind in the default namespace.
    pub(super) fn may(&self, user: &str, verb: &str, (kind, part): (&str, &str)) -> Result<bool, String> {
        let review = json!({ "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": {
            "user": user, "resourceAttributes": {
                "namespace": "default", "verb": verb, "resource": kind, "subresource": part } } });
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        let (status, said) = self.ask("POST", path, Some(("application/json", &review.to_string())))?;
        let told: Value = serde_json::from_str(&said).map_err(|_| format!("{path}: {status}: {said}"))?;
        told["status"]["allowed"].as_bool().ok_or_else(|| format!("{path}: {status}: {said}"))
    }

    pub(super) fn object(&self, path: &str) -> Result<Value, String> {
        let (status, said) = self.ask("GET", path, None)?;
        serde_json::from_str(&said).map_err(|_| format!("{path}: {status}: {said}"))
    }

    fn ask(&self, method: &str, path: &str, body: Option<(&str, &str)>) -> Result<(u16, String), String> {
        let mut command = Command::new(CURL.find()?);
        command.args(["--silent", "--max-time", "10", "--request", method, "--cacert"]).arg(&self.pair.cert);
        command.args(["--header", "Authorization: Bearer of-the-test"]);
        if let Some((kind, body)) = body {
            let file = self.folder.join("body");
            fs::write(&file, body).map_err(|error| error.to_string())?;
            command.args(["--header", &format!("Content-Type: {kind}"), "--data-binary"]);
            command.arg(format!("@{}", file.display()));
        }
        answer(command.arg(format!("https://{}{path}", self.api)))
    }
}

/// Runs curl. Returns the status, 0 without a response, and the body.
pub(super) fn answer(command: &mut Command) -> Result<(u16, String), String> {
    let output = command.args(["--write-out", "\n%{http_code}"]).output();
    let output = output.map_err(|error| format!("`{}` cannot be run: {error}", step::shown(command)))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let (body, status) = said.rsplit_once('\n').unwrap_or(("", "0"));
    Ok((status.parse().unwrap_or(0), body.to_owned()))
}

pub(super) fn until<T>(what: &str, mut look: impl FnMut() -> Result<Option<T>, String>) -> Result<T, String> {
    let began = Instant::now();
    loop {
        if let Some(found) = look()? {
            return Ok(found);
        }
        if began.elapsed() > LIMIT {
            return Err(format!("{what}: not after {} s", LIMIT.as_secs()));
        }
        std::thread::sleep(BETWEEN_LOOKS);
    }
}

fn place(text: &str) -> Option<String> {
    let read = |key: &str| {
        let json: Option<Value> = serde_json::from_str(text).ok();
        match json {
            Some(json) => json.pointer(key).and_then(Value::as_str).map(str::to_owned),
            // The first match is the object's own.
            None => {
                let depth = key.matches('/').count() - 1;
                let line = format!("{}{}: ", "  ".repeat(depth), key.rsplit('/').next()?);
                let line = text.lines().find_map(|other| other.strip_prefix(line.as_str()))?;
                Some(line.trim().to_owned())
            }
        }
    };
    let (version, kind, name) = (read("/apiVersion")?, read("/kind")?, read("/metadata/name")?);
    let plural = match kind.to_lowercase() {
        kind if kind.ends_with("class") || kind.ends_with("policy") => {
            format!("{}es", kind.strip_suffix('y').map(|stem| format!("{stem}i")).unwrap_or(kind))
        }
        kind if kind == "ingress" => "ingresses".to_owned(),
        kind => format!("{kind}s"),
    };
    let root = if version.contains('/') { format!("/apis/{version}") } else { format!("/api/{version}") };
    let is_global = ["Namespace", "ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition"]
        .contains(&kind.as_str())
        || kind.ends_with("Class");
    if is_global {
        return Some(format!("{root}/{plural}/{name}"));
    }
    let namespace = read("/metadata/namespace").unwrap_or_else(|| "default".to_owned());
    Some(format!("{root}/namespaces/{namespace}/{plural}/{name}"))
}

/// The address with which this machine would reach others. Nothing is sent.
fn own_address() -> Result<IpAddr, String> {
    let ask = || {
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        socket.connect("192.0.2.1:9")?;
        socket.local_addr()
    };
    let address = ask().map_err(|error| format!("this machine has no address but loopback's: {error}"))?;
    Ok(address.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_have_the_paths_of_their_kinds() {
        for (text, expected) in [
            ("apiVersion: v1\nkind: Namespace\nmetadata:\n  name: a\n", "/api/v1/namespaces/a"),
            (
                r#"{"apiVersion":"networking.k8s.io/v1","kind":"Ingress","metadata":{"name":"a","namespace":"b"}}"#,
                "/apis/networking.k8s.io/v1/namespaces/b/ingresses/a",
            ),
            (
                "apiVersion: g/v1\nkind: BackendTLSPolicy\nmetadata:\n  name: a\n  namespace: b\n",
                "/apis/g/v1/namespaces/b/backendtlspolicies/a",
            ),
            (
                "apiVersion: batch/v1\nkind: Job\nmetadata:\n  name: a\n",
                "/apis/batch/v1/namespaces/default/jobs/a",
            ),
            ("apiVersion: g/v1\nkind: GatewayClass\nmetadata:\n  name: a\n", "/apis/g/v1/gatewayclasses/a"),
        ] {
            assert_eq!(place(text).as_deref(), Some(expected));
        }
    }
}
