//! Statuses of objects, merged with those of other controllers.

use std::net::IpAddr;

use serde_json::{Map, Value, json};

use crate::condition::{StatusCondition, written};
use crate::object::Reference;

#[derive(Debug, Clone, PartialEq)]
pub struct ObjectStatus {
    pub object: Reference,
    /// The generation of the object that was translated.
    pub generation: i64,
    pub found: StatusFindings,
}

#[derive(Debug, Clone, PartialEq)]
pub enum StatusFindings {
    Class(Vec<StatusCondition>),
    Gateway {
        conditions: Vec<StatusCondition>,
        /// Addresses with their types.
        addresses: Vec<(&'static str, String)>,
        listeners: Vec<ListenerFound>,
        /// Number of accepted ListenerSets; `None` omits it.
        sets: Option<usize>,
    },
    ListenerSet {
        conditions: Vec<StatusCondition>,
        listeners: Vec<ListenerFound>,
        /// Whether listeners have ports, as in XListenerSets.
        has_ports: bool,
    },
    /// An entry for each of our gateways among its parents.
    Route(Vec<ParentFound>),
    /// An entry for each gateway that the policy affects.
    Policy(Vec<AncestorFound>),
    /// IP addresses and host names of the Ingress.
    Ingress(Vec<String>),
}

#[derive(Debug, Clone, PartialEq)]
pub struct ListenerFound {
    pub name: String,
    pub port: u16,
    /// Kinds of routes that may attach, with their groups.
    pub kinds: Vec<(&'static str, &'static str)>,
    pub attached: usize,
    pub conditions: Vec<StatusCondition>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ParentFound {
    /// The reference as in the route.
    pub parent: Value,
    pub conditions: Vec<StatusCondition>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct AncestorFound {
    pub ancestor: Value,
    pub conditions: Vec<StatusCondition>,
}

impl ObjectStatus {
    /// Returns the status that replaces `before`; `None` if nothing changed. `now` is in RFC 3339.
    pub fn changed(&self, before: &Value, controller: &str, now: &str) -> Option<Value> {
        let generation = self.generation;
        let after = match &self.found {
            StatusFindings::Class(conditions) => {
                with(before, "conditions", written(conditions, generation, &before["conditions"], true, now))
            }
            StatusFindings::Gateway { conditions, addresses, listeners, sets } => {
                let conditions = written(conditions, generation, &before["conditions"], true, now);
                let addresses: Vec<Value> =
                    addresses.iter().map(|(kind, value)| json!({ "type": kind, "value": value })).collect();
                let listeners = listeners.iter().map(|listener| listener.written(generation, before, now));
                let status = with(before, "conditions", conditions);
                let status = with(&status, "addresses", addresses.into());
                let status = with(&status, "listeners", listeners.collect());
                match sets {
                    Some(count) => with(&status, "attachedListenerSets", json!(count)),
                    None => status,
                }
            }
            StatusFindings::ListenerSet { conditions, listeners, has_ports } => {
                let conditions = written(conditions, generation, &before["conditions"], true, now);
                let listeners = listeners.iter().map(|listener| {
                    let mut written = listener.written(generation, before, now);
                    if *has_ports {
                        written["port"] = json!(listener.port);
                    }
                    written
                });
                let status = with(before, "conditions", conditions);
                with(&status, "listeners", listeners.collect())
            }
            StatusFindings::Ingress(addresses) => {
                let one = |address: &String| match address.parse::<IpAddr>() {
                    Ok(_) => json!({ "ip": address }),
                    Err(_) => json!({ "hostname": address }),
                };
                let addresses: Vec<Value> = addresses.iter().map(one).collect();
                with(before, "loadBalancer", json!({ "ingress": addresses }))
            }
            // A route without one of our gateways, now and before, is not ours.
            StatusFindings::Route(parents) if parents.is_empty() && before["parents"].is_null() => {
                return None;
            }
            StatusFindings::Route(parents) => {
                let parents = parents.iter().map(|found| (&found.parent, found.conditions.as_slice()));
                let entries = entries("parentRef", parents, generation, &before["parents"], controller, now);
                with(before, "parents", entries)
            }
            StatusFindings::Policy(ancestors) if ancestors.is_empty() && before["ancestors"].is_null() => {
                return None;
            }
            StatusFindings::Policy(ancestors) => {
                let ancestors = ancestors.iter().map(|found| (&found.ancestor, found.conditions.as_slice()));
                let before_them = &before["ancestors"];
                let entries = entries("ancestorRef", ancestors, generation, before_them, controller, now);
                with(before, "ancestors", entries)
            }
        };
        (after != *before).then_some(after)
    }
}

impl ListenerFound {
    fn written(&self, generation: i64, before: &Value, now: &str) -> Value {
        let known = before["listeners"].as_array().into_iter().flatten();
        let known = known.clone().find(|known| known["name"] == *self.name);
        let before = known.map_or(Value::Null, |known| known["conditions"].clone());
        let kinds: Vec<Value> =
            self.kinds.iter().map(|(group, kind)| json!({ "group": group, "kind": kind })).collect();
        json!({
            "name": self.name,
            "supportedKinds": kinds,
            "attachedRoutes": self.attached,
            "conditions": written(&self.conditions, generation, &before, false, now),
        })
    }
}

/// Merges a route's or policy's entries: ours are replaced, those of other controllers are kept.
fn entries<'f>(
    key: &str,
    found: impl Iterator<Item = (&'f Value, &'f [StatusCondition])>,
    generation: i64,
    before: &Value,
    controller: &str,
    now: &str,
) -> Value {
    let before: Vec<&Value> = before.as_array().into_iter().flatten().collect();
    let others = before.iter().filter(|entry| entry["controllerName"] != controller);
    let own = found.map(|(gateway, conditions)| {
        let is_same = |entry: &&&Value| entry["controllerName"] == controller && entry[key] == *gateway;
        let known = before.iter().find(is_same).map_or(Value::Null, |entry| entry["conditions"].clone());
        json!({
            key: gateway,
            "controllerName": controller,
            "conditions": written(conditions, generation, &known, false, now),
        })
    });
    others.map(|entry| (*entry).clone()).chain(own).collect()
}

fn with(status: &Value, key: &str, value: Value) -> Value {
    let mut status: Map<String, Value> = status.as_object().cloned().unwrap_or_default();
    status.insert(key.to_owned(), value);
    status.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::ObjectKind;

    const OURS: &str = "vanward.dev/gateway";

    fn route(holds: bool) -> ObjectStatus {
        let condition =
            StatusCondition { kind: "Accepted", holds, reason: "Accepted", message: String::new() };
        ObjectStatus {
            object: Reference {
                kind: ObjectKind::HttpRoute,
                namespace: "n".to_owned(),
                name: "r".to_owned(),
            },
            generation: 3,
            found: StatusFindings::Route(vec![ParentFound {
                parent: json!({ "name": "g" }),
                conditions: vec![condition],
            }]),
        }
    }

    #[test]
    fn the_time_of_a_condition_is_that_of_its_last_change() {
        let first = route(true).changed(&Value::Null, OURS, "1").expect("a change");
        assert_eq!(first["parents"][0]["conditions"][0]["lastTransitionTime"], "1");
        assert_eq!(first["parents"][0]["conditions"][0]["observedGeneration"], 3);
        assert_eq!(route(true).changed(&first, OURS, "2"), None);
        let second = route(false).changed(&first, OURS, "2").expect("a change");
        assert_eq!(second["parents"][0]["conditions"][0]["lastTransitionTime"], "2");
    }

    #[test]
    fn what_other_controllers_have_written_stays() {
        let theirs = json!({ "parentRef": { "name": "g" }, "controllerName": "other", "conditions": [] });
        let before = json!({ "parents": [theirs], "more": 1 });
        let after = route(true).changed(&before, OURS, "1").expect("a change");
        assert_eq!(after["parents"][0], theirs);
        assert_eq!(after["parents"][1]["controllerName"], OURS);
        assert_eq!(after["more"], 1);
        let gone = ObjectStatus { found: StatusFindings::Route(Vec::new()), ..route(true) };
        assert_eq!(gone.changed(&after, OURS, "2"), Some(before));
        assert_eq!(gone.changed(&Value::Null, OURS, "2"), None);
    }
}
