//! Certificates in the admin API: those of the listeners, and their renewal.

use serde::{Deserialize, Serialize};

/// A certificate that a listener presents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CertificateStatus {
    pub listener: String,
    /// Host names and addresses of the certificate.
    pub names: Vec<String>,
    /// The issuer's distinguished name.
    pub issuer: String,
    /// In hexadecimal digits.
    pub serial: String,
    /// Start of the validity, in seconds since 1970.
    pub valid_from_seconds: i64,
    /// End of the validity, in seconds since 1970.
    pub valid_until_seconds: i64,
    /// End of the validity as text, such as `2026-01-31 12:00:00 UTC`.
    pub valid_until: String,
    /// Whole days until the end; negative if it has passed.
    pub days_left: i64,
    pub source: CertificateSource,
    /// Its file, unless the proxy has made it.
    pub file: Option<String>,
    /// The next renewal of an automatic certificate.
    pub renewal: Option<RenewalState>,
    /// Problems with the certificate, one sentence each.
    pub problems: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum CertificateSource {
    /// A configured file.
    File,
    /// A certificate authority, on request of the proxy (ACME).
    Auto,
    /// The proxy, until an authority issues one.
    StandIn,
    SelfSigned,
}

/// The next renewal of an automatic certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "Renewal"))]
pub struct RenewalState {
    /// The configured name.
    pub name: String,
    /// When the next attempt is made, in seconds since 1970.
    pub next_seconds: i64,
    /// When the next attempt is made, such as `2026-01-31 12:00:00 UTC`.
    pub next: String,
    /// When the authority suggests to renew; `None` if it does not.
    pub suggested: Option<Suggested>,
    /// Whether another process that shares the folder requests it.
    pub elsewhere: bool,
    /// Failures in a row.
    pub failures: u32,
    /// When the last attempt failed, in seconds since 1970; `None` if it did not.
    pub last_failure_seconds: Option<i64>,
    /// Why the last attempt failed.
    pub last_failure: Option<String>,
}

/// When an authority suggests to renew a certificate (ARI, RFC 9773).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Suggested {
    /// Start of the window, in seconds since 1970.
    pub from_seconds: i64,
    /// End of the window, in seconds since 1970.
    pub until_seconds: i64,
    /// Start and end, such as `2026-01-29 12:00:00 UTC to 2026-01-31 12:00:00 UTC`.
    pub window: String,
    /// URL of a page with the reason, if the authority gives one.
    pub why: Option<String>,
}

/// Renews the certificate of a name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RenewalOrder {
    pub name: String,
    /// Whether the old certificate is revoked when the new one is in force.
    #[serde(default)]
    pub revoke: bool,
}
