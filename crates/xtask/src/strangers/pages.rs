//! Accessibility of a report page, as axe-core judges it in Chromium: bright and dark, on a desk and on a phone.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::process::Process;
use super::programs::{self, CHROMIUM, run};
use crate::say;
use crate::scratch::Scratch;
use crate::workspace::Workspace;

const AXE: &str = "axe-core@4.14.1";
/// Kept results whose page is judged.
const RESULTS: &str = "docs/results/zproxy/results.json.gz";
/// Timeout of a page: it takes seconds, or longer on a busy machine.
const PAGE_LIMIT: Duration = Duration::from_secs(90);
/// Begin and end of the verdict in the page.
const VERDICT: (&str, &str) = ("AXE-BEGIN", "AXE-END");
/// Opens everything, and leaves the rules that are broken seriously in place of the page.
const SCRIPT: &str = "document.querySelectorAll('details').forEach(one => one.open = true);\
    axe.run().then(found => {\
      const bad = found.violations.filter(rule => ['serious', 'critical'].includes(rule.impact));\
      const said = bad.map(rule => `${rule.id}: ${rule.nodes[0].target}`).join('; ');\
      const wide = document.documentElement.scrollWidth - document.documentElement.clientWidth;\
      document.body.textContent = `AXE-BEGIN${found.passes.length} rules passed|${said}|${wide}AXE-END`;\
    });";

pub(super) fn check(workspace: &Workspace, scratch: &Scratch) -> Result<(), String> {
    let folder = scratch.path();
    let axe = programs::from_npm(workspace, &[AXE], folder)?.join("node_modules/axe-core/axe.min.js");
    let axe = fs::read_to_string(&axe).map_err(|error| format!("{}: {error}", axe.display()))?;
    let vanward = programs::build_vanward(workspace)?;
    let failed = |error| format!("{}: {error}", folder.display());
    fs::copy(workspace.root.join(RESULTS), folder.join("results.json.gz")).map_err(failed)?;
    run("report", Command::new(vanward).args(["lab", "report", "--page"]).arg(folder), folder, PAGE_LIMIT)?;
    let page = fs::read_to_string(folder.join("report.html")).map_err(failed)?;
    let judged = page.replace("</body>", &format!("<script>{axe}</script><script>{SCRIPT}</script></body>"));
    let file = folder.join("judged.html");
    fs::write(&file, judged).map_err(failed)?;
    for (place, width) in [("a desk", 1400), ("a phone", 500)] {
        for (name, scheme) in [("bright", 1), ("dark", 0)] {
            let passed = verdict(&file, width, scheme, folder)
                .map_err(|problem| format!("the page, {name}, on {place}: {problem}"))?;
            say(format_args!("the page, {name}, on {place}: {passed}, nothing serious"));
        }
    }
    Ok(())
}

/// The verdict on a page, in a window of this width.
fn verdict(page: &Path, width: u32, scheme: u8, folder: &Path) -> Result<String, String> {
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
        .arg(format!("--window-size={width},900"))
        .arg(format!("--blink-settings=preferredColorScheme={scheme}"))
        .args(["--virtual-time-budget=60000", "--dump-dom"])
        .arg(format!("file://{}", page.display()));
    let name = format!("chromium-{width}-{scheme}");
    let (status, said) = Process::start(&name, &mut chromium, folder)?.finish(PAGE_LIMIT)?;
    // What the script puts in place of the body, and thereby of itself.
    let found = said.rsplit_once(VERDICT.1).and_then(|(before, _)| before.rsplit_once(VERDICT.0));
    let (_, found) = found.ok_or_else(|| format!("axe-core gave no verdict ({status}): {said}"))?;
    let mut parts = found.split('|');
    let [passed, broken, wide] = [(); 3].map(|()| parts.next().unwrap_or_default());
    match (broken, wide) {
        ("", "0") => Ok(passed.to_owned()),
        ("", wide) => Err(format!("it is {wide} pixels wider than its window")),
        (broken, _) => Err(format!("it breaks {broken}")),
    }
}
