"use strict";
// The detail of a node or a kernel: what became of it, and its lines at every level, side by side.

const CONTEXT = 2;
const FIRST = 120;
const unpackedListings = new Map();

/** The parts of a listing; unpacked when they are first needed. */
function partsOf(listing) {
  if (!unpackedListings.has(listing)) unpackedListings.set(listing, unpack(listing.text));
  return unpackedListings.get(listing);
}

async function unpack(text) {
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

/** The lines of a part; those of the level before if they are the same. */
async function linesOf(part, at) {
  if (!part.same) return part;
  const before = (await partsOf(facts.listings[at - 1])).find((other) => other.symbol === part.symbol);
  return linesOf(before, at - 1);
}

/** Which lines of a part belong to a selection: {whole, lines}. */
function matched(part, wanted, code) {
  if (wanted.kernels.has(part.symbol)) {
    const lines = part.nodes.flatMap((nodes, k) => (nodes.some((n) => wanted.own.has(n)) ? [k] : []));
    return { whole: true, lines };
  }
  if (code) return { whole: false, lines: [] };
  return { whole: false, lines: part.lines.flatMap((line, k) =>
    (wanted.mentions(line) || part.nodes[k].some((n) => wanted.nodes.has(n)) ? [k] : [])) };
}

function selectNode(number) {
  const node = facts.nodes[number];
  const own = new Set([number]);
  return { nodes: own, own, kernels: new Set(node.kernels.map((k) => facts.kernels[k].name)),
    mentions: () => false };
}

function selectKernel(number) {
  const kernel = facts.kernels[number];
  return { nodes: new Set(kernel.nodes), own: new Set(), kernels: new Set([kernel.name]),
    mentions: (line) => line.includes(`@${kernel.name}(`) };
}

async function level(listing, wanted, at) {
  const parts = await partsOf(listing);
  const whole = await Promise.all(parts.map((part) => linesOf(part, at)));
  const found = whole.map((part, k) => ({ part, same: parts[k].same, ...matched(part, wanted, listing.code) }))
    .filter(({ whole, lines }) => whole || lines.length);
  const body = element("div", { class: "lines", tabindex: "0", role: "region",
    "aria-label": `${listing.title}: lines` });
  for (const { part, same, whole, lines } of found) {
    body.append(element("h4", {}, part.symbol ? `@${part.symbol}` : "module"),
      same ? element("p", { class: "soft" }, "as at the level before") : excerpt(part, whole, lines));
  }
  if (!found.length) body.append(element("p", { class: "soft" }, "nothing here"));
  return element("section", { class: "level" }, element("h3", {}, listing.title), body);
}

/** Lines of a part; runs of lines that do not matter are behind a button. */
function excerpt(part, whole, lines) {
  const on = new Set(lines), box = element("div");
  const near = new Set(whole ? part.lines.slice(0, FIRST).map((_, k) => k) : [0]);
  for (const k of lines) for (let at = k - CONTEXT; at <= k + CONTEXT; at++) near.add(at);
  let hidden = [];
  const flush = () => {
    if (hidden.length) box.append(gap(part, hidden, on));
    hidden = [];
  };
  let shown = null;
  part.lines.forEach((_, k) => {
    if (!near.has(k)) { hidden.push(k); shown = null; return; }
    flush();
    if (shown === null) { shown = element("pre"); box.append(shown); }
    shown.append(row(part, k, on));
  });
  flush();
  return box;
}

const row = (part, k, on) => element("div", { class: on.has(k) ? "on" : "" }, part.lines[k] || " ");

function gap(part, hidden, on) {
  const text = `… ${hidden.length} line${hidden.length > 1 ? "s" : ""}`;
  const button = element("button", { type: "button", class: "more", onclick: () => {
    const [first, rest] = [hidden.slice(0, 1000), hidden.slice(1000)];
    const lines = element("pre", {}, first.map((k) => row(part, k, on)));
    button.replaceWith(lines, ...(rest.length ? [gap(part, rest, on)] : []));
  } }, text);
  return button;
}

// ---------------------------------------------------------------------- the panel
function aboutNode(number) {
  const node = facts.nodes[number];
  const kernels = node.kernels.map((k) => facts.kernels[k].name);
  const reads = facts.edges.filter(([, b]) => b === number).map(([a]) => facts.nodes[a].name);
  const readers = facts.edges.filter(([a]) => a === number).map(([, b]) => facts.nodes[b].name);
  return [
    element("h2", {}, `${node.name}: ${node.op || "a node"}`),
    node.source ? element("p", {}, element("code", {}, node.source)) : "",
    kernels.length ? element("p", {}, "computed by ", links("kernel", kernels),
      node.ms === null ? "" : ` in ${inMs(node.ms)}, with all that these compute`)
      : element("p", {}, `no kernel computes it: ${node.gone || "compilation did not come so far"}`),
    reads.length ? element("p", {}, "reads ", links("node", reads)) : "",
    readers.length ? element("p", {}, "is read by ", links("node", readers)) : "",
    pairList(facts.pairs.filter((p) => p.from === node.name || p.to === node.name))];
}

function aboutKernel(number) {
  const kernel = facts.kernels[number];
  const time = kernel.ms === null ? "" : `${inMs(kernel.ms)} a call, ${percent(kernel.of_roofline)} of the limit; `;
  return [
    element("h2", {}, kernel.name),
    element("p", {}, `${time}${figure(kernel.bytes, "B")}, ${figure(kernel.flops, "FLOP")}, ` +
      `${kernel.launches} launch${kernel.launches === 1 ? "" : "es"}`),
    element("p", {}, `schedule by ${kernel.origin}: ${kernel.schedule}`),
    element("p", {}, "computes ", links("node", kernel.nodes.map((n) => facts.nodes[n].name), 12)),
    pairList(facts.pairs.filter((p) => p.from === kernel.name || p.to === kernel.name))];
}

function pairList(pairs) {
  if (!pairs.length) return "";
  return element("ul", {}, pairs.slice(0, 12).map((p) => element("li", {}, linkToEither(p.from), " → ",
    linkToEither(p.to), `: ${p.fused ? "fused" : `not fused: ${p.kind}`}: ${p.reason}`)),
  pairs.length > 12 ? element("li", {}, `and ${pairs.length - 12} more`) : "");
}

let showing = 0;

async function showDetail(kind, name) {
  const turn = ++showing, panel = document.getElementById("detail");
  const known = { node: nodeNumbers, kernel: kernelNumbers }[kind];
  panel.hidden = known === undefined;
  if (panel.hidden) return;
  const number = known.get(name);
  if (number === undefined) {
    panel.replaceChildren(element("h2", {}, `There is no ${kind} '${name}'`));
    return;
  }
  const about = kind === "node" ? aboutNode(number) : aboutKernel(number);
  const wanted = kind === "node" ? selectNode(number) : selectKernel(number);
  const columns = await Promise.all(facts.listings.map((listing, at) => level(listing, wanted, at)));
  if (turn !== showing) return; // another one was chosen meanwhile
  panel.replaceChildren(...about.filter(Boolean), element("div", { class: "levels" }, columns));
  panel.scrollIntoView({ block: "nearest" });
  panel.focus({ preventScroll: true });
}
