// @ts-check
/** What a page shows, and how it stays fresh. */
import { read } from "./api.js";
import { useEffect, useLayoutEffect, useRef, useState } from "./html.js";
import { onEvents } from "./live.js";

const BUSY = 250;

/**
 * @typedef {{data: any, error: Error | null, isLoading: boolean, at: number, reload: () => void}} Loaded
 */

/** Read something, and again when events of these kinds happen. Data stays while it is read again; `error`: not fresh.
 * @param {string | null} path below the API; null: nothing for now.
 * @param {Record<string, unknown>} [query]
 * @param {string[]} [kinds] of events: `job`, `worker`.
 * @param {number} [least] milliseconds between two readings, however much happens.
 * @returns {Loaded}
 */
export function useData(path, query = {}, kinds = ["job"], least = 3000) {
  const [found, set] = useState({ key: "", data: null, error: /** @type {Error | null} */ (null), at: 0 });
  const [turn, again] = useState(0);
  const busy = useRef(false);
  const begun = useRef(0);
  // Show at once what the user has done.
  const isFresh = useRef(false);
  const key = path === null ? "" : `${path}?${JSON.stringify(query)}`;
  // Not after the next painting: there would be nothing to see in it.
  useLayoutEffect(() => {
    if (path === null) return undefined;
    const stopped = new AbortController();
    busy.current = true;
    begun.current = Date.now();
    const asked = isFresh.current && query.max_age ? { ...query, max_age: 0 } : query;
    isFresh.current = false;
    read(path, asked, stopped.signal).then(
      (data) => set({ key, data, error: null, at: Date.now() }),
      (error) => {
        if (stopped.signal.aborted) return;
        set((/** @type {any} */ before) => ({ ...(before.key === key ? before : { key, data: null, at: 0 }), error }));
      },
    ).finally(() => { if (!stopped.signal.aborted) busy.current = false; });
    return () => stopped.abort();
  }, [key, turn]);
  const age = 1000 * Number(query.max_age ?? 0);
  // From the moment at which it is read: what happens before the next painting is missing in it too.
  useLayoutEffect(() => {
    let timer = 0;
    let later = 0;
    const readAgain = () => again((/** @type {number} */ n) => n + 1);
    const more = () => {
      // What happened while it is read may be missing in it.
      timer = busy.current ? window.setTimeout(more, BUSY) : 0;
      if (busy.current) return;
      readAgain();
      // So may it be in a look that others share, which is from before it happened.
      clearTimeout(later);
      later = age ? window.setTimeout(() => { if (!document.hidden) readAgain(); }, age) : 0;
    };
    const stop = onEvents(kinds, () => {
      timer ||= window.setTimeout(more, Math.max(0, begun.current + least - Date.now()));
    });
    return () => { stop(); clearTimeout(timer); clearTimeout(later); };
  }, [kinds.join(), least, age]);
  const isOurs = found.key === key;
  return {
    data: isOurs ? found.data : null,
    error: isOurs ? found.error : null,
    isLoading: path !== null && (!isOurs || (found.data === null && found.error === null)),
    at: isOurs ? found.at : 0,
    reload: () => { isFresh.current = true; again((/** @type {number} */ n) => n + 1); },
  };
}

/** The time, again every so many milliseconds, for countdowns and ages.
 * @param {number} [every] */
export function useNow(every = 1000) {
  const [now, set] = useState(Date.now);
  useEffect(() => {
    const timer = setInterval(() => { if (!document.hidden) set(Date.now()); }, every);
    return () => clearInterval(timer);
  }, [every]);
  return now;
}
