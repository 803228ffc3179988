// Draws the charts of the page into their places: those near what is seen first, the others when nothing else is to do,
// all of them before the page is printed. What fails says so in its place.
"use strict";
const specs = JSON.parse(document.getElementById("charts").textContent);
// Expressions are interpreted: nothing is made into a program, which the page's policy would refuse.
const how = { mode: "vega-lite", renderer: "svg", actions: false, ast: true, defaultStyle: false };
const places = [...document.querySelectorAll("[data-chart]")];
const waiting = new Set(places);
let missing = places.length;

const tell = () => {
  if (missing === 0) document.documentElement.dataset.drawn = String(Math.round(performance.now()));
};
const draw = async (place) => {
  if (!waiting.delete(place)) return;
  try {
    await vegaEmbed(place, specs[place.dataset.chart], how);
  } catch (error) {
    place.classList.add("failed");
    place.textContent = `This chart could not be drawn: ${error.message}`;
  }
  missing -= 1;
  tell();
};
const drawAll = () => [...waiting].forEach(draw);

const whenIdle = (act) => (window.requestIdleCallback ? requestIdleCallback(act) : setTimeout(act, 20));
const drawRest = () => {
  const [next] = waiting;
  if (next) draw(next).then(() => whenIdle(drawRest));
};

if (!("IntersectionObserver" in window) || matchMedia("print").matches) {
  drawAll();
} else {
  const near = new IntersectionObserver((seen) => {
    for (const each of seen.filter((one) => one.isIntersecting)) {
      near.unobserve(each.target);
      draw(each.target);
    }
  }, { rootMargin: "400px" });
  places.forEach((place) => near.observe(place));
  addEventListener("load", () => whenIdle(drawRest));
  addEventListener("beforeprint", drawAll);
}
tell();
