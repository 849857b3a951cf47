//! Connections of the control thread to servers of URLs, which are of no upstream: those that have keys, and authorities.

/// Requests over such connections, for clients of libraries.
mod requests;

use std::net::SocketAddr;
use std::rc::Rc;

use config::{Scheme, Server, ServerHost, Upstream, UpstreamTls};
use hickory_resolver::TokioResolver;
use tls::ClientSide;
use tokio::sync::OnceCell;
use transport::connection::Connection;
use transport::dial::{self, Destination};
use transport::resolve::{self, Name};

use crate::probe;
pub(crate) use requests::{EXCHANGE_MAX, Requests};

/// What such connections need.
pub(crate) struct Outbound {
    shared: Rc<probe::Shared>,
    /// Made when the first name needs one.
    resolver: OnceCell<Option<TokioResolver>>,
}

impl Outbound {
    pub(crate) fn new(shared: Rc<probe::Shared>) -> Self {
        Self { shared, resolver: OnceCell::new() }
    }

    /// Connects to a server, over TLS if its URL says so. `user` is what connects, for messages.
    ///
    /// # Errors
    /// Why there is no connection, in words.
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
            // It is loaded each time: the file of the CA may be another one by now.
            let upstream = Upstream { tls, ..Upstream::of(user, vec![server.clone()]) };
            let loaded = ClientSide::load(&upstream).map_err(|problems| {
                problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
            })?;
            let Some(tls) = loaded else { return Err("it has no TLS".to_owned()) };
            let secured = dial::secure((&tls, 0), tls.config(), tcp, self.shared.records()).await;
            // The name in the URL is the one to verify: there is no option for another one.
            let reason = |error: dial::NotSecure| error.to_string().replace("; set tls.name to that", "");
            return secured.map(|(secure, _)| secure.into()).map_err(reason);
        }
        Err(failure)
    }

    /// What resolves names; `None` if nothing can.
    pub(crate) async fn resolver(&self) -> Option<&TokioResolver> {
        self.resolver.get_or_init(|| async { resolve::resolver() }).await.as_ref()
    }

    async fn addresses(&self, host: &ServerHost, port: u16) -> Result<Vec<SocketAddr>, String> {
        let text = match host {
            ServerHost::Address(address) => return Ok(vec![SocketAddr::new(*address, port)]),
            ServerHost::Name(text) => text,
            // Only servers of upstreams are services.
            ServerHost::Service(_) | ServerHost::Catalog(_) | ServerHost::Unix(_) => return Ok(Vec::new()),
        };
        let resolver = self.resolver().await.ok_or("names cannot be resolved")?;
        let name = Name::new(text);
        name.look_up(resolver).await?;
        Ok(name.addresses().iter().map(|address| SocketAddr::new(*address, port)).collect())
    }
}
