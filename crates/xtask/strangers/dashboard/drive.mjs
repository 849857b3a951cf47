// Drives the dashboard in Chromium: drive.mjs LIBRARIES CHROMIUM DASHBOARD PROXY TOKEN-FILE PICTURES OPEN
// OPEN is a dashboard that asks for no token, which other sites must not reach either.
// Prints a line for each thing that holds, and ends with 1 at the first that does not.

import { readFileSync } from "node:fs";
import { createServer, request } from "node:http";
import { createRequire } from "node:module";
import { connect } from "node:net";
import { join } from "node:path";

const [libraries, chromium, dashboard, proxy, tokenFile, pictures, unguarded] = process.argv.slice(2);
const load = createRequire(join(libraries, "node_modules", "x"));
const puppeteer = load("puppeteer-core");
const axe = readFileSync(join(libraries, "node_modules", "axe-core", "axe.min.js"), "utf8");
const token = readFileSync(tokenFile, "utf8").trim();
const PATIENCE = { timeout: 60_000 };
// What the traffic and the configuration give each part of the page.
const PANELS = ["routes", "servers", "clients", "requests", "cache", "faults", "shaping", "certificates", "listeners"];

function holds(is, what, found) {
  if (!is) throw new Error(`${what}: ${JSON.stringify(found)}`);
  console.log(what);
}

// --- Traffic, as long as the page is looked at

const get = (path) => new Promise((resolve) => {
  const sent = request(`${proxy}${path}`, { agent: false }, (answer) => answer.resume().on("close", resolve));
  sent.on("error", resolve).end();
});
/** A target as it is, which Node.js would not send. */
const raw = (target) => new Promise((resolve) => {
  const { hostname, port } = new URL(proxy);
  const socket = connect(port, hostname, () => socket.write(`GET ${target} HTTP/1.1\r\nHost: ${hostname}\r\nConnection: close\r\n\r\n`));
  socket.on("error", resolve).on("close", resolve).resume();
});
/** Connections of clients that are about to send a request. */
function crowd(count) {
  const { hostname, port } = new URL(proxy);
  return Array.from({ length: count }, () => {
    const socket = connect(port, hostname, () => socket.write("GET / HTTP/1.1\r\n"));
    return socket.on("error", () => {}).resume();
  });
}
let isOver = false;
async function traffic(ask, ...paths) {
  while (!isOver) {
    for (const path of paths) await ask(path);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

// --- The browser

const profile = { headless: true, executablePath: chromium, args: [
  "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking", "--disable-component-update",
  "--disable-sync", "--no-first-run", "--host-resolver-rules=MAP attacker.test 127.0.0.1",
] };
const browser = await puppeteer.launch(profile);

/** A page that notes what goes wrong in it, and which other places it asks. */
async function open() {
  const page = await browser.newPage();
  page.setDefaultTimeout(PATIENCE.timeout);
  const wrong = [];
  page.on("pageerror", (error) => wrong.push(String(error)));
  page.on("console", (said) => said.type() === "error" && !said.text().includes("401") && wrong.push(said.text()));
  page.on("request", (asked) => !/^(data:|blob:)/.test(asked.url()) && !asked.url().startsWith(dashboard) && wrong.push(asked.url()));
  return { page, wrong };
}
const rows = (page, section) => page.$$eval(`#${section} tbody tr`, (found) => found.map((row) => row.textContent));
const until = (page, what, ...values) => page.waitForFunction(what, PATIENCE, ...values);
const shows = (page, id, text) => until(page, (place, wanted) => document.getElementById(place).textContent.includes(wanted), id, text);

async function type(page, selector, text) {
  await page.$eval(selector, (field) => (field.value = ""));
  await page.type(selector, text);
}
const submit = (page, section, heading) => page.evaluate((place, title) => {
  const forms = [...document.querySelectorAll(`#${place} form`)];
  forms.find((form) => form.querySelector("h3").textContent.startsWith(title)).requestSubmit();
}, section, heading);
async function confirmed(page) {
  await page.waitForSelector("#question[open]", PATIENCE);
  await page.click("#question-yes");
}
/** Presses the button with this label in a table. */
async function press(page, label) {
  const selector = `button[aria-label="${label}"]`;
  await page.waitForSelector(selector, PATIENCE);
  await page.$eval(selector, (button) => button.click());
}

async function withToken(page) {
  await page.goto(`${dashboard}/`);
  await page.waitForSelector("#token:not([hidden])", PATIENCE);
  await type(page, "#token-input", "not-the-token-of-the-file");
  await page.click("#token-form button");
  await shows(page, "alarm", "token is wrong");
  holds(await page.$eval("#parts", (parts) => parts.hidden), "without the right token nothing is shown");
  await type(page, "#token-input", token);
  await page.click("#token-form button");
  await page.waitForSelector("#parts:not([hidden])", PATIENCE);
}

async function everyPanelHasData(page) {
  for (const panel of PANELS) {
    await until(page, (section) => document.querySelector(`#${section} tbody tr`), panel);
  }
  await until(page, () => document.querySelectorAll("#plots canvas").length === 6);
  // A point of the charts is five seconds: a line has two.
  await until(page, () => hour.at_seconds.length > 1 && /now: .*requests [0-9]/.test(document.querySelector("#plots figcaption").textContent));
  const charts = await page.$$eval("#plots figcaption span", (legends) => legends.map((legend) => legend.textContent));
  holds(charts.length === 6 && charts.every((legend) => legend.startsWith("now: ")), `${PANELS.length} tables and 6 charts have data`, charts);
  const asked = await rows(page, "requests");
  holds(asked.some((row) => row.includes("<img")), "texts of requests stay text", asked);
  holds(!(await page.$("#requests img")), "no request becomes an element");
}

/** Faults look as docs/alerts.md says. */
async function showsFaults(page) {
  const has = (...wanted) => until(page, (tone, upstream, text) => [...document.querySelectorAll(`#servers tbody tr${tone}`)]
    .some((row) => row.textContent.includes(upstream) && new RegExp(text).test(row.textContent)), ...wanted);
  await has(".bad", "gone", "connection refused");
  holds(true, "a dead server is in red, with the reason");
  await has("", "dead", "last error .* ago: connection refused");
  holds(true, "a server that no check watches has its last error");
  await has("", "late", "[5-9]\\d\\d ms");
  holds(true, "a slow server has its percentiles");
  const matches = async (place, text) => {
    const found = await until(page, (selector, wanted) => document.querySelector(selector).textContent.match(wanted)?.[0], place, text);
    return found.jsonValue();
  };
  holds(true, `a full cache: ${await matches("#cache .note", "[^;]*in use; .*; full: [\\d.]+ evictions/s.*")}`);
  holds(true, `a full disk: ${await matches("#problems", "\\d+ lines of the access log are lost: [^:]*: No space left on device")}`);
  holds(true, `clients beyond their rate: ${await matches("#routes .note", "Failures of the last minute.*rate-limited \\d+")}`);
}

/** A flood of connections is told, as long as it lasts. */
async function showsFlood(page) {
  const told = "clients are refused: limits\\.connections allows 300 connections; [1-9]\\d* refused in the last minute";
  const sockets = crowd(400);
  const found = await until(page, (text) => document.getElementById("problems").textContent.match(text)?.[0], told);
  await page.screenshot({ path: join(pictures, "flood.png") });
  const clients = await rows(page, "clients");
  holds(clients.some((row) => row.includes("127.0.0.1")), `a flood: ${await found.jsonValue()}`, clients);
  sockets.forEach((socket) => socket.destroy());
  await until(page, () => !document.getElementById("problems").textContent.includes("clients are refused"));
  holds(true, "its end is seen as well");
}

async function looks(page) {
  for (const scheme of ["light", "dark"]) {
    for (const width of [1400, 400]) {
      await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }]);
      await page.setViewport({ width, height: 900 });
      await until(page, (wide) => innerWidth === wide && document.querySelectorAll("#plots canvas").length === 6, width);
      // A resize draws the charts anew, a moment later.
      await until(page, () => document.querySelector("#plots figure").clientWidth <= innerWidth
        && [...document.querySelectorAll("#plots .uplot")].every((plot) => plot.clientWidth <= plot.parentElement.clientWidth));
      await page.evaluate(axe);
      const found = await page.evaluate(() => axe.run());
      const bad = found.violations.filter((rule) => ["serious", "critical"].includes(rule.impact));
      const told = bad.map((rule) => `${rule.id}: ${rule.nodes.map((node) => node.target).join(" ")}`);
      const beyond = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
      await page.screenshot({ path: join(pictures, `${scheme}-${width}.png`), fullPage: true });
      holds(!bad.length && beyond <= 0, `${scheme}, ${width} px: ${found.passes.length} rules of axe-core, nothing serious`, { told, beyond });
    }
  }
}

async function changes(page) {
  const server = (await page.$$eval("#servers tbody td:first-child", (cells) => cells.map((cell) => cell.textContent)))[0];
  await press(page, `Drain ${server}`);
  await confirmed(page);
  await shows(page, "servers", "draining");
  await press(page, `Restore ${server}`);
  await until(page, () => !document.getElementById("servers").textContent.includes("draining"));
  holds(true, "a server is drained and restored");
  await type(page, "#faults input[name=inject]", "429");
  await type(page, "#faults input[name=path]", "/broken");
  await submit(page, "faults", "Inject");
  await confirmed(page);
  await until(page, () => document.querySelectorAll("#faults tbody tr").length === 3);
  const name = await page.$eval("#faults tbody tr:last-child td", (cell) => cell.textContent);
  await press(page, `Remove the fault ${name}`);
  await confirmed(page);
  await until(page, () => document.querySelectorAll("#faults tbody tr").length === 2);
  holds(true, "a fault is injected and removed");
  await page.select("#shaping select[name=place]", "route");
  await type(page, "#shaping input[name=name]", "app");
  await type(page, "#shaping input[name=delay]", "1ms");
  await submit(page, "shaping", "Shape");
  await shows(page, "shaping", "a command");
  await press(page, "Shape route app as in the file");
  await until(page, () => !document.getElementById("shaping").textContent.includes("a command"));
  holds(true, "a route is delayed, and then as in the file");
  await type(page, "#cache input[name=url]", `${proxy}/cached*`);
  await submit(page, "cache", "Purge");
  await shows(page, "toast", "is purged");
  holds(true, "a part of the cache is purged");
  await press(page, "Begin maintenance of app");
  await confirmed(page);
  await press(page, "End maintenance of app");
  await page.waitForSelector('button[aria-label="Begin maintenance of app"]', PATIENCE);
  holds(true, "maintenance begins and ends");
}

async function explains(page) {
  await type(page, "#route-form input[name=url]", `${proxy}/cached`);
  await submit(page, "explain", "Which route");
  await shows(page, "route-answer", "The route is cached");
  await type(page, "#cache-form input[name=url]", `${proxy}/cached`);
  await submit(page, "explain", "What does the cache");
  await shows(page, "cache-answer", "\"route\"");
  await page.click("#configuration-button");
  await shows(page, "configuration-text", "[[route]]");
  holds(true, "a route, the cache and the configuration are explained");
  const secret = await page.$eval("#configuration-text", (place) => place.textContent.includes("very-secret"));
  holds(!secret, "the configuration has no secrets");
}

/** Pages of other sites, in the same browser, at a dashboard where a token does not stop them. */
async function strangers() {
  const session = await (await fetch(`${unguarded}/api/session`)).json();
  holds(session.writable && session.key, "a dashboard without a token tells its key to programs of this machine");
  const other = createServer((_, answer) => answer.setHeader("Content-Type", "text/html").end("<body>other site"));
  await new Promise((resolve) => other.listen(0, "127.0.0.1", resolve));
  other.unref();
  const place = `http://127.0.0.1:${other.address().port}/`;
  const page = await browser.newPage();
  await page.goto(place);
  const read = (headers) => page.evaluate((address, fields) => fetch(address, { headers: fields })
    .then((answer) => answer.status, () => "refused"), `${unguarded}/api/session`, headers);
  holds(await read({}) === "refused" && await read({ "X-Vanward-Session": session.key }) === "refused", "another site cannot read the key");
  await page.evaluate((address) => fetch(address, { method: "POST", mode: "no-cors", body: "[[fault]]\ninject = \"503\"\n" })
    .catch(() => {}), `${unguarded}/api/faults`);
  const [sent] = await Promise.all([page.waitForNavigation(PATIENCE), page.evaluate((address) => {
    const form = Object.assign(document.createElement("form"), { method: "POST", action: address, enctype: "text/plain" });
    document.body.append(form);
    form.submit();
  }, `${unguarded}/api/faults`)]);
  const faults = await (await fetch(`${unguarded}/api/faults`)).json();
  holds(sent.status() === 403 && faults.length === 0, "requests of another site change nothing (CSRF)", { status: sent.status(), faults });
  const rebound = await page.goto(`http://attacker.test:${new URL(unguarded).port}/`);
  holds(rebound.status() === 421, "a foreign name for this address is refused (DNS rebinding)", rebound.status());
  await page.goto(place);
  await page.evaluate((address) => document.body.append(Object.assign(document.createElement("iframe"), { src: address })), unguarded);
  const frame = await page.waitForFrame((found) => found !== page.mainFrame(), PATIENCE);
  holds(!(await frame.$("#parts").catch(() => null)), "no other site can frame the page");
}

try {
  let number = 0;
  const another = () => get(`/varnish/gen/40?as=${(number += 1) % 100}`);
  const noise = [traffic(get, "/tiny", "/cached", "/gone", "/dead", "/limited"), traffic(another, ""), traffic(raw, "/slow/<img/src=x>"), traffic(get, "/slow"), traffic(get, "/delay/700ms")];
  const { page, wrong } = await open();
  await withToken(page);
  await everyPanelHasData(page);
  await showsFaults(page);
  await looks(page);
  await page.setViewport({ width: 1400, height: 900 });
  await changes(page);
  await explains(page);
  await showsFlood(page);
  await strangers();
  holds(!wrong.length, "no error in the page, and nothing asked of others", wrong);
  isOver = true;
  await Promise.all(noise);
} catch (error) {
  console.error(error.message);
  process.exitCode = 1;
} finally {
  isOver = true;
  await browser.close();
}
// Nothing that is still open keeps it from ending.
process.exit();
