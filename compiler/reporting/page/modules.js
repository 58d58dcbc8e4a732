"use strict";
// The model, folded by module: the members of one module as boxes, with what they read.

const BOX = { width: 190, height: 46, across: 26, down: 34 };
let opened = [];

tab("graph", "Graph", (panel) => {
  panel.append(element("h2", {}, "The model, folded by module"), element("p", { class: "soft" },
    "A blue box is a module: open it. Any other is a node: choose it, and see it at every level. " +
    "Dashed nodes have no kernel. The bar below a name is its share of the time, or of the bytes."));
  panel.append(element("div", { id: "modules" }));
  drawModule();
});

const isModule = (member) => Array.isArray(member);
const membersOf = (path) => path.reduce((members, k) => members[k][1], facts.tree);

/** All nodes inside a member. */
function nodesOf(member) {
  return isModule(member) ? member[1].flatMap(nodesOf) : [member];
}

function drawModule() {
  const panel = document.getElementById("modules");
  if (panel === null) return;
  const members = membersOf(opened);
  panel.replaceChildren(crumbs(), element("div", { class: "drawing" }, drawing(members)));
}

function crumbs() {
  const steps = [element("button", { type: "button", onclick: () => open([]) }, "the model")];
  opened.forEach((k, depth) => {
    const path = opened.slice(0, depth + 1);
    steps.push("›", element("button", { type: "button", onclick: () => open(path) },
      membersOf(opened.slice(0, depth))[k][0]));
  });
  return element("div", { class: "crumbs" }, steps);
}

function open(path) {
  opened = path;
  drawModule();
  document.querySelector("#modules .drawing [tabindex]")?.focus();
}

/** The time of a member, or its bytes without a profile: each kernel once. */
function weightOf(nodes) {
  const kernels = new Set(nodes.flatMap((n) => facts.nodes[n].kernels));
  return sum([...kernels].map((k) => facts.kernels[k].ms ?? facts.kernels[k].bytes));
}

function edgesBetween(groups) {
  const owner = new Map(groups.flatMap((nodes, k) => nodes.map((n) => [n, k])));
  const found = new Map();
  for (const [a, b] of facts.edges) {
    const [from, to] = [owner.get(a), owner.get(b)];
    if (from !== undefined && to !== undefined && from !== to) found.set(`${from} ${to}`, [from, to]);
  }
  return [...found.values()];
}

/** The layer of each member: one more than that of all that it reads. Edges that close a cycle of
    modules are drawn, and do not count. */
function layersOf(count, edges) {
  const readers = Array.from({ length: count }, () => []);
  edges.forEach(([a, b]) => readers[a].push(b));
  const layer = new Array(count).fill(0), state = new Array(count).fill(0), order = [];
  const visit = (start) => {
    const stack = [[start, 0]];
    state[start] = 1;
    while (stack.length) {
      const top = stack[stack.length - 1];
      const next = readers[top[0]][top[1]++];
      if (next === undefined) { state[top[0]] = 2; order.push(top[0]); stack.pop(); }
      else if (state[next] === 0) { state[next] = 1; stack.push([next, 0]); }
    }
  };
  for (let k = 0; k < count; k++) if (state[k] === 0) visit(k);
  const rank = new Array(count);
  order.reverse().forEach((k, at) => { rank[k] = at; });
  for (const k of order) {
    for (const reader of readers[k]) {
      if (rank[reader] > rank[k]) layer[reader] = Math.max(layer[reader], layer[k] + 1);
    }
  }
  return layer;
}

function placesOf(count, edges) {
  const layer = layersOf(count, edges), rows = [], x = new Array(count);
  layer.forEach((row, k) => (rows[row] ??= []).push(k));
  for (const row of rows) {
    const wish = (k) => {
      const from = edges.filter(([a, b]) => b === k && x[a] !== undefined).map(([a]) => x[a]);
      return from.length ? sum(from) / from.length : k * 1e-3;
    };
    const wishes = new Map(row.map((k) => [k, wish(k)]));
    row.sort((a, b) => wishes.get(a) - wishes.get(b));
    row.forEach((k, at) => { x[k] = at - (row.length - 1) / 2; });
  }
  const widest = Math.max(1, ...rows.map((row) => row.length));
  return { rows: rows.length, widest, at: (k) => ({
    x: (x[k] + (widest - 1) / 2) * (BOX.width + BOX.across) + BOX.across,
    y: layer[k] * (BOX.height + BOX.down) + BOX.down / 2 }) };
}

function shape(tag, about, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(about)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

function drawing(members) {
  const groups = members.map(nodesOf), edges = edgesBetween(groups);
  const places = placesOf(members.length, edges), weights = groups.map(weightOf);
  const most = Math.max(...weights, 1e-30);
  const picture = shape("svg", { width: places.widest * (BOX.width + BOX.across) + BOX.across,
    height: Math.max(1, places.rows) * (BOX.height + BOX.down), role: "group",
    "aria-label": "members of the module" });
  for (const [a, b] of edges) {
    const [from, to] = [places.at(a), places.at(b)], half = BOX.width / 2;
    const [y1, y2] = [from.y + BOX.height, to.y], bend = Math.max(BOX.down / 2, Math.abs(y2 - y1) / 3);
    picture.append(shape("path", { d: `M${from.x + half} ${y1} C${from.x + half} ${y1 + bend} ` +
      `${to.x + half} ${y2 - bend} ${to.x + half} ${y2}` }));
  }
  members.forEach((member, k) => picture.append(box(member, k, groups[k], places.at(k), weights[k] / most)));
  return picture;
}

const cut = (text, length) => (text.length > length ? `${text.slice(0, length - 1)}…` : text);

function box(member, k, nodes, place, share) {
  const node = isModule(member) ? null : facts.nodes[member];
  const name = node === null ? member[0] : node.name.split("/").pop() || node.name;
  const what = node === null ? `${nodes.length} nodes` : node.op;
  const act = () => (node === null ? open([...opened, k]) : (location.hash = addressOf({ node: node.name })));
  const kind = node === null ? "module" : node.kernels.length ? "node" : "node gone";
  const made = shape("g", { class: kind, tabindex: "0", role: "button",
    "aria-label": `${name}, ${what}`, transform: `translate(${place.x} ${place.y})` },
  shape("rect", { width: BOX.width, height: BOX.height, rx: 4 }),
  shape("rect", { class: "share", y: BOX.height - 4, width: Math.max(0, BOX.width * share), height: 4 }),
  shape("text", { x: 8, y: 18 }, cut(name, 26)),
  shape("text", { x: 8, y: 34, class: "soft" }, cut(what, 30)),
  shape("title", {}, node === null ? name : node.name));
  made.addEventListener("click", act);
  made.addEventListener("keydown", (event) => {
    if (event.key === "Enter" || event.key === " ") { event.preventDefault(); act(); }
  });
  return made;
}
