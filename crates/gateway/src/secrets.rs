//! Certificates and keys in secrets, and users with the hashes of their passwords.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;

use crate::annotations::Form;
use crate::kinds::Secret;

/// The type of secrets with certificates.
const TLS: &str = "kubernetes.io/tls";
/// The value with a line for each user.
const USERS: &str = "auth";

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

/// Removes all but users with hashes of passwords from a secret. Returns whether there are any.
pub(crate) fn keep_users(secret: &mut Secret) -> bool {
    let has_users = |key: &str, value: &str| match decoded(value) {
        Some(text) if key == USERS => {
            lines(&text).all(|line| line.split_once(':').is_some_and(|(_, hash)| is_hash(hash)))
        }
        Some(hash) => is_hash(&hash),
        None => false,
    };
    secret.data.retain(|key, value| has_users(key, value));
    !secret.data.is_empty()
}

/// The users of a secret, as a file with a line for each.
pub(crate) fn users(secret: &Secret, form: Form) -> Option<Vec<u8>> {
    let text = match form {
        Form::File => decoded(secret.data.get(USERS)?)?,
        Form::Map => {
            let line = |(user, hash): (&String, &String)| Some(format!("{user}:{}\n", decoded(hash)?.trim()));
            secret.data.iter().filter(|(user, _)| *user != USERS).filter_map(line).collect()
        }
    };
    Some(text.into_bytes()).filter(|text| !text.is_empty())
}

fn decoded(value: &str) -> Option<String> {
    String::from_utf8(BASE64_STANDARD.decode(value).ok()?).ok()
}

fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// Whether a text looks like the hash of a password, as crypt(3) and htpasswd write them.
fn is_hash(text: &str) -> bool {
    let text = text.trim();
    (text.starts_with('$') || text.starts_with('{')) && !text.contains(char::is_whitespace)
}

/// The name by which the configuration calls a file of a secret.
pub(crate) fn path(namespace: &str, name: &str, key: &str) -> String {
    format!("kubernetes:{namespace}/{name}/{key}")
}
