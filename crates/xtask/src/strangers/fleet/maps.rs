//! Maps that instances share through etcd: every instance has each change, also one that starts later, and after etcd
//! was gone. A condition and a value of a pushed version take effect with them.

use std::fs;
use std::process::{Command, Output};
use std::time::Instant;

use super::{FleetScene, INSTANCES, said, until};
use crate::say;

const MORE: &str = "[map.banned]\nkey = 'client.address'\nkind = \"network\"\nentries = [\"192.0.2.0/24\"]\n\
    [map.tenant]\nkey = 'request.query[\"host\"] ?? \"\"'\nentries = { a = \"one\" }\n\
    [values]\ntenant = 'map.tenant ?? \"none\"'\n\
    [[route]]\npath = \"/tenant\"\nwhen = 'map.banned'\nrespond = { status = 403, body = \"banned ${tenant}\" }\n\
    [[route]]\npath = \"/tenant\"\nrespond = { status = 200, body = \"${tenant}\" }\n";

pub(super) fn check(scene: &mut FleetScene) -> Result<(), String> {
    scene.push("maps", MORE)?;
    scene.fleet(&["--wait", "30s"], true)?;
    for instance in 0..INSTANCES {
        scene.has(instance, "/tenant?host=a", "one")?;
        scene.has(instance, "/tenant?host=b", "none")?;
    }
    say("a condition with a map, and a value, in a pushed version: in force on all instances");
    changes(scene)?;
    replacements(scene)?;
    without_etcd(scene)?;
    scene.push("without maps", "")?;
    scene.fleet(&["--wait", "30s"], true).map(drop)
}

fn changes(scene: &mut FleetScene) -> Result<(), String> {
    let began = Instant::now();
    scene.map(0, &["set", "tenant", "b", "two"])?;
    // In force when the command returns, on its instance.
    scene.has(0, "/tenant?host=b", "two")?;
    scene.all_have("/tenant?host=b", "two")?;
    say(format_args!("an entry that is set: on all instances after {} ms", began.elapsed().as_millis()));
    scene.map(1, &["delete", "tenant", "a"])?;
    scene.all_have("/tenant?host=a", "none")?;
    scene.map(2, &["set", "banned", "127.0.0.1", "--for", "1h"])?;
    scene.all_have("/tenant", "banned none")?;
    for instance in 0..INSTANCES {
        let shown = scene.map(instance, &["show", "banned"])?;
        if !shown.contains("127.0.0.1/32") || !shown.contains("ends in ") {
            return Err(format!("instance {instance} shows:\n{shown}"));
        }
    }
    let shown = said(&scene.map_output(1, &["get", "tenant", "b"])?);
    if !shown.contains("shared, as of ") || !scene.map(1, &[])?.contains("shared, as of ") {
        return Err(format!("a shared map is not shown as one:\n{shown}"));
    }
    // The new version has no other maps, so the state stays.
    scene.push("maps, reloaded", &format!("{MORE}[timeouts]\nclient_body = \"20s\"\n"))?;
    scene.fleet(&["--wait", "30s"], true)?;
    scene.restart(0)?;
    scene.all_have("/tenant", "banned none")?;
    scene.all_have("/tenant?host=b", "banned two")?;
    scene.map(0, &["delete", "banned", "127.0.0.1"])?;
    scene.all_have("/tenant?host=b", "two")?;
    scene.map(0, &["set", "banned", "127.0.0.0/8", "--for", "1s"])?;
    scene.all_have("/tenant?host=a", "none")?;
    say("entries are set, deleted, and end; a reload and a restarted instance keep the state of all");
    Ok(())
}

fn replacements(scene: &FleetScene) -> Result<(), String> {
    let file = scene.folder.join("networks");
    let list = file.display().to_string();
    // More than one piece in etcd.
    let networks = (0..60_000_u32).map(|number| format!("10.{}.{}.0/24\n", number / 256, number % 256));
    let networks: String = networks.chain(["127.0.0.0/8\n".to_owned()]).collect();
    fs::write(&file, networks).map_err(|error| error.to_string())?;
    let began = Instant::now();
    let told = scene.map(2, &["replace", "banned", &list])?;
    scene.all_have("/tenant", "banned none")?;
    say(format_args!(
        "a replacement with 60,001 networks: on all instances after {} ms",
        began.elapsed().as_millis()
    ));
    if !told.contains("60001 entries, for all instances") {
        return Err(format!("the command said:\n{told}"));
    }
    scene.map(1, &["delete", "banned", "127.0.0.0/8"])?;
    scene.all_have("/tenant?host=b", "two")?;
    let refused = scene.map_output(0, &["set", "banned", "127.0.0.1/8"])?;
    if refused.status.success() || !said(&refused).contains("write 127.0.0.0/8") {
        return Err(format!("a wrong network was taken:\n{}", said(&refused)));
    }
    scene.map(0, &["reset", "banned"])?;
    scene.map(0, &["reset", "tenant"])?;
    scene.all_have("/tenant?host=b", "none")?;
    scene.all_have("/tenant?host=a", "one")
}

/// A change is refused, or made on one instance alone. Later all have the same state.
fn without_etcd(scene: &mut FleetScene) -> Result<(), String> {
    scene.map(0, &["set", "tenant", "b", "before"])?;
    scene.etcd.iter_mut().for_each(|node| node.process = None);
    let refused = scene.map_output(1, &["set", "tenant", "b", "refused"])?;
    let why = said(&refused);
    if refused.status.success() || !why.contains("nothing has changed here") || !why.contains("--here") {
        return Err(format!("without etcd, a change was not refused:\n{why}"));
    }
    scene.has(1, "/tenant?host=b", "before")?;
    let told = scene.map(1, &["set", "tenant", "c", "here", "--here"])?;
    scene.has(1, "/tenant?host=c", "here")?;
    scene.has(0, "/tenant?host=c", "none")?;
    if told.contains("for all instances") {
        return Err(format!("a change on one instance said:\n{told}"));
    }
    scene.restart(2)?;
    scene.has(2, "/tenant?host=b", "none")?;
    for node in &mut scene.etcd {
        node.start(&scene.folder, &scene.trust)?;
    }
    scene.etcd.iter().try_for_each(|node| node.until_healthy(&scene.trust))?;
    scene.all_have("/tenant?host=b", "before")?;
    // As soon as the instance has a node that answers.
    until("a change is made again", || {
        Ok(scene.map_output(2, &["set", "tenant", "d", "later"])?.status.success())
    })?;
    scene.all_have("/tenant?host=d", "later")?;
    scene.has(1, "/tenant?host=c", "here")?;
    scene.map(0, &["set", "tenant", "c", "all"])?;
    scene.all_have("/tenant?host=c", "all")?;
    say("etcd gone: a change is refused or made on one instance alone; etcd back: all have the same state");
    Ok(())
}

impl FleetScene {
    fn map_output(&self, instance: usize, words: &[&str]) -> Result<Output, String> {
        let mut command = Command::new(&self.vanward);
        command.arg("map").args(words).arg("--socket").arg(self.admin(instance));
        command.output().map_err(|error| error.to_string())
    }

    /// Runs `vanward map` at an instance, which succeeds. Returns all that it says.
    fn map(&self, instance: usize, words: &[&str]) -> Result<String, String> {
        let output = self.map_output(instance, words)?;
        if output.status.success() {
            Ok(said(&output))
        } else {
            Err(format!("vanward map {}: {}", words.join(" "), said(&output)))
        }
    }

    fn has(&self, instance: usize, target: &str, text: &str) -> Result<(), String> {
        match self.get(instance, target)? {
            (_, body) if body == text => Ok(()),
            (_, body) => Err(format!("instance {instance} serves {body:?} instead of {text:?} at {target}")),
        }
    }

    fn all_have(&self, target: &str, text: &str) -> Result<(), String> {
        for instance in 0..INSTANCES {
            let what = format!("instance {instance} serves {text:?} at {target}");
            until(&what, || Ok(self.get(instance, target)?.1 == text))?;
        }
        Ok(())
    }
}
