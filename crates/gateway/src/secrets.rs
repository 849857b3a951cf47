//! Certificates with keys in Secrets, CAs, and users with password hashes.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;

use crate::annotations::UserListForm;
use crate::kinds::KubernetesSecret;

const TLS: &str = "kubernetes.io/tls";
/// Key of the value with one line for each user.
const USERS: &str = "auth";
/// Key of CA certificates.
pub(crate) const AUTHORITIES: &str = "ca.crt";
/// Key of revocation lists, as in ingress-nginx.
const REVOCATIONS: &str = "ca.crl";

pub(crate) fn pair(secret: &KubernetesSecret) -> Result<(Vec<u8>, Vec<u8>), String> {
    if secret.kind != TLS {
        return Err(format!("its type is {:?}, not {TLS:?}", secret.kind));
    }
    let value = |key: &str| {
        let text = secret.data.get(key).ok_or_else(|| format!("it has no {key}"))?;
        BASE64_STANDARD.decode(text).map_err(|_| format!("{key} is not base64"))
    };
    Ok((value("tls.crt")?, value("tls.key")?))
}

/// Removes everything except users with password hashes, CAs and their revocation lists. Returns whether any are left.
pub(crate) fn keep_known(secret: &mut KubernetesSecret) -> bool {
    let is_known = |key: &str, value: &str| match (key, decoded(value)) {
        (USERS, Some(text)) => {
            lines(&text).all(|line| line.split_once(':').is_some_and(|(_, hash)| is_hash(hash)))
        }
        (AUTHORITIES | REVOCATIONS, Some(text)) => !text.contains("PRIVATE KEY"),
        (_, Some(hash)) => is_hash(&hash),
        (_, None) => false,
    };
    secret.data.retain(|key, value| is_known(key, value));
    !secret.data.is_empty()
}

/// Returns the CA certificates of a Secret, in PEM.
pub(crate) fn authorities(secret: &KubernetesSecret) -> Result<Vec<u8>, String> {
    if secret.data.contains_key(REVOCATIONS) {
        return Err(format!("{REVOCATIONS} is not supported, so nobody could be refused by it"));
    }
    let text = secret.data.get(AUTHORITIES).ok_or_else(|| format!("it has no {AUTHORITIES}"))?;
    BASE64_STANDARD.decode(text).map_err(|_| format!("{AUTHORITIES} is not base64"))
}

/// Returns the users of a Secret as a file with one line for each.
pub(crate) fn users(secret: &KubernetesSecret, form: UserListForm) -> Option<Vec<u8>> {
    let text = match form {
        UserListForm::File => decoded(secret.data.get(USERS)?)?,
        UserListForm::Map => {
            let line = |(user, hash): (&String, &String)| Some(format!("{user}:{}\n", decoded(hash)?.trim()));
            let is_user = |user: &&String| ![USERS, AUTHORITIES, REVOCATIONS].contains(&user.as_str());
            secret.data.iter().filter(|(user, _)| is_user(user)).filter_map(line).collect()
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

/// Whether a text looks like a password hash of crypt(3) or htpasswd.
fn is_hash(text: &str) -> bool {
    let text = text.trim();
    (text.starts_with('$') || text.starts_with('{')) && !text.contains(char::is_whitespace)
}

/// Returns the name of a Secret's file in the configuration.
pub(crate) fn path(namespace: &str, name: &str, key: &str) -> String {
    format!("kubernetes:{namespace}/{name}/{key}")
}
