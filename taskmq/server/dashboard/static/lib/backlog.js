// @ts-check
/** The state of a queue: whether its jobs run, wait, or become more. */
import { session } from "./api.js";

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
  const recent = known.findLast((reading) => at - reading.at >= MINUTE / 2);
  if (!first || !recent || depth < recent.depth || depth - first.depth < FEW) return 0;
  return Math.round((depth - first.depth) * MINUTE / (at - first.at));
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
