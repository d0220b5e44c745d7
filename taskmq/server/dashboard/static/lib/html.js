// @ts-check
/** Preact, its hooks, and `html` for tagged templates. */
import { Fragment, h, render } from "../vendor/preact.mjs";
import { useCallback, useEffect, useErrorBoundary, useLayoutEffect, useMemo, useRef, useState } from "../vendor/hooks.mjs";
import htm from "../vendor/htm.mjs";

export const html = htm.bind(h);

/** Use the inner size of an element, in pixels; 0 before its first layout.
 * @returns {[{current: HTMLElement | null}, {width: number, height: number}]} the element, and its size */
export function useSize() {
  const place = useRef(/** @type {HTMLElement | null} */ (null));
  const [size, measure] = useState({ width: 0, height: 0 });
  useLayoutEffect(() => {
    const at = /** @type {HTMLElement} */ (place.current);
    const fit = () => measure({ width: at.clientWidth, height: at.clientHeight });
    const sized = new ResizeObserver(fit);
    fit();
    sized.observe(at);
    return () => sized.disconnect();
  }, []);
  return [place, size];
}

export { Fragment, h, render, useCallback, useEffect, useErrorBoundary, useLayoutEffect, useMemo, useRef, useState };
