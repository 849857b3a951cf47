"use strict";
// The page asks for JSON once a second, and shows it. Texts of the proxy are only ever put into text nodes.

const $ = (id) => document.getElementById(id);
let session = null;
let token = sessionStorage.getItem("vanward-token");

/** An element with properties and children. */
function h(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

// --- Asking the proxy

class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

async function ask(method, place, body, type = "application/json") {
  const headers = {};
  if (token) headers.Authorization = `Bearer ${token}`;
  if (method !== "GET") headers["X-Vanward-Session"] = session.key;
  if (body !== undefined) headers["Content-Type"] = type;
  const text = body === undefined || typeof body === "string" ? body : JSON.stringify(body);
  const answer = await fetch(`/api${place}`, { method, headers, body: text, cache: "no-store" });
  const said = await answer.text();
  if (answer.ok) return answer.headers.get("Content-Type") === "application/json" ? JSON.parse(said) : said;
  let why = said;
  try {
    const refused = JSON.parse(said);
    why = [refused.error, ...(refused.mistakes || []).map((mistake) => mistake.text)].join("\n");
  } catch { /* It is no JSON. */ }
  throw new Refused(answer.status, why);
}

let toastTimer;
function toast(text) {
  let place = $("toast");
  if (!place) document.body.append((place = h("div", { id: "toast", role: "status" })));
  place.textContent = text;
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => place.remove(), 8000);
}

function confirmed(text) {
  $("question-text").textContent = text;
  $("question").showModal();
  $("question-no").focus();
  return new Promise((resolve) => {
    const close = (answer) => () => {
      $("question").close();
      resolve(answer);
    };
    $("question-yes").onclick = close(true);
    $("question-no").onclick = close(false);
    $("question").oncancel = () => resolve(false);
  });
}

/** Changes the proxy, after a question if there is one. */
async function change(method, place, body, question, done, type) {
  if (question && !(await confirmed(question))) return false;
  try {
    await ask(method, place, body, type);
    toast(done);
    refresh();
    return true;
  } catch (error) {
    toast(`Nothing was changed: ${error.message}`);
    return false;
  }
}

// --- Numbers for people

const digits = (value) => (value < 9.995 ? value.toFixed(2) : value < 99.95 ? value.toFixed(1) : value.toFixed(0));
const rate = (value) => (value ? digits(value) : "0");
const ms = (value) => (value == null ? "-" : value >= 999.5 ? `${digits(value / 1e3)} s` : `${digits(value)} ms`);
function bytes(value) {
  let unit = "B";
  for (const larger of ["kB", "MB", "GB", "TB"]) {
    if (value < 999.5) break;
    [value, unit] = [value / 1e3, larger];
  }
  return unit === "B" ? `${value.toFixed(0)} B` : `${digits(value)} ${unit}`;
}
const percent = (share) => `${rate(share * 100)}%`;
function time(seconds) {
  const [m, hours, days] = [Math.floor(seconds / 60), Math.floor(seconds / 3600), Math.floor(seconds / 86400)];
  if (days) return `${days} d ${hours % 24} h`;
  if (hours) return `${hours} h ${m % 60} min`;
  return m ? `${m} min ${Math.floor(seconds % 60)} s` : `${Math.floor(seconds)} s`;
}
const sum = (counts) => Object.values(counts).reduce((all, count) => all + count, 0);

// --- Tables: rows keep their elements, so that focus and scrolling stay

class Sheet {
  /** Columns: [heading, value of a row, text of the value or undefined, kind]. */
  constructor(section, label, columns, options = {}) {
    Object.assign(this, { columns, options, sort: null, rows: new Map(), last: [] });
    const sorter = (column, index) => h("button", { type: "button", onclick: () => this.sortBy(index) }, column[0]);
    this.headings = columns.map((column, index) =>
      h("th", { scope: "col", className: column[3] === "number" ? "number" : "" }, sorter(column, index)));
    const heading = h("tr", {}, ...this.headings);
    if (options.actions) heading.append(h("th", { scope: "col", className: "changes", hidden: true }, "Change"));
    this.changes = heading.querySelector(".changes");
    this.body = h("tbody");
    this.note = h("p", { className: "note" });
    const table = h("table", {}, h("thead", {}, heading), this.body);
    const wide = h("div", { className: "wide", tabIndex: 0 }, table);
    wide.setAttribute("role", "region");
    wide.setAttribute("aria-label", label);
    $(section).append(this.note, wide);
    this.wide = wide;
  }

  sortBy(index) {
    this.sort = this.sort === index ? null : index;
    this.headings.forEach((heading, at) => {
      if (at === this.sort) heading.setAttribute("aria-sort", this.columns[at][3] === "number" ? "descending" : "ascending");
      else heading.removeAttribute("aria-sort");
    });
    this.show(this.last, this.note.textContent);
  }

  show(list, note = "") {
    this.last = list;
    this.note.textContent = note;
    if (this.changes) this.changes.hidden = !session.writable;
    const filter = $("filter").value;
    let shown = this.options.unfiltered ? [...list] : list.filter((row) => String(this.options.key(row)).includes(filter));
    if (this.sort !== null) {
      const value = this.columns[this.sort][1];
      shown.sort((one, other) => {
        const [a, b] = [value(one), value(other)];
        return typeof a === "string" ? a.localeCompare(b) : (b ?? -1) - (a ?? -1);
      });
    }
    this.wide.hidden = shown.length === 0;
    const seen = new Set();
    shown.forEach((row, place) => {
      const key = this.options.key(row);
      seen.add(key);
      let element = this.rows.get(key);
      if (!element) this.rows.set(key, (element = this.make()));
      element.row = row;
      this.columns.forEach(([, value, text], at) => {
        const [cell, said] = [element.cells[at], text ? text(value(row)) : String(value(row) ?? "")];
        if (cell.textContent !== said) cell.textContent = said;
      });
      element.className = this.options.tone ? this.options.tone(row) : "";
      if (element.actions) this.settle(element);
      if (this.body.children[place] !== element) this.body.insertBefore(element, this.body.children[place] || null);
    });
    for (const [key, element] of this.rows) {
      if (!seen.has(key)) {
        element.remove();
        this.rows.delete(key);
      }
    }
  }

  make() {
    const classes = { number: "number", word: "word", long: "long" };
    const element = h("tr", {}, ...this.columns.map((column) => h("td", { className: classes[column[3]] || "" })));
    if (this.options.actions) {
      element.actions = h("td");
      element.append(element.actions);
    }
    return element;
  }

  settle(element) {
    element.actions.hidden = !session.writable;
    const wanted = this.options.actions(element.row);
    const names = wanted.map(([name]) => name).join();
    if (element.actions.dataset.names === names) return;
    element.actions.dataset.names = names;
    const button = ([name, , label]) => {
      const made = h("button", { type: "button" }, name);
      made.setAttribute("aria-label", label);
      made.onclick = () => this.options.actions(element.row).find(([other]) => other === name)?.[1]();
      return made;
    };
    element.actions.replaceChildren(h("div", { className: "actions" }, ...wanted.map(button)));
  }
}

const minute = (row) => row.traffic.last_minute;
const traffic = [
  ["Requests", (row) => row.traffic.requests, undefined, "number"],
  ["/s", (row) => minute(row).requests_per_second, rate, "number"],
];
function tone(traffic) {
  const { server_errors_per_second: errors, requests_per_second: all } = traffic.last_minute;
  return errors === 0 ? "" : errors * 100 > all ? "bad" : "warning";
}

let maintained = new Set();
const routes = new Sheet("routes", "Routes", [
  ["Route", (row) => row.route],
  ...traffic,
  ["4xx/s", (row) => minute(row).client_errors_per_second, rate, "number"],
  ["5xx/s", (row) => minute(row).server_errors_per_second, rate, "number"],
  ["p50", (row) => minute(row).p50_ms, ms, "number"],
  ["p90", (row) => minute(row).p90_ms, ms, "number"],
  ["p99", (row) => minute(row).p99_ms, ms, "number"],
  ["Maintenance", (row) => (maintained.has(row.route) ? "on" : "off")],
], {
  key: (row) => row.route,
  tone: (row) => (maintained.has(row.route) ? "warning" : tone(row.traffic)),
  actions: (row) => maintained.has(row.route)
    ? [["End maintenance", () => maintain("off", row.route), `End maintenance of ${row.route}`]]
    : [["Maintenance", () => maintain("on", row.route), `Begin maintenance of ${row.route}`]],
});
function maintain(how, route) {
  const question = how === "on" && `Answer every request to ${route} with 503 until you end the maintenance?`;
  return change("POST", `/maintenance/${how}`, { routes: [route] }, question, `Maintenance of ${route} is ${how}.`);
}

const words = { up: "up", draining: "draining", ejected: "ejected", down: "down", open: "open circuit" };
function order(word, server, more, question, done) {
  const body = { server: server.url, upstream: server.upstream, ...more };
  return change("POST", `/servers/${word}`, body, question, done);
}
async function weigh(server) {
  const text = prompt(`Weight of ${server.label}, 0 to 1000. With 0 it gets only requests of its sessions.`, server.weight);
  if (text === null) return;
  const weight = Number(text);
  if (text.trim() === "" || !Number.isInteger(weight) || weight < 0 || weight > 1000) {
    toast(`Nothing was changed: ${text} is not a weight from 0 to 1000.`);
    return;
  }
  await order("weigh", server, { weight }, null, `${server.label} has weight ${weight}.`);
}
/* Why a server gets no requests, and the last one that it failed. */
function why(server) {
  const state = server.reason ?? (server.priority ? `priority ${server.priority}` : "");
  const error = server.last_error;
  return [state, error ? `last error ${time(error.seconds_ago)} ago: ${error.reason}` : ""].filter(Boolean).join("; ");
}
const servers = new Sheet("servers", "Servers", [
  ["Server", (row) => row.label],
  ["Upstream", (row) => row.upstream],
  ["State", (row) => words[row.state], undefined, "word"],
  ["Weight", (row) => row.weight, undefined, "number"],
  ["Running", (row) => row.requests, undefined, "number"],
  ...traffic,
  ["Failed/s", (row) => minute(row).server_errors_per_second, rate, "number"],
  ["p50", (row) => minute(row).p50_ms, ms, "number"],
  ["p99", (row) => minute(row).p99_ms, ms, "number"],
  ["Why", why, undefined, "long"],
], {
  key: (row) => `${row.label} ${row.upstream}`,
  tone: (row) => (row.state === "up" ? tone(row.traffic) : row.state === "draining" ? "warning" : "bad"),
  actions: (row) => {
    const last = row.others_up ? "" : " No other server of this upstream gets requests!";
    const question = `Drain ${row.label} of upstream ${row.upstream}?${last}`;
    return [
      row.state === "draining"
        ? ["Restore", () => order("restore", row, {}, null, `${row.label} gets requests again.`), `Restore ${row.label}`]
        : ["Drain", () => order("drain", row, {}, question, `${row.label} is drained.`), `Drain ${row.label}`],
      ["Weigh", () => weigh(row), `Weigh ${row.label}`],
    ];
  },
});

const clients = new Sheet("clients", "Clients", [
  ["Client", (row) => row.address],
  ["Requests", (row) => row.requests, undefined, "number"],
  ["/s", (row) => row.rate, rate, "number"],
  ["Share", (row) => row.share, percent, "number"],
], { key: (row) => row.address });

const stages = { proxy: "proxy", server: "server", response: "client" };
const underWay = new Sheet("requests", "Requests under way", [
  ["Request", (row) => row.line, undefined, "long"],
  ["Since", (row) => row.seconds * 1e3, ms, "number"],
  ["Waits for", (row) => stages[row.stage]],
  ["Client", (row) => row.client],
  ["Route", (row) => row.route],
  ["Server", (row) => row.server ?? "-"],
], { key: (row) => row.key, unfiltered: true, tone: (row) => (row.seconds > 10 ? "warning" : "") });

const errors = new Sheet("errors", "Recent errors", [
  ["Time", (row) => row.at_seconds, (seconds) => new Date(seconds * 1e3).toLocaleTimeString(), "number"],
  ["Route", (row) => row.route ?? ""],
  ["Server", (row) => row.server ?? row.upstream ?? ""],
  ["Status", (row) => row.status || "-", undefined, "number"],
  ["Cause", (row) => row.cause],
  ["Requests", (row) => row.count, undefined, "number"],
  ["Details", (row) => row.detail ?? "", undefined, "long"],
], { key: (row) => `${row.route} ${row.server} ${row.cause} ${row.key}`, tone: () => "bad" });

const cached = new Sheet("cache", "Cache by route", [
  ["Route", (row) => row.route],
  ["Hit rate", (row) => row.share, percent, "number"],
  ["Hits", (row) => row.cache.hits, undefined, "number"],
  ["Stale", (row) => row.cache.stale, undefined, "number"],
  ["Waited", (row) => row.cache.waits, undefined, "number"],
  ["Misses", (row) => sum(row.cache.misses), undefined, "number"],
  ["Stored", (row) => row.cache.stored, undefined, "number"],
  ["Sent", (row) => row.cache.sent_bytes, bytes, "number"],
], { key: (row) => row.route });

const faults = new Sheet("faults", "Faults", [
  ["Fault", (row) => row.name],
  ["Injects", (row) => row.inject],
  ["Share", (row) => row.probability],
  ["Now", (row) => (row.is_on ? "on" : "off"), undefined, "word"],
  ["Matched", (row) => row.matched, undefined, "number"],
  ["Injected", (row) => row.injected, undefined, "number"],
  ["Ends in", (row) => row.expires_in_seconds, (value) => (value == null ? "-" : time(value)), "number"],
], {
  key: (row) => row.name,
  tone: (row) => (row.is_on ? "warning" : ""),
  actions: (row) => [["Remove", () => change("DELETE", `/faults/${encodeURIComponent(row.name)}`, undefined,
    `Remove the fault ${row.name}?`, `The fault ${row.name} is removed.`), `Remove the fault ${row.name}`]],
});

const shaped = new Sheet("shaping", "Rates and delays", [
  ["Place", (row) => row.place],
  ["Name", (row) => row.name],
  ["Rate", (row) => row.rate.join(", ") || "-"],
  ["Upload rate", (row) => row.upload_rate.join(", ") || "-"],
  ["Connect delay", (row) => row.connect_delay ?? "-"],
  ["Latency", (row) => row.latency ?? "-"],
  ["Loss", (row) => row.loss ?? "-"],
  ["Delay", (row) => row.delay ?? "-"],
  ["Response delay", (row) => row.response_delay ?? "-"],
  ["From", (row) => (row.is_changed ? "a command" : "the file"), undefined, "word"],
  ["Ends in", (row) => row.expires_in_seconds, (value) => (value == null ? "-" : time(value)), "number"],
], {
  key: (row) => `${row.place} ${row.name}`,
  tone: (row) => (row.is_changed ? "warning" : ""),
  actions: (row) => (row.is_changed
    ? [["As in the file", () => change("DELETE", `/shaping/${row.place}/${encodeURIComponent(row.name)}`, undefined, null,
      `${row.place} ${row.name} has the settings of the file again.`), `Shape ${row.place} ${row.name} as in the file`]]
    : []),
});

const certificates = new Sheet("certificates", "Certificates", [
  ["Names", (row) => row.names.join(", "), undefined, "long"],
  ["Listener", (row) => row.listener],
  ["Days left", (row) => row.days_left, undefined, "number"],
  ["Valid until", (row) => row.valid_until],
  ["Source", (row) => row.source],
  ["Issuer", (row) => row.issuer, undefined, "long"],
  ["Problems", (row) => [...row.problems, row.renewal?.last_failure].filter(Boolean).join("; "), undefined, "long"],
], {
  key: (row) => `${row.names.join()} ${row.listener} ${row.serial}`,
  tone: (row) => (row.days_left < 3 ? "bad" : row.days_left < 14 || row.problems.length ? "warning" : ""),
});

const listeners = new Sheet("listeners", "Listeners", [
  ["Listener", (row) => row.name],
  ["URL", (row) => row.url],
  ["Protocols", (row) => row.protocols.join(", ")],
], { key: (row) => row.name });

// --- Forms that change something: only where that is allowed

function field(label, name, properties = {}) {
  return h("label", {}, label, h("input", { name, ...properties }));
}
function form(section, heading, children, submit) {
  const made = h("form", { hidden: true, className: "change" }, h("h3", {}, heading), ...children);
  made.onsubmit = (event) => {
    event.preventDefault();
    submit(made.elements, made);
  };
  $(section).append(made);
}
const text = (element) => element.value.trim();

form("cache", "Purge", [
  field("URL, with * for any text", "url", { required: true, placeholder: "https://shop.example.com/*" }),
  h("button", {}, "Purge"),
  h("button", {
    type: "button", className: "danger",
    onclick: () => change("POST", "/cache/purge", { all: true },
      "Purge the whole cache? Every response is fetched again.", "The whole cache is purged."),
  }, "Purge everything"),
], (fields) => change("POST", "/cache/purge", { urls: [text(fields.url)] }, null, `${text(fields.url)} is purged.`));

form("faults", "Inject a fault", [
  field("Fault", "inject", { required: true, placeholder: "503, delay 2s, cut 10KB" }),
  field("Share of requests", "probability", { placeholder: "100%" }),
  field("Path", "path", { placeholder: "/" }),
  field("Ends after", "expires", { value: "5m", placeholder: "5m" }),
  h("button", { className: "danger" }, "Inject"),
  h("button", {
    type: "button", className: "danger",
    onclick: () => change("DELETE", "/faults", undefined, "Remove all faults, and all changes of rates and delays?",
      "All faults are removed."),
  }, "Remove all"),
], (fields) => {
  // A JSON string is one of TOML as well.
  const lines = ["inject", "probability", "path", "expires"].filter((name) => text(fields[name]))
    .map((name) => `${name} = ${JSON.stringify(text(fields[name]))}`);
  change("POST", "/faults", `[[fault]]\n${lines.join("\n")}\n`,
    `Inject ${text(fields.inject)} into ${text(fields.probability) || "all"} requests, on purpose?`,
    `${text(fields.inject)} is injected.`, "text/plain");
});

form("shaping", "Shape a place; the word none removes a limit", [
  h("label", {}, "Place", h("select", { name: "place" }, ...["listener", "route", "upstream"].map((word) => h("option", {}, word)))),
  field("Name", "name", { placeholder: "the only one" }),
  field("Rate", "rate", { placeholder: "1MB/s" }),
  field("Upload rate", "upload_rate", { placeholder: "1MB/s" }),
  field("Latency", "latency", { placeholder: "50ms" }),
  field("Delay of a route", "delay", { placeholder: "100ms" }),
  field("Ends after", "expires", { value: "5m" }),
  h("button", { className: "danger" }, "Shape"),
], (fields) => {
  const names = ["place", "name", "rate", "upload_rate", "latency", "delay", "expires"];
  const order = Object.fromEntries(names.filter((name) => text(fields[name])).map((name) => [name, text(fields[name])]));
  change("POST", "/shaping", order, null, `${order.place} ${order.name ?? ""} is shaped.`);
});

function asked(id, answerId, request) {
  $(id).onsubmit = async (event) => {
    event.preventDefault();
    const place = $(answerId);
    place.hidden = false;
    try {
      place.textContent = await request(event.target.elements);
    } catch (error) {
      place.textContent = error.message;
    }
  };
}
const fields = (element) => text(element).split("\n").filter((line) => line.trim()).map((line) => {
  const colon = line.indexOf(":");
  if (colon < 1) throw new Error(`${line}: write it as Name: value`);
  return [line.slice(0, colon).trim(), line.slice(colon + 1).trim()];
});
asked("route-form", "route-answer", async (form) => {
  const order = { method: text(form.method), url: text(form.url), headers: fields(form.headers) };
  for (const name of ["client", "listener"]) if (text(form[name])) order[name] = text(form[name]);
  return (await ask("POST", "/routes/explain", order)).text;
});
asked("cache-form", "cache-answer", async (form) => {
  const told = await ask("POST", "/cache/explain", { url: text(form.url), headers: fields(form.headers) });
  return JSON.stringify(told, null, 2);
});
$("configuration-button").onclick = async () => {
  const place = $("configuration-text");
  place.hidden = false;
  try {
    place.textContent = await ask("GET", "/configuration");
    $("configuration-button").textContent = "Show again";
  } catch (error) {
    place.textContent = error.message;
  }
};

// --- Charts: lines differ in colour and in their dashes

const LOOKS = [["--blue", [], ""], ["--orange", [8, 4], "dashed"], ["--red", [2, 3], "dotted"]];
const CHARTS = [
  ["Requests per second", rate, [["requests", "requests_per_second"]]],
  ["Errors per second", rate, [["4xx", "client_errors_per_second"], ["5xx or failed", "server_errors_per_second"]]],
  ["Duration", ms, [["p50", "p50_ms"], ["p90", "p90_ms"], ["p99", "p99_ms"]]],
  ["Bytes per second", bytes, [["received", "received_bytes_per_second"], ["sent", "sent_bytes_per_second"]]],
  ["Connections and requests under way", (value) => rate(value), [["connections", "connections"], ["requests", "requests"]]],
  ["Retries and faults per second", rate, [["retries", "retries_per_second"], ["faults", "faults_per_second"]]],
];
let plots = [];

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/** The places come first: the width of each depends on their number. */
function place([title, unit, lines]) {
  const legend = h("span");
  const figure = h("figure", {}, h("figcaption", {}, title, legend));
  $("plots").append(figure);
  return { legend, figure, unit, lines };
}

function plot({ legend, figure, unit, lines }) {
  const axis = { stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line"), width: 1 } };
  const series = lines.map(([label], at) => ({ label, stroke: colour(LOOKS[at][0]), dash: LOOKS[at][1], width: 2, points: { show: false } }));
  const tell = (at) => {
    if (!hour?.at_seconds.length) return;
    const place = at ?? hour.at_seconds.length - 1;
    const when = at == null ? "now" : new Date(hour.at_seconds[place] * 1e3).toLocaleTimeString();
    const parts = lines.flatMap(([label, key], index) => {
      const look = h("i", { className: LOOKS[index][2] });
      look.style.borderTopColor = colour(LOOKS[index][0]);
      const value = hour[key][place];
      return [look, `${label} ${value == null ? "-" : unit(value)}${index + 1 < lines.length ? ", " : ""}`];
    });
    legend.replaceChildren(`${when}: `, ...parts);
  };
  const made = new uPlot({
    width: Math.max(figure.clientWidth - 18, 100),
    height: 190,
    legend: { show: false },
    cursor: { drag: { x: false, y: false } },
    // A minute at least, or one point would have no scale.
    scales: { x: { range: (_, low, high) => [Math.min(low, high - 60), high] }, y: { range: (_, low, high) => [0, high > 0 ? high * 1.1 : 1] } },
    // Room for a time with seconds, or marks of a narrow chart run into each other.
    axes: [{ ...axis, space: 80, values: (_, times, __, ___, step) => times.map((time) => clock(time, step)) }, { ...axis, size: 70, values: (_, values) => values.map((value) => unit(value)) }],
    series: [{}, ...series],
    hooks: { setCursor: [(self) => tell(self.cursor.idx)] },
  }, [[], ...lines.map(() => [])], figure);
  return { made, figure, lines, tell };
}

/** A time of the day, with seconds where marks of an axis are less than a minute apart. */
function clock(seconds, step) {
  const second = step < 60 ? "2-digit" : undefined;
  return new Date(seconds * 1e3).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second, hour12: false });
}

let hour = null;
function draw() {
  if (!hour) return;
  if (!plots.length) plots = CHARTS.map(place).map(plot);
  for (const { made, lines, tell } of plots) {
    made.setData([hour.at_seconds, ...lines.map(([, key]) => hour[key])]);
    tell(made.cursor.idx);
  }
}
function redraw() {
  plots.forEach(({ made, figure }) => (made.destroy(), figure.remove()));
  plots = [];
  draw();
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
let resizing;
addEventListener("resize", () => {
  clearTimeout(resizing);
  resizing = setTimeout(redraw, 200);
});

// --- What is shown

function numbers(status, now) {
  const { last_minute: rates } = status.traffic;
  const share = (part) => percent(part / Math.max(rates.requests_per_second, Number.MIN_VALUE));
  const cards = [
    ["requests/s now", now === null ? "-" : rate(now)],
    ["requests/s, 1 min", rate(rates.requests_per_second)],
    ["4xx", share(rates.client_errors_per_second)],
    ["5xx or failed", share(rates.server_errors_per_second)],
    ["p50", ms(rates.p50_ms)], ["p99", ms(rates.p99_ms)],
    ["sent/s", bytes(status.last_minute.sent_bytes_per_second)],
    ["connections", status.connections], ["under way", status.requests],
  ];
  const place = $("numbers");
  if (!place.children.length) {
    place.append(...cards.map(([name]) => h("div", { className: "number-card" }, h("b"), h("span", {}, name))));
  }
  cards.forEach(([, value], at) => (place.children[at].firstChild.textContent = value));
}

/** How many responses have left the cache each second, of the last ten. */
let evictions = [];
function evicted(status, at) {
  if (!status.cache || evictions.some((one) => one.process !== status.process)) evictions = [];
  if (!status.cache) return 0;
  evictions = [...evictions.filter((one) => at - one.at < 1e4), { at, process: status.process, count: status.cache.evicted }];
  const [first, last] = [evictions[0], evictions.at(-1)];
  return last.at > first.at ? ((last.count - first.count) * 1e3) / (last.at - first.at) : 0;
}
/** What the cache holds, whether it is full, and whether more memory would help. */
function ofCache(store, evictedPerSecond) {
  const parts = [`${bytes(store.stored_bytes + store.filling_bytes)} of ${bytes(store.memory_bytes)} in use`,
    `${store.keys} ${store.keys === 1 ? "key" : "keys"}`, `${store.evicted} evicted`];
  if (evictedPerSecond > 0) parts.push(`full: ${rate(evictedPerSecond)} evictions/s`);
  if (store.hit_rates) parts.push(`${percent(store.hit_rates.same)} hits estimated, ${percent(store.hit_rates.double)} with twice the memory`);
  if (store.disk) parts.push(`disk: ${store.disk.state}`);
  return parts.join("; ");
}

let before = null;
function show(status, live) {
  const at = performance.now();
  const same = before && before.process === status.process && before.requests <= status.traffic.requests;
  numbers(status, same ? ((status.traffic.requests - before.requests) * 1e3) / (at - before.at) : null);
  // Another process has another key, and a reload may permit other things.
  if (before && (before.process !== status.process || before.reloads !== status.reloads)) session.isOld = true;
  before = { at, process: status.process, reloads: status.reloads, requests: status.traffic.requests };
  const plural = (count, noun) => `${count} ${noun}${count === 1 ? "" : "s"}`;
  $("state").textContent = `${status.version}, process ${status.process}, up ${time(status.uptime_seconds)}, ` +
    `${plural(status.workers, "worker")}, ${plural(status.reloads, "reload")}${session.writable ? "" : ", read-only"}`;
  $("problems").replaceChildren(...status.problems.map((problem) => h("li", {}, problem)));
  maintained = new Set(status.maintenance.filter((one) => one.is_on).map((one) => one.route));
  const failures = Object.entries(status.last_minute.failures).sort((one, other) => other[1] - one[1]);
  routes.show(status.routes, failures.length
    ? `Failures of the last minute: ${failures.map(([word, count]) => `${word} ${count}`).join(", ")}` : "");
  const each = status.upstreams.flatMap(({ name, servers }) => {
    const up = servers.filter((server) => server.state === "up").length;
    return servers.map((server) => ({ ...server, upstream: name, others_up: up - (server.state === "up" ? 1 : 0) }));
  });
  const queued = status.upstreams.filter(({ queued }) => queued);
  servers.show(each, queued.map(({ name, queued }) => `${name}: ${queued} wait for a server`).join("; "));
  const all = live.clients;
  const error = all.error ? `; counts may be ${all.error} too low, because there are many clients` : "";
  clients.show(all.clients.map((client) => ({
    ...client, rate: client.requests / Math.max(all.seconds, 1), share: client.requests / Math.max(all.requests, 1),
  })), `${all.requests} requests in the last ${all.seconds.toFixed(0)} s${error}`);
  underWay.show(live.requests.map((request, key) => ({ ...request, key })), live.requests.length ? "" : "No requests are running.");
  errors.show(live.errors.map((error, key) => ({ ...error, key })), live.errors.length ? "" : "No request has failed.");
  const store = status.cache;
  cached.show(status.routes.filter((route) => route.cache).map((route) => {
    const answered = route.cache.hits + route.cache.stale + route.cache.waits;
    return { ...route, share: answered / Math.max(answered + sum(route.cache.misses), 1) };
  }), store ? ofCache(store, evicted(status, at)) : "The configuration has no [cache].");
  faults.show(status.faults, status.faults.length ? "Injected on purpose." : "No faults are injected.");
  shaped.show(status.shaping, status.shaping.length ? "" : "Nothing is limited or delayed.");
  listeners.show(status.listeners);
  document.querySelectorAll("form.change").forEach((form) => (form.hidden = !session.writable));
}

// --- Once a second

let turn = 0;
let isAsking = false;
async function refresh() {
  if (isAsking || document.hidden) return;
  isAsking = true;
  try {
    if (!session || session.isOld) session = await ask("GET", "/session");
    const [status, live] = await Promise.all([ask("GET", "/status"), ask("GET", "/live")]);
    $("token").hidden = true;
    $("parts").hidden = false;
    show(status, live);
    if (turn % 5 === 0) {
      hour = await ask("GET", "/hour");
      draw();
    }
    if (turn % 60 === 0) {
      const all = await ask("GET", "/certificates");
      certificates.show(all, all.length ? "" : "No listener has a certificate.");
    }
    turn += 1;
    $("alarm").hidden = true;
    document.title = "Vanward";
  } catch (error) {
    failed(error);
  } finally {
    isAsking = false;
  }
}

function failed(error) {
  // Another process has other keys.
  session = null;
  turn = 0;
  if (error.status === 401) {
    if (token) $("alarm").textContent = "The token is wrong.";
    $("alarm").hidden = !token;
    token = null;
    sessionStorage.removeItem("vanward-token");
    $("token").hidden = false;
    $("parts").hidden = true;
    return;
  }
  $("alarm").textContent = error.status ? error.message : "The proxy does not respond. The page shows old data.";
  $("alarm").hidden = false;
  document.title = "No answer: Vanward";
}

$("token-form").onsubmit = (event) => {
  event.preventDefault();
  token = $("token-input").value.trim();
  $("token-input").value = "";
  sessionStorage.setItem("vanward-token", token);
  refresh();
};
$("filter").oninput = () => [routes, servers, clients, cached, faults, shaped, certificates, listeners]
  .forEach((sheet) => sheet.show(sheet.last, sheet.note.textContent));
document.addEventListener("visibilitychange", refresh);
setInterval(refresh, 1000);
refresh();
