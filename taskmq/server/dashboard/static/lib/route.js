// @ts-check
/** The address, `#/jobs/ID?filter=...`, contains the complete state of a view. */
import { useLayoutEffect, useState } from "./html.js";

/** @typedef {{hash: string, path: string[], query: Record<string, string>}} Route */

/** Return the route of an address, by default of the current one.
 * @param {string} hash @returns {Route} */
export function route(hash = location.hash) {
  const text = hash.replace(/^#\/?/, "");
  const mark = text.indexOf("?");
  const path = (mark < 0 ? text : text.slice(0, mark)).split("/").filter(Boolean).map(decode);
  return { hash, path, query: Object.fromEntries(new URLSearchParams(mark < 0 ? "" : text.slice(mark + 1))) };
}

/** @param {string} text */
function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/**
 * Return the address of a view, for `href`.
 * @param {string | string[]} path a page's name, or its parts, which may be any text.
 * @param {Record<string, unknown>} [query] empty values are omitted; the tenant is kept.
 */
export function to(path, query = {}) {
  const parts = Array.isArray(path) ? path : [path];
  const search = new URLSearchParams();
  /** @type {[string, unknown][]} */
  const said = Object.entries({ tenant: route().query.tenant, ...query });
  for (const [name, value] of said) {
    if (value !== undefined && value !== null && value !== "" && value !== false) search.set(name, String(value));
  }
  const text = search.toString();
  return `#/${parts.filter(Boolean).map(encodeURIComponent).join("/")}${text ? `?${text}` : ""}`;
}

/** Go to another view.
 * @param {string | string[]} path @param {Record<string, unknown>} [query] */
export function go(path, query) {
  location.hash = to(path, query);
}

/** Change parameters of the current view.
 * @param {Record<string, unknown>} changes */
export function change(changes) {
  const now = route();
  go(now.path, { ...now.query, ...changes });
}

/** Use the current route. */
export function useRoute() {
  const [found, set] = useState(() => route());
  // A layout effect, so that no change before the next paint is missed.
  useLayoutEffect(() => {
    const changed = () => set(route());
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return found;
}
