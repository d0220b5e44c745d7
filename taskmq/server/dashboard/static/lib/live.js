// @ts-check
/** One stream of events for all tabs: the tab with the lock has it and tells the others; a hidden tab gives it up.
 * Without locks (plain HTTP) each tab has one. Without a stream, pages ask again every few seconds. */
import { API, may, session } from "./api.js";
import { useEffect, useState } from "./html.js";
import { route } from "./route.js";

/** @typedef {"live" | "paused" | "reconnecting" | "polling"} LiveState */

const POLL = 10_000;
const COALESCED = 1_000;
const AGAIN = 15_000;

/** @type {LiveState} */
let state = "polling";
/** @type {Set<() => void>} */
const watchers = new Set();
/** @type {Set<(kinds: Set<string>) => void>} */
const listeners = new Set();
/** @type {Set<string>} */
let waiting = new Set();
let timer = 0;

/** @param {LiveState} next */
function become(next) {
  if (state === next) return;
  state = next;
  for (const watcher of [...watchers]) watcher();
}

/** Tell listeners of events of this kind, once a second at most.
 * @param {string} kind */
function happened(kind) {
  waiting.add(kind);
  timer ||= window.setTimeout(() => {
    timer = 0;
    const kinds = waiting;
    waiting = new Set();
    for (const listener of [...listeners]) listener(kinds);
  }, COALESCED);
}

/** Read everything on the page again. */
export function refresh() {
  for (const listener of [...listeners]) listener(new Set(["all"]));
}

/** @type {BroadcastChannel | null} */
let channel = null;
/** @type {AbortController | null} */
let holding = null;

/** The tenant whose events are followed; "" for all that one may see. */
let following = "";
const tenantOf = () => route().query.tenant ?? "";
const lockName = () => `taskmq.events.${following}`;

let hasBegun = false;

/** Begin, or go on for who has signed in now. */
export function startLive() {
  if (hasBegun) return follow();
  hasBegun = true;
  channel = "BroadcastChannel" in window ? new BroadcastChannel("taskmq") : null;
  channel?.addEventListener("message", ({ data }) => {
    if (data.of !== following) return;
    if (data.state && !document.hidden) become(data.state);
    for (const kind of data.kinds ?? []) happened(kind);
  });
  document.addEventListener("visibilitychange", follow);
  addEventListener("hashchange", () => { if (tenantOf() !== following) follow(); });
  window.setInterval(() => {
    if (!document.hidden && state !== "live") happened("all");
  }, POLL);
  follow();
}

export function stopLive() {
  holding?.abort();
  holding = null;
}

function follow() {
  stopLive();
  if (document.hidden) return become("paused");
  if (state === "paused") refresh();
  following = tenantOf();
  const roles = session.caller?.memberships ?? [];
  // Who has roles on several tenants has to choose one.
  const isClear = following || roles.length === 1 || roles.some((one) => one.tenant === "*");
  if (!may("events.read") || !isClear) return become("polling");
  become("reconnecting");
  const own = new AbortController();
  holding = own;
  if (!navigator.locks) return void stream(own.signal);
  // Another tab may have the stream.
  navigator.locks.query().then((locks) => {
    if (!own.signal.aborted && locks.held?.some((lock) => lock.name === lockName())) become("live");
  });
  navigator.locks.request(lockName(), { signal: own.signal }, () => stream(own.signal)).catch(() => undefined);
}

/** Follow until told to stop.
 * @param {AbortSignal} signal @returns {Promise<void>} */
function stream(signal) {
  return new Promise((ended) => {
    const where = new URL("events", API);
    // A count is enough, as there may be thousands of jobs a second.
    where.searchParams.set("digest", "true");
    if (following) where.searchParams.set("tenant", following);
    const of = following;
    /** @type {EventSource} */
    let source;
    let later = 0;
    /** @param {LiveState} next */
    const tell = (next) => { become(next); channel?.postMessage({ of, state: next }); };
    /** @param {string[]} kinds */
    const pass = (kinds) => { kinds.forEach(happened); channel?.postMessage({ of, kinds }); };
    const open = () => {
      source = new EventSource(where);
      source.onopen = () => { tell("live"); pass(["all"]); };
      source.onerror = () => {
        const isRefused = source.readyState === EventSource.CLOSED;
        tell(isRefused ? "polling" : "reconnecting");
        // A browser tries again only if it got no answer.
        if (isRefused) later = window.setTimeout(open, AGAIN);
      };
      source.addEventListener("digest", ({ data }) => pass(Object.keys(JSON.parse(data))));
      for (const kind of ["gap", "missed", "broker"]) source.addEventListener(kind, () => pass(["all"]));
    };
    open();
    signal.addEventListener("abort", () => { clearTimeout(later); source.close(); ended(); });
  });
}

/** The state of the stream. */
export function useLive() {
  const [, again] = useState(0);
  useEffect(() => {
    const watcher = () => again((/** @type {number} */ n) => n + 1);
    watchers.add(watcher);
    return () => void watchers.delete(watcher);
  }, []);
  return state;
}

/** Call `listener` when something of these kinds happened.
 * @param {string[]} kinds @param {() => void} listener */
export function onEvents(kinds, listener) {
  /** @param {Set<string>} found */
  const each = (found) => {
    if (found.has("all") || kinds.some((kind) => found.has(kind))) listener();
  };
  listeners.add(each);
  return () => void listeners.delete(each);
}
