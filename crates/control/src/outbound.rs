//! Connections of the control thread to servers outside of upstreams: key servers and certificate authorities.

/// Requests for clients of libraries.
mod requests;

use std::net::SocketAddr;
use std::rc::Rc;

use config::{Scheme, Server, ServerHost, Upstream, UpstreamTls};
use hickory_resolver::TokioResolver;
use tls::ClientSide;
use tokio::sync::OnceCell;
use transport::connection::Connection;
use transport::dial::{self, Destination};
use transport::resolve::{self, ResolvedName};

use crate::probe;
pub(crate) use requests::{EXCHANGE_MAX, OutboundRequests};

/// The shared resources of such connections.
pub(crate) struct Outbound {
    shared: Rc<probe::ProbeShared>,
    /// Created for the first name.
    resolver: OnceCell<Option<TokioResolver>>,
}

impl Outbound {
    pub(crate) fn new(shared: Rc<probe::ProbeShared>) -> Self {
        Self { shared, resolver: OnceCell::new() }
    }

    /// Connects to a server, over TLS if its URL says so. `user` is the purpose, for messages.
    pub(crate) async fn connect(
        &self,
        user: &str,
        server: &Server,
        tls: UpstreamTls,
    ) -> Result<Connection, String> {
        let mut failure = "it has no address".to_owned();
        for address in self.addresses(&server.host, server.port).await? {
            let tcp = match Destination::Tcp(address).connect(tokio::time::sleep).await {
                Ok(tcp) => tcp,
                Err(error) => {
                    failure = probe::reason(&error);
                    continue;
                }
            };
            if server.scheme != Scheme::Https {
                return Ok(tcp.into());
            }
            // The CA file is loaded each time, because it may have changed.
            let upstream = Upstream { tls, ..Upstream::from_name(user, vec![server.clone()]) };
            let loaded = ClientSide::load(&upstream).map_err(|problems| {
                problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
            })?;
            let Some(tls) = loaded else { return Err("it has no TLS".to_owned()) };
            let secured = dial::secure((&tls, 0), tls.config(), tcp, self.shared.records()).await;
            // The certificate must have the name in the URL; no option can replace it.
            let reason = |error: dial::NotSecure| error.to_string().replace("; set tls.name to that", "");
            return secured.map(|(secure, _)| secure.into()).map_err(reason);
        }
        Err(failure)
    }

    pub(crate) async fn resolver(&self) -> Option<&TokioResolver> {
        self.resolver.get_or_init(|| async { resolve::resolver() }).await.as_ref()
    }

    async fn addresses(&self, host: &ServerHost, port: u16) -> Result<Vec<SocketAddr>, String> {
        let text = match host {
            ServerHost::Address(address) => return Ok(vec![SocketAddr::new(*address, port)]),
            ServerHost::Name(text) => text,
            // Only servers of upstreams can be services.
            ServerHost::Service(_) | ServerHost::Catalog(_) | ServerHost::Unix(_) => return Ok(Vec::new()),
        };
        let resolver = self.resolver().await.ok_or("names cannot be resolved")?;
        let name = ResolvedName::new(text);
        name.look_up(resolver).await?;
        Ok(name.addresses().iter().map(|address| SocketAddr::new(*address, port)).collect())
    }
}
