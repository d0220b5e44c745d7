// @ts-check
/** Differences of two texts, line by line. */

const AROUND = 3;
// Comparing more pairs of lines takes too long. Without it, the differences are correct, but more than necessary.
const MOST = 4_000_000;

/** Compare two texts. Returns the changed lines and some around them: a mark (`-`, `+` or a space), and the line.
 * @param {string} before @param {string} after @returns {[string, string][]} */
export function compare(before, after) {
  const [old, now] = [before.split("\n"), after.split("\n")];
  const least = Math.min(old.length, now.length);
  let [head, tail] = [0, 0];
  while (head < least && old[head] === now[head]) head += 1;
  while (tail < least - head && old[old.length - 1 - tail] === now[now.length - 1 - tail]) tail += 1;
  const [a, b] = [old, now].map((lines) => lines.slice(head, lines.length - tail));
  /** How many lines the rests from `i` and `j` on have in common.
   * @type {Uint16Array[]} */
  const common = [];
  if (a.length * b.length <= MOST) {
    for (let i = a.length; i >= 0; i -= 1) {
      common[i] = new Uint16Array(b.length + 1);
      for (let j = b.length - 1; i < a.length && j >= 0; j -= 1) common[i][j] = a[i] === b[j] ? common[i + 1][j + 1] + 1 : Math.max(common[i + 1][j], common[i][j + 1]);
    }
  }
  const found = /** @type {[string, string][]} */ ([]);
  let [i, j] = [0, 0];
  while (i < a.length || j < b.length) {
    if (i < a.length && a[i] === b[j]) { found.push([" ", a[i]]); i += 1; j += 1; }
    else if (i < a.length && (j === b.length || (common[i + 1]?.[j] ?? 0) >= (common[i]?.[j + 1] ?? 0))) { found.push(["-", a[i]]); i += 1; }
    else { found.push(["+", b[j]]); j += 1; }
  }
  if (!found.length) return found;
  const same = (/** @type {string[]} */ lines) => lines.map((line) => /** @type {[string, string]} */ ([" ", line]));
  return [...same(old.slice(Math.max(0, head - AROUND), head)), ...found, ...same(now.slice(now.length - tail, now.length - tail + AROUND))];
}
