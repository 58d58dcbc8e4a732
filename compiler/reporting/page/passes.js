"use strict";
// Passes: seconds, and what each one removed, added, changed and moved.

tab("passes", "Passes", (panel) => {
  panel.append(element("h2", {}, `Passes: ${figure(sum(facts.passes.map((p) => p.seconds)), "s")}`));
  if (facts.failure) panel.append(element("p", {}, `Compilation failed in ${facts.failure.where}.`));
  panel.append(table([
    { title: "level", of: (p) => p.level }, { title: "pass", of: passName, sort: (p) => p.name },
    { title: "s", number: true, of: (p) => p.seconds.toFixed(3), sort: (p) => p.seconds },
    { title: "removed", number: true, of: (p) => p.removed ?? "" },
    { title: "added", number: true, of: (p) => p.added ?? "" },
    { title: "changed", number: true, of: (p) => p.changed ?? "" },
    { title: "moved", number: true, of: (p) => p.moved ?? "" },
    { title: "kinds", of: (p) => p.kinds ?? "" }], facts.passes));
});

/** The name of a pass; if it changed something, with the first changed lines behind it. */
function passName(pass) {
  if (!pass.lines?.length) return pass.name;
  return folded(pass.name, () =>
    element("pre", {}, pass.lines.map((line) => element("div", { class: classOfLine(line) }, line))));
}

const classOfLine = (line) => ({ "-": "less", "+": "more-of", "~": "changed", ">": "moved" }[line.trim()[0]] ?? "soft");
