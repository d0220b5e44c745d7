// @ts-check
/** Loads the data of a page and keeps it up to date. */
import { read } from "./api.js";
import { useEffect, useLayoutEffect, useRef, useState } from "./html.js";
import { noteRead, onEvents } from "./live.js";

/**
 * @typedef {{data: any, error: Error | null, isLoading: boolean, at: number, path: string, query: Record<string, unknown>, reload: () => void, refresh: () => void}} Loaded
 * `reload` stops the request in flight; `refresh` waits for its end, so that it may take longer than the time between two calls.
 */

/** Load data, and reload it after events of these kinds. Data stays while it reloads; with `error` it is outdated.
 * @param {string | null} path below the API; null to load nothing.
 * @param {Record<string, unknown>} [query]
 * @param {string[]} [kinds] of events: `job`, `worker`.
 * @param {number} [least] minimum milliseconds between two requests.
 * @returns {Loaded}
 */
export function useData(path, query = {}, kinds = ["job"], least = 3000) {
  const [found, set] = useState({ subject: "", data: null, error: /** @type {Error | null} */ (null), at: 0 });
  const [turn, again] = useState(0);
  const busy = useRef(false);
  const isDue = useRef(false);
  const begun = useRef(0);
  // Show the user's own changes at once.
  const isFresh = useRef(false);
  const readAgain = () => again((/** @type {number} */ n) => n + 1);
  // What has changed during a request may be missing in its response.
  const refresh = () => { if (busy.current) isDue.current = true; else readAgain(); };
  const key = path === null ? "" : `${path}?${JSON.stringify(query)}`;
  // Data of a period stays while its later end loads.
  const subject = key && `${path}?${JSON.stringify({ ...query, since: "" })}`;
  // A layout effect, because the next paint would be empty.
  useLayoutEffect(() => {
    if (path === null) return undefined;
    const stopped = new AbortController();
    busy.current = true;
    isDue.current = false;
    begun.current = Date.now();
    const asked = isFresh.current && query.max_age ? { ...query, max_age: 0 } : query;
    isFresh.current = false;
    read(path, asked, stopped.signal).then(
      (data) => { noteRead(true); set({ subject, data, error: null, at: Date.now() }); },
      (error) => {
        if (stopped.signal.aborted) return;
        noteRead(error.status > 0 && error.status < 500);
        set((/** @type {any} */ before) => ({ ...(before.subject === subject ? before : { subject, data: null, at: 0 }), error }));
      },
    ).finally(() => {
      if (stopped.signal.aborted) return;
      busy.current = false;
      if (isDue.current) readAgain();
    });
    return () => stopped.abort();
  }, [key, turn]);
  const age = 1000 * Number(query.max_age ?? 0);
  // A layout effect, because events before the next paint may be missing in the response.
  useLayoutEffect(() => {
    let timer = 0;
    let later = 0;
    const more = () => {
      timer = 0;
      refresh();
      // They may also be missing in a cached response that others share.
      clearTimeout(later);
      later = age ? window.setTimeout(() => { if (!document.hidden) refresh(); }, age) : 0;
    };
    const stop = onEvents(kinds, () => {
      timer ||= window.setTimeout(more, Math.max(0, begun.current + least - Date.now()));
    });
    return () => { stop(); clearTimeout(timer); clearTimeout(later); };
  }, [kinds.join(), least, age]);
  const isOurs = found.subject === subject;
  const { max_age: _, ...withoutAge } = query;
  return {
    data: isOurs ? found.data : null,
    error: isOurs ? found.error : null,
    isLoading: path !== null && (!isOurs || (found.data === null && found.error === null)),
    at: isOurs ? found.at : 0,
    path: path ?? "",
    query: withoutAge,
    reload: () => { isFresh.current = true; readAgain(); },
    refresh,
  };
}

/** Act at this interval in milliseconds while the page is visible; 0 for never.
 * @param {number} every @param {() => void} act */
export function useEvery(every, act) {
  useEffect(() => {
    const timer = every ? setInterval(() => { if (!document.hidden) act(); }, every) : 0;
    return () => clearInterval(timer);
  }, [every]);
}

/** Use the current time, updated at this interval in milliseconds.
 * @param {number} [every] */
export function useNow(every = 1000) {
  const [now, set] = useState(Date.now);
  useEvery(every, () => set(Date.now()));
  return now;
}
