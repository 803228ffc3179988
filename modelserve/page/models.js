// The models: how accurate, how old and how far drifted, and what the answers of one depend on. Nothing is predicted here.

import { bar } from "./charts.js";
import { button, byId, html, put, shortened, table } from "./elements.js";
import { get } from "./service.js";
import { ago, count, duration, isDayUnknown, moment, number, percent } from "./words.js";

const FIRST = 12;
let newest = null; // the model that was chosen last: an answer about any other comes too late
const VERDICTS = {
  ok: ["ok", "as at training"],
  watch: ["watch", "to be watched"],
  drifted: ["drifted", "drifted"],
  unknown: ["unknown", "too few jobs to say"],
};
const TARGETS = { cpu_cores: "CPU", mem_gib: "Memory", gpus: "GPU", gpu_mem_gib: "GPU memory" };

/** Ask for the models and show them; returns the rows, for whoever offers traces and types. */
export async function showModels() {
  const [{ models, failures }, drift] = await Promise.all([get("v1/models"), optional(get("v1/drift"))]);
  const standing = new Map((drift?.models ?? []).map((each) => [each.name, each]));
  const runtime = models.filter((each) => each.kind === "runtime");
  const usage = models.filter((each) => each.kind === "usage");
  byId("models-says").textContent = models.length
    ? `${count(models.length, "model")}${drift ? `; drift over the last ${drift.window} finished jobs of each` : "; drift cannot be read now"}`
    : "";
  put(byId("models-body"),
    models.length ? null : html("p", { class: "notice" },
      "No model is loaded. Train and promote one with ", html("code", {}, "taut train"),
      "; it appears here by itself. Until then every request stands as claimed."),
    failures.length ? failed(failures) : null,
    runtime.length ? runTimes(runtime, standing) : null,
    usage.length ? peaks(usage, standing) : null);
  const first = runtime[0] ?? usage[0];
  if (first) await showModel(first, standing.get(first.name));
  else byId("model-detail").hidden = true;
  return models;
}

/** Show what one model's answers depend on, and what it is. */
export async function showModel(row, standing) {
  newest = row;
  for (const each of document.querySelectorAll("#models-body button")) {
    each.setAttribute("aria-pressed", String(each.dataset.model === row.name));
  }
  byId("model-detail").hidden = false;
  byId("model-detail-title").textContent = `What ${row.name}@${row.version ?? "?"} depends on`;
  byId("model-detail-says").textContent = "";
  try {
    const said = await get(`v1/models/${encodeURIComponent(row.name)}/importances`);
    if (newest !== row) return;
    put(byId("model-detail-body"), importances(said), standing ? facts(row, standing) : null);
  } catch (refused) {
    if (newest !== row) return;
    put(byId("model-detail-body"));
    byId("model-detail-says").textContent = refused.said ?? String(refused);
    if (refused.isAboutToken) throw refused;
  }
}

function runTimes(rows, standing) {
  const columns = [
    "Run time of", "Trace", "Version",
    { text: "Within 2×", number: true, hint: "held-out jobs whose run time was within twice or half the p50" },
    { text: "p90 holds", number: true, hint: "held-out jobs that ended within the p90; 90 % is meant" },
    { text: "Mean error", number: true, hint: "mean absolute error of the p50 on held-out jobs" },
    { text: "Learnt from", number: true }, "Data until", "Drift",
  ];
  return table("Run-time models", columns, rows.map((row) => [
    chosen(row, standing), row.trace, version(row), percent(row.metrics.within_2x), percent(row.metrics.coverage_p90),
    row.metrics.mae_h === undefined || row.metrics.mae_h === null ? "–" : duration(row.metrics.mae_h * 3600),
    `${number(row.rows)} jobs`, age(row), verdict(standing.get(row.name)),
  ]), { shown: true });
}

function peaks(rows, standing) {
  const columns = [
    "Peak use of", "Trace", "Version",
    ...Object.values(TARGETS).map((text) => ({
      text: `${text} holds`, number: true, hint: "held-out jobs that used no more than predicted; 95 % is meant as a rule" })),
    { text: "Learnt from", number: true }, "Data until", "Drift",
  ];
  return table("Peak-use models", columns, rows.map((row) => [
    chosen(row, standing), row.trace, version(row),
    ...Object.keys(TARGETS).map((target) => percent(row.metrics[`${target}_coverage`])),
    `${number(row.rows)} jobs`, age(row), verdict(standing.get(row.name)),
  ]), { shown: true });
}

function chosen(row, standing) {
  const made = button(row.task_type, () => showModel(row, standing.get(row.name)).catch(() => {}), {
    class: "link", "aria-pressed": "false", "aria-controls": "model-detail",
    "aria-label": `What ${row.name} depends on` });
  made.dataset.model = row.name;
  return made;
}

function version(row) {
  return row.version === null ? "–" : `@${row.version}`;
}

function age(row) {
  if (isDayUnknown(row.until)) {
    return html("span", { title: "the trace hides its dates: its times count from an unknown day" }, moment(row.until));
  }
  return [moment(row.until), " ", html("span", { class: "faint" }, ago(row.until))];
}

function verdict(standing) {
  const [kind, text] = VERDICTS[standing?.verdict ?? "unknown"] ?? VERDICTS.unknown;
  return html("span", { class: `badge ${kind}` }, text);
}

function failed(failures) {
  return html("div", { class: "notice wrong" }, html("p", {}, "Not loaded; the version before serves where there was one:"),
    html("ul", {}, ...failures.map((each) => html("li", {}, html("b", {}, each.name), `: ${each.error}`))));
}

function importances(said) {
  const rows = said.importances;
  if (!rows?.length) return html("p", { class: "notice" }, `No importances: ${said.reason ?? "none were kept with this model"}.`);
  const most = Math.max(...rows.map((each) => (each.mean ?? 0) + (each.std ?? 0)), 1e-12);
  const shownOf = (some) => table(`Importances of ${said.name}`, [
    "Feature", { text: "Importance", hint: said.mean_means }, { text: "Mean ± spread", number: true, hint: said.mean_means },
    { text: "With larger values, answers are", hint: said.sign_means },
  ], some.map((each) => [
    html("code", {}, each.feature), bar(each.mean ?? 0, most, each.std ?? 0),
    `${number(each.mean, 2)} ± ${number(each.std, 1)}`, direction(each.sign),
  ]), { tight: true });
  return html("div", {},
    html("p", { class: "says" }, `${said.mean_means[0].toUpperCase()}${said.mean_means.slice(1)}.`),
    shortened(rows, FIRST, "features", shownOf));
}

function direction(sign) {
  if (sign === null || Math.abs(sign) < 0.1) return html("span", { class: "faint" }, "neither");
  return `${sign > 0 ? "larger" : "smaller"} (${number(sign, 2)})`;
}

function facts(row, standing) {
  const said = standing.coverage.filter((each) => each.observed !== null).map((each) =>
    `${each.of}: ${percent(each.observed)} of ${count(each.jobs, "finished job")} within the bound`
      + (each.expected === null ? "" : `, ${percent(each.expected)} meant`));
  if (standing.error && standing.error.mean_absolute_log !== null) {
    said.push(`mean error ${number(standing.error.mean_absolute_log, 2)} in logs over ${count(standing.error.jobs, "job")}`
      + (standing.error.expected_mean_absolute_log === null ? ""
        : `, ${number(standing.error.expected_mean_absolute_log, 2)} at training`));
  }
  const lately = said.length ? `Since training: ${said.join("; ")}.` : "No feedback yet: drift cannot be judged.";
  return html("p", { class: "says" }, `${lately} ${count(row.features, "feature")}.`);
}

async function optional(asked) {
  try {
    return await asked;
  } catch (refused) {
    if (refused.isAboutToken) throw refused;
    return null;
  }
}
