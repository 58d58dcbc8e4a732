"use strict";
// The overview, the tabs, the search, and the address.

tab("overview", "Overview", (panel) => {
  for (const note of facts.notes) panel.append(element("pre", { class: "soft" }, note));
  if (facts.kernels.length) panel.append(element("h2", {}, "What costs most"), ...timingNotes(), element("ol", {}, [...facts.kernels]
    .sort((a, b) => (b.ms ?? b.bytes) - (a.ms ?? a.bytes)).slice(0, 8).map((k) => element("li", {}, linkTo("kernel", k.name),
      `: ${k.ms === null ? figure(k.bytes, "B") : `${inMs(k.ms)}, ${percent(k.of_roofline)} of the limit`}; `,
      links("node", k.nodes.map((n) => facts.nodes[n].name), 3)))));
  const gone = facts.nodes.filter((n) => !n.kernels.length && n.gone);
  if (gone.length) {
    panel.append(element("h2", {}, "Nodes without a kernel"), ...goneGroups(gone));
  }
  panel.append(element("h2", {}, "Operations that name a node of the model"), table([
    { title: "level", of: ([name]) => name },
    { title: "operations", number: true, of: ([, row]) => row.operations },
    { title: "with a node", number: true, of: ([, row]) => percent(row.operations ? row.with_node / row.operations : 1) },
  ], Object.entries(facts.coverage)));
  panel.append(element("h2", {}, "Environment"), element("pre", {}, [facts.command, ...facts.environment].join("\n")));
});

/** Nodes without a kernel by the reason why, in which names of constants make no difference. */
function goneGroups(nodes) {
  const groups = new Map();
  for (const node of nodes) {
    const reason = node.gone.replace(/ '[^']*'/g, "");
    groups.set(reason, [...(groups.get(reason) ?? []), node]);
  }
  return [...groups].sort((a, b) => b[1].length - a[1].length).map(([reason, members]) => folded(
    `${members.length} × ${reason}`, () => table([
      { title: "node", of: (n) => linkTo("node", n.name), sort: (n) => n.name }, { title: "operator", of: (n) => n.op },
      { title: "why", of: (n) => n.gone }], members)));
}

// ---------------------------------------------------------------------- tabs
tabs.unshift(tabs.pop()); // the overview comes first

function makeTabs() {
  const bar = document.getElementById("tabs"), panels = document.getElementById("panels");
  for (const known of tabs) {
    bar.append(element("button", { type: "button", role: "tab", id: `tab-${known.id}`,
      "aria-controls": `panel-${known.id}`, onclick: () => { location.hash = known.id; } }, known.title));
    panels.append(element("section", { role: "tabpanel", id: `panel-${known.id}`,
      "aria-labelledby": `tab-${known.id}`, hidden: true }));
  }
  bar.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const at = tabs.findIndex((known) => known.id === current().id);
    const next = event.key === "Home" ? 0 : event.key === "End" ? tabs.length - 1
      : step === undefined ? -1 : (at + step + tabs.length) % tabs.length;
    if (next < 0) return;
    event.preventDefault();
    location.hash = tabs[next].id;
    document.getElementById(`tab-${tabs[next].id}`).focus();
  });
}

function draw(known) {
  if (known.drawn) return;
  known.drawn = true;
  known.render(document.getElementById(`panel-${known.id}`));
}

function redraw() {
  for (const known of tabs) {
    if (!known.drawn) continue;
    document.getElementById(`panel-${known.id}`).replaceChildren();
    known.drawn = false;
  }
  show();
}

function show() {
  const { id, kind, name } = current();
  for (const known of tabs) {
    const chosen = known.id === id, button = document.getElementById(`tab-${known.id}`);
    if (chosen) draw(known);
    button.setAttribute("aria-selected", chosen);
    button.tabIndex = chosen ? 0 : -1;
    document.getElementById(`panel-${known.id}`).hidden = !chosen;
  }
  showDetail(kind, name);
}

// ---------------------------------------------------------------------- search, theme, print
function search(text) {
  const found = document.getElementById("found"), small = text.toLowerCase();
  const hits = text === "" ? [] : [...facts.kernels.map((k) => ["kernel", k.name]), ...facts.nodes.map((n) => ["node", n.name])]
    .filter(([, name]) => name.toLowerCase().includes(small));
  found.hidden = text === "";
  found.replaceChildren(...hits.slice(0, 40).map(([kind, name]) => element("li", {}, linkTo(kind, name, `${name} (${kind})`))),
    ...(hits.length > 40 ? [element("li", {}, `and ${hits.length - 40} more`)] : []),
    ...(text !== "" && !hits.length ? [element("li", {}, "nothing has this name")] : []));
}

function figuresOfModel() {
  const { kernels, profile } = facts, total = (key) => sum(kernels.map((k) => k[key]));
  return [`for ${facts.target}`, `${facts.nodes.length} nodes`, `${kernels.length} kernels`,
    `${total("launches")} launches`, `${figure(total("bytes"), "B")} moved`, `${figure(total("flops"), "FLOP")}`,
    ...(profile ? [`${inMs(profile.wall_ms)} a call on ${profile.where}`] : []),
    ...Object.entries(facts.sizes).map(([name, value]) => `${name} = ${value}`)].join(", ");
}

document.getElementById("figures").textContent = figuresOfModel();
const field = document.getElementById("search");
field.addEventListener("input", () => search(field.value));
field.addEventListener("keydown", (event) => {
  if (event.key === "Enter") document.querySelector("#found button")?.click();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && !(event.target instanceof HTMLInputElement)) { event.preventDefault(); field.focus(); }
  if (event.key === "Escape") { field.value = ""; search(""); }
});
document.getElementById("theme").addEventListener("click", () => {
  const root = document.documentElement, dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const now = root.dataset.theme ?? (dark ? "dark" : "light");
  root.dataset.theme = now === "dark" ? "light" : "dark";
  redraw();
});
addEventListener("beforeprint", () => tabs.forEach(draw));
addEventListener("hashchange", show);
makeTabs();
show();
