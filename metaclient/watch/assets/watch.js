// Draws the document that /events sends. Every text from the cluster is set as text, never as markup.
"use strict";

const byId = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";
const COLORS = ["--c0", "--c1", "--c2", "--c3", "--c4"];
const LEVELS = {
  up: "good", slow: "warning", hung: "bad", dead: "bad", "cut off": "bad", stopping: "warning", unknown: "",
  healthy: "good", open: "good", opening: "warning", doubted: "warning", ejected: "warning", silent: "bad", unplaced: "bad", failed: "bad",
  ENABLED: "good", DISABLED: "warning",
};
const BAD = new Set(["hung", "dead", "cut off"]);
let sentAt = 0;

function el(name, options = {}, ...children) {
  const made = document.createElement(name);
  if (options.class) made.className = options.class;
  if (options.title) made.title = options.title;
  if (options.text !== undefined) made.textContent = options.text;
  made.append(...children.filter((child) => child !== null));
  return made;
}

function svg(name, attributes) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

// -- texts --------------------------------------------------------------------------------------------------------

const isKnown = (value) => value !== null && value !== undefined;
const unknown = () => el("span", { class: "unknown", text: "unknown" });

function number(value, digits = 0) {
  return value.toLocaleString("en-US", { maximumFractionDigits: digits, minimumFractionDigits: 0 });
}
function rate(value) {
  return isKnown(value) ? number(value, value < 10 ? 1 : 0) : null;
}
function milliseconds(value) {
  if (!isKnown(value)) return null;
  if (value >= 1000) return `${number(value / 1000, 1)} s`;
  return `${number(value, value < 10 ? 1 : 0)} ms`;
}
function seconds(value) {
  return isKnown(value) ? milliseconds(value * 1000) : null;
}
function bytes(value) {
  if (!isKnown(value)) return null;
  const units = ["B", "KB", "MB", "GB", "TB"];
  let size = value, unit = 0;
  while (size >= 1000 && unit < units.length - 1) { size /= 1024; unit += 1; }
  return `${number(size, size < 10 && unit ? 1 : 0)} ${units[unit]}`;
}
function percent(value) {
  return isKnown(value) ? `${number(value * 100, 0)} %` : null;
}
function clock(time) {
  return new Date(time).toTimeString().slice(0, 8);
}

// -- parts --------------------------------------------------------------------------------------------------------

function cell(value, kind = "") {
  const made = el("td", { class: kind });
  if (!isKnown(value)) made.append(unknown());
  else made.append(value);
  return made;
}
const num = (value) => cell(value, "num");

function pill(state) {
  return el("span", { class: `pill ${LEVELS[state] ?? ""}`, text: state });
}

function color(replica) {
  return `var(${COLORS[replica % COLORS.length]})`;
}

function replicaTag(replica) {
  const tag = el("span", { class: "tag", text: replica === 0 ? "meta 0 · primary" : `meta ${replica}` });
  tag.style.background = color(replica);
  return tag;
}

function shareBar(share, replica) {
  if (!isKnown(share)) return null;
  const fill = el("div", { class: "fill" });
  fill.style.width = `${Math.round(share * 100)}%`;
  fill.style.background = color(replica);
  return el("div", { class: "share" }, el("div", { class: "track" }, fill), el("span", { text: percent(share) }));
}

function table(target, columns, rows, empty) {
  const made = byId(target);
  const old = document.activeElement;
  const focused = old && made.contains(old) ? old.dataset.key : null;
  if (rows === null || rows.length === 0) {
    made.replaceChildren(el("tbody", {}, el("tr", {}, el("td", { class: "empty", text: rows === null ? "unknown" : empty }))));
    return;
  }
  const head = el("tr", {});
  for (const [title, kind] of columns) head.append(el("th", { class: kind ?? "", text: title }));
  const body = el("tbody", {});
  for (const cells of rows) body.append(el("tr", {}, ...cells));
  made.replaceChildren(el("thead", {}, head), body);
  if (focused) made.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
}

function points(values, width, height, top) {
  const found = [];
  values.forEach((value, index) => {
    if (isKnown(value)) {
      const x = values.length > 1 ? (index / (values.length - 1)) * width : width;
      found.push([x, height - (Math.min(value, top) / top) * (height - 2) - 1]);
    }
  });
  return found;
}

function lines(series, { width, height, kind, isFilled = false }) {
  const top = Math.max(1, ...series.flatMap((one) => one.values.filter(isKnown)));
  const made = svg("svg", { class: kind, viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img" });
  made.append(svg("line", { class: "axis", x1: 0, x2: width, y1: height - 0.5, y2: height - 0.5 }));
  for (const one of series) {
    const at = points(one.values, width, height, top);
    if (at.length < 2) continue;
    const text = at.map(([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`).join(" ");
    if (isFilled) {
      const area = svg("polygon", { points: `${at[0][0].toFixed(1)},${height} ${text} ${at.at(-1)[0].toFixed(1)},${height}` });
      area.style.fill = one.color;
      made.append(area);
    }
    const line = svg("polyline", { points: text });
    line.style.stroke = one.color;
    made.append(line);
  }
  return [made, top];
}

function chart(series, times, unit) {
  const [drawn, top] = lines(series, { width: 600, height: 74, kind: "chart", isFilled: true });
  const span = times.length > 1 ? Math.round((times.at(-1) - times[0]) / 1000) : 0;
  const note = el("div", { class: "chart-note" },
    el("span", { text: span ? `${span >= 90 ? `${Math.round(span / 60)} min` : `${span} s`} ago` : "" }),
    el("span", { text: `top: ${number(top, top < 10 ? 1 : 0)} ${unit}` }));
  return [drawn, note];
}

function spark(values) {
  return lines([{ values, color: "var(--ours)" }], { width: 110, height: 22, kind: "spark", isFilled: true })[0];
}

// -- sections -----------------------------------------------------------------------------------------------------

function cards(view) {
  const sum = view.summary;
  const isDark = sum.servers_unknown > 0 && sum.servers_unknown === view.servers_total;
  const up = isDark ? null : `${sum.servers_up}`;
  const bad = sum.servers_bad ? `${sum.servers_bad} dead, hung or cut off` : sum.servers_unknown ? `${sum.servers_unknown} unknown` : "all answer";
  const made = [
    ["Region servers up", up, `/ ${view.servers_total}`, bad, sum.servers_bad ? "bad" : sum.servers_unknown ? "" : "good"],
    ["Meta replicas healthy", `${sum.meta_healthy}`, `/ ${view.meta.length}`, isKnown(sum.meta_lag_s) ? `largest lag ${seconds(sum.meta_lag_s)}` : "lag unknown", sum.meta_healthy < view.meta.length ? "bad" : "good"],
    ["Reads of hbase:meta", rate(sum.meta_reads_per_s), "per s", isKnown(sum.primary_share) ? `primary ${percent(sum.primary_share)}` : "by all clients", ""],
    ["Lookups of this client", rate(sum.lookups_per_s), "per s", view.clients[0]?.title ?? "no load", ""],
    ["Hedges", isKnown(sum.hedges) ? number(sum.hedges) : null, "", isKnown(sum.hedges_won) ? `${number(sum.hedges_won)} won` : "", ""],
    ["Retries", isKnown(sum.retries) ? number(sum.retries) : null, "", "attempts after the first", ""],
  ];
  byId("cards").replaceChildren(...made.map(([label, value, unit, sub, level]) => {
    const big = el("b", {});
    if (isKnown(value)) big.append(value, el("small", { text: unit }));
    else big.append(unknown());
    return el("div", { class: `card ${level}` }, el("div", { class: "label", text: label }), big, el("div", { class: "sub", text: sub }));
  }));
}

function figure(name, value, isBad = false) {
  return [el("dt", { text: name }), el("dd", { class: isBad ? "bad" : "" }, isKnown(value) ? value : unknown())];
}

function lane(client, view) {
  const isJava = client.name === "java";
  const isStuck = client.longest_wait_s > 1.5;
  const rateText = el("span", { class: "lane-rate", text: rate(client.lookups_per_s) ?? "–" });
  rateText.append(el("small", { text: " lookups per s" }));
  const pairs = [
    figure("median", milliseconds(client.median_ms) ?? "–"),
    figure("slowest", milliseconds(client.slowest_ms) ?? "–", (client.slowest_ms ?? 0) > 1500),
    figure("waiting", `${client.waiting}${isStuck ? `, for ${seconds(client.longest_wait_s)}` : ""}`, isStuck),
    figure("failed", number(client.failed), client.failed > 0),
    figure("retries", number(client.retries)),
    figure("fallbacks", number(client.fallbacks)),
    figure("hedges/won", `${number(client.hedges + client.meta_hedges)} / ${number(client.hedges_won)}`),
    figure("ejections", number(client.ejections)),
  ];
  const list = el("dl", {}, ...pairs.map((pair) => el("div", {}, ...pair)));
  const shares = el("div", { class: "legend" });
  for (const [replica, share] of Object.entries(client.shares)) {
    const dot = el("i", {});
    dot.style.background = color(Number(replica));
    shares.append(el("span", {}, dot, `meta ${replica}: ${percent(share)}`));
  }
  const drawn = chart([{ values: view.charts.clients[client.name] ?? [], color: isJava ? "var(--java)" : "var(--ours)" }], view.charts.time_ms, "lookups per s");
  return el("div", { class: `lane${isJava ? " java" : ""}${isStuck ? " stuck" : ""}` },
    el("div", { class: "lane-top" }, el("span", { class: "lane-name", text: client.title }), rateText), ...drawn, list, shares);
}

function race(view) {
  const hint = byId("race-hint");
  if (!view.clients.length) {
    hint.textContent = view.is_fake
      ? "Start the load to see two clients look up rows side by side: ours, and the way of HBase's Java client. Then pause a server that has a meta replica."
      : "This program makes no lookups of its own: start it with --lookups-per-second.";
  } else if (view.clients.length > 1) {
    hint.textContent = view.is_fake
      ? "Both clients look up rows at the same rate. Pause a server that has a meta replica: ours continues with the other replicas, the Java client's way waits for the replica that hangs."
      : "Both clients look up rows at the same rate, on the same cluster.";
  } else {
    hint.textContent = "Lookups of this program, which measure the replicas of hbase:meta. Other clients are in the reads of each replica.";
  }
  byId("race").replaceChildren(el("div", { class: "race" }, ...view.clients.map((client) => lane(client, view))));
  const controls = byId("load-controls");
  const wanted = view.is_fake ? (view.is_load_running ? "stop load" : "start load") : "";
  if (controls.dataset.shown !== wanted) {
    controls.dataset.shown = wanted;
    controls.replaceChildren(...(wanted ? [action(wanted, null, wanted === "start load" ? "primary" : "")] : []));
  }
}

function meta(view) {
  table("meta", [["replica"], ["server"], ["state"], ["share of reads"], ["reads/s", "num"], ["lag", "num"], ["latency", "num"], ["errors", "num"], ["ejections", "num"]],
    view.meta.map((one) => {
      const state = el("div", {}, pill(one.state));
      const why = isKnown(one.ejected_for_s) && one.state === "ejected" ? `for ${seconds(one.ejected_for_s)} more` : one.detail;
      if (why) state.append(el("span", { class: "why", text: why.slice(0, 120), title: why }));
      return [cell(replicaTag(one.replica_id)), cell(one.server, "name"), cell(state), cell(shareBar(one.share, one.replica_id)),
        num(rate(one.reads_per_s)), num(seconds(one.lag_s)), num(milliseconds(one.answer_ms)),
        num(isKnown(one.errors) ? number(one.errors) : null), num(isKnown(one.ejections) ? number(one.ejections) : null)];
    }), "no replicas");
  const series = view.meta.map((one) => ({ values: view.charts.meta[String(one.replica_id)] ?? [], color: color(one.replica_id) }));
  const legend = el("div", { class: "legend" }, ...view.meta.map((one) => {
    const dot = el("i", {});
    dot.style.background = color(one.replica_id);
    return el("span", {}, dot, `reads of meta ${one.replica_id}`);
  }));
  byId("meta-chart").replaceChildren(...chart(series, view.charts.time_ms, "reads per s"), legend);
}

function servers(view) {
  const columns = [["server"], ["state"], ["meta"], ["regions", "num"], ["reads/s", "num"], ["writes/s", "num"], ["requests"], ["queued", "num"], ["answer", "num"]];
  columns.push(view.is_fake ? ["break it"] : ["heap", "num"]);
  table("servers", columns, view.servers.map((one) => {
    const state = el("div", {}, pill(one.liveness));
    if (one.detail) state.append(el("span", { class: "why", text: one.detail.slice(0, 120), title: one.detail }));
    const heap = isKnown(one.heap_used_bytes) ? `${bytes(one.heap_used_bytes)} / ${bytes(one.heap_max_bytes)}` : null;
    const cells = [cell(one.name, "name"), cell(state), cell(el("span", {}, ...one.meta.map(replicaTag))),
      num(isKnown(one.regions) ? number(one.regions) : null), num(rate(one.reads_per_s)), num(rate(one.writes_per_s)),
      cell(spark(one.chart)), num(isKnown(one.queued_calls) ? number(one.queued_calls) : null), num(milliseconds(one.answer_ms))];
    if (view.is_fake) {
      cells.push(cell(el("div", { class: "buttons" }, ...["kill", "pause", "slow", "partition"].map((name) => action(name, one.name, "danger")), action("heal", one.name, "repair"))));
    } else {
      cells.push(num(heap));
    }
    return cells;
  }), "no servers");
  const controls = byId("cluster-controls");
  if (view.is_fake && !controls.children.length) controls.replaceChildren(action("heal", null, "repair", "heal all"));
}

function startKey(text) {
  return text === "" || text.startsWith(" (") ? `(first)${text}` : text;
}

function regions(view) {
  table("regions", [["table"], ["start key"], ["server"], ["requests/s", "num"], ["requests", "num"]],
    view.regions?.map((one) => [cell(one.table, "name"), cell(startKey(one.start_key), "key"), cell(one.server), num(rate(one.requests_per_s)), num(number(one.requests))]) ?? null,
    "no region of a user's table was called");
  table("replicas", [["table"], ["start key"], ["replica", "num"], ["server"], ["state"], ["lag", "num"], ["queue", "num"]],
    view.region_replicas?.map((one) => [cell(one.table, "name"), cell(startKey(one.start_key), "key"), num(String(one.replica_id)), cell(one.server), cell(pill(one.state)), num(seconds(one.lag_s)),
      num(isKnown(one.queue_edits) ? `${number(one.queue_edits)} edits` : null)]) ?? null,
    "no table has region replicas");
}

function peers(view) {
  table("peers", [["peer"], ["kind"], ["state"], ["to"], ["workers"], ["logs kept", "num"], ["waiting", "num"], ["lag", "num"], ["shipped", "num"], ["error"]],
    view.peers?.map((one) => {
      const isSubscription = isKnown(one.subscription);
      const workers = isSubscription ? (isKnown(one.workers) ? one.workers.join(", ") || "none" : null) : "–";
      const queue = isKnown(one.queue_edits) ? `${number(one.queue_edits)} edits, ${bytes(one.queue_bytes)}` : null;
      return [cell(isSubscription ? one.subscription : one.peer_id, "name"), cell(isSubscription ? "subscription" : "cluster"), cell(pill(one.state)), cell(one.target, "key"), cell(workers),
        num(isKnown(one.logs) ? number(one.logs) : null), num(queue), num(milliseconds(one.lag_ms)), num(isKnown(one.shipped) ? number(one.shipped) : null), cell(one.error || "–")];
    }) ?? null, "no replication peers");
}

function events(view) {
  byId("events").replaceChildren(...view.events.map((one) => el("li", {},
    el("time", { text: clock(one.time_ms) }), el("span", { class: `dot ${one.level}` }), el("span", { class: "text", text: one.text }))));
}

function banner(view) {
  const parts = view.servers.filter((one) => BAD.has(one.liveness)).map((one) => {
    const tags = one.meta.length ? ` (meta replica ${one.meta.join(", ")})` : "";
    return `${one.name} is ${one.liveness}${tags}`;
  });
  for (const one of view.meta) if (one.state === "unplaced") parts.push(`meta replica ${one.replica_id} has no server`);
  byId("banner").hidden = parts.length === 0;
  byId("banner").textContent = parts.join(" · ");
  document.title = parts.length ? `(${parts.length}!) metaclient watch` : "metaclient watch";
}

function notes(view) {
  const target = byId("notes");
  target.hidden = view.notes.length === 0;
  target.replaceChildren(...view.notes.map((note) => el("p", { text: `unknown figures: ${note}` })));
}

function show(view) {
  if (!view.ready) return;
  const where = [view.is_fake ? "fake cluster" : `HBase ${view.version ?? "(version unknown)"} through ${view.backend}`, view.url, ...Object.entries(view.addresses).filter(([name]) => name !== "status").map(([name, url]) => `${name} ${url}`)];
  byId("where").textContent = where.filter(Boolean).join(" · ");
  for (const draw of [banner, cards, race, meta, events, servers, regions, peers, notes]) draw(view);
  if (view.is_fake && !byId("more-links").children.length) {
    for (const name of ["status", "status.json"]) {
      const link = el("a", { text: name });
      link.href = `/${name}`;
      byId("more-links").append(" · ", link);
    }
  }
  document.body.dataset.time = view.time_ms;
}

// -- buttons ------------------------------------------------------------------------------------------------------

function action(name, server, kind = "", label = name) {
  const button = el("button", { class: kind, text: label, title: server ? `${name} ${server}` : label });
  button.type = "button";
  button.dataset.key = `${name} ${server ?? ""}`;
  button.dataset.action = name;
  button.dataset.server = server ?? "";
  return button;
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest("button[data-action]");
  if (!button) return;
  button.disabled = true;
  try {
    const answer = await fetch("/action", {
      method: "POST",
      headers: { "Content-Type": "application/json", "X-Metaclient-Watch": "1" },
      body: JSON.stringify({ action: button.dataset.action, server: button.dataset.server || null }),
    });
    if (!answer.ok) alert(await answer.text());
  } catch (error) {
    alert(`the server of this page does not answer: ${error}`);
  } finally {
    button.disabled = false;
  }
});

// -- theme and connection -----------------------------------------------------------------------------------------

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
}
const asked = new URLSearchParams(location.search).get("theme");
let theme = asked ?? localStorage.getItem("theme") ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
setTheme(theme === "dark" ? "dark" : "light");
byId("theme").addEventListener("click", () => {
  theme = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  localStorage.setItem("theme", theme);
  setTheme(theme);
});

function link(text, level) {
  byId("link").textContent = text;
  byId("link").className = `pill ${level}`;
}
const source = new EventSource("/events");
// A button that is replaced while it is pressed gets no click: drawing waits until the button is released.
let isPressed = false, waiting = null;
document.addEventListener("pointerdown", () => { isPressed = true; });
for (const name of ["pointerup", "pointercancel", "blur"]) {
  window.addEventListener(name, () => {
    isPressed = false;
    setTimeout(() => {
      if (waiting !== null && !isPressed) show(waiting);
      waiting = null;
    });
  });
}
source.onmessage = (message) => {
  sentAt = Date.now();
  link("live", "good");
  const view = JSON.parse(message.data);
  if (isPressed) waiting = view;
  else show(view);
};
source.onerror = () => link("connection lost, retrying", "bad");
setInterval(() => {
  if (sentAt && Date.now() - sentAt > 5000) link(`no figures for ${Math.round((Date.now() - sentAt) / 1000)} s`, "bad");
}, 1000);
