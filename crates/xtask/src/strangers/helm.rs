//! The chart for Kubernetes with Helm: its default objects are those of the manifest, and its values are checked.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::programs;
use crate::say;
use crate::scratch::Scratch;
use crate::step;
use crate::workspace::{Workspace, output_of};

const CHART: &str = "contrib/kubernetes/chart";
const MANIFEST: &str = include_str!("../../../../contrib/kubernetes/vanward.yaml");
/// Restarts pods after a change of the configuration; the manifest leaves that to its users.
const CHECKSUM: &str = "/spec/template/metadata/annotations";

pub(super) fn check(workspace: &Workspace, scratch: &Scratch) -> Result<(), String> {
    let [helm] = programs::build_helm(workspace)?;
    let helm = Helm { program: helm, chart: workspace.root.join(CHART), folder: scratch.path() };
    step::run(helm.command("lint").arg("--strict").arg(&helm.chart))?;
    helm.version()?;
    helm.defaults()?;
    helm.values()?;
    helm.mistakes()
}

struct Helm<'s> {
    program: PathBuf,
    chart: PathBuf,
    folder: &'s Path,
}

/// Objects by kind and name.
type Objects = BTreeMap<(String, String), Value>;

impl Helm<'_> {
    fn command(&self, name: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.arg(name).env("HOME", self.folder);
        command
    }

    /// A chart is released with each version.
    fn version(&self) -> Result<(), String> {
        const VERSION: &str = env!("CARGO_PKG_VERSION");
        let own = fs::read_to_string(self.chart.join("Chart.yaml")).map_err(|error| error.to_string())?;
        match own.contains(&format!("\nversion: {VERSION}\nappVersion: {VERSION}\n")) {
            true => Ok(()),
            false => Err(format!("{CHART}/Chart.yaml: version and appVersion have to be {VERSION}")),
        }
    }

    /// Renders the chart as a release.
    fn render(&self, release: &str, values: &str) -> Result<Objects, String> {
        let file = self.folder.join("values.yaml");
        fs::write(&file, values).map_err(|error| error.to_string())?;
        let mut command = self.command("template");
        command.args([release, "--namespace", "vanward", "--values"]).arg(&file).arg(&self.chart);
        self.objects(&output_of(&mut command)?)
    }

    /// Parses documents of YAML. Helm does it, in a chart that writes JSON.
    fn objects(&self, documents: &str) -> Result<Objects, String> {
        const AS_JSON: &str = "{{ range splitList \"\\n---\\n\" (.Files.Get \"all.yaml\") }}\n---\n{{ printf \"%s\\n\" . | fromYaml | toJson }}\n{{ end }}\n";
        let folder = self.folder.join("reader");
        let write = |name: &str, content: &str| {
            let file = folder.join(name);
            fs::create_dir_all(file.parent().unwrap_or(&folder)).map_err(|error| error.to_string())?;
            fs::write(file, content).map_err(|error| error.to_string())
        };
        write("Chart.yaml", "apiVersion: v2\nname: reader\nversion: 0.0.1\n")?;
        write("templates/all.yaml", AS_JSON)?;
        write("all.yaml", documents)?;
        let said = output_of(self.command("template").arg(&folder))?;
        let objects = said.lines().filter(|line| line.starts_with('{') && *line != "{}");
        let object = |line: &str| {
            let object: Value = serde_json::from_str(line).map_err(|error| format!("{line}: {error}"))?;
            match object.get("Error") {
                Some(error) => Err(format!("{error}:\n{documents}")),
                None => Ok((place(&object), object)),
            }
        };
        objects.map(object).collect()
    }

    fn defaults(&self) -> Result<(), String> {
        let mut chart = self.render("vanward", "")?;
        let pods = chart.get_mut(&("DaemonSet".to_owned(), "vanward".to_owned()));
        let annotations = pods.and_then(|pods| pods.pointer_mut(CHECKSUM)).map(Value::take);
        if annotations.and_then(|found| found.as_object().map(serde_json::Map::len)) != Some(1) {
            return Err("pods have one annotation, the checksum of the configuration".to_owned());
        }
        let mut manifest = self.objects(MANIFEST)?;
        // Helm makes it: --create-namespace.
        manifest.remove(&("Namespace".to_owned(), "vanward".to_owned()));
        if let Some(pods) = manifest.get_mut(&("DaemonSet".to_owned(), "vanward".to_owned())) {
            pods["spec"]["template"]["metadata"]["annotations"] = Value::Null;
        }
        for (place, expected) in &manifest {
            match chart.get(place) {
                Some(object) if object == expected => {}
                Some(object) => {
                    return Err(format!("{place:?} differs.\nchart:    {object}\nmanifest: {expected}"));
                }
                None => return Err(format!("the chart has no {place:?}")),
            }
        }
        if let Some(place) = chart.keys().find(|place| !manifest.contains_key(place)) {
            return Err(format!("the manifest has no {place:?}"));
        }
        say(format_args!("the chart's {} default objects are those of the manifest", chart.len()));
        Ok(())
    }

    fn values(&self) -> Result<(), String> {
        let objects = self.render("edge", VALUES)?;
        for (kind, name, pointer, expected) in [
            ("Deployment", "edge", "/spec/replicas", "3"),
            ("Deployment", "edge", "/spec/strategy/type", "\"Recreate\""),
            ("Deployment", "edge", "/spec/template/spec/hostNetwork", "null"),
            ("Deployment", "edge", "/spec/template/metadata/labels/team", "\"web\""),
            ("Deployment", "edge", "/spec/template/spec/containers/0/image", "\"r.example/v:1\""),
            (
                "Deployment",
                "edge",
                "/spec/template/spec/containers/0/args",
                r#"["run","--config=kubernetes://","--gateway-address=192.0.2.1","--gateway-address=edge.example","--gateway-base=/etc/vanward/vanward.toml","--gateway-controller=example.com/edge","--gateway-lease=vanward/edge-gateway","--ingress-ports=8080,8443","--instance=$(NODE)","--ingress-cookie-secret=/etc/vanward-cookies/secret","--log-level=debug"]"#,
            ),
            ("Deployment", "edge", "/spec/template/spec/volumes/1/secret/optional", "false"),
            ("Role", "edge-gateway", "/rules/1/resourceNames/0", "\"edge-gateway\""),
            ("ClusterRoleBinding", "edge-gateway", "/subjects/0/name", "\"own\""),
            ("ConfigMap", "edge", "/data/vanward.toml", r#""[log]\ntarget = \"stdout\"\n""#),
            ("Service", "edge", "/spec/ports/0/port", "8080"),
            ("Service", "edge", "/spec/selector/app", "\"edge\""),
            (
                "IngressClass",
                "public",
                "/metadata/annotations/ingressclass.kubernetes.io~1is-default-class",
                "\"true\"",
            ),
            ("IngressClass", "public", "/spec/controller", "\"example.com/edge\""),
        ] {
            let object = objects.get(&(kind.to_owned(), name.to_owned()));
            let object = object.ok_or_else(|| format!("there is no {kind} {name}"))?;
            let found = object.pointer(pointer).unwrap_or(&Value::Null).to_string();
            if found != expected {
                return Err(format!("{kind} {name}: {pointer} is {found}; expected {expected}"));
            }
        }
        let left_out = ["GatewayClass", "ServiceAccount", "DaemonSet"];
        if let Some((kind, name)) = objects.keys().find(|(kind, _)| left_out.contains(&kind.as_str())) {
            return Err(format!("there is a {kind} {name}"));
        }
        say("values choose kind, names, addresses, classes and ports");
        Ok(())
    }

    fn mistakes(&self) -> Result<(), String> {
        for (values, expected) in [
            ("kind: StatefulSet", "kind"),
            ("adresses: [192.0.2.1]", "adresses"),
            ("ingressPorts: [80]", "ingressPorts"),
            ("service: { ports: [{ name: http, port: 0 }] }", "port"),
            ("image: { pullPolicy: Sometimes }", "pullPolicy"),
        ] {
            match self.render("vanward", values) {
                Ok(_) => return Err(format!("`{values}` is accepted")),
                Err(why) if why.contains(expected) => {}
                Err(why) => return Err(format!("`{values}`: nothing says {expected:?}:\n{why}")),
            }
        }
        say("unknown and wrong values are rejected");
        Ok(())
    }
}

const VALUES: &str = "\
kind: Deployment
replicas: 3
hostNetwork: false
image: { repository: r.example/v, tag: '1' }
addresses: [192.0.2.1, edge.example]
controller: example.com/edge
ingressPorts: [8080, 8443]
gatewayClass: { create: false }
ingressClass: { name: public, default: true }
configuration: |
  [log]
  target = \"stdout\"
cookies: { enabled: true }
service: { enabled: true, ports: [{ name: http, port: 8080 }] }
serviceAccount: { create: false, name: own }
extraArgs: [--log-level=debug]
podLabels: { team: web }
updateStrategy: { type: Recreate }
";

fn place(object: &Value) -> (String, String) {
    let word = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    (word("/kind"), word("/metadata/name"))
}
