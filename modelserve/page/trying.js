// Trying a job: what was typed is asked about in a handful of calls, and shown as one answer. Nothing is submitted.

import { answered } from "./answer.js";
import { byId, put } from "./elements.js";
import { BadField, clearFaults, markFaults, typedJob } from "./job.js";
import { post } from "./service.js";
import { RESOURCES, count, duration, isLess } from "./words.js";

const POINTS = 24;
const TOP = 6;

/** Ask about what was typed and show it; `told` hears of refusals that concern the token. Returns the answer's id, or null. */
export async function tryJob(told) {
  const says = byId("job-says");
  const ask = byId("job-ask");
  if (ask.hasAttribute("aria-busy")) return null;
  clearFaults();
  says.textContent = "Asking…";
  ask.setAttribute("aria-busy", "true");
  try {
    const asked = typedJob();
    const said = await allOf(asked);
    put(byId("answer"), answered(said));
    byId("answer").hidden = false;
    says.textContent = inShort(said);
    return said.answerId;
  } catch (error) {
    const faults = error instanceof BadField ? error.faults : error.faults ?? [];
    const other = markFaults(faults);
    const marked = faults.length - other.length;
    byId("answer").hidden = true;
    says.textContent = marked && !error.isAboutToken
      ? [`Not asked: ${count(marked, "field")} to mend.`, ...other].join(" ")
      : error.said ?? `${error}`;
    if (error.isAboutToken && !marked) told(error);
    return null;
  } finally {
    ask.removeAttribute("aria-busy");
  }
}

async function allOf({ trace, theta, job }) {
  const of = trace === undefined ? {} : { trace };
  const asked = RESOURCES.filter((each) => job.request[each.key] !== undefined);
  const limits = theta === undefined ? {} : { theta };
  // The recommendation goes first: where it is refused, nothing else need be asked.
  const recommended = await post("v1/recommendations", { ...of, ...limits, jobs: [job] });
  const [predicted, explained, ...curves] = await Promise.all([
    post("v1/predictions", { ...of, jobs: [job] }),
    post("v1/explanations", { ...of, job, top: TOP }),
    ...asked.map((each) => post("v1/what-if", { ...of, job, resource: each.key, points: POINTS })),
  ]);
  return {
    job,
    recommended: recommended.recommendations[0],
    answerId: recommended.answer_id,
    predicted: predicted.predictions[0],
    explained,
    curves: asked.map((each, i) => ({ ...curves[i], of: each })),
  };
}

function inShort({ predicted, recommended }) {
  const shrunk = RESOURCES.filter(({ key }) => isLess(recommended.target[key], recommended.request[key])).length;
  const time = predicted.run_time_s
    ? `Half of such jobs end within ${duration(predicted.run_time_s.p50)}, nine in ten within ${duration(predicted.run_time_s.p90)}.`
    : "No run time can be predicted.";
  return `${time} ${shrunk ? `${count(shrunk, "resource")} can shrink.` : "The request stands as claimed."}`;
}
