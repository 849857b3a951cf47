//! `vanward run --config kubernetes://`: a gateway of a Kubernetes cluster.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread::JoinHandle;

use ::kubernetes::{Access, Beginning, Following, Given, Options};
use config::KeyPair;
use telemetry::message;
use tokio::sync::oneshot::Receiver;

use super::Operation;
use super::run_fleet::FleetFlags;

/// Flags of a gateway of a cluster.
#[derive(Clone, Default, clap::Args)]
#[command(next_help_heading = "Options of Kubernetes")]
pub(crate) struct KubernetesFlags {
    /// CAs that sign the certificate of the API server [default: the pod's; outside of a cluster the system's]
    #[arg(long, value_name = "FILE")]
    kubernetes_ca: Option<PathBuf>,

    /// File with the token of a service account [default: the pod's]
    #[arg(long, value_name = "FILE")]
    kubernetes_token_file: Option<PathBuf>,

    /// Certificate of this client
    #[arg(long, value_name = "FILE", requires = "kubernetes_key")]
    kubernetes_cert: Option<PathBuf>,

    /// Key of that certificate
    #[arg(long, value_name = "FILE", requires = "kubernetes_cert")]
    kubernetes_key: Option<PathBuf>,

    /// Name of this controller: gateways whose GatewayClass has it are served [default: vanward.dev/gateway]
    #[arg(long, value_name = "NAME")]
    gateway_controller: Option<String>,

    /// IP address or host name where clients reach the gateways, for their statuses; may be given several times
    #[arg(long, value_name = "ADDRESS")]
    gateway_address: Vec<String>,

    /// Configuration file for what the Gateway API cannot say: the log, limits, metrics, further routes
    #[arg(long, value_name = "FILE")]
    gateway_base: Option<PathBuf>,

    /// Address that answers 200 once the cluster was read, for readiness probes [default: 0.0.0.0:8081]
    #[arg(long, value_name = "ADDR")]
    gateway_ready: Option<SocketAddr>,

    /// Ports of Ingresses, for http and https [default: 80,443]
    #[arg(long, value_name = "HTTP,HTTPS", value_delimiter = ',', num_args = 1)]
    ingress_ports: Vec<u16>,

    /// File of secrets that sign the cookies of Ingresses with affinity, as openssl rand -hex 32 makes one: the same for all instances
    #[arg(long, value_name = "FILE")]
    ingress_cookie_secret: Option<PathBuf>,

    /// Lease that says which instance writes statuses [default: vanward-gateway in the pod's namespace, or in default]
    #[arg(long, value_name = "NAMESPACE/NAME")]
    gateway_lease: Option<String>,
}

impl KubernetesFlags {
    /// Whether any of them is given.
    pub(crate) fn are_used(&self) -> bool {
        let Self { kubernetes_ca, kubernetes_token_file, kubernetes_cert, kubernetes_key: _, .. } = self;
        let Self { gateway_controller, gateway_address, gateway_base, gateway_ready, gateway_lease, .. } =
            self;
        let has_ports = !self.ingress_ports.is_empty();
        let secret = &self.ingress_cookie_secret;
        let files = [kubernetes_ca, kubernetes_token_file, kubernetes_cert, gateway_base, secret];
        files.into_iter().any(Option::is_some)
            || has_ports
            || gateway_controller.is_some()
            || !gateway_address.is_empty()
            || gateway_ready.is_some()
            || gateway_lease.is_some()
    }

    fn following(&self, url: &str, fleet: &FleetFlags) -> Result<Following, String> {
        let pair = |(cert, key)| KeyPair { cert, key, passphrase: None };
        let given = Given {
            ca: self.kubernetes_ca.clone(),
            token: self.kubernetes_token_file.clone(),
            certificate: self.kubernetes_cert.clone().zip(self.kubernetes_key.clone()).map(pair),
        };
        let lease = match &self.gateway_lease {
            None => {
                let namespace = ::kubernetes::own_namespace().unwrap_or_else(|| "default".to_owned());
                (namespace, "vanward-gateway".to_owned())
            }
            Some(lease) => match lease.split_once('/') {
                Some((namespace, name)) if is_label(namespace) && is_label(name) => {
                    (namespace.to_owned(), name.to_owned())
                }
                _ => return Err(format!("--gateway-lease: {lease:?} is not NAMESPACE/NAME")),
            },
        };
        // Paths of included files are relative to the file that includes them, and here is none.
        let base = self.gateway_base.as_ref().map(std::path::absolute).transpose();
        let base = base.map_err(|error| format!("--gateway-base: {error}"))?;
        let secret = self.ingress_cookie_secret.as_ref().map(std::path::absolute).transpose();
        let secret = secret.map_err(|error| format!("--ingress-cookie-secret: {error}"))?;
        let ingress_ports = match self.ingress_ports.as_slice() {
            [] => [80, 443],
            [http, https] if http != https && !self.ingress_ports.contains(&0) => [*http, *https],
            _ => return Err("--ingress-ports: two ports are expected, such as 8080,8443".to_owned()),
        };
        let controller = self.gateway_controller.clone();
        Ok(Following {
            access: Access::parse(url, given, |name| std::env::var(name).ok())?,
            options: Options {
                controller: controller.unwrap_or_else(|| "vanward.dev/gateway".to_owned()),
                addresses: self.gateway_address.clone(),
                base: base.map(|path| path.display().to_string()),
                ready: self.gateway_ready.unwrap_or(READY),
                ingress_ports,
                cookie_secret: secret.map(|path| path.display().to_string()),
            },
            instance: fleet.name()?,
            lease,
            takes_over: false,
        })
    }
}

/// Where the proxy tells that it is ready.
const READY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 8081);

/// Whether a text is a name of objects of Kubernetes (RFC 1123).
fn is_label(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
    !text.is_empty() && text.len() <= 253 && text.bytes().all(is_part)
}

/// Runs a gateway until a signal ends it.
pub(crate) fn run(
    url: &str,
    (flags, fleet): (&KubernetesFlags, &FleetFlags),
    operation: &Operation,
    inheritance: ::control::Inheritance,
) -> ExitCode {
    if fleet.are_of_etcd() {
        return super::fail(
            super::USAGE,
            "flags of etcd are for a configuration in etcd: --config etcd://HOST:PORT/PREFIX",
        );
    }
    let following = match flags.following(url, fleet) {
        Ok(following) => Following { takes_over: inheritance.has_sockets(), ..following },
        Err(why) => return super::fail(super::USAGE, why),
    };
    let name = following.instance.clone();
    let (tell, told) = std::sync::mpsc::channel();
    let (go, gone) = tokio::sync::oneshot::channel();
    let (end, ended) = tokio::sync::oneshot::channel();
    // The watches stay on the thread on which they began.
    let thread = match follow(following, tell, gone, ended) {
        Ok(thread) => thread,
        Err(error) => return super::not_run(&format!("the cluster is not watched: {error}")),
    };
    let current = match told.recv() {
        Ok(Ok(current)) => current,
        Ok(Err(why)) => return super::not_run(&why),
        Err(_) => return super::not_run("the cluster is not watched"),
    };
    let over = operation.clone();
    let reread: ::control::Reread = Box::new(move || super::run::with_flags(current.examine(), &over));
    let config = match super::run::first(reread()) {
        Ok(config) => config,
        Err(code) => return code,
    };
    let setup = ::control::Setup { reread: Some(reread), inheritance, instance: Some(name) };
    let code = super::serve_with(config, setup, operation, |running| {
        let _ = go.send(running.handle());
    });
    let _ = end.send(());
    let _ = thread.join();
    code
}

/// Reads the cluster, and follows it once the proxy runs, on a thread of its own.
fn follow(
    following: Following,
    tell: std::sync::mpsc::Sender<Result<::kubernetes::Current, String>>,
    go: Receiver<::control::Handle>,
    ended: Receiver<()>,
) -> std::io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name("kubernetes".to_owned()).spawn(move || {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build_local(Default::default());
        let runtime = match runtime {
            Ok(runtime) => runtime,
            Err(error) => return drop(tell.send(Err(error.to_string()))),
        };
        runtime.block_on(async {
            let beginning: Beginning = match ::kubernetes::begin(following, message::warn).await {
                Ok(beginning) => beginning,
                Err(why) => return drop(tell.send(Err(why))),
            };
            let _ = tell.send(Ok(beginning.current.clone()));
            // If the proxy cannot start, nobody says so.
            if let Ok(handle) = go.await {
                beginning.follow(Running(handle), ended).await;
            }
        });
    })
}

/// The proxy as the cluster's follower sees it.
struct Running(::control::Handle);

impl ::kubernetes::Proxy for Running {
    fn reload(&self) -> Result<(), String> {
        self.0.reload(", as the cluster has changed")
    }

    fn warn(&self, message: &str) {
        message::warn(message);
    }

    fn inform(&self, message: &str) {
        message::info(message);
    }
}
