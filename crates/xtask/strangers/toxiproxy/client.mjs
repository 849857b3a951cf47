// Uses toxiproxy-node-client as its README says, against whatever serves that API.
//
// Arguments: the folder that holds its node_modules, the URL of the API, the address of a web server.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import net from "node:net";

const [folder, api, server] = process.argv.slice(2);
const { Toxiproxy } = createRequire(`${folder}/`)("toxiproxy-node-client");

// Has a request answered through the proxy; what of the answer arrives before the end.
function ask(listen) {
  const [host, port] = listen.split(":");
  return new Promise((resolve, reject) => {
    const socket = net.connect({ host, port });
    let answer = "";
    socket.on("data", (data) => (answer += data));
    socket.on("error", reject);
    socket.on("close", () => resolve(answer));
    socket.write("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  });
}

const toxiproxy = new Toxiproxy(api);
assert.match(JSON.parse(await toxiproxy.getVersion()).version, /^\d+\.\d+\.\d+$/);
const proxy = await toxiproxy.createProxy({ name: "node", listen: "127.0.0.1:0", upstream: server });
assert.match(proxy.listen, /^127\.0\.0\.1:[1-9]\d*$/);
assert.equal(proxy.enabled, true);
assert.match(await ask(proxy.listen), /^HTTP\/1.1 200/);

const latency = await proxy.addToxic({
  name: "late", type: "latency", stream: "downstream", toxicity: 1, attributes: { latency: 200, jitter: 0 },
});
let began = performance.now();
assert.match(await ask(proxy.listen), /^HTTP\/1.1 200/);
assert.ok(performance.now() - began >= 199, "latency is felt");
const updated = await latency.update({ attributes: { latency: 300, jitter: 0 } });
assert.deepEqual(updated.attributes, { latency: 300, jitter: 0 });
assert.deepEqual((await proxy.getToxic("late")).toJson(), updated.toJson());
began = performance.now();
assert.match(await ask(proxy.listen), /^HTTP\/1.1 200/);
assert.ok(performance.now() - began >= 299, "more of it is felt");
await latency.remove();
await assert.rejects(proxy.getToxic("late"), /404/);

await proxy.addToxic({ type: "limit_data", stream: "downstream", toxicity: 1, attributes: { bytes: 3 } });
assert.equal(await ask(proxy.listen), "HTT");
await assert.rejects(proxy.addToxic({ type: "noise", attributes: {} }), /400/);
await assert.rejects(toxiproxy.createProxy(proxy.toJson()), /409/);
await toxiproxy.reset();
assert.match(await ask(proxy.listen), /^HTTP\/1.1 200/);

const disabled = await proxy.update({ ...proxy.toJson(), enabled: false });
assert.equal(disabled.enabled, false);
await assert.rejects(ask(proxy.listen), /ECONNREFUSED/);
await toxiproxy.reset();
const all = await toxiproxy.populate([
  proxy.toJson(),
  { name: "node-2", listen: "127.0.0.1:0", upstream: server, enabled: true },
]);
assert.deepEqual(Object.keys(all).sort(), ["node", "node-2"]);
assert.equal(all.node.listen, proxy.listen);
for (const one of Object.values(all)) {
  await one.remove();
  await assert.rejects(toxiproxy.get(one.name), /404/);
}
