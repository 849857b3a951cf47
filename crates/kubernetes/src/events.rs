//! Events for `kubectl describe` about refused objects whose statuses cannot say why. Each is written once, and
//! again before the API server drops it, at a bounded rate.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use gateway::Reference;
use serde_json::{Value, json};
use tokio::time::Instant;

/// The API server keeps an Event for an hour by default.
const AGAIN: Duration = Duration::from_secs(30 * 60);
/// The burst of Events, and the time until one more may be written.
const ROOM_MAX: u32 = 50;
const BETWEEN: Duration = Duration::from_secs(2);
/// The API's limit for notes and names.
const NOTE_BYTES_MAX: usize = 1024;
const NAME_BYTES_MAX: usize = 200;
const INSTANCE_BYTES_MAX: usize = 128;

/// A refused object, and the reason.
pub(crate) type Refusal = (Reference, String);

/// The refusals that were written as Events, limited to a rate.
pub(crate) struct WrittenEvents {
    written: BTreeMap<Refusal, WrittenEvent>,
    /// The number of Events that may be written now.
    room: u32,
    filled: Instant,
}

#[derive(Clone, Copy)]
struct WrittenEvent {
    at: Instant,
    times: u32,
}

impl WrittenEvents {
    pub(crate) fn new(now: Instant) -> Self {
        Self { written: BTreeMap::new(), room: ROOM_MAX, filled: now }
    }

    /// Returns the refusals to write now, each with its number of writes so far. Counts them as written.
    pub(crate) fn due(&mut self, refusals: &BTreeSet<Refusal>, now: Instant) -> Vec<(Refusal, u32)> {
        self.written.retain(|refusal, _| refusals.contains(refusal));
        let more = now.duration_since(self.filled).as_secs() / BETWEEN.as_secs();
        self.filled += BETWEEN * u32::try_from(more).unwrap_or(u32::MAX);
        self.room = self.room.saturating_add(u32::try_from(more).unwrap_or(u32::MAX)).min(ROOM_MAX);
        let mut due = Vec::new();
        for refusal in refusals {
            let known = self.written.get(refusal).copied();
            if known.is_some_and(|known| now.duration_since(known.at) < AGAIN) {
                continue;
            }
            if self.room == 0 {
                break;
            }
            self.room -= 1;
            let times = known.map_or(1, |known| known.times.saturating_add(1));
            self.written.insert(refusal.clone(), WrittenEvent { at: now, times });
            due.push((refusal.clone(), times));
        }
        due
    }

    /// Forgets a write that failed.
    pub(crate) fn failed(&mut self, refusal: &Refusal) {
        self.written.remove(refusal);
    }
}

pub(crate) struct ClusterEvent {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) object: Value,
    /// The update if the Event exists.
    pub(crate) again: Value,
}

pub(crate) struct Reporter<'r> {
    pub(crate) controller: &'r str,
    pub(crate) instance: &'r str,
    /// In the API's format, with microseconds.
    pub(crate) now: String,
}

/// Builds the Event for a refusal. The `uid` distinguishes an object from a later one with the same name.
pub(crate) fn event((object, why): &Refusal, uid: &str, times: u32, by: &Reporter<'_>) -> ClusterEvent {
    let Reference { kind, namespace, name } = object;
    let (group, version, _) = kind.path();
    let group_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    // Events about objects without a namespace belong to this one.
    let of_event = if namespace.is_empty() { "default" } else { namespace };
    let beginning = cut(name, NAME_BYTES_MAX).trim_end_matches(['.', '-']);
    let of_object = format!("{beginning}.{:016x}", hash(&[uid, why]));
    let Reporter { controller, instance, now } = by;
    let event = json!({
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": { "name": of_object, "namespace": of_event },
        "eventTime": now,
        "reportingController": controller,
        "reportingInstance": cut(instance, INSTANCE_BYTES_MAX),
        "action": "Configure",
        "reason": "Refused",
        "regarding": { "apiVersion": group_version, "kind": kind.name(), "namespace": namespace, "name": name, "uid": uid },
        "note": cut(why, NOTE_BYTES_MAX),
        "type": "Warning",
    });
    // The API requires at least two in a series.
    let again = json!({ "series": { "count": times.max(2), "lastObservedTime": now } });
    ClusterEvent { namespace: of_event.to_owned(), name: of_object, object: event, again }
}

fn cut(text: &str, bytes_max: usize) -> &str {
    let end = (0..=bytes_max.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or(0)]
}

fn hash(texts: &[&str]) -> u64 {
    let bytes = texts.iter().flat_map(|text| text.bytes().chain([0]));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use gateway::ObjectKind;

    use super::*;

    fn refusals(count: usize) -> BTreeSet<Refusal> {
        let one = |number: usize| {
            let (namespace, name) = ("n".to_owned(), format!("i{number:03}"));
            (Reference { kind: ObjectKind::Ingress, namespace, name }, "it is so".to_owned())
        };
        (0..count).map(one).collect()
    }

    #[test]
    fn an_event_is_written_once_until_it_would_be_forgotten() {
        let began = Instant::now();
        let mut events = WrittenEvents::new(began);
        let (one, two) = (refusals(1), refusals(2));
        let times = |due: Vec<(Refusal, u32)>| due.into_iter().map(|(_, times)| times).collect::<Vec<_>>();
        assert_eq!(times(events.due(&one, began)), [1]);
        assert_eq!(times(events.due(&two, began)), [1], "the first one was written");
        assert_eq!(times(events.due(&two, began + AGAIN - BETWEEN)), [0; 0]);
        assert_eq!(times(events.due(&two, began + AGAIN)), [2, 2]);
        let (first, _) = events.due(&refusals(3), began + AGAIN).pop().expect("a third one");
        events.failed(&first);
        assert_eq!(times(events.due(&refusals(3), began + AGAIN)), [1], "it was not written");
        // A refusal that ended is forgotten, so it is reported when it comes back.
        assert_eq!(times(events.due(&BTreeSet::new(), began + AGAIN)), [0; 0]);
        assert_eq!(times(events.due(&one, began + AGAIN)), [1]);
    }

    #[test]
    fn many_come_one_after_the_other() {
        let began = Instant::now();
        let mut events = WrittenEvents::new(began);
        let many = refusals(ROOM_MAX as usize + 20);
        assert_eq!(events.due(&many, began).len(), ROOM_MAX as usize);
        assert_eq!(events.due(&many, began + BETWEEN / 2).len(), 0);
        assert_eq!(events.due(&many, began + BETWEEN * 3).len(), 3);
        assert_eq!(events.due(&many, began + BETWEEN * 100).len(), 17);
        assert_eq!(events.due(&many, began + BETWEEN * 100).len(), 0);
    }

    #[test]
    fn events_keep_to_the_limits_of_the_api() {
        let by =
            Reporter { controller: "vanward.dev/gateway", instance: &"i".repeat(200), now: "T".to_owned() };
        let name = format!("{}.{}", "a".repeat(199), "b".repeat(50));
        let object = Reference { kind: ObjectKind::IngressClass, namespace: String::new(), name };
        let ClusterEvent { namespace, name, object, again } = event(&(object, "é".repeat(1000)), "u", 1, &by);
        assert_eq!((namespace.as_str(), name.len()), ("default", 199 + 17));
        assert_eq!(object["note"].as_str().map(str::len), Some(1024));
        assert_eq!(object["reportingInstance"].as_str().map(str::len), Some(128));
        assert_eq!(object["regarding"]["apiVersion"], "networking.k8s.io/v1");
        assert_eq!(again["series"]["count"], 2);
    }
}
