//! The conformance suite of the Gateway API. The cluster has no pods: a program simulates them with the suite's own
//! echo server, at an address of this machine.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::json;

use super::super::process::{Process, free_address};
use super::super::programs;
use super::cluster::Cluster;
use crate::say;
use crate::workspace::Workspace;

/// Timeout of the suite: a failing test takes a minute.
const LIMIT: Duration = Duration::from_secs(3600);

/// Features that Vanward supports, in the suite's words.
const FEATURES: &str = "Gateway,HTTPRoute,ReferenceGrant,GatewayPort8080,GatewayHTTPListenerIsolation,\
HTTPRouteBackendProtocolH2C,HTTPRouteBackendProtocolWebSocket,HTTPRouteBackendTimeout,HTTPRouteRequestTimeout,\
HTTPRouteHostRewrite,HTTPRoutePathRewrite,HTTPRouteMethodMatching,HTTPRouteQueryParamMatching,HTTPRoutePathRedirect,\
HTTPRoutePortRedirect,HTTPRouteSchemeRedirect,HTTPRouteResponseHeaderModification,HTTPRouteRequestMirror,\
HTTPRouteRequestPercentageMirror,HTTPRouteCORS,HTTPRouteNamedRouteRule,HTTPRouteParentRefPort,\
HTTPRouteDestinationPortMatching,BackendTLSPolicy,GRPCRoute,GRPCRouteNamedRouteRule";

/// Tests that need pods: they read their logs and their addresses.
const NEED_PODS: &str = "HTTPRouteRequestMirror,HTTPRouteRequestPercentageMirror,HTTPRouteServiceTypes";

pub(super) fn run(
    workspace: &Workspace,
    cluster: &Cluster<'_>,
    vanward: &Path,
    folder: &Path,
) -> Result<(), String> {
    let [pods, echo, suite] = programs::build_conformance(workspace)?;
    let kubeconfig = folder.join("kubeconfig");
    let written = json!({ "apiVersion": "v1", "kind": "Config", "current-context": "test",
        "clusters": [{ "name": "test", "cluster": { "server": format!("https://localhost:{}", cluster.api.port()),
            "certificate-authority": cluster.pair.cert } }],
        "users": [{ "name": "test", "user": { "token": "of-the-test" } }],
        "contexts": [{ "name": "test", "context": { "cluster": "test", "user": "test" } }] });
    std::fs::write(&kubeconfig, written.to_string()).map_err(|error| error.to_string())?;
    let address = cluster.address.to_string();
    let mut command = Command::new(pods);
    command.arg("-kubeconfig").arg(&kubeconfig).args(["-address", &address]).arg("-echo").arg(echo);
    let _pods = Process::start("pods", command.arg("-folder").arg(folder), folder)?;
    let ready = free_address()?;
    let mut command = Command::new(vanward);
    command.args(["run", "--config", &format!("kubernetes://localhost:{}", cluster.api.port())]);
    command.arg("--kubernetes-ca").arg(&cluster.pair.cert);
    command.arg("--kubernetes-token-file").arg(cluster.token_file()?);
    command.args(["--gateway-address", &address, "--gateway-lease", "vanward/vanward-gateway"]);
    command.args(["--gateway-ready", &ready.to_string()]);
    let _gateway = Process::start("gateway", &mut command, folder)?.listening_on(ready)?;

    let mut command = Command::new(suite);
    command.env("KUBECONFIG", &kubeconfig).args(["-test.v", "-test.run", "TestConformance"]);
    command.args(["-gateway-class", "vanward", "-supported-features", FEATURES]);
    // A cluster without controllers does not clean up.
    command.args(["-cleanup-base-resources=false", "-skip-provisional-tests", "-skip-tests", NEED_PODS]);
    let (status, said) = Process::start("suite", &mut command, folder)?.finish(LIMIT)?;
    let verdicts = |verdict: &str| {
        let line = format!("    --- {verdict}: TestConformance/");
        let names = said.lines().filter_map(|text| text.strip_prefix(line.as_str())?.split(' ').next());
        names.map(str::to_owned).collect::<Vec<_>>()
    };
    let (passed, failed) = (verdicts("PASS"), verdicts("FAIL"));
    say(format_args!("{} tests pass: {}", passed.len(), passed.join(", ")));
    say(format_args!("left out, as they need pods: {NEED_PODS}"));
    match failed.as_slice() {
        [] if status.success() => Ok(()),
        [] => Err(format!("the suite ended with {status}:\n{said}")),
        failed => Err(format!("{} tests fail: {}", failed.len(), failed.join(", "))),
    }
}
