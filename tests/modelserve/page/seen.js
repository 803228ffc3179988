// What a visitor meets: every text with its contrast against what is behind it, and every control of the page.
// Evaluated in the page by the tests; returns {faint, small, controls}.
() => {
  const parsed = (text) => {
    const found = text.match(/[\d.]+/g)?.map(Number) ?? [0, 0, 0, 0];
    const unit = text.startsWith("color(") ? 255 : 1;
    return { rgb: found.slice(0, 3).map((each) => each * unit), alpha: found[3] ?? 1 };
  };
  const over = (front, back) => front.rgb.map((each, i) => each * front.alpha + back[i] * (1 - front.alpha));
  const ground = (node) => {
    if (node === null) return matchMedia("(prefers-color-scheme: dark)").matches ? [18, 18, 18] : [255, 255, 255];
    const own = parsed(getComputedStyle(node).backgroundColor);
    return own.alpha === 1 ? own.rgb : over(own, ground(node.parentElement));
  };
  const light = (rgb) => {
    const [r, g, b] = rgb.map((each) => each / 255).map((each) => (each <= 0.03928 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (a, b) => {
    const [high, low] = [light(a), light(b)].sort((x, y) => y - x);
    return (high + 0.05) / (low + 0.05);
  };
  const shown = (node) => node.checkVisibility({ visibilityProperty: true }) && node.getClientRects().length > 0;

  const faint = [];
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let counted = 0;
  while (texts.nextNode()) {
    const node = texts.currentNode.parentElement;
    if (!texts.currentNode.data.trim() || !shown(node) || node.closest("noscript, title")) continue;
    const style = getComputedStyle(node);
    const back = ground(node);
    const ratio = contrast(over(parsed(node instanceof SVGElement ? style.fill : style.color), back), back);
    counted += 1;
    if (ratio < 4.5) faint.push(`${texts.currentNode.data.trim().slice(0, 40)}: ${ratio.toFixed(2)}`);
  }
  const controls = [...document.querySelectorAll("a[href], button, input, select, summary, [tabindex='0']")]
    .filter((each) => shown(each) && !each.disabled);
  const small = controls.filter((each) => {
    const box = each.getBoundingClientRect();
    return each.matches("button:not(.link), input, select") && (box.width < 24 || box.height < 24);
  }).map((each) => each.id || each.textContent);
  return { faint, small, counted, controls: controls.length };
}
