//! Accessibility of the report pages, checked by axe-core in Chromium: bright and dark, on desktop and phone.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::process::Process;
use super::programs::{self, CHROMIUM, run};
use super::subject;
use crate::say;
use crate::scratch::Scratch;
use crate::step;
use crate::workspace::Workspace;

const AXE: &str = "axe-core@4.14.1";
/// Stored results whose pages are checked.
const RESULTS: [&str; 2] = ["zproxy/results.json.gz", "resilience/dying-servers/results.json.gz"];
const WIDTHS: [u32; 2] = [1400, 400];
/// Timeout of all pages together: they take seconds, or longer on a busy machine.
const PAGES_LIMIT: Duration = Duration::from_secs(240);
/// Timeout of a load, which takes seconds.
const LOAD_LIMIT: Duration = Duration::from_secs(60);
const VERDICT: (&str, &str) = ("AXE-BEGIN", "AXE-END");
/// Opens all details, and sends serious violations to the parent page.
const SCRIPT: &str = "document.querySelectorAll('details').forEach(one => one.open = true);\
    axe.run().then(found => {\
      const bad = found.violations.filter(rule => ['serious', 'critical'].includes(rule.impact));\
      const said = bad.map(rule => `${rule.id}: ${rule.nodes[0].target}`).join('; ');\
      const wide = document.documentElement.scrollWidth - document.documentElement.clientWidth;\
      parent.postMessage(`${window.name}|${found.passes.length} rules passed|${said}|${wide}`, '*');\
    });";

pub(super) fn check(workspace: &Workspace, scratch: &Scratch) -> Result<(), String> {
    let folder = scratch.path();
    let axe = programs::from_npm(workspace, &[AXE], folder)?.join("node_modules/axe-core/axe.min.js");
    let axe = fs::read_to_string(&axe).map_err(|error| format!("{}: {error}", axe.display()))?;
    let mut frames = String::new();
    let pages = pages(workspace, folder)?;
    for (name, page) in &pages {
        let failed = |error| format!("{}: {error}", page.display());
        let text = fs::read_to_string(page).map_err(failed)?;
        let judged =
            text.replace("</body>", &format!("<script>{axe}</script><script>{SCRIPT}</script></body>"));
        let file = folder.join(format!("{}.html", name.replace(' ', "-")));
        fs::write(&file, judged).map_err(failed)?;
        for width in WIDTHS {
            frames += &format!(
                "<iframe name=\"{name}, {width} px\" src=\"file://{}\" style=\"width:{width}px;height:900px\"></iframe>",
                file.display()
            );
        }
    }
    let all = pages.len() * WIDTHS.len();
    let around = folder.join("all.html");
    // Chromium's own window is at least 500 pixels wide, but a frame can be narrower.
    let text = format!(
        "<!doctype html><meta charset=\"utf-8\"><meta name=\"color-scheme\" content=\"light dark\"><script>const said = [];\
         onmessage = event => {{ if (said.push(event.data) === {all}) \
         document.body.textContent = `{}${{said.join('\\n')}}{}`; }};</script><body>{frames}</body>",
        VERDICT.0, VERDICT.1
    );
    fs::write(&around, text).map_err(|error| format!("{}: {error}", around.display()))?;
    for (scheme, number) in [("bright", 1), ("dark", 0)] {
        for verdict in verdicts(&around, number, folder)?.lines() {
            let passed = judge(verdict).map_err(|problem| format!("{scheme}: {problem}"))?;
            say(format_args!("{scheme}: {passed}, nothing serious"));
        }
    }
    Ok(())
}

/// Renders the pages by name: from stored results, and from the load generator.
fn pages(workspace: &Workspace, folder: &Path) -> Result<Vec<(&'static str, PathBuf)>, String> {
    let vanward = programs::build_vanward(workspace)?;
    let mut pages = Vec::new();
    for (name, kept) in ["experiment", "resilience"].into_iter().zip(RESULTS) {
        let (from, to) = (workspace.root.join("docs/results").join(kept), folder.join(name));
        let file = to.join(from.file_name().unwrap_or_default());
        fs::create_dir(&to)
            .and_then(|()| fs::copy(&from, file))
            .map_err(|error| format!("{}: {error}", from.display()))?;
        run(name, Command::new(&vanward).args(["lab", "report", "--page"]).arg(&to), folder, PAGES_LIMIT)?;
        pages.push((name, to.join("report.html")));
    }
    let (_origin, server) = subject::origin(&vanward, folder)?;
    for (name, path, expected) in [("load", "/tiny", "p99 < 60s"), ("load missed", "/delay/1ms", "p50 < 1us")]
    {
        let mut load = Command::new(&vanward);
        load.args(["load", &format!("http://{server}{path}"), "--rate", "200", "--duration", "3s"]);
        load.args(["--connections", "5", "--expect", expected, "--out"]).arg(folder.join(name));
        // A missed expectation, or invalid figures on a busy machine: the page shows them.
        let (status, said) = Process::start(name, &mut load, folder)?.finish(LOAD_LIMIT)?;
        if !matches!(status.code(), Some(0 | step::INVALID_RUN | 99)) {
            return Err(format!("the load: {status}; it said:\n{said}"));
        }
        pages.push((name, folder.join(name).join("report.html")));
    }
    let overlaid = folder.join("several-loads.html");
    let mut report = Command::new(&vanward);
    report.args(["load", "report", "load", "load missed", "--out"]).arg(&overlaid).current_dir(folder);
    run("load report", &mut report, folder, LOAD_LIMIT)?;
    pages.push(("several loads", overlaid));
    Ok(pages)
}

fn verdicts(around: &Path, scheme: u8, folder: &Path) -> Result<String, String> {
    let profile = Scratch::new("chromium")?;
    let mut chromium = Command::new(CHROMIUM.find()?);
    chromium
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-quic"])
        .args([
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
        ])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg("--window-size=1500,900")
        .arg(format!("--blink-settings=preferredColorScheme={scheme}"))
        .args(["--virtual-time-budget=60000", "--dump-dom"])
        .arg(format!("file://{}", around.display()));
    let (status, said) =
        Process::start(&format!("chromium-{scheme}"), &mut chromium, folder)?.finish(PAGES_LIMIT)?;
    // The script replaces the body, including the frames, by the verdicts.
    let found = said.rsplit_once(VERDICT.1).and_then(|(before, _)| before.rsplit_once(VERDICT.0));
    let (_, found) = found.ok_or_else(|| format!("axe-core gave no verdicts ({status}): {said}"))?;
    Ok(found.to_owned())
}

fn judge(verdict: &str) -> Result<String, String> {
    let mut parts = verdict.split('|');
    let [name, passed, broken, wide] = [(); 4].map(|()| parts.next().unwrap_or_default());
    match (broken, wide) {
        ("", "0") => Ok(format!("{name}: {passed}")),
        ("", wide) => Err(format!("{name}: it is {wide} pixels wider than its window")),
        (broken, _) => Err(format!("{name}: it breaks {broken}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_names_the_violations() {
        for (verdict, expected) in [
            ("load, 400 px|40 rules passed||0", Ok("load, 400 px: 40 rules passed")),
            ("load, 400 px|40 rules passed||12", Err("load, 400 px: it is 12 pixels wider than its window")),
            ("load, 400 px|40 rules passed|label: #a|0", Err("load, 400 px: it breaks label: #a")),
        ] {
            assert_eq!(judge(verdict), expected.map(str::to_owned).map_err(str::to_owned), "{verdict}");
        }
    }
}
