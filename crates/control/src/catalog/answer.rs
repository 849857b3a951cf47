//! What Consul answers about a service (`/v1/health/service/NAME`): its instances as servers.

use std::net::IpAddr;

use bytes::Bytes;
use config::ServerHost;
use http::Response;
use serde::Deserialize;
use transport::resolve::{Target, is_host};

/// An answer that can be used.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer {
    /// What it is as of.
    pub(super) index: u64,
    /// The instances; those with names have no addresses yet.
    pub(super) targets: Vec<Target>,
    /// Instances that are no servers, with the reasons.
    pub(super) left_out: Vec<String>,
    /// Whether who has no token sees what everybody may see alone.
    pub(super) is_denied: bool,
}

/// An instance.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Entry {
    node: Node,
    service: Service,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Node {
    #[serde(default)]
    address: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Service {
    #[serde(rename = "ID", default)]
    id: String,
    /// Empty where it is the node's.
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

/// How much of what Consul says is repeated.
const SAID_MAX: usize = 200;

/// Reads an answer.
///
/// # Errors
/// Why it says nothing about the service.
pub(super) fn read(response: &Response<Bytes>) -> Result<Answer, String> {
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
    let entries: Vec<Entry> =
        serde_json::from_slice(body).map_err(|error| format!("its answer cannot be read: {error}"))?;
    // A token that may read nothing gets an empty list, as if there were no instances.
    if entries.is_empty() && field("x-consul-results-filtered-by-acls") == Some("true") {
        return Err("the token must not read the service, or its nodes (ACL)".to_owned());
    }
    let (mut targets, mut left_out) = (Vec::new(), Vec::new());
    for entry in entries {
        match target(&entry) {
            Ok(target) => targets.push(target),
            Err(why) => left_out.push(format!("{:?} {why}", entry.service.id)),
        }
    }
    let is_denied = field("x-consul-default-acl-policy") == Some("deny");
    Ok(Answer { index, targets, left_out, is_denied })
}

fn target(entry: &Entry) -> Result<Target, String> {
    let Service { address, port, weights, .. } = &entry.service;
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
    // Consul has 1 where nothing is said.
    let weight = weights.as_ref().map_or(1, |weights| weights.passing);
    let weight = u16::try_from(weight.max(0)).unwrap_or(u16::MAX);
    Ok(Target { host, port, priority: 0, weight, addresses })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, fields: &[(&str, &str)], body: &str) -> Result<Answer, String> {
        let mut response = Response::builder().status(status);
        for (name, value) in fields {
            response = response.header(*name, *value);
        }
        read(&response.body(Bytes::from(body.to_owned())).expect("is a response"))
    }

    /// An instance as Consul 1.22 tells it, without what does not matter here.
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
            let Target { host, port, weight, addresses, .. } = &read.targets[0];
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
    fn what_says_nothing_about_the_service_is_told_with_the_reason() {
        let index = ("X-Consul-Index", "3");
        let filtered = ("X-Consul-Results-Filtered-By-ACLs", "true");
        let cut = "its answer cannot be read: EOF while parsing a list at line 1 column 1";
        for (status, fields, body, expected) in [
            (200, &[][..], "[]", "its answer has no X-Consul-Index"),
            (200, &[("X-Consul-Index", "-1")], "[]", "its answer has no X-Consul-Index"),
            (200, &[index], "[", cut),
            (200, &[index, filtered], "[]", "the token must not read the service, or its nodes (ACL)"),
            (403, &[index], "ACL not found\nmore", "status 403: \"ACL not found\""),
            (500, &[], "No cluster leader", "status 500: \"No cluster leader\""),
        ] {
            assert_eq!(answer(status, fields, body), Err(expected.to_owned()));
        }
        let none = answer(200, &[index], "[]").expect("no instance is an answer");
        assert_eq!((none.index, none.targets.len()), (3, 0));
    }
}
