//! Vanward with its origins, left running for people to try. Nothing is measured.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::time::Duration;

use report::results::{ClientVersion, Layer, OriginProtocol};

use crate::error::Error;
use crate::origins::{self, Origins};
use crate::plan::{Features, OriginPayload, OriginSource, OwnProgram};
use crate::proxies::{Installed, Service, vanward};
use crate::start::{self, Started};

const BETWEEN_LOOKS: Duration = Duration::from_millis(200);

/// A running proxy with its origins. They end when this is dropped.
#[derive(Debug)]
pub struct Serving {
    proxy: Started,
    origins: Origins,
    _folder: tempfile::TempDir,
}

impl Serving {
    /// Starts the origins and the proxy on the cores of this thread, and waits until they answer.
    pub async fn start(
        own: &OwnProgram,
        origins: NonZeroUsize,
        workers: NonZeroUsize,
    ) -> Result<Self, Error> {
        let folder = tempfile::Builder::new().prefix("vanward-lab-").tempdir();
        let folder = folder.map_err(|source| Error::Write { path: std::env::temp_dir(), source })?;
        let cores = crate::cores::allowed()?;
        let wanted = origins::OriginSettings {
            source: OriginSource::Own(origins),
            ready: String::new(),
            address: start::ANY_PORT.ip(),
            has_tls: false,
            says_keep_alive: false,
            capacity: None,
            tls_name: None,
        };
        let origins = Origins::start(own, &wanted, &cores, folder.path()).await?;
        let installed = Installed::own(&vanward::DRIVER, own);
        let service = Service {
            listen: start::ANY_PORT,
            tls: None,
            version: ClientVersion::Http1,
            origins: origins.addresses.plain.clone(),
            upstream: OriginProtocol::Http,
            origins_certificate: None,
            layer: Layer::Seven,
            workers,
            keep_alive: true,
            access_log: false,
            features: Features::default(),
            target: None,
            streams: None,
        };
        let proxy = start::proxy(&installed, &service, &cores, folder.path(), &OriginPayload::tiny()).await?;
        let proxy = proxy.ok_or(Error::Empty("proxy"))?;
        Ok(Self { proxy, origins, _folder: folder })
    }

    pub fn address(&self) -> SocketAddr {
        self.proxy.address
    }

    pub fn command(&self) -> &str {
        &self.proxy.process.command
    }

    /// Waits until the proxy or an origin ends unexpectedly.
    pub async fn ended(&mut self) -> Error {
        loop {
            if let Some(error) = self.proxy.group.ended().or_else(|| self.origins.ended()) {
                return error;
            }
            tokio::time::sleep(BETWEEN_LOOKS).await;
        }
    }
}
