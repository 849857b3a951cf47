//! Decides when an instance applies a new version: at once, first as a canary, or after the canary found it good.
//! Pure: the known state goes in, a step comes out.

use std::time::Duration;

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RolloutPolicy {
    /// Seconds for which one instance tries a new version before the others apply it; 0: all apply it at once.
    pub canary_seconds: u64,
    /// Maximum share of failed requests during a trial, in percent. A 5xx from the proxy or a server is a failure.
    pub errors_percent: f64,
    /// The canary, which tries new versions; `None` means the first running instance by name.
    pub instance: Option<String>,
}

impl Default for RolloutPolicy {
    fn default() -> Self {
        Self { canary_seconds: 0, errors_percent: 1.0, instance: None }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrialVerdict {
    /// Whether the other instances apply the version.
    pub is_good: bool,
    pub by: String,
    pub why: String,
}

/// A running trial. It ends with the instance's lease, so that another instance can try after a crash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trial {
    pub version: String,
    pub by: String,
}

/// State in etcd about the version that it has.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct KnownVersion<'k> {
    pub(crate) policy: &'k RolloutPolicy,
    /// The version in etcd; `None` if none can be read.
    pub(crate) wanted: Option<&'k str>,
    /// The revision of the last push; pushing the same version again increases it.
    pub(crate) pushed: i64,
    pub(crate) verdict: Option<&'k TrialVerdict>,
    pub(crate) trial_by: Option<&'k str>,
    pub(crate) running: &'k [String],
}

impl KnownVersion<'_> {
    /// Whether the next step of a resting instance may depend on which instances run. While there is no verdict,
    /// another instance may become the canary.
    pub(crate) fn is_open(&self) -> bool {
        self.policy.canary_seconds > 0 && self.verdict.is_none()
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct OwnStep {
    pub(crate) name: String,
    pub(crate) version: String,
    /// How long the version in force has been on trial.
    pub(crate) tried_for: Option<Duration>,
    pub(crate) refused: Option<RefusedVersion>,
    /// Requests since the trial began, and how many failed.
    pub(crate) requests: (u64, u64),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RefusedVersion {
    pub(crate) version: String,
    /// The revision of the push that was refused.
    pub(crate) pushed: i64,
    pub(crate) why: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RolloutStep {
    /// Nothing to do: the wanted version is in force, or refused.
    Stay,
    TakeUp,
    Try,
    GoOn,
    /// Writes a verdict on the wanted version. A bad version on trial is given up.
    Judge(TrialVerdict),
    /// Returns from the version on trial to the previous one, for this reason.
    GiveUp(String),
    /// Waits for the named instance, which tries the wanted version or is about to.
    Wait(String),
    /// Keeps the version in force: the wanted one is unreadable or bad.
    Reject,
}

impl RolloutStep {
    /// Whether the instance has nothing to do until something changes.
    pub(crate) fn is_rest(&self) -> bool {
        matches!(self, Self::Stay | Self::GoOn | Self::Wait(_) | Self::Reject)
    }
}

/// Returns the next step of an instance. One instance tries the wanted version, whatever the history. Each step
/// that is no rest is followed by another look.
pub(crate) fn next(known: KnownVersion<'_>, own: &OwnStep) -> RolloutStep {
    let KnownVersion { verdict, .. } = known;
    let is_tried = own.tried_for.is_some();
    let Some(wanted) = known.wanted else {
        return if is_tried {
            RolloutStep::GiveUp("etcd has no version any more".to_owned())
        } else {
            RolloutStep::Reject
        };
    };
    let is_in_force = own.version == wanted;
    if is_tried && !is_in_force {
        return RolloutStep::GiveUp(format!("version {wanted} has replaced it"));
    }
    match verdict {
        Some(TrialVerdict { is_good: false, by, why }) if is_tried => {
            RolloutStep::GiveUp(format!("{by}: {why}"))
        }
        Some(TrialVerdict { is_good: false, .. }) if is_in_force => RolloutStep::Stay,
        Some(TrialVerdict { is_good: false, .. }) => RolloutStep::Reject,
        None if known.is_open() => untried(known, wanted, own),
        _ if is_tried => RolloutStep::TakeUp,
        _ if is_in_force || own.refuses(known).is_some() => RolloutStep::Stay,
        _ => RolloutStep::TakeUp,
    }
}

fn untried(known: KnownVersion<'_>, wanted: &str, own: &OwnStep) -> RolloutStep {
    let KnownVersion { policy, trial_by, running, .. } = known;
    let other = trial_by.filter(|by| *by != own.name);
    if let Some(tried_for) = own.tried_for {
        return match other {
            Some(by) => RolloutStep::GiveUp(format!("{by} tries it")),
            None => judged(policy, own, tried_for).map_or(RolloutStep::GoOn, RolloutStep::Judge),
        };
    }
    let named = policy.instance.as_ref().filter(|name| running.contains(name));
    let first = named.or(running.first()).map(String::as_str);
    let canary = trial_by.or(first).unwrap_or(&own.name);
    let is_in_force = own.version == wanted;
    let judge = |is_good, why: &str| {
        RolloutStep::Judge(TrialVerdict { is_good, by: own.name.clone(), why: why.to_owned() })
    };
    match own.refuses(known) {
        Some(why) if canary == own.name => judge(false, why),
        // Instances that run an older version wait for this verdict.
        None if canary == own.name && is_in_force => judge(true, "it was in force here before"),
        None if canary == own.name => RolloutStep::Try,
        _ if is_in_force => RolloutStep::Stay,
        _ => RolloutStep::Wait(canary.to_owned()),
    }
}

impl OwnStep {
    /// Returns why the wanted version cannot be used here, unless it has been pushed again.
    fn refuses(&self, known: KnownVersion<'_>) -> Option<&str> {
        let refused = self.refused.as_ref()?;
        let is_wanted = known.wanted == Some(&refused.version) && known.pushed == refused.pushed;
        is_wanted.then_some(&refused.why)
    }
}

/// Returns the verdict on the version on trial; `None` if it is too early.
pub(crate) fn judged(policy: &RolloutPolicy, own: &OwnStep, tried_for: Duration) -> Option<TrialVerdict> {
    let (requests, failed) = own.requests;
    let percent = if requests == 0 { 0.0 } else { failed as f64 * 100.0 / requests as f64 };
    let said = format!("{failed} of {requests} requests failed in {} s", tried_for.as_secs());
    let is_over = tried_for >= Duration::from_secs(policy.canary_seconds);
    let is_bad = percent > policy.errors_percent;
    // A version that fails at once need not finish its trial, but a single failure says little.
    let is_clear = is_bad && failed >= 10;
    if !is_over && !is_clear {
        return None;
    }
    let bound = policy.errors_percent;
    let why = if is_bad { format!("{said}, more than {bound}%") } else { said };
    Some(TrialVerdict { is_good: !is_bad, by: own.name.clone(), why })
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    fn own(version: &str) -> OwnStep {
        OwnStep {
            name: "b".to_owned(),
            version: version.to_owned(),
            tried_for: None,
            refused: None,
            requests: (0, 0),
        }
    }

    fn refusing(version: &str, pushed: i64) -> OwnStep {
        let refused = RefusedVersion { version: version.to_owned(), pushed, why: "no".to_owned() };
        OwnStep { refused: Some(refused), ..own("1") }
    }

    fn verdict(is_good: bool) -> TrialVerdict {
        TrialVerdict { is_good, by: "a".to_owned(), why: "x".to_owned() }
    }

    fn known<'k>(policy: &'k RolloutPolicy, running: &'k [String]) -> KnownVersion<'k> {
        KnownVersion { policy, wanted: Some("2"), pushed: 7, verdict: None, trial_by: None, running }
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn judge(is_good: bool, why: &str) -> RolloutStep {
        RolloutStep::Judge(TrialVerdict { is_good, by: "b".to_owned(), why: why.to_owned() })
    }

    #[test]
    fn without_a_canary_all_take_it_up_at_once() {
        let (policy, running) = (RolloutPolicy::default(), names(&["a", "b"]));
        let known = known(&policy, &running);
        for (own, expected) in [
            (own("1"), RolloutStep::TakeUp),
            (own("2"), RolloutStep::Stay),
            (refusing("2", 7), RolloutStep::Stay),
            // Pushed again: the obstacle may be gone.
            (refusing("2", 6), RolloutStep::TakeUp),
            (refusing("0", 7), RolloutStep::TakeUp),
            // The canary was switched off during the trial.
            (OwnStep { tried_for: Some(Duration::ZERO), ..own("2") }, RolloutStep::TakeUp),
        ] {
            assert_eq!(next(known, &own), expected, "{own:?}");
        }
        assert_eq!(next(KnownVersion { wanted: None, ..known }, &own("1")), RolloutStep::Reject);
    }

    #[test]
    fn one_tries_it_and_the_others_wait_for_its_word() {
        let policy = RolloutPolicy { canary_seconds: 10, ..RolloutPolicy::default() };
        let (two, alone) = (names(&["a", "b"]), names(&["b"]));
        let (good, bad) = (verdict(true), verdict(false));
        let wait = || RolloutStep::Wait("a".to_owned());
        for (running, trial_by, verdict, own, expected) in [
            (&two[..], None, None, own("1"), wait()),
            (&two, None, Some(&good), own("1"), RolloutStep::TakeUp),
            (&two, None, Some(&bad), own("1"), RolloutStep::Reject),
            (&two, None, Some(&bad), own("2"), RolloutStep::Stay),
            (&alone, None, None, own("1"), RolloutStep::Try),
            (&[], None, None, own("1"), RolloutStep::Try),
            // A trial stays with its instance, even if others start.
            (&alone, Some("a"), None, own("1"), wait()),
            (&two, Some("b"), None, own("1"), RolloutStep::Try),
            (&two, Some("a"), None, own("2"), RolloutStep::Stay),
            // The canary already runs the version, so no trial follows and no instance waits.
            (&alone, None, None, own("2"), judge(true, "it was in force here before")),
            (&two, None, None, own("2"), RolloutStep::Stay),
            // Verdicts that could not be written while etcd was unreachable.
            (&alone, None, None, refusing("2", 7), judge(false, "no")),
            (&alone, None, None, refusing("2", 6), RolloutStep::Try),
            (&two, None, None, refusing("2", 7), wait()),
        ] {
            let known = KnownVersion { trial_by, verdict, ..known(&policy, running) };
            assert_eq!(next(known, &own), expected, "{running:?} {trial_by:?} {verdict:?} {own:?}");
        }
        let named = RolloutPolicy { instance: Some("b".to_owned()), ..policy.clone() };
        assert_eq!(next(known(&named, &two), &own("1")), RolloutStep::Try);
        let gone = RolloutPolicy { instance: Some("c".to_owned()), ..policy };
        assert_eq!(next(known(&gone, &two), &own("1")), wait());
    }

    #[test]
    fn a_trial_ends_by_its_time_or_by_its_errors() {
        let policy = RolloutPolicy { canary_seconds: 10, errors_percent: 1.0, instance: None };
        let running = names(&["b"]);
        let known = known(&policy, &running);
        let trial = |seconds, requests| OwnStep {
            tried_for: Some(Duration::from_secs(seconds)),
            requests,
            ..own("2")
        };
        for (seconds, requests, expected) in [
            (9, (1000, 0), RolloutStep::GoOn),
            (9, (1000, 9), RolloutStep::GoOn),
            (2, (100, 10), judge(false, "10 of 100 requests failed in 2 s, more than 1%")),
            (10, (1000, 10), judge(true, "10 of 1000 requests failed in 10 s")),
            (10, (1000, 11), judge(false, "11 of 1000 requests failed in 10 s, more than 1%")),
            (10, (3, 1), judge(false, "1 of 3 requests failed in 10 s, more than 1%")),
            (10, (0, 0), judge(true, "0 of 0 requests failed in 10 s")),
        ] {
            assert_eq!(next(known, &trial(seconds, requests)), expected, "{seconds} {requests:?}");
        }
        let (good, bad) = (verdict(true), verdict(false));
        let give_up = |why: &str| RolloutStep::GiveUp(why.to_owned());
        for (known, expected) in [
            (KnownVersion { verdict: Some(&good), ..known }, RolloutStep::TakeUp),
            (KnownVersion { verdict: Some(&bad), ..known }, give_up("a: x")),
            (KnownVersion { wanted: Some("3"), ..known }, give_up("version 3 has replaced it")),
            (KnownVersion { wanted: None, ..known }, give_up("etcd has no version any more")),
            (KnownVersion { trial_by: Some("a"), ..known }, give_up("a tries it")),
            (KnownVersion { trial_by: Some("b"), ..known }, RolloutStep::GoOn),
        ] {
            assert_eq!(next(known, &trial(1, (0, 0))), expected, "{known:?}");
        }
    }

    /// Simulates the store and all instances of a fleet.
    #[derive(Default)]
    struct World {
        seed: u64,
        now: u64,
        /// Counts writes to watched keys.
        writes: u64,
        wanted: String,
        pushed: i64,
        pushes: u64,
        policy: RolloutPolicy,
        verdicts: BTreeMap<String, TrialVerdict>,
        trial: Option<Trial>,
        /// Running instances, and dead ones whose leases have not expired.
        leased: BTreeSet<String>,
        running: BTreeMap<String, Running>,
        /// The last good version by instance.
        disks: BTreeMap<String, String>,
    }

    const NAMES: [&str; 3] = ["a", "b", "c"];

    struct Running {
        own: OwnStep,
        /// The version before the trial, and the trial's start.
        before: Option<(String, u64)>,
        /// Why the instance need not look again: the writes it has seen and, if relevant, the running instances.
        rest: Option<(u64, Option<BTreeSet<String>>)>,
    }

    impl World {
        /// Returns the next random number below `end` (xorshift).
        fn any(&mut self, end: u64) -> u64 {
            self.seed ^= self.seed << 13;
            self.seed ^= self.seed >> 7;
            self.seed ^= self.seed << 17;
            self.seed % end
        }

        fn push(&mut self, version: String) {
            self.verdicts.remove(&version);
            self.trial = None;
            (self.wanted, self.pushed) = (version, self.pushed + 1);
            self.writes += 1;
        }

        fn start(&mut self, name: String) {
            let version = self.disks.get(&name).unwrap_or(&self.wanted).clone();
            let own =
                OwnStep { name: name.clone(), version, tried_for: None, refused: None, requests: (0, 0) };
            self.leased.insert(name.clone());
            self.running.insert(name, Running { own, before: None, rest: None });
        }

        fn happen(&mut self) {
            let name = NAMES[self.any(3) as usize].to_owned();
            match self.any(12) {
                0..3 => {
                    self.pushes += 1;
                    let kind = ["good", "bad", "broken"][self.any(3) as usize];
                    self.push(format!("{kind} {}", self.pushes));
                }
                3 => {
                    let kept: Vec<String> = self.disks.values().cloned().collect();
                    let place = self.any(kept.len() as u64) as usize;
                    self.push(kept[place].clone());
                }
                4 => self.push(self.wanted.clone()),
                5 | 6 if self.running.len() > 1 => drop(self.running.remove(&name)),
                7 if !self.running.contains_key(&name) => self.start(name),
                8 => self.expire(),
                // The instance pauses for longer than its lease.
                9 => self.lose_lease(&name),
                10 => self.policy.canary_seconds = [0, 10, 60][self.any(3) as usize],
                11 => self.policy.instance = (self.any(2) == 0).then_some(name),
                _ => self.now += self.any(100),
            }
            self.writes += 1;
        }

        fn lose_lease(&mut self, name: &str) {
            self.leased.remove(name);
            self.writes += u64::from(self.trial.take_if(|trial| trial.by == name).is_some());
        }

        /// Whether an instance looks: after a step, a write or another one's death, and at the end of its trial.
        fn is_due(&self, name: &str) -> bool {
            let Some(Running { own, before, rest }) = self.running.get(name) else { return false };
            let Some((writes, waits)) = rest else { return true };
            let is_over = before.as_ref().is_some_and(|(_, at)| {
                judged(&self.policy, own, Duration::from_secs(self.now - at)).is_some()
            });
            *writes != self.writes || is_over || waits.as_ref().is_some_and(|seen| *seen != self.leased)
        }

        fn expire(&mut self) {
            let dead: Vec<String> =
                self.leased.iter().filter(|name| !self.running.contains_key(*name)).cloned().collect();
            dead.iter().for_each(|name| self.lose_lease(name));
        }

        /// Lets an instance look and act. Returns whether it rests afterwards.
        fn look(&mut self, name: &str) -> bool {
            let Some(Running { mut own, mut before, .. }) = self.running.remove(name) else { return true };
            self.leased.insert(name.to_owned());
            own.tried_for = before.as_ref().map(|(_, at)| Duration::from_secs(self.now - at));
            own.requests = if own.version.starts_with("bad") { (100, 50) } else { (100, 0) };
            let running: Vec<String> = self.leased.iter().cloned().collect();
            let trial = self.trial.as_ref().filter(|trial| trial.version == self.wanted);
            let known = KnownVersion {
                policy: &self.policy,
                wanted: Some(&self.wanted),
                pushed: self.pushed,
                verdict: self.verdicts.get(&self.wanted),
                trial_by: trial.map(|trial| trial.by.as_str()),
                running: &running,
            };
            let (step, is_open) = (next(known, &own), known.is_open());
            let claim = Trial { version: self.wanted.clone(), by: name.to_owned() };
            let refused = |why: &str| RefusedVersion {
                version: self.wanted.clone(),
                pushed: self.pushed,
                why: why.to_owned(),
            };
            let is_broken = self.wanted.starts_with("broken");
            match &step {
                RolloutStep::TakeUp | RolloutStep::Try if is_broken => own.refused = Some(refused("broken")),
                RolloutStep::TakeUp => (own.version, before) = (self.wanted.clone(), None),
                RolloutStep::Try => {
                    before = Some((std::mem::replace(&mut own.version, self.wanted.clone()), self.now));
                }
                RolloutStep::Judge(verdict) => {
                    if let Some((version, _)) = before.take_if(|_| !verdict.is_good) {
                        (own.version, own.refused) = (version, Some(refused(&verdict.why)));
                    }
                    self.verdicts.entry(self.wanted.clone()).or_insert_with(|| verdict.clone());
                }
                RolloutStep::GiveUp(_) => {
                    if let Some((version, _)) = before.take() {
                        own.version = version;
                    }
                }
                RolloutStep::Stay | RolloutStep::GoOn | RolloutStep::Wait(_) | RolloutStep::Reject => {}
            }
            if matches!(step, RolloutStep::Try | RolloutStep::GoOn) && self.trial.as_ref() != Some(&claim) {
                self.trial = Some(claim);
                self.writes += 1;
            }
            self.writes += u64::from(matches!(step, RolloutStep::Judge(_)));
            if before.is_none() {
                self.disks.insert(name.to_owned(), own.version.clone());
            }
            let waits = is_open.then(|| self.leased.clone());
            let rest = step.is_rest().then_some((self.writes, waits));
            self.running.insert(name.to_owned(), Running { own, before, rest });
            step.is_rest()
        }

        /// Lets all instances look until none has anything to do for longer than a trial takes.
        fn settle(&mut self) {
            for _ in 0..100 {
                self.expire();
                for name in NAMES {
                    let mut looks = 0;
                    while self.is_due(name) && !self.look(name) {
                        looks += 1;
                        assert!(looks < 10, "{name} does not come to rest");
                    }
                }
                self.now += 7;
            }
        }
    }

    /// Pushes, rollbacks, crashes, pauses and changes of the canary in any order never block the newest version.
    #[test]
    fn the_newest_version_is_tried_next_whatever_happened_to_the_previous_one() {
        for seed in 1..400 {
            let mut world = World { seed: seed << 32 | seed, ..World::default() };
            world.policy.canary_seconds = 10 * world.any(2);
            world.push("good 0".to_owned());
            NAMES.into_iter().for_each(|name| world.start(name.to_owned()));
            world.settle();
            for _ in 0..1 + world.any(30) {
                world.happen();
                for _ in 0..world.any(4) {
                    let name = NAMES[world.any(3) as usize];
                    world.look(name);
                }
            }
            world.settle();
            let World { wanted, verdicts, running, .. } = &world;
            let is_bad = verdicts.get(wanted).is_some_and(|verdict| !verdict.is_good);
            let has_canary = world.policy.canary_seconds > 0;
            for (name, Running { own, before, .. }) in running {
                let is_settled = match wanted.split(' ').next() {
                    Some("good") => own.version == *wanted && !is_bad,
                    // A version applied without a trial stays.
                    Some("bad") => own.version == *wanted || is_bad,
                    _ => own.refused.as_ref().is_some_and(|of| of.version == *wanted) || is_bad,
                };
                assert!(
                    is_settled && before.is_none(),
                    "seed {seed}, {name}: {own:?}, wanted {wanted:?}, verdicts {verdicts:?}"
                );
                let is_found = !has_canary || verdicts.contains_key(wanted);
                assert!(is_found, "seed {seed}: nobody says anything of {wanted:?}");
            }
        }
    }
}
