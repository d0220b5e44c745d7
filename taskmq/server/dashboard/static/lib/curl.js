// @ts-check
/** Requests of the dashboard as curl commands, so that people can repeat them in a shell. */
import { address, record } from "./api.js";
import { html } from "./html.js";
import { copy, notify } from "./parts.js";

/** Quote a text for a shell.
 * @param {string} text */
const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

/** Return the command of a request. The shell replaces the token; no secret is in the text.
 * @param {import("./api.js").Sent} sent */
export function curlOf({ method, url, body, headers }) {
  const words = ["curl", ...(method === "GET" ? [] : ["-X", method]), quoted(url), '-H "Authorization: Bearer $TASKMQ_TOKEN"', ...Object.entries(headers).map(([name, value]) => `-H ${quoted(`${name}: ${value}`)}`)];
  if (body !== undefined) words.push("-H 'Content-Type: application/json'", `-d ${quoted(JSON.stringify(body))}`);
  return words.join(" ");
}

/** Copy the request that an action would send, without sending it.
 * @param {() => unknown} act */
export async function copyRequest(act) {
  try {
    const sent = await record(act);
    if (sent) await copy(curlOf(sent));
  } catch (error) {
    notify(/** @type {Error} */ (error).message, true);
  }
}

/** A button that copies the request of an action, or of a list.
 * @param {{act?: () => unknown, list?: {path: string, query: Record<string, unknown>}}} props */
export function CopyCurl({ act = undefined, list = undefined }) {
  const run = () => (act ? copyRequest(act) : list && copy(curlOf({ method: "GET", url: address(list.path, list.query), headers: {} })));
  return html`<button type="button" class="plain" title=${act ? "Copy the request of this action" : "Copy the request of this page"} onClick=${run}>Copy as curl</button>`;
}
