//! Consul's response about a service (`/v1/health/service/NAME`): instances as servers.

use std::net::IpAddr;

use bytes::Bytes;
use config::ServerHost;
use http::Response;
use serde::Deserialize;
use transport::resolve::{ServiceTarget, is_host};

#[derive(Debug, PartialEq, Eq)]
pub(super) struct CatalogAnswer {
    /// The index to wait for next.
    pub(super) index: u64,
    /// Instances with host names have no addresses yet.
    pub(super) targets: Vec<ServiceTarget>,
    pub(super) left_out: Vec<String>,
    /// Whether the ACL shows only public services, because there is no token.
    pub(super) is_denied: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct InstanceEntry {
    node: ConsulNode,
    service: CatalogEntry,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ConsulNode {
    #[serde(default)]
    address: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct CatalogEntry {
    #[serde(rename = "ID", default)]
    id: String,
    /// Empty means the node's address.
    #[serde(default)]
    address: String,
    #[serde(default)]
    port: i64,
    #[serde(default)]
    weights: Option<Weights>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Weights {
    passing: i64,
}

/// Maximum bytes of Consul's message in our own.
const SAID_MAX: usize = 200;

/// Parses a response. `is_known`: instances are known, which stay unless Consul's data is reliable.
pub(super) fn read(response: &Response<Bytes>, is_known: bool) -> Result<CatalogAnswer, String> {
    let status = response.status().as_u16();
    let body = response.body();
    if status != 200 {
        let said: String =
            String::from_utf8_lossy(&body[..body.len().min(SAID_MAX)]).lines().take(1).collect();
        return Err(format!("status {status}: {:?}", said.trim()));
    }
    let field = |name| response.headers().get(name)?.to_str().ok();
    let index = field("x-consul-index").and_then(|index| index.parse().ok());
    let index = index.ok_or("its answer has no X-Consul-Index")?;
    let entries: Vec<InstanceEntry> =
        serde_json::from_slice(body).map_err(|error| format!("its answer cannot be read: {error}"))?;
    // A token without permission gets an empty list, as if there were no instances.
    if entries.is_empty() && field("x-consul-results-filtered-by-acls") == Some("true") {
        return Err("the token has no permission to read the service or its nodes (ACL)".to_owned());
    }
    // Without a leader, Consul's servers respond from their own data, which may be old or empty.
    if field("x-consul-knownleader") == Some("false") && (is_known || entries.is_empty()) {
        return Err("its servers have no leader, so its answer is ignored".to_owned());
    }
    let (mut targets, mut left_out) = (Vec::new(), Vec::new());
    for entry in entries {
        match target(&entry) {
            Ok(target) => targets.push(target),
            Err(why) => left_out.push(format!("{:?} {why}", entry.service.id)),
        }
    }
    if targets.is_empty() && !left_out.is_empty() {
        return Err(format!("none of its instances can be used: {}", left_out.join("; ")));
    }
    let is_denied = field("x-consul-default-acl-policy") == Some("deny");
    Ok(CatalogAnswer { index, targets, left_out, is_denied })
}

fn target(entry: &InstanceEntry) -> Result<ServiceTarget, String> {
    let CatalogEntry { address, port, weights, .. } = &entry.service;
    let address = if address.is_empty() { &entry.node.address } else { address };
    let port =
        u16::try_from(*port).ok().filter(|port| *port > 0).ok_or_else(|| format!("has the port {port}"))?;
    let (host, addresses) = match address.parse::<IpAddr>() {
        Ok(ip) => (ServerHost::Address(ip), vec![ip]),
        Err(_) => {
            let name = address.trim_end_matches('.').to_ascii_lowercase();
            if !is_host(&name) {
                return Err(format!("has the address {address:?}"));
            }
            (ServerHost::Name(name), Vec::new())
        }
    };
    // Consul's default is 1.
    let weight = weights.as_ref().map_or(1, |weights| weights.passing);
    let weight = u16::try_from(weight.max(0)).unwrap_or(u16::MAX);
    Ok(ServiceTarget { host, port, priority: 0, weight, addresses })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, fields: &[(&str, &str)], body: &str) -> Result<CatalogAnswer, String> {
        let mut response = Response::builder().status(status);
        for (name, value) in fields {
            response = response.header(*name, *value);
        }
        read(&response.body(Bytes::from(body.to_owned())).expect("is a response"), true)
    }

    /// An instance as in Consul 1.22, reduced to the relevant fields.
    fn instance(service: &str) -> String {
        format!(
            r#"{{"Node":{{"ID":"d7a3","Node":"n1","Address":"10.0.0.9","Datacenter":"dc1","Meta":null}},
                "Service":{{"ID":"web-1","Service":"web","Tags":["v2"],"EnableTagOverride":false,{service}}},
                "Checks":[{{"CheckID":"serfHealth","Status":"passing"}}]}}"#
        )
    }

    #[test]
    fn each_instance_is_a_server_with_its_address_port_and_weight() {
        for (service, expected) in [
            (
                r#""Address":"10.0.0.1","Port":80,"Weights":{"Passing":3,"Warning":1}"#,
                "10.0.0.1 80 3 10.0.0.1",
            ),
            (r#""Address":"","Port":8080,"Weights":{"Passing":1,"Warning":1}"#, "10.0.0.9 8080 1 10.0.0.9"),
            (r#""Port":8080,"Weights":null,"Meta":{"a":"b"}"#, "10.0.0.9 8080 1 10.0.0.9"),
            (r#""Address":"fd00::1","Port":80"#, "[fd00::1] 80 1 fd00::1"),
            (r#""Address":"App.Internal.","Port":80,"Weights":{"Passing":99999}"#, "app.internal 80 65535 "),
        ] {
            let body = format!("[{}]", instance(service));
            let read = answer(200, &[("X-Consul-Index", "17")], &body).expect("it can be used");
            assert_eq!((read.index, read.left_out.len()), (17, 0));
            let ServiceTarget { host, port, weight, addresses, .. } = &read.targets[0];
            let addresses: Vec<_> = addresses.iter().map(ToString::to_string).collect();
            assert_eq!(format!("{host} {port} {weight} {}", addresses.join(",")), expected);
        }
    }

    #[test]
    fn an_instance_that_cannot_be_asked_is_left_out_and_no_other() {
        let list = [
            r#""Address":"10.0.0.1","Port":0"#,
            r#""Address":"10.0.0.2","Port":70000"#,
            r#""Address":"a b","Port":80"#,
            r#""Address":"/run/app.sock","Port":80"#,
            r#""Address":"10.0.0.5","Port":80"#,
        ]
        .map(instance);
        let read =
            answer(200, &[("X-Consul-Index", "1")], &format!("[{}]", list.join(","))).expect("is an answer");
        assert_eq!(read.targets.len(), 1);
        let expected = [
            "has the port 0",
            "has the port 70000",
            "has the address \"a b\"",
            "has the address \"/run/app.sock\"",
        ];
        assert_eq!(read.left_out, expected.map(|why| format!("\"web-1\" {why}")));
    }

    #[test]
    fn responses_without_the_service_are_errors_with_a_reason() {
        let index = ("X-Consul-Index", "3");
        let filtered = ("X-Consul-Results-Filtered-By-ACLs", "true");
        let leaderless = ("X-Consul-KnownLeader", "false");
        let no_leader = "its servers have no leader, so its answer is ignored";
        let one = format!("[{}]", instance(r#""Port":80"#));
        let portless = format!("[{}]", instance(r#""Port":0"#));
        let cut = "its answer cannot be read: EOF while parsing a list at line 1 column 1";
        for (status, fields, body, expected) in [
            (200, &[][..], "[]", "its answer has no X-Consul-Index"),
            (200, &[("X-Consul-Index", "-1")], "[]", "its answer has no X-Consul-Index"),
            (200, &[index], "[", cut),
            (
                200,
                &[index, filtered],
                "[]",
                "the token has no permission to read the service or its nodes (ACL)",
            ),
            (200, &[index, leaderless], "[]", no_leader),
            (200, &[index, leaderless], &one, no_leader),
            (200, &[index], &portless, "none of its instances can be used: \"web-1\" has the port 0"),
            (403, &[index], "ACL not found\nmore", "status 403: \"ACL not found\""),
            (500, &[], "No cluster leader", "status 500: \"No cluster leader\""),
        ] {
            assert_eq!(answer(status, fields, body), Err(expected.to_owned()));
        }
        let leader = ("X-Consul-KnownLeader", "true");
        let none = answer(200, &[index, leader], "[]").expect("no instance is an answer");
        assert_eq!((none.index, none.targets.len()), (3, 0));
        // If no instances are known, an old response is better than none.
        let response = Response::builder().header("X-Consul-Index", "3").header(leaderless.0, leaderless.1);
        let first = read(&response.body(Bytes::from(one)).expect("is a response"), false);
        assert_eq!(first.map(|first| first.targets.len()), Ok(1));
    }
}
