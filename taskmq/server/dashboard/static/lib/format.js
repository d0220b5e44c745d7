// @ts-check
/** Formats times, durations and numbers for people. */

/** Cached, because creating a format is slower than using it a hundred times.
 * @type {Map<string, Intl.DateTimeFormat>} */
const formats = new Map();

/** @param {string} zone */
function formatOf(zone) {
  let found = formats.get(zone);
  if (!found) formats.set(zone, found = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "medium", timeZone: zone === "local" ? undefined : zone }));
  return found;
}

/** @param {string | null | undefined} text @param {string} zone */
export function instant(text, zone = "local") {
  if (!text) return "–";
  const moment = new Date(text);
  if (Number.isNaN(moment.getTime())) return text;
  return formatOf(zone).format(moment);
}

/** Return the day and the time of day of a time on an axis, such as 30 Jan and 18:00:00.
 * @param {number} time milliseconds @returns {[string, string]} */
export function dayAndClock(time) {
  const text = instant(new Date(time).toISOString());
  return [text.slice(0, text.lastIndexOf(",") - 5), text.slice(-8)];
}

/** Label a time on an axis: the day at midnight, otherwise the time of day.
 * @param {number} time */
export function timeLabel(time) {
  const [day, clock] = dayAndClock(time);
  return clock.startsWith("00:00") ? day : clock.slice(0, 5);
}

/** Return the zone if this browser knows it, otherwise UTC.
 * @param {string} zone */
export function validZone(zone) {
  try {
    formatOf(zone);
    return zone;
  } catch {
    return "UTC";
  }
}

/** Return a zone's offset from UTC at that time, such as GMT+2.
 * @param {string} text @param {string} zone */
export const offset = (text, zone) => new Intl.DateTimeFormat("en", { timeZone: zone, timeZoneName: "longOffset" }).formatToParts(new Date(text)).find((one) => one.type === "timeZoneName")?.value;

/** @param {string | null | undefined} text @param {number} now */
export function ago(text, now = Date.now()) {
  if (!text) return "–";
  const seconds = (new Date(text).getTime() - now) / 1000;
  if (Math.abs(seconds) < 1) return "now";
  const words = span(Math.round(Math.abs(seconds))).replace(/ min \d+ s/, " min");
  return seconds > 0 ? `in ${words}` : `${words} ago`;
}

/** @param {number | null | undefined} seconds */
export function span(seconds) {
  if (seconds === null || seconds === undefined || Number.isNaN(seconds)) return "–";
  if (seconds < 0.001) return "0 ms";
  if (seconds < 0.9995) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 59.5) return `${seconds < 9.95 && seconds % 1 ? seconds.toFixed(1) : Math.round(seconds)} s`;
  const whole = Math.round(seconds);
  const [size, unit, part, less] = whole < 3600 ? [60, "min", 1, "s"] : whole < 86400 ? [3600, "h", 60, "min"] : [86400, "d", 3600, "h"];
  const rest = Math.floor((whole % size) / part);
  return `${Math.floor(whole / size)} ${unit}${rest ? ` ${rest} ${less}` : ""}`;
}

/** Return the seconds between two times; undefined if one is missing.
 * @param {string | null | undefined} from @param {string | null | undefined} to */
export function between(from, to) {
  if (!from || !to) return undefined;
  return (new Date(to).getTime() - new Date(from).getTime()) / 1000;
}

/** Return the seconds that a run or a step has taken; undefined if it has not started.
 * @param {{started: string | null, ended: string | null}} one */
export const ran = ({ started, ended }) => between(started, ended ?? new Date().toISOString());

/** Return the seconds that a job waited for its first run; a retry or a pause moves its scheduled time.
 * @param {any} job */
export function waited(job) {
  const due = job.schedule_time ?? job.submitted_at;
  return between(Date.parse(due) > Date.parse(job.first_start_time) ? job.submitted_at : due, job.first_start_time);
}

/** @param {number | null | undefined} value */
export const count = (value) => (value === null || value === undefined ? "–" : String(value).replace(/\B(?=(\d{3})+(?!\d))/g, ","));

/** Format a count of the API; + if there may be more.
 * @param {{count: number, is_exact: boolean}} of */
export const countText = ({ count: many, is_exact }) => `${count(many)}${is_exact ? "" : "+"}`;

/** Format a number of things.
 * @param {number} many @param {string} noun in the singular */
export const plural = (many, noun) => `${count(many)} ${noun}${many === 1 ? "" : "s"}`;

/** @param {number} bytes */
export function size(bytes) {
  if (!bytes) return "–";
  const units = ["B", "kB", "MB", "GB", "TB"];
  let value = bytes, unit = 0;
  while (value >= 1000 && unit < units.length - 1) { value /= 1000; unit += 1; }
  return `${value < 10 && unit ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
}

/** Quote a filter value if necessary.
 * @param {string} value */
export const quote = (value) =>
  /^[^\s,"*:]+$/.test(value) ? value : `"${value.replace(/["\\]/g, (found) => `\\${found}`)}"`;

/** @param {unknown} value */
export const pretty = (value) => JSON.stringify(value, null, 2) ?? "";

/** Format an error in one line: its type without the module, and the start of its message.
 * @param {{type: string, message: string} | null | undefined} error */
export const failure = (error) => (error ? `${error.type.split(".").at(-1)}: ${error.message}`.slice(0, 160) : "");

const SIZES = new Set(["memory", "storage"]);

/** Format a resource amount; memory and storage as sizes that `readAmounts` accepts.
 * @param {string} name @param {number} value */
export function amount(name, value) {
  if (!SIZES.has(name) || !value) return String(Math.round(value * 1000) / 1000);
  const unit = [..."TGMK"].findIndex((_, at) => value >= 1024 ** (4 - at));
  return unit < 0 ? String(value) : `${Math.round((value / 1024 ** (4 - unit)) * 100) / 100}${"TGMK"[unit]}`;
}

/** @param {Record<string, number>} of */
export const amounts = (of) => Object.entries(of).map(([name, value]) => `${name}=${amount(name, value)}`).join(" ");

/** Parse amounts such as `slots=4 memory=2G`; throws an error with a readable message.
 * @param {string} text @returns {Record<string, number>} */
export function readAmounts(text) {
  return Object.fromEntries(text.split(/[\s,]+/).filter(Boolean).map((one) => {
    const found = /^([^=]+)=(\d+(?:\.\d+)?)([KMGT]?)$/.exec(one);
    if (!found) throw new Error(`${one} is not an amount, such as slots=4 or memory=2G.`);
    return [found[1], Number(found[2]) * 1024 ** (found[3] ? "KMGT".indexOf(found[3]) + 1 : 0)];
  }));
}
