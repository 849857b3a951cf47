//! The toxics of one proxy: the API adds, changes and removes them, and connections apply them.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use shape::{ATTRIBUTES_MAX, ChainLink, Draws, ToxicKind, ToxicUnit, number_of};

use super::refusal::ApiRefusal;

/// Maximum number of toxics of one proxy.
const TOXICS_MAX: usize = 64;
const PER_MILLION_OF_PERCENT: f64 = 10_000.0;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum ByteDirection {
    /// From the client to the server.
    Upstream,
    /// From the server to the client.
    Downstream,
}

impl ByteDirection {
    fn named(name: &str) -> Result<Self, ApiRefusal> {
        match name.to_ascii_lowercase().as_str() {
            "upstream" => Ok(Self::Upstream),
            "downstream" => Ok(Self::Downstream),
            _ => Err(ApiRefusal::Stream(name.to_owned())),
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Upstream => "upstream",
            Self::Downstream => "downstream",
        }
    }
}

/// In the order in which bytes pass them.
#[derive(Debug, Default)]
pub(super) struct Toxics {
    list: Vec<Toxic>,
    /// Number of toxics ever added: IDs are never used again.
    added: u64,
}

#[derive(Debug)]
struct Toxic {
    id: u64,
    name: String,
    kind: &'static ToxicKind,
    stream: ByteDirection,
    /// The share of connections that the toxic applies to, from 0 to 1.
    toxicity: f64,
    values: [i64; ATTRIBUTES_MAX],
}

#[derive(Debug, Deserialize)]
pub(super) struct ToxicRequest {
    name: Option<String>,
    #[serde(rename = "type")]
    kind: Option<String>,
    stream: Option<String>,
    toxicity: Option<f64>,
    attributes: Option<Map<String, Value>>,
    #[serde(flatten)]
    others: Map<String, Value>,
}

#[derive(Debug, Serialize)]
pub(super) struct ToxicDescription {
    attributes: Map<String, Value>,
    name: String,
    #[serde(rename = "type")]
    kind: &'static str,
    stream: ByteDirection,
    toxicity: f64,
}

impl ToxicRequest {
    /// Returns the attribute values: those given, over the earlier `values`. Unknown attributes are refused. Toxiproxy
    /// ignores them, so that a misspelt name looks like a toxic that works.
    fn values(
        &self,
        mut values: [i64; ATTRIBUTES_MAX],
        kind: &'static ToxicKind,
    ) -> Result<[i64; ATTRIBUTES_MAX], ApiRefusal> {
        // Toxiproxy before 2.0 had the attributes at this level.
        let at = |name: &str| kind.attributes.iter().position(|known| known.name == name);
        if let Some(name) = self.others.keys().find(|name| at(name).is_some()) {
            return Err(ApiRefusal::Misplaced { name: name.clone() });
        }
        let given = self.attributes.iter().flatten().filter(|(_, value)| !value.is_null());
        for (name, given) in given {
            let at = at(name).ok_or_else(|| ApiRefusal::Attribute { name: name.clone(), kind })?;
            let (value, what) = match kind.attributes[at].unit {
                ToxicUnit::Whole => (whole(given), "a whole number"),
                ToxicUnit::Percent => (per_million(given), "a number from 0 to 100 with at most 4 decimals"),
            };
            values[at] = value
                .ok_or_else(|| ApiRefusal::Body(format!("{name} of {} is {what}, not {given}", kind.name)))?;
        }
        Ok(values)
    }

    fn toxicity(&self) -> Result<Option<f64>, ApiRefusal> {
        match self.toxicity {
            Some(share) if !(0.0..=1.0).contains(&share) => {
                Err(ApiRefusal::Body(format!("toxicity is a share of connections from 0 to 1, not {share}")))
            }
            toxicity => Ok(toxicity),
        }
    }

    /// Checks that a change names the same toxic: some clients send the fixed fields, too.
    fn is_of(&self, toxic: &Toxic) -> Result<(), ApiRefusal> {
        let own = [
            ("name", &self.name, toxic.name.as_str()),
            ("type", &self.kind, toxic.kind.name),
            ("stream", &self.stream, toxic.stream.name()),
        ];
        for (what, asked, is) in own {
            if asked.as_ref().is_some_and(|asked| !asked.is_empty() && !asked.eq_ignore_ascii_case(is)) {
                return Err(ApiRefusal::Fixed { what, is: is.to_owned() });
            }
        }
        Ok(())
    }
}

/// Inputs of a connection's random decisions.
#[derive(Debug, Clone, Copy)]
pub(super) struct ToxicRandom {
    pub(super) seed: u64,
    /// Hash of the proxy's name.
    pub(super) proxy: u64,
    pub(super) connection: u64,
}

impl Toxics {
    pub(super) fn new(list: Value) -> Result<Self, ApiRefusal> {
        let mut toxics = Self::default();
        for (index, asked) in serde_json::from_value::<Vec<Value>>(list)?.into_iter().enumerate() {
            let asked = serde_json::from_value(asked).map_err(ApiRefusal::from);
            let added = asked.and_then(|asked| toxics.add(asked));
            added.map_err(|refusal| refusal.at("toxic", index))?;
        }
        Ok(toxics)
    }

    /// Replaces all toxics by `those`, in their order. In existing connections, a toxic with the name, kind and stream
    /// of an earlier one continues from that one's state.
    pub(super) fn become_those(&mut self, those: Self) {
        let before = std::mem::take(&mut self.list);
        for toxic in those.list {
            let known = before.iter().find(|known| known.is_same_as(&toxic)).map(|known| known.id);
            let id = known.unwrap_or(self.added);
            self.added += u64::from(known.is_none());
            self.list.push(Toxic { id, ..toxic });
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Adds a toxic behind the others.
    pub(super) fn add(&mut self, asked: ToxicRequest) -> Result<ToxicDescription, ApiRefusal> {
        let stream = match asked.stream.as_deref() {
            None | Some("") => ByteDirection::Downstream,
            Some(name) => ByteDirection::named(name)?,
        };
        let kind = asked.kind.as_deref().unwrap_or_default();
        let kind = ToxicKind::named(kind).ok_or_else(|| ApiRefusal::Kind(kind.to_owned()))?;
        let name = match &asked.name {
            Some(name) if !name.is_empty() => name.clone(),
            _ => format!("{}_{}", kind.name, stream.name()),
        };
        if self.list.iter().any(|toxic| toxic.name == name) {
            return Err(ApiRefusal::ToxicExists);
        }
        if self.list.len() >= TOXICS_MAX {
            return Err(ApiRefusal::TooMany { what: "toxics", most: TOXICS_MAX });
        }
        let values = asked.values(kind.defaults(), kind)?;
        let toxicity = asked.toxicity()?.unwrap_or(1.0);
        let toxic = Toxic { id: self.added, name, kind, stream, toxicity, values };
        let told = toxic.told();
        self.added += 1;
        self.list.push(toxic);
        Ok(told)
    }

    pub(super) fn change(
        &mut self,
        name: &str,
        asked: impl FnOnce() -> Result<ToxicRequest, ApiRefusal>,
    ) -> Result<ToxicDescription, ApiRefusal> {
        let toxic = self.list.iter_mut().find(|toxic| toxic.name == name).ok_or(ApiRefusal::NoToxic)?;
        let asked = asked()?;
        asked.is_of(toxic)?;
        let values = asked.values(toxic.values, toxic.kind)?;
        toxic.toxicity = asked.toxicity()?.unwrap_or(toxic.toxicity);
        toxic.values = values;
        Ok(toxic.told())
    }

    pub(super) fn remove(&mut self, name: &str) -> Result<(), ApiRefusal> {
        let at = self.list.iter().position(|toxic| toxic.name == name).ok_or(ApiRefusal::NoToxic)?;
        self.list.remove(at);
        Ok(())
    }

    /// Removes all toxics. Returns whether there were any.
    pub(super) fn clear(&mut self) -> bool {
        !std::mem::take(&mut self.list).is_empty()
    }

    pub(super) fn told_of(&self, name: &str) -> Result<ToxicDescription, ApiRefusal> {
        self.list.iter().find(|toxic| toxic.name == name).map(Toxic::told).ok_or(ApiRefusal::NoToxic)
    }

    /// Describes all toxics: first those towards the server, then those towards the client.
    pub(super) fn told(&self) -> Vec<ToxicDescription> {
        let mut all: Vec<ToxicDescription> = self.list.iter().map(Toxic::told).collect();
        all.sort_by_key(|told| told.stream);
        all
    }

    /// Returns the toxics of one direction of a connection; a repeatable random decision selects by `toxicity`.
    pub(super) fn links(&self, stream: ByteDirection, drawn: ToxicRandom) -> Vec<ChainLink> {
        let ToxicRandom { seed, proxy, connection } = drawn;
        let on_way = self.list.iter().filter(|toxic| toxic.stream == stream);
        let links = on_way.filter_map(|toxic| {
            // The draw depends on the name: a toxic that is removed and added again selects the same connections.
            let name = number_of(toxic.name.as_bytes());
            let mut draws = Draws::new(seed, &[proxy, connection, name]);
            let is_had = draws.happens(toxic.toxicity);
            is_had.then(|| ChainLink { id: toxic.id, effect: toxic.kind.effect(toxic.values), draws })
        });
        links.collect()
    }
}

impl Toxic {
    /// Whether the other toxic has the same name, kind and stream.
    fn is_same_as(&self, other: &Self) -> bool {
        self.name == other.name && self.kind.name == other.kind.name && self.stream == other.stream
    }

    fn told(&self) -> ToxicDescription {
        let told = |unit, value| match unit {
            ToxicUnit::Whole => Value::from(value),
            ToxicUnit::Percent => Value::from(value as f64 / PER_MILLION_OF_PERCENT),
        };
        let pairs = self.kind.attributes.iter().zip(self.values);
        ToxicDescription {
            attributes: pairs
                .map(|(known, value)| (known.name.to_owned(), told(known.unit, value)))
                .collect(),
            name: self.name.clone(),
            kind: self.kind.name,
            stream: self.stream,
            toxicity: self.toxicity,
        }
    }
}

/// Accepts a whole number, also in a form such as 1000.0, which some clients send.
fn whole(given: &Value) -> Option<i64> {
    // Up to this limit, f64 represents every whole number.
    let is_whole = |number: &f64| number.fract() == 0.0 && number.abs() <= 9_007_199_254_740_992.0;
    given.as_i64().or_else(|| given.as_f64().filter(is_whole).map(|number| number as i64))
}

/// Converts percent to parts of a million; `None` for values that need rounding.
fn per_million(given: &Value) -> Option<i64> {
    let percent = given.as_f64().filter(|percent| (0.0..=100.0).contains(percent))?;
    let parts = (percent * PER_MILLION_OF_PERCENT).round();
    (parts / PER_MILLION_OF_PERCENT == percent).then_some(parts as i64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::body;

    const DRAWN: ToxicRandom = ToxicRandom { seed: 1, proxy: 2, connection: 3 };

    fn added(toxics: &mut Toxics, body: &[u8]) -> Result<ToxicDescription, ApiRefusal> {
        toxics.add(body::read(body)?)
    }

    fn change(toxics: &mut Toxics, name: &str, body: &[u8]) -> Result<ToxicDescription, ApiRefusal> {
        toxics.change(name, || body::read(body))
    }

    #[test]
    fn toxics_are_told_as_they_were_asked_for() {
        let mut toxics = Toxics::default();
        let add = |toxics: &mut Toxics, body: &str| {
            added(toxics, body.as_bytes()).map(|told| serde_json::to_value(told).expect("is JSON"))
        };
        let told = add(&mut toxics, r#"{"type":"latency","attributes":{"latency":1000.0,"other":null}}"#);
        assert_eq!(
            told.expect("is right").to_string(),
            r#"{"attributes":{"jitter":0,"latency":1000},"name":"latency_downstream","stream":"downstream","toxicity":1.0,"type":"latency"}"#
        );
        add(&mut toxics, r#"{"name":"up","type":"timeout","stream":"upstream","toxicity":0.5}"#)
            .expect("is right");
        let names: Vec<String> = toxics.told().into_iter().map(|told| told.name).collect();
        assert_eq!(names, ["up", "latency_downstream"]);
        for (body, status) in [
            ("{", 400),
            (r#"{"type":"noise"}"#, 400),
            (r#"{"type":"latency","stream":"sideways"}"#, 400),
            (r#"{"type":"latency","name":"x","attributes":{"latency":"1000"}}"#, 400),
            (r#"{"type":"latency","name":"x","attributes":{"latency":0.5}}"#, 400),
            (r#"{"type":"latency","name":"x","attributes":{"latancy":1}}"#, 400),
            (r#"{"type":"latency","name":"x","attributes":{"rate":1}}"#, 400),
            (r#"{"type":"latency","name":"x","latency":1}"#, 400),
            (r#"{"type":"latency","name":"x","toxicity":30}"#, 400),
            (r#"{"type":"latency","name":"x","toxicity":-0.1}"#, 400),
            (r#"{"type":"latency"}"#, 409),
        ] {
            assert_eq!(
                add(&mut toxics, body).map_err(|refusal| refusal.status().as_u16()),
                Err(status),
                "{body}"
            );
        }
    }

    #[test]
    fn a_list_takes_the_place_of_another_and_what_is_in_both_stays() {
        let list = |value: &str| Toxics::new(body::read(value.as_bytes()).expect("is JSON"));
        let mut toxics = Toxics::default();
        for body in [
            r#"{"type":"latency","name":"stays","attributes":{"latency":1}}"#,
            r#"{"type":"latency","name":"goes"}"#,
            r#"{"type":"latency","name":"turns"}"#,
        ] {
            added(&mut toxics, body.as_bytes()).expect("is right");
        }
        let those = r#"[{"type":"timeout","name":"new"},
            {"type":"latency","name":"turns","stream":"upstream"},
            {"type":"latency","name":"stays","attributes":{"latency":2}}]"#;
        toxics.become_those(list(those).expect("is right"));
        let names: Vec<(&str, u64)> =
            toxics.list.iter().map(|toxic| (toxic.name.as_str(), toxic.id)).collect();
        assert_eq!(names, [("new", 3), ("turns", 4), ("stays", 0)], "identities are never used again");
        assert_eq!(toxics.list[2].values[0], 2);
        for (body, status, words) in [
            (r#"{}"#, 400, "this is an object; expected an array"),
            (r#"[{"type":"latency"},{"type":"latency"}]"#, 409, "toxic already exists at toxic 2"),
            (r#"[{"type":"latency","attributes":{"rate":1}}]"#, 400, "unknown attribute \"rate\""),
            (r#"[7]"#, 400, "at toxic 1"),
        ] {
            let refusal = list(body).expect_err(body);
            assert_eq!(refusal.status().as_u16(), status, "{body}");
            assert!(refusal.to_string().contains(words), "{body}: {refusal}");
        }
    }

    #[test]
    fn percent_may_have_decimals_and_what_is_left_out_has_its_default() {
        let mut toxics = Toxics::default();
        let told = added(&mut toxics, br#"{"type":"packet_loss","name":"x"}"#).expect("is right");
        assert_eq!(Value::from(told.attributes), serde_json::json!({ "percent": 0.0, "delay": 200 }));
        for percent in ["0.5", "100", "0.0001", "33.3333", "0.3", "7"] {
            let body = format!(r#"{{"attributes":{{"percent":{percent}}}}}"#);
            let told = change(&mut toxics, "x", body.as_bytes()).expect(percent);
            assert_eq!(told.attributes["percent"].as_f64(), percent.parse().ok());
            assert_eq!(told.attributes["delay"].as_i64(), Some(200));
        }
        for percent in ["-1", "100.1", "0.00001", "\"5\"", "1e400"] {
            let body = format!(r#"{{"attributes":{{"percent":{percent}}}}}"#);
            let refusal = change(&mut toxics, "x", body.as_bytes()).expect_err(percent);
            assert_eq!(refusal.status().as_u16(), 400, "{percent}: {refusal}");
        }
        let told = toxics.told_of("x").expect("is there");
        assert_eq!(told.attributes["percent"].as_f64(), Some(7.0), "none of that holds");
    }

    #[test]
    fn case_counts_in_no_key_and_no_stream() {
        let mut toxics = Toxics::default();
        let body = br#"{"Type":"latency","Name":"X","Stream":"Upstream","Attributes":{"Latency":7}}"#;
        let told = added(&mut toxics, body).expect("is right");
        assert_eq!((told.name.as_str(), told.kind, told.stream), ("X", "latency", ByteDirection::Upstream));
        assert_eq!(told.attributes["latency"].as_i64(), Some(7));
        let told = change(&mut toxics, "X", br#"{"Toxicity":0.5}"#).expect("is right");
        assert_eq!(told.toxicity, 0.5);
    }

    #[test]
    fn a_change_leaves_what_it_does_not_name() {
        let mut toxics = Toxics::default();
        let body = br#"{"type":"latency","name":"x","toxicity":0.5,"attributes":{"latency":7,"jitter":3}}"#;
        added(&mut toxics, body).expect("is right");
        let told = change(&mut toxics, "x", br#"{"attributes":{"jitter":4}}"#).expect("is right");
        assert_eq!(
            (told.attributes["latency"].as_i64(), told.attributes["jitter"].as_i64()),
            (Some(7), Some(4))
        );
        assert_eq!(told.toxicity, 0.5);
        let all = br#"{"name":"x","type":"latency","stream":"Downstream","toxicity":0.5,"attributes":{}}"#;
        assert!(change(&mut toxics, "x", all).is_ok(), "what some clients send");
        assert!(change(&mut toxics, "x", br#"{"name":"","type":"","stream":""}"#).is_ok(), "and others");
        for (body, words) in [
            (r#"{"stream":"upstream"}"#, "stream"),
            (r#"{"type":"timeout"}"#, "type"),
            (r#"{"name":"y"}"#, "name"),
            (r#"{"toxicity":2}"#, "toxicity"),
            (r#"{"toxicity":1,"attributes":{"jiter":9}}"#, "jiter"),
        ] {
            let refusal = change(&mut toxics, "x", body.as_bytes()).expect_err(body);
            assert_eq!(refusal.status().as_u16(), 400, "{body}");
            assert!(refusal.to_string().contains(words), "{body}: {refusal}");
        }
        let told = toxics.told_of("x").expect("is there");
        assert_eq!((told.toxicity, told.attributes["jitter"].as_i64()), (0.5, Some(4)), "none of that holds");
        assert_eq!(
            change(&mut toxics, "y", b"{}").map_err(|refusal| refusal.status().as_u16()).err(),
            Some(404)
        );
    }

    #[test]
    fn a_share_of_connections_has_a_toxic_and_keeps_it() {
        let mut toxics = Toxics::default();
        added(&mut toxics, br#"{"type":"timeout","name":"x","toxicity":0.3}"#).expect("is right");
        let has = |toxics: &Toxics, connection| {
            !toxics.links(ByteDirection::Downstream, ToxicRandom { connection, ..DRAWN }).is_empty()
        };
        let had: Vec<bool> = (0..1000).map(|connection| has(&toxics, connection)).collect();
        let count = had.iter().filter(|had| **had).count();
        assert!((250..=350).contains(&count), "{count} of 1000");
        change(&mut toxics, "x", br#"{"attributes":{"timeout":5}}"#).expect("is right");
        assert!((0..1000).all(|connection| has(&toxics, connection) == had[connection as usize]));
        assert!(toxics.links(ByteDirection::Upstream, DRAWN).is_empty());
    }

    #[test]
    fn a_toxic_that_comes_again_draws_as_before() {
        let mut toxics = Toxics::default();
        let body = br#"{"type":"corrupt","name":"x","toxicity":0.5,"attributes":{"every":10}}"#;
        added(&mut toxics, body).expect("is right");
        let drawn = |toxics: &Toxics| -> Vec<Option<i64>> {
            let links =
                |connection| toxics.links(ByteDirection::Downstream, ToxicRandom { connection, ..DRAWN });
            (0..100)
                .map(|connection| links(connection).first_mut().map(|link| link.draws.next_in(0, 1000)))
                .collect()
        };
        let before = drawn(&toxics);
        assert!(before.iter().any(Option::is_some) && before.iter().any(Option::is_none));
        toxics.remove("x").expect("is there");
        added(&mut toxics, br#"{"type":"latency","name":"y"}"#).expect("is right");
        toxics.clear();
        added(&mut toxics, body).expect("is right");
        assert_eq!(drawn(&toxics), before);
    }

    #[test]
    fn there_are_not_too_many() {
        let mut toxics = Toxics::default();
        let mut add = |number: usize| {
            added(&mut toxics, format!(r#"{{"type":"latency","name":"{number}"}}"#).as_bytes())
        };
        assert!((0..TOXICS_MAX).all(|number| add(number).is_ok()));
        assert!(matches!(add(TOXICS_MAX), Err(ApiRefusal::TooMany { .. })));
    }
}
