//! Dependencies between crates, from `cargo metadata`: `vanward -> chaos -> control -> proxy -> transport`, from there
//! `-> config, tls, telemetry -> pure`, and `vanward -> lab`. The lab reaches proxies only over sockets.

use std::path::Path;

use serde_json::Value;

use super::Finding;
use crate::workspace::text;

/// Layer of a crate; determines its allowed dependencies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layer {
    /// Pure: takes bytes and `now`, and returns decisions.
    Pure,
    /// Uses the kernel, for the proxy.
    World,
    /// The configuration, which is read from a file.
    Config,
    /// Implements parts of the configuration, apart from the path of a request.
    Configured,
    /// HTTP requests of the control side.
    Client,
    /// A configuration from outside: etcd, a cluster.
    Fleet,
    /// Byte streams and timers, below the path of a request.
    Transport,
    Proxy,
    /// Control of the proxy outside of the path of a request.
    Control,
    /// Chaos proxy, whose API is served like the admin API.
    Chaos,
    /// Shared by parts of the lab.
    LabBase,
    /// Parts of the lab: servers and clients for measurements, and the arithmetic of results.
    LabPart,
    /// Plans and runs measurements.
    Lab,
    Top,
    /// Support for tests of the proxy and its command line: only a dev-dependency.
    TestSupport,
    /// Reports mistakes in files, for the proxy and for the lab. Pure.
    Words,
    /// Translates configurations of other programs, as text. Pure; its tests parse the output.
    Adapting,
    /// Compares an adapted configuration with the original. Pure.
    Proving,
    Tool,
}

/// Layer of every crate of the workspace. A new crate must be added here first.
const CRATES: &[(&str, Layer)] = &[
    ("http1", Layer::Pure),
    ("fields", Layer::Pure),
    ("http2", Layer::Pure),
    ("http3", Layer::Pure),
    ("expression", Layer::Pure),
    ("maps", Layer::Pure),
    ("route", Layer::Pure),
    ("jwt", Layer::Pure),
    ("signatures", Layer::Pure),
    ("structured", Layer::Pure),
    ("grpc", Layer::Pure),
    ("fastcgi", Layer::Pure),
    ("balance", Layer::Pure),
    ("cache", Layer::Pure),
    ("coding", Layer::Pure),
    ("shape", Layer::Pure),
    ("api", Layer::Pure),
    ("logline", Layer::Pure),
    ("mistake", Layer::Words),
    ("toml_text", Layer::Words),
    ("config", Layer::Config),
    ("adapt", Layer::Adapting),
    ("gateway", Layer::Adapting),
    ("discover", Layer::Adapting),
    ("capture", Layer::Words),
    ("prove", Layer::Proving),
    ("tls", Layer::Configured),
    ("telemetry", Layer::World),
    ("disk", Layer::World),
    ("pages", Layer::World),
    ("files", Layer::World),
    ("http_client", Layer::Client),
    ("fleet", Layer::Fleet),
    ("kubernetes", Layer::Fleet),
    ("transport", Layer::Transport),
    ("proxy", Layer::Proxy),
    ("control", Layer::Control),
    ("chaos", Layer::Chaos),
    ("lab_http3", Layer::LabBase),
    ("origin", Layer::LabPart),
    ("load", Layer::LabPart),
    ("report", Layer::LabPart),
    ("lab", Layer::Lab),
    ("vanward", Layer::Top),
    ("testkit", Layer::TestSupport),
    ("xtask", Layer::Tool),
];

/// Crates with sockets, threads or a runtime, which pure crates must not use.
const IMPURE: &[&str] =
    &["tokio", "mio", "socket2", "rustix", "libc", "nix", "hickory-resolver", "crossbeam", "rayon"];

impl Layer {
    fn parse(name: &str) -> Option<Self> {
        CRATES.iter().find(|(known, _)| *known == name).map(|(_, layer)| *layer)
    }

    fn may_depend_on(self, other: Self) -> bool {
        use Layer::{
            Adapting, Chaos, Client, Config, Configured, Control, Fleet, Lab, LabBase, LabPart, Proving,
            Proxy, Pure, TestSupport, Tool, Top, Transport, Words, World,
        };
        match self {
            Words | LabBase => false,
            // Translated conditions are compiled, so that the result is valid.
            Adapting => matches!(other, Pure | Words),
            Proving => matches!(other, Adapting | Pure | Words),
            // Parsers of texts that people write name the nearest word.
            Pure => matches!(other, Pure | Words),
            World => other == Pure,
            Config => matches!(other, Pure | Words),
            Configured => matches!(other, Pure | Config),
            Client => matches!(other, Pure | Config | Configured),
            Fleet => matches!(other, Client | Config | Configured | Words | Adapting),
            Transport => matches!(other, Pure | World | Words | Config | Configured),
            Proxy => other == Transport || Transport.may_depend_on(other),
            Control => matches!(other, Proxy | Client) || Proxy.may_depend_on(other),
            Chaos => other != Proxy && (other == Control || Control.may_depend_on(other)),
            LabPart => matches!(other, LabBase | Words),
            Tool => false,
            Lab => matches!(other, LabPart | Words),
            Top => !matches!(other, Tool | Top | TestSupport),
            TestSupport => other == Control || Control.may_depend_on(other),
        }
    }

    /// Whether tests may depend on a crate. Tests of the proxy may use the lab's servers and clients, but not the
    /// reverse. Tests of the lab do not use `testkit`, because that depends on the proxy.
    fn tests_may_depend_on(self, other: Self) -> bool {
        match other {
            Self::TestSupport => matches!(self, Self::Proxy | Self::Control | Self::Chaos | Self::Top),
            // Tests may use the layer that starts a proxy, although it is above.
            Self::Control if self == Self::Proxy => true,
            Self::LabPart if self == Self::Proxy => true,
            Self::Config | Self::Pure if self == Self::Adapting => true,
            _ => self.may_depend_on(other),
        }
    }
}

/// Whether a crate is pure: it takes bytes and `now`, and returns decisions.
pub(crate) fn is_pure(name: &str) -> bool {
    matches!(Layer::parse(name), Some(Layer::Pure | Layer::Words | Layer::Adapting | Layer::Proving))
}

pub(super) fn check(packages: &[Value], root: &Path) -> Vec<Finding> {
    packages.iter().flat_map(|package| check_package(package, root)).collect()
}

fn check_package(package: &Value, root: &Path) -> Vec<Finding> {
    let name = text(package, "name");
    let manifest = Path::new(text(package, "manifest_path"));
    let path = manifest.strip_prefix(root).unwrap_or(manifest).to_string_lossy().into_owned();
    let finding = |what, remedy| Finding { path: path.clone(), line: 0, what, remedy };

    let mut findings = Vec::new();
    if path != format!("crates/{name}/Cargo.toml") {
        findings
            .push(finding(format!("the crate {name} is in another folder"), "a crate lives in crates/NAME"));
    }
    let Some(layer) = Layer::parse(name) else {
        let remedy = "give it one in CRATES of crates/xtask/src/tidy/arrows.rs";
        findings.push(finding(format!("the crate {name} has no layer"), remedy));
        return findings;
    };
    let dependencies = package["dependencies"].as_array().map(Vec::as_slice).unwrap_or_default();
    for dependency in dependencies {
        let (other, for_tests) = (text(dependency, "name"), text(dependency, "kind") == "dev");
        if is_pure(name) && IMPURE.contains(&other) && !for_tests {
            let what = format!("the pure crate {name} depends on {other}");
            findings
                .push(finding(what, "take bytes and `now`, return decisions, and leave I/O to the caller"));
        }
        // External crates have no layer; a crate of ours without one has its own finding.
        let (true, Some(target)) = (dependency["path"].is_string(), Layer::parse(other)) else { continue };
        let allowed = if for_tests { layer.tests_may_depend_on(target) } else { layer.may_depend_on(target) };
        if !allowed {
            let what = format!("{name} depends on {other}, against the arrows");
            findings
                .push(finding(what, "move what both need to a crate below them, or pass it in as a value"));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn findings(name: &str, dependencies: &[(&str, Option<&str>)]) -> Vec<String> {
        let dependencies: Vec<Value> = dependencies
            .iter()
            .map(|(name, kind)| {
                let path = Layer::parse(name).map(|_| format!("/w/crates/{name}"));
                json!({ "name": name, "kind": kind, "path": path })
            })
            .collect();
        let manifest = format!("/w/crates/{name}/Cargo.toml");
        let package = json!({ "name": name, "manifest_path": manifest, "dependencies": dependencies });
        check(&[package], Path::new("/w")).into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn arrows_point_one_way() {
        for (name, dependency, kind, allowed) in [
            ("vanward", "proxy", None, true),
            ("vanward", "lab", None, true),
            ("proxy", "telemetry", None, true),
            ("proxy", "http1", None, true),
            ("cache", "http1", None, true),
            ("expression", "mistake", None, true),
            ("mistake", "expression", None, false),
            ("lab", "load", None, true),
            ("proxy", "origin", Some("dev"), true),
            ("http1", "proptest", Some("dev"), true),
            ("http1", "tokio", Some("dev"), true),
            ("proxy", "tokio", None, true),
            ("proxy", "origin", None, false),
            ("tls", "config", None, true),
            ("tls", "telemetry", None, false),
            ("config", "tls", None, false),
            ("telemetry", "config", None, false),
            ("http1", "config", None, false),
            ("http1", "tokio", None, false),
            ("lab", "proxy", None, false),
            ("proxy", "testkit", Some("dev"), true),
            ("vanward", "testkit", Some("dev"), true),
            ("testkit", "proxy", None, true),
            ("control", "proxy", None, true),
            ("proxy", "control", None, false),
            ("proxy", "control", Some("dev"), true),
            ("chaos", "control", None, true),
            ("chaos", "proxy", None, false),
            ("proxy", "transport", None, true),
            ("transport", "proxy", None, false),
            ("proxy", "testkit", None, false),
            ("vanward", "testkit", None, false),
            ("load", "testkit", Some("dev"), false),
            ("testkit", "load", None, false),
            ("lab", "proxy", Some("dev"), false),
            ("load", "proxy", Some("dev"), false),
            ("load", "http1", None, false),
            ("origin", "report", None, false),
            ("report", "mistake", None, true),
            ("adapt", "mistake", None, true),
            ("adapt", "config", Some("dev"), true),
            ("adapt", "config", None, false),
            ("prove", "adapt", None, true),
            ("prove", "tokio", None, false),
            ("adapt", "prove", None, false),
            ("config", "proxy", Some("build"), false),
            ("http1", "xtask", None, false),
        ] {
            let found = findings(name, &[(dependency, kind)]);
            assert_eq!(found.is_empty(), allowed, "{name} -> {dependency} ({kind:?}): {found:?}");
        }
    }

    #[test]
    fn a_crate_has_a_layer_and_its_own_folder() {
        assert_eq!(findings("novelty", &[]), ["the crate novelty has no layer"]);
        let moved =
            json!({ "name": "http1", "manifest_path": "/w/crates/http/Cargo.toml", "dependencies": [] });
        let found = check(&[moved], Path::new("/w"));
        assert_eq!(
            found[0].to_string(),
            "crates/http/Cargo.toml:1: the crate http1 is in another folder; a crate lives in crates/NAME"
        );
    }
}
