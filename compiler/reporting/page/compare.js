"use strict";
// Strategies, peers and groups of passes side by side, from the figures of `compare`.

tab("comparison", "Comparison", (panel) => {
  panel.append(element("h2", {}, "Per operator, in blocks, as a whole"));
  const found = facts.comparison;
  if (found === null) {
    panel.append(element("p", { class: "soft" }, "The strategies were not compared. `report --compare now` " +
      "does that, in minutes, and `report --compare FILE` shows what `compare --json FILE` wrote."));
    return;
  }
  panel.append(bars(found), strategyTable(found));
  if (found.ablation.length) panel.append(element("h3", {}, "What each group of passes buys"), ...ablation(found));
});

function bars(found) {
  const rows = Object.entries({ ...found.strategies, ...found.peers }).filter(([, row]) => row.ms)
    .map(([name, row]) => ({ name, low: row.ms[0], ms: row.ms[1], high: row.ms[2], ours: name in found.strategies }));
  if (!rows.length) return element("p", { class: "soft" }, "There are no times.");
  const plot = Plot.plot({ width: width(), marginLeft: 110, ariaLabel: "milliseconds of a call",
    x: { label: "ms", grid: true }, y: { label: null, domain: rows.map((r) => r.name) },
    marks: [
      Plot.barX(rows, { x: "ms", y: "name", fill: (r) => (r.ours ? colour("bar") : colour("other")),
        title: (r) => `${r.name}: ${inMs(r.ms)} (${inMs(r.low)} to ${inMs(r.high)})` }),
      Plot.ruleY(rows, { x1: "low", x2: "high", y: "name", stroke: colour("text"), strokeWidth: 1.5 }),
      Plot.ruleX([0])] });
  const busy = (found.others ?? 0) > 0.05
    ? ` Other programs had the processor for ${percent(found.others)} of the time, so times on one thread are of the processor.` : "";
  return element("figure", {}, plot, element("figcaption", {}, `Medians of a call, with 95% intervals.${busy}`));
}

function strategyTable(found) {
  const base = found.strategies["per-op"]?.ms;
  const rows = Object.entries({ ...found.strategies, ...found.peers }).map(([name, row]) => ({ name, ...row }));
  return table([
    { title: "way", of: (r) => r.name },
    { title: "kernels", number: true, of: (r) => r.kernels }, { title: "launches", number: true, of: (r) => r.launches },
    { title: "bytes", number: true, of: (r) => figure(r.bytes, "B"), sort: (r) => r.bytes ?? 0 },
    { title: "FLOPs", number: true, of: (r) => figure(r.flops), sort: (r) => r.flops ?? 0 },
    { title: "arena", number: true, of: (r) => figure(r.arena, "B"), sort: (r) => r.arena ?? 0 },
    { title: "compile", number: true, of: (r) => figure(r.compile_s ?? r.first_result_s, "s"), sort: (r) => r.compile_s ?? 0 },
    { title: "ms", number: true, of: (r) => (r.ms ? inMs(r.ms[1]) : r.problem ? "failed" : ""), sort: (r) => r.ms?.[1] ?? 0 },
    { title: "speed-up", number: true, of: (r) => (base && r.ms ? `${(base[1] / r.ms[1]).toFixed(2)}x` : "") },
    { title: "pays after", number: true, of: (r) => (r.name === "per-op" || !r.ms ? "" : r.paid_after === null ? "never"
      : r.paid_after === 0 ? "at once" : `${r.paid_after} calls`) },
  ], rows);
}

function ablation(found) {
  const whole = found.strategies["whole-graph"]?.ms?.[1], base = found.strategies["per-op"]?.ms?.[1];
  const rows = found.ablation.flatMap((row) => [
    whole && row.without_ms && !row.without_same ? [{ group: row.group, way: "whole-graph, slower without it",
      factor: row.without_ms / whole, low: row.without_interval[0] / whole, high: row.without_interval[2] / whole }] : [],
    base && row.alone_ms && !row.alone_same ? [{ group: row.group, way: "per-op, faster with it alone",
      factor: base / row.alone_ms, low: base / row.alone_interval[2], high: base / row.alone_interval[0] }] : []].flat());
  const parts = [];
  if (rows.length) {
    parts.push(element("figure", {}, Plot.plot({ width: width(), marginLeft: 20, marginRight: 90, ariaLabel: "factors of groups",
      x: { label: "factor", grid: true, type: "log", tickFormat: (x) => figure(x) }, y: { label: null }, fy: { label: null },
      color: { legend: true, range: [colour("bar"), colour("other")] },
      marks: [Plot.barX(rows, { x1: 1, x2: "factor", y: "way", fy: "group", fill: "way",
        title: (r) => `${r.group}: ${r.factor.toFixed(2)}x, ${r.way}` }),
      Plot.ruleY(rows, { x1: "low", x2: "high", y: "way", fy: "group", stroke: colour("text") }), Plot.ruleX([1]),
      Plot.axisY({ ticks: [] })] }),
    element("figcaption", {}, "Medians and 95% intervals of the varied program. Groups that change nothing are left out.")));
  }
  parts.push(table([
    { title: "group", of: (r) => r.group },
    { title: "whole-graph without it", number: true, of: (r) => (r.without_same ? "the same" : inMs(r.without_ms)) },
    { title: "launches", number: true, of: (r) => r.without_launches },
    { title: "per-op with it", number: true, of: (r) => (r.alone_same ? "the same" : inMs(r.alone_ms)) },
    { title: "its launches", number: true, of: (r) => r.alone_launches },
  ], found.ablation));
  return parts;
}
