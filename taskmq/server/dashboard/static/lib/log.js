// @ts-check
/** Log lines in a table that keeps line breaks. */
import { instant } from "./format.js";
import { html } from "./html.js";
import { JobLink } from "./job_link.js";
import { Table } from "./parts.js";

const KINDS = /** @type {any} */ ({ __proto__: null, critical: "s-failed", error: "s-failed", warning: "s-retrying", info: "s-queued" });
export const LEVELS = ["debug", "info", "warning", "error", "critical"];

/** @param {{lines: any[], hasJob?: boolean}} props */
export const Lines = ({ lines, hasJob = false }) => html`<${Table} label="Log" columns=${["When", "Level", ...(hasJob ? ["Job"] : []), "Line"]}>${lines.map((line) => html`<tr key=${line.number}>
  <td><time dateTime=${line.at}>${instant(line.at)}</time></td><td><span class=${`state ${KINDS[line.level] ?? ""}`}>${line.level}</span></td>
  ${hasJob && html`<td><${JobLink} name=${line.id}>${line.task}<//> <span class="dim">attempt ${line.attempt}</span></td>`}
  <td class="line">${line.message} <span class="dim">${line.logger}</span></td></tr>`)}<//>`;
