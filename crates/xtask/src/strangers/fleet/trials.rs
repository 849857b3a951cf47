//! Interrupted trials: pushes and rollbacks during a trial, and the death of the instance that tries. Also an etcd
//! that is emptied.

use super::{FleetScene, INSTANCES, said, until};
use crate::say;

pub(super) fn check(scene: &mut FleetScene) -> Result<(), String> {
    scene.fleet(&["canary", "--time", "5m", "--errors", "5", "--instance", "edge-0"], true)?;
    let before = scene.served(1)?;
    overtaken(scene, &before)?;
    dies(scene)?;
    rolled_back(scene)?;
    emptied(scene)?;
    scene.fleet(&["canary", "--time", "0"], true).map(drop)
}

/// A version that is pushed during a trial is tried next, by that instance.
fn overtaken(scene: &FleetScene, before: &str) -> Result<(), String> {
    for text in ["tried first", "tried second", "tried third"] {
        scene.push(text, "")?;
        until(&format!("edge-0 tries {text:?}"), || Ok(scene.served(0)? == text))?;
        for other in 1..INSTANCES {
            let served = scene.served(other)?;
            if served != before {
                return Err(format!("edge-{other} serves {served:?} during the trial of {text:?}"));
            }
        }
        if scene.fleet(&[], false)?.status.success() {
            return Err("`vanward fleet` succeeds during a trial".to_owned());
        }
    }
    say("a version that is pushed during the trial of another one is tried next");
    Ok(())
}

/// The trying instance is killed: another one tries, including a version that is pushed in between.
fn dies(scene: &mut FleetScene) -> Result<(), String> {
    scene.instances[0].process = None;
    scene.push("tried fourth", "")?;
    until("edge-1 tries the version after the death of edge-0", || Ok(scene.served(1)? == "tried fourth"))?;
    let shown = said(&scene.fleet(&[], false)?);
    if !shown.contains("edge-1 tries version") {
        return Err(format!("nothing says which instance tries:\n{shown}"));
    }
    // The trial continues with the new time, and all apply the version.
    scene.fleet(&["canary", "--time", "1s"], true)?;
    until("edge-2 takes up what edge-1 has tried", || Ok(scene.served(2)? == "tried fourth"))?;
    scene.restart(0)?;
    scene.fleet(&["--wait", "30s"], true)?;
    say("an instance that dies while it tries: another one tries the version, and all take it up");
    Ok(())
}

/// A rollback during a trial: all run the previous version, and no trial is left.
fn rolled_back(scene: &FleetScene) -> Result<(), String> {
    scene.fleet(&["canary", "--time", "5m"], true)?;
    scene.push("tried fifth", "")?;
    until("edge-0 tries the version", || Ok(scene.served(0)? == "tried fifth"))?;
    scene.fleet(&["rollback"], true)?;
    scene.fleet(&["--wait", "30s"], true)?;
    let served = scene.served(0)?;
    if served != "tried fourth" {
        return Err(format!("after a rollback during a trial, {served:?} is served"));
    }
    // A version that was given up is not bad, so it is tried again.
    scene.push("tried fifth", "")?;
    until("edge-0 tries the version again", || Ok(scene.served(0)? == "tried fifth"))?;
    scene.fleet(&["canary", "--time", "0"], true)?;
    scene.fleet(&["--wait", "30s"], true)?;
    say(
        "a rollback during a trial, and a canary that is switched off during one: all run the version in etcd",
    );
    Ok(())
}

/// An etcd without a configuration is reported as empty, and changes nothing.
fn emptied(scene: &FleetScene) -> Result<(), String> {
    scene.etcdctl_as_user(&["del", "/edge/vanward.toml"])?;
    until("all instances say that etcd is empty", || {
        let shown = scene.fleet(&[], false)?;
        let is_told = said(&shown).matches("etcd has no configuration").count() == INSTANCES + 1;
        Ok(is_told && !shown.status.success())
    })?;
    let served = scene.served(2)?;
    if served != "tried fifth" {
        return Err(format!("with an empty etcd, {served:?} is served"));
    }
    scene.push("after all", "")?;
    scene.fleet(&["--wait", "30s"], true)?;
    say("an empty etcd is reported as empty, and changes nothing");
    Ok(())
}
