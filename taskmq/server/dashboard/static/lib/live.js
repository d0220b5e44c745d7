// @ts-check
/** One event stream for all tabs: the tab that holds the lock opens it and forwards events; a hidden tab releases it.
 * Without locks (plain HTTP) each tab opens its own. Without a stream, pages poll every few seconds. */
import { ages, API, may, session } from "./api.js";
import { useEffect, useState } from "./html.js";
import { route } from "./route.js";

/** @typedef {"live" | "paused" | "reconnecting" | "polling"} LiveState */

const POLL = 10_000;
const COALESCED = 1_000;
const AGAIN = 15_000;
// Twice the interval of polling, and the time of a request.
const STALE = 25_000;
// Seconds. A replica that keeps up is at most one behind.
const LATE = 2;

/** @type {LiveState} */
let state = "polling";
/** @type {Set<() => void>} */
const watchers = new Set();
/** @type {Set<(kinds: Set<string>) => void>} */
const listeners = new Set();
/** @type {Set<string>} */
let waiting = new Set();
let timer = 0;

/** When the server last answered a read, and whether it has answered the last one. */
let answeredAt = Date.now();
let isAnswering = true;

/** @param {LiveState} next */
function setState(next) {
  if (state === next) return;
  state = next;
  for (const watcher of [...watchers]) watcher();
}

/** Note whether the server answered a read.
 * @param {boolean} isAnswer */
export function noteRead(isAnswer) {
  isAnswering = isAnswer;
  if (isAnswer) answeredAt = Date.now();
}

/** Return the age in milliseconds of the data on the page if it may be outdated, otherwise 0.
 * @param {number} now */
export function staleness(now) {
  const age = now - answeredAt;
  return state === "paused" || (state === "live" && isAnswering) || age < STALE ? 0 : age;
}

/** Return the age in milliseconds of the oldest list on the page that a replica of the store answered late, otherwise 0. */
export function replicaAge() {
  const age = Math.max(0, ...ages.values());
  return age < LATE ? 0 : 1000 * age;
}

/** Notify listeners of events of this kind, at most once a second.
 * @param {string} kind */
function queueEvent(kind) {
  waiting.add(kind);
  timer ||= window.setTimeout(() => {
    timer = 0;
    const kinds = waiting;
    waiting = new Set();
    for (const listener of [...listeners]) listener(kinds);
  }, COALESCED);
}

/** Reload all data of the page. */
export function refresh() {
  for (const listener of [...listeners]) listener(new Set(["all"]));
}

/** @type {BroadcastChannel | null} */
let channel = null;
/** @type {AbortController | null} */
let holding = null;

/** The tenant whose events are followed; "" for all visible ones. */
let following = "";
const tenantOf = () => route().query.tenant ?? "";
const lockName = () => `taskmq.events.${following}`;

let hasBegun = false;

/** Start the stream, or restart it after another user signed in. */
export function startLive() {
  if (hasBegun) return follow();
  hasBegun = true;
  channel = "BroadcastChannel" in window ? new BroadcastChannel("taskmq") : null;
  channel?.addEventListener("message", ({ data }) => {
    if (data.of !== following) return;
    if (data.state && !document.hidden) setState(data.state);
    for (const kind of data.kinds ?? []) queueEvent(kind);
  });
  document.addEventListener("visibilitychange", follow);
  addEventListener("hashchange", () => { ages.clear(); if (tenantOf() !== following) follow(); });
  window.setInterval(() => {
    // No event says that a scheduler is gone, an alert fires, or a job has become overdue.
    if (!document.hidden) queueEvent(state === "live" ? "time" : "all");
  }, POLL);
  follow();
}

export function stopLive() {
  holding?.abort();
  holding = null;
}

function follow() {
  stopLive();
  if (document.hidden) return setState("paused");
  if (state === "paused") refresh();
  following = tenantOf();
  const roles = session.caller?.memberships ?? [];
  // Users with roles on several tenants must select one.
  const isClear = following || roles.length === 1 || roles.some((one) => one.tenant === "*");
  if (!may("events.read") || !isClear) return setState("polling");
  setState("reconnecting");
  const own = new AbortController();
  holding = own;
  if (!navigator.locks) return void stream(own.signal);
  // Another tab may have the stream.
  navigator.locks.query().then((locks) => {
    if (!own.signal.aborted && locks.held?.some((lock) => lock.name === lockName())) setState("live");
  });
  navigator.locks.request(lockName(), { signal: own.signal }, () => stream(own.signal)).catch(() => undefined);
}

/** Follow the stream until aborted.
 * @param {AbortSignal} signal @returns {Promise<void>} */
function stream(signal) {
  return new Promise((ended) => {
    const where = new URL("events", API);
    // Counts are enough, because there may be thousands of jobs a second.
    where.searchParams.set("digest", "true");
    if (following) where.searchParams.set("tenant", following);
    const of = following;
    /** @type {EventSource} */
    let source;
    let later = 0;
    /** @param {LiveState} next */
    const tell = (next) => { setState(next); channel?.postMessage({ of, state: next }); };
    /** @param {string[]} kinds */
    const pass = (kinds) => { kinds.forEach(queueEvent); channel?.postMessage({ of, kinds }); };
    const open = () => {
      source = new EventSource(where);
      source.onopen = () => { tell("live"); pass(["all"]); };
      source.onerror = () => {
        const isRefused = source.readyState === EventSource.CLOSED;
        tell(isRefused ? "polling" : "reconnecting");
        // Browsers only reconnect if there was no response.
        if (isRefused) later = window.setTimeout(open, AGAIN);
      };
      source.addEventListener("digest", ({ data }) => pass(Object.keys(JSON.parse(data))));
      for (const kind of ["gap", "missed", "broker"]) source.addEventListener(kind, () => pass(["all"]));
    };
    open();
    signal.addEventListener("abort", () => { clearTimeout(later); source.close(); ended(); });
  });
}

/** Use the state of the stream. */
export function useLive() {
  const [, again] = useState(0);
  useEffect(() => {
    const watcher = () => again((/** @type {number} */ n) => n + 1);
    watchers.add(watcher);
    return () => void watchers.delete(watcher);
  }, []);
  return state;
}

/** Call `listener` after events of these kinds.
 * @param {string[]} kinds @param {() => void} listener */
export function onEvents(kinds, listener) {
  /** @param {Set<string>} found */
  const each = (found) => {
    if (found.has("all") || kinds.some((kind) => found.has(kind))) listener();
  };
  listeners.add(each);
  return () => void listeners.delete(each);
}
