//! Flags of `vanward run` for a gateway of a Kubernetes cluster. A build without Kubernetes has them, too, and
//! reports the missing feature.

use std::net::SocketAddr;
use std::path::PathBuf;

/// Flags of a gateway of a cluster.
#[derive(Clone, Default, clap::Args)]
#[command(next_help_heading = "Options of Kubernetes")]
pub(crate) struct KubernetesFlags {
    /// CAs that sign the certificate of the API server [default: the pod's; outside of a cluster the system's]
    #[arg(long, value_name = "FILE")]
    pub(super) kubernetes_ca: Option<PathBuf>,

    /// File with the token of a service account [default: the pod's]
    #[arg(long, value_name = "FILE")]
    pub(super) kubernetes_token_file: Option<PathBuf>,

    /// Certificate of this client
    #[arg(long, value_name = "FILE", requires = "kubernetes_key")]
    pub(super) kubernetes_cert: Option<PathBuf>,

    /// Key of that certificate
    #[arg(long, value_name = "FILE", requires = "kubernetes_cert")]
    pub(super) kubernetes_key: Option<PathBuf>,

    /// Name of this controller; it serves gateways whose GatewayClass names it [default: vanward.dev/gateway]
    #[arg(long, value_name = "NAME")]
    pub(super) gateway_controller: Option<String>,

    /// IP address or host name where clients reach the gateways, for their statuses; may be given several times
    #[arg(long, value_name = "ADDRESS")]
    pub(super) gateway_address: Vec<String>,

    /// Configuration file for settings outside of the Gateway API: the log, limits, metrics, further routes
    #[arg(long, value_name = "FILE")]
    pub(super) gateway_base: Option<PathBuf>,

    /// Address that answers 200 once the cluster was read, for readiness probes [default: 0.0.0.0:8081]
    #[arg(long, value_name = "ADDR")]
    pub(super) gateway_ready: Option<SocketAddr>,

    /// Ports of Ingresses, for http and https [default: 80,443]
    #[arg(long, value_name = "HTTP,HTTPS", value_delimiter = ',', num_args = 1)]
    pub(super) ingress_ports: Vec<u16>,

    /// File of secrets that sign the cookies of Ingresses with affinity, as made by openssl rand -hex 32; the same
    /// for all instances
    #[arg(long, value_name = "FILE")]
    pub(super) ingress_cookie_secret: Option<PathBuf>,

    /// Lease whose holder writes statuses [default: vanward-gateway in the pod's namespace, or in default]
    #[arg(long, value_name = "NAMESPACE/NAME")]
    pub(super) gateway_lease: Option<String>,
}

impl KubernetesFlags {
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
}
