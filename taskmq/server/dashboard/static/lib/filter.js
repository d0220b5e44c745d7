// @ts-check
/** The filter of a list, in its address. */
import { html, useEffect, useState } from "./html.js";
import { change, route, to } from "./route.js";

/** A field that sets a parameter of the address, and returns to the start of the list.
 * @param {{name: string, label: string, placeholder: string, place?: string, [more: string]: unknown}} props place: the parameter with the place in the list; the others are those of the input */
export function Search({ name, label, placeholder, place = "cursor", ...more }) {
  const value = route().query[name] ?? "";
  const [text, set] = useState(value);
  useEffect(() => set(value), [value]);
  const submit = (/** @type {Event} */ event) => { event.preventDefault(); change({ [name]: text.trim(), [place]: "" }); };
  return html`<form role="search" class=${name === "filter" ? "" : "is-short"} onSubmit=${submit}><label class="sr" for=${name}>${label}</label>
    <input ...${more} id=${name} data-filter value=${text} placeholder=${placeholder} spellcheck=${false} autoComplete="off" onInput=${(/** @type {any} */ e) => set(e.target.value)} /><button type="submit">Filter</button></form>`;
}

/** The text of a filter, and its terms, each with a link that removes it.
 * @param {{page: string, filter: string, placeholder: string}} props */
export function Filter({ page, filter, placeholder }) {
  const terms = filter.match(/(?:[^\s"]|"(?:[^"\\]|\\.)*"?)+/g) ?? [];
  return html`<div class="bar"><${Search} name="filter" label="Filter" placeholder=${placeholder} /></div>
    ${terms.length > 0 && html`<div class="chips" role="group" aria-label="Terms of the filter">${terms.map((term, at) => html`<a key=${at} class="term" href=${to(page, { filter: terms.filter((_, other) => other !== at).join(" ") })} aria-label=${`Remove ${term}`}>${term} <span aria-hidden="true">×</span></a>`)}</div>`}`;
}

/** @param {string} filter @param {string} states */
function withStates(filter, states) {
  const rest = filter.replace(/(^|\s)(status|state):\S+/, "").trim();
  return `${states ? `status:${states} ` : ""}${rest}`.trim();
}

/** Links that set the states of a filter.
 * @param {{page: string, filter: string, of: string[][]}} props of: a word, and its states */
export function Chips({ page, filter, of }) {
  const states = /(?:^|\s)(?:status|state):(\S+)/.exec(filter)?.[1] ?? "";
  return html`<div class="chips" role="group" aria-label="States">${of.map(([word, meant]) => html`<a key=${word} href=${to(page, { filter: withStates(filter, meant) })} aria-current=${states === meant ? "true" : undefined}>${word}</a>`)}</div>`;
}

/** Remove the last term of a filter that matches nothing.
 * @param {string} filter */
export const withoutLast = (filter) => filter.replace(/\s*(\S+:"(?:[^"\\]|\\.)*"|\S+)\s*$/, "");
