//! Handover of fault rules to the next process: added and removed rules, and the progress of each. The result is as if
//! one process had read its file again.

use std::time::Duration;

use config::{Config, FaultRule};
use route::{FirstRequests, KeyCount};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use super::{Added, Faults, HeldFaults, LiveFaultRule, by_request, rule_of};
use telemetry::message;

use crate::shared::handover_state::Hidden;
use crate::shared::handover_state::MESSAGE_BYTES_MAX;

/// Maximum number of keys with counted requests that are handed over, for all rules together: 4 MiB.
const KEYS_MAX: usize = 256 * 1024;
/// Keys per part, so that a part fits a message in base64.
const KEYS_OF_A_PART: usize = 600;
/// A hash and a count.
const KEY_BYTES: usize = 2 * size_of::<u64>();
/// Room for the rest of a part's message.
const ENVELOPE_BYTES_MAX: usize = 256;

/// A part of the fault rules, small enough for one message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum FaultHandover {
    /// The fault settings of the last file, without its rules.
    Section {
        seed: u64,
        /// The header field that asks for a fault.
        header: Option<String>,
        /// Networks whose clients may send the field.
        header_clients: Vec<String>,
        /// Whether an operator turned the field off.
        is_header_removed: bool,
    },
    /// A rule. The file's rules come first, in order, then the added ones.
    Rule {
        name: String,
        /// As JSON.
        text: String,
        origin: RuleOrigin,
        past: FaultProgress,
    },
    /// The progress of faults that requests ask for, treated as a rule.
    ByRequest { past: FaultProgress },
    /// Request counts by key, for the rule in the previous part.
    First {
        /// Hashes of keys and their counts, 16 bytes each.
        counts: Hidden,
    },
    /// A part that only newer versions know.
    #[serde(other)]
    Unknown,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RuleOrigin {
    File,
    /// The configuration file, but the rule was removed.
    Removed,
    /// The admin API, instead of the file.
    Added,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultProgress {
    seed: u64,
    /// When it came into force, by the monotonic clock that all processes share.
    began_ns: u64,
    asked: u64,
    injected: u64,
    /// The key of the hash.
    secret: Option<[u64; 2]>,
}

/// The progress of a rule that continues in this process.
pub(super) struct Past {
    settings: FaultRule,
    pub(super) seed: u64,
    pub(super) age: Duration,
    pub(super) asked: u64,
    pub(super) injected: u64,
    pub(super) secret: Option<[u64; 2]>,
    pub(super) first: Vec<KeyCount>,
}

impl Faults {
    /// Collects the parts for the next process. Until `give_back` is called, no rule can be added or removed.
    pub fn handover(&self, config: &Config, now_ns: u64) -> Vec<FaultHandover> {
        let (mut held, set) = (self.held(), self.set.load());
        held.is_lent = true;
        let file = &held.read;
        let mut parts = vec![FaultHandover::Section {
            seed: file.seed,
            header: file.header.clone(),
            header_clients: file.header_clients.iter().map(ToString::to_string).collect(),
            is_header_removed: file.header.is_some() && held.file.header.is_none(),
        }];
        let of_file = file.rules.iter().map(|settings| {
            let stays = held.file.rules.contains(settings);
            let origin = if stays { RuleOrigin::File } else { RuleOrigin::Removed };
            (&settings.name, config::written_rule(settings, config), origin, Some(settings))
        });
        let added = held.added.iter();
        let added =
            added.map(|added| (&added.name, added.text.clone(), RuleOrigin::Added, added.settings.as_ref()));
        let mut room = KEYS_MAX;
        for (name, text, origin, settings) in of_file.chain(added) {
            let rule = set.rules.iter().find(|rule| Some(&rule.settings) == settings);
            let past = rule.map_or_else(FaultProgress::default, |rule| rule.progress(now_ns));
            let part = FaultHandover::Rule { name: name.clone(), text, origin, past };
            // A rule that does not fit must not cost the other rules.
            if !part.fits() {
                message::warn(&format!(
                    "fault {name:?} is not passed on to the next process: its text is too long"
                ));
                continue;
            }
            parts.push(part);
            if let Some(rule) = rule {
                room -= rule.push_first(room, &mut parts);
            }
        }
        let asked_for = set.by_request.as_ref();
        parts.extend(asked_for.map(|asked| FaultHandover::ByRequest { past: asked.rule.progress(now_ns) }));
        parts.retain(FaultHandover::fits);
        parts
    }
}

impl FaultHandover {
    fn fits(&self) -> bool {
        let bytes = serde_json::to_vec(self).map_or(usize::MAX, |text| text.len());
        bytes <= MESSAGE_BYTES_MAX - ENVELOPE_BYTES_MAX
    }
}

impl LiveFaultRule {
    fn progress(&self, now_ns: u64) -> FaultProgress {
        let (asked, injected) = self.counts();
        // The monotonic clock is common to all processes, unlike that of the workers.
        let began_ns = clock_ns().saturating_sub(nanoseconds(self.age(now_ns)));
        let secret = self.first.as_ref().map(FirstRequests::secret);
        FaultProgress { seed: self.dice.seed(), began_ns, asked, injected, secret }
    }

    /// Adds the counts of the rule's keys, at most `room`. Returns how many.
    fn push_first(&self, room: usize, parts: &mut Vec<FaultHandover>) -> usize {
        let counts: Vec<KeyCount> = self.first.iter().flat_map(FirstRequests::counts).take(room).collect();
        for some in counts.chunks(KEYS_OF_A_PART) {
            let bytes =
                some.iter().flat_map(|KeyCount { key, count }| [key.to_be_bytes(), count.to_be_bytes()]);
            parts.push(FaultHandover::First { counts: Hidden::new(bytes.flatten().collect()) });
        }
        counts.len()
    }
}

/// Returns the rules that a process with this file begins with, and the progress of its predecessor's rules.
pub(super) fn taken(config: &Config, parts: Vec<FaultHandover>) -> (HeldFaults, Vec<Past>) {
    let (mut pasts, mut added): (Vec<Past>, Vec<Added>) = Default::default();
    let (mut known, mut removed): (Vec<Option<FaultRule>>, Vec<FaultRule>) = Default::default();
    let (mut is_same, mut has_header) = (false, true);
    for part in parts {
        match part {
            FaultHandover::Section { seed, header, header_clients, is_header_removed } => {
                let clients = config.faults.header_clients.iter().map(ToString::to_string);
                is_same = seed == config.faults.seed
                    && header == config.faults.header
                    && clients.eq(header_clients);
                has_header = !is_header_removed;
            }
            FaultHandover::Rule { name, text, origin, past } => {
                let settings = rule_of(&text, config);
                pasts.extend(settings.iter().map(|settings| Past::new(settings.clone(), &past)));
                match (origin, settings) {
                    (RuleOrigin::Added, settings) => {
                        if let Err(mistake) = &settings {
                            message::warn(&format!("fault {name:?} is inactive: {mistake}"));
                        }
                        added.push(Added { name, text, settings: settings.ok() });
                    }
                    (RuleOrigin::File, settings) => known.push(settings.ok()),
                    // Removed rules count for the comparison with the file below.
                    (RuleOrigin::Removed, settings) => {
                        removed.extend(settings.iter().cloned());
                        known.push(settings.ok());
                    }
                }
            }
            FaultHandover::ByRequest { past } => pasts.push(Past::new(by_request(), &past)),
            FaultHandover::First { counts } => {
                let counts = counts.bytes().as_chunks::<KEY_BYTES>().0.iter().filter_map(|bytes| {
                    let (key, count) = bytes.split_first_chunk()?;
                    let (key, count) = (u64::from_be_bytes(*key), u64::from_be_bytes(count.try_into().ok()?));
                    Some(KeyCount { key, count })
                });
                // The counts belong to the rule of the part before.
                pasts.last_mut().into_iter().for_each(|past| past.first.extend(counts.clone()));
            }
            FaultHandover::Unknown => {}
        }
    }
    let mut file = config.faults.clone();
    // Removals only count for the same file: a changed one brings its rules back, as at a reload.
    if is_same && known.iter().map(Option::as_ref).eq(config.faults.rules.iter().map(Some)) {
        file.rules.retain(|rule| !removed.contains(rule));
        file.header = file.header.filter(|_| has_header);
    }
    let mut held = HeldFaults { read: config.faults.clone(), file, added, is_lent: false };
    held.shadow();
    (held, pasts)
}

impl Past {
    fn new(settings: FaultRule, progress: &FaultProgress) -> Self {
        let FaultProgress { seed, began_ns, asked, injected, secret } = *progress;
        let age = Duration::from_nanos(clock_ns().saturating_sub(began_ns));
        Self { settings, seed, age, asked, injected, secret, first: Vec::new() }
    }

    pub(super) fn is_of(&self, settings: &FaultRule) -> bool {
        self.settings == *settings
    }
}

/// The monotonic clock, which all processes share.
fn clock_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    nanoseconds(Duration::try_from(now).unwrap_or_default())
}

fn nanoseconds(time: Duration) -> u64 {
    // 2^64 nanoseconds are 584 years.
    time.as_nanos() as u64
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::sync::Arc;

    use super::*;
    use crate::faults::FaultRefusal;

    const LEAST: &str = "[[listen]]\naddress = \"127.0.0.1:80\"\n[[listen]]\naddress = \"127.0.0.1:81\"\nname = \"b\"\n\
                         [[route]]\nname = \"r\"\nrespond = { status = 200 }\n";
    const FILE: &str = "[faults]\nseed = 7\n[[fault]]\nname = \"file\"\ninject = \"connection reset\"\nfirst = 3\n\
                        [[fault]]\nname = \"removed\"\ninject = \"connection limit 1\"\n";

    fn config(faults: &str) -> Config {
        config::parse(&format!("{LEAST}{faults}"), "f").expect("it is right")
    }

    /// Returns the rules of a process with this file after the handover.
    fn next(before: &Faults, of: &Config, file: &Config, now_ns: u64) -> Arc<Faults> {
        let parts = before.handover(of, now_ns);
        let parts = parts.iter().map(|part| {
            let text = serde_json::to_string(part).expect("it is JSON");
            assert!(text.len() < MESSAGE_BYTES_MAX, "{}", text.len());
            serde_json::from_str(&text).expect("it is a part")
        });
        Faults::new(file, parts.collect())
    }

    fn names(faults: &Faults) -> Vec<String> {
        faults.rules().iter().map(|rule| rule.settings.name.clone()).collect()
    }

    /// Returns the rule that was drawn for a connection, and the draw's number.
    fn drawn(faults: &Faults, client: &str) -> Option<(String, u64)> {
        let client: IpAddr = client.parse().expect("is an address");
        let drawn = faults.draw_connection(Some(0), client, |_| true, 0)?;
        Some((drawn.rule.settings.name.clone(), drawn.number))
    }

    #[test]
    fn rules_go_on_where_they_were() {
        let file = config(FILE);
        let faults = Faults::new(&file, Vec::new());
        faults.remove("removed", 0).expect("it is there");
        let text = "[[fault]]\nname = \"added\"\ninject = \"connection slice 7\"\nprobability = \"50%\"\nexpires = \"1h\"\n\
                    [[fault]]\nname = \"of b\"\ninject = \"connection limit 9\"\nlistener = \"b\"\n";
        faults.add(config::faults(text, "t", &file).expect("it is right"), &file, 0).expect("it is new");
        let one = Faults::new(&file, Vec::new());
        one.remove("removed", 0).expect("it is there");
        one.add(config::faults(text, "t", &file).expect("it is right"), &file, 0).expect("it is new");
        let clients: Vec<String> = (0..100).map(|number| format!("10.0.0.{}", number % 5)).collect();
        // A single process, and two handovers.
        let all: Vec<_> = clients.iter().map(|client| drawn(&one, client)).collect();
        let mut processes = vec![faults];
        let mut got = Vec::new();
        for clients in clients.chunks(34) {
            let last = processes.last().expect("there is one");
            got.extend(clients.iter().map(|client| drawn(last, client)));
            let after = next(last, &file, &file, 60_000_000_000);
            assert_eq!(names(&after), ["file", "added", "of b"]);
            processes.push(after);
        }
        assert_eq!(got, all);
        let last = processes.last().expect("there is one");
        let left = last.rules()[1].expires_in(0).expect("it expires");
        let minutes = left.as_secs() / 60;
        assert!((56..=57).contains(&minutes), "three minutes are over: {left:?}");
    }

    #[test]
    fn what_the_next_process_was_told_of_stays_as_it_is_until_that_has_failed() {
        let file = config(FILE);
        let faults = Faults::new(&file, Vec::new());
        let rules = || config::faults("[[fault]]\ninject = \"503\"\n", "t", &file).expect("it is right");
        drop(next(&faults, &file, &file, 0));
        assert!(matches!(faults.add(rules(), &file, 0), Err(FaultRefusal::Lent)));
        assert!(matches!(faults.remove("file", 0), Err(FaultRefusal::Lent)));
        assert!(matches!(faults.clear(0), Err(FaultRefusal::Lent)));
        assert_eq!(names(&faults), ["file", "removed"]);
        faults.give_back();
        faults.add(rules(), &file, 0).expect("nobody has taken over");
        faults.remove("file", 0).expect("it is there");
        assert_eq!(names(&faults), ["removed", "503"]);
    }

    #[test]
    fn one_that_was_added_stands_in_the_place_of_the_file_s_of_its_name() {
        let without = config("");
        let faults = Faults::new(&without, Vec::new());
        let text = "[[fault]]\nname = \"file\"\ninject = \"connection limit 9\"\n";
        let rules = config::faults(text, "t", &without).expect("it is right");
        faults.add(rules.clone(), &without, 0).expect("it is new");
        let file = config(FILE);
        let after = next(&faults, &without, &file, 0);
        faults.give_back();
        faults.reread(&file, 0);
        for faults in [&faults, &after] {
            assert_eq!(names(faults), ["removed", "file"]);
            assert_eq!(faults.rules()[1].settings.fault, rules[0].fault);
            faults.remove("file", 0).expect("it is there");
            assert_eq!(names(faults), ["removed"], "the file's is not what was asked for either");
        }
    }

    #[test]
    fn another_file_has_its_own_and_those_that_were_added() {
        let file = config(FILE);
        let faults = Faults::new(&file, Vec::new());
        faults.clear(0).expect("nobody takes over");
        let text = "[[fault]]\nname = \"of b\"\ninject = \"connection limit 9\"\nlistener = \"b\"\n\
                    [[fault]]\nname = \"of r\"\ninject = \"503\"\nroute = \"r\"\n";
        faults.add(config::faults(text, "t", &file).expect("it is right"), &file, 0).expect("it is new");
        assert_eq!(names(&next(&faults, &file, &file, 0)), ["of b", "of r"], "what was removed stays so");
        let other = config(&FILE.replace("limit 1", "limit 2"));
        assert_eq!(names(&next(&faults, &file, &other, 0)), ["file", "removed", "of b", "of r"]);
        // The listener has another index, and the route is missing until a file has it again.
        let text = "[[listen]]\naddress = \"127.0.0.1:81\"\nname = \"b\"\n[[route]]\nname = \"s\"\nrespond = { status = 200 }\n\
                    [faults]\nseed = 7\n";
        let without = config::parse(text, "f").expect("it is right");
        let after = next(&faults, &file, &without, 0);
        assert_eq!(names(&after), ["of b"]);
        assert_eq!(drawn(&after, "10.0.0.1"), Some(("of b".to_owned(), 0)));
        let again = next(&after, &without, &file, 0);
        assert_eq!(names(&again), ["file", "removed", "of b", "of r"]);
        assert_eq!(drawn(&next(&again, &file, &without, 0), "10.0.0.1"), Some(("of b".to_owned(), 1)));
        again.give_back();
        again.reread(&without, 0);
        assert_eq!(names(&again), ["of b"]);
        again.remove("of r", 0).expect("it waits");
        again.reread(&file, 0);
        assert_eq!(names(&again), ["file", "removed", "of b"]);
    }
}
