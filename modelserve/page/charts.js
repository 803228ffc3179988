// Charts as SVG, from plain numbers: bars in cells, and lines with a band. Colours are the style sheet's, so they follow
// light and dark; each chart that stands alone has its numbers in a table beside it. Used by the parts of the page.

import { html, svg } from "./elements.js";
import { duration, known, number } from "./words.js";

const WIDTH = 360;
const HEIGHT = 210;
const PLOT = { left: 62, right: 10, top: 14, bottom: 34 };
const LEAST_S = 1;
const WIDE = 5;
const ROUND_LOG_S = [1, 10, 60, 600, 3600, 6 * 3600, 86400, 7 * 86400, 30 * 86400];
const ROUND_S = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400];

/** Draw a bar from 0 to `value` of `most`, with a whisker of ± `spread`; numbers stand beside it. */
export function bar(value, most, spread = 0) {
  const at = (x) => 100 * Math.min(Math.max(x / most, 0), 1);
  const marks = [svg("rect", { class: "bar", x: 0, y: 3, width: at(value), height: 8 })];
  if (spread > 0) {
    marks.push(svg("line", { class: "whisker", x1: at(value - spread), x2: at(value + spread), y1: 7, y2: 7 }));
  }
  return svg("svg", { class: "inline", viewBox: "0 0 100 14", preserveAspectRatio: "none", "aria-hidden": "true" }, ...marks);
}

/** Draw a bar to either side of the middle: below zero to the left. */
export function sidedBar(value, most) {
  const half = 50 * Math.min(Math.abs(value) / most, 1);
  return svg("svg", { class: "inline", viewBox: "0 0 100 14", preserveAspectRatio: "none", "aria-hidden": "true" },
    svg("line", { class: "axis", x1: 50, x2: 50, y1: 0, y2: 14 }),
    svg("rect", { class: value < 0 ? "bar less" : "bar more", x: value < 0 ? 50 - half : 50, y: 3, width: half, height: 8 }));
}

/** Draw what is claimed as a track, what is recommended in it, and marks at the least allowed and the expected peak. */
export function claim({ asked, target, least, peak }) {
  const most = Math.max(asked, target, known(peak) ? peak : 0) || 1;
  const at = (x) => 100 * x / most;
  const marks = [
    svg("rect", { class: "track", x: 0, y: 2, width: at(asked), height: 10 }),
    svg("rect", { class: "bar", x: 0, y: 2, width: at(target), height: 10 }),
  ];
  if (known(least)) marks.push(svg("line", { class: "least", x1: at(least), x2: at(least), y1: 0, y2: 14 }));
  if (known(peak)) marks.push(svg("line", { class: "peak", x1: at(peak), x2: at(peak), y1: 0, y2: 14 }));
  return svg("svg", { class: "inline tall", viewBox: "0 0 100 14", preserveAspectRatio: "none", "aria-hidden": "true" }, ...marks);
}

/** Draw run times as strips from 0: solid up to the p50, pale from there to the p90. */
export function strip(p50, p90, most) {
  const at = (x) => 100 * Math.min(x / most, 1);
  return svg("svg", { class: "inline tall", viewBox: "0 0 100 14", preserveAspectRatio: "none", "aria-hidden": "true" },
    svg("rect", { class: "band", x: 0, y: 2, width: at(p90), height: 10 }),
    svg("rect", { class: "bar", x: 0, y: 2, width: at(p50), height: 10 }));
}

/**
 * Draw predicted run times along a resource: `points` are {value, p50, p90, supported}, `marks` {value, text, kind}.
 * `label` is what the chart says to those who do not see it. Where a p90 is far above its p50, times stand on a log
 * scale: on a linear one the p50 would lie on the axis.
 */
export function curve({ points, marks, unit, label }) {
  const xs = points.map((each) => each.value);
  const low = Math.min(...xs);
  const high = Math.max(...xs);
  const times = points.flatMap((each) => [each.p50, each.p90]);
  const { y, ticks, isLog } = timeAxis(times, points.some((each) => each.p90 > WIDE * Math.max(each.p50, LEAST_S)));
  const x = low < high ? scale(low, high, PLOT.left, WIDTH - PLOT.right) : () => (PLOT.left + WIDTH - PLOT.right) / 2;
  const along = (key) => points.map((each) => `${round(x(each.value))},${round(y(each[key]))}`);
  return svg("svg", { class: "curve", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label },
    ...unseen(points, x),
    ...ticks.map((t) => svg("g", {},
      svg("line", { class: "grid", x1: PLOT.left, x2: WIDTH - PLOT.right, y1: y(t), y2: y(t) }),
      svg("text", { x: PLOT.left - 6, y: y(t) + 4, "text-anchor": "end" }, duration(t)))),
    ...valueTicks(low, high).map((v) =>
      svg("text", { x: x(v), y: HEIGHT - 18, "text-anchor": "middle" }, number(v))),
    svg("text", { class: "unit", x: WIDTH - PLOT.right, y: HEIGHT - 4, "text-anchor": "end" }, `${unit} per instance`),
    isLog ? svg("text", { class: "unit", x: 4, y: HEIGHT - 4 }, "time: log scale") : null,
    svg("polygon", { class: "band", points: [...along("p50"), ...along("p90").reverse()].join(" ") }),
    svg("polyline", { class: "line high", points: along("p90").join(" ") }),
    svg("polyline", { class: "line", points: along("p50").join(" ") }),
    ...marks.filter((each) => each.value >= low && each.value <= high).map((each) => svg("g", { class: `mark ${each.kind}` },
      svg("line", { x1: x(each.value), x2: x(each.value), y1: PLOT.top, y2: HEIGHT - PLOT.bottom }),
      svg("circle", { cx: x(each.value), cy: y(nearest(points, each.value).p50), r: 4 }))),
    ...points.map((each) => svg("circle", { class: "touch", cx: x(each.value), cy: y(each.p50), r: 9 },
      svg("title", {}, `${number(each.value)} ${unit}: ${duration(each.p50)}, nine in ten within ${duration(each.p90)}`))));
}

/** Return what the marks of a chart mean, with the marks themselves. */
export function legend(entries) {
  return html("ul", { class: "legend" }, ...entries.map(([kind, text]) =>
    html("li", {}, html("span", { class: `key ${kind}`, "aria-hidden": "true" }), text)));
}

function unseen(points, x) {
  const seen = points.filter((each) => each.supported).map((each) => each.value);
  const [first, last] = [points[0].value, points[points.length - 1].value];
  const [from, to] = seen.length ? [Math.min(...seen), Math.max(...seen)] : [last, last];
  const rect = (a, b) => svg("rect", {
    class: "beyond", x: x(a), y: PLOT.top, width: Math.max(x(b) - x(a), 0), height: HEIGHT - PLOT.top - PLOT.bottom });
  return [[first, from], [to, last]].filter(([a, b]) => b > a).map(([a, b]) => rect(a, b));
}

function nearest(points, value) {
  return points.reduce((best, each) => (Math.abs(each.value - value) < Math.abs(best.value - value) ? each : best));
}

function scale(from, to, start, end) {
  return (value) => start + ((value - from) / (to - from)) * (end - start);
}

function timeAxis(times, isLog) {
  const most = Math.max(...times, 1) * 1.08;
  const [bottom, top] = [HEIGHT - PLOT.bottom, PLOT.top];
  if (!isLog) return { y: scale(0, most, bottom, top), ticks: timeTicks(most), isLog };
  const least = Math.max(Math.min(...times), LEAST_S) / 2;
  const along = scale(Math.log(least), Math.log(most * 1.5), bottom, top);
  const within = (each) => each >= least && each <= most * 1.5;
  const round = ROUND_LOG_S.filter(within);
  return { y: (s) => along(Math.log(Math.max(s, least))), ticks: round.length > 1 ? round : [...ROUND_S.filter(within), ...round], isLog };
}

function timeTicks(most) {
  const step = ROUND_S.find((each) => most / each <= 5) ?? 86400 * Math.ceil(most / 5 / 86400);
  return multiples(step, 0, most);
}

function valueTicks(low, high) {
  if (low === high) return [low];
  const rough = (high - low) / 5;
  const size = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((each) => each * size).find((each) => each >= rough);
  return multiples(step, low, high);
}

function multiples(step, low, high) {
  const ticks = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high * (1 + 1e-9); i += 1) ticks.push(i * step);
  return ticks;
}

function round(value) {
  return Math.round(value * 10) / 10;
}
