//! Checks by `vanward check` on this machine besides certificates: folders, host names, and the needs of automatic
//! certificates.

use std::collections::{BTreeSet, HashMap};
use std::fs::{self, Metadata};
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use config::{Mistake, Need, Needed, Reading, SecretForm, ServerHost};
use rustix::fs::{Access, access};

type Wrong = (String, Option<&'static str>);

/// Adds unmet needs as mistakes. Unresolved names are warnings: they may resolve at run time, and the proxy retries.
pub(super) fn with_needs(mut reading: Reading) -> Reading {
    let names = reading.needs.iter().filter_map(|need| match &need.what {
        Needed::AddressOf(name) => Some(name.clone()),
        _ => None,
    });
    let names: BTreeSet<ServerHost> = names.collect();
    let unresolved: HashMap<ServerHost, String> = match names.is_empty() {
        true => HashMap::new(),
        // Without a thread for look-ups, nothing is known about names.
        false => ::control::unresolved(names.into_iter().collect()).unwrap_or_default().into_iter().collect(),
    };
    let (mut mistakes, mut warnings) =
        (std::mem::take(&mut reading.mistakes), std::mem::take(&mut reading.warnings));
    for need in &reading.needs {
        let told = |(what, expected): Wrong| need.mistake(&what, expected);
        match &need.what {
            Needed::AddressOf(name) => {
                warnings.extend(unresolved.get(name).map(|reason| need.mistake(reason, None)));
            }
            Needed::OwnFolder(folder) => warnings.extend(open_to_others(folder).map(told)),
            Needed::FolderOf(_)
            | Needed::FilesRoot(_)
            | Needed::Authorities(_)
            | Needed::Secret(..)
            | Needed::Redis => {}
        }
        mistakes.extend(missing(need).map(told));
    }
    // A warning of `run` that is a mistake here.
    let place = |mistake: &Mistake| (mistake.file.clone(), mistake.line, mistake.column);
    warnings.retain(|warning| !mistakes.iter().any(|mistake| place(mistake) == place(warning)));
    for list in [&mut mistakes, &mut warnings] {
        reading.in_order(list);
    }
    (reading.mistakes, reading.warnings) = (mistakes, warnings);
    if !reading.mistakes.is_empty() {
        reading.config = None;
    }
    reading
}

fn missing(need: &Need) -> Option<Wrong> {
    match &need.what {
        Needed::FolderOf(file) => folder_of(file),
        Needed::FilesRoot(folder) => files_root(folder),
        Needed::OwnFolder(folder) => own_folder(folder),
        Needed::Authorities(file) => {
            let problem = tls::check_authorities(file).err()?;
            Some((format!("{}: {}", config::shown_path(file), problem.fault), problem.fault.expected()))
        }
        Needed::Secret(file, form) => secret(file, *form),
        // A build without Redis rejects it with the files, as `run` does.
        Needed::AddressOf(_) | Needed::Redis => None,
    }
}

fn folder_of(file: &Path) -> Option<Wrong> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
        let what = format!("{}: the folder {} does not exist", file.display(), config::shown_path(folder));
        return Some((what, Some("an existing folder, or create it first")));
    }
    file.is_dir().then(|| (format!("{} is a folder", file.display()), Some("the name of a file in it")))
}

fn files_root(folder: &Path) -> Option<Wrong> {
    let expected = "the directory of the files; until it exists, requests get 404";
    let shown = config::shown_path(folder);
    match fs::metadata(folder) {
        Ok(found) if found.is_dir() => None,
        Ok(_) => Some((format!("{shown} is not a directory"), Some(expected))),
        Err(error) => Some((format!("{shown}: {error}"), Some(expected))),
    }
}

/// Checks a folder that this user must be able to write or create.
fn own_folder(folder: &Path) -> Option<Wrong> {
    const EXPECTED: Option<&str> = Some("a folder of the user of the process, with mode 0700");
    let shown = config::shown_path(folder);
    let place = folder.ancestors().find_map(|place| match fs::metadata(place) {
        Ok(found) => Some(Ok((place, found))),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => Some(Err(error)),
    });
    let (place, found) = match place? {
        Ok(place) => place,
        Err(error) => return Some((format!("{shown}: it cannot be accessed: {error}"), EXPECTED)),
    };
    let is_there = place == folder;
    if !found.is_dir() {
        let what = if is_there {
            "it is not a folder".to_owned()
        } else {
            format!("{} is not a folder", place.display())
        };
        return Some((format!("{shown}: {what}"), EXPECTED));
    }
    let error = access(place, Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK).err()?;
    Some(match is_there {
        true => (format!("{shown}: this user cannot write there: {error}"), EXPECTED),
        false => (
            format!(
                "{shown}: it does not exist, and this user cannot create it in {}: {error}",
                place.display()
            ),
            Some("an existing folder that belongs to the user of the process"),
        ),
    })
}

/// Warns about a folder that other users may write to. Readable keys have warnings like those for files.
fn open_to_others(folder: &Path) -> Option<Wrong> {
    let found = fs::metadata(folder).ok().filter(Metadata::is_dir)?;
    let mode = found.permissions().mode() & 0o777;
    (mode & 0o022 != 0).then(|| {
        let what = format!("{}: other users can write there (mode {mode:04o})", folder.display());
        (what, Some("mode 0700: users who can write there control the keys of these names"))
    })
}

/// Far more than any secret.
const SECRET_BYTES_MAX: u64 = 4096;

fn secret(file: &Path, form: SecretForm) -> Option<Wrong> {
    let (special, expected) = match form {
        SecretForm::Base64 => (b"+/", "the secret in base64, as tsig-keygen writes it"),
        SecretForm::Base64Url => (b"-_", "the key in base64url, as the authority shows it"),
        SecretForm::Token => (b"-_", "the token in its first line"),
    };
    let wrong = |what: String| Some((format!("{}: {what}", config::shown_path(file)), Some(expected)));
    match fs::metadata(file) {
        Err(error) => return wrong(format!("it can't be read: {error}")),
        Ok(found) if !found.is_file() => return wrong("it is not a file".to_owned()),
        Ok(found) if found.len() > SECRET_BYTES_MAX => {
            return wrong("it is too large for a secret".to_owned());
        }
        Ok(_) => {}
    }
    let text = match fs::read(file) {
        Ok(text) => text,
        Err(error) => return wrong(format!("it can't be read: {error}")),
    };
    let text = text.trim_ascii();
    if form == SecretForm::Token {
        let token = text.split(|&byte| byte == b'\n').next().unwrap_or_default().trim_ascii();
        let is_token = !token.is_empty() && token.iter().all(u8::is_ascii_graphic);
        return if is_token { None } else { wrong("it has no token".to_owned()) };
    }
    let text = text.strip_suffix(b"==").or(text.strip_suffix(b"=")).unwrap_or(text);
    let is_of_form = |byte: &u8| byte.is_ascii_alphanumeric() || special.contains(byte);
    // The last group of four characters may be cut to two or three.
    if text.is_empty() || text.len() % 4 == 1 || !text.iter().all(is_of_form) {
        return wrong("it has no secret".to_owned());
    }
    None
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;

    use super::super::check::remarks;
    use super::*;

    const VALID: &str = "\
[[listen]]
address = \"127.0.0.1:8080\"
[[route]]
upstream = \"app\"
[upstream.app]
servers = [\"http://127.0.0.1:9000\", \"http://127.0.0.1:9001\"]
";

    fn told(text: &str) -> (String, bool) {
        let reading = with_needs(config::examine(text, "f.toml"));
        let lines = remarks(&reading);
        let lines = lines.lines().filter(|line| !line.starts_with(' '));
        (lines.map(|line| format!("{line}\n")).collect(), reading.config.is_some())
    }

    #[test]
    fn folders_that_are_missing_are_mistakes_and_names_that_do_not_resolve_warnings() {
        let text = format!(
            "admin = \"/nowhere/admin\"\n{VALID}[log]\ntarget = \"/nowhere/else/access.log\"\n[[listen]]\n\
             address = \"unix:/nowhere/web\"\n"
        );
        let expected = "; expected an existing folder, or create it first";
        let remarks = format!(
            "f.toml:1:9: admin: /nowhere/admin: the folder /nowhere does not exist{expected}\n\
             f.toml:9:10: target: /nowhere/else/access.log: the folder /nowhere/else does not exist{expected}\n\
             f.toml:11:11: address: /nowhere/web: the folder /nowhere does not exist{expected}\n"
        );
        assert_eq!(told(&text), (remarks, false));
        // RFC 6761 §6.4: the name never exists, and no name server is asked.
        let text = VALID.replace("127.0.0.1:9001", "app.invalid:9001") + "[log]\ntarget = \"/tmp\"\n";
        let remarks = "f.toml:8:10: target: /tmp is a folder; expected the name of a file in it\n\
                       f.toml:6:37: warning: servers: cannot resolve app.invalid: there is no such name\n";
        assert_eq!(told(&text).0, remarks);
    }

    #[test]
    fn a_root_of_files_that_does_not_exist_is_a_mistake() {
        let place = tempfile::tempdir().expect("a temporary folder");
        let root = |root: &Path| {
            format!(
                "[[listen]]\naddress = \"127.0.0.1:8080\"\n[[route]]\nfiles = {{ root = {:?} }}\n",
                root.display()
            )
        };
        assert_eq!(told(&root(place.path())), (String::new(), true));
        fs::write(place.path().join("file"), "").expect("it is writable");
        for (name, what) in
            [("none", ": No such file or directory (os error 2)"), ("file", " is not a directory")]
        {
            let path = place.path().join(name);
            let expected = "expected the directory of the files; until it exists, requests get 404";
            let said = format!("f.toml:4:18: root: {}{what}; {expected}\n", path.display());
            assert_eq!(told(&root(&path)), (said, false));
        }
    }

    /// A file with automatic certificates whose challenges can be answered.
    fn automatic(acme: &str) -> String {
        format!(
            "listen = [{{ address = \"*:443\", tls = {{ certificates = \"auto\" }} }}]\n\
             route = [{{ host = \"a.example\", upstream = \"app\" }}]\n\
             upstream.app.servers = [\"http://127.0.0.1:9000\"]\n[acme]\n{acme}\n"
        )
    }

    #[test]
    fn needs_of_automatic_certificates_are_checked() {
        let place = tempfile::tempdir().expect("a temporary folder");
        let path = |name: &str| place.path().join(name).display().to_string();
        let write = |name: &str, text: &str| fs::write(path(name), text).expect("it is writable");
        write("no.pem", "nothing");
        write("good.key", "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W\n");
        write("bad.key", "this is no key");
        let folder = format!("folder = {:?}\n", path("acme/deep"));
        let account =
            |file: &str| format!("{folder}external_account = {{ id = \"a\", key_file = {:?} }}", path(file));
        let tsig = |file: &str| {
            let key = path(file);
            format!("{folder}dns = {{ server = \"192.0.2.1:53\", key_name = \"k\", key_file = {key:?} }}")
        };
        for (acme, expected) in [
            (folder.clone(), None),
            (account("good.key"), None),
            (tsig("good.key"), None),
            (
                format!("folder = {:?}", path("no.pem")),
                Some("folder: PATH/no.pem: it is not a folder; expected a folder of"),
            ),
            (
                format!("folder = {:?}", path("no.pem/deep")),
                Some("folder: PATH/no.pem/deep: it cannot be accessed: Not a directory"),
            ),
            (
                format!("{folder}ca = {:?}", path("no.pem")),
                Some("ca: PATH/no.pem: it has no certificate; expected certificates in PEM"),
            ),
            (
                format!("{folder}ca = {:?}", path("missing.pem")),
                Some("ca: PATH/missing.pem: it can't be read: No such file"),
            ),
            (
                format!(
                    "{folder}fallback = {{ directory = \"https://b.example/\", ca = {:?} }}",
                    path("no.pem")
                ),
                Some("ca: PATH/no.pem: it has no certificate"),
            ),
            (
                account("bad.key"),
                Some("key_file: PATH/bad.key: it has no secret; expected the key in base64url"),
            ),
            (account("missing.key"), Some("key_file: PATH/missing.key: it can't be read: No such file")),
            (
                tsig("bad.key"),
                Some("key_file: PATH/bad.key: it has no secret; expected the secret in base64"),
            ),
        ] {
            let (said, is_valid) = told(&automatic(&acme));
            let expected = expected.map(|text| text.replace("PATH", &place.path().display().to_string()));
            match expected {
                Some(expected) => assert!(said.contains(&expected), "{acme}\n{said}"),
                None => assert_eq!(said, "", "{acme}"),
            }
            assert_eq!(is_valid, said.is_empty(), "{acme}\n{said}");
        }
    }

    #[test]
    fn a_folder_that_others_can_use_is_remarked_on() {
        let place = tempfile::tempdir().expect("a temporary folder");
        let set = |path: &Path, mode| {
            fs::set_permissions(path, Permissions::from_mode(mode)).expect("it is this user's");
        };
        let file = automatic(&format!("folder = {:?}", place.path().display().to_string()));
        for (mode, expected) in [
            (0o700, None),
            (0o755, None),
            (0o777, Some(": other users can write there (mode 0777); expected mode 0700")),
        ] {
            set(place.path(), mode);
            let (said, is_valid) = told(&file);
            assert!(is_valid, "{said}");
            match expected {
                Some(expected) => {
                    assert!(said.contains("warning: folder: ") && said.contains(expected), "{said}");
                }
                None => assert_eq!(said, ""),
            }
        }
        // The superuser may write anywhere.
        if !rustix::process::geteuid().is_root() {
            set(place.path(), 0o500);
            let (said, is_valid) = told(&file);
            set(place.path(), 0o700);
            assert!(!is_valid && said.contains("this user cannot write there: Permission denied"), "{said}");
        }
    }
}
