"use strict";
// Facts, elements, figures, tabs, and the address: #TAB, #TAB/node/NAME or #TAB/kernel/NAME.

const facts = JSON.parse(document.getElementById("facts").textContent);
const nodeNumbers = new Map(facts.nodes.map((node, k) => [node.name, k]));
const kernelNumbers = new Map(facts.kernels.map((kernel, k) => [kernel.name, k]));
const tabs = [];

/** An element. Strings among the children become text, so that no name is read as HTML. */
function element(tag, about = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(about)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== false && value !== null) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat(Infinity).filter((child) => child !== null && child !== ""));
  return made;
}

function figure(number, unit = "") {
  if (number === null || number === undefined) return "";
  for (const prefix of ["", "k", "M", "G", "T"]) {
    if (Math.abs(number) < 1000) return `${Number(number.toPrecision(3))} ${prefix}${unit}`.trim();
    number /= 1000;
  }
  return `${Number(number.toPrecision(3))} P${unit}`;
}

const percent = (share) => (share === null || share === undefined ? "" : `${(100 * share).toFixed(1)}%`);
const inMs = (ms) => (ms === null || ms === undefined ? "" : `${Number(ms.toPrecision(3))} ms`);
const sum = (values) => values.reduce((a, b) => a + b, 0);

/** A view: `render(panel)` is called when it is first shown. */
function tab(id, title, render) {
  tabs.push({ id, title, render, drawn: false });
}

/** A table. `columns`: [{title, of, number, sort}]; a click on a title sorts by it. */
function table(columns, rows, sorted = null, most = 200) {
  let order = [...rows], by = sorted, shown = most;
  const body = element("tbody");
  const cell = (column, row) => {
    const content = column.of(row);
    return element("td", { class: column.number ? "number" : "name" },
      content instanceof Node || Array.isArray(content) ? content : String(content ?? ""));
  };
  const fill = () => {
    if (by !== null) {
      const value = by.sort ?? by.of;
      const less = (a, b) => (value(a) < value(b) ? 1 : value(a) > value(b) ? -1 : 0);
      order.sort(by.up ? (a, b) => less(b, a) : less);
    }
    body.replaceChildren(...order.slice(0, shown).map((row) =>
      element("tr", {}, columns.map((column) => cell(column, row)))));
    more.hidden = order.length <= shown;
  };
  const more = element("button", { type: "button", class: "more",
    onclick: () => { shown += 1000; fill(); } }, "Show more");
  const head = columns.map((column) => element("th", { class: column.number ? "number" : "" },
    element("button", { type: "button", onclick: () => {
      by = { ...column, up: by !== null && by.title === column.title ? !by.up : !column.number };
      fill();
    } }, column.title)));
  fill();
  return element("div", { class: "wide" },
    element("table", {}, element("thead", {}, element("tr", {}, head)), body), more);
}

// ---------------------------------------------------------------------- addresses
function addressOf(where) {
  const { id } = where.tab ? { id: where.tab } : current();
  for (const kind of ["node", "kernel"]) {
    if (where[kind] !== undefined) return `#${id}/${kind}/${encodeURIComponent(where[kind])}`;
  }
  return `#${id}`;
}

function current() {
  const [id, kind, ...name] = location.hash.slice(1).split("/");
  let plain = "";
  try { plain = decodeURIComponent(name.join("/")); } catch { /* a broken address names nothing */ }
  return { id: tabs.some((known) => known.id === id) ? id : tabs[0].id, kind, name: plain };
}

/** A button that leads to a node or a kernel, wherever it is shown. */
function linkTo(kind, name, text = name) {
  return element("button", { type: "button", class: "link",
    onclick: () => { location.hash = addressOf({ [kind]: name }); } }, text);
}

/** The same for a name that may be either. */
function linkToEither(name) {
  if (kernelNumbers.has(name)) return linkTo("kernel", name);
  return nodeNumbers.has(name) ? linkTo("node", name) : name;
}

/** A title that opens, and makes what is behind it the first time. */
function folded(title, content) {
  const all = element("details", { ontoggle: () => {
    if (all.open && all.children.length === 1) all.append(content());
  } }, element("summary", {}, title));
  return all;
}

/** Some links, with commas, and a number for the rest. */
function links(kind, names, most = 6) {
  const shown = names.slice(0, most).flatMap((name, k) => (k ? [", ", linkTo(kind, name)] : [linkTo(kind, name)]));
  return names.length > most ? [...shown, ` and ${names.length - most} more`] : shown;
}

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const width = () => Math.max(300, Math.min(1100, document.body.clientWidth - 32));
