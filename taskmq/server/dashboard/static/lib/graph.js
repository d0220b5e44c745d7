// @ts-check
/** Draws steps as boxes in layers, with few crossing edges. */
import { html, useSize } from "./html.js";

/** @typedef {{id: string, after: string[], label: string, note: string, mark: string, kind: string, href: string}} Box */
/** @typedef {{id: string, layer: number, at: number, box: Box | null, before: Cell[], behind: Cell[]}} Cell */

const WIDEST = 168, NARROWEST = 100, HEIGHT = 42, GAP_X = 14, GAP_Y = 30, EDGE = 12, SWEEPS = 6;

/** Arrange boxes in columns. An edge across several layers gets an empty cell in each layer between.
 * @param {Box[]} boxes @returns {Cell[][]} */
export function columns(boxes) {
  const layerOf = new Map();
  // Boxes come in order; edges from later boxes are ignored.
  for (const { id, after } of boxes) layerOf.set(id, Math.max(-1, ...after.map((each) => layerOf.get(each) ?? -1)) + 1);
  /** @type {Cell[][]} */
  const found = [];
  /** @param {string} id @param {number} layer @param {Box | null} box @returns {Cell} */
  const add = (id, layer, box) => {
    while (found.length <= layer) found.push([]);
    const cell = { id, layer, at: found[layer].length, box, before: [], behind: [] };
    found[layer].push(cell);
    return cell;
  };
  const cells = new Map(boxes.map((box) => [box.id, add(box.id, layerOf.get(box.id) ?? 0, box)]));
  for (const box of boxes) {
    const end = /** @type {Cell} */ (cells.get(box.id));
    for (const id of new Set(box.after)) {
      let from = cells.get(id);
      if (!from || from.layer >= end.layer) continue;
      for (let layer = from.layer + 1; layer <= end.layer; layer += 1) {
        const next = layer === end.layer ? end : add(`${id} ${box.id} ${layer}`, layer, null);
        from.behind.push(next);
        next.before.push(from);
        from = next;
      }
    }
  }
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const isForth = sweep % 2 === 0;
    for (const column of isForth ? found : [...found].reverse()) arrange(column, isForth ? "before" : "behind");
  }
  return found;
}

/** Place each cell of a column at the mean position of its neighbours, keeping their order.
 * @param {Cell[]} column @param {"before" | "behind"} side */
function arrange(column, side) {
  const wanted = new Map(column.map((cell) => {
    const others = cell[side];
    return [cell, others.length ? others.reduce((sum, each) => sum + each.at, 0) / others.length : cell.at];
  }));
  column.sort((a, b) => /** @type {number} */ (wanted.get(a)) - /** @type {number} */ (wanted.get(b)) || a.at - b.at);
  // As near as possible below the previous cell; then shift the whole column by the mean offset.
  let last = -1;
  const free = column.map((cell) => { last = Math.max(last + 1, /** @type {number} */ (wanted.get(cell))); return last; });
  const shift = column.reduce((sum, cell, at) => sum + /** @type {number} */ (wanted.get(cell)) - free[at], 0) / (column.length || 1);
  column.forEach((cell, at) => { cell.at = free[at] + shift; });
}

const short = (/** @type {string} */ text, /** @type {number} */ most) => ([...text].length > most ? `${[...text].slice(0, most - 1).join("")}…` : text);

/** @param {{boxes: Box[], label: string}} props */
export function Graph({ boxes, label }) {
  const [place, room] = useSize();
  const layers = columns(boxes);
  const cells = layers.flat();
  const left = Math.min(...cells.map((cell) => cell.at));
  const beside = Math.max(...cells.map((cell) => cell.at)) - left + 1;
  // As wide as the card has room for.
  const each = Math.max(NARROWEST, Math.min(WIDEST, (room.width - 2 * EDGE + GAP_X) / beside - GAP_X));
  const x = (/** @type {Cell} */ cell) => (cell.at - left) * (each + GAP_X) + EDGE;
  const y = (/** @type {Cell} */ cell) => cell.layer * (HEIGHT + GAP_Y) + 4;
  const width = Math.floor(beside * (each + GAP_X) - GAP_X + 2 * EDGE);
  const height = layers.length * (HEIGHT + GAP_Y) - GAP_Y + 4 + EDGE;
  const edge = (/** @type {Cell} */ from, /** @type {Cell} */ to) => {
    const startX = x(from) + each / 2, startY = y(from) + HEIGHT, endX = x(to) + each / 2, endY = y(to), half = (endY - startY) / 2;
    return `M${startX} ${startY}C${startX} ${startY + half} ${endX} ${endY - half} ${endX} ${endY}${to.box ? "" : `V${endY + HEIGHT}`}`;
  };
  return html`${(width > room.width || height > room.height) && html`<p class="dim">Scroll to see all steps.</p>`}
    <div class="scroll graph" ref=${place} tabIndex="0" role="group" aria-label=${`${label}: ${boxes.length} steps, listed in the table with their predecessors`}><svg width=${width} height=${height} viewBox=${`0 0 ${width} ${height}`}>
    ${cells.flatMap((cell) => cell.behind.map((to) => html`<path key=${`${cell.id} ${to.id}`} d=${edge(cell, to)} />`))}
    ${cells.map((cell) => cell.box && html`<a key=${cell.id} href=${cell.box.href} data-step=${cell.id} aria-label=${`${cell.box.label}: ${cell.box.kind.replace("_", " ")}`}><g class=${`s-${cell.box.kind}`} transform=${`translate(${x(cell)} ${y(cell)})`}><title>${cell.box.label}: ${[...new Set([cell.box.kind.replace("_", " "), cell.box.note])].join(", ")}</title><rect width=${each} height=${HEIGHT} rx="6" /><text x="10" y="18">${cell.box.mark} ${short(cell.box.label, (each - 34) / 7)}</text><text class="dim" x="10" y="34">${short(cell.box.note, (each - 20) / 6)}</text></g></a>`)}</svg></div>`;
}
