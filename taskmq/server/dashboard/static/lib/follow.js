// @ts-check
/** The live log of a job or of a run: its newest lines, and new ones as they arrive. */
import { part, read } from "./api.js";
import { html, useEffect, useLayoutEffect, useRef, useState } from "./html.js";
import { Lines } from "./log.js";
import { Failure } from "./parts.js";
import { to } from "./route.js";

const EVERY = 2000;
const TOGETHER = 200;
const MOST = 1000;
/** The number of polls after the end, because lines reach the store late. */
const AFTER_RUN = 3;
/** The distance from the end, in pixels, within which the list keeps scrolling to the end. */
const NEAR = 40;

/** @param {{id: string, of?: "jobs" | "runs", step?: string, level: string, runs: boolean, hasStarted: boolean, isOver: boolean}} props */
export function LiveLog({ id, of = "jobs", step = "", level, runs, hasStarted, isOver }) {
  const [log, set] = useState(/** @type {{lines: any[], hasEarlier: boolean} | null} */ (null));
  const [error, setError] = useState(/** @type {Error | null} */ (null));
  const [isPaused, setPaused] = useState(false);
  const [isWhole, setWhole] = useState(false);
  const after = useRef(/** @type {string | null} */ (null));
  const place = useRef(/** @type {HTMLElement | null} */ (null));
  const isAtEnd = useRef(true);
  useEffect(() => {
    if (isPaused) return undefined;
    const stopped = new AbortController();
    let timer = 0;
    let left = runs ? Infinity : hasStarted ? AFTER_RUN : 1;
    const look = async () => {
      let pause = EVERY;
      if (!document.hidden) {
        try {
          const isFirst = after.current === null;
          const page = isFirst ? await read("logs", { [of === "jobs" ? "job_id" : "run_id"]: id, step, level, limit: TOGETHER }, stopped.signal)
            : await read(`${of}/${part(id)}/logs`, { step, level, cursor: after.current, limit: TOGETHER }, stopped.signal);
          const items = isFirst ? page.items.reverse() : page.items;
          if (items.length) after.current = String(Math.max(...items.map((/** @type {any} */ one) => one.number)));
          after.current ??= "";
          const isFull = items.length >= TOGETHER;
          set((/** @type {{lines: any[], hasEarlier: boolean} | null} */ before) => {
            const lines = [...(before?.lines ?? []), ...items];
            // Workers send the lines of several jobs in portions.
            if (of === "runs") lines.sort((one, two) => (one.at < two.at ? -1 : one.at > two.at ? 1 : one.number - two.number));
            return { lines: lines.slice(-MOST), hasEarlier: (before?.hasEarlier ?? isFull) || lines.length > MOST };
          });
          setError(null);
          if (isFull && !isFirst) pause = 0;
          else left -= 1;
        } catch (failure) {
          if (stopped.signal.aborted) return;
          setError(/** @type {Error} */ (failure));
        }
      }
      if (left > 0) timer = window.setTimeout(look, pause);
      else setWhole(isOver);
    };
    look();
    return () => { stopped.abort(); clearTimeout(timer); };
  }, [isPaused, runs, hasStarted, isOver]);
  const box = () => place.current?.querySelector(".scroll");
  useLayoutEffect(() => {
    const list = box();
    if (list && isAtEnd.current) list.scrollTop = list.scrollHeight;
  }, [log]);
  const onScroll = () => {
    const list = box();
    if (list) isAtEnd.current = list.scrollHeight - list.scrollTop - list.clientHeight < NEAR;
  };
  const word = isWhole ? "ended" : isPaused ? "paused" : runs || isOver ? "following" : "waiting for the run";
  return html`<div class="bar"><span class="state" role="status">${word}</span>
      ${!isWhole && (isPaused || runs || isOver) && html`<button type="button" data-key="p" title="p" aria-pressed=${isPaused} onClick=${() => setPaused(!isPaused)}>Pause log</button>`}
      ${log?.hasEarlier && of === "jobs" && html`<a href=${to(["jobs", id], { level, from: "0" })}>From the beginning</a>`}</div>
    ${error && html`<${Failure} error=${error} />`}
    ${log === null ? !error && html`<p class="note" role="status" data-loading>Loading …</p>`
      : log.lines.length ? html`<div class="follow" ref=${place} onScrollCapture=${onScroll}><${Lines} lines=${log.lines} hasStep=${of === "runs"} /></div>` : html`<p class="dim">No lines${isWhole ? "" : " yet"}.</p>`}`;
}
