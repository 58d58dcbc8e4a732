"use strict";
// Fusion: neighbours, grouped by the reason why they are one kernel, or two.

tab("fusion", "Fusion", (panel) => {
  const filter = element("input", { type: "search", oninput: () => show() }), shown = element("div");
  const show = () => shown.replaceChildren(...[["Not fused", false], ["Fused", true]].flatMap(([title, fused]) =>
    pairGroups(title, facts.pairs.filter((p) => p.fused === fused && mentions(p, filter.value)))));
  panel.append(element("h2", {}, "What was fused, and why not more"),
    element("label", {}, "Only with ", filter), shown);
  show();
  if (facts.host.length) {
    panel.append(element("h3", {}, "On the host"), element("ul", {}, facts.host.slice(0, 200).map(({ what, nodes }) =>
      element("li", {}, `${what}: `, links("node", nodes.filter((n) => nodeNumbers.has(n)))))));
  }
});

const mentions = (pair, text) => [pair.from, pair.to, pair.reason, pair.kind ?? ""].some((part) => part.includes(text));

function pairGroups(title, pairs) {
  const groups = new Map();
  for (const pair of pairs) {
    groups.set(pair.group, [...(groups.get(pair.group) ?? []), pair]);
  }
  const sorted = [...groups].sort((a, b) => b[1].length - a[1].length);
  return [element("h3", {}, `${title}: ${pairs.length}`), ...sorted.map(([reason, members]) => folded(
    `${members.length} × ${reason}`, () => table([
      { title: "from", of: (p) => linkToEither(p.from), sort: (p) => p.from },
      { title: "to", of: (p) => linkToEither(p.to), sort: (p) => p.to },
      { title: "reason", of: (p) => p.reason }], members)))];
}
