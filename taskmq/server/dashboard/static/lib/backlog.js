// @ts-check
/** The state of a queue: whether its jobs run, wait, or become more. */
import { may, session } from "./api.js";
import { useData } from "./data.js";
import { since } from "./figures.js";
import { span } from "./format.js";

const MINUTE = 60_000;
const FEW = 10;

/** Earlier depths by tenant and queue, of the last five minutes.
 * @type {Map<string, {at: number, depth: number}[]>} */
const readings = new Map();

/** Return the number of jobs that wait in a queue, in the store and at the broker.
 * @param {any} one */
export const backlogOf = (one) => one.ready + (one.stored ?? 0);

/** Record the depth of a queue and return by how many jobs a minute it grows; 0 if that is not known yet.
 * @param {any} one @param {number} at when it was read */
export function growthOf(one, at) {
  const key = `${session.tenant} ${one.queue}`;
  const known = (readings.get(key) ?? []).filter((reading) => reading.at > at - 5 * MINUTE && reading.at < at);
  const depth = backlogOf(one);
  readings.set(key, [...known, { at, depth }]);
  const first = known[0];
  // After a flood it is deeper than five minutes ago, and shrinks.
  const recent = known.filter((reading) => at - reading.at >= MINUTE / 2).at(-1);
  if (!first || !recent || depth < recent.depth || depth - first.depth < FEW) return 0;
  return Math.round((depth - first.depth) * MINUTE / (at - first.at));
}

/** Whether a queue has jobs of the app: those of lost messages only matter if they have any.
 * @param {any} one */
export const isWork = (one) => !one.queue.startsWith("taskmq.") || one.dead + backlogOf(one) > 0;

/** Return the places of a queue's jobs, for a bar.
 * @param {any} one @returns {[string, number | null, string][]} */
export const placesOf = (one) => [["with workers", one.in_hand, "run"], ["at the broker", one.ready, "cool"], ["in the store", one.stored ?? 0, "rest"]];

/** Return how long the oldest job of a queue has waited, as text.
 * @param {any} one @param {number} at when it was read */
export const waitOf = (one, at) => (one.oldest ? span(Math.max(0, (at - Date.parse(one.oldest)) / 1000)) : "–");

/** Load the depths of all queues over a day, for small trends.
 * @returns {Map<string, (number | null)[]>} by queue: the most jobs of each half hour */
export function useDepths() {
  const { data } = useData(may("metrics.read") && !session.tenant ? "metrics/query" : null, { metric: "depth_stored,depth_ready,depth_in_hand", since: since("24h"), step: 1800, by: "queue", max_age: 60 }, ["job"], 60_000);
  /** @type {Map<string, (number | null)[]>} */
  const found = new Map();
  for (const { labels, points } of data?.items ?? []) {
    const before = found.get(labels.queue);
    found.set(labels.queue, points.map((/** @type {any} */ one, /** @type {number} */ at) => (one.value === null ? null : one.value + (before?.[at] ?? 0))));
  }
  return found;
}

/** @typedef {{word: string, icon: string, kind: string, growth: number}} QueueState */

/** Return the state of a queue.
 * @param {any} one @param {number} at when it was read @returns {QueueState | null} null if it is not known */
export function stateOf(one, at) {
  const growth = growthOf(one, at);
  if (one.is_paused ?? one.paused) return { word: "Paused", icon: "held", kind: "held", growth };
  if (backlogOf(one) > 0 && !one.consumers) return { word: "No workers", icon: "workers", kind: "failed", growth };
  if (growth > 0) return { word: "Growing", icon: "queues", kind: "retrying", growth };
  return one.is_paused === null ? null : { word: "Active", icon: "succeeded", kind: "succeeded", growth };
}
