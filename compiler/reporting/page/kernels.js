"use strict";
// Kernels: a roofline plot, if there are times, and a table.

tab("kernels", "Kernels", (panel) => {
  panel.append(element("h2", {}, "Kernels"), ...timingNotes());
  panel.append(facts.profile ? roofline() : bytesOfKernels());
  panel.append(table([
    { title: "kernel", of: (k) => linkTo("kernel", k.name), sort: (k) => k.name },
    { title: "ms", number: true, of: (k) => inMs(k.ms), sort: (k) => k.ms ?? 0 },
    { title: "share", number: true, of: (k) => (facts.profile ? percent(k.ms / facts.profile.wall_ms) : ""),
      sort: (k) => k.ms ?? 0 },
    { title: "of the limit", number: true, of: (k) => percent(k.of_roofline), sort: (k) => k.of_roofline ?? 0 },
    { title: "bytes", number: true, of: (k) => figure(k.bytes, "B"), sort: (k) => k.bytes },
    { title: "FLOPs", number: true, of: (k) => figure(k.flops), sort: (k) => k.flops },
    { title: "launches", number: true, of: (k) => k.launches },
    { title: "nodes", of: (k) => links("node", k.nodes.map((n) => facts.nodes[n].name), 3),
      sort: (k) => k.nodes.length },
  ], facts.kernels, { title: "ms", sort: (k) => k.ms ?? k.bytes }));
});

/** What is to be known about the times, such as other programs that had the processor. */
function timingNotes() {
  return (facts.profile?.notes ?? []).map((note) => element("p", { class: "soft" }, note));
}

const kernelAddress = (kernel) => addressOf({ tab: "kernels", kernel: kernel.name });

function roofline() {
  const roof = facts.profile.roofline;
  const shown = facts.kernels.filter((k) => k.flops > 0 && k.bytes > 0 && k.ms > 0).map((k) => ({
    kernel: k, x: k.flops / k.bytes, y: k.flops / k.ms * 1e3, ms: k.ms }));
  const corner = roof.flops_per_s / roof.bytes_per_s;
  const ends = shown.map((d) => d.x), low = Math.min(corner / 8, ...ends) / 2, high = Math.max(corner * 8, ...ends) * 2;
  const line = [low, corner, high].map((x) => ({ x, y: Math.min(roof.flops_per_s, x * roof.bytes_per_s) }));
  const plot = Plot.plot({
    width: width(), height: 380, marginLeft: 60, ariaLabel: "roofline of the kernels",
    x: { type: "log", label: "FLOPs per byte", grid: true, tickFormat: (x) => figure(x) },
    y: { type: "log", label: "FLOPs per second", grid: true, tickFormat: "~s" },
    r: { range: [3, 16] },
    marks: [
      Plot.line(line, { x: "x", y: "y", stroke: colour("other"), strokeWidth: 2 }),
      Plot.dot(shown, { x: "x", y: "y", r: "ms", fill: colour("bar"), fillOpacity: 0.7,
        stroke: colour("text"), href: (d) => kernelAddress(d.kernel), ariaLabel: (d) => d.kernel.name,
        title: (d) => `${d.kernel.name}\n${inMs(d.ms)}, ${percent(d.kernel.of_roofline)} of the limit\n` +
          `${figure(d.x)} FLOPs per byte, ${figure(d.y, "FLOP/s")}` }),
    ],
  });
  const rest = facts.kernels.length - shown.length;
  return element("figure", {}, plot, element("figcaption", {},
    `The line is what this machine reaches: ${figure(roof.flops_per_s, "FLOP/s")} and ` +
    `${figure(roof.bytes_per_s, "B/s")}. The area of a dot is its time. Dots above the line work in caches, or on ` +
    `narrow numbers. ${rest ? `${rest} kernels compute no floats, and are in the table only.` : ""}`));
}

function bytesOfKernels() {
  const rows = [...facts.kernels].sort((a, b) => b.bytes - a.bytes).slice(0, 20);
  if (!rows.length) return element("p", { class: "soft" }, "There are no kernels.");
  const plot = Plot.plot({
    width: width(), marginLeft: 140, ariaLabel: "bytes of the kernels",
    x: { label: "bytes", grid: true, tickFormat: "~s" }, y: { label: null, domain: rows.map((k) => k.name) },
    marks: [Plot.barX(rows, { x: "bytes", y: "name", fill: colour("bar"), href: kernelAddress })],
  });
  return element("figure", {}, plot, element("figcaption", {},
    "There are no times, so these are the bytes that all launches of a kernel read and write. " +
    "`profile --json FILE` on a machine that can run the model, and `report --profile FILE`, add times."));
}
