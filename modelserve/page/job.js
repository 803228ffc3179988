// The form of a job to try: what was typed, as the service takes it, and faults put beside the fields that have them.
// Nothing is asked here. Used by trying.js.

import { byId, html, put } from "./elements.js";
import { isDayUnknown } from "./words.js";

const NUMBERS = ["cpu_cores", "mem_gib", "gpus", "instances", "theta"];
const REQUEST = ["cpu_cores", "mem_gib", "gpus"];
const OF_JOB = ["task_type", "user", "group", "gpu_type", "cluster", "vc", "role", "workload", "instances"];
const FIELDS = [...OF_JOB, ...REQUEST, "theta", "submit_ts", "trace"];

/** The name under which a job of this page is asked about: no job that anybody submitted. */
export const TRIED = "tried";

const ends = new Map(); // the end of the history of each trace

/** What was typed cannot be sent: the fields at fault, and what each expects. */
export class BadField extends Error {
  constructor(faults) {
    super("see the fields marked below");
    this.faults = faults;
  }
}

/** Return what was typed as {trace, job, theta}. */
export function typedJob() {
  const typed = Object.fromEntries(FIELDS.map((name) => [name, byId(name).value.trim()]));
  const faults = NUMBERS.filter((name) => typed[name] !== "" && !Number.isFinite(Number(typed[name])))
    .map((name) => ({ field: name, expected: "a number, as 0.5" }));
  if (typed.task_type === "") faults.push({ field: "task_type", expected: "the kind of job, as ctr" });
  if (byId("submit_ts").validity.badInput) faults.push({ field: "submit_ts", expected: "a whole date and time, or none" });
  if (faults.length) throw new BadField(faults);

  const given = (names) => Object.fromEntries(names.filter((name) => typed[name] !== "")
    .map((name) => [name, NUMBERS.includes(name) ? Number(typed[name]) : typed[name]]));
  const job = { job_id: TRIED, ...given(OF_JOB), request: given(REQUEST) };
  if (typed.submit_ts !== "") job.submit_ts = `${typed.submit_ts}Z`;
  else if (hidesDates(typed.trace)) job.submit_ts = ends.get(typed.trace);
  return { job, ...given(["trace", "theta"]) };
}

/** Type another role and ask again. */
export function askInRole(role) {
  byId("role").value = role;
  byId("job").requestSubmit();
}

/** Tell whether a trace hides its dates: then now is no moment of it, and a job is asked about at the end of its history. */
function hidesDates(trace) {
  return ends.has(trace) && isDayUnknown(ends.get(trace));
}

/** Mark the fields at fault and go to the first; returns the faults that no field stands for. */
export function markFaults(faults) {
  clearFaults();
  const other = [];
  let first = null;
  for (const fault of faults) {
    const name = String(fault.field).split(".").findLast((part) => FIELDS.includes(part));
    const input = name === undefined ? null : byId(name);
    if (input === null) {
      other.push(`${fault.field}: ${fault.expected}`);
      continue;
    }
    const said = html("p", { class: "fault", id: `${name}-fault` }, /\b(found|expected|no such)\b/.test(fault.expected) ? fault.expected : `Expected ${fault.expected}`);
    input.setAttribute("aria-invalid", "true");
    input.setAttribute("aria-describedby", said.id);
    input.closest(".field").append(said);
    first ??= input;
  }
  if (first?.closest("details")) first.closest("details").open = true;
  first?.focus();
  return other;
}

/** Unmark every field. */
export function clearFaults() {
  for (const said of document.querySelectorAll("#job .fault")) said.remove();
  for (const input of document.querySelectorAll("#job [aria-invalid]")) {
    input.removeAttribute("aria-invalid");
    input.removeAttribute("aria-describedby");
  }
}

/** Offer the traces and types of the models that serve; a type that none is for can be typed all the same. */
export function offer(models) {
  const traces = [...new Set(models.map((each) => each.trace))].sort();
  const trace = byId("trace");
  const before = trace.value;
  put(trace, ...(traces.length ? traces.map((each) => html("option", { value: each }, each))
    : [html("option", { value: "" }, "as the service is set")]));
  if (traces.includes(before)) trace.value = before;
  const typesOf = () => [...new Set(models.filter((each) => each.trace === trace.value).map((each) => each.task_type))].sort();
  ends.clear();
  for (const { trace: of, until } of models) if (!(ends.get(of) > until)) ends.set(of, until);
  const list = () => {
    put(byId("types"), ...typesOf().map((each) => html("option", { value: each })));
    byId("submit-default").textContent = hidesDates(trace.value) ? "the end of the history" : "now";
  };
  trace.onchange = list;
  list();
  if (byId("task_type").value === "") byId("task_type").value = typesOf()[0] ?? "";
}
