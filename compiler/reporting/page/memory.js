"use strict";
// Memory over time: live bytes at each step, and the place of each buffer in the arena.

tab("memory", "Memory", (panel) => {
  const memory = facts.memory;
  panel.append(element("h2", {}, "Memory over time"));
  if (!memory.timeline?.length) {
    panel.append(element("p", { class: "soft" }, "There is no plan of buffers."));
    return;
  }
  panel.append(element("p", {}, `An arena of ${figure(memory.arena, "B")} holds buffers of ` +
    `${figure(memory.all_buffers, "B")} in all; constants take ${figure(memory.constants, "B")}.`));
  const names = [...new Set(memory.timeline.map((step) => step.function))], shown = element("div");
  const show = (name) => shown.replaceChildren(...memoryOf(name));
  if (names.length > 1) {
    panel.append(element("label", {}, "Function ", element("select",
      { onchange: (event) => show(event.target.value) }, names.map((name) => element("option", {}, name)))));
  }
  show(memory.peak.function ?? names[0]);
  panel.append(shown, atPeak(memory.peak));
});

function memoryOf(name) {
  const steps = facts.memory.timeline.filter((step) => step.function === name).map((step, at) => ({ ...step, at }));
  const buffers = facts.memory.buffers.filter((b) => b.function === name && b.offset !== null);
  const about = { width: width(), marginLeft: 60, x: { label: "step", domain: [0, steps.length] } };
  const live = Plot.plot({ ...about, height: 200, ariaLabel: "live bytes at each step",
    y: { label: "live bytes", grid: true, tickFormat: "~s" },
    marks: [Plot.rectY(steps, { x1: (s) => s.at, x2: (s) => s.at + 1, y: "live", fill: colour("bar"), insetLeft: 0,
      href: (s) => (kernelNumbers.has(s.launch) ? addressOf({ tab: "memory", kernel: s.launch }) : null),
      title: (s) => `step ${s.at + 1}: ${s.launch}\n${figure(s.live, "B")}\n${s.nodes.slice(0, 4).join("\n")}` }),
    Plot.ruleY([0])] });
  const arena = Plot.plot({ ...about, height: 320, ariaLabel: "buffers in the arena",
    y: { label: "place in the arena, bytes", tickFormat: "~s" },
    marks: [Plot.rect(buffers, { x1: "first", x2: (b) => b.last + 1, y1: "offset", y2: (b) => b.offset + b.bytes,
      fill: colour("bar"), fillOpacity: 0.35, stroke: colour("text"), strokeWidth: 0.5,
      href: (b) => (b.nodes.length ? addressOf({ tab: "memory", node: b.nodes[0] }) : null),
      title: (b) => `${figure(b.bytes, "B")} at ${b.offset}, steps ${b.first + 1} to ${b.last + 1}\n` +
        b.nodes.slice(0, 4).join("\n") })] });
  return [element("figure", {}, live, element("figcaption", {}, "Bytes of intermediate values that are live at each launch.")),
    element("figure", {}, arena, element("figcaption", {}, "Each buffer from its first to its last use, at its place."))];
}

function atPeak(peak) {
  return element("div", {}, element("h3", {}, `The most: ${figure(peak.live, "B")}, at step ${peak.step + 1}, `,
    linkToEither(peak.launch)), table([
    { title: "bytes", number: true, of: (b) => figure(b.bytes, "B"), sort: (b) => b.bytes },
    { title: "offset", number: true, of: (b) => b.offset ?? "its own" },
    { title: "from step", number: true, of: (b) => b.first + 1 },
    { title: "to step", number: true, of: (b) => b.last + 1 },
    { title: "nodes", of: (b) => links("node", b.nodes, 4), sort: (b) => b.nodes.length },
  ], peak.buffers ?? []));
}
