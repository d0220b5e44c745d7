// @ts-check
/** Scales of charts: round marks for values and times, and the positions between them. */

const MINUTE = 60_000;
const STEPS = [...[1, 2, 5, 10, 15, 30].map((seconds) => seconds * 1000), ...[1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440, 2880].map((minutes) => minutes * MINUTE)];
const MOST_DECADES = 5;

/** Return the round values of an axis from its lowest to its highest mark.
 * @param {number[]} values @param {boolean} isLog @param {number} least smallest distance between two marks
 * @returns {number[]} */
export function valueMarks(values, isLog, least) {
  const most = Math.max(...values, 0);
  if (isLog) {
    const high = Math.ceil(Math.log10(most || 1));
    const low = Math.floor(Math.log10(Math.min(...values.filter((one) => one > 0), most || 1)));
    const from = Math.max(Math.min(low, high - 1), high - MOST_DECADES);
    return Array.from({ length: high - from + 1 }, (_, at) => 10 ** (from + at));
  }
  const rough = Math.max(most / 4, least);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = ([1, 2, 2.5, 5].find((one) => one * power >= rough) ?? 10) * power;
  return Array.from({ length: Math.max(Math.ceil(most / step - 1e-9), 1) + 1 }, (_, at) => at * step);
}

/** Return the position of a value between the first mark, 0, and the last, 1.
 * @param {number} value @param {number[]} marks @param {boolean} isLog */
export function positionOf(value, marks, isLog) {
  const [low, high] = [marks[0], marks[marks.length - 1]].map((one) => (isLog ? Math.log10(one) : one));
  return Math.max(0, ((isLog ? Math.log10(Math.max(value, marks[0])) : value) - low) / (high - low));
}

/** Return the round times of an axis, in local time.
 * @param {number} from @param {number} to milliseconds @param {number} most number of marks @param {number} least smallest distance between two marks @returns {number[]} */
export function timeMarks(from, to, most, least = MINUTE) {
  const step = STEPS.find((one) => one >= least && (to - from) / one <= most) ?? 7 * 1440 * MINUTE;
  const shift = new Date(from).getTimezoneOffset() * MINUTE;
  const first = Math.ceil((from - shift) / step) * step + shift;
  return Array.from({ length: Math.max(0, Math.floor((to - first) / step) + 1) }, (_, at) => first + at * step);
}
