//! `vanward run --config kubernetes://`: a gateway of a Kubernetes cluster.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::thread::JoinHandle;

use ::kubernetes::{ClusterCredentials, ClusterStart, Following, LocationFlags, OperatorOptions};
use config::KeyPair;
use telemetry::message;
use tokio::sync::oneshot::Receiver;

use super::Operation;
use super::fleet_flags::FleetFlags;
use super::kubernetes_flags::KubernetesFlags;

/// Default address of the readiness endpoint.
const READY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 8081);

/// Whether a text is a name of Kubernetes objects (RFC 1123).
fn is_label(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
    !text.is_empty() && text.len() <= 253 && text.bytes().all(is_part)
}

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
    let following = match following(flags, url, fleet) {
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
    let setup =
        ::control::Setup { reread: Some(reread), inheritance, instance: Some(name), ..Default::default() };
    let code = super::serve_with(config, setup, operation, |running| {
        let _ = go.send(running.handle());
    });
    let _ = end.send(());
    let _ = thread.join();
    code
}

fn following(flags: &KubernetesFlags, url: &str, fleet: &FleetFlags) -> Result<Following, String> {
    let pair = |(cert, key)| KeyPair { cert, key, passphrase: None };
    let given = LocationFlags {
        ca: flags.kubernetes_ca.clone(),
        token: flags.kubernetes_token_file.clone(),
        certificate: flags.kubernetes_cert.clone().zip(flags.kubernetes_key.clone()).map(pair),
    };
    let lease = match &flags.gateway_lease {
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
    // Includes are relative to the including file, which does not exist here.
    let base = flags.gateway_base.as_ref().map(std::path::absolute).transpose();
    let base = base.map_err(|error| format!("--gateway-base: {error}"))?;
    let secret = flags.ingress_cookie_secret.as_ref().map(std::path::absolute).transpose();
    let secret = secret.map_err(|error| format!("--ingress-cookie-secret: {error}"))?;
    let ingress_ports = match flags.ingress_ports.as_slice() {
        [] => [80, 443],
        [http, https] if http != https && !flags.ingress_ports.contains(&0) => [*http, *https],
        _ => return Err("--ingress-ports: two ports are expected, such as 8080,8443".to_owned()),
    };
    let controller = flags.gateway_controller.clone();
    Ok(Following {
        access: ClusterCredentials::parse(url, given, |name| std::env::var(name).ok())?,
        options: OperatorOptions {
            controller: controller.unwrap_or_else(|| "vanward.dev/gateway".to_owned()),
            addresses: flags.gateway_address.clone(),
            base: base.map(|path| path.display().to_string()),
            ready: flags.gateway_ready.unwrap_or(READY),
            ingress_ports,
            cookie_secret: secret.map(|path| path.display().to_string()),
        },
        instance: fleet.name()?,
        lease,
        takes_over: false,
    })
}

/// Reads the cluster, and follows it on a separate thread once the proxy runs.
fn follow(
    following: Following,
    tell: std::sync::mpsc::Sender<Result<::kubernetes::CurrentConfig, String>>,
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
            let beginning: ClusterStart = match ::kubernetes::begin(following, message::warn).await {
                Ok(beginning) => beginning,
                Err(why) => return drop(tell.send(Err(why))),
            };
            let _ = tell.send(Ok(beginning.current.clone()));
            // If the proxy cannot start, the sender is dropped.
            if let Ok(handle) = go.await {
                beginning.follow(ClusterProxy(handle), ended).await;
            }
        });
    })
}

/// The proxy as the cluster's follower sees it.
struct ClusterProxy(::control::Handle);

impl ::kubernetes::FollowingProxy for ClusterProxy {
    fn reload(&self) -> Result<(), String> {
        self.0.reload(", as the cluster has changed")
    }

    fn note(&self, failure: Option<String>) {
        self.0.note_source("kubernetes", failure);
    }

    fn warn(&self, message: &str) {
        message::warn(message);
    }

    fn inform(&self, message: &str) {
        message::info(message);
    }
}
