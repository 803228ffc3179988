// Numbers, times and reasons as people read them. Nothing is drawn or asked here. Used by every part of the page.

/** The resources, in the order of every table. */
export const RESOURCES = [
  { key: "cpu_cores", label: "CPU cores", unit: "cores", hours: "core-hours" },
  { key: "mem_gib", label: "Memory", unit: "GiB", hours: "GiB-hours" },
  { key: "gpus", label: "GPUs", unit: "GPUs", hours: "GPU-hours" },
];

const REASONS = {
  shrunk: ["shrunk", "Less is enough: the predicted run time hardly changes, and jobs like it have used less."],
  important: ["important", "Kept: the run time depends on it."],
  floor: ["at the floor", "Jobs like it have used about this much, or more: it goes no lower."],
  too_little: ["asks too little", "Kept: jobs like it have used more than this. A larger request is advised."],
  above_usual: ["above the usual", "Kept: it asks for far more than jobs like it, so it may need more than they used."],
  not_measured: ["not measured", "Kept: this use was not measured in jobs like it."],
  cold_start: ["too little known", "Kept: too few measured runs of jobs like it, or no model for its type."],
  no_candidate: ["no candidate", "Kept: no smaller request was tried."],
  below_threshold: ["change too large", "Kept: every smaller request changes the predicted run time too much, or saves too little."],
  opted_out: ["opted out", "Kept: the job asked for that."],
  predictor_unavailable: ["no answer", "Kept: the model did not answer."],
};

/** Return a reason as [short, sentence]; one that is not known stands for itself. */
export function reason(code) {
  return code === null ? ["not asked for", "The job asks for none."] : REASONS[code] ?? [code, code];
}

const STEPS = [
  ["d", 86400],
  ["h", 3600],
  ["min", 60],
  ["s", 1],
];

/** Return seconds as their two largest units: 3725 is "1 h 2 min". */
export function duration(seconds) {
  if (!known(seconds)) return "–";
  if (Math.abs(seconds) < 10) return `${number(seconds, 2)} s`;
  let rest = Math.round(Math.abs(seconds));
  if (rest >= 2 * 3600) rest = Math.round(rest / 60) * 60;
  if (rest >= 2 * 86400) rest = Math.round(rest / 3600) * 3600;
  const first = STEPS.findIndex(([, size]) => rest >= size);
  const parts = STEPS.slice(first, first + 2).map(([unit, size]) => {
    const count = Math.floor(rest / size);
    rest -= count * size;
    return [count, unit];
  });
  const said = parts.filter(([count], i) => i === 0 || count > 0).map(([count, unit]) => `${count} ${unit}`);
  return (seconds < 0 ? "−" : "") + said.join(" ");
}

/** Return a number with as many significant digits as say something. */
export function number(value, digits = 3) {
  if (!known(value)) return "–";
  const size = Math.abs(value);
  const shown = size >= 1000 ? Math.round(value) : Number(value.toPrecision(digits));
  return shown.toLocaleString("en", { maximumFractionDigits: 6 }).replace("-", "−");
}

/** Return a number with its unit: "1 GPU", "2 GPUs", "29.3 GiB". */
export function amount(value, unit) {
  return `${number(value)} ${value === 1 ? unit.replace(/s$/, "") : unit}`;
}

/** Return a share as whole per cent; digits where it is small. */
export function percent(share) {
  if (!known(share)) return "–";
  return `${number(share * 100, Math.abs(share) < 0.01 ? 1 : Math.abs(share) < 1 ? 2 : 3)} %`;
}

const FIRST_KNOWN_YEAR = "1990";

/** Tell whether a moment is of a trace that hides its dates: its times count from an unknown day, kept as 1970-01-01. */
export function isDayUnknown(iso) {
  return iso !== null && iso < FIRST_KNOWN_YEAR;
}

/** Return a moment (ISO 8601) as date, or as date and time, in UTC; of a trace that hides its dates, as its day. */
export function moment(iso, { time = false } = {}) {
  if (iso === null) return "–";
  const date = isDayUnknown(iso) ? `day ${number(Math.floor(Date.parse(iso) / 86400000) + 1)} of the trace` : iso.slice(0, 10);
  return time ? `${date} ${iso.slice(11, 16)}${isDayUnknown(iso) ? "" : " UTC"}` : date;
}

/** Return how long ago a moment was, in its largest unit. */
export function ago(iso, now = Date.now()) {
  if (iso === null) return "–";
  const seconds = (now - Date.parse(iso)) / 1000;
  return seconds < 60 ? "just now" : `${span(seconds)} ago`;
}

/** Return seconds in their largest unit, from minutes to years. */
export function span(seconds) {
  const days = seconds / 86400;
  if (days >= 730) return `${Math.floor(days / 365.25)} years`;
  if (days >= 60) return `${Math.floor(days / 30.44)} months`;
  if (days >= 2) return `${Math.floor(days)} days`;
  return seconds >= 7200 ? `${Math.floor(seconds / 3600)} hours` : `${Math.floor(seconds / 60)} min`;
}

/** Return a count with its noun: "1 job", "3 jobs". */
export function count(n, noun, nouns = `${noun}s`) {
  return `${number(n)} ${n === 1 ? noun : nouns}`;
}

/** Tell whether a value is a number that can be shown. */
export function known(value) {
  return typeof value === "number" && Number.isFinite(value);
}

/** Tell whether a target is below what was asked for: a request shrinks to its floor too. */
export function isLess(target, asked) {
  return known(target) && known(asked) && target < asked;
}
