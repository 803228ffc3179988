// Recent recommendations: what was said of each job, why, what it frees, and what came of the finished ones.
// Nothing is recommended here.

import { byId, html, put, shortened, table } from "./elements.js";
import { TRIED } from "./job.js";
import { get } from "./service.js";
import { RESOURCES, ago, amount, count, duration, isLess, known, moment, number, percent, reason } from "./words.js";

const FIRST = 15;

/** Ask for the newest recommendations, and for what was realised, and show them; returns the recommendations. */
export async function showRecent() {
  const [{ recommendations: rows, shown_at_most: most }, modes] = await Promise.all([
    get("v1/recommendations"), get("v1/mode")]);
  byId("recent-says").textContent = rows.length
    ? `${count(rows.length, "job")}${rows.length === most ? ", the newest" : ""}. ${freed(rows)}`
    : "";
  put(byId("realised-body"), held(modes), modes.realised.length ? realised(modes.realised) : null);
  put(byId("recent-body"), rows.length ? shortened(rows, FIRST, "recommendations", recommended) : html("p", { class: "notice" },
    "No recommendation is in the log yet. Try a job above, or ask ", html("code", {}, "POST /v1/recommendations"), "."));
  return rows;
}

function freed(rows) {
  const meant = rows.filter((each) => each.job_id !== TRIED);
  const tried = rows.length - meant.length;
  const [given, noted] = ["enforce", "observe"].map((mode) => meant.filter((each) => each.mode === mode));
  const those = (mode) => (given.length && noted.length ? `Those ${mode}` : "Together they");
  return [
    summed(given, `${those("enforced")} free`),
    summed(noted, `${those("observed only")} would free`),
    tried ? `Of these, ${count(tried, "try", "tries")} on this page, in no sum.` : "",
  ].filter((each) => each).join(" ");
}

function summed(rows, lead) {
  const parts = RESOURCES.map(({ key, unit }) => {
    const asked = rows.reduce((sum, each) => sum + (each.request[key] ?? 0) * each.instances, 0);
    const less = rows.reduce((sum, each) => sum + (each.freed[key] ?? 0), 0);
    return asked > 0 ? `${number(less)} of ${number(asked)} ${unit} (${percent(less / asked)})` : null;
  }).filter((each) => each !== null);
  return parts.length ? `${lead} ${parts.join(", ")}.` : "";
}

function held({ default: usual, modes, brakes }) {
  const place = (each) => [each.trace, each.cluster, each.task_type, each.user, each.group].filter((part) => part).join(" / ");
  const set = modes.map((each) => `${each.mode} for ${place(each)}`);
  return html("div", {},
    html("p", { class: "says" }, `Mode: ${[`${usual} by default`, ...set].join("; ")}. `
      + "Observe notes what would be given; enforce gives it."),
    ...brakes.map((each) => html("p", { class: "notice wrong" },
      `${place(each)} is not shrunk since ${moment(each.since, { time: true })}: ${each.why}`)));
}

function realised(rows) {
  const hours = (each, key) => {
    const said = each.hours[key];
    return said && said.asked > 0 ? `${number(said.saved)} of ${number(said.asked)}` : "–";
  };
  return table("What finished jobs came to, by the feedback", [
    "Type", "Trace", { text: "Finished", number: true }, { text: "Shrunk", number: true },
    { text: "Killed for memory", number: true, hint: "of the shrunk jobs" },
    ...RESOURCES.map((each) => ({ text: `${each.hours} saved`, number: true, hint: "of those asked for" })),
  ], rows.map((each) => [
    each.task_type, each.trace, number(each.jobs), number(each.shrunk_jobs),
    each.kill_rate === null ? number(each.kills) : `${number(each.kills)} (${percent(each.kill_rate)})`,
    ...RESOURCES.map(({ key }) => hours(each, key)),
  ]), { shown: true });
}

function recommended(rows) {
  return table("Claimed → recommended for each instance, the newest first", [
    "Job", "When", ...RESOURCES.map((each) => each.label), { text: "Instances", number: true },
    { text: "Frees", hint: "over all instances" }, "What became of it",
  ], rows.map((row) => [
    [html("span", { class: "name", title: `${row.job_id}, answer ${row.answer_id}` }, row.job_id),
      html("span", { class: "under" }, `${row.task_type}, ${row.trace}`)],
    html("time", { datetime: row.at, title: moment(row.at, { time: true }) }, ago(row.at)),
    ...RESOURCES.map(({ key }) => step(row, key)),
    number(row.instances),
    frees(row),
    became(row),
  ]), { shown: true });
}

function step(row, key) {
  const [asked, target] = [row.request[key], row.target[key]];
  if (!known(asked)) return html("span", { class: "faint" }, "–");
  const [short, sentence] = reason(row.reasons[key]);
  return [
    isLess(target, asked) ? html("b", {}, `${number(asked)} → ${number(target)}`) : number(asked),
    html("span", { class: "under", title: sentence }, short),
  ];
}

function frees(row) {
  const parts = RESOURCES.filter(({ key }) => row.freed[key] > 0).map(({ key, unit }) => amount(row.freed[key], unit));
  if (!parts.length) return html("span", { class: "faint" }, "nothing");
  return [parts.join(", "), html("span", { class: "under" }, row.mode === "enforce" ? "to be given" : "observed only")];
}

function became(row) {
  const said = row.finished;
  if (said === null) return html("span", { class: "faint" }, "not reported");
  const saved = RESOURCES.filter(({ key }) => said.saved_hours[key] > 0)
    .map(({ key, hours }) => amount(said.saved_hours[key], hours));
  return [`${said.outcome} after ${duration(said.run_s)}`,
    html("span", { class: "under" }, saved.length ? `saved ${saved.join(", ")}` : said.applied ? "saved nothing" : "ran as claimed")];
}
