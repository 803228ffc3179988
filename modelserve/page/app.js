// The page put together: the token, the sections, and what happens when the service refuses. What is shown of models,
// jobs and recommendations is the other files' business.

import { byId } from "./elements.js";
import { offer } from "./job.js";
import { showModels } from "./models.js";
import { showRecent } from "./recent.js";
import { hasToken, useToken } from "./service.js";
import { tryJob } from "./trying.js";
import { count } from "./words.js";

const AGAIN_MS = 600;
const access = byId("access");
const toggle = byId("token-toggle");

start();

function start() {
  byId("job-ask").disabled = false;
  byId("job").addEventListener("submit", (event) => {
    event.preventDefault();
    tryJob(demandToken).then((answerId) => (answerId === null ? null : refreshUntil(answerId)));
  });
  byId("access-form").addEventListener("submit", (event) => {
    event.preventDefault();
    useToken(byId("token").value);
    byId("token").value = "";
    open();
  });
  byId("token-forget").addEventListener("click", () => {
    useToken("");
    byId("token").value = "";
    open();
  });
  toggle.addEventListener("click", () => {
    showAccess(access.hidden, hasToken() ? "A token is in use." : "No token is in use.");
    if (!access.hidden) byId("token").focus();
  });
  byId("models-refresh").addEventListener("click", () => section("models", showOffered));
  byId("recent-refresh").addEventListener("click", () => section("recent", showRecent));
  open();
}

/** Show everything anew, with the token that is in use now. */
async function open() {
  showAccess(false, "");
  toggle.textContent = hasToken() ? "Token in use" : "Token";
  if (await section("models", showOffered)) await section("recent", showRecent);
}

async function showOffered() {
  const models = await showModels();
  offer(models);
  const serving = models.length;
  setState(serving ? "up" : "none", serving ? `Answering with ${count(serving, "model")}` : "No model serves");
}

/** Show one section; what keeps it from being shown is said in its place. */
async function section(name, show) {
  const place = byId(name);
  place.setAttribute("aria-busy", "true");
  try {
    await show();
    return true;
  } catch (refused) {
    if (refused.isOutdated) return false;
    if (name === "models") {
      if (refused.isAboutToken) clearShown();
      setState(refused.status === 0 ? "away" : "refused", refused.status === 0 ? "No answer" : "Not shown");
    }
    if (refused.isAboutToken) demandToken(refused);
    // Where a token is asked for, it is said there and once.
    if (refused.status !== 401) byId(`${name}-says`).textContent = refused.said ?? String(refused);
    return false;
  } finally {
    place.removeAttribute("aria-busy");
  }
}

/** Take away what an earlier token had shown. */
function clearShown() {
  for (const id of ["models-body", "model-detail-body", "recent-body", "realised-body", "answer"]) byId(id).replaceChildren();
  for (const id of ["models-says", "recent-says"]) byId(id).textContent = "";
  for (const id of ["model-detail", "answer"]) byId(id).hidden = true;
}

function demandToken(refused) {
  if (refused.status === 401) {
    clearShown();
    setState("refused", "Not shown");
  }
  showAccess(true, refused.said);
  byId("token").focus();
}

function showAccess(shown, why) {
  access.hidden = !shown;
  toggle.setAttribute("aria-expanded", String(shown));
  byId("access-why").textContent = why;
}

function setState(kind, text) {
  byId("state").className = kind;
  byId("state").textContent = text;
}

/** Show the recommendation that was just given, once the log has it: answers are written a moment after they are given. */
function refreshUntil(answerId, times = 5) {
  setTimeout(async () => {
    let held = true;
    const shown = await section("recent", async () => {
      held = (await showRecent()).some((each) => each.answer_id === answerId);
    });
    if (shown && !held && times > 1) refreshUntil(answerId, times - 1);
  }, AGAIN_MS);
}
