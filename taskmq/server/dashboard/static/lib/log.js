// @ts-check
/** Log lines in a table that keeps line breaks. */
import { instant } from "./format.js";
import { html } from "./html.js";
import { JobLink } from "./job_link.js";
import { Table } from "./parts.js";
import { to } from "./route.js";

const KINDS = /** @type {any} */ ({ __proto__: null, critical: "s-failed", error: "s-failed", warning: "s-retrying", info: "s-queued" });
export const LEVELS = ["debug", "info", "warning", "error", "critical"];

/** @param {{lines: any[], hasJob?: boolean, hasStep?: boolean}} props */
export const Lines = ({ lines, hasJob = false, hasStep = false }) => html`<${Table} label="Log" columns=${["When", "Level", ...(hasJob ? ["Job"] : []), ...(hasStep ? ["Step"] : []), "Line"]}>${lines.map((line) => html`<tr key=${line.number} data-step=${hasStep ? line.step : undefined}>
  <td><time dateTime=${line.at}>${instant(line.at)}</time></td><td><span class=${`state ${KINDS[line.level] ?? ""}`}>${line.level}</span></td>
  ${hasJob && html`<td><${JobLink} name=${line.id}>${line.task}<//> <span class="dim">attempt ${line.attempt}</span></td>`}
  ${hasStep && html`<td><a href=${to(["jobs", line.id])}>${line.step}${line.child === null ? "" : ` [${line.child}]`}</a></td>`}
  <td class="line">${line.message} <span class="dim">${line.logger}</span></td></tr>`)}<//>`;
