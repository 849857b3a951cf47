//! Certificates in the admin API: what listeners present, and what is to come.

use serde::{Deserialize, Serialize};

/// A certificate that a listener presents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CertificateStatus {
    /// The name of the listener.
    pub listener: String,
    /// Host names and addresses of the certificate.
    pub names: Vec<String>,
    /// The issuer's distinguished name.
    pub issuer: String,
    /// The serial number, in hexadecimal digits.
    pub serial: String,
    /// Start of the validity, in seconds since 1970.
    pub valid_from_seconds: i64,
    /// End of the validity, in seconds since 1970.
    pub valid_until_seconds: i64,
    /// The same, such as `2026-01-31 12:00:00 UTC`.
    pub valid_until: String,
    /// Whole days until then; negative if that has passed.
    pub days_left: i64,
    /// Where it comes from.
    pub source: CertificateSource,
    /// Its file, unless the proxy has made it.
    pub file: Option<String>,
    /// What an automatic certificate waits for.
    pub renewal: Option<Renewal>,
    /// What is wrong with it.
    pub problems: Vec<String>,
}

/// Where a certificate comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum CertificateSource {
    /// A file that is configured.
    File,
    /// An authority, which the proxy has asked.
    Auto,
    /// The proxy, until an authority issues one.
    StandIn,
    /// The proxy, as configured.
    SelfSigned,
}

/// What an automatic certificate waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Renewal {
    /// The configured name.
    pub name: String,
    /// When the next attempt is made, in seconds since 1970.
    pub next_seconds: i64,
    /// The same, such as `2026-01-31 12:00:00 UTC`.
    pub next: String,
    /// When the authority suggests to renew; `None` if it does not.
    pub suggested: Option<Suggested>,
    /// Whether another process that shares the folder asks for it.
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
    /// Both, such as `2026-01-29 12:00:00 UTC to 2026-01-31 12:00:00 UTC`.
    pub window: String,
    /// URL of a page that says why, if the authority has given one.
    pub why: Option<String>,
}

/// Has the certificate of a name renewed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RenewalOrder {
    /// The configured name.
    pub name: String,
    /// Whether the old certificate is revoked when the new one is in force.
    #[serde(default)]
    pub revoke: bool,
}
