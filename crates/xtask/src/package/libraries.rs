//! The list of linked libraries as CycloneDX 1.5. `cargo metadata` knows them for one target; tools that read the
//! lock file also list those of tests and build scripts.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::{Value, json};

use crate::workspace::{Workspace, output_of, targets, text};

/// Returns the list without time or random numbers, so that two builds are equal.
pub(super) fn listed(workspace: &Workspace, target: &str) -> Result<String, String> {
    let mut cargo = Command::new("cargo");
    cargo.args([
        "metadata",
        "--format-version",
        "1",
        "--all-features",
        "--locked",
        "--filter-platform",
        target,
    ]);
    let said = output_of(cargo.current_dir(&workspace.root))?;
    let metadata =
        serde_json::from_str(&said).map_err(|error| format!("cargo metadata wrote no JSON: {error}"))?;
    let list = list_of(&metadata, "vanward").ok_or("cargo metadata lists no package vanward")?;
    Ok(format!("{list:#}\n"))
}

fn list_of(metadata: &Value, name: &str) -> Option<Value> {
    let packages: BTreeMap<&str, &Value> =
        array(&metadata["packages"]).iter().map(|package| (text(package, "id"), package)).collect();
    let nodes: BTreeMap<&str, &Value> =
        array(&metadata["resolve"]["nodes"]).iter().map(|node| (text(node, "id"), node)).collect();
    let program = packages.values().find(|package| text(package, "name") == name)?;
    let linked = |id: &str| -> Vec<&str> {
        let dependencies = nodes.get(id).map(|node| array(&node["deps"])).unwrap_or_default();
        let ids = dependencies.iter().filter(|dependency| is_linked(dependency)).map(|of| text(of, "pkg"));
        // Macros and their dependencies run only in the compiler.
        ids.filter(|id| packages.get(id).is_some_and(|package| targets(package, "proc-macro").is_empty()))
            .collect()
    };
    let mut found = BTreeSet::from([text(program, "id")]);
    let mut left: Vec<&str> = found.iter().copied().collect();
    while let Some(id) = left.pop() {
        left.extend(linked(id).into_iter().filter(|id| found.insert(id)));
    }
    let reference = |id: &str| packages.get(id).map(|package| reference(package)).unwrap_or_default();
    let components = found.iter().filter(|id| **id != text(program, "id"));
    let components: Vec<Value> =
        components.filter_map(|id| packages.get(id)).map(|of| component(of, "library")).collect();
    let dependencies: Vec<Value> = found
        .iter()
        .map(|id| {
            let on: BTreeSet<String> = linked(id).into_iter().map(reference).collect();
            json!({ "ref": reference(id), "dependsOn": on })
        })
        .collect();
    Some(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": { "component": component(program, "application") },
        "components": components,
        "dependencies": dependencies,
    }))
}

fn array(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Whether a dependency is more than a dev- or build-dependency: cargo names no kind for it.
fn is_linked(dependency: &Value) -> bool {
    array(&dependency["dep_kinds"]).iter().any(|of| of["kind"].is_null())
}

fn reference(package: &Value) -> String {
    format!("pkg:cargo/{}@{}", text(package, "name"), text(package, "version"))
}

fn component(package: &Value, kind: &str) -> Value {
    let reference = reference(package);
    let mut component = json!({
        "type": kind,
        "bom-ref": reference,
        "name": text(package, "name"),
        "version": text(package, "version"),
        "purl": reference,
    });
    if let Some(license) = package["license"].as_str() {
        // Older crates write `MIT/Apache-2.0` for OR, which is invalid in SPDX.
        component["licenses"] = json!([{ "expression": license.replace('/', " OR ") }]);
    }
    component
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_linked_libraries_are_listed() {
        let package = |id: &str, license: Value, kind: &str| json!({ "id": id, "name": id, "version": "1.0.0", "license": license, "targets": [{ "kind": [kind], "name": id }] });
        let of = |id: &str, kind: Value| json!({ "pkg": id, "dep_kinds": [{ "kind": kind }] });
        let normal = Value::Null;
        let metadata = json!({
            "packages": [
                package("program", json!("MIT"), "bin"),
                package("used", json!("MIT/Apache-2.0"), "lib"),
                package("below", Value::Null, "lib"),
                package("macro", json!("MIT"), "proc-macro"),
                package("of_macro", json!("MIT"), "lib"),
                package("of_tests", json!("MIT"), "lib"),
                package("of_build", json!("MIT"), "lib"),
                package("other", json!("MIT"), "lib"),
            ],
            "resolve": { "nodes": [
                { "id": "program", "deps": [of("used", normal.clone()), of("macro", normal.clone()), of("of_tests", json!("dev"))] },
                { "id": "used", "deps": [of("below", normal.clone()), of("of_build", json!("build"))] },
                { "id": "macro", "deps": [of("of_macro", normal.clone())] },
                { "id": "other", "deps": [] },
            ] },
        });
        let list = list_of(&metadata, "program").expect("the program is listed");
        let names: Vec<_> = array(&list["components"]).iter().map(|of| text(of, "name")).collect();
        assert_eq!(names, ["below", "used"]);
        assert_eq!(list["components"][0]["licenses"], Value::Null);
        assert_eq!(list["components"][1]["licenses"][0]["expression"], "MIT OR Apache-2.0");
        assert_eq!(list["metadata"]["component"]["purl"], "pkg:cargo/program@1.0.0");
        let on: Vec<_> = array(&list["dependencies"])
            .iter()
            .map(|of| (text(of, "ref"), of["dependsOn"].clone()))
            .collect();
        let [below, program, used] =
            ["below", "program", "used"].map(|name| format!("pkg:cargo/{name}@1.0.0"));
        assert_eq!(on, [(&*below, json!([])), (&*program, json!([used])), (&*used, json!([below]))]);
        assert_eq!(list_of(&metadata, "missing"), None);
    }
}
