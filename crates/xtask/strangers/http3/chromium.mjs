// Chromium comes to HTTP/3 by Alt-Svc, as it does by itself: chromium.mjs LIBRARIES CHROMIUM PORT CERTIFICATE
// It is told to accept the certificate. Prints a line for each thing that holds, and ends with 1 at the first that does not.

import { X509Certificate, createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";

const [libraries, chromium, port, certificate] = process.argv.slice(2);
const puppeteer = createRequire(join(libraries, "node_modules", "x"))("puppeteer-core");
const key = new X509Certificate(readFileSync(certificate)).publicKey.export({ type: "spki", format: "der" });
const pin = createHash("sha256").update(key).digest("base64");
const site = `https://localhost:${port}`;
const VISITS_MAX = 20;

function holds(is, what, found) {
  if (!is) throw new Error(`${what}: ${JSON.stringify(found)}`);
  console.log(what);
}

const browser = await puppeteer.launch({ headless: true, executablePath: chromium, args: [
  "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking", "--disable-component-update",
  "--disable-sync", "--no-first-run", "--host-resolver-rules=MAP localhost 127.0.0.1", `--ignore-certificate-errors-spki-list=${pin}`,
  // Over QUIC it accepts a certificate that is not of a public authority only from hosts that are named here, whichever port.
  "--origin-to-force-quic-on=localhost:1",
] });
const page = await browser.newPage();
const events = await page.createCDPSession();
await events.send("Network.enable");
/** Over which protocol each page came. */
const came = new Map();
events.on("Network.responseReceived", ({ response }) => came.set(response.url, response.protocol));

async function visit(path) {
  const answer = await page.goto(site + path);
  return [answer.status(), came.get(site + path)];
}

const first = await visit("/blank/1000");
holds(first[0] === 200 && first[1] === "h2", "the first visit is over HTTP/2", first);
let visits = 0, last = first;
while (last[1] !== "h3" && visits < VISITS_MAX) last = await visit(`/blank/${1000 + ++visits}`);
holds(last[0] === 200 && last[1] === "h3", "Alt-Svc leads to HTTP/3", { last, visits });

came.clear();
const sizes = await page.evaluate(async () => {
  const get = async (size) => (await (await fetch(`/blank/${size}`)).arrayBuffer()).byteLength;
  const many = await Promise.all(Array.from({ length: 150 }, (_, size) => get(size)));
  return { isRight: many.every((bytes, size) => bytes === size), long: await get(5_000_000) };
});
holds(sizes.isRight && sizes.long === 5_000_000, "150 requests at once, and a long download", sizes);
const isSame = await page.evaluate(async () => {
  const body = new Uint8Array(1_000_000).map((_, at) => at % 251);
  const answer = await fetch("/echo-body", { method: "POST", body });
  const back = new Uint8Array(await answer.arrayBuffer());
  return back.length === body.length && back.every((byte, at) => byte === body[at]);
});
holds(isSame, "an upload comes back");
const others = [...came].filter(([, protocol]) => protocol !== "h3");
holds(came.size >= 152 && others.length === 0, "all of that was over HTTP/3", { size: came.size, others });
await browser.close();
