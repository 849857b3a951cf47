//! Flags of `vanward proxy` for automatic certificates.

use std::path::PathBuf;

use config::{KeyUrl, ListenAddress};
use toml_text::literal as quoted;

/// The port of HTTP: a listener there stays without TLS.
const HTTP: u16 = 80;

/// Flags for automatic certificates.
#[derive(Clone, clap::Args)]
pub(crate) struct Flags {
    /// Serve HTTPS with a certificate for this host name from a certificate authority (ACME), by default Let's
    /// Encrypt; using it means agreeing to its terms. A listener at port 80 redirects to HTTPS. Can be repeated.
    #[arg(long, value_name = "NAME", value_parser = config::certificate_name, conflicts_with_all = ["cert", "key", "self_signed"])]
    domain: Vec<String>,

    /// URL of the authority's directory, instead of Let's Encrypt.
    #[arg(long, value_name = "URL", value_parser = config::directory, requires = "domain")]
    acme_directory: Option<KeyUrl>,

    /// CA of the authority's server, in PEM, instead of the system's.
    #[arg(long, value_name = "FILE", requires = "domain")]
    acme_ca: Option<PathBuf>,

    /// E-mail address for messages of the authority.
    #[arg(long, value_name = "EMAIL", value_parser = config::email, requires = "domain")]
    acme_email: Vec<String>,

    /// Directory of certificates and accounts [default: /var/lib/vanward/acme]
    #[arg(long, value_name = "DIR", requires = "domain")]
    acme_folder: Option<PathBuf>,
}

impl Flags {
    /// Whether a listener redirects to one with a certificate.
    pub(crate) fn redirects(&self, address: &ListenAddress) -> bool {
        !self.domain.is_empty() && address.port() == Some(HTTP)
    }

    /// The option `tls` of a listener, if it has automatic certificates.
    pub(crate) fn tls(&self, address: &ListenAddress) -> Option<String> {
        if self.domain.is_empty() || self.redirects(address) {
            return None;
        }
        let names: Vec<String> = self.domain.iter().map(|name| quoted(name)).collect();
        Some(format!("{{ certificates = \"auto\", names = [{}] }}", names.join(", ")))
    }

    /// Writes `[acme]`: its header with an empty option, then options with values.
    pub(crate) fn write(&self, set: &mut dyn FnMut(&str, &str)) {
        if self.domain.is_empty() {
            return;
        }
        set("", "[acme]");
        if let Some(url) = &self.acme_directory {
            set("directory", &quoted(&url.to_string()));
        }
        if let Some(ca) = &self.acme_ca {
            set("ca", &quoted(&ca.display().to_string()));
        }
        if !self.acme_email.is_empty() {
            let contact: Vec<String> = self.acme_email.iter().map(|email| quoted(email)).collect();
            set("contact", &format!("[{}]", contact.join(", ")));
        }
        if let Some(folder) = &self.acme_folder {
            // A file has the whole path.
            let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.clone());
            set("folder", &quoted(&folder.display().to_string()));
        }
    }
}
