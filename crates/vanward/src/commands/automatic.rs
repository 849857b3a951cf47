//! Flags of `vanward proxy` for automatic certificates.

use std::path::PathBuf;

use config::{Authority, Certificates, KeyUrl, ListenerTls, Settings};

/// The port of HTTP: a listener there stays without TLS.
const HTTP: u16 = 80;

/// Flags for automatic certificates.
#[derive(Clone, clap::Args)]
pub(crate) struct Flags {
    /// Serve HTTPS with a certificate that an authority issues for this host name (ACME), by default Let's Encrypt; to
    /// use it means to agree to its terms. A listener at port 80 redirects to HTTPS. Can be repeated.
    #[arg(long, value_name = "NAME", value_parser = config::certificate_name, conflicts_with_all = ["cert", "key", "self_signed"])]
    domain: Vec<String>,

    /// URL of the authority's directory, instead of Let's Encrypt.
    #[arg(long, value_name = "URL", value_parser = config::directory, requires = "domain")]
    acme_directory: Option<KeyUrl>,

    /// CA of the authority's server, in PEM, instead of the system's.
    #[arg(long, value_name = "FILE", requires = "domain")]
    acme_ca: Option<PathBuf>,

    /// E-mail address that the authority may write to.
    #[arg(long, value_name = "EMAIL", value_parser = config::email, requires = "domain")]
    acme_email: Vec<String>,

    /// Directory of certificates and accounts [default: /var/lib/vanward/acme]
    #[arg(long, value_name = "DIR", requires = "domain")]
    acme_folder: Option<PathBuf>,
}

impl Flags {
    /// Applies the flags to the settings.
    pub(crate) fn over(&self, settings: &mut Settings) {
        if self.domain.is_empty() {
            return;
        }
        let acme = &mut settings.acme;
        let Authority { directory, ca, .. } = &mut acme.authority;
        if let Some(url) = &self.acme_directory {
            directory.clone_from(url);
        }
        ca.clone_from(&self.acme_ca);
        acme.contact.clone_from(&self.acme_email);
        if let Some(folder) = &self.acme_folder {
            // The form of a file of options has the whole path.
            acme.folder = std::path::absolute(folder).unwrap_or_else(|_| folder.clone());
        }
        let certificates =
            || Certificates::Automatic { names: self.domain.clone(), folder: acme.folder.clone() };
        for listener in &mut settings.listeners {
            if listener.address.port() == Some(HTTP) {
                listener.redirect_to_https = true;
                continue;
            }
            listener.tls = Some(ListenerTls::new(certificates()));
        }
    }
}
