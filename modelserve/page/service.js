// Calls of the service, with the token where there is one. Nothing is shown here. Used by the parts of the page.
//
// The token lives in memory and in the tab's session storage, is sent to this service only, and never stands in a URL;
// neither does anything that was typed.

const KEPT = "taut.token";
const OUTDATED = -1;
let token = stored();

/** A call that was not answered: its status (0: none came), and the fields at fault. */
export class Refused extends Error {
  constructor(status, detail, { faults = [], hadToken = false, retryAfter = null } = {}) {
    super(detail);
    Object.assign(this, { status, faults, hadToken, retryAfter });
  }

  /** Whether another token could help. */
  get isAboutToken() {
    return this.status === 401 || this.status === 403;
  }

  /** Whether the token was changed meanwhile: the answer was another's, and is not shown. */
  get isOutdated() {
    return this.status === OUTDATED;
  }

  /** What happened, in words. */
  get said() {
    if (this.status === 401) {
      return this.hadToken
        ? "The token is not accepted: it has expired, was withdrawn, or is mistyped. Enter one that holds."
        : "This service needs a token.";
    }
    if (this.status === 403) return `The token does not reach that far: ${this.message}.`;
    if (this.status === 429) return `Too many calls of this token; try again in ${this.retryAfter ?? "a few"} s.`;
    if (this.status === 503) return `The service cannot answer now: ${this.message}.`;
    if (this.isOutdated) return "The token was changed meanwhile; ask again.";
    if (this.status === 0) return "The service did not answer. It may have stopped, or the network is away.";
    return `${this.message}.`;
  }
}

/** Whether a token is in use. */
export function hasToken() {
  return token !== "";
}

/** Use a token from now on; an empty one is none. */
export function useToken(text) {
  token = text.trim();
  try {
    if (token) sessionStorage.setItem(KEPT, token);
    else sessionStorage.removeItem(KEPT);
  } catch {
    // Storage is switched off: the token holds until the page is left.
  }
}

/** Ask for something; returns its JSON. */
export function get(path) {
  return call(path, { method: "GET" });
}

/** Send a body; returns the JSON of the answer. */
export function post(path, body) {
  return call(path, { method: "POST", body: JSON.stringify(body) });
}

async function call(path, options) {
  const headers = { accept: "application/json" };
  if (options.body !== undefined) headers["content-type"] = "application/json";
  const used = token;
  const hadToken = hasToken();
  if (hadToken) headers.authorization = `Bearer ${token}`;
  let answer;
  try {
    answer = await fetch(path, { ...options, headers, cache: "no-store", credentials: "omit", redirect: "error" });
  } catch (error) {
    // A token with characters that no header takes never leaves the page.
    if (hadToken && !/^[\x21-\x7e]+$/.test(token)) throw new Refused(401, String(error), { hadToken });
    throw new Refused(0, String(error));
  }
  const said = await json(answer);
  if (used !== token) throw new Refused(OUTDATED, "the token was changed");
  if (answer.ok && said !== null) return said;
  throw new Refused(answer.status, sentence(said, answer), {
    faults: Array.isArray(said?.errors) ? said.errors : [],
    hadToken,
    retryAfter: answer.headers.get("retry-after"),
  });
}

async function json(answer) {
  try {
    return await answer.json();
  } catch {
    return null;
  }
}

function sentence(said, answer) {
  const detail = typeof said?.detail === "string" ? said.detail : `status ${answer.status}`;
  return detail.replace(/\.$/, "");
}

function stored() {
  try {
    return sessionStorage.getItem(KEPT) ?? "";
  } catch {
    return "";
  }
}
