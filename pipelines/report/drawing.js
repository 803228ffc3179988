// Draws every chart of the page into its place; what fails says so there.
"use strict";
const specs = JSON.parse(document.getElementById("charts").textContent);
// Expressions are interpreted: nothing is made into a program, which the page's policy would refuse.
const how = { mode: "vega-lite", renderer: "svg", actions: false, ast: true, defaultStyle: false };
const draw = (place) =>
  vegaEmbed(place, specs[place.dataset.chart], how).catch((error) => {
    place.classList.add("failed");
    place.textContent = `This chart could not be drawn: ${error.message}`;
  });
Promise.all([...document.querySelectorAll("[data-chart]")].map(draw)).then(() => {
  document.documentElement.dataset.drawn = String(Math.round(performance.now()));
});
