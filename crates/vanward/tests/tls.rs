//! Operators' tasks with certificates, with their programs: openssl creates them, curl verifies them.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use crate::process::{Process, run_in};

/// Runs a program; `None` if it is not installed, which is an error in CI.
fn ran(program: &str, folder: &Path, arguments: &[&str]) -> Option<Output> {
    match Command::new(program).args(arguments).current_dir(folder).output() {
        Ok(output) => Some(output),
        Err(_) if std::env::var_os("CI").is_none() => None,
        Err(error) => panic!("{program} does not start, and CI is set: {error}"),
    }
}

/// Creates a certificate for an address, whose key has a passphrase, and a file that uses them.
fn folder(tls: &str) -> Option<tempfile::TempDir> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let key = ["genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-aes-256-cbc", "-pass"];
    let certificate =
        ["req", "-x509", "-key", "site.key", "-out", "site.pem", "-subj", "/CN=site", "-passin"];
    let names = ["-addext", "subjectAltName=DNS:site.example,IP:127.0.0.1"];
    let passphrase = "pass:correct horse";
    let steps = [
        [&key[..], &[passphrase, "-out", "site.key"]].concat(),
        [&certificate[..], &[passphrase], &names].concat(),
    ];
    for arguments in steps {
        let made = ran("openssl", folder.path(), &arguments)?;
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    }
    let write =
        |name: &str, text: &str| std::fs::write(folder.path().join(name), text).expect("it is writable");
    write("site.pass", "correct horse\n");
    write("wrong.pass", "correct horse battery");
    write(
        "vanward.toml",
        &format!(
            "workers = 1\n[[listen]]\naddress = \"127.0.0.1:0\"\ntls = {{ cert = \"site.pem\", key = \"site.key\", {tls} }}\n\
         [[route]]\nrespond = {{ status = 200, body = \"secured\" }}\n"
        ),
    );
    Some(folder)
}

#[test]
fn a_key_with_a_passphrase_and_a_certificate_for_an_address_are_used() {
    let Some(folder) = folder("passphrase = \"site.pass\"") else { return };
    let mut proxy = Process::start_in(folder.path(), &["run"]);
    let address = proxy.address();
    let url = format!("https://{address}/");
    let arguments = ["-q", "--silent", "--show-error", "--noproxy", "*", "--cacert", "site.pem", &url];
    let Some(said) = ran("curl", folder.path(), &arguments) else { return };
    assert_eq!(String::from_utf8_lossy(&said.stdout), "secured", "{}", String::from_utf8_lossy(&said.stderr));
}

#[test]
fn a_key_that_stays_encrypted_is_a_mistake_with_a_remedy() {
    for (tls, mistake) in [
        (
            "ocsp = \"none\"",
            "site.key: its private key is encrypted; expected the file of its passphrase as passphrase",
        ),
        (
            "passphrase = \"wrong.pass\"",
            "site.key: its private key can't be decrypted with the passphrase in wrong.pass",
        ),
        ("passphrase = \"missing\"", "missing: it can't be read: No such file or directory"),
    ] {
        let Some(folder) = folder(tls) else { return };
        let ended = run_in(folder.path(), &["check"]).with_code(78);
        assert!(ended.errors.contains(mistake), "{tls}: {}", ended.errors);
        assert!(!ended.errors.contains("horse"), "{}", ended.errors);
    }
}

#[test]
fn secrets_of_sessions_are_written_where_that_is_allowed() {
    for (tls, is_allowed) in
        [("passphrase = \"site.pass\"", false), ("passphrase = \"site.pass\", key_log = true", true)]
    {
        let Some(folder) = folder(tls) else { return };
        let file = folder.path().join("secrets");
        let mut command = Command::new(env!("CARGO_BIN_EXE_vanward"));
        command.arg("run").current_dir(folder.path()).env("SSLKEYLOGFILE", &file);
        let mut proxy = Process::of(&mut command);
        let url = format!("https://{}/", proxy.address());
        let arguments = ["-q", "--silent", "--noproxy", "*", "--cacert", "site.pem", &url];
        let Some(said) = ran("curl", folder.path(), &arguments) else { return };
        assert_eq!(String::from_utf8_lossy(&said.stdout), "secured");
        assert_eq!(proxy.said("key_log: secrets of TLS sessions are written to") > 0, is_allowed);
        assert_eq!(file.exists(), is_allowed);
        if is_allowed {
            let secrets = std::fs::read_to_string(&file).expect("it is text");
            assert!(secrets.contains("SERVER_TRAFFIC_SECRET_0 "), "{secrets}");
            let mode = std::fs::metadata(&file).expect("it is there").permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
    }
}

#[test]
fn a_key_log_without_a_file_is_remarked_on() {
    let Some(folder) = folder("passphrase = \"site.pass\", key_log = true") else { return };
    let mut command = Command::new(env!("CARGO_BIN_EXE_vanward"));
    command.arg("check").current_dir(folder.path()).env_remove("SSLKEYLOGFILE");
    let said = command.output().expect("the program was built");
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(said.contains("key_log has no effect: SSLKEYLOGFILE is not set"), "{said}");
}

/// Creates a CA and its certificate for server and client, whose key has a passphrase. Starts a server that
/// requires it, and writes the file of a proxy before it.
fn mutual(tls: &str) -> Option<(tempfile::TempDir, Process)> {
    let folder =
        folder("passphrase = \"site.pass\", client_certificates = { mode = \"required\", ca = \"ca.pem\" }")?;
    let ca =
        ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=ca"];
    let leaf = ["req", "-x509", "-CA", "ca.pem", "-CAkey", "ca.key", "-key", "site.key", "-passin"];
    let names = ["-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE"];
    let steps = [
        [&ca[..], &["-keyout", "ca.key", "-out", "ca.pem"]].concat(),
        [&leaf[..], &["pass:correct horse", "-subj", "/CN=site", "-out", "site.pem"], &names].concat(),
    ];
    for arguments in steps {
        let made = ran("openssl", folder.path(), &arguments)?;
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    }
    let mut server = Process::start_in(folder.path(), &["run"]);
    let text = format!(
        "workers = 1\n[[listen]]\naddress = \"127.0.0.1:0\"\n[[route]]\nupstream = \"app\"\n[upstream.app]\n\
         servers = [\"https://{}\"]\ntls = {{ ca = \"ca.pem\", cert = \"site.pem\", key = \"site.key\", {tls} }}\n",
        server.address()
    );
    std::fs::write(folder.path().join("front.toml"), text).expect("it is writable");
    Some((folder, server))
}

#[test]
fn a_key_towards_servers_may_have_a_passphrase_and_secrets_are_written_where_that_is_allowed() {
    for (tls, is_allowed) in
        [("passphrase = \"site.pass\"", false), ("passphrase = \"site.pass\", key_log = true", true)]
    {
        let Some((folder, _server)) = mutual(tls) else { return };
        let file = folder.path().join("secrets");
        let mut command = Command::new(env!("CARGO_BIN_EXE_vanward"));
        command
            .args(["run", "--config", "front.toml"])
            .current_dir(folder.path())
            .env("SSLKEYLOGFILE", &file);
        let mut proxy = Process::of(&mut command);
        let url = format!("http://{}/", proxy.address());
        let Some(said) = ran("curl", folder.path(), &["-q", "--silent", "--noproxy", "*", &url]) else {
            return;
        };
        assert_eq!(String::from_utf8_lossy(&said.stdout), "secured", "{tls}");
        assert_eq!(proxy.said("key_log: secrets of TLS sessions are written to") > 0, is_allowed);
        let secrets = std::fs::read_to_string(&file).unwrap_or_default();
        assert_eq!(secrets.contains("CLIENT_TRAFFIC_SECRET_0 "), is_allowed, "{secrets}");
    }
}

#[test]
fn a_key_towards_servers_that_stays_encrypted_is_a_mistake_with_a_remedy() {
    for (tls, mistake) in [
        (
            "verify = true",
            "site.key: its private key is encrypted; expected the file of its passphrase as passphrase",
        ),
        (
            "passphrase = \"wrong.pass\"",
            "site.key: its private key can't be decrypted with the passphrase in wrong.pass",
        ),
    ] {
        let Some((folder, _server)) = mutual(tls) else { return };
        let ended = run_in(folder.path(), &["check", "front.toml"]).with_code(78);
        assert!(ended.errors.contains(mistake), "{tls}: {}", ended.errors);
        assert!(!ended.errors.contains("horse"), "{}", ended.errors);
    }
}

fn set_mode(file: &Path, mode: u32) {
    std::fs::set_permissions(file, std::fs::Permissions::from_mode(mode)).expect("it is this user's");
}

#[test]
fn a_key_that_others_can_read_is_told_once_and_is_no_mistake() {
    let Some(folder) = folder("passphrase = \"site.pass\"") else { return };
    for secret in ["site.key", "site.pass"] {
        set_mode(&folder.path().join(secret), 0o600);
    }
    let checked = run_in(folder.path(), &["check"]).with_code(0);
    assert_eq!(checked.errors, "");
    set_mode(&folder.path().join("site.key"), 0o644);
    let told = "site.key: every user can read this secret (mode 0644); expected mode 0600";
    let checked = run_in(folder.path(), &["check"]).with_code(0);
    assert!(checked.errors.contains("warning: key: ") && checked.errors.contains(told), "{}", checked.errors);
    let mut proxy = Process::start_in(folder.path(), &["run"]);
    proxy.address();
    assert_eq!(proxy.said(told), 1);
}
