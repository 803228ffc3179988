// Elements of HTML and SVG, made from names, attributes and text. Nothing here or anywhere on the page parses markup:
// what callers named their jobs is text, whatever it looks like. Used by every other file.

const SVG = "http://www.w3.org/2000/svg";

/** Return the element of the page with an id. */
export function byId(id) {
  return document.getElementById(id);
}

/** Make an element of HTML; children are nodes, texts, or null for nothing. */
export function html(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

/** Make an element of SVG. */
export function svg(name, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, name), attributes, children);
}

/** Put other children into an element. */
export function put(node, ...children) {
  node.replaceChildren(...children.flat().filter((each) => each !== null));
  return node;
}

/** Make a button that does something. */
export function button(text, act, attributes = {}) {
  const made = html("button", { type: "button", ...attributes }, text);
  made.addEventListener("click", act);
  return made;
}

/**
 * Make a table that scrolls by itself where it is too wide. `columns` are texts or {text, number, hint}; a row is an
 * array of cells, or {cells, ...attributes}; a cell is a text, a node, or an array of them, the first names the row.
 * The caption is read out, and `shown` where nothing else says it; a `tight` table is no wider than it has to be.
 */
export function table(caption, columns, rows, { shown = false, tight = false } = {}) {
  const heads = columns.map((each) => (typeof each === "string" ? { text: each } : each));
  const kinds = heads.map((each) => (each.number ? "number" : null));
  const line = (row) => {
    const { cells, ...attributes } = Array.isArray(row) ? { cells: row } : row;
    const made = cells.map((cell, i) =>
      html(i === 0 ? "th" : "td", { scope: i === 0 ? "row" : null, class: kinds[i] }, ...[cell].flat()));
    return html("tr", attributes, ...made);
  };
  const made = html("table", {},
    html("caption", { class: shown ? null : "unseen" }, caption),
    html("thead", {}, html("tr", {}, ...heads.map((each, i) =>
      html("th", { scope: "col", class: kinds[i], title: each.hint ?? null }, each.text)))),
    html("tbody", {}, ...rows.map(line)));
  return html("div", { class: tight ? "wide tight" : "wide", role: "group", tabindex: "0", "aria-label": caption }, made);
}

/** Show the first rows of a list by `show`, and a button for all of them where there are more. */
export function shortened(rows, first, what, show) {
  const place = html("div", {}, show(rows.slice(0, first)));
  if (rows.length <= first) return place;
  const all = button(`Show all ${rows.length} ${what}`, () => {
    put(place, show(rows));
    place.firstElementChild.focus();
  });
  place.append(all);
  return place;
}

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (/^on|^style$/i.test(name)) throw new Error(`attribute ${name}: expected one that runs and styles nothing`);
    node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.flat().filter((each) => each !== null && each !== undefined));
  return node;
}
