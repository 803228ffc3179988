// One answer about a job as people read it: run time, request, reasons and curves. Nothing is asked here.
// Used by trying.js.

import { claim, curve, legend, sidedBar, strip } from "./charts.js";
import { button, html, table } from "./elements.js";
import { askInRole } from "./job.js";
import { RESOURCES, amount, count, duration, isLess, known, moment, number, percent, reason, span } from "./words.js";

const ROLES = 3;

/** Return the whole answer. */
export function answered(said) {
  return html("div", {},
    runTime(said),
    html("h3", {}, "Request"),
    request(said),
    otherRole(said),
    standing(said),
    html("h3", {}, "What if the request were another?"),
    curves(said),
    html("h3", {}, "Why this run time"),
    why(said.explained));
}

function runTime({ predicted, recommended }) {
  const now = predicted.run_time_s;
  if (now === null) {
    return html("div", { class: "notice" },
      html("p", {}, html("b", {}, "No run time can be predicted"), `: ${predicted.note ?? "no model answers for such jobs"}.`),
      html("p", {}, "Every request stands as claimed: an unknown job is never shrunk."));
  }
  const then = recommended.run_time_s;
  const most = Math.max(now.p50, now.p90, then.p50 ?? 0, then.p90 ?? 0);
  const line = (name, times) => [
    name, html("b", { class: "figure" }, duration(times.p50)), duration(times.p90), strip(times.p50, times.p90, most)];
  const change = recommended.run_time_change;
  return html("div", {},
    html("h3", {}, "Run time"),
    table("Predicted run time", [
      "Request", { text: "Half end within", number: true, hint: "p50" },
      { text: "Nine in ten within", number: true, hint: "p90" }, "From 0 to that",
    ], [
      line("claimed", now),
      ...(known(then.p50) ? [line("recommended", then)] : []),
    ], { tight: true }),
    known(change) ? html("p", { class: "says" },
      Math.abs(change) < 0.0005 ? "With what is recommended, the predicted run time stays the same."
        : `With what is recommended, the predicted run time is ${percent(Math.abs(change))} ${change > 0 ? "longer" : "shorter"}.`) : null);
}

function request({ job, predicted, recommended }) {
  const instances = job.instances ?? 1;
  const rows = RESOURCES.filter(({ key }) => known(recommended.request[key])).map(({ key, label, unit }) => {
    const [asked, target] = [recommended.request[key], recommended.target[key]];
    const peak = predicted.peak_use?.[key] ?? null;
    const freed = (asked - target) * instances;
    return [
      label, amount(asked, unit), html("b", { class: "figure" }, amount(target, unit)),
      claim({ asked, target, least: recommended.lower_bound[key], peak }),
      freed > 0 ? amount(freed, unit) : "–", known(peak) ? amount(peak, unit) : "–",
    ];
  });
  if (!rows.length) return html("p", { class: "notice" }, "The job asks for nothing that could shrink.");
  return html("div", {},
    table("Request of each instance", [
      "Resource", { text: "Claimed", number: true }, { text: "Recommended", number: true }, "Of what is claimed",
      { text: instances > 1 ? `Freed by ${number(instances)} instances` : "Freed", number: true },
      { text: "Expected peak use", number: true, hint: "the upper quantile of what one instance uses at most" },
    ], rows, { tight: true }),
    legend([["bar", "recommended"], ["track", "claimed"], ["least", "least allowed"], ["peak", "expected peak use"]]),
    html("ul", { class: "reasons" }, ...RESOURCES.map(({ key, label }) => {
      const [short, sentence] = reason(recommended.reasons[key]);
      const kind = isLess(recommended.target[key], recommended.request[key]) ? "ok" : "kept";
      return html("li", {}, html("b", {}, label), " ", html("span", { class: `badge ${kind}` }, short), ` ${sentence}`);
    })));
}

/** Say in which roles the group was measured, where the role that was asked about was not. */
function otherRole({ job, explained }) {
  const roles = explained.roles ?? [];
  const role = job.role ?? "job";
  if (!roles.length || roles.some((each) => each.role === role)) return null;
  const found = roles.slice(0, ROLES).map((each) => `${count(each.measured_runs, "measured run")} in role ${each.role}`);
  const more = roles.length > ROLES ? ` and more in ${count(roles.length - ROLES, "other role")}` : "";
  return html("div", { class: "notice", id: "other-role" },
    html("p", {}, `This group has ${found.join(", ")}${more}, and none in role ${role}`
      + `${job.role === undefined ? " (the field is empty)" : ""}. `
      + "Only runs of the job's own group and role tell how far its request can shrink."),
    button(`Ask with role ${roles[0].role}`, () => askInRole(roles[0].role)));
}

/** Return when the job is asked about, against the end of the history; null at about its end. */
function asOf(submitted, history) {
  if (history === null) return null;
  const seconds = ((submitted === undefined ? Date.now() : Date.parse(submitted)) - Date.parse(history)) / 1000;
  if (Math.abs(seconds) < 3600) return "Asked as of the end of the history.";
  return seconds < 0 ? `Asked as of ${span(-seconds)} before the history ends.`
    : `Asked as of ${span(seconds)} after the history ends.`;
}

function standing({ job, predicted, recommended, answerId }) {
  const models = [recommended.models.run_time, recommended.models.usage].filter((each) => each !== null);
  const gpuMemory = predicted.peak_use?.gpu_mem_gib;
  const said = [
    recommended.mode === "enforce" ? "Mode enforce: the target is to be given." : "Mode observe: noted only, give what is claimed.",
    `${count(recommended.measured_runs, "measured run")} of jobs like it.`,
    recommended.judged_by ? `Whether a run gets longer is judged by: ${recommended.judged_by}.` : null,
    known(gpuMemory) ? `Expected peak of GPU memory ${number(gpuMemory)} GiB.` : null,
    models.length ? `Answered by ${models.join(" and ")}, with data until ${moment(recommended.history)}.` : "No model answered.",
    asOf(job.submit_ts, recommended.history),
    recommended.note ? `Note: ${recommended.note}.` : null,
    `Answer ${answerId}.`,
  ];
  return html("p", { class: "says" }, said.filter((each) => each !== null).join(" "));
}

function curves({ curves: found, recommended }) {
  const drawn = found.filter((each) => each.points.length > 0);
  if (!drawn.length) {
    const note = found.find((each) => each.note)?.note;
    return html("p", { class: "notice" }, `No curve: ${note ?? "the job asks for no resource"}.`);
  }
  return html("div", {},
    html("div", { class: "curves" }, ...drawn.map((each) => oneCurve(each, recommended.target[each.resource]))),
    legend([["line", "half end within (p50)"], ["band", "up to nine in ten (p90)"], ["claimed", "claimed"],
      ["given", "recommended"], ["beyond", "not seen in training"]]));
}

function oneCurve(said, target) {
  const { label, unit } = said.of;
  const points = said.points.map((each) => ({ ...each, ...each.run_time_s }));
  const ends = [points[0], points[points.length - 1]];
  const summary = `${label}: predicted run time from ${duration(ends[0].p50)} at ${number(ends[0].value)} `
    + `to ${duration(ends[1].p50)} at ${number(ends[1].value)} ${unit}`;
  const notes = [
    said.silent ? "Training saw one value only: the curve says nothing." : null,
    said.important ? "Important to the run time: never shrunk." : null,
    said.support && !said.silent ? `Training saw ${number(said.support[0])} to ${number(said.support[1])}.` : null,
  ].filter((each) => each !== null);
  return html("figure", {},
    html("figcaption", {}, label),
    curve({ points, unit, label: `${summary}.`, marks: [
      { value: said.requested, text: "claimed", kind: "claimed" },
      ...(known(target) && target !== said.requested ? [{ value: target, text: "recommended", kind: "given" }] : []),
    ] }),
    notes.length ? html("p", { class: "says" }, notes.join(" ")) : null,
    html("details", {}, html("summary", {}, `Numbers of ${label}`),
      table(`Predicted run time by ${label}`, [
        { text: unit, number: true }, { text: "p50", number: true }, { text: "p90", number: true }, "",
      ], points.map((each) => [
        number(each.value), duration(each.p50), duration(each.p90),
        [each.requested ? "claimed" : null, each.supported ? null : "not seen in training"].filter(Boolean).join(", "),
      ]))));
}

function why(said) {
  if (!known(said.run_time_s)) return html("p", { class: "notice" }, `No reasons: ${said.note ?? "no model answered"}.`);
  const most = Math.max(...said.contributions.map((each) => Math.abs(each.seconds)), Math.abs(said.rest_s ?? 0), 1e-9);
  const signed = (seconds) => `${seconds > 0 ? "+" : ""}${duration(seconds)}`;
  const line = (feature, value, seconds, factor) => [
    feature, signed(seconds), sidedBar(seconds, most), known(factor) ? `× ${number(factor)}` : "", value];
  return html("div", {}, table("What moves the predicted run time", [
    "Feature", { text: "Worth", number: true }, "Shorter, longer", { text: "Factor", number: true }, { text: "Value", number: true },
  ], [
    ["a job of the kind", duration(said.base_s), "", "", ""],
    ...said.contributions.map((each) => line(html("code", {}, each.feature), value(each), each.seconds, each.factor)),
    ...(known(said.rest_s) ? [line("all other features", "", said.rest_s, said.rest_factor)] : []),
    { class: "sum", cells: ["together (p50)", duration(said.run_time_s), "", "", ""] },
  ], { tight: true }), html("p", { class: "says" },
    "Features: of the XGBoost member alone. What the other members change is part of “a job of the kind”."));
}

function value({ value: given, unit }) {
  if (given === null) return "not known";
  if (!known(given)) return String(given);
  if (unit === "s") return duration(given);
  return unit && unit !== "fraction" ? amount(given, unit) : number(given);
}
