// Runs the suite http-cache-tests against a cache in front of its server, and tells of each test what came of it.
//
// Arguments: the folder that holds its node_modules, the URL of the cache. Prints a line for each test: what came of it
// (`passed`, `failed`, or `unjudged` where what it builds on is not so), of what kind it is (`required`, `optimal`,
// `check`), its name, and why.
import { createRequire } from "node:module";

const [folder, base] = process.argv.slice(2);
const suite = `${folder}/node_modules/http-cache-tests`;
const { runTests, getResults } = await import(`${suite}/client/runner.mjs`);
const { default: groups } = await import(`${suite}/tests/index.mjs`);
groups.push((await import(`${suite}/tests/surrogate-control.mjs`)).default);

await runTests(groups, createRequire(`${folder}/`)("node-fetch"), false, base);
const results = getResults();
const tests = new Map(groups.flatMap((group) => group.tests).map((test) => [test.id, test]));

// As the suite's own page judges.
function outcome(id) {
  const { depends_on: foundations = [] } = tests.get(id);
  const result = results[id];
  if (foundations.some((other) => outcome(other) !== "passed")) return "unjudged";
  if (result === true) return "passed";
  return result?.[0] === "Assertion" ? "failed" : "unjudged";
}

for (const [id, test] of tests) {
  if (test.browser_only) continue;
  const why = results[id] === true ? "" : (results[id] ?? ["not run"]).join(": ");
  console.log([outcome(id), test.kind ?? "required", id, why].join("\t"));
}
