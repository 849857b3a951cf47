//! Certificates and keys in secrets.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;

use crate::kinds::Secret;

/// The type of secrets with certificates.
const TLS: &str = "kubernetes.io/tls";

/// The certificate and the key of a secret, in PEM.
pub(crate) fn pair(secret: &Secret) -> Result<(Vec<u8>, Vec<u8>), String> {
    if secret.kind != TLS {
        return Err(format!("its type is {:?}, not {TLS:?}", secret.kind));
    }
    let value = |key: &str| {
        let text = secret.data.get(key).ok_or_else(|| format!("it has no {key}"))?;
        BASE64_STANDARD.decode(text).map_err(|_| format!("{key} is not base64"))
    };
    Ok((value("tls.crt")?, value("tls.key")?))
}

/// The name by which the configuration calls a file of a secret.
pub(crate) fn path(namespace: &str, name: &str, key: &str) -> String {
    format!("kubernetes:{namespace}/{name}/{key}")
}
